//! Compares a command with and without a change, and reaches a verdict; optionally with a
//! prediction.

mod page;
mod prediction;
mod result;
mod sentences;

use crate::ExportError;
use crate::html::frame::Page;

use crate::Forms;

pub use prediction::{
    MeasuredTime, MeasuredTimes, PredictedChange, PredictedFrom, VerifyPrediction,
};
pub use result::{Change, SettingRow, VerifyResult};

impl Forms for VerifyResult {
    fn text(&self) -> String {
        self.shown()
    }

    fn csv(&self) -> Result<String, ExportError> {
        self.records()
    }
}

impl VerifyResult {
    /// # Errors
    /// Never in practice: the result is names and numbers.
    pub fn page(&self) -> Result<Page, ExportError> {
        page::of(self)
    }
}

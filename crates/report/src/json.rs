//! The result as JSON: [`crate::report`] gives the schema.

use std::io::Write;

use crate::{ExportError, Exporter, Report};

/// Indented JSON; the keys come in the order of the schema.
#[derive(Clone, Copy, Debug, Default)]
pub struct Json;

impl Exporter for Json {
    fn export(&self, report: &Report, out: &mut dyn Write) -> Result<(), ExportError> {
        let mut text = serde_json::to_vec_pretty(report)?;
        text.push(b'\n');
        Ok(out.write_all(&text)?)
    }
}

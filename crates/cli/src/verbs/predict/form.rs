//! The output formats of a prediction: those of every table, and Parquet.

use std::io::{IsTerminal, stdout};

use anyhow::{Result, bail};
use clap::Args;
use largefolio_results::predict::{Depth, PredictResult, TextStyle, parquet, text};
use largefolio_results::{Form, Forms as _};

use crate::console::Console;
use crate::verbs::values::FormArgs;

/// The options that choose the format.
#[derive(Args, Clone, Copy, Debug)]
pub(super) struct FrameArgs {
    #[command(flatten)]
    form: FormArgs,
    /// Write Parquet: a data frame with one row per cell
    #[arg(long, conflicts_with_all = ["json", "csv"])]
    parquet: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FrameForm {
    Plain(Form),
    Parquet,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sink {
    File,
    Stream,
}

impl FrameArgs {
    pub(super) fn is_json(self) -> bool {
        self.form.form() == Form::Json
    }

    pub(super) fn form(self, sink: Sink) -> Result<FrameForm> {
        if !self.parquet {
            return Ok(FrameForm::Plain(self.form.form()));
        }
        if sink == Sink::Stream && stdout().is_terminal() {
            bail!(
                "Parquet is binary and would garble the terminal; write it to a file with -o FILE"
            );
        }
        Ok(FrameForm::Parquet)
    }
}

impl FrameForm {
    pub(super) const fn has_verdict(self) -> bool {
        matches!(self, Self::Plain(Form::Json | Form::Text))
    }

    pub(super) fn written(
        self,
        report: &PredictResult,
        sink: Sink,
        depth: Depth,
    ) -> Result<Vec<u8>> {
        let text = match self {
            Self::Parquet => return Ok(parquet::file(report)?),
            Self::Plain(Form::Text) => {
                let is_styled = sink == Sink::Stream && Console::is_styled();
                text::text(report, TextStyle { width: Console::width(), is_styled, depth })
            }
            Self::Plain(form) => report.written(form)?,
        };
        Ok(text.into_bytes())
    }
}

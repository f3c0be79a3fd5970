//! The output formats of a prediction: those of every table, and Parquet.

use std::io::{IsTerminal, stdout};

use anyhow::{Result, bail};
use clap::Args;
use largefolio_report::text::Depth;
use largefolio_report::{Exporter, Json, Parquet, Text, Tidy};
use largefolio_results::Form;

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

    pub(super) fn exporter(self, sink: Sink, depth: Depth) -> Box<dyn Exporter> {
        match self {
            Self::Parquet => Box::new(Parquet),
            Self::Plain(Form::Json) => Box::new(Json),
            Self::Plain(Form::Csv) => Box::new(Tidy),
            Self::Plain(Form::Text) => Box::new(Text {
                width: Console::width(),
                is_styled: sink == Sink::Stream && Console::is_styled(),
                depth,
            }),
        }
    }
}

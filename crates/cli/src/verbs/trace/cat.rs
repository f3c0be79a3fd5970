//! `folio trace cat`.

mod describe;

use std::io::{self, Write};
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use clap::Args;
use largefolio_results::Form;
use largefolio_trace::{Batch, Event, Meta, Op, Reader};
use serde::Serialize;

use crate::console::{Console, NOT_WRITTEN};
use crate::errors::Exit;
use crate::verbs::confined;
use crate::verbs::values::{FormArgs, number};
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Print the events of a trace, one per line
///
/// The trace is streamed, so memory use does not depend on its length. The JSON contains one object
/// per line.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio trace cat cc1.folio | less
  folio trace cat cc1.folio --head 1000 --csv > first.csv
  folio trace cat cc1.folio --json | grep '\"op\":\"mmap\"'")]
pub(crate) struct CatArgs {
    /// Trace
    trace: PathBuf,
    /// Print only the first N events
    #[arg(long, value_name = "N", value_parser = number::<u64>)]
    head: Option<u64>,
    #[command(flatten)]
    form: FormArgs,
}

pub(crate) struct CatPlan {
    reader: Reader,
    nr_events: u64,
    form: Form,
}

impl VerbArgs for CatArgs {
    type Plan = CatPlan;

    fn plan(self, _invocation: &Invocation<'_>) -> Result<Self::Plan> {
        confined::to(std::slice::from_ref(&self.trace), []);
        let reader = Reader::open(&self.trace)?;
        let nr_events = self.head.unwrap_or(u64::MAX);
        Ok(CatPlan { reader, nr_events, form: self.form.form() })
    }
}

/// An event as data: the fields of the file format.
#[derive(Serialize)]
struct Record {
    row: u64,
    thread: u32,
    op: &'static str,
    addr: u64,
    len: u64,
    pos: u64,
    aux: u64,
    flags: u32,
    file: Option<u32>,
}

impl Record {
    fn new(row: u64, event: &Event) -> Self {
        let &Event { thread, op, addr, len, pos, aux, flags, file } = event;
        Self { row, thread, op: op.name(), addr, len, pos, aux, flags, file }
    }
}

impl VerbPlan for CatPlan {
    fn run(mut self, console: &mut Console) -> Result<Exit> {
        let meta = self.reader.meta().clone();
        let mut lines = Lines::new(self.form, &meta, console.out());
        let (mut batch, mut row) = (Batch::default(), 0);
        while row < self.nr_events && self.reader.next_batch(&mut batch)? {
            for event in batch.events() {
                if row == self.nr_events {
                    break;
                }
                lines.write(row, &event).context(NOT_WRITTEN)?;
                row += 1;
            }
        }
        if row == 0 {
            lines.header().context(NOT_WRITTEN)?;
        }
        lines.finish().context(NOT_WRITTEN)?;
        console.finish()?;
        Ok(Exit::Done)
    }
}

/// The format of the lines, and their destination.
enum Lines<'a> {
    Text(&'a Meta, &'a mut dyn Write),
    Json(&'a mut dyn Write),
    Csv(Box<csv::Writer<&'a mut dyn Write>>),
}

impl<'a> Lines<'a> {
    fn new(form: Form, meta: &'a Meta, out: &'a mut dyn Write) -> Self {
        match form {
            Form::Text => Self::Text(meta, out),
            Form::Json => Self::Json(out),
            Form::Csv => Self::Csv(Box::new(csv::Writer::from_writer(out))),
        }
    }

    fn write(&mut self, row: u64, event: &Event) -> Result<()> {
        match self {
            Self::Text(meta, out) => describe::line(*out, row, event, meta)?,
            Self::Json(out) => {
                let record = Record::new(row, event);
                serde_json::to_writer(&mut **out, &record).map_err(io::Error::from)?;
                out.write_all(b"\n")?;
            }
            Self::Csv(csv) => csv.serialize(Record::new(row, event)).map_err(csv_error)?,
        }
        Ok(())
    }

    /// Writes the column names if no row has done so.
    fn header(&mut self) -> Result<()> {
        if let Self::Csv(csv) = self {
            let mut first = csv::Writer::from_writer(Vec::new());
            first.serialize(Record::new(0, &Event::new(0, Op::Read))).map_err(csv_error)?;
            let text = first.into_inner().map_err(csv::IntoInnerError::into_error)?;
            let names = text.split(|byte| *byte == b'\n').next().unwrap_or_default();
            csv.write_record(names.split(|byte| *byte == b',')).map_err(csv_error)?;
        }
        Ok(())
    }

    fn finish(self) -> Result<()> {
        if let Self::Csv(mut csv) = self {
            csv.flush()?;
        }
        Ok(())
    }
}

/// Extracts the system's error from a CSV error, so that a closed output is recognized.
fn csv_error(error: csv::Error) -> io::Error {
    match error.into_kind() {
        csv::ErrorKind::Io(error) => error,
        kind => io::Error::other(format!("{kind:?}")),
    }
}

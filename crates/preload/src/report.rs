//! Reports the results in this process to the launcher, and to the user with
//! `LARGEFOLIO_VERBOSE=1`.
//!
//! Otherwise prints nothing to stderr: programs read the output of build and test processes.

use crate::line::Line;
use crate::maps::{Blocks, Text};
use crate::sys::{self, Fd};
use crate::wire::{How, RECORD_BYTES_MAX, Refusal};

pub(crate) struct Report {
    file: Option<Fd>,
    is_verbose: bool,
}

pub(crate) struct Cost {
    pub(crate) large: usize,
    pub(crate) taken_ns: u64,
}

/// One byte more than the longest record, for the zero.
type Record = Line<{ RECORD_BYTES_MAX + 1 }>;

impl Report {
    pub(crate) const fn new(file: Option<Fd>, is_verbose: bool) -> Self {
        Self { file, is_verbose }
    }

    pub(crate) fn text(
        &self,
        text: &Text,
        blocks: &Blocks,
        result: Result<How, Refusal>,
        cost: &Cost,
    ) {
        let Cost { large, taken_ns } = *cost;
        let how = result.map_or(How::Plain, |how| how);
        let refusal = result.map_or_else(|refusal| refusal as u64, |_| 0);
        let numbers = [
            sys::process(),
            taken_ns / 1000,
            how as u64,
            refusal,
            text.len() as u64,
            blocks.len as u64,
            large as u64,
            blocks.shift(),
        ];
        self.append(b"T", &numbers, text.name());
        if self.is_verbose {
            let mut line = Record::new();
            line.push(b"largefolio: ").push_name(text.name()).push(b": ");
            match result {
                Ok(how) => {
                    let how: &[u8] = match how {
                        How::Private => b"private",
                        How::Made => b"new",
                        How::Plain | How::Shared => b"shared",
                    };
                    line.push_decimal(blocks.len as u64 >> 10).push(b" of ");
                    line.push_decimal(text.len() as u64 >> 10).push(b" KiB of text on a ");
                    line.push(how).push(b" copy, ").push_decimal(large as u64 >> 10);
                    line.push(b" KiB under PMD entries, ");
                    line.push_decimal(taken_ns / 1000).push(b" us");
                }
                Err(refusal) => {
                    line.push(b"left unchanged: ").push(refusal.text().as_bytes());
                }
            }
            sys::complain(line.push(b"\n").bytes());
        }
    }

    pub(crate) fn process(&self, result: Result<(), Refusal>, taken_ns: u64) {
        if self.file.is_some() {
            let refusal = result.map_or_else(|refusal| refusal as u64, |()| 0);
            self.append(b"P", &[sys::process(), taken_ns / 1000, refusal], b"");
        }
        if let (true, Err(refusal)) = (self.is_verbose, result) {
            let mut line = Record::new();
            line.push(b"largefolio: text left unchanged: ").push(refusal.text().as_bytes());
            sys::complain(line.push(b"\n").bytes());
        }
    }

    fn append(&self, kind: &[u8], numbers: &[u64], name: &[u8]) {
        let Some(file) = &self.file else { return };
        let mut line = Record::new();
        line.push(kind);
        for number in numbers {
            line.push(b" ").push_decimal(*number);
        }
        if !name.is_empty() {
            line.push(b" ").push_name(name);
        }
        file.append(line.push(b"\n").bytes());
    }
}

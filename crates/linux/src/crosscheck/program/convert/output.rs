//! The lines of a recording.
//!
//! Owns their text, and what of it depends on the lines before: the address space that acts, and
//! insertions that follow each other, which are one line.

use std::fmt::Write as _;

use crate::crosscheck::program::line::{Event, Readahead};

/// Lines as they are written.
#[derive(Debug, Default)]
pub(super) struct Output {
    text: String,
    /// Address space of the lines written last.
    current: u32,
    /// Still to be written.
    inserted: Option<Inserted>,
}

/// Folios of one order that follow each other.
#[derive(Clone, Copy, Debug)]
struct Inserted {
    file: u32,
    first: u64,
    order: u8,
    times: u64,
}

impl Output {
    pub(super) fn finish(mut self) -> String {
        self.flush();
        self.text
    }

    pub(super) fn act(&mut self, line: &str) {
        self.flush();
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// An action in an address space; `H n` names the one that acts from here on.
    pub(super) fn act_in(&mut self, space: u32, line: &str) {
        if space != self.current {
            self.current = space;
            self.act(&format!("H {space}"));
        }
        self.act(line);
    }

    /// What the kernel did to a file.
    pub(super) fn kernel(&mut self, file: u32, event: &Event) {
        if let Event::Inserted { index, order, .. } = *event {
            return self.insertion(file, index, order);
        }
        self.flush();
        let at = of_file(file);
        let out = &mut self.text;
        let written = match event {
            Event::Removed { index, order, .. } => writeln!(out, "{at}D {index} {order}"),
            Event::Handler { index, .. } => writeln!(out, "{at}F {index}"),
            Event::Around { first, last, .. } => writeln!(out, "{at}W {first} {last}"),
            Event::Collected { first, last, .. } => writeln!(out, "{at}G {first} {last}"),
            Event::Readahead { kind, fields, .. } => {
                let name = match kind {
                    Readahead::Order => "order",
                    Readahead::Unbounded => "unbounded",
                    Readahead::Sync => "sync",
                    Readahead::Async => "async",
                };
                let fields: Vec<String> = fields.iter().map(ToString::to_string).collect();
                writeln!(out, "{at}S {name} {}", fields.join(" "))
            }
            Event::Inserted { .. } | Event::Mark(_) | Event::Fault { .. } => Ok(()),
        };
        let Ok(()) = written else { unreachable!("writing to a String succeeds") };
    }

    fn insertion(&mut self, file: u32, index: u64, order: u8) {
        if let Some(last) = &mut self.inserted
            && (last.file, last.order, last.first + (last.times << last.order))
                == (file, order, index)
        {
            last.times += 1;
            return;
        }
        self.flush();
        self.inserted = Some(Inserted { file, first: index, order, times: 1 });
    }

    /// Writes the insertions gathered.
    fn flush(&mut self) {
        let Some(Inserted { file, first, order, times }) = self.inserted.take() else { return };
        let at = of_file(file);
        let times = if times > 1 { format!(" x{times}") } else { String::new() };
        let written = writeln!(self.text, "{at}A {first} {order}{times}");
        let Ok(()) = written else { unreachable!("writing to a String succeeds") };
    }
}

/// The first file of a recording is not named.
fn of_file(file: u32) -> String {
    if file == 0 { String::new() } else { format!("@{file} ") }
}

//! Writes the lines of a recording.
//!
//! Owns their text and its dependence on earlier lines: the current address space, and consecutive
//! insertions, which share a line.

use std::fmt::Write as _;

use crate::crosscheck::record::program::line::{Event, Readahead};

#[derive(Debug, Default)]
pub(super) struct Output {
    text: String,
    current: u32,
    inserted: Option<Inserted>,
}

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

    /// Writes an action in an address space; `H n` changes the current one.
    pub(super) fn act_in(&mut self, space: u32, line: &str) {
        if space != self.current {
            self.current = space;
            self.act(&format!("H {space}"));
        }
        self.act(line);
    }

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

    fn flush(&mut self) {
        let Some(Inserted { file, first, order, times }) = self.inserted.take() else { return };
        let at = of_file(file);
        let times = if times > 1 { format!(" x{times}") } else { String::new() };
        let written = writeln!(self.text, "{at}A {first} {order}{times}");
        let Ok(()) = written else { unreachable!("writing to a String succeeds") };
    }
}

/// A recording does not name its first file.
fn of_file(file: u32) -> String {
    if file == 0 { String::new() } else { format!("@{file} ") }
}

//! Recordings from arbitrary bytes, which no real recorder would send. For tests and the fuzzer.
//!
//! Invariant F1: whatever recorded programs send, the trace is complete and can be read.

use std::path::Path;
use std::time::Instant;

use largefolio_trace::{Batch, Meta, Reader, Writer};

use super::Ledger;
use crate::record::book::Book;
use crate::record::error::RecordError;
use crate::record::finish::Finish;
use crate::record::outcome::{RecordEnd, RecorderKind};
use crate::record::qemu::wire::{
    BORROWS_MEMORY, HEADER_BYTES, Header, Kind, NEW_PROCESS, Row, WireEvent, WireFile,
};

const FIRST: u32 = 10;

/// Yields bytes to their end, then zeros.
struct Bytes<'a>(&'a [u8]);

impl Bytes<'_> {
    fn byte(&mut self) -> u8 {
        let Some((&first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        first
    }

    fn below(&mut self, end: u32) -> u32 {
        u32::from(self.byte()) % end
    }

    /// Returns addresses, small numbers, and numbers close to an overflow.
    fn number(&mut self) -> u64 {
        match self.byte() % 6 {
            0 => 0,
            1 => u64::from(self.byte()),
            2 => u64::from(self.byte()) << 12,
            3 => 0x7000_0000_0000 + (u64::from(self.byte()) << 12),
            4 => u64::MAX - (u64::from(self.byte()) << 12),
            _ => u64::from_le_bytes(std::array::from_fn(|_| self.byte())),
        }
    }

    fn text(&mut self) -> Vec<u8> {
        let len = usize::from(self.byte()).min(self.0.len());
        let (text, rest) = self.0.split_at(len);
        self.0 = rest;
        text.to_vec()
    }

    fn pid(&mut self) -> u32 {
        FIRST + self.below(5)
    }

    fn row(&mut self) -> u64 {
        let (op, link) = (self.below(3), self.below(16));
        let (addr, count) = (self.number() >> 16 & !0xfff, u64::from(self.byte()));
        Row { op, addr, count, link }.encode()
    }

    fn event(&mut self) -> WireEvent {
        let op = self.below(22);
        let flags = match self.byte() % 4 {
            0 => NEW_PROCESS,
            1 => NEW_PROCESS | BORROWS_MEMORY,
            2 => 1,
            _ => u32::from(self.byte()),
        };
        let aux = if self.byte().is_multiple_of(2) { u64::from(self.pid()) } else { self.number() };
        let (addr, len, pos) = (self.number(), self.number(), self.number());
        WireEvent { op, flags, addr, len, pos, aux, file: u64::from(self.byte() % 4) }
    }

    fn body(&mut self, kind: Kind) -> Vec<u8> {
        match kind {
            Kind::Event => self.event().encode().to_vec(),
            Kind::File => {
                let (key, size_bytes) = (u64::from(self.byte() % 4), self.number());
                let path = [b"/memfd:", self.text().as_slice()].concat();
                let holes = (0..self.byte() % 3).map(|_| (self.number(), self.number())).collect();
                WireFile { key, size_bytes, holes, path: &path }.encode()
            }
            Kind::Layout => {
                let (base, before, now) = (self.number(), self.text(), self.text());
                let nr_before = before.len() as u64;
                [&base.to_le_bytes(), &nr_before.to_le_bytes(), before.as_slice(), now.as_slice()]
                    .concat()
            }
            _ => self.text(),
        }
    }

    fn message(&mut self, pid: u32) -> Vec<u8> {
        let kind = Kind::ALL[usize::from(self.byte()) % Kind::ALL.len()];
        let tid = FIRST + self.below(7);
        let rows: Vec<u64> = (0..self.below(4)).map(|_| self.row()).collect();
        let body = self.body(kind);
        // A few rows, and texts with a one-byte length.
        let [nr_rows, nr_body] =
            [rows.len(), body.len()].map(|nr| u32::try_from(nr).unwrap_or(u32::MAX));
        let (seq, sent_ns) = (self.byte().into(), 0);
        let header = Header { kind, pid, tid, nr_rows, nr_body, seq, sent_ns };
        let mut message = Vec::with_capacity(HEADER_BYTES + body.len());
        message.extend(header.encode());
        message.extend(rows.iter().flat_map(|row| row.to_le_bytes()));
        message.extend(body);
        message
    }

    fn step(&mut self, ledger: &mut Ledger<'_, '_>) -> Result<(), RecordError> {
        let pid = self.pid();
        match self.byte() % 12 {
            0 => ledger.closed(pid)?,
            1 => ledger.executed(pid, self.below(3)),
            2 => ledger.connected(pid, self.below(3)),
            3 if !ledger.is_announced(pid) => {
                ledger.adopt(pid, self.pid())?;
            }
            4 => ledger.receive(pid, &self.text())?,
            _ => {
                let message = self.message(pid);
                ledger.receive(pid, &message)?;
            }
        }
        Ok(())
    }
}

/// Records the messages in `data` to `path`, and reads the trace.
///
/// # Errors
/// None, by F1.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer is another crate"))]
pub fn recorded_from(data: &[u8], path: &Path) -> Result<(), RecordError> {
    let meta = Meta { page_bytes: 4096, ..Meta::default() };
    let mut writer = Writer::create(path, meta)?;
    let mut book = Book::new(&mut writer);
    let mut ledger = Ledger::new(&mut book, path.with_extension("tails"), "/nonexistent".into());
    ledger.start(FIRST);
    ledger.connected(FIRST, 0);
    let mut bytes = Bytes(data);
    while !bytes.0.is_empty() {
        bytes.step(&mut ledger)?;
    }
    let ended = RecordEnd::Code(0);
    ledger.end_all(ended)?;
    let text = ledger.ended_text(ended);
    let finish = Finish::of_book(&mut book, text, Vec::new());
    finish.complete(writer, ended, RecorderKind::Qemu, Instant::now())?;
    let (mut reader, mut batch) = (Reader::open(path)?, Batch::default());
    while reader.next_batch(&mut batch)? {}
    Ok(())
}

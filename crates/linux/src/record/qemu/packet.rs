//! Checked messages of the plugin.
//!
//! Decodes bytes to a [`Packet`], and its rows to runs. Rejects everything else (I1): a recorded
//! program could write to the socket, but it can only spoil its own trace.

use largefolio_trace::{Op, Run};

use super::wire::{HEADER_BYTES, Header, ROW_BYTES, Row};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    pub(crate) header: Header,
    pub(crate) rows: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl<'a> Packet<'a> {
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::decode(bytes)?;
        let rest = bytes.get(HEADER_BYTES..)?;
        let nr_row_bytes = (header.nr_rows as usize).checked_mul(ROW_BYTES)?;
        let (rows, body) = rest.split_at_checked(nr_row_bytes)?;
        (body.len() == header.nr_body as usize).then_some(Self { header, rows, body })
    }
}

/// Decodes `rows` and appends the runs to `runs`.
///
/// Keeps a link only if it refers to a row of this message, at most `link_max` rows back, with no
/// row left out in between.
pub(crate) fn decode_rows(rows: &[u8], link_max: u64, runs: &mut Vec<Run>) {
    let mut nr_linkable = 0;
    runs.extend(rows.as_chunks::<ROW_BYTES>().0.iter().filter_map(|row| {
        let run = Row::decode(u64::from_le_bytes(*row)).and_then(|row| run_of(row, nr_linkable));
        nr_linkable = if run.is_some() { (nr_linkable + 1).min(link_max) } else { 0 };
        run
    }));
}

/// Converts `row` to a run; `nr_linkable` rows precede it.
#[inline]
fn run_of(row: Row, nr_linkable: u64) -> Option<Run> {
    let op = match row.op {
        0 => Op::Exec,
        1 => Op::Read,
        _ => Op::Write,
    };
    let is_link = op != Op::Exec && u64::from(row.link) <= nr_linkable;
    Run::new(op, row.addr, row.count, if is_link { row.link } else { 0 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::qemu::wire;

    fn links(rows: &[Row]) -> Vec<u32> {
        let bytes: Vec<u8> = rows.iter().flat_map(|row| row.encode().to_le_bytes()).collect();
        let mut runs = Vec::new();
        decode_rows(&bytes, wire::LINK_MAX, &mut runs);
        runs.iter().map(|run| run.link()).collect()
    }

    #[test]
    fn a_link_reaches_only_rows_that_are_there() {
        let row = |op, count, link| Row { op, addr: 0x7000, count, link };
        assert_eq!(links(&[row(1, 1, 1), row(1, 1, 2), row(2, 1, 2)]), [0, 0, 2]);
        assert_eq!(links(&[row(1, 1, 0), row(0, 1, 1), row(1, 1, 2)]), [0, 0, 2], "exec has none");
        let without_count = [row(1, 1, 0), row(1, 0, 0), row(1, 1, 1), row(1, 1, 1)];
        assert_eq!(links(&without_count), [0, 0, 1]);
        let full = (1 << wire::COUNT_BITS) - 1;
        assert_eq!(links(&vec![row(2, full, 15); 17])[14..], [0, 15, 15]);
    }
}

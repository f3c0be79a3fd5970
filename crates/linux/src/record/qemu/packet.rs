//! Messages of the plugin, checked.
//!
//! Owns the step from bytes to a [`Packet`] and from its rows to events. What does not decode is
//! refused here (I1): a recorded program could in principle write to the socket, and nothing it
//! writes may do more than spoil its own trace.

use largefolio_trace::{Event, Op, ThreadId};

use super::wire::{self, HEADER_BYTES, Header, ROW_BYTES};

#[derive(Clone, Copy, Debug)]
pub(crate) struct Packet<'a> {
    /// What it says, and whose it is.
    pub(crate) header: Header,
    /// Bytes of its rows.
    pub(crate) rows: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl<'a> Packet<'a> {
    /// Takes a message apart; `None` when it is none.
    pub(crate) fn decode(bytes: &'a [u8]) -> Option<Self> {
        let header = Header::decode(bytes)?;
        let rest = bytes.get(HEADER_BYTES..)?;
        let nr_row_bytes = (header.nr_rows as usize).checked_mul(ROW_BYTES)?;
        let (rows, body) = rest.split_at_checked(nr_row_bytes)?;
        (body.len() == header.nr_body as usize).then_some(Self { header, rows, body })
    }
}

/// The events that `rows` are, of `thread`, appended to `events`.
pub(crate) fn decode_rows(rows: &[u8], thread: ThreadId, events: &mut Vec<Event>) {
    events.extend(rows.chunks_exact(ROW_BYTES).filter_map(|row| {
        let row = u64::from_le_bytes(row.try_into().ok()?);
        let (op, addr, count) = wire::row_parts(row)?;
        let op = match op {
            0 => Op::Exec,
            1 => Op::Read,
            _ => Op::Write,
        };
        (count > 0).then(|| Event::references(thread, op, addr, count))
    }));
}

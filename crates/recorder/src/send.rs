//! Sends the pending rows of a tail, alone or before an event of its thread.
//!
//! Invariant H3: sent rows are cleared immediately, so no row is sent twice.

use crate::link;
use crate::tail::Tail;
use crate::wire::{Kind, WireEvent};

#[cold]
#[inline(never)]
pub(crate) fn flush(tail: &Tail) {
    if tail.nr_pending() > 0 {
        send(tail, Kind::Rows, [&[], &[]]);
    }
}

pub(crate) fn send_event(tail: &Tail, event: &WireEvent) {
    send(tail, Kind::Event, [&event.encode(), &[]]);
}

pub(crate) fn send(tail: &Tail, kind: Kind, body: [&[u8]; 2]) {
    let mut header = link::header(kind, tail.tid(), body[0].len() + body[1].len());
    header.nr_rows = tail.nr_pending();
    header.seq = tail.seq();
    link::send(&header, tail.pending(), body);
    if header.nr_rows > 0 {
        tail.clear();
    }
}

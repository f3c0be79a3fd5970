//! Sends what a tail holds, alone or before an event of its thread.
//!
//! Invariant H3: what was sent is cleared at once, so no row is sent twice.

use crate::link;
use crate::tail::Tail;
use crate::wire::{Kind, WireEvent};

/// Sends the rows of `tail`; the caller owns it or holds it at STEALING.
#[cold]
#[inline(never)]
pub(crate) fn flush(tail: &Tail) {
    if tail.nr_pending() > 0 {
        send(tail, Kind::Rows, [&[], &[]]);
    }
}

/// Sends the rows of `tail`, then an event of its thread.
pub(crate) fn send_event(tail: &Tail, event: &WireEvent) {
    send(tail, Kind::Event, [&event.encode(), &[]]);
}

/// Sends the rows of `tail`, then what `kind` and `body` say.
pub(crate) fn send(tail: &Tail, kind: Kind, body: [&[u8]; 2]) {
    let mut header = link::header(kind, tail.tid(), body[0].len() + body[1].len());
    header.nr_rows = tail.nr_pending();
    header.seq = tail.seq();
    link::send(&header, tail.pending(), body);
    if header.nr_rows > 0 {
        tail.clear();
    }
}

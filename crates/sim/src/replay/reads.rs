//! Who waits for which read: the reads that the memory manager issued, on one device.
//!
//! The memory manager completes every read at once. Here a read takes its time on a device
//! ([`crate::cost::Device`]), the program goes on at the pace of its references, and waits where it
//! needs what is not there yet. Nothing of it goes back into the memory manager.
//!
//! Rules:
//! - Folios inserted after one decision of readahead are one read, and complete together.
//! - The reads that a cold fault or a read call starts are waited for at once; those that the
//!   marker or an advice starts are not.
//! - A page of a read that is still under way is waited for when a walk finds it, or a read call
//!   covers it. All threads of the program share one clock, as on one processor.

use std::collections::VecDeque;

use largefolio_mm::core::observed::{EntryKind, Observed};
use largefolio_mm::folio::Owner;
use largefolio_mm::units::{MappingId, Pfn};
use largefolio_trace::{Event, Op};

use super::cell::Cell;
use super::detail::Origin;
use crate::cost::{Device, ReadEvents, Timing};

/// Reads under way that are remembered; a queue this long is as good as endless.
const NR_UNDER_WAY_MAX: usize = 1 << 12;

/// Whether the program waits for a read from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wait {
    AtOnce,
    WhenNeeded,
}

/// One read: pages `first .. end` of a file.
#[derive(Clone, Copy, Debug)]
struct Request {
    file: MappingId,
    first: u64,
    end: u64,
    nr_pages: u64,
    wait: Wait,
}

/// A read ahead that is not complete.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    file: MappingId,
    first: u64,
    end: u64,
    done_ns: u64,
}

/// The device, the program's clock, and what was counted.
#[derive(Clone, Debug, Default)]
pub(super) struct Reads {
    /// `None` where the machine file does not know its storage: reads are only counted.
    device: Option<Device>,
    /// Time the program waited so far.
    waited_ns: u64,
    under_way: VecDeque<UnderWay>,
    counts: ReadEvents,
}

impl Reads {
    pub(super) fn new(timing: Option<Timing>) -> Self {
        let zero = timing.is_some().then_some(0);
        let counts =
            ReadEvents { late_waits: zero, queue_ns: zero, late_ns: zero, ..ReadEvents::default() };
        Self { device: timing.map(Device::new), counts, ..Self::default() }
    }

    pub(super) const fn counts(&self) -> ReadEvents {
        self.counts
    }

    /// Asks the device for a request; `references` is the program's clock.
    fn submit(&mut self, request: &Request, bytes: u64, references: u64) {
        let (nr, sum) = match request.wait {
            Wait::AtOnce => (&mut self.counts.sync_requests, &mut self.counts.sync_bytes),
            Wait::WhenNeeded => (&mut self.counts.async_requests, &mut self.counts.async_bytes),
        };
        *nr += 1;
        *sum += bytes;
        let Some(device) = &mut self.device else { return };
        let now_ns = device.timing().of_references(references).saturating_add(self.waited_ns);
        let read = device.read(now_ns, bytes);
        match request.wait {
            Wait::AtOnce => {
                add(&mut self.counts.queue_ns, read.queue_ns);
                self.waited_ns = self.waited_ns.saturating_add(read.done_ns - now_ns);
            }
            Wait::WhenNeeded => {
                let &Request { file, first, end, .. } = request;
                self.under_way.push_back(UnderWay { file, first, end, done_ns: read.done_ns });
                if self.under_way.len() > NR_UNDER_WAY_MAX {
                    self.under_way.pop_front();
                }
            }
        }
    }

    /// The program needs pages `first .. end` of a file.
    fn need(&mut self, file: MappingId, (first, end): (u64, u64), references: u64) {
        let Some(device) = &self.device else { return };
        let now_ns = device.timing().of_references(references).saturating_add(self.waited_ns);
        self.under_way.retain(|read| read.done_ns > now_ns);
        let needed = |read: &UnderWay| read.file == file && read.first < end && first < read.end;
        let reads = self.under_way.iter().filter(|read| needed(read));
        if let Some(done_ns) = reads.map(|read| read.done_ns).max() {
            add(&mut self.counts.late_waits, 1);
            add(&mut self.counts.late_ns, done_ns - now_ns);
            self.waited_ns = self.waited_ns.saturating_add(done_ns - now_ns);
        }
    }
}

fn add(sum: &mut Option<u64>, more: u64) {
    if let Some(sum) = sum {
        *sum = sum.saturating_add(more);
    }
}

impl Cell {
    /// After a walk: the reads its fault started, and the page it found.
    pub(super) fn settle_walk(&mut self, pfn: Pfn, cause: Origin) {
        self.settle(Wait::AtOnce, cause);
        if self.reads.under_way.is_empty() {
            return;
        }
        let Some((Owner::File { mapping, index }, order)) = self.memory.owner_of(pfn) else {
            return;
        };
        let references = self.references();
        self.reads.need(mapping, (index.0, index.0 + order.nr_pages()), references);
    }

    /// After a call: the reads it started, and what a read call covers.
    pub(super) fn settle_call(&mut self, event: &Event) {
        let wait = if event.op == Op::Fadvise { Wait::WhenNeeded } else { Wait::AtOnce };
        self.settle(wait, Origin::of_call(event.op));
        let (Op::Pread, Some(file)) = (event.op, event.file) else { return };
        if self.reads.under_way.is_empty() || event.len == 0 {
            return;
        }
        let shift = self.memory.rules().page.shift();
        let last = event.pos.saturating_add(event.len - 1);
        let (file, references) = (self.files[file as usize], self.references());
        self.reads.need(file, (event.pos >> shift, (last >> shift) + 1), references);
    }

    /// Hands the reads since the last call to the device; `cause` started them.
    fn settle(&mut self, wait: Wait, cause: Origin) {
        let observed = self.memory.take_observed();
        if observed.is_empty() {
            return;
        }
        if let Some(keeper) = &mut self.detail {
            keeper.hear(&observed, cause);
        }
        let (shift, references) = (self.memory.rules().page.shift(), self.references());
        let mut now = wait;
        let mut open: Option<Request> = None;
        let mut requests = Vec::new();
        for event in observed {
            match event {
                Observed::Insertion { mapping, index, order } => {
                    if self.memory.cache().mapping(mapping).is_anon_shared {
                        continue;
                    }
                    let nr = order.nr_pages();
                    match &mut open {
                        Some(request) if request.file == mapping => {
                            request.first = request.first.min(index.0);
                            request.end = request.end.max(index.0 + nr);
                            request.nr_pages += nr;
                        }
                        _ => {
                            requests.extend(open.take());
                            let (first, end) = (index.0, index.0 + nr);
                            open = Some(Request {
                                file: mapping,
                                first,
                                end,
                                nr_pages: nr,
                                wait: now,
                            });
                        }
                    }
                    continue;
                }
                Observed::Entry { kind: EntryKind::Async, .. } => now = Wait::WhenNeeded,
                Observed::Entry { kind: EntryKind::Sync, .. } | Observed::ColdFault { .. } => {
                    now = wait;
                }
                Observed::Handler { .. } | Observed::HandlerHit { .. } => now = wait,
                // Parts of one decision.
                Observed::Around { .. }
                | Observed::InFlight { .. }
                | Observed::Waited { .. }
                | Observed::Window { .. }
                | Observed::Base { .. } => continue,
            }
            requests.extend(open.take());
        }
        requests.extend(open);
        for request in requests {
            self.reads.submit(&request, request.nr_pages << shift, references);
        }
    }
}

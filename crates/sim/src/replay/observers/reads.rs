//! Models which thread waits for which read. All reads of the memory manager go to one device.
//!
//! The memory manager completes every read immediately. Here a read takes time on a device
//! ([`crate::cost::Device`]), and the program, which runs at the pace of its references, waits for
//! missing data. None of this influences the memory manager.
//!
//! Rules:
//! - Folios inserted by one readahead decision are one read and complete together.
//! - The program waits immediately for reads started by a cold fault or a read call, but not for
//!   reads started by the marker or by advice.
//! - It waits for a page in flight when a walk finds it or a read call covers it. All threads share
//!   one clock, as on one processor.

use std::collections::VecDeque;

use largefolio_mm::core::observed::{EntryKind, Observed};
use largefolio_mm::units::MappingId;

use crate::cost::{Device, ReadEvents, Timing};

/// Maximum number of remembered reads in flight. A queue this long is practically endless.
const NR_UNDER_WAY_MAX: usize = 1 << 12;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    AtOnce,
    WhenNeeded,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    pub(crate) file: MappingId,
    pub(crate) first: u64,
    pub(crate) end: u64,
}

impl Pages {
    fn overlaps(self, other: Self) -> bool {
        self.file == other.file && self.first < other.end && other.first < self.end
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ReadRequest {
    pages: Pages,
    pub(crate) nr_pages: u64,
    wait: Wait,
}

impl ReadRequest {
    fn add(&mut self, pages: Pages, nr_read: u64) {
        self.pages.first = self.pages.first.min(pages.first);
        self.pages.end = self.pages.end.max(pages.end);
        self.nr_pages += nr_read;
    }
}

#[derive(Clone, Copy, Debug)]
struct UnderWay {
    pages: Pages,
    done_ns: u64,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Reads {
    /// `None` if the machine file does not describe the storage: reads are only counted.
    device: Option<Device>,
    waited_ns: u64,
    under_way: VecDeque<UnderWay>,
    counts: ReadEvents,
}

impl Reads {
    pub(crate) fn new(timing: Option<Timing>) -> Self {
        let zero = timing.is_some().then_some(0);
        let counts =
            ReadEvents { late_waits: zero, queue_ns: zero, late_ns: zero, ..ReadEvents::default() };
        Self { device: timing.map(Device::new), counts, ..Self::default() }
    }

    pub(crate) const fn counts(&self) -> ReadEvents {
        self.counts
    }

    /// Submits a request to the device. `references` is the program's clock.
    pub(crate) fn submit(&mut self, request: &ReadRequest, bytes: u64, references: u64) {
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
                let (pages, done_ns) = (request.pages, read.done_ns);
                self.under_way.push_back(UnderWay { pages, done_ns });
                if self.under_way.len() > NR_UNDER_WAY_MAX {
                    self.under_way.pop_front();
                }
            }
        }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// Waits for the given pages. `references` is the program's clock.
    pub(crate) fn need(&mut self, pages: Pages, references: u64) {
        let Some(device) = &self.device else { return };
        let now_ns = device.timing().of_references(references).saturating_add(self.waited_ns);
        self.under_way.retain(|read| read.done_ns > now_ns);
        let reads = self.under_way.iter().filter(|read| read.pages.overlaps(pages));
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

/// Collects the reads in `observed`. Reads that the marker started ignore `wait`.
pub(crate) fn requests(observed: &[Observed], wait: Wait) -> Vec<ReadRequest> {
    let mut now = wait;
    let mut open: Option<ReadRequest> = None;
    let mut requests = Vec::new();
    for event in observed {
        match *event {
            Observed::Insertion { mapping, index, order, nr_read } => {
                if nr_read > 0 {
                    let end = index.0 + order.nr_pages();
                    let pages = Pages { file: mapping, first: index.0, end };
                    match &mut open {
                        Some(request) if request.pages.file == mapping => {
                            request.add(pages, nr_read);
                        }
                        _ => {
                            requests.extend(open.take());
                            open = Some(ReadRequest { pages, nr_pages: nr_read, wait: now });
                        }
                    }
                }
                continue;
            }
            Observed::Entry { kind: EntryKind::Async, .. } => now = Wait::WhenNeeded,
            Observed::Entry { kind: EntryKind::Sync, .. }
            | Observed::ColdFault { .. }
            | Observed::Handler { .. }
            | Observed::HandlerHit { .. } => now = wait,
            // Parts of one decision.
            Observed::Around { .. }
            | Observed::InFlight { .. }
            | Observed::Waited { .. }
            | Observed::Window { .. }
            | Observed::Base { .. }
            | Observed::Removal { .. }
            | Observed::Scanned { .. } => continue,
        }
        requests.extend(open.take());
    }
    requests.extend(open);
    requests
}

//! Which thread waits for which read: the reads that the memory manager issued, on one device.
//!
//! The memory manager completes every read at once. Here a read takes its time on a device
//! ([`crate::cost::Device`]), the program continues at the pace of its references, and waits if it
//! needs data that has not arrived. None of this influences the memory manager.
//!
//! Rules:
//! - Folios inserted after one decision of readahead are one read, and complete together.
//! - The reads that a cold fault or a read call starts are waited for at once; those that the
//!   marker or an advice starts are not.
//! - A page of a read that is still under way is waited for when a walk finds it, or a read call
//!   covers it. All threads of the program share one clock, as on one processor.

use std::collections::VecDeque;

use largefolio_mm::core::observed::{EntryKind, Observed};
use largefolio_mm::memory::Memory;
use largefolio_mm::units::MappingId;

use crate::cost::{Device, ReadEvents, Timing};

/// Reads under way that are remembered; a queue this long is as good as endless.
const NR_UNDER_WAY_MAX: usize = 1 << 12;

/// Whether the program waits for a read from the start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wait {
    AtOnce,
    WhenNeeded,
}

/// Pages of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    pub(super) file: MappingId,
    /// First page.
    pub(super) first: u64,
    /// The page after the last.
    pub(super) end: u64,
}

impl Pages {
    fn overlaps(self, other: Self) -> bool {
        self.file == other.file && self.first < other.end && other.first < self.end
    }
}

/// One read: the pages it reaches over, and how many of them it brings in.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadRequest {
    pages: Pages,
    pub(super) nr_pages: u64,
    wait: Wait,
}

impl ReadRequest {
    /// Adds pages of the same file.
    fn add(&mut self, pages: Pages) {
        self.pages.first = self.pages.first.min(pages.first);
        self.pages.end = self.pages.end.max(pages.end);
        self.nr_pages += pages.end - pages.first;
    }
}

/// A read ahead that is not complete.
#[derive(Clone, Copy, Debug)]
struct UnderWay {
    pages: Pages,
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
    pub(super) fn submit(&mut self, request: &ReadRequest, bytes: u64, references: u64) {
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

    /// Whether no read is under way: nobody can have to wait.
    pub(super) fn is_idle(&self) -> bool {
        self.under_way.is_empty()
    }

    /// The program needs pages of a file; `references` is its clock.
    pub(super) fn need(&mut self, pages: Pages, references: u64) {
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

/// The reads that `observed` holds. The program waits for them as `wait` says, unless the marker
/// started them.
pub(super) fn requests(observed: &[Observed], memory: &Memory, wait: Wait) -> Vec<ReadRequest> {
    let mut now = wait;
    let mut open: Option<ReadRequest> = None;
    let mut requests = Vec::new();
    for event in observed {
        match *event {
            Observed::Insertion { mapping, index, order } => {
                if !memory.core().mapping(mapping).is_anon_shared {
                    let nr_pages = order.nr_pages();
                    let pages = Pages { file: mapping, first: index.0, end: index.0 + nr_pages };
                    match &mut open {
                        Some(request) if request.pages.file == mapping => request.add(pages),
                        _ => {
                            requests.extend(open.take());
                            open = Some(ReadRequest { pages, nr_pages, wait: now });
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

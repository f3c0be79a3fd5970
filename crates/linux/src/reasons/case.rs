//! One mapping to judge, with what the census knows about it.

use super::reason::{Finding, Reason, Refusal};
use crate::census::Census;
use crate::census::folios::{Cell, MemoryKind, Size};
use crate::census::process::{Mapping, Process};
use crate::proc::maps::Vma;

pub(super) struct Case<'a> {
    pub(super) process: &'a Process,
    pub(super) mapping: &'a Mapping,
    pub(super) target_bytes: u64,
    pub(super) target_order: u32,
    pub(super) large_bytes: u64,
    pub(super) is_short: bool,
    /// It grows during use: heap, stack, or the used part of a reservation.
    pub(super) grows: bool,
}

impl<'a> Case<'a> {
    pub(super) fn new(census: &'a Census, finding: &Finding) -> Self {
        let process = &census.processes[finding.process];
        let mapping = &process.mappings[finding.mapping];
        let is_rest =
            |next: &Mapping| next.vma.range.start == mapping.vma.range.end && next.vma.prot() == 0;
        Self {
            process,
            mapping,
            grows: mapping.vma.is_heap()
                || mapping.vma.is_stack()
                || process.mappings.get(finding.mapping + 1).is_some_and(is_rest),
            target_bytes: finding.target_bytes,
            target_order: (finding.target_bytes / census.geometry.page_bytes).ilog2(),
            large_bytes: finding.large_bytes,
            is_short: mapping.vma.nr_whole_blocks(census.geometry.block_bytes()) == 0,
        }
    }

    /// Sums the memory of some kinds in folios below the target, or at least as large.
    pub(super) fn sum(&self, is_in: impl Fn(MemoryKind) -> bool, is_large: bool) -> Cell {
        let is_size = |size| match size {
            Size::Unknown => false,
            Size::Order(order) => (order >= self.target_order) == is_large,
        };
        self.mapping.tally.sum(|kind, size| is_in(kind) && is_size(size))
    }

    pub(super) fn is_pmd(&self, census: &Census) -> bool {
        self.target_bytes == census.geometry.pmd_bytes()
    }

    pub(super) fn reason(refusal: Refusal, bytes: u64) -> Reason {
        Reason { refusal, bytes }
    }
}

pub(super) fn is_shared_memory(vma: &Vma, filesystem: &str) -> bool {
    filesystem == "tmpfs" || vma.is_nameless_shared()
}

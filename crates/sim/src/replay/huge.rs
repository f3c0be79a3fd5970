//! mmap with `MAP_HUGETLB`: from a kernel pool, if one exists (docs/behaviour O).
//!
//! The model chooses the address, aligned to the huge page size. If the pool refuses a mapping, it
//! is replayed as ordinary memory and counted, because the recorded program had the memory.

use largefolio_mm::hugetlb::{HugeMap, HugeMapError};
use largefolio_mm::vma::Sharing;
use largefolio_trace::Event;
use largefolio_trace::event::abi::{MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_NORESERVE, MAP_SHARED};
use largefolio_trace::event::{huge_page_bytes, map_of, prot_of};

use super::cell::Cell;
use super::error::CellError;
use super::layout::prot_bits;
use super::outcome::Hugetlb;
use super::place::{LEN_MAX, Segment};
use super::program::ProcessNr;

impl Cell {
    /// Maps huge pages. Returns `false` if none are requested or no pool can supply them.
    pub(super) fn mmap_huge(
        &mut self,
        process: ProcessNr,
        event: &Event,
    ) -> Result<bool, CellError> {
        let Some(bytes) = huge_page_bytes(event) else { return Ok(false) };
        let order = self.page().order_of_bytes(bytes);
        let flags = map_of(event.flags);
        let len_bytes = event.len.min(LEN_MAX);
        if flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0 {
            self.munmap(process, event.addr, len_bytes)?;
        }
        let sharing = if flags & MAP_SHARED != 0 { Sharing::Shared } else { Sharing::Private };
        let is_reserved = flags & MAP_NORESERVE == 0;
        let prot = prot_bits(prot_of(event.flags));
        let map = HugeMap { addr: None, len_bytes, order, prot, sharing, is_reserved };
        let mm = self.program.space(process).mm;
        match self.change(|memory| memory.mmap_huge(mm, map)) {
            Ok(at) => {
                let end = event.addr.saturating_add(len_bytes.next_multiple_of(bytes));
                let segment = Segment { start: event.addr, end, placed: at.0, file: None };
                self.program.space_mut(process).segments.insert(segment);
                self.change_places(process);
                Ok(true)
            }
            Err(HugeMapError::Map(error)) => Err(error.into()),
            Err(HugeMapError::NoPool(_)) => {
                self.counted.nr_maps_without_pool += 1;
                Ok(false)
            }
            Err(HugeMapError::PoolTooSmall { .. }) => Ok(false),
        }
    }

    /// Returns the counts of huge pages; `None` without a pool if the trace wants none.
    pub(super) fn hugetlb(&self) -> Option<Hugetlb> {
        let (now, base) = (&self.counted.end.counters.hugetlb, &self.counted.base.counters.hugetlb);
        let maps_without_pool = self.counted.nr_maps_without_pool;
        if self.memory.huge_orders().next().is_none() && maps_without_pool == 0 {
            return None;
        }
        Some(Hugetlb {
            faults: now.nr_faults - base.nr_faults,
            allocated: now.nr_allocated - base.nr_allocated,
            forked: now.nr_forked - base.nr_forked,
            copied: now.nr_cow - base.nr_cow,
            reused: now.nr_reused - base.nr_reused,
            taken: now.nr_taken - base.nr_taken,
            sigbus: now.nr_sigbus - base.nr_sigbus,
            maps_refused: now.nr_maps_refused - base.nr_maps_refused,
            maps_without_pool,
        })
    }
}

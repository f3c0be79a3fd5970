//! Replays calls that lock memory, and the process's switch for THP.

use largefolio_mm::core::space::ThpOff;
use largefolio_mm::rules::anon::{ProgramThp, ThpDisable};
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Lock;
use largefolio_trace::Event;
use largefolio_trace::event::abi::MAP_LOCKED;
use largefolio_trace::event::{lock, map_of, thp_disable};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::ProcessNr;
use crate::replay::program::place::Segment;
use crate::replay::program::space::SpaceNr;

impl Cell {
    pub(crate) fn mlock(&mut self, process: ProcessNr, event: &Event) -> Result<(), CellError> {
        let kind = match event.flags {
            flags if flags & lock::ON_FAULT != 0 => Lock::OnFault,
            flags if flags & (lock::CURRENT | lock::FUTURE) != 0 => Lock::All,
            _ => Lock::None,
        };
        if event.len > 0 {
            return self.lock_range(process, event, kind);
        }
        let is_unlock = kind == Lock::None;
        let now = (is_unlock || event.flags & lock::CURRENT != 0).then_some(kind);
        let later = if event.flags & lock::FUTURE != 0 { kind } else { Lock::None };
        let mm = self.program.space(process).mm;
        self.change(|memory| memory.mlockall(mm, now, later));
        Ok(())
    }

    /// Locks the areas of a range, and populates them up to the first page that has no access.
    fn lock_range(
        &mut self,
        process: ProcessNr,
        event: &Event,
        kind: Lock,
    ) -> Result<(), CellError> {
        let mm = self.program.space(process).mm;
        let parts = self.parts(process, event.addr, event.addr.saturating_add(event.len));
        let inner: Vec<_> = parts.iter().filter_map(|part| self.inner(part)).collect();
        for (start, len_bytes) in inner {
            self.change(|memory| memory.set_lock(mm, start, len_bytes, kind))?;
        }
        let _ = parts.iter().all(|part| self.populate_locked(process, part));
        Ok(())
    }

    /// Locks a new mapping with `MAP_LOCKED`, or of a process that called `mlockall(MCL_FUTURE)`.
    pub(crate) fn lock_mapping(
        &mut self,
        process: ProcessNr,
        event: &Event,
    ) -> Result<(), CellError> {
        let mm = self.program.space(process).mm;
        if map_of(event.flags) & MAP_LOCKED != 0 {
            return self.lock_range(process, event, Lock::All);
        }
        if self.memory.space(mm).lock == Lock::All {
            for part in self.parts(process, event.addr, event.addr.saturating_add(event.len)) {
                self.populate_locked(process, &part);
            }
        }
        Ok(())
    }

    /// Populates locked memory. Returns whether each of its pages could be populated.
    pub(crate) fn populate_locked(&mut self, process: ProcessNr, part: &Segment) -> bool {
        let mm = self.program.space(process).mm;
        let first = part.placed & !self.mask();
        let len_bytes = part.placed + (part.end - part.start) - first;
        self.change(|memory| memory.populate_locked(mm, Vaddr(first), len_bytes)).is_ok()
    }

    /// Limits the first program's THP as its starter does.
    pub(crate) fn limit_thp(&mut self, space: SpaceNr) {
        let off = match self.memory.rules().anon.program {
            ProgramThp::Inherit => return,
            ProgramThp::Advised => ThpOff::ExceptAdvised,
            ProgramThp::Off => ThpOff::All,
        };
        let mm = self.program.spaces[space].mm;
        self.change(|memory| memory.set_thp_off(mm, off));
    }

    pub(crate) fn disable_thp(&mut self, process: ProcessNr, what: u64) {
        let has_flag = what & thp_disable::EXCEPT_ADVISED != 0;
        let off = match (what, self.memory.rules().anon.thp_disable) {
            (0, _) => ThpOff::None,
            // The call fails with EINVAL.
            (_, ThpDisable::All) if has_flag => return,
            _ if has_flag => ThpOff::ExceptAdvised,
            _ => ThpOff::All,
        };
        let mm = self.program.space(process).mm;
        self.change(|memory| memory.set_thp_off(mm, off));
    }
}

//! Writing dirty folios of a file back to its storage.
//!
//! Answers to: `filemap_write_and_wait_range`, `folio_mkclean`.
//!
//! Owns the moment at which a folio becomes clean: what it holds is stored, and every entry that
//! could be stored through becomes read-only and clean, so that the next store is noticed. I/O
//! completes before the next operation, as for reads.

use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::{Protection, PteFlags};
use crate::ram::{FilePages, Ram};
use crate::units::MappingId;
use crate::units::PageRange;

impl<R: Ram> Memory<R> {
    /// Writes every dirty folio of a file back (`fsync`).
    pub fn sync_file(&mut self, file: MappingId) {
        self.write_back(file, PageRange { first: 0, end: u64::MAX });
    }

    /// Writes the dirty folios that hold pages `[first, end)` of a file back, and waits for those
    /// under way. Shared memory has no storage: nothing happens.
    pub(crate) fn write_back(&mut self, file: MappingId, PageRange { first, end }: PageRange) {
        if self.core.mapping(file).is_shmem {
            return;
        }
        let overlaps = |entry: &Entry| entry.index.0 < end && entry.end() > first;
        let from_first = self.core.mapping(file).tree.iter_from(first);
        let before_end = from_first.take_while(|entry| entry.index.0 < end);
        let entries: Vec<_> = before_end.filter(overlaps).collect();
        self.core.work.add(entries.len() as u64);
        for entry in entries {
            if self.core.folios.get(entry.folio).is_dirty {
                self.write_out(file, entry);
            }
            self.core.folios.get_mut(entry.folio).is_under_writeback = false;
        }
    }

    fn write_out(&mut self, file: MappingId, entry: Entry) {
        let protection =
            Protection { set: PteFlags::NONE, clear: PteFlags::WRITABLE.with(PteFlags::DIRTY) };
        for site in self.sites_of(entry.folio) {
            self.flush(site.mm, site.vpn, site.nr);
            let (space, folios) = self.space_and_folios(site.mm);
            space.table.protect_range(site.vpn, site.nr, protection, |pfn| folios.span_of(pfn));
        }
        self.core.store(entry.folio, FilePages { file, index: entry.index });
        // One flag is both: the end of writing takes the marker with it (A.4.6).
        self.core.folios.get_mut(entry.folio).is_marked = false;
    }
}

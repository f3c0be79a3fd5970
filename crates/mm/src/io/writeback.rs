//! Writing dirty file folios back to storage (docs/behaviour P.6).
//!
//! Corresponds to: `filemap_write_and_wait_range`, `folio_mkclean`, `balance_dirty_pages`,
//! `wakeup_flusher_threads`, `folio_end_writeback`, `folio_rotate_reclaimable`.
//!
//! The entries of a written folio become read-only and clean, so the next store faults. As with
//! reads, I/O completes before the next operation.
//!
//! ```text
//!   a write or store: dirty pages above the background limit? --> written, oldest first
//!   reclaim finds mostly dirty folios? ------------------------> all dirty pages written
//!   a dirty folio skipped by reclaim is written ---------------> scanned next
//! ```
//!
//! Differs: the flusher takes no time, so no task is throttled, and no data is written because of
//! its age.

use super::{Fallocate, FileSize};
use crate::core::groups::GroupLimits;
use crate::folio::generations::Generations;
use crate::folio::lru::{Age, ListId, LruKind};
use crate::folio::{FolioId, Owner};
use crate::mapping::reserve::{BLOCK_BYTES, Write};
use crate::mapping::tree::Entry;
use crate::memory::Memory;
use crate::pgtable::{Protection, PteFlags};
use crate::ram::FilePages;
use crate::units::{AddrRange, ByteRange, GroupId, MappingId, MmId, PageRange, Vpn, VpnRange};
use crate::vma::{Backing, Sharing, Vma};

impl Memory {
    /// Writes back every dirty folio of a file (`fsync`).
    pub fn sync_file(&mut self, file: MappingId) {
        self.write_back(file, PageRange { first: 0, end: u64::MAX });
    }

    /// Writes back the dirty folios that a range touches (`sync_file_range`, `msync`).
    pub fn sync_range(&mut self, file: MappingId, range: ByteRange) {
        self.write_back(file, self.pages_of(range));
    }

    /// Writes back the files that an address range maps shared (`msync`).
    pub fn sync_mapped(&mut self, mm: MmId, range: AddrRange) {
        for (file, pages) in self.shared_files(mm, range) {
            self.write_back(file, pages);
        }
    }

    /// Punches holes where an address range maps files shared (`MADV_REMOVE`).
    pub fn remove_mapped(&mut self, mm: MmId, range: AddrRange) {
        let shift = self.rules.page.shift();
        for (file, PageRange { first, end }) in self.shared_files(mm, range) {
            let range = ByteRange { pos: first << shift, len_bytes: (end - first) << shift };
            self.fallocate(file, range, Fallocate::PunchHole, FileSize::Kept);
        }
    }

    fn shared_files(&self, mm: MmId, range: AddrRange) -> Vec<(MappingId, PageRange)> {
        let page = self.rules.page;
        let end = range.addr.0.saturating_add(range.len_bytes);
        let (start, end) = (range.addr.vpn(page), Vpn(page.pages_in(end)));
        let areas = self.space(mm).vmas.overlapping(start, end);
        self.count_walk(mm, VpnRange { start, end }, areas.len());
        let file_of = |area: &Vma| match area.backing {
            Backing::File { open, .. } if area.sharing == Sharing::Shared => {
                let (first, end) = area.file_range();
                Some((self.open_file(open).mapping, PageRange { first, end }))
            }
            _ => None,
        };
        areas.iter().filter_map(file_of).collect()
    }

    /// Writes back the dirty folios of every file (`sync`).
    pub fn sync_all(&mut self) {
        let files: Vec<MappingId> = self.core.mappings().map(|(file, _)| file).collect();
        self.core.work.add(files.len() as u64);
        for file in files {
            self.sync_file(file);
        }
    }

    /// Writes back the dirty folios of pages `[first, end)` of a file, and waits for writeback
    /// already under way. Does nothing for shared memory, which has no storage.
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
        let sites = self.sites_of(entry.folio);
        if self.has_dirty_entry(&sites) {
            // It was stored to after reclaim left it, or never unmapped (P.6.3).
            self.core.folios.lru_mut().marks_mut(entry.folio).is_reclaim = false;
        }
        for site in sites {
            self.flush(site.mm, site.vpn, site.nr);
            let (space, folios) = self.space_and_folios(site.mm);
            space.table.protect_range(site.vpn, site.nr, protection, |pfn| folios.span_of(pfn));
        }
        self.core.store(entry.folio, FilePages { file, index: entry.index });
        // The kernel uses one flag for both: the end of writing also clears the marker (A.4.6).
        // Writing gives a folio of several blocks a state of each block.
        let folio = self.core.folios.get_mut(entry.folio);
        (folio.is_marked, folio.is_written_whole, folio.is_stored) = (false, false, true);
        let blocks = self.rules.page.bytes() / BLOCK_BYTES;
        let mapping = self.core.mapping_mut(file);
        if let Some(space) = &mut mapping.reservations {
            let (first, end) = (entry.index.0 * blocks, entry.end() * blocks);
            space.allocate(first, end, mapping.size_bytes);
        }
        let end = (entry.end() << self.rules.page.shift()).min(mapping.size_bytes);
        mapping.stored_bytes = mapping.stored_bytes.max(end);
        self.end_wait(entry.folio);
    }

    /// Reclaim had to leave the dirty folio, so it is scanned next (P.6.3).
    pub(crate) fn end_wait(&mut self, id: FolioId) {
        let kind = self.core.folios.get(id).kind();
        let lru = self.core.folios.lru_mut();
        if !std::mem::take(&mut lru.marks_mut(id).is_reclaim) || lru.list_of(id).is_none() {
            return;
        }
        let group = lru.group_of(id);
        lru.marks_mut(id).is_active = false;
        let list = if self.core.folios.generations().is_some() {
            let oldest = self.core.folios.lru().vec(group).gens.min_seq[kind as usize];
            let nr = Generations::list_of(oldest);
            self.core.folios.lru_mut().marks_mut(id).generation = Some(nr);
            ListId::generation(kind, nr)
        } else {
            ListId::new(kind, Age::Inactive)
        };
        self.core.folios.lru_mut().link_tail(id, list);
    }

    /// A store through a shared mapping dirties the whole folio. It also clears the readahead
    /// marker, because dirty folios use that flag for something else (6.18.44: `prot=rw map=shared
    /// advice=hugerandom ops=w2,b5.0+32768`).
    pub(crate) fn store_through_mapping(&mut self, id: FolioId) {
        let folio = self.core.folios.get_mut(id);
        folio.is_marked = false;
        let (owner, nr_pages) = (folio.owner, folio.nr_pages());
        if let Owner::File { mapping, index } = owner {
            let range = PageRange { first: index.0, end: index.0 + nr_pages };
            folio.add_dirty_pages(range);
            self.core.mapping_mut(mapping).holes.remove(range);
            self.reserve_pages(mapping, range);
        }
        self.core.set_dirty(id);
    }

    /// Reserves blocks for pages that a store makes dirty.
    fn reserve_pages(&mut self, file: MappingId, PageRange { first, end }: PageRange) {
        let page = self.rules.page;
        let mapping = self.core.mapping_mut(file);
        let file_bytes = mapping.size_bytes;
        let Some(space) = &mut mapping.reservations else { return };
        let (mut pos, end) = (first << page.shift(), (end << page.shift()).min(file_bytes));
        while pos < end {
            pos = space.part_end(Write { pos, end, file_bytes }, page);
        }
    }

    /// A task that dirties pages starts writeback if too many are dirty (P.6.1).
    #[inline]
    pub(crate) fn balance_dirty(&mut self) {
        if self.core.dirty.nr_pages() > 0 {
            self.write_excess();
        }
    }

    fn write_excess(&mut self) {
        let dirtyable = self.dirtyable();
        let limit = self.background_share(dirtyable);
        while self.core.dirty.nr_pages() > limit && self.write_next(None) {}
        let group = self.core.groups.current();
        let limits = self.core.groups.get(group).limits;
        if limits.max == GroupLimits::NONE {
            return;
        }
        let cached = self.core.folios.lru().vec(group).nr_of_kind(LruKind::File);
        let headroom = limits.max.saturating_sub(self.group_usage(group)).min(dirtyable);
        let limit = self.background_share(cached + headroom);
        while self.core.dirty.nr_pages_of(group) > limit && self.write_next(Some(group)) {}
    }

    fn dirtyable(&self) -> u64 {
        let nr_free = self.core.buddy.nr_free_pages();
        let reserved = self.core.pressure.watermarks.high;
        nr_free.saturating_sub(reserved) + self.core.folios.lru().nr_of_kind(LruKind::File)
    }

    fn background_share(&self, nr_pages: u64) -> u64 {
        nr_pages.saturating_mul(self.rules.reclaim.dirty_background_ratio.into()) / 100
    }

    fn write_next(&mut self, group: Option<GroupId>) -> bool {
        let Some((file, entry)) = self.core.next_dirty(group) else { return false };
        self.core.work.add(1);
        self.write_out(file, entry);
        true
    }

    pub(crate) fn flush_dirty(&mut self) -> bool {
        let has_dirty = self.core.dirty.nr_pages() > 0;
        self.core.counters.reclaim.nr_flushes += u64::from(has_dirty);
        while self.write_next(None) {}
        has_dirty
    }
}

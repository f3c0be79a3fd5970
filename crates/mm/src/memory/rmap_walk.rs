//! The reverse map: finds the mappings of a folio through areas (docs/behaviour G.4.2).
//!
//! Corresponds to: `rmap_walk`, `rmap_walk_anon`, `rmap_walk_file`.
//!
//! The page indexes of an area and a folio determine which pages can map the folio. The walk starts
//! with the process that mapped it first, and ends there if that process has all mappings.

use super::Memory;
use crate::folio::{FolioId, Owner};
use crate::pgtable::{LeafKind, PteFlags};
use crate::units::PageRange;
use crate::units::VpnRange;
use crate::units::{MappingId, MmId, Pfn, Vpn};
use crate::vma::{Backing, Vma};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Site {
    pub(crate) mm: MmId,
    pub(crate) vpn: Vpn,
    pub(crate) pfn: Pfn,
    pub(crate) nr: u64,
    pub(crate) is_pmd: bool,
}

impl Site {
    /// Returns where it maps `pfn`; `None` if it does not.
    pub(crate) fn vpn_of(&self, pfn: Pfn) -> Option<Vpn> {
        let by = pfn.0.checked_sub(self.pfn.0)?;
        (by < self.nr).then(|| self.vpn.plus(by))
    }
}

#[derive(Clone, Copy)]
struct Sought {
    id: FolioId,
    first: u64,
    nr_pages: u64,
    file: Option<MappingId>,
}

impl Memory {
    pub(crate) fn sites_of(&self, id: FolioId) -> Vec<Site> {
        let folio = self.core.folios.get(id);
        let (first, file) = match folio.owner {
            Owner::Anon { index } => (index.0, None),
            Owner::File { mapping, index } => (index.0, Some(mapping)),
            Owner::Detached => return Vec::new(),
        };
        let sought = Sought { id, first, nr_pages: folio.nr_pages(), file };
        let (mut sites, nr_maps) = (Vec::new(), folio.maps());
        if nr_maps == 0
            || self.add_sites_in(folio.mapped_by, sought, nr_maps, &mut sites) == nr_maps
        {
            return sites;
        }
        sites.clear();
        let mut nr_left = nr_maps;
        self.count_areas(0, self.nr_spaces());
        for (mm, _) in self.spaces() {
            if nr_left == 0 {
                break;
            }
            nr_left -= self.add_sites_in(mm, sought, nr_left, &mut sites);
        }
        sites
    }

    fn add_sites_in(
        &self,
        mm: MmId,
        Sought { id, first, nr_pages, file }: Sought,
        nr_max: u64,
        sites: &mut Vec<Site>,
    ) -> u64 {
        let Some(space) = self.live_space(mm) else { return 0 };
        self.count_areas(space.vmas.len(), 0);
        let mut nr_found = 0;
        for vma in space.vmas.iter().filter(|vma| self.can_map(vma, file)) {
            if nr_found == nr_max {
                break;
            }
            let Some((start, end)) = overlap(vma, first, nr_pages) else { continue };
            nr_found += self.add_sites(id, mm, VpnRange { start, end }, sites);
        }
        nr_found
    }

    pub(crate) fn has_dirty_entry(&self, sites: &[Site]) -> bool {
        let is_dirty =
            |mm, vpn: Vpn| self.space(mm).table.pte(vpn).flags().contains(PteFlags::DIRTY);
        sites.iter().any(|site| (0..site.nr).any(|by| is_dirty(site.mm, site.vpn.plus(by))))
    }

    fn can_map(&self, vma: &Vma, file: Option<MappingId>) -> bool {
        match (file, vma.backing) {
            (None, _) => vma.has_anon(),
            (Some(_), Backing::Anon | Backing::Hugetlb(_)) => false,
            (Some(file), Backing::File { open, .. }) => self.open_file(open).mapping == file,
        }
    }

    fn add_sites(
        &self,
        id: FolioId,
        mm: MmId,
        VpnRange { start: from, end: to }: VpnRange,
        sites: &mut Vec<Site>,
    ) -> u64 {
        let folio = self.core.folios.get(id);
        let mut nr_entries = 0;
        for leaf in self.space(mm).table.leaves(from, to.0 - from.0) {
            let vpn = leaf.first_vpn.max(from);
            let nr = leaf.end_vpn().min(to).0 - vpn.0;
            let pfn = leaf.pfn_of(vpn);
            if !folio.span().covers(pfn, 1) {
                continue;
            }
            let is_pmd = leaf.kind == LeafKind::Pmd;
            nr_entries += if is_pmd { self.core.pmd_refs(id) } else { nr };
            match sites.last_mut() {
                Some(last)
                    if last.mm == mm
                        && !last.is_pmd
                        && !is_pmd
                        && last.vpn.plus(last.nr) == vpn
                        && last.pfn.plus(last.nr) == pfn =>
                {
                    last.nr += nr;
                }
                _ => sites.push(Site { mm, vpn, pfn, nr, is_pmd }),
            }
        }
        nr_entries
    }

    pub(crate) fn mapped_ranges(
        &self,
        file: MappingId,
        PageRange { first, end }: PageRange,
    ) -> Vec<(MmId, Vpn, Vpn)> {
        let mut ranges = Vec::new();
        self.count_areas(0, self.nr_spaces());
        for (mm, space) in self.spaces() {
            self.count_areas(space.vmas.len(), 0);
            for vma in space.vmas.iter() {
                let Backing::File { open, .. } = vma.backing else { continue };
                let (area_first, area_end) = vma.file_range();
                let (from, to) = (area_first.max(first), area_end.min(end));
                if self.open_file(open).mapping == file && from < to {
                    let start = vma.start.plus(from - area_first);
                    ranges.push((mm, start, start.plus(to - from)));
                }
            }
        }
        ranges
    }
}

fn overlap(vma: &Vma, first: u64, nr: u64) -> Option<(Vpn, Vpn)> {
    let start = vma.index_of(vma.start);
    let from = start.max(first);
    let to = start.checked_add(vma.nr_pages())?.min(first + nr);
    (from < to).then(|| (vma.start.plus(from - start), vma.start.plus(to - start)))
}

//! hugetlb: pools of huge pages and the files that use them (docs/behaviour O.1, O.2).
//!
//! Corresponds to: `hugetlb_acct_memory`, `dequeue_hugetlb_folio_vma`, `free_huge_folio`.
//!
//! Owns the huge pages, their reservations and their mapcounts. The machine reserves a pool's
//! memory at boot; the buddy allocator never sees it. Does not own the entries that map huge pages
//! ([`crate::core::space`]) nor areas ([`crate::vma`]).
//!
//! Invariants (`Memory::validate`, I18):
//! - I1: a huge page is free, mapped or in a file.
//! - I2: a huge page's mapcount is the number of entries that map it.
//! - I3: reserved pages = reservations that owners have not used + reservations that shared files
//!   have not filled - used pages whose reservation is restored when they are freed + leaked
//!   reservations.

use std::collections::{BTreeMap, BTreeSet};

use crate::rmap::mapcount::{MapcountRules, Shape};
use crate::rmap::{Mapcount, MmOwnerId};
use crate::rules::{Arch, Rules};
use crate::units::{Order, PageSize, Pfn};
use crate::vma::{HugeFileId, Sharing};

/// Huge pages allocated at boot (`hugepages=` on the kernel command line).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HugePool {
    /// Order of each page.
    pub order: Order,
    /// `nr_hugepages`.
    pub nr_pages: u64,
    /// Leaked reservations at the start: no one can return them (O.5.3).
    pub nr_lost: u64,
}

/// Counters of a pool, named as in `/sys/kernel/mm/hugepages/hugepages-<kB>kB`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HugeCounts {
    /// Pages in the pool.
    pub nr_hugepages: u64,
    /// Free pages.
    pub free_hugepages: u64,
    /// Free pages reserved for mappings. Wraps below 0, as in the kernel (O.2.6).
    pub resv_hugepages: u64,
    /// Pages beyond `nr_hugepages`: always 0 without `nr_overcommit_hugepages`.
    pub surplus_hugepages: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charge {
    Reservation,
    Available,
}

/// What a huge page holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugeOwner {
    /// Private memory of processes.
    Anon,
    /// A page of a shared file.
    File(HugeFileId),
}

/// A huge page in use.
#[derive(Clone, Debug)]
pub struct HugeFolio {
    /// What it holds.
    pub owner: HugeOwner,
    /// How often it is mapped: only by entries that map all of it (F.1.4).
    pub mapcount: Mapcount,
    /// Whether it is private to one process (L.8).
    pub is_exclusive: bool,
    /// Whether its reservation returns when it is freed (O.2.5).
    pub restores_reserve: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct Pool {
    order: Order,
    first: Pfn,
    /// By position in the pool; `None` = free.
    folios: Vec<Option<HugeFolio>>,
    /// Positions of the free pages. The page freed last is at the end and is taken first.
    free: Vec<u32>,
    nr_reserved: u64,
    nr_lost: u64,
}

/// The file that backs one `mmap` with `MAP_HUGETLB`. Only that mapping and its copies use it.
#[derive(Clone, Debug)]
pub(crate) struct HugeFile {
    pub(crate) order: Order,
    pub(crate) sharing: Sharing,
    /// Shared file: huge pages reserved or present. Private file: used reservations.
    pub(crate) regions: BTreeSet<u64>,
    pub(crate) pages: BTreeMap<u64, Pfn>,
}

#[derive(Clone, Debug)]
pub(crate) struct Hugetlb {
    pools: Vec<Pool>,
    files: Vec<HugeFile>,
    rules: MapcountRules,
}

/// Why a machine cannot have a pool.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolError {
    /// Not enough memory.
    #[error(
        "{nr_pages} huge pages of {kib}K do not fit in {ram_mib} MiB of memory; request fewer, or \
         give the model more memory"
    )]
    TooLarge {
        /// Huge pages in the pool.
        nr_pages: u64,
        /// Size of each in KiB.
        kib: u64,
        /// The machine's memory in MiB.
        ram_mib: u64,
    },
    /// The architecture has no huge pages of this size with these base pages.
    #[error(
        "this machine has no huge pages of {size} KiB; with this base page size it supports \
         {known} KiB"
    )]
    NoSuchSize {
        /// The requested size.
        size: String,
        /// The available sizes.
        known: String,
    },
}

/// An architecture's huge page sizes, ascending: blocks at one level, and runs of neighbours that
/// share a TLB entry (docs/behaviour O.1.1).
#[must_use]
pub fn orders(arch: Arch, page: PageSize) -> Vec<Order> {
    let orders: &[u8] = match (arch, page) {
        (Arch::X86_64, _) => &[9, 18],
        (Arch::Arm64, PageSize::K4) => &[4, 9, 13, 18],
        (Arch::Arm64, PageSize::K16) => &[7, 11, 16],
        (Arch::Arm64, PageSize::K64) => &[5, 13, 18],
    };
    orders.iter().copied().map(Order::new).collect()
}

impl HugePool {
    pub(crate) fn all(wanted: &[Self], arch: Arch, rules: &Rules) -> Result<Vec<Self>, PoolError> {
        let page = rules.page;
        let known = orders(arch, page);
        let kib = |order: &Order| (page.bytes() << order.get()) >> 10;
        let mut pools = wanted.to_vec();
        for (size, &nr_pages) in &rules.hugepages {
            let requested = size.parse::<u64>().ok();
            let Some(&order) = known.iter().find(|order| requested == Some(kib(order))) else {
                let known: Vec<String> = known.iter().map(|order| kib(order).to_string()).collect();
                return Err(PoolError::NoSuchSize { size: size.clone(), known: known.join(", ") });
            };
            pools.push(Self { order, nr_pages, nr_lost: 0 });
        }
        Ok(pools)
    }
}

impl Hugetlb {
    /// Puts the pools at the end of memory. Returns them and the number of pages before them.
    pub(crate) fn new(
        wanted: &[HugePool],
        page: PageSize,
        nr_pages: u64,
        rules: MapcountRules,
    ) -> Result<(Self, u64), PoolError> {
        let mut wanted = wanted.to_vec();
        wanted.sort_by_key(|pool| std::cmp::Reverse(pool.order));
        let mut end = nr_pages;
        let mut pools = Vec::new();
        for HugePool { order, nr_pages: nr, nr_lost } in wanted {
            let first = nr
                .checked_mul(order.nr_pages())
                .and_then(|pages| order.round_down(end).checked_sub(pages))
                .filter(|&first| first > 0);
            let Some(first) = first else {
                let kib = (page.bytes() << order.get()) >> 10;
                let ram_mib = nr_pages << page.shift() >> 20;
                return Err(PoolError::TooLarge { nr_pages: nr, kib, ram_mib });
            };
            end = first;
            pools.push(Pool::new(order, Pfn(first), nr).losing(nr_lost));
        }
        Ok((Self { pools, files: Vec::new(), rules }, end))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.pools.is_empty()
    }

    pub(crate) fn pool(&self, order: Order) -> Option<&Pool> {
        self.pools.iter().find(|pool| pool.order == order)
    }

    pub(crate) fn pool_mut(&mut self, order: Order) -> &mut Pool {
        let Some(pool) = self.pools.iter_mut().find(|pool| pool.order == order) else {
            unreachable!("an area has pool pages")
        };
        pool
    }

    pub(crate) fn pools(&self) -> impl Iterator<Item = &Pool> {
        self.pools.iter()
    }

    pub(crate) fn add_file(&mut self, file: HugeFile) -> HugeFileId {
        let id = self.files.len() as u32;
        self.files.push(file);
        HugeFileId(id)
    }

    pub(crate) fn file(&self, id: HugeFileId) -> &HugeFile {
        &self.files[id.0 as usize]
    }

    pub(crate) fn file_mut(&mut self, id: HugeFileId) -> &mut HugeFile {
        &mut self.files[id.0 as usize]
    }

    pub(crate) fn files(&self) -> impl Iterator<Item = (HugeFileId, &HugeFile)> {
        (0..).map(HugeFileId).zip(&self.files)
    }

    pub(crate) const fn shape(&self, order: Order) -> Shape {
        Shape::hugetlb(order, self.rules)
    }

    pub(crate) fn folio(&self, order: Order, pfn: Pfn) -> &HugeFolio {
        let folio = self.pool(order).and_then(|pool| pool.folios.get(pool.place(pfn))?.as_ref());
        let Some(folio) = folio else { unreachable!("I1: an entry maps a page that is not free") };
        folio
    }

    pub(crate) fn folio_mut(&mut self, order: Order, pfn: Pfn) -> &mut HugeFolio {
        let pool = self.pool_mut(order);
        let place = pool.place(pfn);
        let Some(Some(folio)) = pool.folios.get_mut(place) else {
            unreachable!("I1: an entry maps a page that is not free")
        };
        folio
    }

    pub(crate) fn add_map(&mut self, order: Order, pfn: Pfn, mm: MmOwnerId) {
        let shape = self.shape(order);
        let Ok(_) = self.folio_mut(order, pfn).mapcount.add_pmd(&shape, mm) else {
            unreachable!("fewer than 2^31 mappings")
        };
    }

    pub(crate) fn remove_map(&mut self, order: Order, pfn: Pfn, mm: MmOwnerId) {
        let shape = self.shape(order);
        let folio = self.folio_mut(order, pfn);
        let _ = folio.mapcount.remove_pmd(&shape, mm);
        if !folio.mapcount.is_mapped() && folio.owner == HugeOwner::Anon {
            self.pool_mut(order).free(pfn);
        }
    }

    /// Frees the pages and reservations of a shared file after its last mapping (O.2.3).
    pub(crate) fn release_file(&mut self, id: HugeFileId) {
        let file = self.file_mut(id);
        let order = file.order;
        let (regions, pages) = (std::mem::take(&mut file.regions), std::mem::take(&mut file.pages));
        let pool = self.pool_mut(order);
        for pfn in pages.values() {
            pool.free(*pfn);
        }
        pool.unreserve((regions.len() - pages.len()) as u64);
    }
}

impl Pool {
    fn new(order: Order, first: Pfn, nr: u64) -> Self {
        let folios = (0..nr).map(|_| None).collect();
        // Reversed, because the last entry is taken first.
        let free = (0..nr as u32).rev().collect();
        Self { order, first, folios, free, nr_reserved: 0, nr_lost: 0 }
    }

    fn losing(self, nr_lost: u64) -> Self {
        Self { nr_reserved: nr_lost, nr_lost, ..self }
    }

    pub(crate) const fn lose(&mut self, nr: u64) {
        self.nr_lost += nr;
    }

    pub(crate) const fn nr_lost(&self) -> u64 {
        self.nr_lost
    }

    pub(crate) const fn order(&self) -> Order {
        self.order
    }

    fn place(&self, pfn: Pfn) -> usize {
        ((pfn.0 - self.first.0) >> self.order.get()) as usize
    }

    pub(crate) fn counts(&self) -> HugeCounts {
        HugeCounts {
            nr_hugepages: self.folios.len() as u64,
            free_hugepages: self.free.len() as u64,
            resv_hugepages: self.nr_reserved,
            surplus_hugepages: 0,
        }
    }

    pub(crate) fn used(&self) -> impl Iterator<Item = (Pfn, &HugeFolio)> {
        let places = self.folios.iter().enumerate();
        places.filter_map(|(place, folio)| {
            let pfn = self.first.plus((place as u64) << self.order.get());
            Some((pfn, folio.as_ref()?))
        })
    }

    pub(crate) fn nr_available(&self) -> u64 {
        (self.free.len() as u64).wrapping_sub(self.nr_reserved)
    }

    pub(crate) fn try_reserve(&mut self, nr: u64) -> bool {
        let missing = self.nr_reserved.wrapping_add(nr).wrapping_sub(self.free.len() as u64);
        let fits = missing.cast_signed() <= 0 && nr <= self.free.len() as u64;
        if fits {
            self.nr_reserved = self.nr_reserved.wrapping_add(nr);
        }
        fits
    }

    pub(crate) const fn unreserve(&mut self, nr: u64) {
        self.nr_reserved = self.nr_reserved.wrapping_sub(nr);
    }

    /// Takes a free page. Returns `None` if none is left for this charge (O.3.2).
    pub(crate) fn take(&mut self, charge: Charge, owner: HugeOwner) -> Option<Pfn> {
        if charge == Charge::Available && self.nr_available() == 0 {
            return None;
        }
        let place = self.free.pop()?;
        if charge == Charge::Reservation {
            self.unreserve(1);
        }
        self.folios[place as usize] = Some(HugeFolio {
            owner,
            mapcount: Mapcount::default(),
            is_exclusive: owner == HugeOwner::Anon,
            restores_reserve: false,
        });
        Some(self.first.plus(u64::from(place) << self.order.get()))
    }

    fn free(&mut self, pfn: Pfn) {
        let place = self.place(pfn);
        let Some(folio) = self.folios[place].take() else {
            unreachable!("I1: a page is freed once")
        };
        if folio.restores_reserve {
            self.nr_reserved = self.nr_reserved.wrapping_add(1);
        }
        self.free.push(place as u32);
    }
}

//! The whole machine: its memory, files and processes.
//!
//! Operations extend [`Memory`] in their own files, such as [`crate::fault`] and [`crate::map`].

mod budget;
mod config;
mod decider;
mod external;
mod reuse;
pub(crate) mod rmap_walk;

pub use config::{Config, MemoryError};
pub use external::FolioState;

use std::collections::BTreeMap;
use std::ops::ControlFlow;

use crate::buddy::{BuddyConfig, MigrateType, RoundOfAgeing};
use crate::core::Core;
use crate::core::hugetlb::{HugePool, Hugetlb};
use crate::core::inject::FailAfter;
use crate::core::khugepaged::Khugepaged;
use crate::core::open_file::{OpenFile, RaState};
use crate::core::pressure::Pressure;
use crate::core::space::{Aging, Flush, Space, Swapped, ThpOff};
use crate::core::watermarks::Watermarks;
use crate::counters::Counters;
use crate::folio::frames::Flag;
use crate::folio::{FolioId, FolioTable, Owner};
use crate::mapping::disk::Disk;
use crate::mapping::reserve::Reservations;
use crate::mapping::tree::{Entry, Tree};
use crate::mapping::{FileName, HugeSwitch, Mapping};
use crate::nodes::Nodes;
use crate::pgtable::{Batch, Contpte, FolioSpan, PageTable};
use crate::ram::{Ram, Stretches};
use crate::rmap::owners::IdsExhausted;
use crate::rules::anon::Enabled;
use crate::rules::order::MinOrder;
use crate::rules::readahead::ReadaheadRules;
use crate::rules::{Arch, ContpteRule, Device, OrderRange, Rules, Store};
use crate::units::{GroupId, MappingId, MmId, Order, Pfn, Vpn};
use crate::vma::{Lock, OpenId, VmaTree};

pub(crate) struct Readahead<'a> {
    pub(crate) state: &'a mut RaState,
    pub(crate) tree: &'a Tree,
    pub(crate) rules: &'a ReadaheadRules,
}

/// One machine's memory.
///
/// The first fault of a file reads a window of base pages; later windows use large folios
/// (see the crate's example):
///
/// ```
/// use largefolio_mm::fault::Access;
/// use largefolio_mm::map::Map;
/// use largefolio_mm::memory::{Config, Memory};
/// use largefolio_mm::rules::{Arch, Rules};
/// use largefolio_mm::units::Vaddr;
/// use largefolio_mm::vma::Prot;
///
/// let mut memory = Memory::new(Rules::example(), &Config::new(Arch::X86_64))?;
/// let file = memory.add_file(1 << 20, "xfs");
/// let open = memory.open(file);
/// let mm = memory.new_space();
/// let at = memory.mmap(mm, Map::file(open, 0, 1 << 20, Prot::READ))?;
/// for page in 0..32 {
///     memory.touch(mm, Vaddr(at.0 + page * 4096), Access::Read)?;
/// }
/// let folios: Vec<_> =
///     memory.folios(file).map(|f| format!("{}@{}", f.order, f.index)).take(5).collect();
/// assert_eq!(folios, ["o0@0", "o0@1", "o0@2", "o0@3", "o0@4"]);
/// assert_eq!(memory.counters().pgmajfault, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Memory {
    pub(crate) rules: Rules,
    pub(crate) arch: Arch,
    pub(crate) core: Core,
    pub(crate) zero_pfn: Pfn,
    /// First frame of the huge zero folio, while a process uses it (D.3.1).
    pub(crate) huge_zero: Option<Pfn>,
    pub(crate) nr_pinned: u64,
    aged: Vec<RoundOfAgeing>,
    pub(crate) khugepaged: Khugepaged,
    pub(crate) fail_collapse: FailAfter,
    pub(crate) measured_bytes: u64,
    /// Folios that the current window has locked, in a cgroup with a limit.
    pub(crate) window: Vec<FolioId>,
    /// How many of them, from the first on, have their read requested.
    pub(crate) nr_requested: usize,
    /// Whether any area was ever advised `MADV_RANDOM` or `MADV_SEQUENTIAL`.
    pub(crate) has_unrecent: bool,
    /// Whether memory was ever locked. If not, reclaim needs no reverse maps to see that.
    pub(crate) has_locked: bool,
    /// Whether NUMA balancing ever marked a page.
    pub(crate) has_marks: bool,
    pub(crate) batch: Vec<Entry>,
    opens: Vec<OpenFile>,
    spaces: Vec<Space>,
    flushes: Vec<Flush>,
    free: reuse::Free,
    decider: Option<Box<decider::Decider>>,
}

impl Memory {
    /// Creates a machine whose memory holds no bytes.
    ///
    /// # Errors
    /// Fails if the allocator cannot manage the machine that `config` describes.
    pub fn new(rules: Rules, config: &Config) -> Result<Self, MemoryError> {
        Self::with_ram(rules, config, Ram::default())
    }

    /// Creates a machine; ageing calls `should_stop` from time to time, which can stop it.
    ///
    /// # Errors
    /// Fails like [`Memory::new`], or with [`MemoryError::Stopped`].
    pub fn new_until(
        rules: Rules,
        config: &Config,
        should_stop: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Self, MemoryError> {
        Self::made(rules, config, Ram::default(), should_stop)
    }

    /// Creates a machine with `ram` as its memory.
    ///
    /// # Errors
    /// Fails if the allocator cannot manage the machine that `config` describes.
    pub fn with_ram(rules: Rules, config: &Config, ram: Ram) -> Result<Self, MemoryError> {
        Self::made(rules, config, ram, &mut || ControlFlow::Continue(()))
    }

    fn made(
        rules: Rules,
        config: &Config,
        ram: Ram,
        should_stop: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Self, MemoryError> {
        let nr_pages = config.ram_bytes >> rules.page.shift();
        let fragmentation = config.fragmentation;
        let mapcount = rules.anon.mapcount_rules();
        let pools = HugePool::all(&config.huge_pools, config.arch, &rules)?;
        let (hugetlb, nr_below) = Hugetlb::new(&pools, rules.page, nr_pages, mapcount)?;
        let zone = BuddyConfig { fragmentation, ..BuddyConfig::new(rules.page, nr_below) };
        let mut buddy = Nodes::new(&zone, &config.nodes)?;
        let aged = match config.ageing {
            None => Vec::new(),
            Some(ageing) => buddy.age_until(ageing, should_stop).ok_or(MemoryError::Stopped)?,
        };
        let steps = config.ageing.map_or(0, |ageing| ageing.steps(nr_below));
        let nr_pinned = buddy.nr_allocated_pages();
        let zero_pfn =
            buddy.alloc(Order::ZERO, MigrateType::Unmovable).ok_or(MemoryError::NoPage)?;
        let mut core = Core::new(rules.page, buddy, hugetlb, ram, mapcount);
        core.work.add(steps);
        core.folios.set_rules(rules.reclaim);
        let has_thp = rules.anon.thp != Enabled::Never;
        let watermarks = Watermarks::new(rules.page, nr_pages, has_thp);
        core.buddy.set_low(watermarks.low);
        let nr_slots = config.swap_bytes >> rules.page.shift();
        core.pressure = Pressure::new(&rules, watermarks, nr_slots);
        let (opens, spaces, flushes) = (Vec::new(), Vec::new(), Vec::new());
        Ok(Self {
            rules,
            arch: config.arch,
            core,
            zero_pfn,
            huge_zero: None,
            nr_pinned,
            aged,
            khugepaged: Khugepaged::default(),
            fail_collapse: FailAfter::default(),
            measured_bytes: 0,
            window: Vec::new(),
            nr_requested: 0,
            has_unrecent: false,
            has_locked: false,
            has_marks: false,
            batch: Vec::new(),
            opens,
            spaces,
            flushes,
            free: reuse::Free::default(),
            decider: None,
        })
    }

    /// Adds a file of `size_bytes` on filesystem `filesystem` (`ext4`, `xfs`, ..).
    pub fn add_file(&mut self, size_bytes: u64, filesystem: &str) -> MappingId {
        self.add_stored_file(size_bytes, Store::of(filesystem))
    }

    /// Adds a file of `size_bytes` that is stored in `store`.
    pub fn add_stored_file(&mut self, size_bytes: u64, store: Store<'_>) -> MappingId {
        let (filesystem, orders) = (store.filesystem, self.rules.order_range_of(store));
        let mut mapping = Mapping::new(size_bytes, orders, self.rules.device(store.disk));
        let max = mapping.orders.max;
        mapping.control = self.rules.sizes.orders(filesystem, self.rules.page, max);
        let is_soft = self.rules.order.min == MinOrder::Soft;
        mapping.soft_min = is_soft.then_some(self.rules.page);
        mapping.is_shmem = filesystem == "tmpfs";
        if mapping.is_shmem {
            mapping.huge_switch = HugeSwitch::Mount;
        }
        mapping.reservations =
            self.rules.reserves(filesystem).then(|| Reservations::of_file(size_bytes));
        mapping.disk = Disk::of(filesystem);
        mapping.disk.places_aligned &= !store.is_stacked;
        self.core.add_mapping(mapping)
    }

    pub(crate) fn add_anon_shared(&mut self, size_bytes: u64) -> OpenId {
        let file = self.add_memory_file(size_bytes);
        self.core.mapping_mut(file).name = FileName::AnonShared;
        self.open(file)
    }

    /// Adds a file in memory without a name (memfd). All its pages are absent: they read as zeroes
    /// until a store.
    pub fn add_memory_file(&mut self, size_bytes: u64) -> MappingId {
        self.add_shmem(size_bytes, HugeSwitch::ShmemEnabled)
    }

    /// Adds a file in memory on a mounted tmpfs.
    pub fn add_tmpfs_file(&mut self, size_bytes: u64) -> MappingId {
        self.add_shmem(size_bytes, HugeSwitch::Mount)
    }

    fn add_shmem(&mut self, size_bytes: u64, huge_switch: HugeSwitch) -> MappingId {
        let max = if self.rules.shmem.makes_large(huge_switch == HugeSwitch::Mount) {
            self.rules.max_pagecache_order()
        } else {
            Order::ZERO
        };
        let orders = OrderRange { min: Order::ZERO, max };
        let mut mapping = Mapping::new(size_bytes, orders, self.rules.device(""));
        (mapping.is_shmem, mapping.is_zero_filled) = (true, true);
        mapping.huge_switch = huge_switch;
        if huge_switch == HugeSwitch::ShmemEnabled {
            mapping.name = FileName::Unnamed;
        }
        self.core.add_mapping(mapping)
    }

    /// The limits of the device that holds `file`.
    pub(crate) fn device(&self, file: MappingId) -> Device {
        self.core.mapping(file).device
    }

    /// Opens a file for reading, with the device's readahead window.
    ///
    /// # Panics
    /// Panics at the 2^32nd open.
    pub fn open(&mut self, file: MappingId) -> OpenId {
        let state = RaState::new(self.device(file).ra_pages);
        self.add_open(OpenFile {
            mapping: file,
            state,
            is_random: false,
            start_order: None,
            is_writer: false,
            nr_descriptors: 1,
        })
    }

    /// Creates a process with nothing mapped.
    ///
    /// # Panics
    /// Panics if live processes have all owner ids: 2^31, or 2^15 with
    /// [`OwnerLayout::Bits32`](crate::rmap::owners::OwnerLayout).
    pub fn new_space(&mut self) -> MmId {
        let Ok(mm) = self.try_new_space() else { panic!("owner ids exhausted") };
        mm
    }

    pub(crate) fn try_new_space(&mut self) -> Result<MmId, IdsExhausted> {
        let id = self.core.processes.alloc()?;
        let table = self.new_table();
        let mm = self.add_space(Space {
            vmas: VmaTree::new(self.rules.anon.area_merge),
            table,
            swapped: Swapped::default(),
            huge: BTreeMap::new(),
            group: GroupId::ROOT,
            is_dead: false,
            has_pinned: false,
            uses_huge_zero: false,
            exe: None,
            comm: [0; 16],
            is_scanned: false,
            thp_off: ThpOff::None,
            lock: Lock::None,
            measured_bytes: 0,
            aging: Aging::NEW,
        });
        self.core.processes.start(mm, id);
        self.core.buddy.add_task(mm, None);
        Ok(mm)
    }

    pub(crate) fn new_table(&self) -> PageTable {
        let folds = self.rules.contpte == ContpteRule::OnArm64 && self.arch == Arch::Arm64;
        let contpte = if folds { Contpte::Arm64 } else { Contpte::None };
        PageTable::new(self.rules.page, contpte)
    }

    /// Returns an open file.
    #[must_use]
    pub fn open_file(&self, id: OpenId) -> &OpenFile {
        &self.opens[id.0 as usize]
    }

    pub(crate) fn open_file_mut(&mut self, id: OpenId) -> &mut OpenFile {
        &mut self.opens[id.0 as usize]
    }

    /// Returns a process's address space, even after the process has ended.
    #[must_use]
    pub fn space(&self, id: MmId) -> &Space {
        &self.spaces[id.0 as usize]
    }

    pub(crate) fn space_mut(&mut self, id: MmId) -> &mut Space {
        &mut self.spaces[id.0 as usize]
    }

    pub(crate) fn live_space(&self, id: MmId) -> Option<&Space> {
        self.spaces.get(id.0 as usize).filter(|space| !space.is_dead)
    }

    /// Returns the processes that have not ended.
    pub fn spaces(&self) -> impl Iterator<Item = (MmId, &Space)> {
        self.all_spaces().filter(|(_, space)| !space.is_dead)
    }

    pub(crate) const fn nr_spaces(&self) -> usize {
        self.spaces.len()
    }

    pub(crate) fn all_spaces(&self) -> impl Iterator<Item = (MmId, &Space)> {
        (0..).map(MmId).zip(&self.spaces)
    }

    pub(crate) fn nr_things(&self) -> u64 {
        (self.spaces.len() + self.opens.len() - self.free.len()) as u64
    }

    pub(crate) fn opens(&self) -> impl Iterator<Item = (OpenId, &OpenFile)> {
        (0..).map(OpenId).zip(&self.opens)
    }

    /// Returns the rules; [`Memory::change_rules`] changes them.
    #[must_use]
    pub const fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Returns files, folios and free memory.
    #[must_use]
    pub fn core(&self) -> &Core {
        &self.core
    }

    /// Returns the allocations of ageing, per round.
    #[must_use]
    pub fn aged(&self) -> &[RoundOfAgeing] {
        &self.aged
    }

    /// Takes the stretches since the last call: work without a reschedule point (D.4.7).
    pub fn take_stretches(&mut self) -> Stretches {
        std::mem::take(&mut self.core.stretches)
    }

    /// Returns the event counts so far.
    #[must_use]
    pub fn counters(&self) -> &Counters {
        &self.core.counters
    }

    /// Returns a file's folios in ascending order.
    pub fn folios(&self, file: MappingId) -> impl Iterator<Item = Entry> {
        self.core.mapping(file).tree.iter()
    }

    /// Whether TLBs must be flushed.
    #[must_use]
    pub fn has_flushes(&self) -> bool {
        !self.flushes.is_empty()
    }

    /// Moves the TLB flushes since the last call into `into`.
    pub fn take_flushes(&mut self, into: &mut Vec<Flush>) {
        into.clear();
        into.append(&mut self.flushes);
    }

    pub(crate) fn flush(&mut self, mm: MmId, first: Vpn, nr_pages: u64) {
        self.flushes.push(Flush { mm, first, nr_pages });
    }

    pub(crate) fn readahead(&mut self, open: OpenId) -> Readahead<'_> {
        let opened = &mut self.opens[open.0 as usize];
        let tree = &self.core.mapping(opened.mapping).tree;
        Readahead { state: &mut opened.state, tree, rules: &self.rules.readahead }
    }

    /// Sets PTEs for pages of a page-cache folio.
    ///
    /// On x86-64 a new entry is marked accessed, even when fault-around sets it. arm64 can tell the
    /// difference and leaves those entries old.
    pub(crate) fn map_file(&mut self, mm: MmId, id: FolioId, batch: Batch) {
        if self.arch == Arch::X86_64 {
            self.core.folios.frames_mut().set(Flag::Accessed, batch.pfn, batch.nr);
        }
        let folio = self.core.folios.get(id);
        let span = FolioSpan::new(folio.pfn, folio.order);
        self.space_mut(mm).table.map_ptes(batch, span);
        self.core.add_ptes(id, mm, batch.pfn, batch.nr);
        self.core.counters.nr_file_ptes += batch.nr;
    }

    pub(crate) fn mark_anon(&mut self, mm: MmId, vpn: Vpn) {
        self.space_mut(mm).vmas.mark_anon(vpn);
    }

    pub(crate) fn space_and_folios(&mut self, mm: MmId) -> (&mut Space, &FolioTable) {
        (&mut self.spaces[mm.0 as usize], &self.core.folios)
    }

    pub(crate) fn space_and_core(&mut self, mm: MmId) -> (&mut Space, &mut Core) {
        (&mut self.spaces[mm.0 as usize], &mut self.core)
    }

    /// Returns two processes and the folios they map.
    ///
    /// # Panics
    /// Panics if both are the same.
    pub(crate) fn two_spaces(
        &mut self,
        first: MmId,
        second: MmId,
    ) -> (&mut Space, &mut Space, &mut Core) {
        let Ok([first, second]) =
            self.spaces.get_disjoint_mut([first.0 as usize, second.0 as usize])
        else {
            panic!("{first:?} and {second:?} are the same process")
        };
        (first, second, &mut self.core)
    }

    /// Returns the owner and order of the folio that contains `pfn`; `None` for zero pages.
    #[must_use]
    pub fn owner_of(&self, pfn: Pfn) -> Option<(Owner, Order)> {
        let folio = self.core.folios.get(self.core.folios.of_pfn(pfn)?);
        Some((folio.owner, folio.order))
    }
}

//! Steps of a random program.

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::fault::Access;
use largefolio_mm::map::Madvice;
use largefolio_mm::memory::Config;
use largefolio_mm::rmap::mapcount::PmdCount;
use largefolio_mm::rmap::owners::OwnerLayout;
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::Writers;
use largefolio_mm::rules::anon::{
    AnonRules, Batching, Defrag, Enabled, HugeZeroWrite, Mapcount, NonePtes, Regain, Reuse,
    SizeMode, Sizes, SplitZeroPages, TruncateSplit, Underused, Unsplittable,
};
use largefolio_mm::rules::collapse::{
    CollapseRules, CollapseSizes, DirtyFlush, DirtyRange, EmptyBlock, FileCollapse, Lazyfree,
    ReadOnlyRange, SharedPtes, ShortRequest, SwapPtes,
};
use largefolio_mm::rules::reclaim::{
    AdvisedFolios, CostRule, DeferredQueue, FailedScan, FaultDrains, FreedSlots, GenerationRule,
    GroupStats, LruRule, Recency, ReclaimRules, SlotChoice, SplitParts, StoreFrees, SwapDevice,
    SwapIn, ZapRule, ZeroPages,
};
use largefolio_mm::rules::shmem::{
    ShmemArea, ShmemEnabled, ShmemFolios, ShmemRules, ShmemSizeMode, ShmemSizes, TmpfsHuge,
    WithinSize,
};
use largefolio_mm::rules::zswap::{
    Incompressible, ZswapFolios, ZswapLoad, ZswapPool, ZswapRules, ZswapShrink,
};

use crate::anon::machine::{GroupChange, NR_GROUPS, Regroup};
use crate::anon::world::PAGE;

/// Pages before [`BASE`] that programs use, so a PMD boundary is inside the range.
pub(crate) const BEFORE: u64 = 100;
pub(crate) const NR_PAGES: u64 = 1300;
pub(crate) const FILES: [(&str, u64); 2] = [("xfs", 700 * PAGE), ("vfat", 1300 * PAGE + 100)];

#[derive(Clone, Debug)]
pub(crate) struct Numbers(pub(crate) u64);

impl Numbers {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    pub(crate) fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }

    fn pages(&mut self) -> u64 {
        match self.below(4) {
            0 => 1,
            1 => 1 + self.below(20),
            2 => 1 + self.below(600),
            _ => self.pick(&[4, 16, 64, 512]),
        }
    }

    fn at(&mut self) -> u64 {
        let at = self.below(NR_PAGES);
        match self.below(4) {
            0 => (at + BEFORE) / 512 * 512 + 512 - BEFORE,
            1 => at / 16 * 16 + 16 - BEFORE % 16,
            _ => at,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum What {
    Anon,
    SharedAnon,
    Private { file: usize, pgoff: u64 },
    Shared { file: usize, pgoff: u64 },
}

/// One step; `of` is a process. A collapse is to the PMD size or to an order. A writer opens the
/// file briefly or holds it open until the next. khugepaged wakes `nr` times.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Map { of: usize, at: u64, nr: u64, what: What, can_write: bool },
    Unmap { of: usize, at: u64, nr: u64 },
    Protect { of: usize, at: u64, nr: u64, can_write: bool },
    Advise { of: usize, at: u64, nr: u64, advice: Madvice },
    Arm { of: usize, at: u64, nr: u64 },
    Remap { of: usize, at: u64, nr: u64, to: u64, nr_new: u64 },
    Load { of: usize, at: u64 },
    Store { of: usize, at: u64, from: usize, len: usize, seed: u8 },
    Pin { of: usize, at: u64, access: Access },
    Unpin { pin: usize },
    Device { pin: usize, from: usize, seed: u8 },
    Fork { of: usize },
    Exit { of: usize },
    Write { file: usize, pos: u64, len: u64, seed: u8 },
    Truncate { file: usize, size: u64 },
    Punch { file: usize, pos: u64, len: u64 },
    DropCache { file: usize },
    Shrink { nr: usize },
    Reclaim { nr: u64 },
    Compact { order: u8 },
    Collapse { of: usize, at: u64, nr: u64, order: Option<u8> },
    Khugepaged { nr: u64 },
    Sync { file: usize },
    Writer { file: usize, is_held: bool },
    Run { of: usize, file: usize },
}

impl Step {
    pub(crate) fn random(numbers: &mut Numbers, nr_processes: usize, nr_pins: usize) -> Self {
        let of = numbers.below(nr_processes as u64) as usize;
        let (at, nr) = (numbers.at(), numbers.pages());
        let file = numbers.below(2) as usize;
        let size = FILES[file].1 + 20 * PAGE;
        let pin = numbers.below(nr_pins.max(1) as u64) as usize;
        let seed = numbers.next() as u8;
        let can_write = numbers.below(4) > 0;
        match numbers.below(118) {
            0..6 => {
                let at = numbers.pick(&[at, at, BEFORE, BEFORE + 512]);
                let (nr, what) = (numbers.pick(&[nr, 512, 1024]), what(numbers, at));
                let is_file = matches!(what, What::Private { .. } | What::Shared { .. });
                let can_write = can_write && (!is_file || numbers.below(2) == 0);
                Self::Map { of, at, nr, what, can_write }
            }
            6..10 => Self::Unmap { of, at, nr },
            10..15 => Self::Protect { of, at, nr, can_write },
            15..24 => Self::Advise { of, at, nr, advice: numbers.pick(&ADVICE) },
            24 => Self::Arm { of, at, nr },
            25..28 => {
                let (to, nr_new) = (numbers.at(), numbers.pick(&[nr, numbers.clone().pages()]));
                Self::Remap { of, at, nr, to, nr_new }
            }
            28..36 => Self::Load { of, at },
            36..72 => {
                let from = numbers.below(PAGE - 64) as usize;
                let len = 1 + numbers.below(64) as usize;
                Self::Store { of, at, from, len, seed }
            }
            72..75 => Self::Pin { of, at, access: numbers.pick(&[Access::Read, Access::Write]) },
            75..78 => Self::Unpin { pin },
            78..81 => Self::Device { pin, from: numbers.below(PAGE - 8) as usize, seed },
            81..85 => Self::Fork { of },
            85..87 => Self::Exit { of },
            87..90 => Self::Write {
                file,
                pos: numbers.below(size),
                len: numbers.pick(&[1, 100, PAGE, 20 * PAGE]),
                seed,
            },
            90..92 => Self::Truncate { file, size: numbers.below(size) },
            92..95 => {
                let len = numbers.pick(&[1, PAGE, 3 * PAGE + 17, 200 * PAGE]);
                let pos = numbers.below(size);
                Self::Punch { file, pos: numbers.pick(&[pos, pos / PAGE * PAGE]), len }
            }
            95 => Self::DropCache { file },
            96 => Self::Reclaim { nr: numbers.pick(&[1, 100, 5000]) },
            97 => Self::Compact { order: numbers.pick(&[2, 4, 9]) },
            98 | 99 => Self::Shrink { nr: numbers.pick(&[1, 4, 1000]) },
            100..109 => {
                let order = numbers.pick(&[None, None, Some(4), Some(2), Some(9)]);
                let at = numbers.pick(&[at, BEFORE, BEFORE, BEFORE + 512]);
                Self::Collapse { of, at, nr: numbers.pick(&[nr, 512, 1024]), order }
            }
            109..112 => Self::Khugepaged { nr: numbers.pick(&[1, 1, 3]) },
            112 => Self::Sync { file },
            113..117 => Self::Writer { file, is_held: numbers.below(8) == 0 },
            _ => Self::Run { of, file },
        }
    }
}

fn what(numbers: &mut Numbers, at: u64) -> What {
    let file = numbers.below(2) as usize;
    let congruent = (at + 512 - BEFORE) % 512;
    let pgoff = numbers.pick(&[0, congruent, congruent, numbers.clone().below(60)]);
    match numbers.below(10) {
        0..6 => What::Anon,
        6 => What::SharedAnon,
        7 | 8 => What::Private { file, pgoff },
        _ => What::Shared { file, pgoff },
    }
}

const ADVICE: [Madvice; 9] = [
    Madvice::Hugepage,
    Madvice::Hugepage,
    Madvice::Nohugepage,
    Madvice::Dontneed,
    Madvice::Dontneed,
    Madvice::Free,
    Madvice::Cold,
    Madvice::Pageout,
    Madvice::PopulateRead,
];

pub(crate) fn random_rules(numbers: &mut Numbers) -> AnonRules {
    use SizeMode::{Always, Inherit, Madvise, Never};
    let mut anon = AnonRules::stock();
    anon.thp = numbers.pick(&[Enabled::Always, Enabled::Madvise, Enabled::Never]);
    anon.pmd = numbers.pick(&[Always, Inherit, Inherit, Never]);
    for kib in [16, 32, 64, 128, 512, 1024] {
        if numbers.below(3) == 0 {
            anon.set_size(kib << 10, numbers.pick(&[Always, Always, Madvise, Inherit])).unwrap();
        }
    }
    if numbers.below(8) == 0 {
        (anon.sizes, anon.size_kib) = (Sizes::PmdOnly, std::collections::BTreeMap::new());
    }
    anon.defrag = numbers.pick(&[Defrag::Always, Defrag::Defer, Defrag::Madvise, Defrag::Never]);
    anon.use_zero_page = numbers.below(2) == 0;
    anon.huge_zero_write = numbers.pick(&[HugeZeroWrite::Split, HugeZeroWrite::Replace]);
    anon.shrink_underused = numbers.pick(&[Underused::Queued, Underused::Ignored]);
    anon.max_ptes_none =
        numbers.pick(&[NonePtes::AllButOne, NonePtes::Exactly(0), NonePtes::Exactly(400)]);
    anon.reuse = numbers.pick(&[Reuse::Tracked, Reuse::Tracked, Reuse::SmallOnly]);
    anon.batching = numbers.pick(&[Batching::Folio, Batching::Folio, Batching::PageByPage]);
    anon.mapcount = numbers.pick(&[Mapcount::PerPage, Mapcount::PerFolio]);
    anon.owners_max = numbers.pick(&[0, 0, 3, 40]);
    anon.owner_layout = numbers.pick(&[OwnerLayout::Bits64, OwnerLayout::Bits32]);
    anon.pmd_counts = numbers.pick(&[PmdCount::One, PmdCount::One, PmdCount::AllPages]);
    anon.truncate_split = numbers.pick(&[TruncateSplit::Uniform, TruncateSplit::NonUniform]);
    anon.unsplittable = numbers.pick(&[Unsplittable::Kept, Unsplittable::KeptUnmapped]);
    anon.split_zero_pages = numbers.pick(&[SplitZeroPages::Kept, SplitZeroPages::Replaced]);
    anon.regain = numbers.pick(&[Regain::Never, Regain::Dirty, Regain::Exclusive]);
    anon
}

pub(crate) fn random_shmem(numbers: &mut Numbers) -> ShmemRules {
    use ShmemEnabled::{Advise, Always, Deny, Force, Never};
    let mut rules = ShmemRules {
        enabled: numbers.pick(&[Never, Advise, Always, ShmemEnabled::WithinSize, Deny, Force]),
        tmpfs: numbers.pick(&[TmpfsHuge::Never, TmpfsHuge::Always, TmpfsHuge::WithinSize]),
        sizes: numbers.pick(&[ShmemSizes::PmdOnly, ShmemSizes::PerSize]),
        folios: numbers.pick(&[
            ShmemFolios::PmdOnly,
            ShmemFolios::ByLength,
            ShmemFolios::AllInCalls,
            ShmemFolios::All,
        ]),
        area: numbers.pick(&[ShmemArea::Ignored, ShmemArea::Fits]),
        within: numbers.pick(&[WithinSize::Before, WithinSize::After]),
        ..ShmemRules::stock()
    };
    let modes = [ShmemSizeMode::Always, ShmemSizeMode::WithinSize, ShmemSizeMode::Inherit];
    for kib in [8, 64] {
        // Kernels without sizes have no such control.
        let _ = rules.set_size(kib << 10, numbers.pick(&modes));
    }
    rules
}

pub(crate) fn random_collapse(numbers: &mut Numbers) -> (CollapseRules, Writers) {
    use FileCollapse::{DenyWrite, Exec, LargeFolios, Readers};
    let file = numbers.pick(&[
        FileCollapse::Absent,
        DenyWrite,
        Exec,
        Readers,
        Readers,
        Readers,
        LargeFolios,
    ]);
    let rules = CollapseRules {
        file,
        sizes: numbers.pick(&[CollapseSizes::PmdOnly, CollapseSizes::Enabled]),
        read_only: numbers.pick(&[ReadOnlyRange::Refused, ReadOnlyRange::Collapsed]),
        lazyfree: numbers.pick(&[Lazyfree::Refused, Lazyfree::Collapsed]),
        dirty: numbers.pick(&[DirtyRange::Fails, DirtyRange::Again, DirtyRange::WrittenBack]),
        flush: numbers.pick(&[DirtyFlush::Always, DirtyFlush::UnlessOpenForWrite]),
        empty_block: numbers.pick(&[EmptyBlock::EndsWalk, EmptyBlock::SteppedOver]),
        short_request: numbers.pick(&[ShortRequest::Refused, ShortRequest::Done]),
        max_ptes_swap: numbers.pick(&[SwapPtes::Eighth, SwapPtes::Exactly(512)]),
        max_ptes_shared: numbers.pick(&[SharedPtes::Half, SharedPtes::Exactly(512)]),
        ..CollapseRules::stock()
    };
    let is_new = file == LargeFolios;
    (rules, if is_new { Writers::Keep } else { Writers::DropCache })
}

pub(crate) fn random_config(numbers: &mut Numbers) -> (AnonRules, Config) {
    let anon = random_rules(numbers);
    let arch = numbers.pick(&[Arch::X86_64, Arch::Arm64]);
    let nr_pages = numbers.pick(&[600, 1000, 2500, 9000, 9000]);
    let nr_slots = numbers.pick(&[0, 100, 1000, 8000]);
    let (ram_bytes, swap_bytes) = (nr_pages * PAGE, nr_slots * PAGE);
    (anon, Config { ram_bytes, swap_bytes, ..Config::new(arch) })
}

pub(crate) fn random_reclaim(numbers: &mut Numbers) -> ReclaimRules {
    use GenerationRule::{First, FirstUse, Protected, Reworked};
    ReclaimRules {
        lru: numbers.pick(&[LruRule::Lists, LruRule::Generations]),
        generations: numbers.pick(&[First, Protected, Reworked, FirstUse]),
        folio_batch: numbers.pick(&[1, 15, 31]),
        recency: numbers.pick(&[Recency::Sequential, Recency::RandomToo]),
        group_stats: numbers.pick(&[GroupStats::AtThreshold, GroupStats::Periodic]),
        zap: numbers.pick(&[ZapRule::Drains, ZapRule::Keeps]),
        failed_scan: numbers.pick(&[FailedScan::Forces, FailedScan::Repeats]),
        deferred_queue: numbers.pick(&[DeferredQueue::OfGroup, DeferredQueue::Listed]),
        advised: numbers.pick(&[AdvisedFolios::Split, AdvisedFolios::Whole]),
        split_parts: numbers.pick(&[SplitParts::Ascending, SplitParts::Descending]),
        cost: numbers.pick(&[
            CostRule::Writes,
            CostRule::WritesAndRotations,
            CostRule::Nonzero,
            CostRule::Counters,
        ]),
        swap_device: numbers.pick(&[SwapDevice::Zram, SwapDevice::Disk]),
        slot_choice: numbers.pick(&[SlotChoice::FreeFirst, SlotChoice::UsedFirst]),
        freed_slots: FreedSlots::AtOnce,
        store_frees: numbers.pick(&[StoreFrees::Alone, StoreFrees::NotExclusive]),
        fault_drains: numbers.pick(&[FaultDrains::ForStores, FaultDrains::Never]),
        zero_pages: numbers.pick(&[ZeroPages::Written, ZeroPages::Noted]),
        swap_in: numbers.pick(&[SwapIn::Pages, SwapIn::Folios, SwapIn::Cached]),
        dirty_background_ratio: numbers.pick(&[0, 2, 10, 100]),
        compaction_proactiveness: numbers.pick(&[0, 20, 95]),
    }
}

/// Small limits, so that they are reached.
pub(crate) fn random_zswap(numbers: &mut Numbers) -> ZswapRules {
    use ZswapShrink::{Batch, Oldest, SecondChance};
    ZswapRules {
        enabled: numbers.pick(&[false, true, true]),
        max_pool_percent: numbers.pick(&[0, 1, 5, 20]),
        accept_threshold_percent: numbers.pick(&[0, 50, 90, 100]),
        ratio_percent: numbers.pick(&[100, 185, 300]),
        incompressible_percent: numbers.pick(&[0, 0, 20]),
        writeback: numbers.pick(&[true, true, false]),
        group_max_bytes: numbers.pick(&[None, None, Some(0), Some(20 * PAGE)]),
        charged: numbers.pick(&[true, true, false]),
        folios: numbers.pick(&[ZswapFolios::BasePages, ZswapFolios::All]),
        load: numbers.pick(&[ZswapLoad::Kept, ZswapLoad::Exclusive]),
        incompressible: numbers.pick(&[Incompressible::Refused, Incompressible::Stored]),
        pool: numbers.pick(&[ZswapPool::Pairs, ZswapPool::SizeClasses]),
        shrink: numbers.pick(&[Oldest, SecondChance, Batch]),
    }
}

pub(crate) fn random_regroup(numbers: &mut Numbers, nr_processes: usize) -> Regroup {
    let group = numbers.below(NR_GROUPS as u64) as usize;
    let none = GroupLimits::NONE;
    let what = match numbers.below(8) {
        0 => GroupChange::Limits(GroupLimits::default()),
        1 | 2 => GroupChange::Limits(GroupLimits {
            max: numbers.pick(&[100, 300, 700, none]),
            high: numbers.pick(&[50, 200, none, none]),
            low: numbers.pick(&[0, 0, 100, 400]),
            min: numbers.pick(&[0, 0, 50]),
        }),
        3 | 4 => GroupChange::Join(numbers.below(nr_processes as u64) as usize),
        5 | 6 => GroupChange::Enter,
        _ => GroupChange::Reclaim(numbers.pick(&[1, 40, 200])),
    };
    Regroup { group, what }
}

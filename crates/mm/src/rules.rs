//! The behaviour of one kernel version: a plain struct of enums.
//!
//! Corresponds to: `mapping_set_folio_order_range`, `exec_folio_order`.
//!
//! Owns every choice on which kernels differ. Does not own the code that follows a choice: each
//! enum names the file that does. A kernel is data (`kernels/*.toml`); no code checks a kernel
//! version.
//!
//! Invariants:
//! - I1: `fault_around_bytes` is a power of two and at least one base page.
//! - I2: an exec order is at most [`Rules::max_pagecache_order`].

pub mod anon;
pub mod clear;
pub mod collapse;
pub mod numa;
pub mod order;
pub mod readahead;
pub mod reclaim;
pub mod shmem;
pub mod sizes;
pub mod zswap;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::units::{Order, PageSize};
use anon::AnonRules;
use clear::ClearRules;
use collapse::CollapseRules;
use numa::NumaRules;
use order::OrderRules;
use readahead::ReadaheadRules;
use reclaim::ReclaimRules;
use shmem::ShmemRules;
use sizes::FileSizes;
use zswap::ZswapRules;

/// Largest order in the page-cache tree: `2 * 6 - 1` (docs/behaviour 0.4, `MAX_XAS_ORDER`).
const MAX_XAS_ORDER: Order = Order::new(11);
/// A block of a filesystem whose block size is unknown.
const USUAL_BLOCK_BYTES: u64 = 4 << 10;

/// All differences between the modelled kernels.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Rules {
    /// The kernel's base page size.
    pub page: PageSize,
    /// A device's readahead window in bytes (`read_ahead_kb`); 0 = disabled.
    pub readahead_bytes: u64,
    /// A device's largest I/O in bytes (`bdi io_pages`).
    pub io_bytes: u64,
    /// Limits of single devices, by the name in [`Store::disk`].
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub disks: BTreeMap<String, DiskLimits>,
    /// Fault-around window in bytes, a power of two; one base page = off (B.5.1).
    pub fault_around_bytes: u64,
    /// How buffered and mapped access become windows.
    pub readahead: ReadaheadRules,
    /// How a file fault proceeds.
    pub fault: FaultRules,
    /// Filesystems with large folios.
    pub filesystems: Filesystems,
    /// Smallest folio of filesystems with large folios (block size), in bytes; 0 = one base page.
    pub min_folio_bytes: u64,
    /// Placement of mappings without a fixed address.
    pub placement: Placement,
    /// Whether the kernel folds PTEs if the machine supports it (C.1).
    pub contpte: ContpteRule,
    /// Anonymous memory, fork, copy-on-write, unmap and split.
    pub anon: AnonRules,
    /// Shared memory: tmpfs, memfd, shared anonymous memory, System V.
    #[serde(default)]
    pub shmem: ShmemRules,
    /// The order in which new folios are zeroed.
    pub clear: ClearRules,
    /// Per-size control of file folios (K.1.4); in no kernel.
    #[serde(default)]
    pub sizes: FileSizes,
    /// Orders proposed besides series 000 (K.1.4); in no kernel.
    #[serde(default)]
    pub order: OrderRules,
    /// How an open for writing affects huge folios.
    pub writers: Writers,
    /// khugepaged and `MADV_COLLAPSE`.
    pub collapse: CollapseRules,
    /// Reclaim.
    pub reclaim: ReclaimRules,
    /// NUMA balancing.
    #[serde(default)]
    pub numa: NumaRules,
    /// zswap, between reclaim and the swap device.
    #[serde(default)]
    pub zswap: ZswapRules,
    /// hugetlb pages allocated at boot, by size in KiB (docs/behaviour O.1.2); none by default.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub hugepages: BTreeMap<String, u64>,
}

/// A device's own limits in bytes; `None` = as for all other devices.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DiskLimits {
    /// The readahead window.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub readahead_bytes: Option<u64>,
    /// The largest I/O.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub io_bytes: Option<u64>,
}

/// A device's limits in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Device {
    /// The readahead window; 0 = disabled.
    pub ra_pages: u64,
    /// The largest I/O.
    pub io_pages: u64,
}

/// Where a file is stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Store<'a> {
    /// The filesystem's name: `ext4`, `xfs`, ..
    pub filesystem: &'a str,
    /// The filesystem's block size in bytes; 0 = unknown, at most a base page.
    pub block_bytes: u64,
    /// The device's name; empty if unknown.
    pub disk: &'a str,
    /// Whether programs see it through another filesystem (overlayfs), which aligns no mappings.
    pub is_stacked: bool,
}

impl<'a> Store<'a> {
    /// A filesystem with usual blocks on a device without a name.
    #[must_use]
    pub const fn of(filesystem: &'a str) -> Self {
        Self { filesystem, block_bytes: 0, disk: "", is_stacked: false }
    }
}

/// C.1: contpte folding.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContpteRule {
    /// \[..6.8\] no contiguous bit for user pages.
    Absent,
    /// \[6.9+\] on arm64.
    OnArm64,
}

/// The modelled machine's architecture, as far as the kernel's choices depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Arch {
    /// x86-64.
    #[serde(rename = "x86-64")]
    X86_64,
    /// arm64.
    Arm64,
}

/// Bytes of an exec folio on arm64 (docs/behaviour 0.4).
const ARM64_EXEC_FOLIO_BYTES: u64 = 64 << 10;

/// Differences between kernels in section B.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultRules {
    /// How `MADV_HUGEPAGE` forces a window (B.4.1, B.4.4, B.4.5; `fault/readahead.rs`).
    pub forced: Forced,
    /// Whether the miss counter gates forced windows (B.4.2).
    pub forced_gate: ForcedGate,
    /// What an executable mapping reads (B.4.7 .. B.4.9).
    pub exec: Exec,
    /// Whether executable mappings are counted and gated (B.4.3).
    pub exec_miss: ExecMiss,
    /// Initial order of a read-around (K.3.3; `fault/readahead.rs`).
    pub start_order: StartOrder,
    /// When a hit in the fault handler lowers the miss counter (B.3).
    pub hit_credit: HitCredit,
    /// How fault-around lowers the miss counter (B.5.8).
    pub around_credit: AroundCredit,
    /// How much of a large folio fault-around maps (B.5.7).
    pub around_span: AroundSpan,
    /// Unit of the fault-around window (K.3.3).
    pub around_window: AroundWindow,
    /// Whether fault-around and finish refuse folios that extend past the end of file (B.5.6).
    pub eof_guard: EofGuard,
    /// How much the finishing step maps (B.6.4).
    pub finish: Finish,
    /// Whether a VMA with `MADV_NOHUGEPAGE` can get a PMD mapping (B.6.3).
    pub nohugepage_pmd: NohugepagePmd,
    /// Whether a minor fault that had to wait restarts as a first try (B.3.1.1).
    pub minor_retry: MinorRetry,
}

/// B.4.1 step 1, B.4.4, B.4.5: the window of a `MADV_HUGEPAGE` mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Forced {
    /// PMD-sized, only if the PMD order fits the page cache.
    Pmd,
    /// Series 002 as posted: any mapping; the PMD order, or the mapping's maximum up to 2 MiB.
    Posted,
    /// \[7.2\] mappings with large folios: their maximum up to 2 MiB.
    #[serde(rename = "capped-at-2m")]
    CappedAt2M,
}

/// B.4.2: whether a forced window is counted as a miss and gated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ForcedGate {
    /// \[..6.18\] forced windows precede the counter.
    Ungated,
    /// \[7.0+\] counted and gated like any other.
    Gated,
}

/// B.4.7 .. B.4.9: what a cold fault in an executable mapping reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Exec {
    /// \[..6.16\] the ordinary read-around.
    None,
    /// Series 000 as posted: one naturally aligned block of this many bytes.
    Block {
        /// Bytes of the block.
        bytes: u64,
    },
    /// \[6.17+\] a forward window of folios of the architecture's size (64 KiB on arm64, otherwise
    /// one base page), clipped to the VMA.
    ArchWindow,
    /// The same window with folios of another size.
    Window {
        /// Bytes per folio; one base page = order 0.
        bytes: u64,
    },
}

/// B.4.3: the miss counter and executable mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecMiss {
    /// Counted and gated like any mapping.
    Counted,
    /// Series 002 patch 1 as posted: neither counted nor gated, but still credited.
    NotCounted,
    /// \[7.2\] EXEC and `SEQ_READ` are neither counted, gated nor credited.
    Balanced,
}

/// K.3.3: the initial folio order of a read-around (B.4.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StartOrder {
    /// As in the ramp: order 2 up to 6.16, order 0 from 6.17 (A.9.4).
    Ramp,
    /// Differs: proposed, in no kernel. Folios of this size from the first window on.
    Size {
        /// Bytes per folio.
        bytes: u64,
    },
}

impl StartOrder {
    /// Its order with this base page.
    #[must_use]
    pub fn order(self, page: PageSize) -> Option<Order> {
        match self {
            Self::Ramp => None,
            Self::Size { bytes } => Some(page.order_of_bytes(bytes)),
        }
    }
}

/// K.3.3: the fault-around window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AroundWindow {
    /// `fault_around_bytes`, whatever the base page: off with 64 KiB pages.
    Bytes,
    /// Differs: requested, in no kernel. At least one contpte block: 64 KiB, 2 MiB, 2 MiB.
    ContpteBlock,
}

/// B.3: when a hit in the fault handler lowers the miss counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum HitCredit {
    /// \[..6.17\] always.
    Always,
    /// \[6.18+\] only if the folio is not locked (its I/O is done).
    Unlocked,
}

/// B.5.8: how fault-around lowers the miss counter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AroundCredit {
    /// \[6.1\] by one per page visited.
    PerPage,
    /// \[6.12 .. 7.1\] by one per page visited whose folio was not refaulted.
    PerNewPage,
    /// \[7.2\] by at most one per fault, for the faulting address.
    OncePerFault,
}

/// B.5.7: how much of a large folio fault-around maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AroundSpan {
    /// The part inside the window.
    Window,
    /// \[6.18+\] the whole folio if it fits VMA and PTE table.
    WholeFolio,
}

/// B.5.6, B.6.2: folios that extend past the file's last page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EofGuard {
    /// \[6.1, 6.16\] no check.
    None,
    /// \[6.12, 6.17+\] neither PMD-mapped nor widened; seen in recorded stable kernels.
    Refuse,
}

/// B.6.4: how much of a file folio the finishing step maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Finish {
    /// \[..6.10\] one PTE.
    OnePte,
    /// \[6.11 .. 6.16\] the whole folio for unnamed shared memory, one PTE for other files.
    WholeUnnamed,
    /// \[6.17\] the whole folio for shared memory, one PTE for other files.
    WholeShmem,
    /// \[6.18+\] the whole folio if it fits.
    WholeFolio,
}

/// B.6.3: PMD mapping in a VMA with `MADV_NOHUGEPAGE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum NohugepagePmd {
    /// \[..6.11\] allowed.
    Allowed,
    /// \[6.12+\] refused.
    Refused,
}

/// B.3.1.1: how a minor fault that dropped its lock continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum MinorRetry {
    /// \[6.1\] as a retry.
    Tried,
    /// \[6.12+\] again as a first try: per-VMA locks.
    Untried,
}

/// A.8: filesystems with large folios; all others use base pages only.
pub type Filesystems = BTreeMap<String, LargeFolios>;

/// A.8: a filesystem's largest folio.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LargeFolios {
    /// Base pages only. Overrides an earlier entry.
    None,
    /// Any order that the page cache supports.
    Any,
    /// XFS: any order; reserved space cuts a write's folios (`mapping/reserve.rs`).
    Xfs,
    /// ext4: `11 + blocksize_bits - page_shift`.
    Ext4,
    /// btrfs: 64 blocks.
    Btrfs,
}

/// Which mappings the kernel places at PMD-aligned addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// Files that span a PMD on ext4, XFS and btrfs: congruent to the file offset.
    LargeFiles,
    /// The same, plus anonymous mappings whose length is a multiple of the PMD size.
    LargeFilesAndAnon,
}

/// H.3.3: how an open for writing affects a file with huge folios that its filesystem cannot write
/// (`writers.rs`). Filesystems with large folios keep theirs under every rule (L.17).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Writers {
    /// \[5.4 .. 7.1\] the file's whole page cache is unmapped and dropped.
    DropCache,
    /// \[7.2\] nothing: such filesystems get no huge folios (H.2.3).
    Keep,
}

/// The folio orders that a mapping allows (A.8.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderRange {
    /// Smallest order of any folio.
    pub min: Order,
    /// Largest order; 0 = no large folios.
    pub max: Order,
}

impl OrderRange {
    /// Base pages only.
    pub const BASE: Self = Self { min: Order::ZERO, max: Order::ZERO };

    /// Whether the mapping supports large folios.
    #[must_use]
    pub fn is_large(self) -> bool {
        self.max > Order::ZERO
    }
}

impl Rules {
    /// Linux 6.18 with 4 KiB pages and a window of 128 KiB, for this crate's examples. The kernels
    /// offered to users are data files of a higher crate.
    #[must_use]
    pub fn example() -> Self {
        let names = [("xfs", LargeFolios::Xfs), ("tmpfs", LargeFolios::Any)];
        let names = names.map(|(name, large)| (name.to_owned(), large));
        Self {
            hugepages: BTreeMap::new(),
            zswap: ZswapRules::default(),
            page: PageSize::K4,
            readahead_bytes: 128 << 10,
            io_bytes: 128 << 10,
            disks: BTreeMap::new(),
            fault_around_bytes: 64 << 10,
            readahead: ReadaheadRules::stock(),
            fault: FaultRules {
                forced: Forced::Pmd,
                forced_gate: ForcedGate::Ungated,
                exec: Exec::ArchWindow,
                exec_miss: ExecMiss::Counted,
                start_order: StartOrder::Ramp,
                hit_credit: HitCredit::Unlocked,
                around_credit: AroundCredit::PerNewPage,
                around_span: AroundSpan::WholeFolio,
                around_window: AroundWindow::Bytes,
                eof_guard: EofGuard::Refuse,
                finish: Finish::WholeFolio,
                nohugepage_pmd: NohugepagePmd::Refused,
                minor_retry: MinorRetry::Untried,
            },
            filesystems: names.into_iter().collect(),
            min_folio_bytes: 0,
            placement: Placement::LargeFilesAndAnon,
            contpte: ContpteRule::OnArm64,
            anon: AnonRules::stock(),
            shmem: ShmemRules::stock(),
            clear: ClearRules::stock(),
            sizes: FileSizes::default(),
            order: OrderRules::default(),
            writers: Writers::DropCache,
            collapse: CollapseRules::stock(),
            reclaim: ReclaimRules::stock(),
            numa: NumaRules::stock(),
        }
    }

    /// Largest order of a page-cache folio: 9, 11 or 11 (docs/behaviour 0.4).
    #[must_use]
    pub fn max_pagecache_order(&self) -> Order {
        self.page.pmd_order().min(MAX_XAS_ORDER)
    }

    /// Orders that a file of filesystem `name` can use (A.8).
    #[must_use]
    pub fn order_range(&self, name: &str) -> OrderRange {
        self.order_range_of(Store::of(name))
    }

    /// Orders that a file stored there can use (A.8). Blocks larger than a base page are the
    /// smallest folios.
    #[must_use]
    pub fn order_range_of(&self, store: Store<'_>) -> OrderRange {
        let limit = self.max_pagecache_order();
        // Compression changes what EROFS reads, not its folios (A.8).
        let name = store.filesystem.strip_suffix("-compressed").filter(|name| *name == "erofs");
        let Some(large) = self.filesystems.get(name.unwrap_or(store.filesystem)) else {
            return OrderRange::BASE;
        };
        let block_bytes =
            if store.block_bytes == 0 { USUAL_BLOCK_BYTES } else { store.block_bytes };
        let of_blocks =
            |nr: u64| self.page.order_of_bytes(block_bytes.saturating_mul(nr)).min(limit);
        let max = match large {
            LargeFolios::None => return OrderRange::BASE,
            LargeFolios::Any | LargeFolios::Xfs => limit,
            LargeFolios::Ext4 => of_blocks(1 << 11),
            LargeFolios::Btrfs => of_blocks(64),
        };
        let min_bytes = self.min_folio_bytes.max(store.block_bytes);
        OrderRange { min: self.page.order_of_bytes(min_bytes).min(max), max }
    }

    /// The limits of the device `disk`.
    #[must_use]
    pub fn device(&self, disk: &str) -> Device {
        let own = self.disks.get(disk).copied().unwrap_or_default();
        let pages = |bytes: u64| bytes >> self.page.shift();
        Device {
            ra_pages: pages(own.readahead_bytes.unwrap_or(self.readahead_bytes)),
            io_pages: pages(own.io_bytes.unwrap_or(self.io_bytes)),
        }
    }

    /// Whether filesystem `name` cuts writes where the space reserved for the file ends.
    #[must_use]
    pub fn reserves(&self, name: &str) -> bool {
        self.filesystems.get(name) == Some(&LargeFolios::Xfs)
    }

    /// Folio order of an exec window on `arch`; `None` without an exec window (B.4.7).
    #[must_use]
    pub fn exec_window_order(&self, arch: Arch) -> Option<Order> {
        let bytes = match (self.fault.exec, arch) {
            (Exec::None | Exec::Block { .. }, _) => return None,
            (Exec::Window { bytes }, _) => bytes,
            (Exec::ArchWindow, Arch::Arm64) => ARM64_EXEC_FOLIO_BYTES,
            (Exec::ArchWindow, Arch::X86_64) => 0,
        };
        Some(self.page.order_of_bytes(bytes).min(self.max_pagecache_order()))
    }

    /// Pages in the fault-around window; 1 = off (B.5.1).
    #[must_use]
    pub fn fault_around_pages(&self) -> u64 {
        let nr_pages = (self.fault_around_bytes >> self.page.shift()).max(1);
        match self.fault.around_window {
            AroundWindow::Bytes => nr_pages,
            AroundWindow::ContpteBlock => nr_pages.max(self.page.contpte_order().nr_pages()),
        }
    }
}

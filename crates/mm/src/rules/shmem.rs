//! Rules for shared memory: which folio sizes a fault, a write or fallocate may use (docs/behaviour
//! Q.1, Q.2).
//!
//! Corresponds to: `shmem_huge_global_enabled`, `shmem_allowable_huge_orders`,
//! `shmem_get_orders_within_size`, `shmem_mapping_size_orders`.
//!
//! ```text
//!   shmem_enabled = deny ------------------> base pages
//!                 = force -----------------> the PMD size, or the sizes that inherit
//!   a mounted tmpfs -----------------------> its option huge=
//!   memfd, MAP_SHARED|MAP_ANONYMOUS, faults -> hugepages-SIZE/shmem_enabled, size by size
//!   the same, calls; System V -------------> shmem_enabled
//! ```
//!
//! Owns the values and the set of orders that they allow. `shmem.rs` finds the facts, and allocates.
//!
//! Invariants:
//! - I1: a size is named at most once; it is a power of two in bytes and at least two base pages.
//! - I2: a kernel with [`ShmemSizes::PmdOnly`] names no size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::anon::Orders;
use crate::units::{Order, PageIndex, PageSize};
use crate::vma::HugeAdvice;

/// Smallest large order: unlike anonymous memory, shared memory has folios of two pages (Q.1.3).
const MIN_LARGE_ORDER: Order = Order::new(1);

/// All differences between kernels and settings for shared memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ShmemRules {
    /// `transparent_hugepage/shmem_enabled`.
    pub enabled: ShmemEnabled,
    /// The option `huge=` of every mounted tmpfs.
    pub tmpfs: TmpfsHuge,
    /// Which sizes have their own control.
    pub sizes: ShmemSizes,
    /// `hugepages-<kB>kB/shmem_enabled` of the PMD size.
    pub pmd: ShmemSizeMode,
    /// `hugepages-<kB>kB/shmem_enabled` of other sizes, by size in KiB; `never` if absent.
    pub size_kib: BTreeMap<String, ShmemSizeMode>,
    /// Sizes that a filesystem's setting allows.
    pub folios: ShmemFolios,
    /// Whether a folio that a fault makes must fit the area.
    pub area: ShmemArea,
    /// Which file size `within_size` compares with.
    pub within: WithinSize,
}

/// Q.1.1: `shmem_enabled`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemEnabled {
    /// Never.
    Never,
    /// After `MADV_HUGEPAGE`.
    Advise,
    /// Folios entirely within the file, and after `MADV_HUGEPAGE`.
    WithinSize,
    /// Everywhere.
    Always,
    /// Never, also on mounted filesystems and for `MADV_COLLAPSE`.
    Deny,
    /// Everywhere, also on mounted filesystems.
    Force,
}

/// Q.1.2: the mount option `huge=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TmpfsHuge {
    /// Never.
    Never,
    /// After `MADV_HUGEPAGE`.
    Advise,
    /// Folios entirely within the file, and after `MADV_HUGEPAGE`.
    WithinSize,
    /// Everywhere.
    Always,
}

/// Q.1.3: sizes of folios of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemSizes {
    /// \[..6.10\] base pages and the PMD size.
    PmdOnly,
    /// \[6.11+\] every order from 1 to the largest of the page cache.
    PerSize,
}

/// Q.1.3: the control of one size.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemSizeMode {
    /// In every area.
    Always,
    /// Folios entirely within the file.
    WithinSize,
    /// In areas with `MADV_HUGEPAGE`.
    Advise,
    /// Follows `shmem_enabled`.
    Inherit,
    /// Never.
    Never,
}

/// Q.2.2: sizes that a filesystem's setting allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemFolios {
    /// \[..6.13\] the PMD size.
    PmdOnly,
    /// \[6.14 .. 6.17\] the PMD size in faults; in write calls and fallocate the largest aligned
    /// size that the rest of the call fills, and smaller ones.
    ByLength,
    /// \[6.18, 6.19\] the PMD size in faults, every size in calls.
    AllInCalls,
    /// \[7.0+\] every size.
    All,
}

/// Q.2.1: a fault whose folio would leave the area, or has another offset in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ShmemArea {
    /// \[..6.10\] gets it anyway.
    Ignored,
    /// \[6.11+\] gets a smaller one.
    Fits,
}

/// Q.1.4: the file size of `within_size`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WithinSize {
    /// The size before the call.
    Before,
    /// \[6.12+\] the size after it.
    After,
}

/// What needs an absent page of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShmemUser {
    /// A fault in an area with this advice.
    Fault {
        /// The area's advice.
        advice: HugeAdvice,
        /// Whether the area mapped a file without a name: memfd, shared anonymous memory, an
        /// unlinked file. A System V segment does not count.
        is_unnamed: bool,
    },
    /// A write call or fallocate that continues to this byte of the file.
    Call {
        /// The byte after the last one.
        end: u64,
    },
}

/// An absent page of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShmemPage {
    /// Its index.
    pub index: PageIndex,
    /// The file's size in bytes.
    pub size_bytes: u64,
    /// Whether the file is on a mounted tmpfs.
    pub is_mounted: bool,
    /// Whether the file was made while its filesystem had large folios.
    pub is_large: bool,
    /// What needs it.
    pub user: ShmemUser,
}

impl Default for ShmemRules {
    fn default() -> Self {
        Self::stock()
    }
}

impl ShmemRules {
    /// Linux 6.18 as it boots: the PMD size inherits `never`, all other sizes are off.
    #[must_use]
    pub fn stock() -> Self {
        Self {
            enabled: ShmemEnabled::Never,
            tmpfs: TmpfsHuge::Never,
            sizes: ShmemSizes::PerSize,
            pmd: ShmemSizeMode::Inherit,
            size_kib: BTreeMap::new(),
            folios: ShmemFolios::AllInCalls,
            area: ShmemArea::Fits,
            within: WithinSize::After,
        }
    }

    /// Sets the control of one size in bytes. Returns `None` if no folio can have this size.
    pub fn set_size(&mut self, bytes: u64, mode: ShmemSizeMode) -> Option<()> {
        let is_size = bytes.is_power_of_two() && bytes > PageSize::K4.bytes();
        if !is_size || self.sizes == ShmemSizes::PmdOnly {
            return None;
        }
        self.size_kib.insert((bytes >> 10).to_string(), mode);
        Some(())
    }

    /// Bytes of the smallest and the largest folio with a control (Q.1.3); `max` is the largest
    /// order of the page cache.
    #[must_use]
    pub const fn controlled_bytes(page: PageSize, max: Order) -> [u64; 2] {
        [page.bytes() << MIN_LARGE_ORDER.get(), page.bytes() << max.get()]
    }

    /// Bytes of the first control that applies to no folio with base pages of `page`.
    #[must_use]
    pub fn idle_control(&self, page: PageSize, max: Order) -> Option<u64> {
        let [min, max] = Self::controlled_bytes(page, max);
        let bytes = self.size_kib.keys().filter_map(|kib| Some(kib.parse::<u64>().ok()? << 10));
        bytes.into_iter().find(|bytes| !(min..=max).contains(bytes))
    }

    /// The setting of a filesystem: the kernel's own mount, or a mounted tmpfs (Q.1.1, Q.1.2).
    #[must_use]
    pub const fn setting(&self, is_mounted: bool) -> ShmemEnabled {
        match (self.enabled, is_mounted) {
            (overriding @ (ShmemEnabled::Deny | ShmemEnabled::Force), _) => overriding,
            (own, false) => own,
            (_, true) => match self.tmpfs {
                TmpfsHuge::Never => ShmemEnabled::Never,
                TmpfsHuge::Advise => ShmemEnabled::Advise,
                TmpfsHuge::WithinSize => ShmemEnabled::WithinSize,
                TmpfsHuge::Always => ShmemEnabled::Always,
            },
        }
    }

    /// Whether a new file of such a filesystem supports large folios (Q.2.2).
    #[must_use]
    pub const fn makes_large(&self, is_mounted: bool) -> bool {
        use ShmemEnabled::{Advise, Always, WithinSize};
        matches!(self.setting(is_mounted), Advise | WithinSize | Always)
    }

    /// The folio size for which the kernel places shared anonymous memory (Q.3.2): the largest
    /// that a control allows, or the PMD size.
    #[must_use]
    pub fn placed_order(&self, page: PageSize, max: Order) -> Option<Order> {
        use ShmemSizeMode::{Advise, Always, Inherit, WithinSize};
        let is_on = self.enabled != ShmemEnabled::Never;
        let has_control = |order: &Order| match self.mode_of(*order, page) {
            Always | WithinSize | Advise => true,
            Inherit => is_on,
            ShmemSizeMode::Never => false,
        };
        let largest = || {
            let orders = (MIN_LARGE_ORDER.get()..=max.get()).rev().map(Order::new);
            orders.into_iter().find(has_control)
        };
        match self.enabled {
            ShmemEnabled::Deny => None,
            ShmemEnabled::Force => Some(page.pmd_order()),
            _ => largest().or_else(|| is_on.then_some(page.pmd_order())),
        }
    }

    /// Whether memory without a name may have PMD folios: khugepaged runs for it.
    #[must_use]
    pub const fn may_be_huge(&self) -> bool {
        match self.enabled {
            ShmemEnabled::Deny => false,
            ShmemEnabled::Never => {
                !matches!(self.pmd, ShmemSizeMode::Never | ShmemSizeMode::Inherit)
            }
            _ => true,
        }
    }

    /// Whether every page of shared memory is a base page, whatever needs it.
    #[must_use]
    pub fn has_only_base_pages(&self) -> bool {
        matches!(self.enabled, ShmemEnabled::Never | ShmemEnabled::Deny)
            && (self.tmpfs == TmpfsHuge::Never || self.enabled == ShmemEnabled::Deny)
            && self.pmd == ShmemSizeMode::Inherit
            && self.size_kib.is_empty()
    }

    /// Orders that the page's folio may have, without order 0 (Q.1).
    ///
    /// ```
    /// use largefolio_mm::rules::shmem::{
    ///     ShmemEnabled, ShmemFolios, ShmemPage, ShmemRules, ShmemUser,
    /// };
    /// use largefolio_mm::units::{Order, PageIndex, PageSize};
    ///
    /// let (enabled, folios) = (ShmemEnabled::Always, ShmemFolios::ByLength);
    /// let rules = ShmemRules { enabled, folios, ..ShmemRules::stock() };
    /// let write = |end| {
    ///     let user = ShmemUser::Call { end };
    ///     let index = PageIndex(16);
    ///     let page = ShmemPage { index, size_bytes: 0, is_mounted: false, is_large: true, user };
    ///     rules.orders(page, PageSize::K4, Order::new(9)).highest()
    /// };
    /// assert_eq!(write(20 << 12), Some(Order::new(2)));
    /// assert_eq!(write(64 << 12), Some(Order::new(4)));
    /// assert_eq!(write(17 << 12), None);
    /// ```
    #[must_use]
    pub fn orders(&self, of: ShmemPage, page: PageSize, max: Order) -> Orders {
        if self.has_only_base_pages() || of.user.advice() == HugeAdvice::Nohuge {
            return Orders::NONE;
        }
        let of_filesystem = self.of_filesystem(of, page, max);
        let is_by_size = matches!(of.user, ShmemUser::Fault { is_unnamed: true, .. })
            && self.sizes == ShmemSizes::PerSize;
        if is_by_size { self.by_size(of, of_filesystem, page, max) } else { of_filesystem }
    }

    /// Orders by the filesystem's setting (Q.1.1, Q.1.2, Q.2.2).
    fn of_filesystem(&self, of: ShmemPage, page: PageSize, max: Order) -> Orders {
        let pmd = page.pmd_order();
        let pmd_only = if pmd <= max { Orders::NONE.with(pmd) } else { Orders::NONE };
        let all = Orders::ALL.below(max.raised(1)).without_base();
        let by_user = match (of.user, self.folios) {
            (ShmemUser::Call { end }, ShmemFolios::ByLength) => {
                filled_by(of, end, page, max).unwrap_or(Orders::NONE)
            }
            (ShmemUser::Call { .. }, ShmemFolios::AllInCalls) | (_, ShmemFolios::All) => all,
            _ => pmd_only,
        };
        let is_advised = of.user.advice() == HugeAdvice::Huge;
        let advised = if is_advised { by_user } else { Orders::NONE };
        match self.setting(of.is_mounted) {
            ShmemEnabled::Deny | ShmemEnabled::Never => Orders::NONE,
            ShmemEnabled::Force => pmd_only,
            ShmemEnabled::Always => by_user,
            ShmemEnabled::Advise => advised,
            ShmemEnabled::WithinSize => {
                let end = match (of.user, self.within) {
                    (ShmemUser::Call { end }, WithinSize::After) => end.max(of.size_bytes),
                    _ => of.size_bytes,
                };
                let within = within_size(by_user, of.index, page.pages_in(end));
                if within.is_empty() { advised } else { within }
            }
        }
    }

    /// Orders by the controls of the sizes (Q.1.3).
    fn by_size(&self, of: ShmemPage, of_filesystem: Orders, page: PageSize, max: Order) -> Orders {
        let is_advised = of.user.advice() == HugeAdvice::Huge;
        let (mut inherited, mut own, mut within) = (Orders::NONE, Orders::NONE, Orders::NONE);
        for order in (MIN_LARGE_ORDER.get()..=max.get()).map(Order::new) {
            match self.mode_of(order, page) {
                ShmemSizeMode::Inherit => inherited = inherited.with(order),
                ShmemSizeMode::Always => own = own.with(order),
                ShmemSizeMode::Advise if is_advised => own = own.with(order),
                ShmemSizeMode::WithinSize => within = within.with(order),
                ShmemSizeMode::Advise | ShmemSizeMode::Never => {}
            }
        }
        let own = own.or(within_size(within, of.index, page.pages_in(of.size_bytes)));
        match self.enabled {
            ShmemEnabled::Deny => Orders::NONE,
            ShmemEnabled::Force => inherited,
            _ if of_filesystem.is_empty() => own,
            _ => own.or(inherited),
        }
    }

    /// The control of the PMD size; kernels without controls have one that inherits.
    #[must_use]
    pub fn pmd_mode(&self, page: PageSize) -> ShmemSizeMode {
        self.mode_of(page.pmd_order(), page)
    }

    fn mode_of(&self, order: Order, page: PageSize) -> ShmemSizeMode {
        let otherwise = if order == page.pmd_order() { self.pmd } else { ShmemSizeMode::Never };
        if self.size_kib.is_empty() {
            return otherwise;
        }
        let kib = (page.bytes() << order.get()) >> 10;
        self.size_kib.get(&kib.to_string()).copied().unwrap_or(otherwise)
    }
}

impl ShmemUser {
    const fn advice(self) -> HugeAdvice {
        match self {
            Self::Fault { advice, .. } => advice,
            Self::Call { .. } => HugeAdvice::Default,
        }
    }
}

/// The aligned orders from `of` on that a call up to byte `end` fills (Q.2.2).
fn filled_by(of: ShmemPage, end: u64, page: PageSize, max: Order) -> Option<Orders> {
    if !of.is_large {
        return None;
    }
    let nr_bytes = end.checked_sub(of.index.0.checked_mul(page.bytes())?)?;
    let order = page.order_of_bytes(nr_bytes).min(Order::alignment_of(of.index.0)).min(max);
    Some(Orders::ALL.below(order.raised(1)).without_base())
}

/// The orders from the first one down whose folio ends within the file (Q.1.4).
fn within_size(orders: Orders, index: PageIndex, file_pages: u64) -> Orders {
    let fits = |order: &Order| order.round_down(index.0) + order.nr_pages() <= file_pages;
    let first = orders.descending().find(fits);
    first.map_or(Orders::NONE, |order| orders.below(order).with(order))
}

//! Numbers with a unit: addresses, page numbers, orders and the base page size.
//!
//! Invariants:
//! - I1: a [`PageSize`] is 4, 16 or 64 KiB.
//! - I2: an [`Order`] is at most [`Order::LIMIT`], so `1 << order` never overflows.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Size of a base page: 4 KiB, 16 KiB or 64 KiB (docs/behaviour 0.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum PageSize {
    /// 4 KiB: x86-64 and most arm64 kernels.
    #[serde(rename = "4K")]
    K4,
    /// 16 KiB arm64 kernels.
    #[serde(rename = "16K")]
    K16,
    /// 64 KiB arm64 kernels.
    #[serde(rename = "64K")]
    K64,
}

impl PageSize {
    /// log2 of the bytes: 12, 14 or 16.
    #[must_use]
    pub const fn shift(self) -> u32 {
        match self {
            Self::K4 => 12,
            Self::K16 => 14,
            Self::K64 => 16,
        }
    }

    /// Bytes: 4096, 16384 or 65536.
    #[must_use]
    pub const fn bytes(self) -> u64 {
        1 << self.shift()
    }

    /// Order of the folio that one PMD entry maps: 9, 11 or 13 (docs/behaviour 0.4).
    #[must_use]
    pub const fn pmd_order(self) -> Order {
        match self {
            Self::K4 => Order(9),
            Self::K16 => Order(11),
            Self::K64 => Order(13),
        }
    }

    /// Largest buddy order: 10, 11 or 13 (docs/behaviour 0.4, `MAX_PAGE_ORDER`).
    #[must_use]
    pub const fn max_page_order(self) -> Order {
        match self {
            Self::K4 => Order(10),
            Self::K16 => Order(11),
            Self::K64 => Order(13),
        }
    }

    /// Order of an arm64 contpte block: 4, 7 or 5 (64 KiB, 2 MiB, 2 MiB; docs/behaviour C.1).
    #[must_use]
    pub const fn contpte_order(self) -> Order {
        match self {
            Self::K4 => Order(4),
            Self::K16 => Order(7),
            Self::K64 => Order(5),
        }
    }

    /// Order of the largest folio of at most `bytes`; order 0 when one page is already larger.
    ///
    /// ```
    /// use largefolio_mm::units::{Order, PageSize};
    /// assert_eq!(PageSize::K4.order_of_bytes(64 << 10), Order::new(4));
    /// assert_eq!(PageSize::K64.order_of_bytes(64 << 10), Order::ZERO);
    /// ```
    #[must_use]
    pub const fn order_of_bytes(self, bytes: u64) -> Order {
        let nr_pages = bytes >> self.shift();
        if nr_pages == 0 { Order::ZERO } else { Order(nr_pages.ilog2() as u8) }
    }

    /// Base pages needed to hold `bytes`, rounded up.
    #[must_use]
    pub const fn pages_in(self, bytes: u64) -> u64 {
        bytes.div_ceil(self.bytes())
    }
}

impl fmt::Display for PageSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}K", self.bytes() >> 10)
    }
}

/// log2 of a folio's base pages.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Order(u8);

impl Order {
    /// A single base page.
    pub const ZERO: Self = Self(0);
    /// No folio of any supported machine is larger than 2^20 pages.
    pub const LIMIT: u8 = 20;

    /// Creates an order.
    ///
    /// # Panics
    /// Panics if `order` exceeds [`Order::LIMIT`] (I2). Orders from outside are checked first.
    #[must_use]
    pub const fn new(order: u8) -> Self {
        assert!(order <= Self::LIMIT, "I2: order beyond LIMIT");
        Self(order)
    }

    /// floor(log2 `nr_pages`); order 0 for no pages.
    #[must_use]
    pub const fn floor_of(nr_pages: u64) -> Self {
        if nr_pages < 2 {
            return Self(0);
        }
        let log2 = nr_pages.ilog2() as u8;
        if log2 > Self::LIMIT { Self(Self::LIMIT) } else { Self(log2) }
    }

    /// Largest order whose natural alignment `index` satisfies (`ctz`), at most [`Order::LIMIT`].
    #[must_use]
    pub const fn alignment_of(index: u64) -> Self {
        let zeros = index.trailing_zeros() as u8;
        if zeros > Self::LIMIT { Self(Self::LIMIT) } else { Self(zeros) }
    }

    /// Returns the number.
    #[must_use]
    pub const fn get(self) -> u8 {
        self.0
    }

    /// Base pages of a folio: `2^order`.
    #[must_use]
    pub const fn nr_pages(self) -> u64 {
        1 << self.0
    }

    /// Rounds `number` down to a multiple of `2^order`.
    #[must_use]
    pub const fn round_down(self, number: u64) -> u64 {
        number & !(self.nr_pages() - 1)
    }

    /// Rounds `number` up to a multiple of `2^order`; saturates at the last multiple.
    #[must_use]
    pub const fn round_up(self, number: u64) -> u64 {
        self.round_down(number.saturating_add(self.nr_pages() - 1))
    }

    /// Whether `number` is a multiple of `2^order`.
    #[must_use]
    pub const fn is_aligned(self, number: u64) -> bool {
        number & (self.nr_pages() - 1) == 0
    }

    /// `order + by`, at most [`Order::LIMIT`].
    #[must_use]
    pub const fn raised(self, by: u8) -> Self {
        let sum = self.0.saturating_add(by);
        if sum > Self::LIMIT { Self(Self::LIMIT) } else { Self(sum) }
    }

    /// The next smaller order; `None` for order 0.
    #[must_use]
    pub const fn lower(self) -> Option<Self> {
        match self.0.checked_sub(1) {
            Some(order) => Some(Self(order)),
            None => None,
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "o{}", self.0)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }

        impl $name {
            /// Adds `by`.
            ///
            /// # Panics
            /// Panics on overflow: callers check their ranges at the edge of the crate.
            #[must_use]
            pub const fn plus(self, by: u64) -> Self {
                let Some(sum) = self.0.checked_add(by) else { panic!("number overflow") };
                Self(sum)
            }
        }
    };
}

number! {
    /// Page frame number: a base page of physical memory.
    Pfn
}
number! {
    /// Page offset in a file, in base pages.
    PageIndex
}
number! {
    /// Virtual page number: a virtual address divided by the base page size.
    Vpn
}
number! {
    /// Virtual address in bytes.
    Vaddr
}

impl Vaddr {
    /// Page that contains this address.
    #[must_use]
    pub const fn vpn(self, page: PageSize) -> Vpn {
        Vpn(self.0 >> page.shift())
    }
}

impl Vpn {
    /// First address of the page.
    #[must_use]
    pub const fn vaddr(self, page: PageSize) -> Vaddr {
        Vaddr(self.0 << page.shift())
    }
}

/// Parses `64K`, `2M`, `1G`, `1T` or plain bytes; `None` if invalid or longer than 63 bits.
///
/// ```
/// use largefolio_mm::units::parse_bytes;
/// assert_eq!(parse_bytes("64K"), Some(65536));
/// assert_eq!(parse_bytes("2m"), Some(2 << 20));
/// assert_eq!(parse_bytes("1T"), Some(1 << 40));
/// assert_eq!(parse_bytes("-1"), None);
/// ```
#[must_use]
pub fn parse_bytes(text: &str) -> Option<u64> {
    let text = text.strip_suffix("iB").unwrap_or(text);
    let (digits, shift) = match text.char_indices().next_back()? {
        (at, 'k' | 'K') => (&text[..at], 10),
        (at, 'm' | 'M') => (&text[..at], 20),
        (at, 'g' | 'G') => (&text[..at], 30),
        (at, 't' | 'T') => (&text[..at], 40),
        _ => (text, 0),
    };
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    digits.parse::<u64>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes < 1 << 63)
}

/// Pages `[start, end)` of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VpnRange {
    /// Number of the first page.
    pub start: Vpn,
    /// Page after the last one.
    pub end: Vpn,
}

/// Bytes of an address space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AddrRange {
    /// First address.
    pub addr: Vaddr,
    /// Length in bytes.
    pub len_bytes: u64,
}

/// Pages `[first, end)` of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// Index of the first page.
    pub first: u64,
    /// Index after the last page; `u64::MAX` = to the end of any file.
    pub end: u64,
}

/// Bytes of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteRange {
    /// First position.
    pub pos: u64,
    /// Length in bytes; 0 = to the end of the file, if the call supports that.
    pub len_bytes: u64,
}

/// File, as its index in the table of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MappingId(pub u32);

/// Address space, as its index in the table of processes. The id is not reused before
/// [`Memory::forget`](crate::memory::Memory::forget).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MmId(pub u32);

/// Cgroup, as its index in the table of cgroups.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct GroupId(pub u32);

impl GroupId {
    /// Cgroup of every process that joined no other; it has no limit.
    pub const ROOT: Self = Self(0);
}

/// A NUMA node: the memory near some CPUs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u8);

impl NodeId {
    /// Most nodes of a machine; numbers are below it.
    pub const LIMIT: u8 = 16;
}

/// A set of nodes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct NodeSet(u16);

impl NodeSet {
    /// No node.
    pub const EMPTY: Self = Self(0);
    /// All nodes that a machine can have.
    pub const ALL: Self = Self(u16::MAX);

    /// The set of these nodes; numbers from [`NodeId::LIMIT`] on are left out.
    #[must_use]
    pub fn of(nodes: impl IntoIterator<Item = NodeId>) -> Self {
        let bit = |node: NodeId| 1_u16.checked_shl(node.0.into()).unwrap_or(0);
        Self(nodes.into_iter().fold(0, |bits, node| bits | bit(node)))
    }

    /// Whether no node is in it.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether `node` is in it.
    #[must_use]
    pub fn contains(self, node: NodeId) -> bool {
        !Self(self.0 & Self::of([node]).0).is_empty()
    }

    /// Its nodes in ascending order.
    pub fn iter(self) -> impl Iterator<Item = NodeId> {
        (0..NodeId::LIMIT).map(NodeId).filter(move |node| self.contains(*node))
    }

    /// Its node number `nth`, in ascending order.
    #[must_use]
    pub fn nth(self, nth: usize) -> Option<NodeId> {
        self.iter().nth(nth)
    }
}

/// One page of swap space.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SwapSlot(pub u64);

impl SwapSlot {
    pub(crate) const fn plus(self, by: u64) -> Self {
        Self(self.0 + by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounding_follows_natural_alignment() {
        let order = Order::new(4);
        assert_eq!((order.round_down(31), order.round_up(17), order.nr_pages()), (16, 32, 16));
        assert_eq!(Order::floor_of(60), Order::new(5));
        assert_eq!(Order::alignment_of(48), Order::new(4));
        assert_eq!(Order::alignment_of(0), Order::new(Order::LIMIT));
    }

    #[test]
    fn page_sizes_give_the_table_of_0_4() {
        let rows = [PageSize::K4, PageSize::K16, PageSize::K64]
            .map(|p| (p.pmd_order().get(), p.max_page_order().get(), p.contpte_order().get()));
        assert_eq!(rows, [(9, 10, 4), (11, 11, 7), (13, 13, 5)]);
    }
}

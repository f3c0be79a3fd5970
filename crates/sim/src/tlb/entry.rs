//! One TLB entry and the key it is found by.

use largefolio_mm::units::{Order, Pfn, Vpn};

/// Number of orders an entry may have: `0..=Order::LIMIT`.
pub(super) const NR_ORDERS: usize = Order::LIMIT as usize + 1;

/// Bits of a [`Key`] that hold the order; `Order::LIMIT` (20) needs five.
const ORDER_BITS: u32 = 5;

/// What one entry says: `2^order` pages from `first_vpn` map to `2^order` pages from `pfn`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// First page covered; a multiple of `2^order` (I4).
    pub first_vpn: Vpn,
    /// log2 of the number of base pages covered.
    pub order: Order,
    /// Page frame of `first_vpn`.
    pub pfn: Pfn,
    /// Whether a store may use it.
    pub is_writable: bool,
}

impl Entry {
    /// The naturally aligned part of `2^order` pages that holds `vpn`.
    pub(super) fn piece(&self, vpn: Vpn, order: Order) -> Self {
        let first_vpn = Vpn(order.round_down(vpn.0));
        let pfn = Pfn(self.pfn.0.wrapping_add(first_vpn.0.wrapping_sub(self.first_vpn.0)));
        Self { first_vpn, order, pfn, is_writable: self.is_writable }
    }
}

/// Block number (`vpn >> order`) and order of an entry in one word, so that finding an entry is
/// one comparison whatever its size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// No entry. Never the key of an entry: a block number has at most 52 bits.
    pub(super) const EMPTY: Self = Self(u64::MAX);

    /// The key of the entry of this order that covers `vpn`.
    pub(super) const fn covering(vpn: u64, order: u8) -> Self {
        Self::of_block(vpn >> order, order)
    }

    /// The key of block `block` of this order.
    pub(super) const fn of_block(block: u64, order: u8) -> Self {
        Self(block << ORDER_BITS | order as u64)
    }

    /// `vpn >> order`.
    pub(super) const fn block(self) -> u64 {
        self.0 >> ORDER_BITS
    }

    /// Order of the entry; meaningless for [`Key::EMPTY`].
    pub(super) const fn order(self) -> u8 {
        (self.0 & ((1 << ORDER_BITS) - 1)) as u8
    }

    /// First page of the entry.
    pub(super) const fn first_vpn(self) -> u64 {
        self.block() << self.order()
    }

    /// Last page of the entry.
    pub(super) const fn last_vpn(self) -> u64 {
        self.first_vpn() + ((1 << self.order()) - 1)
    }

    /// Whether the entry covers one of `first..=last`.
    pub(super) const fn overlaps(self, first: u64, last: u64) -> bool {
        self.first_vpn() <= last && first <= self.last_vpn()
    }

    /// The key scattered over 64 bits (Fibonacci hashing); its high bits are the good ones.
    pub(super) const fn scattered(self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// When an entry was last used and whether it is writable: `clock << 1 | is_writable`, zero for a
/// free slot. One word, so that a hit reads and writes it once, and the least recently used way is
/// the smallest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use(u64);

impl Use {
    /// A free slot: older than any entry.
    pub(super) const FREE: Self = Self(0);

    /// Younger than any entry: where a search for the oldest starts.
    pub(super) const NEWEST: Self = Self(u64::MAX);

    /// Used at `clock`.
    pub(super) const fn at(clock: u64, is_writable: bool) -> Self {
        Self(clock << 1 | is_writable as u64)
    }

    /// The same entry used at `clock`.
    pub(super) const fn again(self, clock: u64) -> Self {
        Self(clock << 1 | self.0 & 1)
    }

    /// Whether a store may use the entry.
    pub(super) const fn is_writable(self) -> bool {
        self.0 & 1 == 1
    }
}

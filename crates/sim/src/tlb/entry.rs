//! A TLB entry and its key.

use largefolio_mm::units::{Order, Pfn, Vpn};

pub(super) const NR_ORDERS: usize = Order::LIMIT as usize + 1;

/// Bits of a [`Key`] that hold the order. `Order::LIMIT` (20) needs five.
const ORDER_BITS: u32 = 5;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    pub first_vpn: Vpn,
    pub order: Order,
    pub pfn: Pfn,
    pub is_writable: bool,
}

impl Entry {
    pub(super) fn piece(&self, vpn: Vpn, order: Order) -> Self {
        let first_vpn = Vpn(order.round_down(vpn.0));
        let pfn = Pfn(self.pfn.0.wrapping_add(first_vpn.0.wrapping_sub(self.first_vpn.0)));
        Self { first_vpn, order, pfn, is_writable: self.is_writable }
    }
}

/// Block number (`vpn >> order`) and order in one word: one comparison finds an entry of any size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Key(u64);

impl Key {
    /// No entry. No real key has this value, because a block number has at most 52 bits.
    pub(super) const EMPTY: Self = Self(u64::MAX);

    pub(super) const fn covering(vpn: u64, order: u8) -> Self {
        Self::of_block(vpn >> order, order)
    }

    pub(super) const fn of_block(block: u64, order: u8) -> Self {
        Self(block << ORDER_BITS | order as u64)
    }

    pub(super) const fn block(self) -> u64 {
        self.0 >> ORDER_BITS
    }

    /// Returns the entry's order; meaningless for [`Key::EMPTY`].
    pub(super) const fn order(self) -> u8 {
        (self.0 & ((1 << ORDER_BITS) - 1)) as u8
    }

    pub(super) const fn first_vpn(self) -> u64 {
        self.block() << self.order()
    }

    pub(super) const fn last_vpn(self) -> u64 {
        self.first_vpn() + ((1 << self.order()) - 1)
    }

    pub(super) const fn overlaps(self, first: u64, last: u64) -> bool {
        self.first_vpn() <= last && first <= self.last_vpn()
    }

    /// Returns a 64-bit hash (Fibonacci hashing). Its high bits are the well-mixed ones.
    pub(super) const fn scattered(self) -> u64 {
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }
}

/// The last use and whether the entry is writable: `clock << 1 | is_writable`; 0 = a free slot. The
/// least recently used way has the smallest value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Use(u64);

impl Use {
    pub(super) const FREE: Self = Self(0);

    pub(super) const NEWEST: Self = Self(u64::MAX);

    pub(super) const fn at(clock: u64, is_writable: bool) -> Self {
        Self(clock << 1 | is_writable as u64)
    }

    pub(super) const fn again(self, clock: u64) -> Self {
        Self(clock << 1 | self.0 & 1)
    }

    pub(super) const fn is_writable(self) -> bool {
        self.0 & 1 == 1
    }
}

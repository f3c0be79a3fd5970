//! Counts the entries of a level, so an invalidation that matches nothing costs only a few loads.

use super::entry::{Key, NR_ORDERS};

/// 256 x 2 bytes stay in the L1 data cache. A shared counter costs a useless search.
const NR_REGIONS: usize = 256;

/// Counts of resident entries by order and by region.
///
/// A region is the range of one PMD entry; by I4 every entry is inside exactly one. `sum(by_order)
/// == sum(by_region) == nr_entries`; bit `k` of `orders` is `by_order[k] != 0`.
#[derive(Clone, Debug)]
pub(super) struct Resident {
    nr_entries: u32,
    orders: u32,
    by_order: [u32; NR_ORDERS],
    by_region: Box<[u32; NR_REGIONS]>,
    region_order: u8,
}

impl Resident {
    pub(super) fn new(region_order: u8) -> Self {
        Self {
            nr_entries: 0,
            orders: 0,
            by_order: [0; NR_ORDERS],
            by_region: Box::new([0; NR_REGIONS]),
            region_order,
        }
    }

    pub(super) const fn nr_entries(&self) -> u32 {
        self.nr_entries
    }

    #[inline]
    pub(super) fn orders(&self) -> Orders {
        Orders(self.orders)
    }

    pub(super) fn add(&mut self, key: Key) {
        let region = self.region_of(key.first_vpn());
        self.nr_entries += 1;
        self.by_order[usize::from(key.order())] += 1;
        self.by_region[region] += 1;
        self.orders |= 1 << key.order();
    }

    pub(super) fn sub(&mut self, key: Key) {
        let region = self.region_of(key.first_vpn());
        self.nr_entries -= 1;
        self.by_order[usize::from(key.order())] -= 1;
        self.by_region[region] -= 1;
        if self.by_order[usize::from(key.order())] == 0 {
            self.orders &= !(1 << key.order());
        }
    }

    /// Returns whether an entry may cover any page of `first..=last`. `false` is always correct.
    pub(super) fn may_cover(&self, first: u64, last: u64) -> bool {
        if self.nr_entries == 0 {
            return false;
        }
        let (from, to) = (first >> self.region_order, last >> self.region_order);
        if to - from >= NR_REGIONS as u64 {
            return true;
        }
        (from..=to).any(|region| self.by_region[counter_of(region)] != 0)
    }

    pub(super) fn nr_keys(&self, first: u64, last: u64) -> u64 {
        self.orders().fold(0, |nr: u64, order| {
            nr.saturating_add(((last >> order) - (first >> order)).saturating_add(1))
        })
    }

    pub(super) fn clear(&mut self) {
        *self = Self::new(self.region_order);
    }

    pub(super) fn counts(&self, keys: impl Iterator<Item = Key>) -> bool {
        let mut again = Self::new(self.region_order);
        keys.for_each(|key| again.add(key));
        again.nr_entries == self.nr_entries
            && again.orders == self.orders
            && again.by_order == self.by_order
            && again.by_region == self.by_region
    }

    fn region_of(&self, vpn: u64) -> usize {
        counter_of(vpn >> self.region_order)
    }
}

/// Uses Fibonacci hashing, because mappings often start at large powers of two.
#[expect(clippy::cast_possible_truncation, reason = "eight bits are left")]
fn counter_of(region: u64) -> usize {
    (region.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (64 - NR_REGIONS.ilog2())) as usize
}

#[derive(Clone, Debug)]
pub(super) struct Orders(pub(super) u32);

impl Iterator for Orders {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        if self.0 == 0 {
            return None;
        }
        #[expect(clippy::cast_possible_truncation, reason = "at most 31")]
        let order = self.0.trailing_zeros() as u8;
        self.0 &= self.0 - 1;
        Some(order)
    }
}

//! A set of folio orders (docs/behaviour D.1.2).

use crate::units::Order;

/// Orders as a bit mask.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Orders(u32);

impl Orders {
    /// No order.
    pub const NONE: Self = Self(0);
    /// Every order.
    pub const ALL: Self = Self((2 << Order::LIMIT) - 1);

    /// The orders whose bits are set in `bits`; ignores bits above the largest order.
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits as u32 & Self::ALL.0)
    }

    /// The set as bits.
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0 as u64
    }

    /// The intersection.
    #[must_use]
    pub const fn both(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// The union.
    #[must_use]
    pub const fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The large orders.
    #[must_use]
    pub const fn without_base(self) -> Self {
        Self(self.0 & !1)
    }

    /// Whether `order` is in the set.
    #[must_use]
    pub const fn contains(self, order: Order) -> bool {
        self.0 >> order.get() & 1 == 1
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Adds `order`.
    #[must_use]
    pub const fn with(self, order: Order) -> Self {
        Self(self.0 | 1 << order.get())
    }

    /// The orders below `order`.
    #[must_use]
    pub const fn below(self, order: Order) -> Self {
        Self(self.0 & ((1 << order.get()) - 1))
    }

    /// The largest order in the set that is at most `order`; order 0 if there is none.
    #[must_use]
    pub const fn up_to(self, order: Order) -> Order {
        match self.below(order.raised(1)).highest() {
            Some(order) => order,
            None => Order::ZERO,
        }
    }

    /// The largest order.
    #[must_use]
    pub const fn highest(self) -> Option<Order> {
        match self.0.checked_ilog2() {
            Some(order) => Some(Order::new(order as u8)),
            None => None,
        }
    }

    /// All orders, largest first.
    pub fn descending(self) -> impl Iterator<Item = Order> {
        let mut rest = self;
        std::iter::from_fn(move || {
            let order = rest.highest()?;
            rest = rest.below(order);
            Some(order)
        })
    }
}

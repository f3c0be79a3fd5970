//! Readahead: reads parts of a file before they are requested.
//!
//! It has two entry points: *sync* if the first page is absent, *async* when the reader reaches the
//! marker. Each makes a [`Plan`], and *issue* fills the plan's window with folios.
//!
//! ```text
//!    start                     marker                        (docs/behaviour A.1.2)
//!      |------------- size -------|---- async_size ----|
//!      | read already             | read while waiting |  next window ->
//! ```
//!
//! The state belongs to the open file ([`RaState`]). [`crate::fault`] decides *when* a mapped fault
//! reads ahead.
//!
//! Like the kernel, the searches for the end of the cached run can return an index a few pages too
//! high ([`crate::mapping::search`]), so interleaved streams leave holes.

pub mod issue;
pub mod marker;
pub mod sync;
pub mod window;

pub use crate::core::open_file::RaState;
use crate::rules::anon::Orders;
use crate::units::{MappingId, Order};

/// Pages to read, decided once. Issue, memory for the read and policies all take it from here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Index of the first page.
    pub start: u64,
    /// Base pages from there on.
    pub nr_pages: u64,
    /// Pages after the marker; 0 = no marker.
    pub nr_ahead: u64,
    /// The folios.
    pub fill: Fill,
}

/// The folios of a [`Plan`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill {
    /// The smallest; the state does not describe these pages.
    Smallest,
    /// The smallest, in chunks of 2 MiB (A.3.2 step 2); the state does not describe these pages.
    Chunks,
    /// Where orders are inherited, two orders more than this one (A.5.3); else the state's order.
    Raise(Order),
    /// This order, as far as mapping and window allow.
    Exactly(Order),
}

impl Plan {
    /// The state's window, from `start`.
    pub(crate) fn window(state: &RaState, start: u64, fill: Fill) -> Self {
        Self { start, nr_pages: state.size, nr_ahead: state.async_size, fill }
    }

    pub(crate) fn chunks(start: u64, nr_pages: u64) -> Self {
        Self { start, nr_pages, nr_ahead: 0, fill: Fill::Chunks }
    }

    /// Whether the open file's state describes these pages.
    pub(crate) fn is_window(&self) -> bool {
        matches!(self.fill, Fill::Raise(_) | Fill::Exactly(_))
    }
}

/// What is read into.
#[derive(Clone, Copy, Debug)]
pub struct ReadTarget {
    /// File that is read.
    pub file: MappingId,
    /// Orders its folios may have; if none fits, the mapping's smallest is taken. All of them
    /// without a per-size control (K.1.4).
    pub allowed: Orders,
    /// Order of the B.4.7 window for a requested size; `None` = the kernel's choice.
    pub preferred: Option<Order>,
}

//! Readahead: reads parts of a file before they are requested.
//!
//! It has two entry points: *sync* if the first page is absent, *async* when the reader reaches the
//! marker. Each chooses a window and its order; *issue* fills the window with folios.
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
pub use issue::{Issue, OrderHint};

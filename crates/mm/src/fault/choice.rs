//! What a cold fault may read, as values (docs/behaviour B.4).
//!
//! Does not own who chooses (`sync`, `proposed`), nor the windows (`window`).

use crate::readahead::issue::Run;
use crate::readahead::sync::Request;
use crate::units::Order;

/// What a cold fault reads.
pub(super) enum Choice {
    /// Nothing ahead: the page alone.
    Nothing,
    /// As a buffered read of a whole window would (B.4.1 step 4).
    Sequential,
    /// `MADV_HUGEPAGE`: blocks of this order around the fault (B.4.6).
    Forced(Order),
    /// Text: the one block of this order that holds the fault (B.4.9).
    ExecBlock(Order),
    /// Text: a window forward from that block (B.4.7).
    ExecWindow(Order),
    /// A window around the fault (B.4.8).
    Around,
    /// Text: the same in whole folios of this order (K.1.4).
    AroundInFolios(Order),
}

/// What a sequential reader asks for.
pub(super) enum Sequential {
    /// These pages, in the smallest folios.
    Forced(Run),
    /// What readahead makes of the request.
    Asked(Request),
}

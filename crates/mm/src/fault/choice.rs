//! The choices for the read that a cold fault starts, as values (docs/behaviour B.4).

use crate::readahead::issue::Run;
use crate::readahead::sync::Request;
use crate::units::Order;

pub(super) enum Choice {
    Nothing,
    /// Like a buffered read of a whole window (B.4.1 step 4).
    Sequential,
    /// `MADV_HUGEPAGE`: blocks of this order around the fault (B.4.6).
    Forced(Order),
    /// Text: the one block of this order that contains the fault (B.4.9).
    ExecBlock(Order),
    /// Text: a window forward from that block (B.4.7).
    ExecWindow(Order),
    /// A window around the fault (B.4.8).
    Around,
    /// Text: a window around the fault in whole folios of this order (K.1.4).
    AroundInFolios(Order),
}

pub(super) enum Sequential {
    Forced(Run),
    Asked(Request),
}

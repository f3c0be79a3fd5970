//! Detects whether THP is disabled for folio and the programs that it starts: the prctl(2) flag is
//! inherited.
//!
//! Covers this process. [`crate::program::start::Disabled`] covers others.

use largefolio_trace::shown;
use rustix::thread::{disable_transparent_huge_pages, transparent_huge_pages_are_disabled};

use crate::proc::Task;
use crate::program::start::{Ancestor, Disabled};
use crate::shell::as_typed;
use crate::system::Live;

/// Returns the cause in brackets, `None` if THP is not disabled. Disabling except for advised
/// memory counts too.
fn cause() -> Option<String> {
    if !transparent_huge_pages_are_disabled().unwrap_or(false) {
        return None;
    }
    Some(match Disabled::of(&Task::own(&Live)) {
        Some(Disabled { ancestor: Some(Ancestor { pid, name }) }) => {
            format!("PR_SET_THP_DISABLE, inherited from process {pid}, {}", shown(&name))
        }
        Some(_) => "PR_SET_THP_DISABLE".to_owned(),
        None => "PR_SET_THP_DISABLE, except for advised memory".to_owned(),
    })
}

/// Returns a warning for measurements of large folios if they are disabled for this process.
#[must_use]
pub fn thp_disabled() -> Option<String> {
    cause().map(|cause| {
        format!(
            "THP is disabled for folio and the programs that it starts ({cause}): start folio from elsewhere, \
             or with {}, which enables it",
            as_typed("folio run -- folio ..")
        )
    })
}

pub(super) fn enable() -> Option<String> {
    cause().map(|cause| match disable_transparent_huge_pages(false) {
        Ok(()) => format!("THP was disabled for folio ({cause}); it is enabled for the program"),
        Err(error) => format!("THP is disabled for folio and the program ({cause}): {error}"),
    })
}

//! Detects whether THP is disabled for folio and the programs that it starts, and disables it: the
//! prctl(2) flag is inherited.
//!
//! Covers this process. [`crate::program::start::Disabled`] covers others.

use std::io;

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

/// The THP that a program may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThpLimit {
    None,
    /// Only where the program requests it with madvise(2).
    Advised,
}

/// `PR_THP_DISABLE_EXCEPT_ADVISED` (Linux 6.18).
const EXCEPT_ADVISED: libc::c_ulong = 1 << 1;

/// Limits this process and the programs that it starts.
///
/// # Errors
/// If the kernel refuses, with the remedy.
pub fn limit_thp(limit: ThpLimit) -> Result<(), String> {
    let flags = match limit {
        ThpLimit::None => 0,
        ThpLimit::Advised => EXCEPT_ADVISED,
    };
    let none: libc::c_ulong = 0;
    // SAFETY: the call takes numbers only.
    let result =
        unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, 1 as libc::c_ulong, flags, none, none) };
    if result == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if limit == ThpLimit::Advised && error.raw_os_error() == Some(libc::EINVAL) {
        return Err("a program's THP can be limited to advised memory since Linux 6.18; on this \
                    kernel, --thp off disables all of it"
            .to_owned());
    }
    Err(format!("THP cannot be disabled for the program: {error}"))
}

pub(super) fn enable() -> Option<String> {
    cause().map(|cause| match disable_transparent_huge_pages(false) {
        Ok(()) => format!("THP was disabled for folio ({cause}); it is enabled for the program"),
        Err(error) => format!("THP is disabled for folio and the program ({cause}): {error}"),
    })
}

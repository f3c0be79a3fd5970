//! [`clear_folio`] and [`copy_folio`]: run a plan on bytes.
//!
//! The near region goes through the cache, because the fault touches it next; the rest may bypass
//! it. Copies use the same order, which no kernel does (docs/behaviour D.4.5, K.2.5).

use std::ops::Range;

use thiserror::Error;

use crate::error::RangeError;
use crate::plan::{Plan, Region, Step, Unit};
use crate::tuning::{Residency, Tuning};

/// Why a folio is not cleared or copied. Nothing was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum FolioError {
    /// The plan is for another number of bytes.
    #[error("{len_bytes} bytes do not match a plan for {plan_bytes} bytes; pass the whole folio")]
    Length {
        /// Bytes passed.
        len_bytes: usize,
        /// Bytes of the plan's pages.
        plan_bytes: u64,
    },
    /// Source and destination do not match.
    #[error(transparent)]
    Range(#[from] RangeError),
}

impl Region {
    /// Expected use of a unit of this region.
    #[must_use]
    pub const fn residency(self) -> Residency {
        match self {
            Self::Near => Residency::TouchedNow,
            Self::Right | Self::Left => Residency::NotTouched,
            // The faulting page is somewhere in it.
            Self::Whole => Residency::Unknown,
        }
    }
}

impl Tuning {
    /// Zeroes `folio` in the order of `plan`, calling `reschedule` at its points.
    ///
    /// # Errors
    /// [`FolioError::Length`] if the plan is for a folio of another size.
    pub fn clear_folio(
        &self,
        folio: &mut [u8],
        plan: &Plan,
        mut reschedule: impl FnMut(),
    ) -> Result<(), FolioError> {
        check_length(folio.len(), plan)?;
        for step in plan.steps() {
            match step {
                Step::Unit(unit) => {
                    self.clear_extent(&mut folio[bytes_of(plan, unit)], unit.region.residency());
                }
                Step::Reschedule => reschedule(),
            }
        }
        Ok(())
    }

    /// Copies the folio `from` over `to` like [`Tuning::clear_folio`].
    ///
    /// # Errors
    /// [`FolioError::Length`] if the plan is for a folio of another size, [`FolioError::Range`] if
    /// the two differ in length.
    pub fn copy_folio(
        &self,
        to: &mut [u8],
        from: &[u8],
        plan: &Plan,
        mut reschedule: impl FnMut(),
    ) -> Result<(), FolioError> {
        RangeError::check_lengths(to.len(), from.len())?;
        check_length(to.len(), plan)?;
        for step in plan.steps() {
            match step {
                Step::Unit(unit) => {
                    let part = bytes_of(plan, unit);
                    let residency = unit.region.residency();
                    self.copy_extent(&mut to[part.clone()], &from[part], residency)?;
                }
                Step::Reschedule => reschedule(),
            }
        }
        Ok(())
    }
}

/// Zeroes `folio` in the order of `plan` with this CPU's defaults; see [`Tuning::clear_folio`].
///
/// # Errors
/// [`FolioError::Length`] if the plan is for a folio of another size.
pub fn clear_folio(
    folio: &mut [u8],
    plan: &Plan,
    reschedule: impl FnMut(),
) -> Result<(), FolioError> {
    Tuning::host().clear_folio(folio, plan, reschedule)
}

/// Copies the folio `from` over `to` with this CPU's defaults; see [`Tuning::copy_folio`].
///
/// # Errors
/// [`FolioError::Length`] if the plan is for a folio of another size, [`FolioError::Range`] if the
/// two differ in length.
pub fn copy_folio(
    to: &mut [u8],
    from: &[u8],
    plan: &Plan,
    reschedule: impl FnMut(),
) -> Result<(), FolioError> {
    Tuning::host().copy_folio(to, from, plan, reschedule)
}

fn check_length(len_bytes: usize, plan: &Plan) -> Result<(), FolioError> {
    let plan_bytes = plan.shape().len_bytes();
    if u64::try_from(len_bytes) != Ok(plan_bytes) {
        return Err(FolioError::Length { len_bytes, plan_bytes });
    }
    Ok(())
}

#[expect(clippy::cast_possible_truncation, reason = "inside a slice, by `check_length`")]
fn bytes_of(plan: &Plan, unit: Unit) -> Range<usize> {
    let page_bytes = plan.shape().page_bytes;
    let first = (unit.first * page_bytes) as usize;
    first..first + (unit.nr * page_bytes) as usize
}

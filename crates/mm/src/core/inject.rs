//! Makes a collapse fail at any of its steps, for tests.
//!
//! Owns the step count. Every point at which a kernel can give up is a step, including those that
//! never fail in the model: a cgroup limit, a memory error, or a race with a fault.

use crate::counters::collapse::CollapseRefusal;

/// Lets a number of steps succeed, then fails one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailAfter {
    nr_left: Option<u64>,
    nr_steps: u64,
}

impl FailAfter {
    /// Never fails, but counts the steps.
    pub const NEVER: Self = Self { nr_left: None, nr_steps: 0 };

    /// Fails the step after the first `nr_steps`.
    #[must_use]
    pub const fn steps(nr_steps: u64) -> Self {
        Self { nr_left: Some(nr_steps), nr_steps: 0 }
    }

    pub(crate) const fn nr_steps(&self) -> u64 {
        self.nr_steps
    }

    pub(crate) fn step(&mut self, refusal: CollapseRefusal) -> Result<(), CollapseRefusal> {
        self.nr_steps += 1;
        match self.nr_left {
            None => Ok(()),
            Some(0) => {
                self.nr_left = None;
                Err(refusal)
            }
            Some(nr) => {
                self.nr_left = Some(nr - 1);
                Ok(())
            }
        }
    }
}

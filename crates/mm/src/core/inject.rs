//! Makes a collapse fail at any of its steps, for tests.
//!
//! Owns the count of steps. Every place where a kernel can give up is a step, even those that never
//! fail here by themselves: a cgroup limit, a memory error, a race with a fault.

use crate::counters::collapse::CollapseRefusal;

/// Makes the step after so many others fail, once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FailAfter {
    /// Steps that still succeed before the one that fails; `None` = all do.
    nr_left: Option<u64>,
    nr_steps: u64,
}

impl FailAfter {
    /// No step is made to fail; they are counted.
    pub const NEVER: Self = Self { nr_left: None, nr_steps: 0 };

    /// The step after `nr_steps` others fails.
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

//! A kernel between two others: the set of its switches.

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mix(Vec<bool>);

impl Mix {
    /// Sets only `ones` of `nr` switches.
    #[must_use]
    pub fn alone(nr: usize, ones: &[usize]) -> Self {
        Self((0..nr).map(|one| ones.contains(&one)).collect())
    }

    /// Sets all but `one` of `nr` switches.
    #[must_use]
    pub fn without(nr: usize, one: usize) -> Self {
        Self::alone(nr, &[one]).rest()
    }

    /// Sets the first `nr_first` of `nr` switches.
    #[must_use]
    pub fn first(nr: usize, nr_first: usize) -> Self {
        Self((0..nr).map(|one| one < nr_first).collect())
    }

    #[must_use]
    pub fn rest(&self) -> Self {
        Self(self.0.iter().map(|is_set| !is_set).collect())
    }

    /// Returns whether it is the first kernel.
    #[must_use]
    pub fn is_none(&self) -> bool {
        !self.0.contains(&true)
    }

    /// Returns whether it is the second kernel.
    #[must_use]
    pub fn is_all(&self) -> bool {
        !self.0.contains(&false)
    }

    #[must_use]
    pub fn is_set(&self) -> &[bool] {
        &self.0
    }
}

//! A kernel between two others: which switches it has.

/// Which switches are set.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Mix(Vec<bool>);

impl Mix {
    /// Of `nr` switches only `ones`.
    #[must_use]
    pub fn alone(nr: usize, ones: &[usize]) -> Self {
        Self((0..nr).map(|one| ones.contains(&one)).collect())
    }

    /// Of `nr` switches all but `one`.
    #[must_use]
    pub fn without(nr: usize, one: usize) -> Self {
        Self::alone(nr, &[one]).rest()
    }

    /// The first `nr_first` of `nr` switches.
    #[must_use]
    pub fn first(nr: usize, nr_first: usize) -> Self {
        Self((0..nr).map(|one| one < nr_first).collect())
    }

    /// Those that are not set here.
    #[must_use]
    pub fn rest(&self) -> Self {
        Self(self.0.iter().map(|is_set| !is_set).collect())
    }

    /// Whether it is the first kernel.
    #[must_use]
    pub fn is_none(&self) -> bool {
        !self.0.contains(&true)
    }

    /// Whether it is the second kernel.
    #[must_use]
    pub fn is_all(&self) -> bool {
        !self.0.contains(&false)
    }

    /// Of each switch whether it is set.
    #[must_use]
    pub fn is_set(&self) -> &[bool] {
        &self.0
    }
}

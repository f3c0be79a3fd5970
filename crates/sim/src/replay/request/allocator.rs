//! An allocator that asks for huge pages: `malloc` or `mappings`.
//!
//! Owns the text form. [`crate::replay::program::allocator`] owns the calls that differ.

use std::str::FromStr;

/// Which memory an allocator advises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allocator {
    /// That of glibc's malloc with `glibc.malloc.hugetlb=1`, the default of glibc 2.43 on arm64.
    Malloc,
    /// All private mappings of 2M or more, as jemalloc with `thp:always` and mimalloc do.
    Mappings,
}

impl Allocator {
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Malloc => "malloc",
            Self::Mappings => "mappings",
        }
    }
}

impl FromStr for Allocator {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let all = [Self::Malloc, Self::Mappings];
        all.into_iter()
            .find(|one| one.name() == text)
            .ok_or_else(|| format!("'{text}' is neither malloc nor mappings"))
    }
}

//! Processes and page ranges in a program's steps.

use std::fmt;

use crate::crosscheck::text::{Parsed, number_to};

pub(super) const NR_PAGES_MAX: u64 = 8192;
/// Largest folio size: a gigantic page of x86-64.
pub(super) const SIZE_KIB_MAX: u64 = 1 << 20;

pub(super) const NR_SLOTS: usize = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageRange {
    pub(super) first: u64,
    /// At least 1.
    pub(super) nr: u64,
}

impl PageRange {
    pub(super) const fn end(&self) -> u64 {
        self.first + self.nr
    }

    pub(super) fn of(first: &str, nr: &str) -> Parsed<Self> {
        let first = number_to(NR_PAGES_MAX - 1, first)?;
        let nr = number_to(NR_PAGES_MAX - first, nr)?;
        if nr == 0 { Err("the range is empty".to_owned()) } else { Ok(Self { first, nr }) }
    }
}

impl fmt::Display for PageRange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.nr {
            1 => write!(f, "{}", self.first),
            nr => write!(f, "{} {nr}", self.first),
        }
    }
}

pub(super) fn slot_of(word: &str) -> Parsed<usize> {
    Ok(number_to(NR_SLOTS as u64 - 1, word)? as usize)
}

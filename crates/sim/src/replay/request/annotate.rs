//! Annotations: folio sizes that a loader requests when it maps certain files.
//!
//! `libLLVM*=2M`: every mapping of a matching file prefers 2 MiB folios (docs/behaviour K.1.4).
//! `cc1=collapse:64K`: the loader faults in every executable mapping of a matching file, then
//! collapses it to folios of 64 KiB ([`largefolio_mm::memory::Memory::madvise_collapse_to`]).
//!
//! Owns the text form. The effect of a preferred size belongs to
//! [`largefolio_mm::memory::Memory::prefer_folios`].

use std::fmt;
use std::str::FromStr;

use largefolio_mm::rules::sizes::{SizeControl, size_name};
use largefolio_mm::units::PageSize;

use crate::kernel::{Kernel, KernelError};
use crate::replay::request::pattern::Pattern;
use crate::size::parse_bytes;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Annotation {
    pattern: Pattern,
    bytes: u64,
    wish: Wish,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wish {
    /// Before it reads the file: faults then read such folios.
    Prefer,
    /// After it maps the file: the pages read so far are collapsed.
    Collapse,
}

const COLLAPSE: &str = "collapse:";

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AnnotationError {
    #[error(
        "'{0}' is not FILE=SIZE; expected a pattern and a size, such as 'libc.so*=64K' or \
         'libc.so*=collapse:64K'"
    )]
    Form(String),
    #[error("'{0}' is not a folio size; expected a power of two, such as 64K")]
    Size(String),
}

impl FromStr for Annotation {
    type Err = AnnotationError;

    fn from_str(text: &str) -> Result<Self, AnnotationError> {
        let form = || AnnotationError::Form(text.to_owned());
        let (pattern, size) = text.rsplit_once('=').ok_or_else(form)?;
        let pattern = Pattern::new(pattern).ok_or_else(form)?;
        let (wish, size) = match size.strip_prefix(COLLAPSE) {
            Some(size) => (Wish::Collapse, size),
            None => (Wish::Prefer, size),
        };
        let bytes = parse_bytes(size).filter(|bytes| bytes.is_power_of_two());
        let bytes = bytes.ok_or_else(|| AnnotationError::Size(size.to_owned()))?;
        Ok(Self { pattern, bytes, wish })
    }
}

impl fmt::Display for Annotation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let collapse = if self.wish == Wish::Collapse { COLLAPSE } else { "" };
        write!(f, "{}={collapse}{}", self.pattern, size_name(self.bytes))
    }
}

impl Annotation {
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(crate) const fn wish(&self) -> Wish {
        self.wish
    }

    /// Returns whether the pattern matches the file at `path`.
    ///
    /// ```
    /// use largefolio_sim::replay::Annotation;
    /// let annotation: Annotation = "libc.so*=64K".parse()?;
    /// assert!(annotation.fits("/usr/lib/x86_64-linux-gnu/libc.so.6"));
    /// assert!(!annotation.fits("/usr/lib/libc.so.6/other"));
    /// # Ok::<(), largefolio_sim::replay::AnnotationError>(())
    /// ```
    #[must_use]
    pub fn fits(&self, path: &str) -> bool {
        self.pattern.fits(path)
    }

    /// Checks that `kernel` has folios of this size with base pages of `page`.
    ///
    /// # Errors
    /// Names the smallest and the largest size if it does not.
    pub fn check(&self, kernel: &Kernel, page: PageSize) -> Result<(), KernelError> {
        let size = size_name(self.bytes);
        let max = kernel.max_order(page);
        let control: Result<SizeControl, _> = format!("{size}:exec").parse();
        let checked = control.and_then(|control| control.check(page, max));
        checked.map_err(|source| KernelError::Sizes {
            edit: format!("{self} under {}", kernel.name),
            source,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pattern_is_held_against_the_name_or_the_path() {
        let fits = |text: &str, path: &str| text.parse::<Annotation>().unwrap().fits(path);
        assert!(fits("cc1=2M", "/usr/lib/gcc/cc1"));
        assert!(!fits("cc1=2M", "/usr/lib/gcc/cc1plus"));
        assert!(fits("*=64K", "x"));
        assert!(fits("/usr/*/cc?=64K", "/usr/lib/gcc/cc1"));
        assert!(!fits("/lib/*=64K", "/usr/lib/a"));
        assert!(fits("*a*b*=64K", "xxaxxbxx") && !fits("*a*b*=64K", "xxbxxaxx"));
        assert!(fits("a=b=64K", "a=b"));
        assert!(fits("a=b=collapse:64K", "a=b"));
        let annotation: Annotation = "cc1=collapse:64K".parse().unwrap();
        assert_eq!((annotation.wish(), annotation.bytes()), (Wish::Collapse, 64 << 10));
        assert_eq!(annotation.to_string(), "cc1=collapse:64K");
    }

    #[test]
    fn errors_name_the_cause_and_the_form() {
        let message = |text: &str| text.parse::<Annotation>().unwrap_err().to_string();
        assert!(message("cc1").contains("'cc1' is not FILE=SIZE"));
        assert!(message("=64K").contains("not FILE=SIZE"));
        assert!(message("cc1=65K").contains("'65K' is not a folio size"));
        let kernel = Kernel::parse("7.2").unwrap();
        let annotation: Annotation = "cc1=16K".parse().unwrap();
        let message = annotation.check(&kernel, PageSize::K64).unwrap_err().to_string();
        assert!(
            message.starts_with("cc1=16K under 7.2: 16K is smaller than the base page"),
            "{message}"
        );
    }
}

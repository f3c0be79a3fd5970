//! Programs and libraries as if linked for other page sizes: `2M`, `libc.so*=64K`.
//!
//! A linker's `-z max-page-size=SIZE` changes where segments go; see `images`. Owns the text form
//! and its checks.

use std::fmt;
use std::str::FromStr;

use largefolio_mm::rules::sizes::size_name;
use largefolio_mm::units::PageSize;

use crate::replay::request::pattern::Pattern;
use crate::size::parse_bytes;

/// Largest page size to link for. No kernel has larger folios for text.
pub const LINKED_BYTES_MAX: u64 = 2 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linked {
    /// The images; `None` = all.
    pattern: Option<Pattern>,
    bytes: u64,
}

/// Alternative page sizes for the same images. Each makes a cell.
///
/// ```
/// use largefolio_sim::replay::LinkedChoices;
/// let choices: LinkedChoices = "cc1=4K,2M".parse()?;
/// let each: Vec<String> = choices.each().map(|linked| linked.to_string()).collect();
/// assert_eq!(each, ["cc1=4K", "cc1=2M"]);
/// # Ok::<(), largefolio_sim::replay::LinkedError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinkedChoices {
    pattern: Option<Pattern>,
    bytes: Vec<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LinkedError {
    #[error(
        "'{0}' is neither SIZE nor FILE=SIZE; expected a page size, such as 2M or \
             'libc.so*=2M'"
    )]
    Form(String),
    #[error(
        "'{0}' is not a page size to link for: -z max-page-size takes a power of two; expected \
         4K to 2M, such as 64K"
    )]
    Size(String),
    #[error(
        "cannot link for {0}: the model supports pages up to {max}, the size of the largest folio \
         into which a kernel reads text",
        max = size_name(LINKED_BYTES_MAX)
    )]
    TooLarge(String),
    #[error(
        "--linked {linked}: {machine} has base pages of {page}, on which a program linked for \
         smaller pages does not start; use {page} to {max}",
        max = size_name(LINKED_BYTES_MAX)
    )]
    BelowPage { linked: String, machine: String, page: String },
}

impl FromStr for LinkedChoices {
    type Err = LinkedError;

    fn from_str(text: &str) -> Result<Self, LinkedError> {
        let (pattern, sizes) = match text.rsplit_once('=') {
            Some((pattern, sizes)) => {
                let form = || LinkedError::Form(text.to_owned());
                (Some(Pattern::new(pattern).ok_or_else(form)?), sizes)
            }
            None => (None, text),
        };
        let mut bytes: Vec<u64> = Vec::new();
        for size in sizes.split(',') {
            let size = size_of(size, text)?;
            if !bytes.contains(&size) {
                bytes.push(size);
            }
        }
        Ok(Self { pattern, bytes })
    }
}

fn size_of(size: &str, text: &str) -> Result<u64, LinkedError> {
    let Some(bytes) = parse_bytes(size) else {
        let is_digit = size.starts_with(|first: char| first.is_ascii_digit());
        let none = if is_digit { LinkedError::Size } else { LinkedError::Form };
        return Err(none(if is_digit { size } else { text }.to_owned()));
    };
    if bytes > LINKED_BYTES_MAX {
        return Err(LinkedError::TooLarge(size.to_owned()));
    }
    if !bytes.is_power_of_two() || bytes < PageSize::K4.bytes() {
        return Err(LinkedError::Size(size.to_owned()));
    }
    Ok(bytes)
}

impl LinkedChoices {
    pub fn each(&self) -> impl Iterator<Item = Linked> + '_ {
        self.bytes.iter().map(|&bytes| Linked { pattern: self.pattern.clone(), bytes })
    }

    pub(crate) fn combined(all_choices: &[Self]) -> Vec<Vec<Linked>> {
        let mut combined = vec![Vec::new()];
        for choices in all_choices {
            let with = |before: &Vec<Linked>| -> Vec<Vec<Linked>> {
                choices.each().map(|one| [before.as_slice(), &[one]].concat()).collect()
            };
            combined = combined.iter().flat_map(with).collect();
        }
        combined.dedup();
        combined
    }

    pub(crate) fn nr_combined(all_choices: &[Self]) -> usize {
        all_choices.iter().fold(1, |nr: usize, choices| nr.saturating_mul(choices.bytes.len()))
    }

    #[must_use]
    pub fn fits(&self, path: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.fits(path))
    }

    #[must_use]
    pub fn named(&self) -> Option<String> {
        self.pattern.as_ref().map(Pattern::to_string)
    }
}

impl FromStr for Linked {
    type Err = LinkedError;

    fn from_str(text: &str) -> Result<Self, LinkedError> {
        let choices: LinkedChoices = text.parse()?;
        match choices.bytes.as_slice() {
            &[bytes] => Ok(Self { pattern: choices.pattern, bytes }),
            _ => Err(LinkedError::Form(text.to_owned())),
        }
    }
}

impl fmt::Display for Linked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pattern) = &self.pattern {
            write!(f, "{pattern}=")?;
        }
        f.write_str(&size_name(self.bytes))
    }
}

impl fmt::Display for LinkedChoices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pattern) = &self.pattern {
            write!(f, "{pattern}=")?;
        }
        let sizes: Vec<String> = self.bytes.iter().map(|&bytes| size_name(bytes)).collect();
        f.write_str(&sizes.join(","))
    }
}

impl Linked {
    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }

    #[must_use]
    pub fn fits(&self, path: &str) -> bool {
        self.pattern.as_ref().is_none_or(|pattern| pattern.fits(path))
    }

    /// Checks that `machine`, with base pages of `page`, can run a program linked this way.
    ///
    /// # Errors
    /// [`LinkedError::BelowPage`].
    pub fn check(&self, machine: &str, page: PageSize) -> Result<(), LinkedError> {
        if self.bytes >= page.bytes() {
            return Ok(());
        }
        let (linked, machine) = (self.to_string(), machine.to_owned());
        Err(LinkedError::BelowPage { linked, machine, page: size_name(page.bytes()) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn choices_combine_and_the_last_named_stays_last() {
        let all_choices: Vec<LinkedChoices> =
            ["4K,2M", "cc1=64K"].iter().map(|text| text.parse().unwrap()).collect();
        let combined = LinkedChoices::combined(&all_choices);
        let names: Vec<Vec<String>> =
            combined.iter().map(|all| all.iter().map(ToString::to_string).collect()).collect();
        assert_eq!(names, [["4K", "cc1=64K"], ["2M", "cc1=64K"]]);
        assert_eq!(LinkedChoices::nr_combined(&all_choices), 2);
        assert!(combined[0][0].fits("/usr/bin/perf") && !combined[0][1].fits("/usr/bin/perf"));
        assert_eq!(LinkedChoices::combined(&[]), [Vec::new()]);
    }

    #[test]
    fn errors_name_the_cause() {
        let message = |text: &str| text.parse::<LinkedChoices>().unwrap_err().to_string();
        assert!(message("cc1").contains("'cc1' is neither SIZE nor FILE=SIZE"));
        assert!(message("=2M").contains("neither SIZE nor FILE=SIZE"));
        assert!(message("cc1=3M").contains("cannot link for 3M"));
        assert!(message("96K").contains("'96K' is not a page size to link for"));
        assert!(message("2K").contains("expected 4K to 2M"));
        assert!(message("4M").contains("cannot link for 4M: the model supports pages up to 2M"));
        let linked: Linked = "cc1=16K".parse().unwrap();
        let message = linked.check("grace-64k", PageSize::K64).unwrap_err().to_string();
        assert!(
            message.starts_with("--linked cc1=16K: grace-64k has base pages of 64K"),
            "{message}"
        );
        assert!("4K,2M".parse::<Linked>().is_err());
    }
}

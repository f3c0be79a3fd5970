//! Advice by region: the lines of `folio run --regions FILE`.
//!
//! ```text
//!   heap huge                    the memory below the program break
//!   stack nohuge                 the main thread's
//!   memory>=64M huge             private memory: mappings and allocations of this size
//!   file:libpython3.so collapse  mappings of a file, by its name or its whole path
//! ```
//!
//! The names are those of `folio predict --where`: `heap`, `stack`, `memory` (in JSON `private`)
//! and files. `anon` is another word for `memory`. The launcher checks the lines, and the library
//! parses them again in each process.

use core::ffi::CStr;

use crate::text::number;

/// Rules in a file.
pub const NR_RULES_MAX: usize = 64;
/// All lines together.
pub const RULES_BYTES_MAX: usize = 16 << 10;

/// The rules, in the environment of the program.
pub const RULES_VARIABLE: &CStr = c"LARGEFOLIO_REGIONS";
/// The path of the launcher's file of counters.
pub const REPORT_VARIABLE: &CStr = c"LARGEFOLIO_REGIONS_REPORT";
/// That file's name: it is memory without a folder.
pub const REPORT_NAME: &str = "folio-regions";
/// The path is a link, which leads to a name that begins with this.
pub const REPORT_LINK: &[u8; 21] = b"/memfd:folio-regions ";
/// That file begins with this number.
pub const REPORT_MAGIC: u64 = 0x6f69_6c6f_f672_6c31;
/// By rule: regions, their bytes, refused regions, the last refusal's number. 64 bits each.
pub const NR_COUNTERS: usize = 4;
/// The magic number and the counters.
pub const REPORT_BYTES: usize = 8 + NR_RULES_MAX * NR_COUNTERS * 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RegionAdvice {
    Huge,
    NoHuge,
    /// As `Huge`; also moves memory that is in use when the program starts to PMD folios.
    Collapse,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum What<'a> {
    Heap,
    Stack,
    /// Private memory of at least this size.
    Memory {
        bytes_min: usize,
    },
    /// A path, or a file's name.
    File(&'a [u8]),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rule<'a> {
    pub what: What<'a>,
    pub advice: RegionAdvice,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    NoAdvice,
    UnknownRegion,
    /// `heap at 0x..`
    Address,
    Size,
}

impl RuleError {
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::NoAdvice => "the line does not end with huge, nohuge or collapse",
            Self::UnknownRegion => {
                "the region is not heap, stack, memory, memory>=SIZE or file:NAME (a name or an \
                 absolute path)"
            }
            Self::Address => "addresses differ from run to run: leave out `at 0x..`",
            Self::Size => "the size is not a number such as 64M (K, M, G)",
        }
    }
}

impl<'a> Rule<'a> {
    /// Parses a line; an empty line or a comment (`#`) is `None`.
    ///
    /// # Errors
    /// The line's mistake.
    pub fn parse(line: &'a [u8]) -> Result<Option<Self>, RuleError> {
        let line = line.trim_ascii();
        if line.is_empty() || line.first() == Some(&b'#') {
            return Ok(None);
        }
        let end = line.iter().rposition(u8::is_ascii_whitespace).ok_or(RuleError::NoAdvice)?;
        let (region, advice) = line.split_at_checked(end).ok_or(RuleError::NoAdvice)?;
        let advice = match advice.trim_ascii() {
            b"huge" => RegionAdvice::Huge,
            b"nohuge" => RegionAdvice::NoHuge,
            b"collapse" => RegionAdvice::Collapse,
            _ => return Err(RuleError::NoAdvice),
        };
        Ok(Some(Self { what: What::parse(region.trim_ascii())?, advice }))
    }
}

impl<'a> What<'a> {
    fn parse(region: &'a [u8]) -> Result<Self, RuleError> {
        if let Some(name) = region.strip_prefix(b"file:") {
            // Without a folder, or from the root.
            let is_name = !name.contains(&b'/') || name.first() == Some(&b'/');
            let is_whole = !name.is_empty() && is_name;
            return if is_whole { Ok(Self::File(name)) } else { Err(RuleError::UnknownRegion) };
        }
        match region {
            b"heap" => return Ok(Self::Heap),
            b"stack" => return Ok(Self::Stack),
            _ => {}
        }
        let rest = [&b"memory"[..], b"private", b"anon"]
            .into_iter()
            .find_map(|name| region.strip_prefix(name));
        match rest.map(<[u8]>::trim_ascii) {
            Some(b"") => return Ok(Self::Memory { bytes_min: 0 }),
            Some(rest) if rest.starts_with(b">=") => {
                let size = rest.get(2..).unwrap_or(&[]).trim_ascii();
                let bytes_min = size_of(size).ok_or(RuleError::Size)?;
                return Ok(Self::Memory { bytes_min });
            }
            _ => {}
        }
        let is_address = region.windows(6).any(|window| window == b" at 0x");
        Err(if is_address { RuleError::Address } else { RuleError::UnknownRegion })
    }

    /// Whether the rule is about the file at `path`.
    #[must_use]
    pub fn is_file(&self, path: &[u8]) -> bool {
        let Self::File(wanted) = self else { return false };
        let name = path.rsplit(|byte| *byte == b'/').next().unwrap_or(path);
        path.first() == Some(&b'/') && (*wanted == path || *wanted == name)
    }
}

fn size_of(text: &[u8]) -> Option<usize> {
    let (digits, shift) = match text.split_last()? {
        (b'K', digits) => (digits, 10),
        (b'M', digits) => (digits, 20),
        (b'G', digits) => (digits, 30),
        _ => (text, 0),
    };
    usize::try_from(number::<10>(digits)?).ok()?.checked_mul(1 << shift)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn what(line: &[u8]) -> Result<What<'_>, RuleError> {
        Rule::parse(line).map(|rule| rule.unwrap().what)
    }

    #[test]
    fn the_names_of_predict_are_regions() {
        assert_eq!(what(b"heap huge"), Ok(What::Heap));
        assert_eq!(what(b"  stack \t nohuge\r"), Ok(What::Stack));
        assert_eq!(what(b"memory huge"), Ok(What::Memory { bytes_min: 0 }));
        assert_eq!(what(b"private>=64M huge"), Ok(What::Memory { bytes_min: 64 << 20 }));
        assert_eq!(what(b"anon >= 4096 huge"), Ok(What::Memory { bytes_min: 4096 }));
        assert_eq!(what(b"file:my lib.so huge"), Ok(What::File(b"my lib.so")));
        assert_eq!(Rule::parse(b" # heap huge"), Ok(None));
        assert_eq!(Rule::parse(b"\t"), Ok(None));
    }

    #[test]
    fn what_is_wrong_is_said() {
        assert_eq!(what(b"heap"), Err(RuleError::NoAdvice));
        assert_eq!(what(b"heap big"), Err(RuleError::NoAdvice));
        assert_eq!(what(b"heap at 0x55e0 huge"), Err(RuleError::Address));
        assert_eq!(what(b"heaps huge"), Err(RuleError::UnknownRegion));
        assert_eq!(what(b"memoryx huge"), Err(RuleError::UnknownRegion));
        assert_eq!(what(b"file: huge"), Err(RuleError::UnknownRegion));
        assert_eq!(what(b"file:a/b huge"), Err(RuleError::UnknownRegion));
        assert_eq!(what(b"anon>=64X huge"), Err(RuleError::Size));
        assert_eq!(what(b"anon>=99999999999999999999 huge"), Err(RuleError::Size));
        assert_eq!(what(b"anon>=17179869184G huge"), Err(RuleError::Size));
    }

    #[test]
    fn a_file_is_found_by_its_name_or_its_path() {
        let named = What::File(b"libc.so.6");
        assert!(named.is_file(b"/usr/lib/libc.so.6"));
        assert!(!named.is_file(b"/usr/lib/libc.so.60"));
        assert!(!named.is_file(b"[libc.so.6]"));
        let path = What::File(b"/usr/lib/libc.so.6");
        assert!(path.is_file(b"/usr/lib/libc.so.6") && !path.is_file(b"/lib/libc.so.6"));
        assert!(!What::Heap.is_file(b"/usr/lib/libc.so.6"));
    }
}

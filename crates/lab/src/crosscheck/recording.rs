//! A recording of any kind: its header, and the part of the parser that both share.

use std::borrow::Cow;

use largefolio_mm::rules::Arch;

use super::error::CheckError;
use super::text::{Pairs, ParseError, Parsed, each_line};
use largefolio_sim::kernel::Kernel;

/// Largest base page (docs/behaviour 0.1).
pub(super) const PAGE_BYTES_MAX: u64 = 64 << 10;

/// The steps of a program on a real kernel, and the kernel's state after each.
#[derive(Clone, Debug)]
pub struct Recording<B> {
    /// `FOLDER/FILE`, or the path of a single file.
    pub name: String,
    /// First line.
    pub header: RecordingHeader,
    /// All other lines.
    pub body: B,
}

#[derive(Clone, Debug)]
pub struct RecordingHeader {
    /// `uname -r`.
    pub release: String,
    /// Name of the kernel variant, or empty. A self-built kernel has rules of this name.
    pub variant: String,
    /// Edits of its rules by the kernel's settings, such as `clear=posted`, or empty.
    pub edits: String,
    /// Architecture; `arm64` if the recording has none.
    pub arch: Arch,
    /// Base page in bytes, 4 KiB to 64 KiB.
    pub page_bytes: u64,
    /// Filesystem of the files; empty if no file is on a disk.
    pub filesystem: String,
}

/// The part of a recording below its header.
pub trait RecordingBody: Default {
    type Position: Default;

    /// Reads the header fields of this kind.
    ///
    /// # Errors
    /// A malformed value.
    fn begin(&mut self, header: &RecordingHeader, pairs: &Pairs<'_>) -> Parsed<()>;

    /// Reads one line of at least one word.
    ///
    /// # Errors
    /// A malformed line.
    fn line(
        &mut self,
        at: &mut Self::Position,
        header: &RecordingHeader,
        fields: &[&str],
    ) -> Parsed<()>;
}

impl<B: RecordingBody> Recording<B> {
    /// Reads one recording.
    ///
    /// # Errors
    /// The first malformed line.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseError> {
        let (mut header, mut body, mut at) = (None, B::default(), B::Position::default());
        each_line(name, text, &mut |fields| {
            if let ["#", fields @ ..] = fields {
                let pairs = Pairs::of(fields);
                let header = header.insert(RecordingHeader::of(&pairs)?);
                return body.begin(header, &pairs);
            }
            let header = header.as_ref().ok_or(
                "this is not a recording: the first line must be the \
                                       header",
            )?;
            body.line(&mut at, header, fields)
        })?;
        let name = name.to_owned();
        if let Some(header) = header {
            return Ok(Self { name, header, body });
        }
        let what = "there is no header (# kernel=.. page=..)".to_owned();
        Err(ParseError { name, line: 1, what })
    }
}

impl<B> Recording<B> {
    pub(super) fn rules<'a>(
        &self,
        given: Option<&'a Kernel>,
    ) -> Result<Cow<'a, Kernel>, CheckError> {
        let kernel = match given {
            Some(kernel) => Cow::Borrowed(kernel),
            None => Cow::Owned(self.header.kernel()?),
        };
        let (recorded, rules) = (self.header.page_bytes, kernel.rules.page.bytes());
        if recorded == rules { Ok(kernel) } else { Err(CheckError::Page { recorded, rules }) }
    }
}

impl RecordingHeader {
    fn of(pairs: &Pairs<'_>) -> Parsed<Self> {
        let page = pairs.number("page")?.ok_or("the header has no page=")?;
        if !page.is_power_of_two() || !(4096..=PAGE_BYTES_MAX).contains(&page) {
            return Err(format!("page={page} is not a base page size"));
        }
        // Recordings of processes use the keys `release` and `disk`.
        let either = |key: &str, other: &str| {
            pairs.get(key).or_else(|| pairs.get(other)).unwrap_or_default().to_owned()
        };
        Ok(Self {
            release: either("kernel", "release"),
            variant: pairs.text("variant"),
            edits: pairs.text("edits"),
            arch: if pairs.get("arch") == Some("x86-64") { Arch::X86_64 } else { Arch::Arm64 },
            page_bytes: page,
            filesystem: either("fs", "disk"),
        })
    }

    /// Returns the recorded kernel's rules: by variant for a self-built kernel, otherwise by
    /// [`Kernel::rules_of_release`]; with its edits.
    ///
    /// # Errors
    /// There are no rules for it.
    pub fn kernel(&self) -> Result<Kernel, CheckError> {
        let own = format!("recorded/{}", self.variant);
        let kernel = if Kernel::names().any(|name| name == own) {
            Kernel::parse(&own)?
        } else {
            Kernel::rules_of_release(&self.release, self.page_bytes)?
        };
        if self.edits.is_empty() { Ok(kernel) } else { Ok(kernel.edited(&self.edits)?) }
    }
}

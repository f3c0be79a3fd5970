//! A program from the command to the answer: its recording's prediction against its plain run.
//!
//! ```text
//!   trace --`folio predict --kernel this`--> Outcome --predicted--> Numbers --+
//!   three plain runs --observed at their ends-----------real-----> Numbers --+--compare--> rows
//! ```
//!
//! Owns the list of numbers ([`Measure`]), both sides' values ([`Numbers`]), and the comparison.
//! Scripts ([`script`]) are small programs with every kind of call, written by hand in [`suite`] or
//! generated ([`generate`]), and shortened if they differ. [`super::record`] runs the
//! programs. [`changes`] says when a script changes a setting.
//!
//! Invariant R1: a number is equal, different, or not compared for a reason in [`NotComparable`]. The
//! plain runs alone decide which numbers are compared, and within which range.

pub mod changes;
mod compare;
pub mod generate;
mod predicted;
mod real;
pub mod script;
pub mod suite;

pub use compare::{NotComparable, Row, RowState, Verdict};

use std::collections::BTreeMap;
use std::fmt;

use largefolio_results::figures;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MappedKind {
    Anon,
    /// Files and shared memory.
    File,
    Text,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum MappedHow {
    /// At any address: chance decides whether it is a multiple of the folio's size.
    Whole,
    Partial,
}

/// A quantity to compare. Tables follow this order.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Measure {
    MajorFaults,
    MinorFaults,
    BytesRead,
    /// Bytes of a file in the page cache, in folios of one size.
    Cached {
        file: String,
        folio_bytes: u64,
    },
    /// Mapped bytes at the end of each address space, in folios of one size.
    Mapped {
        kind: MappedKind,
        folio_bytes: u64,
        how: MappedHow,
    },
    MappedByPmd(MappedKind),
    /// When most was resident.
    Rss,
    /// In KiB, as the kernel prints it.
    PssKib,
}

impl MappedKind {
    const fn name(self) -> &'static str {
        match self {
            Self::Anon => "anonymous",
            Self::File => "files and shared",
            Self::Text => "text",
        }
    }
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::MajorFaults => f.write_str("major faults"),
            Self::MinorFaults => f.write_str("minor faults"),
            Self::BytesRead => f.write_str("bytes read"),
            Self::Cached { file, folio_bytes } => {
                write!(f, "{file}: cached in {}", figures::size(*folio_bytes))
            }
            Self::Mapped { kind, folio_bytes, how } => {
                write!(f, "{}: mapped in {}", kind.name(), figures::size(*folio_bytes))?;
                f.write_str(match how {
                    MappedHow::Whole => "",
                    MappedHow::Partial => ", in part",
                })
            }
            Self::MappedByPmd(kind) => write!(f, "{}: mapped by PMDs", kind.name()),
            Self::Rss => f.write_str("Rss"),
            Self::PssKib => f.write_str("Pss (KiB)"),
        }
    }
}

/// The numbers of one side. A number that is absent is 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Numbers(BTreeMap<Measure, u64>);

impl Numbers {
    fn add(&mut self, measure: Measure, value: u64) {
        if value > 0 {
            *self.0.entry(measure).or_default() += value;
        }
    }

    #[must_use]
    pub fn get(&self, measure: &Measure) -> u64 {
        self.0.get(measure).copied().unwrap_or(0)
    }

    fn measures(&self) -> impl Iterator<Item = &Measure> {
        self.0.keys()
    }
}

//! What can be wrong with a kernel's name, file or edits.

use largefolio_mm::rules::sizes::SizesError;
use largefolio_mm::units::PageSize;
use largefolio_trace::shown;

use crate::datafile::DataFileError;

/// A kernel that cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    /// No such preset, or a file that cannot be read.
    #[error(transparent)]
    File(#[from] DataFileError),
    /// A file that is not a kernel.
    #[error("kernel file {}: {message}", shown(origin))]
    BadFile {
        /// The file, or the preset's name.
        origin: String,
        /// Line and expected form, from the parser.
        message: String,
    },
    /// Files based on each other.
    #[error(
        "kernel file {} is based on more than {limit} others: do two name each other \
         in `based-on`?",
        shown(origin)
    )]
    TooDeep {
        /// The first file.
        origin: String,
        /// How many were followed.
        limit: usize,
    },
    /// An edit no rule has.
    #[error("no rule is called '{}' in '+{}'; {hint}", shown(name), shown(edit))]
    UnknownEdit {
        /// The name.
        name: String,
        /// The whole edit.
        edit: String,
        /// The nearest names, or all of them.
        hint: String,
    },
    /// A smallest folio above the largest.
    #[error(
        "{kernel}: min-folio (min_folio_bytes) is {mib}M; with {page} base pages the page cache \
         has folios of at most {max_mib}M"
    )]
    MinFolio {
        /// The kernel, edits included.
        kernel: String,
        /// Base page.
        page: PageSize,
        /// The smallest folio in MiB.
        mib: u64,
        /// The largest folio in MiB.
        max_mib: u64,
    },
    /// A per-size control that no kernel can have.
    #[error("{}: {source}", shown(edit))]
    Sizes {
        /// The edit, or the kernel with all its edits.
        edit: String,
        /// What is wrong with it.
        source: SizesError,
    },
    /// A per-size control of a filesystem without large folios.
    #[error(
        "{}: the kernel has no large folios on a filesystem called '{}'; {hint}",
        shown(edit),
        shown(name)
    )]
    SizesFilesystem {
        /// The edit.
        edit: String,
        /// The filesystem.
        name: String,
        /// The nearest names, or all of them.
        hint: String,
    },
    /// A value the rule does not take.
    #[error("'+{}': {} takes {expected}", shown(edit), shown(name))]
    BadValue {
        /// The rule.
        name: String,
        /// The whole edit.
        edit: String,
        /// What it takes.
        expected: String,
    },
}

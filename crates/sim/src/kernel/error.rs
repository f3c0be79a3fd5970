//! Errors in a kernel's name, file or edits.

use largefolio_mm::rules::anon::AnonRules;
use largefolio_mm::rules::shmem::ShmemRules;
use largefolio_mm::rules::sizes::{SizesError, size_name};
use largefolio_mm::units::{Order, PageSize};
use largefolio_trace::shown;

use crate::datafile::DataFileError;
use crate::policy::PolicyFileError;

#[derive(Debug, thiserror::Error)]
pub enum KernelError {
    #[error(transparent)]
    File(#[from] DataFileError),
    /// The release is not a version, or is older than every known kernel.
    #[error(
        "there are no rules for kernel {release:?}: the oldest known kernel is 6.1; select the rules \
         with --kernel"
    )]
    UnknownRelease { release: String },
    #[error("kernel file {}: {message}", shown(origin))]
    BadFile { origin: String, message: String },
    #[error(
        "kernel file {} is based on a chain of more than {limit} others; do two files name each \
         other in `based-on`?",
        shown(origin)
    )]
    TooDeep { origin: String, limit: usize },
    #[error("there is no rule '{}' in '+{}'; {hint}", shown(name), shown(edit))]
    UnknownEdit { name: String, edit: String, hint: String },
    #[error(
        "{kernel}: {rule} is {}, but with {page} base pages a page-cache folio is at most {}",
        size_name(*bytes),
        size_name(*max_bytes)
    )]
    FolioSize { kernel: String, page: PageSize, rule: &'static str, bytes: u64, max_bytes: u64 },
    #[error(
        "{}: with {page} base pages, no private folio can be {}; anon-SIZE takes powers of two \
         from {} to {}",
        shown(kernel),
        size_name(*bytes),
        size_name(AnonRules::controlled_bytes(*page)[0]),
        size_name(AnonRules::controlled_bytes(*page)[1])
    )]
    AnonSize { kernel: String, page: PageSize, bytes: u64 },
    #[error(
        "{}: with {page} base pages, no folio of shared memory can be {}; shmem-SIZE takes powers \
         of two from {} to {}",
        shown(kernel),
        size_name(*bytes),
        size_name(ShmemRules::controlled_bytes(*page, *max)[0]),
        size_name(ShmemRules::controlled_bytes(*page, *max)[1])
    )]
    ShmemSize { kernel: String, page: PageSize, bytes: u64, max: Order },
    #[error("{}: {source}", shown(edit))]
    Sizes { edit: String, source: SizesError },
    #[error(
        "{}: the kernel has no large folios on a filesystem called '{}'; {hint}",
        shown(edit),
        shown(name)
    )]
    SizesFilesystem { edit: String, name: String, hint: String },
    #[error(transparent)]
    Policy(#[from] PolicyFileError),
    #[error(
        "{}: only folio predict, studies and Python's predict use a policy; omit +policy",
        shown(.0)
    )]
    NoPolicyHere(String),
    #[error(
        "'{}' is not a setting of a running system; expected a setting such as thp, anon-64K, \
         defrag, max-ptes-none, khugepaged-scan-sleep, readahead or fault-around",
        shown(.0)
    )]
    NoSetting(String),
    #[error(
        "'{edit}': the model cannot change this setting during a run; add it to the kernel's name \
         for the whole run, as in 6.18+{edit}",
        edit = shown(.0)
    )]
    FixedSetting(String),
    #[error("'+{}': {} takes {expected}", shown(edit), shown(name))]
    BadValue { name: String, edit: String, expected: String },
}

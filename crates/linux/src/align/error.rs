//! Why a file is not aligned: cause and remedy.

use std::io;
use std::path::PathBuf;

use largefolio_trace::shown;

use crate::elf::ElfError;
use crate::setting::thp::size_name;

/// A refusal, or a failure of the system. No copy exists then.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlignError {
    /// Not an ELF file that could be loaded.
    #[error(transparent)]
    Elf(#[from] ElfError),
    /// 32-bit addresses.
    #[error(
        "{}: a 32-bit file; only 64-bit files can be aligned: re-link it with \
        -Wl,-z,max-page-size={align}",
        shown(path)
    )]
    Bits32 {
        /// The file.
        path: PathBuf,
        /// Alignment wanted.
        align: u64,
    },
    /// Nothing to do.
    #[error("{}: already aligned; folio warm fills its page cache", shown(.0))]
    Already(PathBuf),
    /// Nothing to gain.
    #[error(
        "{}: its text of {} KiB contains no whole aligned block of {}: \
         nothing would be gained",
        shown(path),
        text_bytes.div_ceil(1 << 10),
        size_name(*align)
    )]
    NoGain {
        /// The file.
        path: PathBuf,
        /// Alignment wanted.
        align: u64,
        /// Bytes of executable segments.
        text_bytes: u64,
    },
    /// A packer's.
    #[error("{}: packed (UPX): its text is unpacked elsewhere in memory; unpack it first (upx -d)",
        shown(.0))]
    Packed(PathBuf),
    /// Bytes behind all parts that the headers know.
    #[error(
        "{}: {bytes} bytes follow its last section (an appended archive, a signature), and their \
         reader expects them at that place; align the program before they are appended",
        shown(path)
    )]
    Appended {
        /// The file.
        path: PathBuf,
        /// How many.
        bytes: u64,
    },
    /// A signature in an extended attribute.
    #[error("{}: signed (security.ima), and a copy would not be; align it before it is signed",
        shown(.0))]
    Signed(PathBuf),
    /// A layout that cannot be moved apart.
    #[error(
        "{}: {what}: cannot be moved; re-link it with -Wl,-z,max-page-size={align}",
        shown(path)
    )]
    Tangled {
        /// The file.
        path: PathBuf,
        /// What is tangled.
        what: String,
        /// Alignment wanted.
        align: u64,
    },
    /// The copy would replace the file.
    #[error("{}: the copy cannot be the original itself; choose another -o", shown(.0))]
    Same(PathBuf),
    /// The copy is not what it should be.
    #[error(
        "{}: the copy differs from the original in {what}: please report this; nothing was \
        written",
        shown(path)
    )]
    Differs {
        /// The file.
        path: PathBuf,
        /// Which part.
        what: String,
    },
    /// A system call failed.
    #[error("cannot {action} {}: {source}", shown(path))]
    Io {
        /// What was tried.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

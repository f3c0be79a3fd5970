//! Why a file cannot be aligned: cause and remedy.

use std::io;
use std::path::PathBuf;

use largefolio_trace::shown;

use crate::elf::ElfError;
use crate::setting::thp::size_name;

#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AlignError {
    #[error(transparent)]
    Elf(#[from] ElfError),
    #[error(
        "{}: this is a 32-bit file, and only 64-bit files can be aligned; re-link it with \
         -Wl,-z,max-page-size={align}",
        shown(path)
    )]
    Bits32 { path: PathBuf, align: u64 },
    #[error("{}: it is already aligned; folio warm fills its page cache", shown(.0))]
    Already(PathBuf),
    #[error(
        "{}: its text of {} KiB contains no whole aligned block of {}: aligning it would gain \
         nothing",
        shown(path),
        text_bytes.div_ceil(1 << 10),
        size_name(*align)
    )]
    NoGain { path: PathBuf, align: u64, text_bytes: u64 },
    #[error("{}: it is packed (UPX), so its text is unpacked elsewhere in memory; unpack it first \
        (upx -d)",
        shown(.0))]
    Packed(PathBuf),
    #[error(
        "{}: {bytes} bytes follow its last section (an appended archive or signature), and the \
         code that reads them expects them at that offset; align the program before appending \
         them",
        shown(path)
    )]
    Appended { path: PathBuf, bytes: u64 },
    #[error("{}: it is signed (security.ima), and a copy would lose the signature; align it \
        before signing",
        shown(.0))]
    Signed(PathBuf),
    #[error(
        "{}: {what}: cannot be moved; re-link it with -Wl,-z,max-page-size={align}",
        shown(path)
    )]
    Tangled { path: PathBuf, what: String, align: u64 },
    #[error("{}: the copy would overwrite the original; choose another -o", shown(.0))]
    Same(PathBuf),
    #[error(
        "{}: the copy differs from the original in {what}; nothing was written; please report this",
        shown(path)
    )]
    Differs { path: PathBuf, what: String },
    #[error("cannot {action} {}: {source}", shown(path))]
    Io { action: &'static str, path: PathBuf, source: io::Error },
}

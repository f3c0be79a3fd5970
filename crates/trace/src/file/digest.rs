//! Identifies a trace by its contents, wherever the file is.

use std::io::{self, Read};
use std::path::Path;

use super::error::TraceError;
use crate::disk::open_regular;

/// Bytes between two checks for a stop: a few milliseconds of disk time.
const CHUNK_BYTES: u64 = 4 << 20;

/// Returns the BLAKE3 digest of the file at `path` in 64 hexadecimal digits. The file need not be a
/// trace.
///
/// # Errors
/// [`TraceError::Io`], or [`TraceError::NotATrace`] if it is not a regular file.
pub fn digest(path: &Path) -> Result<String, TraceError> {
    let Some(digest) = digest_until(path, &mut || false)? else {
        unreachable!("the digest is never stopped");
    };
    Ok(digest)
}

/// Like [`digest`], but can be stopped, which returns `None`. A trace can have any length.
///
/// # Errors
/// As [`digest`].
pub fn digest_until(
    path: &Path,
    is_stopped: &mut dyn FnMut() -> bool,
) -> Result<Option<String>, TraceError> {
    let file = open_regular(path).map_err(|error| TraceError::from_open(path, error))?;
    digest_of(file, is_stopped).map_err(|error| TraceError::io(path, "read", error))
}

pub(super) fn digest_of(
    mut bytes: impl Read,
    is_stopped: &mut dyn FnMut() -> bool,
) -> io::Result<Option<String>> {
    let mut hasher = blake3::Hasher::new();
    loop {
        if is_stopped() {
            return Ok(None);
        }
        let nr_before = hasher.count();
        hasher.update_reader(bytes.by_ref().take(CHUNK_BYTES))?;
        if hasher.count() == nr_before {
            return Ok(Some(hasher.finalize().to_hex().to_string()));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty");
        std::fs::write(&path, []).unwrap();
        let published = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(digest(&path).unwrap(), published);
        std::fs::write(&path, [0]).unwrap();
        assert_ne!(digest(&path).unwrap(), published);
        std::fs::write(&path, vec![7; 9 << 20]).unwrap();
        let mut nr_asked = 0;
        let mut after = |nr| {
            digest_until(&path, &mut || {
                nr_asked += 1;
                nr_asked > nr
            })
        };
        assert_eq!(after(2).unwrap(), None, "stopped in the middle");
        assert_eq!(nr_asked, 3);
        let whole = blake3::hash(&vec![7; 9 << 20]).to_hex().to_string();
        assert_eq!(digest(&path).unwrap(), whole);
        let missing = digest(&dir.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("cannot open"), "{missing}");
    }
}

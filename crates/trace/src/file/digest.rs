//! The identity of a trace's bytes, wherever the file is.

use std::io::{self, Read};
use std::path::Path;

use super::error::TraceError;
use crate::disk::open_regular;

/// The digest of the file at `path`: BLAKE3 of its bytes, in 64 hexadecimal digits. The file need
/// not be a trace.
///
/// # Errors
/// [`TraceError::Io`], [`TraceError::NotATrace`] if it is not a regular file.
pub fn digest(path: &Path) -> Result<String, TraceError> {
    let file = open_regular(path).map_err(|error| TraceError::from_open(path, error))?;
    digest_of(file).map_err(|error| TraceError::io(path, "read", error))
}

/// The digest of all that `bytes` gives.
pub(super) fn digest_of(bytes: impl Read) -> io::Result<String> {
    let mut hasher = blake3::Hasher::new();
    hasher.update_reader(bytes)?;
    Ok(hasher.finalize().to_hex().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_digest_is_that_of_the_bytes() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("empty");
        std::fs::write(&path, []).unwrap();
        // The value that BLAKE3's authors publish for no input.
        let published = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(digest(&path).unwrap(), published);
        std::fs::write(&path, [0]).unwrap();
        assert_ne!(digest(&path).unwrap(), published);
        let missing = digest(&dir.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("cannot open"), "{missing}");
    }
}

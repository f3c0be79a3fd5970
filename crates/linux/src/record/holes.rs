//! The parts of a file without data in storage.

use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use largefolio_trace::disk::open_regular;
use rustix::fs::{SeekFrom, seek};

/// Maximum number of holes of one file. The rest of the file counts as data.
const NR_HOLES_MAX: usize = 4096;

/// The unit of `st_blocks`.
const BLOCK_BYTES: u64 = 512;

/// Returns position and length of each hole in the first `size_bytes` of the file. A file that the
/// user may not read has none.
pub(crate) fn holes(path: &Path, size_bytes: u64) -> Vec<(u64, u64)> {
    let may_have =
        path.metadata().is_ok_and(|of| of.blocks().saturating_mul(BLOCK_BYTES) < size_bytes);
    match open_regular(path) {
        Ok(file) if may_have => holes_of(file, size_bytes),
        _ => Vec::new(),
    }
}

fn holes_of(file: impl AsFd, size_bytes: u64) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    let mut at = 0;
    while holes.len() < NR_HOLES_MAX
        && let Ok(start) = seek(&file, SeekFrom::Hole(at))
        && start < size_bytes
    {
        // No data follows the last hole.
        let end = seek(&file, SeekFrom::Data(start)).unwrap_or(size_bytes).min(size_bytes);
        if end <= start {
            break;
        }
        holes.push((start, end - start));
        at = end;
    }
    holes
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    #[test]
    fn holes_lie_between_data_and_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sparse");
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(holes(&path, 1 << 20), [(0, 1 << 20)]);
        file.write_all_at(&[1; 4096], 256 << 10).unwrap();
        let expected = [(0, 256 << 10), (260 << 10, 764 << 10)];
        assert_eq!(holes(&path, 1 << 20), expected);
        assert_eq!(holes(&path, 256 << 10), expected[..1], "later data does not count");
        std::fs::write(&path, [1; 4096]).unwrap();
        assert_eq!(holes(&path, 4096), []);
        assert_eq!(holes(&place.path().join("none"), 4096), []);
    }
}

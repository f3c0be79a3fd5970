//! The file table of a recording.
//!
//! Owns dense file ids and the facts in each row: path, size, build id, filesystem, holes and the
//! headers that execve reads. Files on filesystems without a page cache (proc, sysfs, ..) get no
//! id. Invariant I1: an id is the row number in [`Files::into_table`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::UNIX_EPOCH;

use largefolio_trace::disk::open_regular;
use largefolio_trace::validate::{META_BYTES_MAX, NR_FILES_MAX};
use largefolio_trace::{FileId, FileInfo};
use rustix::fs::{SeekFrom, seek};
use serde::Serialize;

use super::elf::Elf;
use super::qemu::holes::{self, Edge};
use super::qemu::wire::{self, WireFile};
use super::root::Root;
use super::store::{Ground as _, Here, Store};
use crate::elf::exec_reads::exec_reads;

const PATH_BYTES_MAX: usize = 4096;

/// The page size of references. Every execve reads a program's first page.
const FIRST_PAGE: u64 = 4096;

/// The unit of a file's allocated blocks.
const BLOCK_BYTES: u64 = 512;

/// The footer space for the rows. Executions and images use half of the footer.
const TABLE_BYTES_MAX: usize = META_BYTES_MAX * 3 / 8;

/// Known keys, also of files without a page cache.
const NR_KEYS_MAX: usize = 2 * NR_FILES_MAX;

pub(crate) const LEFT_OUT: &str = "A file was omitted because the trace has no room for more \
    files or the file's path is too long: its reads and writes are missing.";

#[derive(Debug, Default)]
pub(crate) struct Files {
    root: Root,
    table: Vec<FileInfo>,
    table_bytes: usize,
    nr_left_out: u64,
    ids: BTreeMap<u64, Option<FileId>>,
}

impl Files {
    /// For a program with its files below `root`: the table has the names that the program uses.
    pub(crate) fn below(root: Root) -> Self {
        Self { root, ..Self::default() }
    }

    pub(crate) fn host(&self, path: &Path) -> PathBuf {
        self.root.host(path)
    }

    /// Returns the id of an announced file; `None` if it was not announced or has no page cache.
    pub(crate) fn id(&self, key: u64) -> Option<FileId> {
        self.ids.get(&key).copied().flatten()
    }

    pub(crate) fn announce(&mut self, file: WireFile<'_>) -> Option<FileId> {
        let key = file.key;
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        if self.ids.len() >= NR_KEYS_MAX || file.path.len() > PATH_BYTES_MAX {
            self.nr_left_out += 1;
            return None;
        }
        let id = describe(file, &self.root).and_then(|info| self.add(info));
        self.ids.insert(key, id);
        id
    }

    fn add(&mut self, info: FileInfo) -> Option<FileId> {
        let bytes = self.table_bytes.saturating_add(json_bytes(&info));
        if self.table.len() >= NR_FILES_MAX || bytes > TABLE_BYTES_MAX {
            self.nr_left_out += 1;
            return None;
        }
        self.table_bytes = bytes;
        self.table.push(info);
        // NR_FILES_MAX fits in 32 bits.
        FileId::try_from(self.table.len() - 1).ok()
    }

    pub(crate) fn nr_left_out(&self) -> u64 {
        self.nr_left_out
    }

    pub(crate) fn add_path(&mut self, path: &Path) -> Option<FileId> {
        let metadata = path.metadata().ok()?;
        let birth = metadata.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
        let birth_ns = birth.map_or(0, |birth| {
            birth.as_secs().wrapping_mul(1_000_000_000).wrapping_add(birth.subsec_nanos().into())
        });
        let key = wire::file_key(metadata.dev(), metadata.ino(), birth_ns);
        let known = self.ids.get(&key).copied();
        known.unwrap_or_else(|| {
            let (size_bytes, holes) = (metadata.len(), holes_of(path, &metadata));
            let path = path.as_os_str().as_bytes();
            self.announce(WireFile { key, size_bytes, holes, path })
        })
    }

    /// Returns a file's size when it was first used.
    pub(crate) fn size_bytes(&self, id: FileId) -> u64 {
        // A FileId fits in usize.
        self.table.get(id as usize).map_or(0, |info| info.size_bytes)
    }

    pub(crate) fn rename(&mut self, id: FileId, path: &Path) {
        // A FileId fits in usize.
        if let Some(info) = self.table.get_mut(id as usize) {
            info.path = path.to_string_lossy().into_owned();
        }
    }

    pub(crate) fn into_table(self) -> Vec<FileInfo> {
        self.table
    }
}

pub(super) fn json_bytes(row: &impl Serialize) -> usize {
    serde_json::to_vec(row).map_or(0, |text| text.len())
}

/// Builds a file's row; `None` if its filesystem has no page cache.
fn describe(file: WireFile<'_>, root: &Root) -> Option<FileInfo> {
    let WireFile { size_bytes, holes, .. } = file;
    let path = Path::new(OsStr::from_bytes(file.path));
    let text = path.to_string_lossy();
    if let Some(name) = text.strip_prefix("/memfd:") {
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        return Some(FileInfo {
            path: format!("[memfd:{name}]"),
            size_bytes,
            build_id: String::new(),
            filesystem: "tmpfs".to_owned(),
            ..FileInfo::default()
        });
    }
    // A file that was deleted or moved was on the filesystem of its directory.
    let is_here = |path: &&Path| Here.place(path).is_some();
    let place = [Some(path), path.parent()].into_iter().flatten().find(is_here);
    let store = match place {
        Some(place) => Store::of(&Here, place)?,
        None => Store::default(),
    };
    let elf = Elf::read(path);
    let mut exec_reads = if elf.is_some() { exec_reads(path, false) } else { Vec::new() };
    exec_reads.retain(|(pos, len)| pos.saturating_add(*len) > FIRST_PAGE);
    let build_id = elf.map(|elf| elf.build_id).unwrap_or_default();
    let path = root.inside(path).to_string_lossy().into_owned();
    let Store { filesystem, through, block_bytes, disk } = store;
    let info = FileInfo { path, size_bytes, build_id, filesystem, ..FileInfo::default() };
    Some(FileInfo { through, block_bytes, disk, holes, exec_reads, ..info })
}

/// Returns the holes of a file, none if the user may not read it.
fn holes_of(path: &Path, metadata: &Metadata) -> Vec<(u64, u64)> {
    let size_bytes = metadata.len();
    match open_regular(path) {
        Ok(file) if metadata.blocks().saturating_mul(BLOCK_BYTES) < size_bytes => {
            holes::between(size_bytes, |edge, at| {
                let from = match edge {
                    Edge::Hole => SeekFrom::Hole(at),
                    Edge::Data => SeekFrom::Data(at),
                };
                seek(&file, from).ok()
            })
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    use super::*;

    fn memory(key: u64, path: &[u8]) -> WireFile<'_> {
        WireFile { key, size_bytes: 1, holes: Vec::new(), path }
    }

    #[test]
    fn holes_lie_between_data_and_at_the_end() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("sparse");
        let holes = || holes_of(&path, &path.metadata().unwrap());
        let file = File::create(&path).unwrap();
        file.set_len(1 << 20).unwrap();
        assert_eq!(holes(), [(0, 1 << 20)]);
        file.write_all_at(&[1; 4096], 256 << 10).unwrap();
        assert_eq!(holes(), [(0, 256 << 10), (260 << 10, 764 << 10)]);
        std::fs::write(&path, [1; 4096]).unwrap();
        assert_eq!(holes(), []);
    }

    #[test]
    fn files_without_room_have_no_id_and_are_counted() {
        let mut files = Files::default();
        assert_eq!(files.announce(memory(1, b"/memfd:x")), Some(0));
        assert_eq!(files.announce(memory(2, &[b'x'; PATH_BYTES_MAX + 1])), None);
        assert_eq!(files.nr_left_out(), 1);
        files.table_bytes = TABLE_BYTES_MAX - 1;
        assert_eq!(files.announce(memory(3, b"/memfd:y")), None);
        assert_eq!(files.announce(memory(1, b"/memfd:x")), Some(0), "it has its row");
        assert_eq!((files.nr_left_out(), files.into_table().len()), (2, 1));
    }
}

//! The file table of a recording.
//!
//! Owns dense ids for files, and what the table says of each: path, size, build id, filesystem.
//! Files of filesystems without a page cache (proc, sysfs, ..) get no id. Invariant I1: an id is
//! the row number in [`Files::into_table`].

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::UNIX_EPOCH;

use largefolio_trace::validate::NR_FILES_MAX;
use largefolio_trace::{FileId, FileInfo};

use super::elf::Elf;
use super::qemu::wire;

/// Magic numbers of statfs(2), from `linux/magic.h`.
const FILESYSTEMS: [(i64, &str); 16] = [
    (0xef53, "ext4"),
    (0x5846_5342, "xfs"),
    (0x9123_683e, "btrfs"),
    (0x0102_1994, "tmpfs"),
    (0x794c_7630, "overlayfs"),
    (0x6969, "nfs"),
    (0xf2f5_2010, "f2fs"),
    (0x2fc1_2fc1, "zfs"),
    (0xca45_1a4e, "bcachefs"),
    (0x7371_7368, "squashfs"),
    (0xe0f5_e1e2, "erofs"),
    (0x0102_1997, "9p"),
    (0x6573_5546, "fuse"),
    (0x8584_58f6, "ramfs"),
    (0x9584_58f6, "hugetlbfs"),
    (0x4d44, "vfat"),
];

/// Filesystems whose files are not in the page cache.
const WITHOUT_CACHE: [i64; 9] = [
    0x9fa0,      // proc
    0x6265_6572, // sysfs
    0x0027_e0eb, // cgroup
    0x6367_7270, // cgroup2
    0x6462_6720, // debugfs
    0x7472_6163, // tracefs
    0x7363_6673, // securityfs
    0xf97c_ff8c, // selinuxfs
    0xcafe_4a11, // bpf
];

/// Files seen so far.
#[derive(Debug, Default)]
pub(crate) struct Files {
    table: Vec<FileInfo>,
    ids: BTreeMap<u64, Option<FileId>>,
}

impl Files {
    /// The id of an announced file; `None` when it was not announced or has no page cache.
    pub(crate) fn id(&self, key: u64) -> Option<FileId> {
        self.ids.get(&key).copied().flatten()
    }

    /// Notes the file that the recorded process calls `path`.
    pub(crate) fn announce(&mut self, key: u64, size_bytes: u64, path: &[u8]) -> Option<FileId> {
        if let Some(known) = self.ids.get(&key) {
            return *known;
        }
        let name = OsStr::from_bytes(path);
        let info = describe(Path::new(name), size_bytes);
        let id = info.filter(|_| self.table.len() < NR_FILES_MAX).map(|info| {
            // NR_FILES_MAX fits 32 bits.
            let id = FileId::try_from(self.table.len()).unwrap_or(FileId::MAX);
            self.table.push(info);
            id
        });
        self.ids.insert(key, id);
        id
    }

    /// Notes the file at `path` as this process sees it.
    pub(crate) fn add_path(&mut self, path: &Path) -> Option<FileId> {
        let found = path.metadata().ok()?;
        let birth = found.created().ok().and_then(|birth| birth.duration_since(UNIX_EPOCH).ok());
        let birth_ns = birth.map_or(0, |birth| {
            birth.as_secs().wrapping_mul(1_000_000_000).wrapping_add(birth.subsec_nanos().into())
        });
        let key = wire::file_key(found.dev(), found.ino(), birth_ns);
        self.announce(key, found.len(), path.as_os_str().as_bytes())
    }

    /// The rows for the footer.
    pub(crate) fn into_table(self) -> Vec<FileInfo> {
        self.table
    }
}

/// The row of a file, `None` when its filesystem has no page cache.
fn describe(path: &Path, size_bytes: u64) -> Option<FileInfo> {
    let text = path.to_string_lossy();
    if let Some(name) = text.strip_prefix("/memfd:") {
        let name = name.strip_suffix(" (deleted)").unwrap_or(name);
        return Some(FileInfo {
            path: format!("[memfd:{name}]"),
            size_bytes,
            build_id: String::new(),
            filesystem: "tmpfs".to_owned(),
        });
    }
    let magic = rustix::fs::statfs(path).ok().map(|found| found.f_type);
    if magic.is_some_and(|magic| WITHOUT_CACHE.contains(&magic)) {
        return None;
    }
    let filesystem = magic.map_or_else(String::new, filesystem_name);
    let build_id = Elf::read(path).map(|elf| elf.build_id).unwrap_or_default();
    Some(FileInfo { path: text.into_owned(), size_bytes, build_id, filesystem })
}

fn filesystem_name(magic: i64) -> String {
    FILESYSTEMS
        .iter()
        .find(|(known, _)| *known == magic)
        .map_or_else(|| format!("{magic:#x}"), |(_, name)| (*name).to_owned())
}

//! A process's mappings, from `/proc/PID/maps`.
//!
//! Owns the only parser of such lines. Other processes influence the lines (any process can choose
//! file names and name its anonymous memory), so nothing in them is trusted.
//!
//! Invariants:
//! - M1: ranges are not empty, are multiples of the base page size, ascend and do not overlap. A
//!   line that violates this is dropped and counted.

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

const DELETED: &[u8] = b" (deleted)";

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Vma {
    pub range: Range<u64>,
    pub permissions: [u8; 4],
    /// File position of the first byte.
    pub pos: u64,
    /// The file's device, major and minor; 0 and 0 without a file.
    pub device: (u32, u32),
    /// The file's inode, 0 without a file.
    pub inode: u64,
    /// A file, `[name]`, or empty. Without the mark for deleted files.
    pub path: PathBuf,
    pub is_deleted: bool,
}

impl Vma {
    #[must_use]
    pub const fn is_exec(&self) -> bool {
        self.permissions[2] == b'x'
    }

    /// Whether it maps a file, including tmpfs and memfd.
    #[must_use]
    pub const fn has_file(&self) -> bool {
        self.inode != 0
    }

    /// Whether it is memfd, shared anonymous memory or System V, but not a file on tmpfs.
    pub(crate) fn is_nameless_shared(&self) -> bool {
        let name = self.path.as_os_str().as_bytes();
        // Shared anonymous memory that the program named (PR_SET_VMA_ANON_NAME).
        let is_named = self.has_file() && name.starts_with(b"[anon_shmem:");
        is_named
            || self.is_deleted
                && [&b"/memfd:"[..], b"/dev/zero", b"/SYSV"]
                    .iter()
                    .any(|start| name.starts_with(start))
    }

    #[must_use]
    pub fn prot(&self) -> u32 {
        let letters = [(b'r', 1), (b'w', 2), (b'x', 4)].into_iter().zip(self.permissions);
        letters.filter(|((letter, _), is)| letter == is).map(|((_, bit), _)| bit).sum()
    }

    /// Whether it is the heap, which only `brk` moves.
    pub(crate) fn is_heap(&self) -> bool {
        self.path.as_os_str() == "[heap]"
    }

    pub(crate) fn is_stack(&self) -> bool {
        self.path.as_os_str() == "[stack]"
    }

    /// Whether stores reach the file or other processes.
    #[must_use]
    pub const fn is_shared(&self) -> bool {
        self.permissions[3] == b's'
    }

    #[must_use]
    pub fn name(&self) -> Cow<'_, Path> {
        if !self.is_deleted {
            return Cow::Borrowed(&self.path);
        }
        let mut name = self.path.clone().into_os_string();
        name.push(OsStr::from_bytes(DELETED));
        Cow::Owned(name.into())
    }

    #[must_use]
    pub fn permission_text(&self) -> String {
        self.permissions.iter().map(|&byte| char::from(byte)).collect()
    }

    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    #[must_use]
    pub const fn pages(&self, page_bytes: u64) -> Range<u64> {
        self.range.start / page_bytes..self.range.end / page_bytes
    }

    /// Returns the address, below `bytes`, from which blocks of this size are counted. Shared
    /// memory uses its file's blocks at any address, because the kernel aligns its next mapping.
    #[must_use]
    pub const fn first_block(&self, bytes: u64) -> u64 {
        if self.is_shared() && self.has_file() {
            self.range.start.wrapping_sub(self.pos) % bytes
        } else {
            0
        }
    }

    /// Returns how many blocks of `bytes` are completely inside.
    #[must_use]
    pub const fn nr_whole_blocks(&self, bytes: u64) -> u64 {
        let first = self.first_block(bytes);
        let start = self.range.start.saturating_sub(first).div_ceil(bytes);
        (self.range.end.saturating_sub(first) / bytes).saturating_sub(start)
    }

    /// Whether addresses and file positions agree modulo `bytes`.
    #[must_use]
    pub const fn is_congruent(&self, bytes: u64) -> bool {
        self.range.start.wrapping_sub(self.pos).is_multiple_of(bytes)
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Maps {
    pub vmas: Vec<Vma>,
    pub nr_bad_lines: usize,
}

pub(crate) fn parse(text: &[u8], page_bytes: u64) -> Maps {
    let Maps { mut vmas, mut nr_bad_lines } = Maps::default();
    for line in text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let end = vmas.last().map_or(0, |vma| vma.range.end);
        match parse_line(line) {
            Some(vma)
                if vma.range.start >= end
                    && vma.range.start.is_multiple_of(page_bytes)
                    && vma.range.end.is_multiple_of(page_bytes) =>
            {
                vmas.push(vma);
            }
            _ => nr_bad_lines += 1,
        }
    }
    Maps { vmas, nr_bad_lines }
}

/// Parses `start-end perms pos major:minor inode   path`; only the path may contain spaces.
pub(super) fn parse_line(line: &[u8]) -> Option<Vma> {
    let mut rest = line;
    let mut field = || {
        let end = rest.iter().position(|byte| *byte == b' ').unwrap_or(rest.len());
        let (word, tail) = rest.split_at(end);
        rest = tail.trim_ascii_start();
        std::str::from_utf8(word).ok()
    };
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = field()?.split_once('-')?;
    let range = hex(start)?..hex(end)?;
    let permissions = field()?.as_bytes().try_into().ok()?;
    let pos = hex(field()?)?;
    let (major, minor) = field()?.split_once(':')?;
    let device = (u32::from_str_radix(major, 16).ok()?, u32::from_str_radix(minor, 16).ok()?);
    let inode = field()?.parse().ok()?;
    let is_deleted = inode != 0 && rest.ends_with(DELETED);
    let name = rest.strip_suffix(DELETED).filter(|_| is_deleted).unwrap_or(rest);
    let path = PathBuf::from(OsString::from_vec(unescape(name)));
    (!range.is_empty()).then_some(Vma { range, permissions, pos, device, inode, path, is_deleted })
}

/// The kernel escapes only newlines in a name, as `\012`.
fn unescape(name: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
    if !name.contains(&NEWLINE[0]) {
        return name.to_vec();
    }
    let mut plain = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((&first, tail)) = rest.split_first() {
        if let Some(tail) = rest.strip_prefix(NEWLINE) {
            plain.push(b'\n');
            rest = tail;
        } else {
            plain.push(first);
            rest = tail;
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one(line: &str) -> Option<Vma> {
        parse(line.as_bytes(), 4096).vmas.pop()
    }

    #[test]
    fn a_line_is_read_with_its_odd_name() {
        let vma = one("7f00-8f00 r-xp 00002000 fe:00 12   /a b\\012c (deleted)");
        assert_eq!(vma, None, "not a multiple of the page");
        let vma = one("7f000-8f000 r-xp 00002000 fe:01 12   /a b\\012c (deleted)").unwrap();
        assert_eq!((vma.range.clone(), vma.pos), (0x7f000..0x8f000, 0x2000));
        assert_eq!((vma.path.as_path(), vma.is_deleted), (Path::new("/a b\nc"), true));
        assert_eq!(vma.name(), Path::new("/a b\nc (deleted)"));
        assert_eq!((vma.device, vma.inode, vma.is_exec()), ((0xfe, 1), 12, true));
        assert_eq!((vma.prot(), vma.is_shared()), (5, false));
        let named = one("1000-2000 rw-s 00000000 00:00 0  [anon:x (deleted)]").unwrap();
        assert!(!named.is_deleted && !named.has_file() && named.is_shared());
    }

    #[test]
    fn lines_keep_spaces_in_names_and_guards_have_no_rights() {
        let text = b"00400000-00401000 r-xp 00002000 fe:00 12   /tmp/a b\nrubbish\n\
            7f0000000000-7f0000001000 ---p 00000000 00:00 0 \n";
        let Maps { vmas, nr_bad_lines } = parse(text, 4096);
        assert_eq!((vmas.len(), nr_bad_lines), (2, 1));
        assert_eq!((vmas[0].range.clone(), vmas[0].prot()), (0x40_0000..0x40_1000, 5));
        assert_eq!((vmas[0].pos, vmas[0].path.as_path()), (0x2000, Path::new("/tmp/a b")));
        assert_eq!((vmas[1].prot(), vmas[1].path.as_os_str().len()), (0, 0));
    }

    #[test]
    fn absurd_lines_are_counted_and_dropped() {
        let text = b"2000-1000 r--p 0 0:0 0\n\
            zz-10 r--p 0 0:0 0\n\
            1000-3000 r--p 0 0:0 0 \n\
            2000-4000 r--p 0 0:0 0 overlaps\n\
            3000-ffffffffffffffffff r--p 0 0:0 0\n\
            3000\n\
            ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]\n";
        let Maps { vmas, nr_bad_lines } = parse(text, 4096);
        assert_eq!((vmas.len(), nr_bad_lines), (2, 5));
        assert_eq!(vmas[1].path, Path::new("[vsyscall]"));
    }

    #[test]
    fn shared_memory_is_told_by_its_name_and_its_mark() {
        let is_nameless = |name: &str| {
            one(&format!("1000-2000 rw-s 00000000 00:01 7  {name}")).unwrap().is_nameless_shared()
        };
        for name in ["/memfd:x (deleted)", "/dev/zero (deleted)", "/SYSV00000000 (deleted)"] {
            assert!(is_nameless(name), "{name}");
        }
        assert!(is_nameless("[anon_shmem:opcache]"));
        let private = one("1000-2000 rw-p 00000000 00:00 0  [anon_shmem:x]").unwrap();
        assert!(!private.is_nameless_shared(), "a name, but not of shared memory");
        assert!(!is_nameless("/dev/zero") && !is_nameless("/tmp/x (deleted)"));
    }

    #[test]
    fn blocks_and_congruence_are_of_addresses_and_positions() {
        let vma = one("1ff000-500000 r-xp 00001000 fe:00 9 /x").unwrap();
        assert_eq!(vma.nr_whole_blocks(2 << 20), 1);
        assert_eq!(vma.nr_whole_blocks(64 << 10), 48);
        assert!(!vma.is_congruent(2 << 20) && vma.is_congruent(4096));
    }

    #[test]
    fn blocks_of_shared_memory_are_those_of_its_file_wherever_it_is_mapped() {
        let vma = |start: u64, kib: u64, pos: u64, how: &str| {
            let end = start + (kib << 10);
            one(&format!("{start:x}-{end:x} rw-{how} {pos:08x} 00:01 7  /dev/zero (deleted)"))
        };
        for start in [0x7f00_0020_0000, 0x7f00_0020_1000, 0x7f00_003f_f000] {
            assert_eq!(vma(start, 4416, 0, "s").unwrap().nr_whole_blocks(2 << 20), 2);
            assert_eq!(vma(start, 4096, 0x1000, "s").unwrap().nr_whole_blocks(2 << 20), 1);
            let private = vma(start, 4096, 0, "p").unwrap();
            let expected = if start % (2 << 20) == 0 { 2 } else { 1 };
            assert_eq!(private.nr_whole_blocks(2 << 20), expected, "private memory stays");
        }
    }
}

//! The mappings of a process, from `/proc/PID/maps`.
//!
//! Owns the parser. A line comes from another process's doing - names of files are chosen by anyone,
//! and a process may set names of its anonymous memory - so nothing in it is trusted.
//!
//! Invariants:
//! - M1: ranges are not empty, multiples of the base page, ascending and free of overlaps; a line
//!   that breaks this is dropped and counted.

use std::ffi::OsString;
use std::ops::Range;
use std::os::unix::ffi::OsStringExt as _;
use std::path::PathBuf;

/// How the kernel marks the name of a file that was deleted.
const DELETED: &[u8] = b" (deleted)";

/// One mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Vma {
    /// Addresses in bytes.
    pub range: Range<u64>,
    /// `r-xp`, as in maps.
    pub permissions: [u8; 4],
    /// Position of the first byte in the file.
    pub pos: u64,
    /// Device of the file, major and minor; 0 and 0 where there is none.
    pub device: (u32, u32),
    /// Inode number of the file, 0 where there is none.
    pub inode: u64,
    /// File, `[name]`, or empty. Without the mark of deleted files.
    pub path: PathBuf,
    /// The file has no name any more.
    pub is_deleted: bool,
}

impl Vma {
    /// Whether it may be executed.
    #[must_use]
    pub const fn is_exec(&self) -> bool {
        self.permissions[2] == b'x'
    }

    /// Whether it maps a file, of tmpfs and memfd too.
    #[must_use]
    pub const fn has_file(&self) -> bool {
        self.inode != 0
    }

    /// `r-xp`.
    #[must_use]
    pub fn permission_text(&self) -> String {
        self.permissions.iter().map(|&byte| char::from(byte)).collect()
    }

    /// Length in bytes.
    #[must_use]
    pub const fn len_bytes(&self) -> u64 {
        self.range.end - self.range.start
    }

    /// Naturally aligned blocks of `bytes` that lie wholly inside.
    #[must_use]
    pub const fn nr_whole_blocks(&self, bytes: u64) -> u64 {
        let first = self.range.start.div_ceil(bytes);
        (self.range.end / bytes).saturating_sub(first)
    }

    /// Whether addresses and file positions are aligned alike mod `bytes`.
    #[must_use]
    pub const fn is_congruent(&self, bytes: u64) -> bool {
        self.range.start.wrapping_sub(self.pos).is_multiple_of(bytes)
    }
}

/// The mappings of a maps file, and how many of its lines were none.
#[must_use]
pub fn parse(text: &[u8], page_bytes: u64) -> (Vec<Vma>, usize) {
    let mut vmas: Vec<Vma> = Vec::new();
    let mut nr_bad = 0;
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
            _ => nr_bad += 1,
        }
    }
    (vmas, nr_bad)
}

/// `start-end perms pos major:minor inode   path`, of which only the path may hold spaces.
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

/// The kernel writes a newline in a name as `\012` and nothing else so.
fn unescape(name: &[u8]) -> Vec<u8> {
    const NEWLINE: &[u8] = b"\\012";
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
    use std::path::Path;

    use super::*;

    fn one(line: &str) -> Option<Vma> {
        parse(line.as_bytes(), 4096).0.pop()
    }

    #[test]
    fn a_line_is_read_with_its_odd_name() {
        let vma = one("7f00-8f00 r-xp 00002000 fe:00 12   /a b\\012c (deleted)");
        assert_eq!(vma, None, "not a multiple of the page");
        let vma = one("7f000-8f000 r-xp 00002000 fe:01 12   /a b\\012c (deleted)").unwrap();
        assert_eq!((vma.range.clone(), vma.pos), (0x7f000..0x8f000, 0x2000));
        assert_eq!((vma.path.as_path(), vma.is_deleted), (Path::new("/a b\nc"), true));
        assert_eq!((vma.device, vma.inode, vma.is_exec()), ((0xfe, 1), 12, true));
        let named = one("1000-2000 rw-p 00000000 00:00 0  [anon:x (deleted)]").unwrap();
        assert!(!named.is_deleted && !named.has_file());
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
        let (vmas, nr_bad) = parse(text, 4096);
        assert_eq!((vmas.len(), nr_bad), (2, 5));
        assert_eq!(vmas[1].path, Path::new("[vsyscall]"));
    }

    #[test]
    fn blocks_and_congruence_are_of_addresses_and_positions() {
        let vma = one("1ff000-500000 r-xp 00001000 fe:00 9 /x").unwrap();
        assert_eq!(vma.nr_whole_blocks(2 << 20), 1);
        assert_eq!(vma.nr_whole_blocks(64 << 10), 48);
        assert!(!vma.is_congruent(2 << 20) && vma.is_congruent(4096));
    }
}

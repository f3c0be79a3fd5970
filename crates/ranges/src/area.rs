//! The process's mappings, from `/proc/self/smaps`.
//!
//! Reading it costs a walk over the page tables of every mapping up to the range, about 7 ms per
//! GiB in base pages. No cheaper file tells the advice.

use core::mem;

use crate::fd::Fd;
use crate::files::{MAPS, SMAPS};
use crate::range::Range;
use crate::sys::Result;
use crate::text::{field, has_word, number};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Private,
    /// A file or shared memory: other rules than for private memory decide.
    File,
    Hugetlb,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Area {
    pub(crate) range: Range,
    pub(crate) kind: Kind,
    pub(crate) is_advised: bool,
    pub(crate) is_advised_against: bool,
    /// Bytes of the area that PMD entries map.
    pub(crate) huge_bytes: u64,
}

impl Area {
    /// Parses `START-END PERMISSIONS OFFSET DEVICE INODE PATH`.
    fn parse(line: &[u8]) -> Option<Self> {
        let mut rest = line;
        let start = usize::try_from(number::<16>(field(&mut rest, b'-')?)?).ok()?;
        let end = usize::try_from(number::<16>(field(&mut rest, b' ')?)?).ok()?;
        let permissions = field(&mut rest, b' ')?;
        field(&mut rest, b' ')?;
        field(&mut rest, b' ')?;
        // Ends with a space, also if there is no path.
        let inode = number::<10>(field(&mut rest, b' ')?)?;
        let is_file = inode != 0 || permissions.last() == Some(&b's');
        (start < end).then(|| Self {
            range: Range::of_pages(start, end),
            kind: if is_file { Kind::File } else { Kind::Private },
            is_advised: false,
            is_advised_against: false,
            huge_bytes: 0,
        })
    }

    /// Takes a line `NAME: VALUE`. Returns whether it is the area's last.
    fn take(&mut self, line: &[u8]) -> bool {
        const HUGE: [&[u8]; 3] = [b"AnonHugePages:", b"ShmemPmdMapped:", b"FilePmdMapped:"];
        for name in HUGE {
            if let Some(value) = line.strip_prefix(name) {
                let kib = value.trim_ascii().split(|byte| *byte == b' ').next();
                let kib = kib.and_then(number::<10>).unwrap_or(0);
                self.huge_bytes = self.huge_bytes.saturating_add(kib.saturating_mul(1024));
            }
        }
        let Some(flags) = line.strip_prefix(b"VmFlags:") else { return false };
        self.is_advised = has_word(flags, b"hg");
        self.is_advised_against = has_word(flags, b"nh");
        if has_word(flags, b"ht") {
            self.kind = Kind::Hugetlb;
        }
        true
    }
}

/// Calls `each` with every mapping that has pages of the range, in ascending order.
pub(crate) fn each(range: Range, each: &mut dyn FnMut(&Area) -> Result<()>) -> Result<()> {
    let mut lines = Lines::new(Fd::open(SMAPS, libc::O_RDONLY)?);
    let mut area: Option<Area> = None;
    while let Some(line) = lines.next()? {
        if line.first().is_some_and(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f')) {
            area = Area::parse(line).filter(|area| area.range.overlap(&range).is_some());
            if Area::parse(line).is_some_and(|area| area.range.start() >= range.end()) {
                break;
            }
        } else if let Some(found) = &mut area
            && found.take(line)
        {
            each(found)?;
            area = None;
        }
    }
    Ok(())
}

/// Returns whether no part of the range is a file's or shared. Walks no page table.
pub(crate) fn is_private(range: Range) -> Result<bool> {
    let mut lines = Lines::new(Fd::open(MAPS, libc::O_RDONLY)?);
    while let Some(line) = lines.next()? {
        let Some(area) = Area::parse(line) else { continue };
        if area.kind == Kind::File && area.range.overlap(&range).is_some() {
            return Ok(false);
        }
        if area.range.start() >= range.end() {
            break;
        }
    }
    Ok(true)
}

/// Holds every line but the longest paths'.
const LINE_BYTES_MAX: usize = 2048;

/// Lines of a file, through a buffer of fixed size. Only a path can be longer; then its line ends
/// at the buffer's end.
struct Lines {
    file: Fd,
    buffer: [u8; LINE_BYTES_MAX],
    start: usize,
    end: usize,
    is_at_end: bool,
    /// Whether the next line is cut.
    is_cut: bool,
    /// Whether the next line is the rest of a cut one.
    is_rest: bool,
}

impl Lines {
    const fn new(file: Fd) -> Self {
        Self {
            file,
            buffer: [0; LINE_BYTES_MAX],
            start: 0,
            end: 0,
            is_at_end: false,
            is_cut: false,
            is_rest: false,
        }
    }

    fn next(&mut self) -> Result<Option<&[u8]>> {
        loop {
            let kept = self.buffer.get(self.start..self.end).unwrap_or(&[]);
            if let Some(len) = kept.iter().position(|byte| *byte == b'\n') {
                let start = self.start;
                self.start = start + len + 1;
                let is_cut = mem::take(&mut self.is_cut);
                if mem::replace(&mut self.is_rest, is_cut) {
                    continue;
                }
                return Ok(self.buffer.get(start..start + len));
            }
            if self.is_at_end {
                return Ok(None);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<()> {
        self.buffer.copy_within(self.start..self.end, 0);
        (self.start, self.end) = (0, self.end - self.start);
        if self.end == self.buffer.len() {
            // A line longer than the buffer: its rest is dropped. A path must not look like a line.
            self.is_cut = true;
            if let Some(last) = self.buffer.last_mut() {
                *last = b'\n';
            }
            return Ok(());
        }
        let free = self.buffer.get_mut(self.end..).unwrap_or(&mut []);
        let nr = self.file.read(free)?;
        self.end += nr;
        self.is_at_end = nr == 0;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mapping_is_read_from_its_lines() {
        let mut area = Area::parse(b"7f0000200000-7f0000600000 rw-p 00000000 00:00 0 ").unwrap();
        assert_eq!((area.range.start(), area.range.len()), (0x7f00_0020_0000, 4 << 20));
        assert_eq!(area.kind, Kind::Private);
        assert!(!area.take(b"AnonHugePages:      2048 kB"));
        assert!(!area.take(b"ShmemPmdMapped:        0 kB"));
        assert!(!area.take(b"AnonHugePages:  99999999999999999999999 kB"));
        assert!(area.take(b"VmFlags: rd wr mr mw me ac sd hg "));
        assert_eq!((area.huge_bytes, area.is_advised), (2 << 20, true));
        assert!(!area.is_advised_against);
    }

    #[test]
    fn files_and_hugetlb_pages_are_told_apart() {
        let shared = Area::parse(b"1000-2000 rw-s 00000000 00:01 77  /dev/zero (deleted)").unwrap();
        assert_eq!(shared.kind, Kind::File);
        let mut huge = Area::parse(b"1000-2000 rw-p 00000000 00:10 12  /anon_hugepage").unwrap();
        huge.take(b"VmFlags: rd wr ht nh ");
        assert_eq!((huge.kind, huge.is_advised_against), (Kind::Hugetlb, true));
        for line in [&b"2000-1000 rw-p 0 0:0 0 "[..], b"x", b"", b"1000-2000", b"1000-2000 rw-p 0 "]
        {
            assert_eq!(Area::parse(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn the_rest_of_a_long_path_is_no_line() {
        let path = std::env::temp_dir().join(std::format!("lines-{}", std::process::id()));
        let long = std::vec![b'1'; 3 * LINE_BYTES_MAX];
        std::fs::write(&path, [b"a\n", &long[..], b"\nb\n"].concat()).unwrap();
        let name = std::ffi::CString::new(path.to_str().unwrap()).unwrap();
        let mut lines = Lines::new(Fd::open(&name, libc::O_RDONLY).unwrap());
        std::fs::remove_file(&path).unwrap();
        let mut lens = std::vec![];
        while let Some(line) = lines.next().unwrap() {
            lens.push(line.len());
        }
        assert_eq!(lens, [1, LINE_BYTES_MAX - 1, 1]);
    }

    #[test]
    fn the_mapping_of_a_value_is_found() {
        let memory = std::vec![1_u8; 1 << 20];
        let (range, mut nr_bytes) = (Range::of(&memory), 0);
        each(range, &mut |area| {
            nr_bytes += area.range.overlap(&range).unwrap().len();
            Ok(())
        })
        .unwrap();
        assert_eq!(nr_bytes, range.len());
    }
}

//! `/proc/PID/smaps`: the areas of a process and how they are mapped.
//!
//! Owns the reading. A line that is not understood is passed over: the file grows with kernels.

use std::fs;
use std::io;
use std::path::Path;

/// One area.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Vma {
    /// First address.
    pub(crate) start: u64,
    /// Address after the last.
    pub(crate) end: u64,
    /// `r-xp`.
    pub(crate) flags: String,
    /// Position in the file.
    pub(crate) pos: u64,
    /// Number of the file, 0 for none.
    pub(crate) inode: u64,
    /// What the kernel calls it; empty for anonymous memory without a name.
    pub(crate) name: String,
    /// Resident.
    pub(crate) resident_bytes: u64,
    /// Anonymous memory mapped by PMD entries.
    pub(crate) anon_huge_bytes: u64,
    /// Shared memory mapped by PMD entries.
    pub(crate) shmem_huge_bytes: u64,
    /// File memory mapped by PMD entries.
    pub(crate) file_huge_bytes: u64,
}

impl Vma {
    /// Whether it is mapped to be executed.
    pub(crate) fn is_text(&self) -> bool {
        self.flags.as_bytes().get(2) == Some(&b'x')
    }
}

/// Reads the areas; empty for a process that has none any more.
pub(crate) fn read(path: &Path) -> io::Result<Vec<Vma>> {
    // Names of files need not be UTF-8.
    let bytes = fs::read(path)?;
    Ok(parse(&String::from_utf8_lossy(&bytes)))
}

fn parse(text: &str) -> Vec<Vma> {
    let mut areas: Vec<Vma> = Vec::new();
    for line in text.lines() {
        if let Some(vma) = header(line) {
            areas.push(vma);
        } else if let Some(vma) = areas.last_mut() {
            field(vma, line);
        }
    }
    areas
}

/// `55d0-55e0 r-xp 00001000 fe:00 131 /usr/bin/true`.
fn header(line: &str) -> Option<Vma> {
    let mut words = line.splitn(6, ' ');
    let (start, end) = words.next()?.split_once('-')?;
    let hex = |word: &str| u64::from_str_radix(word, 16).ok();
    let (start, end) = (hex(start)?, hex(end)?);
    let flags = words.next()?.to_owned();
    let pos = hex(words.next()?)?;
    let inode = words.nth(1)?.parse().ok()?;
    let name = words.next().unwrap_or_default().trim_start().to_owned();
    Some(Vma { start, end, flags, pos, inode, name, ..Vma::default() })
}

/// `AnonHugePages:      2048 kB`.
fn field(vma: &mut Vma, line: &str) {
    let Some((key, value)) = line.split_once(':') else { return };
    let counter = match key {
        "Rss" => &mut vma.resident_bytes,
        "AnonHugePages" => &mut vma.anon_huge_bytes,
        "ShmemPmdMapped" => &mut vma.shmem_huge_bytes,
        "FilePmdMapped" => &mut vma.file_huge_bytes,
        _ => return,
    };
    let kib = value.trim().strip_suffix(" kB").and_then(|kib| kib.trim().parse::<u64>().ok());
    *counter = kib.unwrap_or(0).saturating_mul(1024);
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "\
00400000-00800000 r-xp 00001000 fe:00 131 /opt/my program
Size:               4096 kB
Rss:                3000 kB
FilePmdMapped:      2048 kB
VmFlags: rd ex mr mw me
7f00-7fff rw-p 00000000 00:00 0 
Rss: x kB
AnonHugePages:         0 kB
";

    #[test]
    fn areas_have_their_numbers() {
        let areas = parse(TEXT);
        assert_eq!(areas.len(), 2);
        let text = &areas[0];
        assert_eq!((text.start, text.end, text.inode), (0x40_0000, 0x80_0000, 131));
        assert_eq!((text.name.as_str(), text.is_text()), ("/opt/my program", true));
        assert_eq!((text.resident_bytes, text.file_huge_bytes), (3000 << 10, 2 << 20));
        assert_eq!((areas[1].name.as_str(), areas[1].resident_bytes), ("", 0));
    }

    #[test]
    fn this_process_has_text() {
        let areas = read(Path::new("/proc/self/smaps")).unwrap();
        assert!(areas.iter().any(Vma::is_text));
    }
}

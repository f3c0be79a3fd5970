//! `/proc/PID/smaps`: resident memory, page table level and advice of each mapping.
//!
//! Owns the parser. To produce this file, the kernel walks all pages, so a census reads it only if
//! needed.
//!
//! Invariant M2: mappings ascend and do not overlap. After a line that violates this, fields are
//! ignored until the next mapping.

use super::maps::{self, Vma};

/// Whether KSM merges a mapping's pages now, and which call asked for it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Merging {
    #[default]
    No,
    /// The program, with `MADV_MERGEABLE`.
    Advised,
    /// The process or its parent, for all memory (`PR_SET_MEMORY_MERGE`).
    Process,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent flags of the kernel")]
pub struct Smap {
    pub vma: Vma,
    pub rss_bytes: u64,
    /// Its share of the resident pages: a page mapped N times counts 1/N in each.
    pub pss_bytes: u64,
    pub swap_bytes: u64,
    /// In pages that were used since their accessed bits were cleared, or ever.
    pub referenced_bytes: u64,
    /// Bytes that one of its page table entries maps at least: more than a base page only for
    /// hugetlb.
    pub page_bytes: u64,
    pub anon_bytes: u64,
    /// Also resident in other processes.
    pub shared_bytes: u64,
    pub anon_pmd_bytes: u64,
    pub shmem_pmd_bytes: u64,
    pub file_pmd_bytes: u64,
    pub hugetlb_bytes: u64,
    pub is_no_huge: bool,
    pub is_huge: bool,
    /// `THPeligible`: anonymous memory here may get large folios; `None` if not shown.
    pub is_eligible: Option<bool>,
    /// THP is disabled for the process. smaps does not show this.
    pub is_disabled: bool,
    pub is_hugetlb: bool,
    /// Device memory, or pages that the kernel cannot move (`io`, `pf`, `mm`).
    pub is_device: bool,
    /// userfaultfd handles missing pages (`um`).
    pub awaits_missing: bool,
    /// userfaultfd handles minor faults (`ui`).
    pub awaits_minor: bool,
    /// userfaultfd write-protects pages (`uw`).
    pub is_write_tracked: bool,
    /// KSM may merge its pages (`mg`).
    pub is_mergeable: bool,
    /// It is mergeable, and KSM runs. smaps does not show this.
    pub merging: Merging,
    /// Bytes of pages that KSM merged (Linux 6.7).
    pub merged_bytes: u64,
}

impl Smap {
    #[must_use]
    pub const fn pmd_bytes(&self) -> u64 {
        self.anon_pmd_bytes.saturating_add(self.shmem_pmd_bytes).saturating_add(self.file_pmd_bytes)
    }
}

/// Parses the mappings of a smaps file in order; skips unreadable lines.
#[must_use]
pub fn parse(text: &[u8]) -> Vec<Smap> {
    let mut smaps: Vec<Smap> = Vec::new();
    let mut is_known = false;
    for line in text.split(|byte| *byte == b'\n') {
        if let Some((key, value)) = field(line) {
            if let Some(smap) = smaps.last_mut().filter(|_| is_known) {
                set(smap, key, value);
            }
        } else if !line.is_empty() {
            let end = smaps.last().map_or(0, |smap| smap.vma.range.end);
            let vma = maps::parse_line(line).filter(|vma| vma.range.start >= end);
            // A mapping's line, even if not understood. Other unknown lines come from later
            // kernels.
            is_known = vma.is_some() || is_known && !is_of_mapping(line);
            smaps.extend(vma.map(|vma| Smap { vma, ..Smap::default() }));
        }
    }
    smaps
}

#[must_use]
pub fn find(smaps: &[Smap], start: u64) -> Option<&Smap> {
    smaps.binary_search_by_key(&start, |smap| smap.vma.range.start).ok().map(|at| &smaps[at])
}

fn is_of_mapping(line: &[u8]) -> bool {
    line.split(|byte| *byte == b' ').next().is_some_and(|word| word.contains(&b'-'))
}

/// Splits `Name:  value`. A mapping's own line has its first colon in the device number.
fn field(line: &[u8]) -> Option<(&str, &str)> {
    let colon = line.iter().position(|byte| *byte == b':')?;
    let key = std::str::from_utf8(&line[..colon]).ok()?;
    let is_name = key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let value = std::str::from_utf8(&line[colon + 1..]).ok()?;
    is_name.then_some((key, value.trim()))
}

fn set(smap: &mut Smap, key: &str, value: &str) {
    let bytes = || {
        let kib: Option<u64> = value.strip_suffix("kB").and_then(|kib| kib.trim().parse().ok());
        kib.unwrap_or(0).saturating_mul(1 << 10)
    };
    match key {
        "Rss" => smap.rss_bytes = bytes(),
        "Pss" => smap.pss_bytes = bytes(),
        "Swap" => smap.swap_bytes = bytes(),
        "Referenced" => smap.referenced_bytes = bytes(),
        "KernelPageSize" => smap.page_bytes = bytes(),
        "Anonymous" => smap.anon_bytes = bytes(),
        "Shared_Clean" | "Shared_Dirty" => {
            smap.shared_bytes = smap.shared_bytes.saturating_add(bytes());
        }
        "KSM" => smap.merged_bytes = bytes(),
        "AnonHugePages" => smap.anon_pmd_bytes = bytes(),
        "ShmemPmdMapped" => smap.shmem_pmd_bytes = bytes(),
        "FilePmdMapped" => smap.file_pmd_bytes = bytes(),
        "Shared_Hugetlb" | "Private_Hugetlb" => {
            smap.hugetlb_bytes = smap.hugetlb_bytes.saturating_add(bytes());
        }
        "THPeligible" => smap.is_eligible = Some(value == "1"),
        "VmFlags" => value.split(' ').for_each(|flag| set_flag(smap, flag)),
        _ => {}
    }
}

/// Applies one word of `VmFlags` (Documentation/filesystems/proc.rst).
fn set_flag(smap: &mut Smap, flag: &str) {
    match flag {
        "nh" => smap.is_no_huge = true,
        "hg" => smap.is_huge = true,
        "ht" => smap.is_hugetlb = true,
        "io" | "pf" | "mm" => smap.is_device = true,
        "um" => smap.awaits_missing = true,
        "ui" => smap.awaits_minor = true,
        "uw" => smap.is_write_tracked = true,
        "mg" => smap.is_mergeable = true,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_belong_to_the_line_before_them() {
        let text = b"1000-3000 rw-p 00000000 00:00 0   [anon:a: b]\n\
            Rss:                   8 kB\nReferenced: 4 kB\nAnonHugePages:      2048 kB\nPrivate_Hugetlb: 4 kB\n\
            THPeligible:           1\nVmFlags: rd wr mr hg \n\
            5000-6000 r-xp 00000000 fe:00 7   /x\nRss: 99999999999999999999 kB\nVmFlags: rd ex nh\n";
        let smaps = parse(text);
        assert_eq!(smaps.len(), 2);
        let first = find(&smaps, 0x1000).unwrap();
        assert_eq!(
            (first.rss_bytes, first.pmd_bytes(), first.hugetlb_bytes, first.referenced_bytes),
            (8192, 2 << 20, 4096, 4096)
        );
        assert!(first.is_huge && first.is_eligible == Some(true) && !first.is_no_huge);
        let second = find(&smaps, 0x5000).unwrap();
        assert!(second.is_no_huge && second.rss_bytes == 0 && find(&smaps, 0x3000).is_none());
    }

    #[test]
    fn mappings_have_their_numbers() {
        let text = b"00400000-00800000 r-xp 00001000 fe:00 131 /opt/my program\n\
            Size:               4096 kB\nRss:                3000 kB\n\
            FilePmdMapped:      2048 kB\nVmFlags: rd ex mr mw me\n\
            900000-a00000 rw-p 00000000 00:00 0 \nRss: x kB\nAnonHugePages:         0 kB\n";
        let smaps = parse(text);
        assert_eq!(smaps.len(), 2);
        let vma = &smaps[0].vma;
        assert_eq!((vma.range.clone(), vma.inode), (0x40_0000..0x80_0000, 131));
        assert!(vma.is_exec() && vma.path == std::path::Path::new("/opt/my program"));
        assert_eq!((smaps[0].rss_bytes, smaps[0].file_pmd_bytes), (3000 << 10, 2 << 20));
        assert_eq!((smaps[1].vma.path.as_os_str().len(), smaps[1].rss_bytes), (0, 0));
    }

    #[test]
    fn fields_of_a_line_that_is_none_are_nobodys() {
        let text = b"Rss: 4 kB\n1000-3000 rw-p 0 0:0 0\nRss: 8 kB\n2000-4000 rw-p 0 0:0 0\n\
            Rss: 16 kB\nrubbish \xff\nRss: 32 kB\n\n4000-5000 r-xp 0 fe:0 9 /a b\nRss: x kB\n\
            Rss:\nAnonymous: 4\nShmemPmdMapped:2 kB";
        let smaps = parse(text);
        assert_eq!(smaps.len(), 2, "{smaps:?}");
        assert_eq!((smaps[0].rss_bytes, smaps[1].rss_bytes), (8 << 10, 0));
        assert_eq!((smaps[1].anon_bytes, smaps[1].shmem_pmd_bytes), (0, 2 << 10));
        assert_eq!(smaps[1].vma.path, std::path::Path::new("/a b"));
    }

    #[test]
    fn sums_of_absurd_sizes_do_not_overflow() {
        let kib = u64::MAX;
        let text = format!(
            "1000-3000 rw-p 0 0:0 0\nPrivate_Hugetlb: {kib} kB\nShared_Hugetlb: {kib} kB\n\
             AnonHugePages: {kib} kB\nFilePmdMapped: {kib} kB\n"
        );
        assert_eq!(parse(text.as_bytes())[0].pmd_bytes(), u64::MAX);
    }
}

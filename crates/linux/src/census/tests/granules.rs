//! Remedies with base pages of 16K and 64K: memory is judged by contpte blocks of 2M. A remedy that
//! makes only PMD folios (32M, 512M) says so.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use super::remedies::Answers;
use super::{edited, finding, judged_with};
use crate::geometry::Geometry;
use crate::remedies::{Action, Remedy};
use crate::shell::as_root;

const K: u64 = 1 << 10;
const M: u64 = 1 << 20;
/// An address that is a multiple of every PMD entry, and one that is a multiple of none.
const ALIGNED: u64 = 0x4000_0000;
const UNALIGNED: u64 = 0x4001_0000;

struct Private {
    page_bytes: u64,
    start: u64,
    bytes: u64,
    name: &'static str,
}

impl Private {
    fn write(&self, dir: &Path) {
        let page = self.page_bytes;
        fs::write(dir.join("page_bytes"), page.to_string()).unwrap();
        let end = self.start + self.bytes;
        let text = "00400000-00500000 r-xp 00000000 fe:00 11 /usr/lib/libc.so.6\n";
        let line = format!("{:x}-{end:x} rw-p 00000000 00:00 0 {}\n", self.start, self.name);
        let mut smaps = text.to_owned();
        for (line, kb) in [("", 0), (line.as_str(), self.bytes >> 10)] {
            let _ = write!(smaps, "{line}Rss: {kb} kB\nAnonymous: {kb} kB\nVmFlags: rd wr ac \n");
        }
        fs::write(dir.join("100/maps"), format!("{text}{line}")).unwrap();
        fs::write(dir.join("100/smaps"), smaps).unwrap();
        let (first, nr) = (self.start / page, self.bytes / page);
        let pages = format!("scan\n{first:x} {nr:x} 8000000000008000 1\n");
        fs::write(dir.join("100/pagemap"), pages).unwrap();
        fs::write(dir.join("kpageflags"), format!("8000 {nr:x} 5828\nend 20000\n")).unwrap();
    }

    fn remedies(&self) -> Vec<Remedy> {
        let (_dir, system) = edited("6.18", |dir| self.write(dir));
        let judged = judged_with(&system, 100, &Answers::default());
        let target = finding(&judged, self.start).expect("it could be larger");
        assert_eq!(target.target_bytes, 2 * M, "{} K", self.page_bytes / K);
        target.remedies.clone()
    }
}

fn collapsed(page_bytes: u64, bytes: u64) -> Option<(u64, u64)> {
    let remedies = Private { page_bytes, start: ALIGNED, bytes, name: "" }.remedies();
    let one = remedies.iter().find(|remedy| remedy.action == Action::Collapse)?;
    Some((one.gain_bytes, one.folio_bytes))
}

#[test]
fn collapse_says_the_folios_that_it_makes() {
    for (page_kb, pmd_mb) in [(4, 2), (16, 32), (64, 512)] {
        let (page, pmd) = (page_kb * K, pmd_mb * M);
        assert_eq!(Geometry::arm64(page).pmd_bytes(), pmd);
        assert_eq!(collapsed(page, pmd), Some((pmd, pmd)), "{page_kb}K");
        let short = (page > 4 * K).then(|| collapsed(page, pmd - page)).flatten();
        assert_eq!(short, None, "no whole block of {pmd_mb}M");
    }
}

fn at_the_next_start(private: &Private) -> (String, u64) {
    let remedies = private.remedies();
    let last = remedies.last().unwrap();
    (last.to_string(), last.folio_bytes)
}

#[test]
fn the_tunable_of_malloc_is_named_for_what_it_advises() {
    let setting = as_root("folio tune --set thp.enabled=always --yes, then restart the program");
    let option = "restart the program as: GLIBC_TUNABLES=glibc.malloc.hugetlb=1 libc.so.6 ..";
    for (page_kb, pmd_mb) in [(16, 32), (64, 512)] {
        let of = |start, bytes, name| {
            at_the_next_start(&Private { page_bytes: page_kb * K, start, bytes, name })
        };
        // A program's own mapping of 16 MiB that starts where a malloc mapping could.
        assert_eq!(of(UNALIGNED, 16 * M, ""), (setting.clone(), 2 * M), "{page_kb}K");
        assert_eq!(of(UNALIGNED, pmd_mb * M, ""), (option.to_owned(), 2 * M), "{page_kb}K");
        assert_eq!(of(UNALIGNED, 16 * M, "[heap]"), (option.to_owned(), 2 * M), "{page_kb}K");
    }
}

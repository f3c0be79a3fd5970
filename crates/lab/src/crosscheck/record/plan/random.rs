//! Random workloads, drawn from a seed.
//!
//! Draws the file's length, its mappings and descriptors, and the actions on it. The result is
//! words that a user could type ([`Custom`]), so each workload can be repeated by itself.
//!
//! Invariants:
//! - D1: the same seed, base page size and readahead windows produce the same workload everywhere.
//! - D2: touches stay below the end of the file, stores go only to writable pages, and written
//!   pages are never executed. Otherwise the program would be killed.

mod actions;

use super::super::workloads::{Filesystem, Workload};
use super::Custom;
use actions::Actions;

/// Readahead windows in KiB: those of common disks, and odd ones.
const WINDOWS_KB: [u64; 18] =
    [4, 8, 12, 16, 32, 64, 100, 128, 128, 128, 256, 260, 512, 1024, 1028, 2048, 2560, 4096];
/// The longest file: a bit more than a PMD folio of 16K pages.
const LONGEST_BYTES: u64 = 40 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Random {
    pub nr: u64,
    /// The first workload's seed; the others follow.
    pub seed: u64,
}

impl Random {
    /// Draws the workloads for base pages of `page` bytes, on `filesystems` in turn and with one of
    /// `windows_kb`; without any, draws windows from 4 KiB to 4 MiB.
    #[must_use]
    pub fn workloads(
        self,
        filesystems: &[Filesystem],
        windows_kb: &[u64],
        page: u64,
    ) -> Vec<Workload> {
        let one = |seed: u64| {
            let nr = filesystems.len().max(1) as u64;
            let at = usize::try_from(seed % nr).unwrap_or(0);
            let mut draw = Draw::new(seed);
            let window = draw.of(if windows_kb.is_empty() { &WINDOWS_KB } else { windows_kb });
            let custom = custom(&mut draw, seed, page);
            filesystems.get(at).map(|&filesystem| custom.workload(filesystem, window))
        };
        (0..self.nr).filter_map(|nr| one(self.seed.wrapping_add(nr))).collect()
    }
}

fn custom(draw: &mut Draw, seed: u64, page: u64) -> Custom {
    let mut custom = Custom::empty(length(draw, page).min(LONGEST_BYTES));
    custom.set("seed", &seed.to_string());
    let nr_pages = custom.own_bytes.div_ceil(page);
    let nr_opens = draw.of(&[1, 1, 1, 2, 2, 3]);
    custom.set("opens", &nr_opens.to_string());
    let mut actions = Actions::new(draw, page, custom.own_bytes, nr_opens);
    if actions.draw.below(10) < 3 {
        custom.set("map", "none");
    } else {
        let first = first_mapping(actions.draw, nr_pages, &mut custom);
        actions.add_mapping(first);
        if actions.draw.below(3) == 0 {
            let (second, word) = second_mapping(actions.draw, nr_pages, nr_opens);
            custom.set("also", &word);
            actions.add_mapping(second);
        }
    }
    custom.set("pattern", "ops");
    let ops = actions.list();
    custom.set("ops", &ops);
    custom.complete();
    custom
}

/// Draws a file length: near the limit of a rule, or arbitrary.
fn length(draw: &mut Draw, page: u64) -> u64 {
    let pmd = page * page / 8;
    let few = draw.below(20) * page;
    let odd = draw.of(&[0, 0, 1, 100, page - 1]);
    match draw.below(11) {
        0 | 1 => (1 + draw.below(17)) * page,
        2 => (1 + draw.below(17)) * page - draw.below(page),
        3 => draw.of(&[pmd + 1, pmd, pmd - 1, pmd + page, 2 * pmd, 2 * pmd + 1]),
        4 => pmd - few - odd,
        5 => pmd + few + odd,
        6 => (1 + draw.below(32)) * 32 * page + odd,
        7 => (1 + draw.below(8)) * 32 * page - page + odd,
        8 | 9 => (18 + draw.below(2000)) * page + odd,
        _ => (1 + draw.below(LONGEST_BYTES / 2) / page) * page + odd,
    }
}

/// The part of the file in a mapping.
#[derive(Clone, Copy, Debug)]
struct Part {
    first: u64,
    nr_pages: u64,
    is_writable: bool,
    is_called: bool,
}

const ADVICES: [&str; 10] =
    ["plain", "plain", "plain", "huge", "huge", "random", "seq", "nohuge", "hugerandom", "hugeseq"];

fn first_mapping(draw: &mut Draw, nr_pages: u64, custom: &mut Custom) -> Part {
    let prot = draw.of(&["r", "r", "r", "rx", "rx", "rw", "rw", "rxc"]);
    custom.set("prot", prot);
    let share = if prot == "rxc" { "private" } else { draw.of(&["shared", "private"]) };
    custom.set("map", share);
    custom.set("advice", draw.of(&ADVICES));
    let mut part = Part { first: 0, nr_pages, is_writable: prot == "rw", is_called: prot == "rxc" };
    if draw.below(4) == 0 {
        (part.first, part.nr_pages) = range(draw, nr_pages);
        custom.set("first", &part.first.to_string());
        custom.set("pages", &part.nr_pages.to_string());
    }
    if draw.below(5) == 0 {
        custom.set("skew", &draw.below(600).to_string());
    }
    part
}

fn second_mapping(draw: &mut Draw, nr_pages: u64, nr_opens: u64) -> (Part, String) {
    let prot = draw.of(&["r", "rx", "rw"]);
    let share = draw.of(&["shared", "private"]);
    let (advice, open) = (draw.of(&ADVICES), draw.below(nr_opens));
    let (first, nr_pages) = range(draw, nr_pages);
    let word = format!("{prot},{share},{advice},{open},{first},{nr_pages}");
    (Part { first, nr_pages, is_writable: prot == "rw", is_called: false }, word)
}

/// Draws a part's first page and page count; one in eight extends past the end of the file.
fn range(draw: &mut Draw, nr_pages: u64) -> (u64, u64) {
    let first = if draw.below(2) == 0 { 0 } else { draw.below(nr_pages) };
    let left = nr_pages - first;
    let more = if draw.below(8) == 0 { draw.below(600) } else { 0 };
    (first, 1 + draw.below(left) + more)
}

/// Random numbers from a seed (`SplitMix64`).
#[derive(Clone, Debug)]
struct Draw {
    state: u64,
}

impl Draw {
    /// Mixes the seed, because neighbouring seeds must start far apart.
    fn new(seed: u64) -> Self {
        let mut draw = Self { state: seed };
        draw.state = draw.next();
        draw
    }

    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        word ^ (word >> 31)
    }

    /// Draws from `0 .. nr`; 0 if `nr` is 0.
    fn below(&mut self, nr: u64) -> u64 {
        self.next() % nr.max(1)
    }

    fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[usize::try_from(self.below(all.len() as u64)).unwrap_or(0)]
    }
}

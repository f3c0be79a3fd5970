//! The steps of scripts about one feature. Half of them only map, use and share memory.

use super::super::{Area, Feature, Generator, Ground, Open, Source};

/// For shared memory and memory files.
const SHARED_ADVICE: [&str; 11] = [
    "hugepage",
    "hugepage",
    "hugepage",
    "nohugepage",
    "dontneed",
    "remove",
    "collapse",
    "populate_read",
    "populate_write",
    "cold",
    "pageout",
];
const LOCKED_ADVICE: [&str; 7] =
    ["hugepage", "nohugepage", "dontneed", "free", "cold", "collapse", "populate_write"];
/// Current, future, and both, each also on fault (4).
const LOCKALL_FLAGS: [u64; 6] = [1, 2, 3, 5, 6, 7];
const POLICIES: [&str; 5] = ["default", "preferred", "bind", "interleave", "local"];
const CHANGED: [(&str, &[&str]); 6] = [
    ("enabled", &["always", "madvise", "never"]),
    ("shmem_enabled", &["always", "advise", "never", "within_size"]),
    ("hugepages-16kB/enabled", &["always", "madvise", "inherit", "never"]),
    ("hugepages-64kB/enabled", &["always", "madvise", "inherit", "never"]),
    ("hugepages-2048kB/enabled", &["always", "madvise", "inherit", "never"]),
    ("hugepages-64kB/shmem_enabled", &["always", "advise", "inherit", "never", "within_size"]),
];

impl Generator {
    pub(in super::super) fn first_of(&mut self, feature: Feature) {
        match feature {
            Feature::Mixed => self.first(),
            Feature::Shared => {
                self.memory_file();
                self.map_file();
            }
            Feature::Collapse => {
                self.map_private();
                self.memory_file();
                self.map_file();
            }
            Feature::Pins => {
                self.map_private();
                self.open_direct();
            }
            Feature::Moves | Feature::Advice | Feature::Changes => {
                self.map_private();
                self.map_shared();
            }
            _ => self.map_private(),
        }
    }

    pub(in super::super) fn step_of(&mut self, feature: Feature) {
        if feature != Feature::Mixed && self.below(2) == 0 {
            return self.plain_step(feature);
        }
        match feature {
            Feature::Mixed => self.step(),
            Feature::Shared => self.shared_step(),
            Feature::Locks => self.locks_step(),
            Feature::Pins => self.pins_step(),
            Feature::Thp => self.thp_step(),
            Feature::Collapse => self.collapse_step(),
            Feature::Processes => self.processes_step(),
            Feature::Moves => self.moves_step(),
            Feature::Advice => self.advice_step(),
            Feature::Merging => self.merging_step(),
            Feature::Policy => self.policy_step(),
            Feature::Changes => self.changes_step(),
        }
    }

    fn plain_step(&mut self, feature: Feature) {
        match self.below(12) {
            0 if feature == Feature::Shared => self.map_shared(),
            0 => self.map_private(),
            1..=7 => self.touch(),
            8 => self.unmap(),
            9..=10 => self.block("fork"),
            _ => self.hold(),
        }
    }

    fn map_private(&mut self) {
        let Some(slot) = self.free_area() else { return };
        let bytes = self.bytes();
        self.push(format!("map {slot} {bytes} rw private"));
        self.add(Area { slot, bytes, source: Source::Private, is_writable: true });
        if self.below(2) == 0 {
            self.push(format!("advise {slot} 0 {bytes} hugepage"));
        }
    }

    fn map_shared(&mut self) {
        let Some(slot) = self.free_area() else { return };
        let bytes = self.bytes();
        let source = if self.below(3) == 0 { Source::SystemV } else { Source::Shared };
        self.push(match source {
            Source::SystemV => format!("sysv {slot} {bytes}"),
            _ => format!("map {slot} {bytes} rw shared"),
        });
        self.add(Area { slot, bytes, source, is_writable: true });
        if self.below(2) == 0 {
            self.push(format!("advise {slot} 0 {bytes} hugepage"));
        }
    }

    fn advise_with(&mut self, all: &[&'static str]) {
        let Some(area) = self.area_with(|area| area.source != Source::Huge) else { return };
        let Some((offset, len)) = self.range(&area) else { return };
        let advice = self.one_of(all);
        if advice == "populate_write" && !area.is_writable {
            return;
        }
        self.push(format!("advise {} {offset} {len} {advice}", area.slot));
    }

    fn shared_step(&mut self) {
        match self.below(14) {
            0..=1 => self.map_shared(),
            2 => self.memory_file(),
            3..=4 => self.map_file(),
            5..=7 => self.advise_with(&SHARED_ADVICE),
            8..=9 => self.write_call(),
            10 => self.read_call(),
            11..=12 => self.change_file(),
            _ => self.protect(),
        }
    }

    fn locks_step(&mut self) {
        match self.below(12) {
            0..=3 => self.lock_part(),
            4 if self.depth == 0 => {
                let flags = self.one_of(&LOCKALL_FLAGS);
                self.push(format!("lockall {flags}"));
            }
            5 if self.depth == 0 => self.push("unlockall".to_owned()),
            6..=7 => self.advise_with(&LOCKED_ADVICE),
            8 => self.map_anonymous(),
            9 => self.map_shared(),
            10 => self.remap(),
            _ => self.protect(),
        }
    }

    fn lock_part(&mut self) {
        let Some(area) = self.area() else { return };
        let Some((offset, len)) = self.range(&area) else { return };
        let slot = area.slot;
        let step = match self.below(6) {
            0..=2 => format!("lock {slot} {offset} {len}"),
            3..=4 => format!("lock {slot} {offset} {len} onfault"),
            _ => format!("unlock {slot} {offset} {len}"),
        };
        self.push(step);
    }

    fn pins_step(&mut self) {
        match self.below(10) {
            0..=2 => {
                let Some(area) = self.area() else { return };
                let Some((offset, len)) = self.range(&area) else { return };
                self.push(format!("pipe {} {offset} {len}", area.slot));
            }
            3 => self.push("drain".to_owned()),
            4..=6 => self.direct_call(),
            7 => self.advise_with(&["collapse", "collapse", "dontneed", "cold", "free"]),
            8 => self.remap(),
            _ => self.map_shared(),
        }
    }

    fn open_direct(&mut self) {
        let Some(slot) = self.free_file() else { return };
        let bytes = self.bytes();
        let name = self.add_file(bytes);
        self.push(format!("open {slot} {name} rwd"));
        self.opens.push(Open { slot, bytes, is_writable: true, ground: Ground::Direct });
    }

    /// Whole pages: a direct transfer takes no others.
    fn direct_call(&mut self) {
        let Some(open) = self.open_with(|open| open.ground == Ground::Direct) else { return };
        let Some(area) = self.area_with(|area| area.is_writable) else { return };
        let Some((offset, len)) = self.range(&area) else { return };
        let pos = self.below(open.bytes >> 12) << 12;
        let len = len.min(open.bytes - pos);
        let word = self.one_of(&["pread", "pwrite", "preadv", "pwritev"]);
        self.push(format!("{word} {} {pos} {} {offset} {len}", open.slot, area.slot));
    }

    fn thp_step(&mut self) {
        match self.below(10) {
            0..=3 => {
                let what = self.below(3);
                self.push(format!("thp {what}"));
            }
            4..=5 => self.advise_with(&["hugepage", "hugepage", "nohugepage", "collapse"]),
            6 => self.map_private(),
            7 => self.map_shared(),
            8 => self.push("spawn".to_owned()),
            _ => self.block("thread"),
        }
    }

    fn collapse_step(&mut self) {
        match self.below(14) {
            0..=5 => self.advise_with(&["collapse"]),
            6 => self.memory_file(),
            7 => self.map_file(),
            8 => self.map_shared(),
            9 => self.advise_with(&["hugepage", "nohugepage", "dontneed", "free"]),
            10 => self.change_file(),
            11 => self.open_old(),
            12 => self.write_call(),
            _ => self.protect(),
        }
    }

    fn processes_step(&mut self) {
        match self.below(10) {
            0..=2 => self.block("fork"),
            3..=4 => self.hold(),
            5 => self.protect(),
            6 => self.advise_with(&["dontneed", "free", "collapse", "wipeonfork", "keeponfork"]),
            7 => self.block("thread"),
            8 => self.push("spawn".to_owned()),
            _ => self.map_shared(),
        }
    }

    fn moves_step(&mut self) {
        match self.below(10) {
            0..=4 => self.remap(),
            5..=6 => self.remap_kept(),
            7 => self.advise_with(&["hugepage", "nohugepage", "collapse", "dontneed"]),
            8 => self.protect(),
            _ => self.lock_part(),
        }
    }

    /// Moves the pages of any area and leaves its old place mapped.
    fn remap_kept(&mut self) {
        let movable = |area: &Area| !matches!(area.source, Source::Huge | Source::Heap);
        let Some(area) = self.area_with(movable).filter(|_| self.depth == 0) else { return };
        self.push(format!("remap {} {} dontunmap", area.slot, area.bytes));
    }

    fn advice_step(&mut self) {
        match self.below(8) {
            0..=5 => self.advise(),
            6 => self.advise_with(&SHARED_ADVICE),
            _ => self.map_anonymous(),
        }
    }

    fn merging_step(&mut self) {
        match self.below(8) {
            0..=3 => self.advise_with(&["mergeable", "mergeable", "unmergeable"]),
            4 => {
                let is_on = self.below(2);
                self.push(format!("merge {is_on}"));
            }
            5 => self.advise_with(&["collapse", "hugepage", "dontneed"]),
            6 => self.remap(),
            _ => self.map_anonymous(),
        }
    }

    fn policy_step(&mut self) {
        let mode = self.one_of(&POLICIES);
        match self.below(8) {
            0..=1 => self.push(format!("policy {mode}")),
            2..=4 => {
                let Some(area) = self.area_with(|area| area.source != Source::Huge) else { return };
                let Some((offset, len)) = self.range(&area) else { return };
                self.push(format!("bind {} {offset} {len} {mode}", area.slot));
            }
            5 => self.remap(),
            6 => self.map_shared(),
            _ => self.advise_with(&["hugepage", "collapse", "dontneed"]),
        }
    }

    fn changes_step(&mut self) {
        match self.below(8) {
            0..=3 => {
                let (file, values) = self.one_of(&CHANGED);
                let value = self.one_of(values);
                self.push(format!("set {file} {value}"));
            }
            4 => self.map_private(),
            5 => self.map_shared(),
            6 => self.advise_with(&["hugepage", "collapse", "dontneed"]),
            _ => self.remap(),
        }
    }
}

//! Replays what the kernels that Debian packages did, and compares.
//!
//! Compared: insertions per action, pages mapped at marked points and at the end, bytes under PMD
//! entries. `recordings/README.md` has the format.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be set up fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use largefolio_mm::fault::Access;
use largefolio_mm::folio::MappingId;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::page_cache::Observed;
use largefolio_mm::rules::Arch;
use largefolio_mm::space::MmId;
use largefolio_mm::units::{Order, PageIndex, Vaddr};
use largefolio_mm::vma::{OpenId, Prot};
use largefolio_sim::kernel::Kernel;

/// Recorded kernels and workloads.
const NR_KERNELS: usize = 26;
/// Bit of the header's `events` for the fault handler's event, which 6.1 lacks.
const HANDLER_EVENT: u64 = 1 << 2;

type Words<'a> = Vec<&'a str>;
/// Index and order of each folio inserted.
type Insertions = Vec<(u64, u8)>;

fn words(line: &str) -> Words<'_> {
    line.split_ascii_whitespace().collect()
}

fn pairs<'a>(words: &[&'a str]) -> BTreeMap<&'a str, &'a str> {
    words.iter().filter_map(|word| word.split_once('=')).collect()
}

fn number(word: &str) -> u64 {
    word.parse().unwrap()
}

fn range(word: &str) -> std::ops::RangeInclusive<u64> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    number(first)..=number(last)
}

/// One recorded mapping.
struct Area {
    open: usize,
    first: u64,
    nr_pages: u64,
    base: u64,
    prot: String,
}

/// A recorded workload running in the model.
struct Replay {
    memory: Memory,
    file: MappingId,
    mm: MmId,
    opens: Vec<OpenId>,
    areas: Vec<Area>,
    read_bytes: u64,
    /// Whether fault-around may meet pages that are still being read (recordings/README.md): the
    /// kernel then maps fewer.
    maps_fewer: bool,
    /// Whether the model may wait for more pages than the kernel did.
    waits_more: bool,
    /// Whether pages that were reclaimed come back as part of the working set.
    restores: bool,
    /// Pages the model maps and the kernel has not named yet, by area, since the last point.
    points: BTreeMap<usize, BTreeSet<u64>>,
    /// First index of each folio that was reclaimed.
    reclaimed: BTreeSet<u64>,
}

impl Replay {
    fn new(header: &str) -> Self {
        let head = words(header);
        let head = pairs(&head);
        let value = |key: &str| number(head[key]);
        let version = head["variant"].split('_').nth(1).unwrap();
        let page_bytes = value("page");
        let name = format!("{version}+page={}K", page_bytes >> 10);
        let mut rules = Kernel::parse(&name).unwrap().rules;
        rules.readahead_bytes = value("ra_pages") * page_bytes;
        rules.io_bytes = value("max_sectors_kb") << 10;
        rules.fault_around_bytes = value("fault_around_bytes").max(page_bytes);
        let arch = if head["arch"] == "arm64" { Arch::Arm64 } else { Arch::X86_64 };
        let mut memory = Memory::new(rules, &Config::new(arch)).unwrap();
        let file = memory.add_file(value("file_bytes"), head["fs"]);
        let opens = (0..value("opens").max(1)).map(|_| memory.open(file)).collect();
        let mm = memory.new_space();
        memory.cache_mut().watch();
        let pattern = head["pattern"];
        let read_bytes = pattern.strip_prefix("read").and_then(|n| n.parse().ok()).unwrap_or(0);
        let maps_fewer = pattern.contains("rand") || head["fs"] == "btrfs";
        let (waits_more, restores) = (false, false);
        let (areas, points) = (Vec::new(), BTreeMap::new());
        let reclaimed = BTreeSet::new();
        Self {
            memory,
            file,
            mm,
            opens,
            areas,
            read_bytes,
            maps_fewer,
            waits_more,
            restores,
            points,
            reclaimed,
        }
    }

    fn page_bytes(&self) -> u64 {
        self.memory.rules.page.bytes()
    }

    fn add_area(&mut self, line: &Words) {
        let of = pairs(line);
        let base = u64::from_str_radix(of["addr"].trim_start_matches("0x"), 16).unwrap();
        let (first, nr_pages) = (number(of["first"]), number(of["pages"]));
        let open = usize::try_from(number(of["open"])).unwrap();
        let prot = match of["prot"] {
            "r" => Prot::READ,
            "rw" => Prot::READ_WRITE,
            _ => Prot::READ_EXEC,
        };
        let len = nr_pages * self.page_bytes();
        let map = Map::file(self.opens[open], first, len, prot).at(Vaddr(base));
        let map = if of["map"] == "shared" { map.shared() } else { map };
        self.memory.mmap(self.mm, map).unwrap();
        self.areas.push(Area { open, first, nr_pages, base, prot: of["prot"].to_owned() });
        self.advise(self.areas.len() - 1, of["advice"]);
    }

    fn advise(&mut self, area: usize, advice: &str) {
        let advices: &[Madvice] = match advice {
            "huge" => &[Madvice::Hugepage],
            "nohuge" => &[Madvice::Nohugepage],
            "random" => &[Madvice::Random],
            "seq" => &[Madvice::Sequential],
            "normal" => &[Madvice::Normal],
            "hugerandom" => &[Madvice::Hugepage, Madvice::Random],
            "dontneed" => &[Madvice::Dontneed],
            "hugeseq" => &[Madvice::Hugepage, Madvice::Sequential],
            _ => &[],
        };
        let (base, len) = (self.areas[area].base, self.areas[area].nr_pages * self.page_bytes());
        for &advice in advices {
            self.memory.madvise(self.mm, Vaddr(base), len, advice).unwrap();
        }
    }

    fn act(&mut self, line: &Words) -> Result<(), String> {
        let at = |nr: usize| number(line[nr]);
        let nth = |nr: usize| usize::try_from(number(line[nr])).unwrap();
        let page_bytes = self.page_bytes();
        match line[0] {
            "T" => {
                let area = &self.areas[if line.len() > 2 { nth(2) } else { 0 }];
                let access = match area.prot.as_str() {
                    _ if line.len() > 3 => Access::Write,
                    "rxc" => Access::Exec,
                    _ => Access::Read,
                };
                let addr = Vaddr(area.base + (at(1) - area.first) * page_bytes);
                self.memory.touch(self.mm, addr, access).map_err(|e| e.to_string())?;
            }
            "B" => {
                let (len, open) =
                    if line.len() > 3 { (at(3), nth(4)) } else { (self.read_bytes, 0) };
                self.memory.pread(self.opens[open], at(1) * page_bytes + at(2), len).unwrap();
            }
            "X" => {
                self.memory.pwrite(self.opens[nth(4)], at(1) * page_bytes + at(2), at(3)).unwrap();
            }
            "V" if line[1] == "willneed" => {
                let area = &self.areas[nth(2)];
                let range = (area.first * page_bytes, area.nr_pages * page_bytes);
                self.memory.fadvise(self.opens[area.open], range, Fadvice::Willneed);
            }
            "V" => self.advise(nth(2), line[1]),
            "Y" | "Z" => {}
            _ => return self.point(line),
        }
        Ok(())
    }

    /// `p AREA` opens a marked point, `p AREA RANGE` says what the kernel maps there.
    fn point(&mut self, line: &Words) -> Result<(), String> {
        let area = usize::try_from(number(line[1])).unwrap();
        if line.len() == 2 {
            self.end_point()?;
            self.points.insert(area, self.present(area));
            return Ok(());
        }
        let ours = self.points.get_mut(&area).unwrap();
        for page in range(line[2]) {
            if !ours.remove(&page) {
                return Err(format!("at a point the kernel maps {page}, the model does not"));
            }
        }
        Ok(())
    }

    fn end_point(&mut self) -> Result<(), String> {
        let left: BTreeSet<u64> =
            std::mem::take(&mut self.points).into_values().flatten().collect();
        match left.first() {
            Some(page) if !self.maps_fewer => Err(format!("at a point the model maps {page} too")),
            _ => Ok(()),
        }
    }

    /// Which pages were still being read when they were touched: a hit that went through the
    /// handler twice. 6.1 does not say: there every hit is taken for one, which changes no credit
    /// but may count too many major faults.
    fn delay_reads(&mut self, header: &str, steps: &[Step]) {
        let is_seen = number(pairs(&words(header))["events"]) & HANDLER_EVENT != 0;
        self.waits_more = !is_seen;
        for step in steps.iter().filter(|step| step.insertions.is_empty()) {
            let line = words(&step.line);
            if line[0] == "T" && (step.nr_handled == 2 || !is_seen) {
                self.memory.cache_mut().delay_read(self.file, PageIndex(number(line[1])));
            }
        }
    }

    /// Follows the kernel's choice of what to reclaim, and whether that comes back as part of the
    /// working set.
    fn reclaim(&mut self, removals: &[u64], inserted: &[(u64, u8)]) {
        let cache = self.memory.cache_mut();
        for &index in removals {
            cache.remove_unmapped(self.file, PageIndex(index)).unwrap();
            self.reclaimed.insert(index);
        }
        for (index, _) in inserted.iter().filter(|(index, _)| self.reclaimed.contains(index)) {
            let entry = cache.find(self.file, PageIndex(*index)).unwrap();
            cache.folios.get_mut(entry.folio).is_workingset = self.restores;
        }
    }

    fn insertions(&mut self) -> Insertions {
        let observed = self.memory.cache_mut().take_observed();
        let inserted = observed.into_iter().filter_map(|event| match event {
            Observed::Insertion { index, order, .. } => Some((index.0, order.get())),
            _ => None,
        });
        inserted.collect()
    }

    /// File pages mapped through an area.
    fn present(&self, area: usize) -> BTreeSet<u64> {
        let area = &self.areas[area];
        let first = Vaddr(area.base).vpn(self.memory.rules.page).0;
        let leaves = self
            .memory
            .space(self.mm)
            .table
            .leaves(Vaddr(area.base).vpn(self.memory.rules.page), area.nr_pages);
        let pages = leaves.flat_map(|leaf| {
            leaf.first_vpn.0.max(first)..leaf.end_vpn().0.min(first + area.nr_pages)
        });
        pages.map(|vpn| vpn - first + area.first).collect()
    }

    fn pmd_kib(&self, area: usize) -> u64 {
        let pmd: Order = self.memory.rules.page.pmd_order();
        let first = Vaddr(self.areas[area].base).vpn(self.memory.rules.page);
        let leaves = self.memory.space(self.mm).table.leaves(first, self.areas[area].nr_pages);
        let nr = leaves.filter(|leaf| leaf.order == pmd).count() as u64;
        nr * ((pmd.nr_pages() * self.page_bytes()) >> 10)
    }
}

/// An action and what followed it.
struct Step {
    line: String,
    insertions: Insertions,
    /// First index of each folio removed.
    removals: Vec<u64>,
    /// Passes through the fault handler.
    nr_handled: u64,
}

/// Actions, and the lines after the last one.
fn steps(lines: &[&str]) -> (Vec<Step>, Vec<String>) {
    let mut steps: Vec<Step> = Vec::new();
    let end = lines.iter().position(|line| *line == "E 0").unwrap_or(lines.len());
    for line in &lines[..end] {
        let parts = words(line);
        match parts[0] {
            "T" | "B" | "X" | "V" | "Y" | "Z" | "p" => {
                let (line, insertions) = ((*line).to_owned(), Vec::new());
                steps.push(Step { line, insertions, removals: Vec::new(), nr_handled: 0 });
            }
            "F" => steps.last_mut().unwrap().nr_handled += 1,
            "A" | "D" => {
                let (index, order): (u64, u8) = (number(parts[1]), parts[2].parse().unwrap());
                let times = parts.get(3).map_or(1, |times| number(&times[1..]));
                let all = (0..times).map(|nr| (index + (nr << order), order));
                let step = steps.last_mut().unwrap();
                if parts[0] == "A" {
                    step.insertions.extend(all);
                } else {
                    step.removals.extend(all.map(|(index, _)| index));
                }
            }
            _ => {}
        }
    }
    (steps, lines[end.min(lines.len())..].iter().map(|&line| line.to_owned()).collect())
}

/// Replays one recording; the first difference.
fn check(text: &str) -> Result<(), String> {
    let mut lines: Vec<&str> = text.lines().collect();
    let header = lines.remove(0);
    let mut replay = Replay::new(header);
    while lines.first().is_some_and(|line| line.starts_with("N ")) {
        replay.add_area(&words(lines.remove(0)));
    }
    replay.insertions();
    let (steps, tail) = steps(&lines);
    let restored: Vec<&str> = lines.iter().filter_map(|line| line.strip_prefix("Z ")).collect();
    replay.restores = restored.first() != restored.last();
    if header.contains(" fs=ext4-slow ") {
        replay.delay_reads(header, &steps);
    }
    for Step { line, insertions: kernel, removals, .. } in &steps {
        replay.act(&words(line)).map_err(|what| format!("{line}: {what}"))?;
        let ours = replay.insertions();
        replay.reclaim(removals, &ours);
        if ours != *kernel {
            return Err(format!("{line}\n    model  {ours:?}\n    kernel {kernel:?}"));
        }
    }
    replay.end_point()?;
    let ours = replay.memory.cache().counters.pgmajfault;
    let kernel = number(pairs(&words(header))["majflt"]);
    let is_equal = if replay.waits_more { kernel <= ours } else { kernel == ours };
    if !is_equal {
        return Err(format!("the model has {ours} major faults, the kernel {kernel}"));
    }
    compare_end(&replay, &tail)
}

fn compare_end(replay: &Replay, tail: &[String]) -> Result<(), String> {
    let mut at = 0;
    let mut present = vec![BTreeSet::new(); replay.areas.len()];
    let mut pmd_kib = vec![0; replay.areas.len()];
    for line in tail {
        let line = words(line);
        match line[0] {
            "N" => at = usize::try_from(number(line[1])).unwrap(),
            "P" => present[at].extend(range(line[1])),
            "M" if line[1] == "FilePmdMapped:" => pmd_kib[at] = number(line[2]),
            _ => {}
        }
    }
    for (area, kernel) in present.iter().enumerate() {
        let ours = replay.present(area);
        let is_equal = if replay.maps_fewer { kernel.is_subset(&ours) } else { *kernel == ours };
        if !is_equal {
            return Err(format!("mapping {area} at the end: other pages are mapped"));
        }
        let (ours, kernel) = (replay.pmd_kib(area), pmd_kib[area]);
        if ours != kernel {
            return Err(format!("mapping {area}: {ours} KiB under PMD entries, kernel {kernel}"));
        }
    }
    Ok(())
}

#[test]
fn model_equals_the_packaged_kernels() {
    let archives = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/packaged");
    let scratch = tempfile::tempdir().unwrap();
    for archive in std::fs::read_dir(archives).unwrap() {
        let archive = archive.unwrap().path();
        let mut tar = Command::new("tar");
        let tar = tar.arg("-xJf").arg(&archive).arg("-C").arg(scratch.path());
        assert!(tar.status().unwrap().success(), "{} was not unpacked", archive.display());
    }
    let mut differences = Vec::new();
    let mut by_kernel: BTreeMap<String, [u32; 2]> = BTreeMap::new();
    for folder in std::fs::read_dir(scratch.path()).unwrap() {
        let folder = folder.unwrap().path();
        let kernel = folder.file_name().unwrap().to_string_lossy().into_owned();
        for recording in std::fs::read_dir(&folder).unwrap() {
            let path = recording.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            let result = check(&std::fs::read_to_string(&path).unwrap());
            let row = by_kernel.entry(kernel.clone()).or_default();
            match result {
                Ok(()) => row[0] += 1,
                Err(what) => {
                    row[1] += 1;
                    differences.push(format!("{kernel}/{name}: {what}"));
                }
            }
        }
    }
    println!("packaged kernels: equal, different");
    for (kernel, [equal, different]) in &by_kernel {
        println!("  {kernel:22} {equal:4} {different:4}");
    }
    assert_eq!(by_kernel.len(), NR_KERNELS);
    differences.truncate(20);
    assert!(differences.is_empty(), "{}", differences.join("\n"));
}

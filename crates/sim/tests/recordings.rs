//! Replays what real kernels did, touch by touch, and compares.
//!
//! `LARGEFOLIO_RECORDINGS=DIR` replays the recordings of another folder instead of the project's.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be set up fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use largefolio_mm::fault::Access;
use largefolio_mm::folio::MappingId;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::page_cache::Observed;
use largefolio_mm::readahead::RaState;
use largefolio_mm::rules::Arch;
use largefolio_mm::space::MmId;
use largefolio_mm::units::{PageIndex, Vaddr};
use largefolio_mm::vma::{OpenId, Prot};
use largefolio_sim::kernel::Kernel;
use largefolio_testkit::recording::{Action, Recording, State, Step, read_all};

/// The project has 1,583; far fewer mean that archives were not found.
const NR_RECORDINGS_MIN: usize = 1500;

/// A recorded workload running in the model.
struct Replay {
    memory: Memory,
    file: MappingId,
    open: OpenId,
    mm: MmId,
    base: Vaddr,
    access: Access,
    read_bytes: u64,
}

impl Replay {
    fn new(recording: &Recording) -> Self {
        let variant = recording.get("variant");
        let mut rules = Kernel::parse(&format!("recorded/{variant}")).unwrap().rules;
        let page_bytes = rules.page.bytes();
        assert_eq!(page_bytes, recording.number("page"), "{}", recording.name);
        rules.readahead_bytes = recording.number("ra_pages") * page_bytes;
        rules.io_bytes = recording.number("max_sectors_kb") << 10;
        let mut memory = Memory::new(rules, &Config::new(Arch::Arm64)).unwrap();
        let size_bytes = recording.number("file_pages") * page_bytes;
        let file = memory.add_file(size_bytes, recording.get("fs"));
        let open = memory.open(file);
        let mm = memory.new_space();
        let prot = match recording.get("prot") {
            "r" => Prot::READ,
            _ => Prot::READ_EXEC,
        };
        let base = Vaddr(0x4000_0000_0000);
        let map = Map::file(open, 0, size_bytes, prot).at(base);
        let map = if recording.get("map") == "shared" { map.shared() } else { map };
        let mut replay = Self {
            memory,
            file,
            open,
            mm,
            base,
            access: if recording.get("prot") == "rxc" { Access::Exec } else { Access::Read },
            read_bytes: 0,
        };
        if recording.get("map") == "none" {
            let pattern = recording.get("pattern");
            replay.read_bytes = pattern.strip_prefix("read").unwrap().parse().unwrap();
        } else {
            replay.memory.mmap(mm, map).unwrap();
            replay.advise(recording.get("advice"), size_bytes);
        }
        // The one thing that depends on time: was a folio's I/O still in flight at its touch?
        let hits = recording.steps.iter().filter_map(|step| step.hits.first());
        for hit in hits.filter(|hit| hit.is_locked) {
            replay.memory.cache_mut().delay_read(file, PageIndex(hit.index));
        }
        replay.memory.cache_mut().watch();
        replay
    }

    fn advise(&mut self, advice: &str, len_bytes: u64) {
        let advices: &[Madvice] = match advice {
            "plain" => &[],
            "huge" => &[Madvice::Hugepage],
            "random" => &[Madvice::Random],
            "seq" => &[Madvice::Sequential],
            "hugerandom" => &[Madvice::Hugepage, Madvice::Random],
            "hugeseq" => &[Madvice::Hugepage, Madvice::Sequential],
            other => panic!("advice {other}"),
        };
        for &advice in advices {
            self.memory.madvise(self.mm, self.base, len_bytes, advice).unwrap();
        }
    }

    fn run(&mut self, step: &Step) {
        match step.action {
            Action::Start => {}
            Action::Read(index, offset) => {
                let pos = index * self.memory.rules.page.bytes() + offset;
                self.memory.pread(self.open, pos, self.read_bytes).unwrap();
            }
            Action::Touch(index) => {
                let addr = Vaddr(self.base.0 + index * self.memory.rules.page.bytes());
                self.memory.touch(self.mm, addr, self.access).unwrap();
            }
        }
    }

    /// First difference between the model's step and the kernel's.
    fn compare(&mut self, step: &Step) -> Result<(), String> {
        let observed = self.memory.cache_mut().take_observed();
        let mut insertions = Vec::new();
        let mut cold = Vec::new();
        let mut hits = Vec::new();
        for event in observed {
            match event {
                Observed::Insertion { index, order, .. } => insertions.push((index.0, order.get())),
                Observed::ColdFault { state, .. } => cold.push(printed(&state)),
                Observed::HandlerHit { index, is_marked, state } => {
                    hits.push((index.0, is_marked, printed(&state)));
                }
            }
        }
        let kernel_hits: Vec<_> =
            step.hits.iter().map(|hit| (hit.index, hit.is_marked, hit.state)).collect();
        differ("insertions", &insertions, &step.insertions)?;
        differ("state at cold faults", &cold, &step.cold)?;
        differ("handler hits", &hits, &kernel_hits)
    }

    /// Pages with a PTE or under a PMD entry at the end, by file index.
    fn present(&self) -> BTreeSet<u64> {
        let first = self.base.vpn(self.memory.rules.page);
        let nr = self.memory.cache().mapping(self.file).nr_file_pages(self.memory.rules.page);
        let leaves = self.memory.space(self.mm).table.leaves(first, nr);
        leaves.flat_map(|leaf| leaf.first_vpn.0 - first.0..leaf.end_vpn().0 - first.0).collect()
    }
}

fn printed(state: &RaState) -> State {
    let mmap_miss = state.mmap_miss();
    State { start: state.start, size: state.size, async_size: state.async_size, mmap_miss }
}

fn differ<T: PartialEq + std::fmt::Debug>(what: &str, ours: &T, kernel: &T) -> Result<(), String> {
    if ours == kernel {
        return Ok(());
    }
    Err(format!("{what}\n    model  {ours:?}\n    kernel {kernel:?}"))
}

/// Replays one recording; the first difference.
fn check(recording: &Recording) -> Result<(), String> {
    let mut replay = Replay::new(recording);
    for (nr, step) in recording.steps.iter().enumerate() {
        replay.run(step);
        replay.compare(step).map_err(|what| format!("step {nr} {:?}: {what}", step.action))?;
    }
    if recording.get("map") == "none" {
        return Ok(());
    }
    let touched = || {
        recording.steps.iter().filter_map(|step| match step.action {
            Action::Touch(index) => Some(index),
            _ => None,
        })
    };
    let kernel = recording.present.clone().unwrap_or_else(|| touched().collect());
    let ours = replay.present();
    // recordings/README.md: on 4K random runs fault-around may meet pages still being read.
    let may_miss = recording.number("page") == 4096 && recording.get("pattern") == "rand";
    let is_equal = if may_miss { kernel.is_subset(&ours) } else { kernel == ours };
    if is_equal {
        return Ok(());
    }
    let missing: Vec<_> = kernel.difference(&ours).take(8).collect();
    let extra: Vec<_> = ours.difference(&kernel).take(8).collect();
    Err(format!("mapped at the end: model lacks {missing:?}.., has too many {extra:?}.."))
}

#[test]
fn model_equals_the_recorded_kernels() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let given = std::env::var_os("LARGEFOLIO_RECORDINGS").map(PathBuf::from);
    let is_own = given.is_none();
    let scratch = tempfile::tempdir().unwrap();
    let recordings = read_all(&given.unwrap_or(own), scratch.path());
    assert!(!is_own || recordings.len() >= NR_RECORDINGS_MIN, "{} recordings", recordings.len());
    assert!(!recordings.is_empty(), "no recordings found");
    let mut by_variant: BTreeMap<String, (u32, u32)> = BTreeMap::new();
    let mut differences = Vec::new();
    for recording in &recordings {
        let result = check(recording);
        let counts = by_variant.entry(recording.get("variant").to_owned()).or_default();
        counts.0 += u32::from(result.is_ok());
        counts.1 += 1;
        differences.extend(result.err().map(|what| format!("{}: {what}", recording.name)));
    }
    println!("recordings equal to the kernel, by variant:");
    for (variant, (equal, all)) in &by_variant {
        println!("  {variant:24} {equal:4} of {all:4}");
    }
    let shown: Vec<_> = differences.iter().take(25).map(String::as_str).collect();
    assert!(differences.is_empty(), "{} differ:\n{}", differences.len(), shown.join("\n"));
}

//! The cost of faults, fork, unmapping and copy-on-write on the running kernel.
//!
//! Owns the operations and how a cost is solved for. Each is measured on regions and folio sizes of
//! its own ([`SIZES`], [`REGION_BYTES`]), not on those that `folio calibrate --check` compares with:
//!
//! | cost | from |
//! |---|---|
//! | `fault`, `map_batch` + `map_entry` | reads of a file of memory of which fault-around finds 1 or 16 pages cached |
//! | `folio_alloc`, each page | first touch of several sizes: fixed for a folio, each for a page |
//! | clearing a page | first touch of 2 MiB, mapped by one entry: less what is fixed |
//! | `map_entry` | each page of first touch, less its clearing |
//! | `fork_batch`, `fork_entry` | fork with several sizes, less fork without the region |
//! | `unmap_large`, `unmap_pte` | munmap of several sizes above the base page |
//! | `unmap_batch` | munmap of base pages, less `unmap_pte` |
//! | `fork_pmd`, `unmap_pmd` | the same with 2 MiB |

use std::fs::File;
use std::os::unix::fs::FileExt as _;
use std::time::{Duration, Instant};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::mm::ProtFlags;

use super::step::solve;
use super::{CalibrateError, Figure, count};
use crate::bench::anon::{FolioSize, Operation};
use crate::bench::stubs::file::failed;
use crate::bench::stubs::mapping::{Mapping, Source};
use crate::measure::{Series, interleave};

const PAGE_BYTES: usize = 4096;
/// Bytes fault-around looks at (64 KiB unless the administrator says otherwise).
const AROUND_BYTES: usize = 64 << 10;
/// Folio sizes that fixed and proportional costs are solved from. None but the base page is one of
/// the check's.
pub const SIZES: [usize; 5] = [4 << 10, 16 << 10, 32 << 10, 128 << 10, 256 << 10];
/// For first touch one more, of which nearly all is clearing and setting entries.
const LARGE_BYTES: usize = 1 << 20;
/// The PMD size.
const PMD_BYTES: usize = 2 << 20;
/// Bytes of the regions; the check's are 256 MiB.
pub const REGION_BYTES: usize = 192 << 20;
/// Of regions of 2 MiB folios, of which there must be enough to see one.
const PMD_REGION_BYTES: usize = 384 << 20;

/// Costs in nanoseconds; `None`: could not be measured or was no cost.
#[derive(Clone, Debug, Default)]
pub struct KernelCosts {
    /// A fault that maps one page.
    pub fault: Option<Figure>,
    /// Setting the entries of one folio.
    pub map_batch: Option<Figure>,
    /// Each of them.
    pub map_entry: Option<Figure>,
    /// First touch of a folio beyond a fault that only maps.
    pub folio_alloc: Option<Figure>,
    /// Clearing 4 KiB of a folio: each page of first touch less its entry.
    pub clear_page: Option<Figure>,
    /// Batch of fork.
    pub fork_batch: Option<Figure>,
    /// PTE of fork.
    pub fork_entry: Option<Figure>,
    /// PMD entry of fork.
    pub fork_pmd: Option<Figure>,
    /// Batch of munmap: a base page.
    pub unmap_batch: Option<Figure>,
    /// Batch of a large folio.
    pub unmap_large: Option<Figure>,
    /// PTE of munmap.
    pub unmap_pte: Option<Figure>,
    /// PMD entry of munmap.
    pub unmap_pmd: Option<Figure>,
    /// What is missing, and why.
    pub missing: Vec<String>,
}

/// Nanoseconds of each part of an operation, a round each.
struct Times {
    operation: Operation,
    folio_bytes: usize,
    /// Folios of the region.
    nr_folios: usize,
    series: Series,
}

/// Nanoseconds of faults on cached pages, a round each.
struct Around {
    /// A fault, without its entry.
    fault_ns: Vec<f64>,
    /// An entry, which here is a folio of its own.
    page_ns: Vec<f64>,
}

/// Measures; `part` shortens regions, 1 is whole.
pub(super) fn measure(nr_rounds: usize, part: usize) -> Result<KernelCosts, CalibrateError> {
    let (sizes, mut missing) = sizes();
    let around = around(nr_rounds, REGION_BYTES / part)?;
    let plan = subjects(&sizes, part);
    let mut runs: Vec<Run<'_>> = Vec::new();
    for &(operation, folio_bytes, len_bytes) in &plan {
        runs.push(Box::new(
            move || Ok(FolioSize::enable(folio_bytes)?.time(operation, len_bytes)?),
        ));
    }
    let series = interleave(nr_rounds, &mut runs, &mut |_| {})?;
    drop(runs);
    let times: Vec<Times> = plan
        .into_iter()
        .zip(series)
        .map(|((operation, folio_bytes, len), series)| Times {
            operation,
            folio_bytes,
            nr_folios: len / folio_bytes,
            series,
        })
        .collect();
    let mut costs = KernelCosts::default();
    costs.solve(&times, &around);
    costs.name_missing(&mut missing);
    Ok(KernelCosts { missing, ..costs })
}

type Run<'a> = Box<dyn FnMut() -> Result<Duration, CalibrateError> + 'a>;

/// The sizes this process may have, and why not the others.
fn sizes() -> (Vec<usize>, Vec<String>) {
    let (mut sizes, mut missing) = (Vec::new(), Vec::new());
    for bytes in SIZES.into_iter().chain([LARGE_BYTES, PMD_BYTES]) {
        match FolioSize::enable(bytes) {
            Ok(_) => sizes.push(bytes),
            Err(error) => missing
                .push(format!("folios of {} KiB: {error}; run: sudo folio calibrate", bytes >> 10)),
        }
    }
    (sizes, missing)
}

fn subjects(sizes: &[usize], part: usize) -> Vec<(Operation, usize, usize)> {
    let mut plan = Vec::new();
    for operation in [Operation::Touch, Operation::ForkBeyond, Operation::Munmap] {
        let is_measured = |&&bytes: &&usize| operation == Operation::Touch || bytes != LARGE_BYTES;
        for &bytes in sizes.iter().filter(is_measured) {
            let whole = if bytes == PMD_BYTES { PMD_REGION_BYTES } else { REGION_BYTES };
            plan.push((operation, bytes, whole / part / PMD_BYTES * PMD_BYTES));
        }
    }
    plan
}

impl KernelCosts {
    fn solve(&mut self, times: &[Times], around: &Around) {
        self.solve_faults(times, around);
        let (fixed, each) = solve_rounds(times, Operation::ForkBeyond, PAGE_BYTES);
        let from = "fork with 4K to 256K folios less fork without the region";
        self.fork_batch = Figure::of(&fixed, 1, &format!("{from}: fixed for a folio"));
        self.fork_entry = Figure::of(&each, 1, &format!("{from}: each page"));
        self.solve_unmap(times);
        let pmd = |operation, what: &str| {
            let is_it =
                |times: &&Times| times.operation == operation && times.folio_bytes == PMD_BYTES;
            let times = times.iter().find(is_it)?;
            Figure::of(&times.series.rounds_ns, times.nr_folios, what)
        };
        self.fork_pmd =
            pmd(Operation::ForkBeyond, "fork with 2M folios less fork without the region");
        self.unmap_pmd = pmd(Operation::Munmap, "munmap of 2M folios, freeing included");
    }

    /// Faults and first touch, from the outside in: what a fault on a cached page takes, what a
    /// folio takes beyond it, what a page takes, and how much of that is clearing.
    fn solve_faults(&mut self, times: &[Times], around: &Around) {
        let how = "read faults on cached base pages of a memfd, one page each";
        self.fault = Figure::of(&around.fault_ns, 1, how);
        let (fixed, each) = solve_rounds(times, Operation::Touch, PAGE_BYTES);
        let is_pmd =
            |times: &&Times| times.operation == Operation::Touch && times.folio_bytes == PMD_BYTES;
        let nr_pages = count(PMD_BYTES / PAGE_BYTES);
        let clear: Vec<f64> = times.iter().find(is_pmd).map_or_else(Vec::new, |times| {
            let folio_ns = |ns: &f64| ns / count(times.nr_folios);
            let rounds = times.series.rounds_ns.iter().zip(&fixed);
            rounds.map(|(ns, fixed)| (folio_ns(ns) - fixed) / nr_pages).collect()
        });
        let how = "first touch of 2M folios, less what 4K to 1M folios show to be fixed; each page";
        self.clear_page = Figure::of(&clear, 1, how);
        let entry = each.iter().zip(&clear).map(|(each, clear)| each - clear).collect::<Vec<_>>();
        let how = "first touch of 4K to 1M folios, each page, less its clearing";
        self.map_entry = Figure::of(&entry, 1, how);
        let entry_ns = median(self.map_entry.as_ref());
        let batch = around.page_ns.iter().map(|page| page - entry_ns).collect::<Vec<_>>();
        let how = "read faults with 16 cached base pages less those with one: each, less its entry";
        self.map_batch = Figure::of(&batch, 1, how);
        let known = median(self.fault.as_ref()) + median(self.map_batch.as_ref());
        let beyond = fixed.iter().map(|ns| ns - known).collect::<Vec<_>>();
        let how = "first touch of 4K to 1M folios, fixed for a folio, less a fault that only maps";
        self.folio_alloc = Figure::of(&beyond, 1, how);
    }

    /// A large folio is freed in another way than base pages, which go in bulk.
    fn solve_unmap(&mut self, times: &[Times]) {
        let from = "munmap of 16K to 256K folios, freeing included";
        let (fixed, each) = solve_rounds(times, Operation::Munmap, PAGE_BYTES + 1);
        self.unmap_large = Figure::of(&fixed, 1, &format!("{from}: fixed for a folio"));
        self.unmap_pte = Figure::of(&each, 1, &format!("{from}: each page"));
        let is_base = |times: &&Times| {
            times.operation == Operation::Munmap && times.folio_bytes == PAGE_BYTES
        };
        let (Some(base), Some(pte)) = (times.iter().find(is_base), &self.unmap_pte) else { return };
        let rounds = base.series.rounds_ns.iter();
        let beyond: Vec<f64> =
            rounds.map(|ns| ns / count(base.nr_folios) - pte.ns.median).collect();
        let how = "munmap of 4K folios, freeing included, minus the PTE";
        self.unmap_batch = Figure::of(&beyond, 1, how);
    }

    fn name_missing(&self, missing: &mut Vec<String>) {
        let all = [
            ("fault", &self.fault),
            ("map_batch", &self.map_batch),
            ("map_entry", &self.map_entry),
            ("folio_alloc", &self.folio_alloc),
            ("clear of 4K", &self.clear_page),
            ("fork_batch", &self.fork_batch),
            ("fork_entry", &self.fork_entry),
            ("fork_pmd", &self.fork_pmd),
            ("unmap_batch", &self.unmap_batch),
            ("unmap_large", &self.unmap_large),
            ("unmap_pte", &self.unmap_pte),
            ("unmap_pmd", &self.unmap_pmd),
        ];
        for (name, _) in all.iter().filter(|(_, figure)| figure.is_none()) {
            missing.push(format!("{name}: not measured, or the result was not a cost"));
        }
    }
}

fn median(figure: Option<&Figure>) -> f64 {
    figure.map_or(0.0, |figure| figure.ns.median)
}

/// Fixed and proportional part of an operation on folios of at least `min_bytes` and below 2 MiB, a
/// round each.
fn solve_rounds(times: &[Times], operation: Operation, min_bytes: usize) -> (Vec<f64>, Vec<f64>) {
    let sizes = min_bytes..PMD_BYTES;
    let of: Vec<&Times> = times
        .iter()
        .filter(|times| times.operation == operation && sizes.contains(&times.folio_bytes))
        .collect();
    let nr_rounds = of.iter().map(|times| times.series.rounds_ns.len()).min().unwrap_or(0);
    let (mut fixed, mut each) = (Vec::new(), Vec::new());
    for round in 0..nr_rounds {
        let at = |times: &&Times| {
            let nr_pages = count(times.folio_bytes / PAGE_BYTES);
            (nr_pages, times.series.rounds_ns[round] / count(times.nr_folios))
        };
        let points: Vec<(f64, f64)> = of.iter().map(at).collect();
        if let Some((a, b)) = solve(&points) {
            fixed.push(a);
            each.push(b);
        }
    }
    (fixed, each)
}

/// Faults on cached pages: one entry each, and sixteen.
fn around(nr_rounds: usize, len_bytes: usize) -> Result<Around, CalibrateError> {
    let sparse = cached(len_bytes, AROUND_BYTES)?;
    let dense = cached(len_bytes, PAGE_BYTES)?;
    let mut runs: Vec<Run<'_>> = vec![
        Box::new(|| fault_each(&sparse, len_bytes)),
        Box::new(|| fault_each(&dense, len_bytes)),
    ];
    let series = interleave(nr_rounds, &mut runs, &mut |_| {})?;
    let nr_faults = count(len_bytes / AROUND_BYTES);
    let more = count(AROUND_BYTES / PAGE_BYTES - 1);
    let mut around = Around { fault_ns: Vec::new(), page_ns: Vec::new() };
    for (sparse, dense) in series[0].rounds_ns.iter().zip(&series[1].rounds_ns) {
        let page = (dense - sparse) / nr_faults / more;
        around.page_ns.push(page);
        around.fault_ns.push(sparse / nr_faults - page);
    }
    Ok(around)
}

/// A file of memory of which a page is cached at every multiple of `step_bytes`.
fn cached(len_bytes: usize, step_bytes: usize) -> Result<File, CalibrateError> {
    let file = memfd_create("folio-calibrate", MemfdFlags::CLOEXEC)
        .map(File::from)
        .map_err(|error| failed("memfd_create", error))?;
    for at in (0..len_bytes).step_by(step_bytes) {
        file.write_all_at(&[1; PAGE_BYTES], at as u64).map_err(|error| failed("write", error))?;
    }
    Ok(file)
}

fn fault_each(file: &File, len_bytes: usize) -> Result<Duration, CalibrateError> {
    let mapping = Mapping::new(Source::Private(file), len_bytes, ProtFlags::READ)?;
    let start = Instant::now();
    mapping.load_each(AROUND_BYTES);
    Ok(start.elapsed())
}

//! The cost of faults, fork and unmapping on the running kernel.
//!
//! Owns the operations and how a cost is solved for. Each is measured on regions and folio sizes of
//! its own ([`SIZES`], [`REGION_BYTES`]), not on those that `folio calibrate --check` compares with.
//! All operations share the rounds ([`super::rounds`]), and each cost is solved for in every round:
//!
//! | cost | from |
//! |---|---|
//! | `fault` | loads from fresh base pages: the shared page of zeroes is mapped |
//! | `fault_around`, `map_batch` + `map_entry` | reads of a file of memory of which fault-around finds 1 or 16 pages cached |
//! | `folio_alloc`, each page | first touch of several sizes: fixed for a folio, each for a page |
//! | clearing a page | first touch of 2 MiB, mapped by one entry: less what is fixed |
//! | `map_entry` | each page of first touch, less its clearing |
//! | `fork_large`, `fork_entry` | fork with several sizes above the base page, less fork without the region |
//! | `fork_batch` | the same with base pages, less `fork_entry` |
//! | `unmap_large`, `unmap_pte` | munmap of several sizes above the base page while a child maps them |
//! | `unmap_batch` | the same with base pages, less `unmap_pte` |
//! | `fork_pmd`, `unmap_pmd` | the same with 2 MiB |
//! | `folio_free`, `page_free` | munmap of every size, less munmap while a child maps them |
//!
//! A base page is not a large folio of one page: it has no owner word and no count of its own beside
//! the page's. n = 6, medians: fork took 65 ns for it, 276, 456, 1,152 and 2,118 ns for folios of
//! 16K, 32K, 128K and 256K, which is 161 ns and 31 ns a page. One line through all five, as it was
//! before, put the base page at 150.

use super::cached::AROUND_BYTES;
use super::operations::{OfSize, Times, allowed, operations};
use super::rounds::{Pace, Until};
use super::step::solve;
use super::work::Work;
use super::{CalibrateError, Figure, count};
use crate::measure::Series;

const PAGE_BYTES: usize = 4096;
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
    /// A fault that maps one page, which need not be allocated or looked for.
    pub fault: Option<Figure>,
    /// Looking for cached pages.
    pub fault_around: Option<Figure>,
    /// Setting the entries of one folio.
    pub map_batch: Option<Figure>,
    /// Each of them.
    pub map_entry: Option<Figure>,
    /// First touch of a folio beyond a fault that only maps.
    pub folio_alloc: Option<Figure>,
    /// Clearing 4 KiB of a folio: each page of first touch less its entry.
    pub clear_page: Option<Figure>,
    /// Batch of fork: a base page.
    pub fork_batch: Option<Figure>,
    /// Batch of a large folio.
    pub fork_large: Option<Figure>,
    /// PTE of fork.
    pub fork_entry: Option<Figure>,
    /// PMD entry of fork.
    pub fork_pmd: Option<Figure>,
    /// Batch of munmap: a base page. What unmapping costs is without freeing.
    pub unmap_batch: Option<Figure>,
    /// Batch of a large folio.
    pub unmap_large: Option<Figure>,
    /// PTE of munmap.
    pub unmap_pte: Option<Figure>,
    /// PMD entry of munmap.
    pub unmap_pmd: Option<Figure>,
    /// Freeing a folio.
    pub folio_free: Option<Figure>,
    /// Each page of it.
    pub page_free: Option<Figure>,
    /// The machine meanwhile.
    pub pace: Option<Pace>,
    /// What is missing, and why.
    pub missing: Vec<String>,
}

impl Times {
    fn nr_folios(&self) -> f64 {
        count(self.len_bytes / self.folio_bytes)
    }

    /// Of one folio, round by round.
    fn folio_ns(&self) -> impl Iterator<Item = f64> {
        self.series.rounds_ns.iter().map(|ns| ns / self.nr_folios())
    }
}

/// Nanoseconds of faults on cached pages, a round each.
struct Around {
    /// A fault, without its entry.
    fault_ns: Vec<f64>,
    /// An entry, which here is a folio of its own.
    page_ns: Vec<f64>,
}

/// Cached pages in every 64 KiB of the files on which faults are measured.
const NR_CACHED: [usize; 2] = [1, 16];

/// Measures; `part` shortens regions, 1 is whole.
pub(super) fn measure(until: Until, part: usize) -> Result<KernelCosts, CalibrateError> {
    let (sizes, missing) = allowed(SIZES.into_iter().chain([LARGE_BYTES, PMD_BYTES]));
    let mut missing: Vec<String> =
        missing.into_iter().map(|why| format!("{why}; run: sudo folio calibrate")).collect();
    let file_bytes = REGION_BYTES / part;
    let of = |&folio_bytes: &usize| OfSize {
        folio_bytes,
        len_bytes: region_bytes(folio_bytes, part),
        works: works(folio_bytes).to_vec(),
    };
    let plan: Vec<OfSize> = sizes.iter().map(of).collect();
    let measured = operations(until, &plan, &NR_CACHED, file_bytes)?;
    let around = Around::new(&measured.faults, file_bytes / AROUND_BYTES);
    let mut costs = KernelCosts::default();
    costs.solve(&measured.works, &around);
    costs.name_missing(&mut missing);
    Ok(KernelCosts { pace: Some(measured.pace), missing, ..costs })
}

const fn works(folio_bytes: usize) -> &'static [Work] {
    match folio_bytes {
        LARGE_BYTES => &[Work::Touch],
        PAGE_BYTES => {
            &[Work::Touch, Work::Zeroes, Work::ForkBeyond, Work::Munmap, Work::MunmapShared]
        }
        _ => &[Work::Touch, Work::ForkBeyond, Work::Munmap, Work::MunmapShared],
    }
}

const fn region_bytes(folio_bytes: usize, part: usize) -> usize {
    let whole = if folio_bytes == PMD_BYTES { PMD_REGION_BYTES } else { REGION_BYTES };
    whole / part / PMD_BYTES * PMD_BYTES
}

impl KernelCosts {
    fn solve(&mut self, times: &[Times], around: &Around) {
        self.solve_faults(times, around);
        self.solve_fork(times);
        self.solve_unmap(times);
        self.solve_freeing(times);
    }

    /// Faults and first touch, from the outside in: what a fault on a cached page takes, what a
    /// folio takes beyond it, what a page takes, and how much of that is clearing.
    fn solve_faults(&mut self, times: &[Times], around: &Around) {
        let how = "loads from fresh 4K pages, which map the shared page of zeroes";
        let zeroes = find(times, Work::Zeroes, PAGE_BYTES);
        let zeroes = zeroes.map_or_else(Vec::new, |times| times.folio_ns().collect());
        self.fault = Figure::of(&zeroes, 1, how);
        let fault_ns = median(self.fault.as_ref());
        let looking = around.fault_ns.iter().map(|ns| ns - fault_ns).collect::<Vec<_>>();
        let how = "read faults with one cached base page in 64K of a memfd, less it and the fault";
        self.fault_around = Figure::of(&looking, 1, how);
        let (fixed, each) = lines(&points(times, Work::Touch, PAGE_BYTES..PMD_BYTES));
        let nr_pages = count(PMD_BYTES / PAGE_BYTES);
        let clear: Vec<f64> = find(times, Work::Touch, PMD_BYTES).map_or_else(Vec::new, |times| {
            times.folio_ns().zip(&fixed).map(|(ns, fixed)| (ns - fixed) / nr_pages).collect()
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
        let known = fault_ns + median(self.map_batch.as_ref());
        let beyond = fixed.iter().map(|ns| ns - known).collect::<Vec<_>>();
        let how = "first touch of 4K to 1M folios, fixed for a folio, less a fault that only maps";
        self.folio_alloc = Figure::of(&beyond, 1, how);
    }

    fn solve_fork(&mut self, times: &[Times]) {
        let less = "less fork without the region";
        let [large, each, base, pmd] =
            by_kind(times, Work::ForkBeyond, |folios| format!("fork with {folios} folios {less}"));
        (self.fork_large, self.fork_entry, self.fork_batch, self.fork_pmd) =
            (large, each, base, pmd);
    }

    fn solve_unmap(&mut self, times: &[Times]) {
        let [large, each, base, pmd] = by_kind(times, Work::MunmapShared, |folios| {
            format!("munmap of {folios} folios that a child maps")
        });
        (self.unmap_large, self.unmap_pte, self.unmap_batch, self.unmap_pmd) =
            (large, each, base, pmd);
    }

    /// What munmap takes longer where it frees: one line from the base page to the PMD size.
    fn solve_freeing(&mut self, times: &[Times]) {
        let freeing = points(times, Work::Munmap, PAGE_BYTES..PMD_BYTES + 1);
        let shared = points(times, Work::MunmapShared, PAGE_BYTES..PMD_BYTES + 1);
        let beyond: Vec<Vec<(f64, f64)>> = freeing
            .iter()
            .zip(&shared)
            .map(|(freeing, shared)| {
                let pairs = freeing.iter().zip(shared);
                pairs.map(|((nr, ns), (_, less))| (*nr, ns - less)).collect()
            })
            .collect();
        let from = "munmap of 4K to 256K and 2M folios less munmap of those that a child maps";
        let (fixed, each) = lines(&beyond);
        self.folio_free = Figure::of(&fixed, 1, &format!("{from}: fixed for a folio"));
        self.page_free = Figure::of(&each, 1, &format!("{from}: each page"));
    }

    fn name_missing(&self, missing: &mut Vec<String>) {
        let all = [
            ("fault", &self.fault),
            ("fault_around", &self.fault_around),
            ("map_batch", &self.map_batch),
            ("map_entry", &self.map_entry),
            ("folio_alloc", &self.folio_alloc),
            ("clear of 4K", &self.clear_page),
            ("fork_batch", &self.fork_batch),
            ("fork_large", &self.fork_large),
            ("fork_entry", &self.fork_entry),
            ("fork_pmd", &self.fork_pmd),
            ("unmap_batch", &self.unmap_batch),
            ("unmap_large", &self.unmap_large),
            ("unmap_pte", &self.unmap_pte),
            ("unmap_pmd", &self.unmap_pmd),
            ("folio_free", &self.folio_free),
            ("page_free", &self.page_free),
        ];
        for (name, _) in all.iter().filter(|(_, figure)| figure.is_none()) {
            missing.push(format!("{name}: not measured, or the result was not a cost"));
        }
    }
}

fn median(figure: Option<&Figure>) -> f64 {
    figure.map_or(0.0, |figure| figure.ns.median)
}

fn find(times: &[Times], work: Work, folio_bytes: usize) -> Option<&Times> {
    times.iter().find(|times| times.work == work && times.folio_bytes == folio_bytes)
}

/// What a work takes for a large folio, whatever its pages; for each of them; for a base page less
/// that; for a folio that a PMD entry maps. `from` says what was measured on folios of these sizes.
fn by_kind(times: &[Times], work: Work, from: impl Fn(&str) -> String) -> [Option<Figure>; 4] {
    let (fixed, each) = lines(&points(times, work, PAGE_BYTES + 1..PMD_BYTES));
    let large = from("16K to 256K");
    let fixed = Figure::of(&fixed, 1, &format!("{large}: fixed for a folio"));
    let each = Figure::of(&each, 1, &format!("{large}: each page"));
    let base = each.as_ref().and_then(|each| {
        let ns = find(times, work, PAGE_BYTES)?.folio_ns().map(|ns| ns - each.ns.median);
        Figure::of(&ns.collect::<Vec<_>>(), 1, &format!("{}, minus the PTE", from("4K")))
    });
    let pmd = find(times, work, PMD_BYTES)
        .and_then(|times| Figure::of(&times.folio_ns().collect::<Vec<_>>(), 1, &from("2M")));
    [fixed, each, base, pmd]
}

/// Pages and nanoseconds of a folio, by size; a round each.
fn points(times: &[Times], work: Work, sizes: std::ops::Range<usize>) -> Vec<Vec<(f64, f64)>> {
    let of: Vec<&Times> = times
        .iter()
        .filter(|times| times.work == work && sizes.contains(&times.folio_bytes))
        .collect();
    let nr_rounds = of.iter().map(|times| times.series.rounds_ns.len()).min().unwrap_or(0);
    let at = |times: &Times, round: usize| {
        let nr_pages = count(times.folio_bytes / PAGE_BYTES);
        (nr_pages, times.series.rounds_ns[round] / times.nr_folios())
    };
    (0..nr_rounds).map(|round| of.iter().map(|times| at(times, round)).collect()).collect()
}

/// Fixed and proportional part, a round each.
fn lines(rounds: &[Vec<(f64, f64)>]) -> (Vec<f64>, Vec<f64>) {
    rounds.iter().filter_map(|points| solve(points)).unzip()
}

impl Around {
    /// One entry each, and sixteen.
    fn new(series: &[Series], nr_faults: usize) -> Self {
        let nr_faults = count(nr_faults);
        let more = count(AROUND_BYTES / PAGE_BYTES - 1);
        let mut around = Self { fault_ns: Vec::new(), page_ns: Vec::new() };
        let [sparse, dense] = series else { return around };
        for (sparse, dense) in sparse.rounds_ns.iter().zip(&dense.rounds_ns) {
            let page = (dense - sparse) / nr_faults / more;
            around.page_ns.push(page);
            around.fault_ns.push(sparse / nr_faults - page);
        }
        around
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A kernel of which every cost is known, on regions of 1,024 folios.
    fn times(work: Work, folio_ns: &dyn Fn(f64) -> f64) -> Vec<Times> {
        let sizes = SIZES.into_iter().chain([LARGE_BYTES, PMD_BYTES]);
        let of = |folio_bytes: usize| Times {
            work,
            folio_bytes,
            len_bytes: 1024 * folio_bytes,
            series: Series {
                rounds_ns: vec![1024.0 * folio_ns(count(folio_bytes / PAGE_BYTES)); 3],
            },
        };
        sizes.map(of).collect()
    }

    fn close(figure: Option<&Figure>, expected: f64) {
        let found = figure.unwrap().ns.median;
        assert!((found - expected).abs() < 1e-6 * expected, "{found}, not {expected}");
    }

    #[test]
    fn known_costs_are_found_again() {
        let by_kind = |pages: f64, [base, fixed, each, pmd]: [f64; 4]| match pages {
            1.0 => base + each,
            512.0 => pmd,
            pages => fixed + pages * each,
        };
        let fork = |pages| by_kind(pages, [40.0, 160.0, 30.0, 1_000.0]);
        let shared = |pages| by_kind(pages, [60.0, 170.0, 10.0, 700.0]);
        let mut all = times(Work::ForkBeyond, &fork);
        all.extend(times(Work::MunmapShared, &shared));
        all.extend(times(Work::Munmap, &|pages| shared(pages) + 220.0 + 8.0 * pages));
        // Clearing 350, an entry 40; a PMD entry has none.
        all.extend(times(Work::Touch, &|pages| {
            1_200.0 + if pages < 512.0 { 390.0 * pages } else { 350.0 * pages }
        }));
        all.extend(times(Work::Zeroes, &|_| 500.0));
        let around = Around { fault_ns: vec![680.0; 3], page_ns: vec![70.0; 3] };
        let mut costs = KernelCosts::default();
        costs.solve(&all, &around);
        for (figure, expected) in [
            (&costs.fork_batch, 40.0),
            (&costs.fork_large, 160.0),
            (&costs.fork_entry, 30.0),
            (&costs.fork_pmd, 1_000.0),
            (&costs.unmap_batch, 60.0),
            (&costs.unmap_large, 170.0),
            (&costs.unmap_pte, 10.0),
            (&costs.unmap_pmd, 700.0),
            (&costs.folio_free, 220.0),
            (&costs.page_free, 8.0),
            (&costs.fault, 500.0),
            (&costs.fault_around, 180.0),
            (&costs.map_entry, 40.0),
            (&costs.map_batch, 30.0),
            (&costs.clear_page, 350.0),
            (&costs.folio_alloc, 1_200.0 - 530.0),
        ] {
            close(figure.as_ref(), expected);
        }
        let mut missing = Vec::new();
        costs.name_missing(&mut missing);
        assert!(missing.is_empty(), "{missing:?}");
    }

    #[test]
    fn a_process_without_large_folios_names_what_it_lacks() {
        let base: Vec<Times> = times(Work::Munmap, &|pages| 300.0 * pages)
            .into_iter()
            .filter(|times| times.folio_bytes == PAGE_BYTES)
            .collect();
        let mut costs = KernelCosts::default();
        costs.solve(&base, &Around { fault_ns: vec![500.0], page_ns: vec![70.0] });
        let mut missing = Vec::new();
        costs.name_missing(&mut missing);
        assert_eq!(missing.len(), 14, "{missing:?}");
    }
}

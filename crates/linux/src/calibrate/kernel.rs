//! The running kernel's cost of faults, fork and unmapping.
//!
//! Regions and folio sizes ([`SIZES_PAGES`], [`REGION_BYTES`]) differ from those in `folio
//! calibrate --check`. All operations share the rounds ([`super::rounds`]), and each round solves
//! for every cost:
//!
//! | cost | from |
//! |---|---|
//! | `fault` | loads from fresh base pages: the shared zero page is mapped |
//! | `fault_around`, `map_batch` + `map_entry` | reads of a memfd with 1 or 16 cached pages around the fault |
//! | `folio_alloc`, each page | first touch of several sizes: fixed for a folio, each for a page |
//! | clearing a page | first touch of 2 MiB, mapped by one entry, minus the fixed part |
//! | `map_entry` | each page of first touch, minus its clearing |
//! | `fork_large`, `fork_entry` | fork with several sizes above the base page, minus fork without the region |
//! | `fork_batch` | the same with base pages, minus `fork_entry` |
//! | `unmap_large`, `unmap_pte` | munmap of several sizes above the base page while a child maps them |
//! | `unmap_batch` | the same with base pages, minus `unmap_pte` |
//! | `fork_pmd`, `unmap_pmd` | the same with 2 MiB |
//! | `folio_free`, `page_free` | munmap of every size, minus munmap while a child maps them |
//!
//! A base page is not a large folio of one page: it has no owner word, and no count other than its
//! own. Measured medians, n = 6: fork took 65 ns for it, and 276, 456, 1,152 and 2,118 ns for
//! folios of 16K, 32K, 128K and 256K. That is 161 ns per folio plus 31 ns per page. A line fitted
//! through all five put the base page at 150 ns.

use super::cached::AROUND_BYTES;
use super::operations::{OfSize, Times, allowed, operations};
use super::rounds::{Pace, Until};
use super::step::solve;
use super::work::TimedWork;
use super::{CalibrateError, Figure, count};
use crate::geometry::{page_bytes, pmd_bytes};
use crate::measure::Series;
use crate::setting::NEEDS_ROOT;
use crate::setting::thp::size_name;

/// Folio sizes for solving fixed and proportional costs, in base pages. The check uses only the
/// base page of these.
pub const SIZES_PAGES: [usize; 5] = [1, 4, 8, 32, 64];
/// Additional size for first touch, whose time is nearly all clearing and setting entries.
const LARGE_PAGES: usize = 256;
/// Larger folios are rarely available in quantity: with 64K pages a PMD entry maps 512 MiB.
const PMD_BYTES_MAX: usize = 32 << 20;
/// Bytes of the regions. The check's are 256 MiB.
pub const REGION_BYTES: usize = 192 << 20;
/// Bytes of regions under PMD entries, large enough to measure the cost of one entry.
const PMD_REGION_BYTES: usize = 384 << 20;

#[derive(Clone, Copy)]
struct Sizes {
    page: usize,
    large: usize,
    pmd: usize,
}

impl Sizes {
    const fn of(page: usize, pmd: usize) -> Self {
        Self { page, large: page * LARGE_PAGES, pmd }
    }

    fn all(self) -> impl Iterator<Item = usize> {
        let pmd = (self.pmd <= PMD_BYTES_MAX).then_some(self.pmd);
        SIZES_PAGES.into_iter().map(move |nr| nr * self.page).chain([self.large]).chain(pmd)
    }

    fn names(self) -> [String; 4] {
        [self.page, self.large, self.page * SIZES_PAGES[4], self.pmd]
            .map(|bytes| size_name(bytes as u64))
    }
}

/// Costs in nanoseconds. `None` means it could not be measured or was not a valid cost.
#[derive(Clone, Debug, Default)]
pub struct KernelCosts {
    /// A fault that only maps a page, without allocating or searching.
    pub fault: Option<Figure>,
    pub fault_around: Option<Figure>,
    /// Setting the entries of one folio.
    pub map_batch: Option<Figure>,
    pub map_entry: Option<Figure>,
    /// First touch of a folio, in addition to a fault that only maps.
    pub folio_alloc: Option<Figure>,
    /// Clearing a page of a folio: first touch per page minus its entry.
    pub clear_page: Option<Figure>,
    /// Fork, a batch of one base page.
    pub fork_batch: Option<Figure>,
    /// Fork, a batch of a large folio.
    pub fork_large: Option<Figure>,
    pub fork_entry: Option<Figure>,
    pub fork_pmd: Option<Figure>,
    /// munmap without freeing, a batch of one base page.
    pub unmap_batch: Option<Figure>,
    /// munmap, a batch of a large folio.
    pub unmap_large: Option<Figure>,
    pub unmap_pte: Option<Figure>,
    pub unmap_pmd: Option<Figure>,
    pub folio_free: Option<Figure>,
    pub page_free: Option<Figure>,
    pub pace: Option<Pace>,
    pub missing: Vec<String>,
}

impl Times {
    fn nr_folios(&self) -> f64 {
        count(self.len_bytes / self.folio_bytes)
    }

    fn folio_ns(&self) -> impl Iterator<Item = f64> {
        self.series.rounds_ns.iter().map(|ns| ns / self.nr_folios())
    }
}

/// Nanoseconds of faults on cached pages, one value per round.
struct Around {
    fault_ns: Vec<f64>,
    page_ns: Vec<f64>,
}

pub(super) fn measure(until: Until, part: usize) -> Result<KernelCosts, CalibrateError> {
    let machine = Sizes::of(page_bytes(), pmd_bytes());
    let (sizes, missing) = allowed(machine.all(), |size| machine.region_bytes(size, part));
    // The texts go into a file, so `the same command` would be meaningless.
    let named =
        |why: String| why.replace(NEEDS_ROOT, "; this needs root: run folio calibrate as root");
    let mut missing: Vec<String> = missing.into_iter().map(named).collect();
    let file_bytes = REGION_BYTES / part;
    let of = |&folio_bytes: &usize| OfSize {
        folio_bytes,
        len_bytes: machine.region_bytes(folio_bytes, part),
        works: machine.works(folio_bytes).to_vec(),
    };
    let plan: Vec<OfSize> = sizes.iter().map(of).collect();
    let nr_cached = [1, (AROUND_BYTES / machine.page).max(1)];
    let nr_cached = if nr_cached[1] > 1 { &nr_cached[..] } else { &[] };
    let measured = operations(until, &plan, nr_cached, file_bytes)?;
    let around = Around::new(&measured.faults, file_bytes / AROUND_BYTES, machine.page);
    let mut costs = KernelCosts::default();
    Solver { machine, times: &measured.works }.solve(&mut costs, &around);
    if machine.pmd > PMD_BYTES_MAX {
        let [.., pmd] = machine.names();
        missing.push(format!("too few folios of {pmd}, which a PMD entry maps here, are free"));
    }
    if nr_cached.is_empty() {
        missing.push("fault-around covers only one page here".to_owned());
    }
    costs.name_missing(&mut missing);
    Ok(KernelCosts { pace: Some(measured.pace), missing, ..costs })
}

impl Sizes {
    const fn works(self, folio_bytes: usize) -> &'static [TimedWork] {
        if folio_bytes == self.large {
            &[TimedWork::Touch]
        } else if folio_bytes == self.page {
            &[
                TimedWork::Touch,
                TimedWork::Zeroes,
                TimedWork::ForkBeyond,
                TimedWork::Munmap,
                TimedWork::MunmapShared,
            ]
        } else {
            &[TimedWork::Touch, TimedWork::ForkBeyond, TimedWork::Munmap, TimedWork::MunmapShared]
        }
    }

    const fn region_bytes(self, folio_bytes: usize, part: usize) -> usize {
        let (whole, unit) = if folio_bytes == self.pmd {
            (PMD_REGION_BYTES, self.pmd)
        } else {
            (REGION_BYTES, self.large)
        };
        whole / part / unit * unit
    }
}

struct Solver<'t> {
    machine: Sizes,
    times: &'t [Times],
}

impl Solver<'_> {
    fn solve(&self, costs: &mut KernelCosts, around: &Around) {
        self.solve_faults(costs, around);
        self.solve_fork(costs);
        self.solve_unmap(costs);
        self.solve_freeing(costs);
    }

    /// Solves faults and first touch step by step: a fault on a cached page, then a folio's
    /// additional time, a page's, and its clearing part.
    fn solve_faults(&self, costs: &mut KernelCosts, around: &Around) {
        let Sizes { page: page_bytes, pmd: pmd_bytes, .. } = self.machine;
        let [page, large, _, pmd] = self.machine.names();
        let how = format!("loads from fresh {page} pages, which map the shared page of zeroes");
        let zeroes = self.find(TimedWork::Zeroes, page_bytes);
        let zeroes = zeroes.map_or_else(Vec::new, |times| times.folio_ns().collect());
        costs.fault = Figure::of(&zeroes, 1, &how);
        let fault_ns = median(costs.fault.as_ref());
        let looking = around.fault_ns.iter().map(|ns| ns - fault_ns).collect::<Vec<_>>();
        let how =
            "read faults with one cached base page per 64K of memfd, less that page and fault";
        costs.fault_around = Figure::of(&looking, 1, how);
        let (fixed, each) = lines(&self.points(TimedWork::Touch, page_bytes..pmd_bytes));
        let nr_pages = count(pmd_bytes / page_bytes);
        let clear: Vec<f64> =
            self.find(TimedWork::Touch, pmd_bytes).map_or_else(Vec::new, |times| {
                times.folio_ns().zip(&fixed).map(|(ns, fixed)| (ns - fixed) / nr_pages).collect()
            });
        let how = format!(
            "first touch of {pmd} folios, less the fixed part found with {page} to {large} folios; \
             per page"
        );
        costs.clear_page = Figure::of(&clear, 1, &how);
        let entry = each.iter().zip(&clear).map(|(each, clear)| each - clear).collect::<Vec<_>>();
        let how = format!("first touch of {page} to {large} folios, per page, less its clearing");
        costs.map_entry = Figure::of(&entry, 1, &how);
        let entry_ns = median(costs.map_entry.as_ref());
        let batch = around.page_ns.iter().map(|page| page - entry_ns).collect::<Vec<_>>();
        let nr_around = AROUND_BYTES / page_bytes;
        let how = format!(
            "read faults with {nr_around} cached base pages, less those with one; per page, less \
             its entry"
        );
        costs.map_batch = Figure::of(&batch, 1, &how);
        let known = fault_ns + median(costs.map_batch.as_ref());
        let beyond = fixed.iter().map(|ns| ns - known).collect::<Vec<_>>();
        let how = format!(
            "first touch of {page} to {large} folios, fixed part per folio, less a fault that only \
             maps"
        );
        costs.folio_alloc = Figure::of(&beyond, 1, &how);
    }

    fn solve_fork(&self, costs: &mut KernelCosts) {
        let less = "less fork without the region";
        let [large, each, base, pmd] = self
            .by_kind(TimedWork::ForkBeyond, |folios| format!("fork with {folios} folios {less}"));
        (costs.fork_large, costs.fork_entry, costs.fork_batch, costs.fork_pmd) =
            (large, each, base, pmd);
    }

    fn solve_unmap(&self, costs: &mut KernelCosts) {
        let [large, each, base, pmd] = self.by_kind(TimedWork::MunmapShared, |folios| {
            format!("munmap of {folios} folios that a child maps")
        });
        (costs.unmap_large, costs.unmap_pte, costs.unmap_batch, costs.unmap_pmd) =
            (large, each, base, pmd);
    }

    /// Solves freeing from the extra time of munmap when it frees: one line from the base page to
    /// the PMD size.
    fn solve_freeing(&self, costs: &mut KernelCosts) {
        let freeing = self.points(TimedWork::Munmap, self.machine.page..self.machine.pmd + 1);
        let shared = self.points(TimedWork::MunmapShared, self.machine.page..self.machine.pmd + 1);
        let beyond: Vec<Vec<(f64, f64)>> = freeing
            .iter()
            .zip(&shared)
            .map(|(freeing, shared)| {
                let pairs = freeing.iter().zip(shared);
                pairs.map(|((nr, ns), (_, less))| (*nr, ns - less)).collect()
            })
            .collect();
        let [page, _, largest, pmd] = self.machine.names();
        let from = format!(
            "munmap of {page} to {largest} and {pmd} folios less munmap of those that a child maps"
        );
        let (fixed, each) = lines(&beyond);
        costs.folio_free = Figure::of(&fixed, 1, &format!("{from}: fixed part per folio"));
        costs.page_free = Figure::of(&each, 1, &format!("{from}: per page"));
    }

    fn find(&self, work: TimedWork, folio_bytes: usize) -> Option<&Times> {
        self.times.iter().find(|times| times.work == work && times.folio_bytes == folio_bytes)
    }

    /// Returns an operation's cost for a large folio without its pages, for each page, for a base
    /// page minus that, and for a PMD-mapped folio. `from` describes measurements on these sizes.
    fn by_kind(&self, work: TimedWork, from: impl Fn(&str) -> String) -> [Option<Figure>; 4] {
        let Sizes { page: page_bytes, pmd: pmd_bytes, .. } = self.machine;
        let [page, _, largest, pmd] = self.machine.names();
        let (fixed, each) = lines(&self.points(work, page_bytes + 1..pmd_bytes));
        let smallest = size_name((page_bytes * SIZES_PAGES[1]) as u64);
        let large = from(&format!("{smallest} to {largest}"));
        let fixed = Figure::of(&fixed, 1, &format!("{large}: fixed part per folio"));
        let each = Figure::of(&each, 1, &format!("{large}: per page"));
        let base = each.as_ref().and_then(|each| {
            let ns = self.find(work, page_bytes)?.folio_ns().map(|ns| ns - each.ns.median);
            Figure::of(&ns.collect::<Vec<_>>(), 1, &format!("{}, minus the PTE", from(&page)))
        });
        let pmd = self
            .find(work, pmd_bytes)
            .and_then(|times| Figure::of(&times.folio_ns().collect::<Vec<_>>(), 1, &from(&pmd)));
        [fixed, each, base, pmd]
    }

    fn points(&self, work: TimedWork, sizes: std::ops::Range<usize>) -> Vec<Vec<(f64, f64)>> {
        let of: Vec<&Times> = self
            .times
            .iter()
            .filter(|times| times.work == work && sizes.contains(&times.folio_bytes))
            .collect();
        let nr_rounds = of.iter().map(|times| times.series.rounds_ns.len()).min().unwrap_or(0);
        let at = |times: &Times, round: usize| {
            let nr_pages = count(times.folio_bytes / self.machine.page);
            (nr_pages, times.series.rounds_ns[round] / times.nr_folios())
        };
        (0..nr_rounds).map(|round| of.iter().map(|times| at(times, round)).collect()).collect()
    }
}

impl KernelCosts {
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
            missing.push(format!("{name}: not measured, or the result is not a valid cost"));
        }
    }
}

fn median(figure: Option<&Figure>) -> f64 {
    figure.map_or(0.0, |figure| figure.ns.median)
}

fn lines(rounds: &[Vec<(f64, f64)>]) -> (Vec<f64>, Vec<f64>) {
    rounds.iter().filter_map(|points| solve(points)).unzip()
}

impl Around {
    /// Solves from faults with one cached page and with as many as fault-around finds. Returns an
    /// empty result if that is one.
    fn new(series: &[Series], nr_faults: usize, page_bytes: usize) -> Self {
        let nr_faults = count(nr_faults);
        let more = count((AROUND_BYTES / page_bytes).saturating_sub(1));
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

    /// A kernel with known costs, on regions of 1,024 folios.
    fn times(machine: Sizes, work: TimedWork, folio_ns: &dyn Fn(f64) -> f64) -> Vec<Times> {
        let of = |folio_bytes: usize| Times {
            work,
            folio_bytes,
            len_bytes: 1024 * folio_bytes,
            series: Series {
                rounds_ns: vec![1024.0 * folio_ns(count(folio_bytes / machine.page)); 3],
            },
        };
        machine.all().map(of).collect()
    }

    fn close(figure: Option<&Figure>, expected: f64) {
        let median = figure.unwrap().ns.median;
        assert!((median - expected).abs() < 1e-6 * expected, "{median}, not {expected}");
    }

    const K4: Sizes = Sizes::of(4 << 10, 2 << 20);

    #[test]
    fn known_costs_are_found_again() {
        for machine in [K4, Sizes::of(16 << 10, 32 << 20)] {
            found_again(machine);
        }
    }

    fn found_again(machine: Sizes) {
        let pmd_pages = count(machine.pmd / machine.page);
        let by_kind = |pages: f64, [base, fixed, each, pmd]: [f64; 4]| match pages {
            1.0 => base + each,
            pages if pages >= pmd_pages => pmd,
            pages => fixed + pages * each,
        };
        let times = |work, of: &dyn Fn(f64) -> f64| times(machine, work, of);
        let fork = |pages| by_kind(pages, [40.0, 160.0, 30.0, 1_000.0]);
        let shared = |pages| by_kind(pages, [60.0, 170.0, 10.0, 700.0]);
        let mut all = times(TimedWork::ForkBeyond, &fork);
        all.extend(times(TimedWork::MunmapShared, &shared));
        all.extend(times(TimedWork::Munmap, &|pages| shared(pages) + 220.0 + 8.0 * pages));
        // Clearing takes 350, an entry 40. A PMD entry takes none.
        all.extend(times(TimedWork::Touch, &|pages| {
            1_200.0 + if pages < pmd_pages { 390.0 * pages } else { 350.0 * pages }
        }));
        all.extend(times(TimedWork::Zeroes, &|_| 500.0));
        let around = Around { fault_ns: vec![680.0; 3], page_ns: vec![70.0; 3] };
        let mut costs = KernelCosts::default();
        Solver { machine, times: &all }.solve(&mut costs, &around);
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
    fn regions_hold_whole_folios_of_every_size_that_is_measured() {
        let machines = [K4, Sizes::of(16 << 10, 32 << 20), Sizes::of(64 << 10, 512 << 20)];
        for machine in machines {
            for (folio_bytes, part) in machine.all().flat_map(|bytes| [(bytes, 1), (bytes, 8)]) {
                let bytes = machine.region_bytes(folio_bytes, part);
                assert!(bytes > 0 && bytes.is_multiple_of(folio_bytes), "{folio_bytes} {part}");
            }
        }
        assert_eq!(machines.map(|machine| machine.all().count()), [7, 7, 6]);
    }

    #[test]
    fn a_process_without_large_folios_names_what_it_lacks() {
        let base: Vec<Times> = times(K4, TimedWork::Munmap, &|pages| 300.0 * pages)
            .into_iter()
            .filter(|times| times.folio_bytes == K4.page)
            .collect();
        let mut costs = KernelCosts::default();
        let around = Around { fault_ns: vec![500.0], page_ns: vec![70.0] };
        Solver { machine: K4, times: &base }.solve(&mut costs, &around);
        let mut missing = Vec::new();
        costs.name_missing(&mut missing);
        assert_eq!(missing.len(), 14, "{missing:?}");
    }
}

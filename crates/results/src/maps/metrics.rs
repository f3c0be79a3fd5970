//! The metrics of a reading: one list of families, for every format.
//!
//! Invariants:
//! - O1: processes cannot increase the number of series without bound. Only the largest `nr_rows`
//!   processes, control groups and files have a series per folio size; the rest are summed as
//!   [`REST`].
//! - O2: no two samples of a family have the same labels. Labels that become equal when unprintable
//!   characters are replaced are merged.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use largefolio_linux::census::cgroup::Group;
use largefolio_linux::census::folios::{Cell, MemoryKind, Size, Tally};
use largefolio_linux::census::{Access, Census};
use largefolio_linux::system::{Live, System as _};
use largefolio_mm::rules::sizes::size_name;

use super::plain::plain;
use super::reading::Reading;
use super::show::Show;
use super::waste::WasteResult;
use crate::figures::printable;

const REST: &str = "(other)";

pub(super) type Labels = Vec<(&'static str, String)>;
/// Bytes by folio size.
type Sizes = BTreeMap<Size, u64>;

pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) unit: Unit,
    pub(super) help: &'static str,
    pub(super) whole: Whole,
    pub(super) samples: Vec<Sample>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Unit {
    Bytes,
    Seconds,
    Processes,
    None,
}

/// Whether the samples of a family add up.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Whole {
    /// Each byte or process is in one sample, so that the sum means something.
    Sum,
    /// Samples overlap, or are not quantities.
    Apart,
}

pub(super) struct Sample {
    pub(super) labels: Labels,
    pub(super) value: Value,
}

#[derive(Clone, Copy)]
pub(super) enum Value {
    Count(u64),
    Ns(u64),
}

/// Returns everything that the reading knows, and `waste` if it was measured.
pub(super) fn of(reading: &Reading, waste: Option<&WasteResult>, show: Show) -> Vec<Family> {
    let page_bytes = Live.page_bytes();
    let mut families = Vec::new();
    if let Some(census) = &reading.census {
        families.extend(kinds(census, page_bytes));
        families.extend(counts(census));
        let processes = census.processes.iter();
        let processes = processes.map(|one| (label("process", &one.name), sizes(&one.tally)));
        families.push(Family::new(
            "folio_process_mapped_bytes",
            Unit::Bytes,
            "Mapped memory of all processes with the same name; shared pages count in each process.",
            largest(label("process", REST), processes, show, page_bytes),
        ));
        families.push(groups(census, show, page_bytes));
    }
    if let Some(waste) = waste {
        let order = |bytes: u64| Size::Order((bytes / page_bytes).trailing_zeros());
        let sizes = |sizes: BTreeMap<u64, u64>| {
            sizes.into_iter().map(|(size, bytes)| (order(size), bytes)).collect()
        };
        let zeroes = waste.zero_bytes();
        let zeroes = zeroes.map(|(name, zeroes)| (label("process", name), sizes(zeroes)));
        families.push(Family::new(
            "folio_process_zero_bytes",
            Unit::Bytes,
            "Pages of zeroes in large private folios of all processes with the same name; estimated.",
            largest(label("process", REST), zeroes, show, page_bytes),
        ));
    }
    if let Some(cached) = &reading.cached {
        let files = cached.files.iter();
        let files = files.map(|file| (label("file", &plain(&file.path)), sizes(&file.tally)));
        let family = Family::new(
            "folio_file_cached_bytes",
            Unit::Bytes,
            "A file's cached pages by folio size.",
            largest(label("file", REST), files, show, page_bytes),
        );
        families.push(Family { whole: Whole::Sum, ..family });
    }
    families.push(Family::new(
        "folio_build_info",
        Unit::None,
        "The program that wrote this; always 1.",
        vec![Sample::count(label("version", env!("CARGO_PKG_VERSION")), 1)],
    ));
    families.push(Family::new(
        "folio_look_cpu_seconds",
        Unit::Seconds,
        "CPU time spent collecting these metrics.",
        vec![Sample { labels: Vec::new(), value: Value::Ns(reading.cpu_ns_since_begin()) }],
    ));
    families
}

impl Family {
    fn new(name: &'static str, unit: Unit, help: &'static str, samples: Vec<Sample>) -> Self {
        Self { name, unit, help, whole: Whole::Apart, samples }
    }
}

impl Sample {
    const fn count(labels: Labels, count: u64) -> Self {
        Self { labels, value: Value::Count(count) }
    }
}

/// Memory by kind and folio size: all of it, and parts of it.
fn kinds(census: &Census, page_bytes: u64) -> Vec<Family> {
    type Pick = fn(&Cell) -> u64;
    let picks: [(&'static str, &'static str, Pick); 5] = [
        ("folio_mapped_bytes", "Mapped memory, each page once, by kind and folio size.", |cell| {
            cell.mapped_bytes()
        }),
        (
            "folio_unaligned_bytes",
            "Mapped memory in folios that are fully mapped but unaligned.",
            |cell| cell.unaligned_bytes,
        ),
        ("folio_partial_bytes", "Mapped memory in folios that are only partly mapped.", |cell| {
            cell.partial_bytes
        }),
        ("folio_contpte_bytes", "Mapped memory in contpte blocks from one folio.", |cell| {
            cell.contpte_bytes
        }),
        ("folio_pmd_mapped_bytes", "Memory mapped by PMD entries.", |cell| cell.pmd_bytes),
    ];
    let all = picks[0].0;
    let family = |(name, help, pick): (&'static str, &'static str, Pick)| {
        let cells = census.totals.cells();
        let cells = cells.filter(|(.., cell)| name == all || pick(cell) > 0);
        let samples = cells.map(|(kind, size, cell)| {
            let mut labels = label("kind", kind.name());
            labels.push(size_label(size, page_bytes));
            Sample::count(labels, pick(cell))
        });
        let family = Family::new(name, Unit::Bytes, help, samples.collect());
        Family { whole: Whole::Sum, ..family }
    };
    picks.map(family).into()
}

fn counts(census: &Census) -> [Family; 2] {
    let skipped = &census.skipped;
    let states = [
        ("counted", census.processes.len()),
        ("refused", skipped.refused.len()),
        ("gone", skipped.gone.len()),
        ("empty", skipped.empty.len()),
    ];
    let samples = states.map(|(state, nr)| Sample::count(label("state", state), nr as u64));
    let processes = Family::new(
        "folio_processes",
        Unit::Processes,
        "Processes by outcome of reading their mappings.",
        samples.into(),
    );
    let known = Family::new(
        "folio_sizes_known",
        Unit::None,
        "1 if folio sizes could be read, which needs root; else 0.",
        vec![Sample::count(Vec::new(), u64::from(census.access == Access::Full))],
    );
    [Family { whole: Whole::Sum, ..processes }, known]
}

fn groups(census: &Census, show: Show, page_bytes: u64) -> Family {
    let labels = |cgroup: &str, unit: &str, container: &str| {
        [("cgroup", cgroup), ("unit", unit), ("container", container)]
            .map(|(name, value)| (name, printable(value)))
            .to_vec()
    };
    let groups = census.processes.iter().map(|one| {
        let group = Group::of(&Live, one.pid);
        let (unit, container) = (group.unit(), group.container());
        let labels = labels(&group.0, unit.unwrap_or_default(), container.unwrap_or_default());
        (labels, sizes(&one.tally))
    });
    Family::new(
        "folio_cgroup_mapped_bytes",
        Unit::Bytes,
        "Mapped memory of all processes in the same control group; shared pages count in each.",
        largest(labels(REST, "", ""), groups, show, page_bytes),
    )
}

/// Returns samples of the largest label sets and of the rest (O1, O2).
fn largest(
    rest: Labels,
    all: impl Iterator<Item = (Labels, Sizes)>,
    show: Show,
    page_bytes: u64,
) -> Vec<Sample> {
    let mut sums: BTreeMap<Labels, Sizes> = BTreeMap::new();
    for (labels, sizes) in all {
        add(sums.entry(labels).or_default(), sizes);
    }
    let mut sums: Vec<(Labels, Sizes)> = sums.into_iter().collect();
    sums.sort_by_key(|(_, sizes)| Reverse(sizes.values().sum::<u64>()));
    let mut others = Sizes::new();
    for (_, sizes) in sums.split_off(show.nr_rows.min(sums.len())) {
        add(&mut others, sizes);
    }
    // One of the largest may be called like the rest.
    match sums.iter_mut().find(|(labels, _)| *labels == rest) {
        Some((_, sum)) => add(sum, others),
        None => sums.push((rest, others)),
    }
    let samples = sums.into_iter().flat_map(|(labels, sizes)| {
        sizes.into_iter().map(move |(size, bytes)| {
            let mut labels = labels.clone();
            labels.push(size_label(size, page_bytes));
            Sample::count(labels, bytes)
        })
    });
    samples.collect()
}

fn sizes(tally: &Tally) -> Sizes {
    let mut sizes = Sizes::new();
    for (_, size, cell) in tally.cells().filter(|(kind, ..)| *kind != MemoryKind::Other) {
        *sizes.entry(size).or_default() += cell.mapped_bytes();
    }
    sizes
}

fn add(sum: &mut Sizes, more: Sizes) {
    for (size, bytes) in more {
        *sum.entry(size).or_default() += bytes;
    }
}

fn label(name: &'static str, value: &str) -> Labels {
    vec![(name, printable(value))]
}

fn size_label(size: Size, page_bytes: u64) -> (&'static str, String) {
    ("size", size.bytes(page_bytes).map_or_else(|| "unknown".to_owned(), size_name))
}

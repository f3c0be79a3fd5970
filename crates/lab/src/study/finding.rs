//! Compares published numbers with ours, row by row.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::basis::Basis;
use super::cell::Values;
use super::closeness::{Closeness, ValuePair};
use super::curve::CurveFinding;
use super::file::{Change, InKernel, Ours, Published, Quoted, Row, Source, Study};
use super::frontier::FrontierFinding;
use super::metric::{Metric, Number};
use super::parts::Input;
use super::score::{self, Score};
use super::unit::scaled;
use largefolio_sim::replay::{CacheState, CellSpec};

/// Fewest rounds that determine a direction: five in the same direction by chance are 1 in 16.
const NR_ROUNDS_MIN: usize = 5;

/// Measurements of rows' benches, by study name, table and row.
pub type Measurements = BTreeMap<(String, usize, usize), Measured>;

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Measured {
    pub before: f64,
    pub after: f64,
    /// Median, smallest and largest change within a round, in percent.
    pub change: [f64; 3],
    pub n: usize,
    pub cpu: String,
    pub kernel: String,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Finding {
    pub study: String,
    pub title: String,
    pub source: String,
    pub setup: String,
    pub reference: String,
    pub rests_on: Option<String>,
    pub tables: Vec<TableFinding>,
    pub curves: Vec<CurveFinding>,
    pub frontiers: Vec<FrontierFinding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TableFinding {
    pub title: String,
    pub rows: Vec<RowFinding>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RowFinding {
    pub what: String,
    pub published: Option<ValuePair>,
    pub published_text: Option<String>,
    pub published_spread: Option<String>,
    pub unit: String,
    pub ours: Option<ValuePair>,
    pub ours_unit: String,
    pub measure: Change,
    /// Our change minus the published one, in percentage points. For single numbers, the difference
    /// in their unit.
    pub distance: Option<f64>,
    /// How close our change or single number is; absent if either side is missing.
    pub closeness: Option<Closeness>,
    /// How close the levels are; absent if none was published, or ours has another unit.
    pub level: Option<Closeness>,
    /// Whether the row counts and matches; absent if there is nothing to compare.
    pub score: Option<Score>,
    /// Instructions in kernels; no part of the comparison.
    pub in_kernel: Option<InKernel>,
    pub how: Derivation,
    pub basis: Vec<Basis>,
    pub inputs_of_series: Option<String>,
    pub other_quantity: Option<String>,
    pub reason: Option<String>,
    pub disagrees: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Derivation {
    /// Counted in the model: exact for the trace.
    Counted {
        of: String,
    },
    Estimated {
        of: String,
        not_known: Option<String>,
        /// Constants without a document or measurement, by their name in the machine file.
        assumed: Vec<String>,
    },
    Measured(Measured),
    /// Measured earlier; the study has the numbers.
    Quoted(Quoted),
    None {
        why: String,
    },
}

impl Derivation {
    /// Returns whether the rounds moved in both directions, which counts as no change.
    fn is_undecided(&self) -> bool {
        let range = match self {
            Self::Measured(measured) => Some([measured.change[1], measured.change[2]]),
            Self::Quoted(quoted) => quoted.range,
            _ => None,
        };
        range.is_some_and(|[min, max]| min < 0.0 && max > 0.0)
    }

    /// Returns whether it can be a surprise. A measurement with few rounds, or with rounds in both
    /// directions, can be chance.
    fn has_direction(&self) -> bool {
        match self {
            Self::Measured(measured) => measured.n >= NR_ROUNDS_MIN && !self.is_undecided(),
            _ => true,
        }
    }

    const fn is_assumed(&self) -> bool {
        matches!(self, Self::Estimated { assumed, .. } if !assumed.is_empty())
    }

    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Counted { .. } => "counted".to_owned(),
            Self::Estimated { .. } => "estimated".to_owned(),
            Self::Measured(measured) => format!("measured, n = {}", measured.n),
            Self::Quoted(quoted) => format!("quoted: {}", quoted.from),
            Self::None { .. } => "-".to_owned(),
        }
    }
}

impl Finding {
    #[must_use]
    pub fn new(study: &Study, values: &Values, measured: &Measurements) -> Self {
        let table = |(nr, table): (usize, &super::file::Table)| TableFinding {
            title: table.title.clone(),
            rows: (0..)
                .zip(&table.rows)
                .map(|(row_nr, row)| {
                    let measured = measured.get(&(study.name.clone(), nr, row_nr));
                    RowFinding::new(row, study, values, measured)
                })
                .collect(),
        };
        Self {
            study: study.name.clone(),
            title: study.title.clone(),
            source: study.source.clone(),
            setup: study.setup.clone(),
            reference: study.reference.clone(),
            rests_on: study.rests_on.clone(),
            tables: study.tables.iter().enumerate().map(table).collect(),
            curves: (0..study.curves.len())
                .map(|nr| CurveFinding::new(study, nr, values))
                .collect(),
            frontiers: (0..study.frontiers.len())
                .map(|nr| FrontierFinding::new(study, nr, values))
                .collect(),
        }
    }

    /// Returns the rows that move in another direction than published, or are apart, without
    /// `disagrees`, and the rows with `disagrees` that agree.
    pub fn surprises(&self) -> impl Iterator<Item = (&TableFinding, &RowFinding)> {
        let rows =
            self.tables.iter().flat_map(|table| table.rows.iter().map(move |row| (table, row)));
        rows.filter(|(_, row)| {
            let is_other = row
                .closeness
                .is_some_and(|closeness| closeness.agrees() == row.disagrees.is_some());
            is_other && row.how.has_direction()
        })
    }
}

impl RowFinding {
    fn new(row: &Row, study: &Study, values: &Values, measured: Option<&Measured>) -> Self {
        let mut own_inputs = row.inputs_of_series.clone();
        let (ours, how) = match &row.ours {
            Ours::Cells { metric, before, after } => {
                let cells = Cells { metric, before: before.as_deref(), after };
                if row.published.is_some() {
                    own_inputs = own_inputs.or_else(|| own_constants(study, values, &cells));
                }
                of_cells(study, values, cells, &row.ours_unit)
            }
            Ours::Bench { quoted, .. } => of_bench(measured, quoted.as_ref()),
            Ours::None(why) => (None, Derivation::None { why: why.clone() }),
        };
        let ours =
            ours.map(|ours| ValuePair { change: ours.change.or(change(row.change, ours)), ..ours });
        let published = row.published.as_ref().map(|published| {
            let Published { before, after, .. } = *published;
            let pair = ValuePair { before, after, change: published.change };
            ValuePair { change: pair.change.or(change(row.change, pair)), ..pair }
        });
        // A word such as "some" is printed, but cannot be compared.
        let has_number =
            |pair: &ValuePair| [pair.before, pair.after, pair.change].iter().any(Option::is_some);
        let both = published.filter(has_number).zip(ours);
        let is_undecided = how.is_undecided();
        let closeness =
            both.and_then(|(published, ours)| Closeness::of(row, published, ours, is_undecided));
        let score = both.map(|(published, ours)| {
            let (has_own_input, is_assumed) = (own_inputs.is_some(), how.is_assumed());
            let compared = score::Compared {
                published,
                ours,
                closeness,
                has_own_input,
                is_assumed,
                is_undecided,
            };
            Score::of(row, compared)
        });
        Self {
            what: row.what.clone(),
            published_text: row.published.as_ref().and_then(|published| published.text.clone()),
            published_spread: row.published.as_ref().and_then(|published| published.spread.clone()),
            distance: both.and_then(|(published, ours)| distance(row, published, ours)),
            level: both.and_then(|(published, ours)| score::level(row, published, ours)),
            closeness,
            score,
            in_kernel: row.in_kernel.clone(),
            basis: basis(row, study, &how, own_inputs.is_some()),
            inputs_of_series: own_inputs,
            other_quantity: row.other_quantity.clone(),
            published,
            ours,
            unit: row.unit.clone(),
            ours_unit: row.ours_unit.clone(),
            measure: row.change,
            how,
            reason: row.reason.clone(),
            disagrees: row.disagrees.clone(),
        }
    }
}

/// Returns the change of a pair; `None` in percent if it starts at or near 0.
fn change(measure: Change, pair: ValuePair) -> Option<f64> {
    let (before, after) = (pair.before?, pair.after?);
    let change = match measure {
        Change::Points => Some(after - before),
        _ if before == 0.0 && after == 0.0 => Some(0.0),
        Change::Percent if before == 0.0 => None,
        Change::Percent => Some((after / before - 1.0) * 100.0),
        Change::Speed if after == 0.0 => None,
        Change::Speed => Some((before / after - 1.0) * 100.0),
    };
    change.filter(|change| change.is_finite())
}

fn distance(row: &Row, published: ValuePair, ours: ValuePair) -> Option<f64> {
    match (published.change, ours.change) {
        (Some(published), Some(ours)) => Some(ours - published),
        (None, None) if row.unit == row.ours_unit => Some(ours.after? - published.after?),
        _ => None,
    }
}

fn of_bench(
    measured: Option<&Measured>,
    quoted: Option<&Quoted>,
) -> (Option<ValuePair>, Derivation) {
    match (measured, quoted) {
        (Some(measured), _) => {
            let (before, after) = (Some(measured.before), Some(measured.after));
            let change = Some(measured.change[0]);
            (Some(ValuePair { before, after, change }), Derivation::Measured(measured.clone()))
        }
        (None, Some(quoted)) => {
            let (before, after) = (Some(quoted.before), Some(quoted.after));
            (Some(ValuePair { before, after, change: None }), Derivation::Quoted(quoted.clone()))
        }
        (None, None) => (None, Derivation::None { why: "measured only with --live".to_owned() }),
    }
}

fn basis(row: &Row, study: &Study, how: &Derivation, has_own_input: bool) -> Vec<Basis> {
    let derived = match (&row.ours, how) {
        (_, Derivation::None { .. }) => return Vec::new(),
        (_, Derivation::Measured(_)) => Basis::Measured,
        (_, Derivation::Quoted(_)) => Basis::Quoted,
        (Ours::Cells { after, .. }, _) => match study.cells.get(after) {
            Some(Source::Replay(Input::Recorded(_), _)) => Basis::Recorded,
            Some(Source::Replay(Input::Generated(_), _)) => Basis::Generated,
            _ => Basis::Model,
        },
        _ => Basis::Model,
    };
    let own = has_own_input.then_some(Basis::OwnSeries);
    let mut all: Vec<Basis> = row.basis.iter().copied().chain([derived]).chain(own).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Names the machine constants used by these cells' estimate that come from the study's own section
/// of the book.
fn own_constants(study: &Study, values: &Values, cells: &Cells<'_>) -> Option<String> {
    let section = study.source.strip_prefix("docs/behaviour")?.split_whitespace().next()?;
    let section = section.trim_end_matches(|c: char| !c.is_ascii_alphanumeric());
    let names = cells.before.into_iter().chain([cells.after]);
    let mut own = BTreeSet::new();
    for cell in names.filter_map(|name| values.cell(&study.name, name).ok()) {
        let used = cells.metric.constants_in(cell).into_iter();
        let cited =
            used.filter(|(_, one)| one["source"].as_str().is_some_and(|s| cites(s, section)));
        own.extend(cited.map(|(name, _)| name));
    }
    let names: Vec<&str> = own.into_iter().collect();
    (!names.is_empty()).then(|| format!("{} from the machine file", names.join(", ")))
}

/// Returns whether a source cites `section` or a part of it, but not a section whose number only
/// starts with the same digits.
fn cites(source: &str, section: &str) -> bool {
    source.match_indices(section).any(|(at, closeness)| {
        !source[at + closeness.len()..].starts_with(|c: char| c.is_ascii_digit())
    })
}

struct Cells<'a> {
    metric: &'a Metric,
    before: Option<&'a str>,
    after: &'a str,
}

fn of_cells(
    study: &Study,
    values: &Values,
    Cells { metric, before, after }: Cells<'_>,
    unit: &str,
) -> (Option<ValuePair>, Derivation) {
    let (mut not_known, mut assumed) = (None, BTreeSet::new());
    let mut number = |name: &str| -> Result<Option<f64>, String> {
        let cell = values.cell(&study.name, name).map_err(str::to_owned)?;
        assumed.extend(metric.assumed_in(cell));
        Ok(match metric.of(cell) {
            Number::Known(number) => Some(scaled(number, metric, unit)),
            Number::NotKnown(what) => {
                not_known = Some(what);
                None
            }
        })
    };
    let pair = before.map(&mut number).transpose().and_then(|before| {
        let after = number(after)?;
        Ok(ValuePair { before: before.flatten(), after, change: None })
    });
    let pair = match pair {
        Ok(pair) => pair,
        Err(why) => return (None, Derivation::None { why }),
    };
    let of = described(study, before, after);
    let how = match not_known {
        not_known if metric.is_estimate() => {
            Derivation::Estimated { of, not_known, assumed: assumed.into_iter().collect() }
        }
        Some(what) => Derivation::None { why: format!("not known: {what}") },
        None => Derivation::Counted { of },
    };
    let is_whole = pair.after.is_some() && (before.is_none() || pair.before.is_some());
    (is_whole.then_some(pair), how)
}

pub(super) fn described_setup(spec: &CellSpec) -> String {
    let mut parts = vec![spec.machine.name.clone()];
    parts.extend(spec.filesystem.clone());
    if spec.cache == CacheState::Warm {
        parts.push("page cache warm".to_owned());
    }
    parts.push(match spec.swap_bytes {
        0 => "no swap space".to_owned(),
        bytes => format!("{} MiB of swap space", bytes >> 20),
    });
    parts.join(", ")
}

fn described(study: &Study, before: Option<&str>, after: &str) -> String {
    let (input, kernel, machine) = described_cell(study, after);
    let kernels = match before.map(|name| described_cell(study, name).1) {
        Some(before) if before != kernel => format!("{before} -> {kernel}"),
        _ => kernel,
    };
    let machine = machine.map(|machine| format!(", {machine}")).unwrap_or_default();
    let links = match (before.and_then(|name| links(study, name)), links(study, after)) {
        (Some(before), Some(after)) if before != after => {
            format!(", linked for {before} -> {after}")
        }
        (_, Some(after)) => format!(", linked for {after}"),
        (_, None) => String::new(),
    };
    format!("{input}, {kernels}{machine}{links}")
}

/// Lists the page sizes that a cell's images are relinked for, if any.
fn links(study: &Study, name: &str) -> Option<String> {
    let Source::Replay(_, spec) = study.cells.get(name)? else { return None };
    let each: Vec<String> = spec.linked.iter().map(ToString::to_string).collect();
    (!each.is_empty()).then(|| each.join(" "))
}

fn described_cell(study: &Study, name: &str) -> (String, String, Option<String>) {
    let of = |input: &str, spec: &CellSpec| {
        let warm = if spec.cache == CacheState::Warm { ", page cache warm" } else { "" };
        let machine = format!("{}{warm}", spec.machine.name);
        (input.to_owned(), spec.kernel.name.clone(), Some(machine))
    };
    match study.cells.get(name) {
        Some(Source::Replay(input, spec)) => of(input.name(), spec),
        Some(Source::Model(model)) => {
            let (kernel, machine) = model.names();
            ("the model alone".to_owned(), kernel.to_owned(), machine.map(str::to_owned))
        }
        None => (String::new(), String::new(), None),
    }
}

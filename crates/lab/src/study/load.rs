//! Reads and checks a study file.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use serde::Deserialize;

use super::basis::Basis;
use super::builtin::STUDIES;
use super::curve::CurveFile;
use super::error::{Mistake, StudyError};
use super::file::{Bench, Change, InKernel, Ours, Published, Quoted, Row, Source, Study, Table};
use super::frontier::FrontierFile;
use super::metric::Metric;
use super::model::Model;
use super::parts::{Generated, Input, NR_ROWS_MAX};
use super::sample::Sample;
use super::unit;
use largefolio_sim::datafile::{line_of, parse};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::names::nearest;
use largefolio_sim::replay::request::{AGED_ROUNDS_MAX, unknown_filesystem};
use largefolio_sim::replay::{CacheState, CellSpec, Fragmented, Linked};
use largefolio_sim::size;

/// Valid published or quoted numbers; others are mistakes, and unreadable.
const NUMBERS: RangeInclusive<f64> = 1e-15..=1e15;

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct StudyFile {
    name: String,
    title: String,
    source: String,
    setup: String,
    #[serde(default = "published")]
    reference: String,
    rests_on: Option<String>,
    #[serde(default)]
    workloads: BTreeMap<String, Generated>,
    #[serde(default)]
    cells: BTreeMap<String, CellFile>,
    #[serde(default)]
    benches: BTreeMap<String, Bench>,
    #[serde(default)]
    tables: Vec<TableFile>,
    #[serde(default)]
    curves: Vec<CurveFile>,
    #[serde(default)]
    frontiers: Vec<FrontierFile>,
}

fn published() -> String {
    "published".to_owned()
}

#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct CellFile {
    pub(super) trace: Option<String>,
    pub(super) workload: Option<String>,
    pub(super) model: Option<Model>,
    pub(super) kernel: Option<String>,
    pub(super) machine: Option<String>,
    pub(super) filesystem: Option<String>,
    #[serde(default)]
    pub(super) linked: Vec<String>,
    pub(super) cache: Option<String>,
    pub(super) seed: Option<u64>,
    pub(super) reference_ns: Option<u64>,
    pub(super) memory: Option<String>,
    pub(super) swap: Option<String>,
    pub(super) fragmentation: Option<String>,
    pub(super) aged: Option<u32>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub(super) struct LineFile {
    pub(super) name: String,
    pub(super) kernel: String,
}

/// A table. Its `unit` and similar keys apply to rows without their own.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct TableFile {
    title: String,
    before: Option<String>,
    after: Option<String>,
    unit: Option<String>,
    ours_unit: Option<String>,
    change: Option<Change>,
    same_within: Option<f64>,
    #[serde(default)]
    basis: Vec<Basis>,
    inputs_of_series: Option<String>,
    other_quantity: Option<String>,
    rows: Vec<RowFile>,
}

/// Keys that a row has itself or inherits from its table.
struct Common {
    before: Option<String>,
    after: Option<String>,
    unit: Option<String>,
    ours_unit: Option<String>,
    change: Option<Change>,
    same_within: Option<f64>,
}

impl Common {
    fn units(&self, ours: &Ours, place: &str) -> Result<(String, String), Mistake> {
        let unit = self.unit.clone().unwrap_or_default();
        let ours_unit = self.ours_unit.clone().unwrap_or_else(|| unit.clone());
        if let Ours::Cells { metric, .. } = ours {
            unit::check(metric, &ours_unit).map_err(|message| {
                let hint = match self.ours_unit {
                    None => "; if that is the unit of the published number, give ours-unit too",
                    Some(_) => "",
                };
                Mistake::Count { place: place.to_owned(), message: message + hint }
            })?;
        }
        if self.change == Some(Change::Points)
            && [&unit, &ours_unit].iter().any(|unit| *unit != "%")
        {
            let message = "change = \"points\" is for shares: give unit = \"%\"";
            return Err(Mistake::Row { place: place.to_owned(), message });
        }
        Ok((unit, ours_unit))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct RowFile {
    what: String,
    published: Option<Published>,
    count: Option<String>,
    #[serde(default)]
    bench: bool,
    quoted: Option<Quoted>,
    in_kernel: Option<InKernel>,
    none: Option<String>,
    reason: Option<String>,
    disagrees: Option<String>,
    before: Option<String>,
    after: Option<String>,
    unit: Option<String>,
    ours_unit: Option<String>,
    change: Option<Change>,
    same_within: Option<f64>,
    basis: Option<Vec<Basis>>,
    inputs_of_series: Option<String>,
    other_quantity: Option<String>,
}

impl Study {
    /// Loads a built-in study.
    ///
    /// # Errors
    /// [`StudyError::File`], with the nearest names.
    pub fn named(name: &str) -> Result<Self, StudyError> {
        Self::from_toml(STUDIES.named(name)?, &format!("studies/{name}.toml"))
    }

    /// Loads a study file.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or is not a study.
    pub fn from_path(path: &Path) -> Result<Self, StudyError> {
        let (text, origin) = STUDIES.read(path)?;
        Self::from_toml(&text, &origin)
    }

    /// Parses a study; `origin` names it in errors.
    ///
    /// # Errors
    /// [`StudyError::File`] for text that is not a study file, [`StudyError::Mistake`] for the
    /// first error in one; both with the line.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, StudyError> {
        let file: StudyFile = parse(text, origin)?;
        let origin = origin.to_owned();
        file.study(&origin).map_err(|mistake| {
            let line = line_of(text, mistake.place());
            StudyError::Mistake { origin, line, mistake: Box::new(mistake) }
        })
    }
}

impl StudyFile {
    fn study(self, origin: &str) -> Result<Study, Mistake> {
        for (name, workload) in &self.workloads {
            let place = || format!("workloads.{name}");
            workload.check().map_err(|error| Mistake::Workload { place: place(), error })?;
            let nr_rows = workload.nr_rows_max();
            if nr_rows > NR_ROWS_MAX {
                return Err(Mistake::TooManyRows { place: place(), nr_rows });
            }
        }
        let mut cells = BTreeMap::new();
        for (name, cell) in self.cells {
            let place = format!("cells.{name}");
            cells.insert(name, cell.source(&place, &self.workloads)?);
        }
        let mut study = Study {
            name: self.name,
            title: self.title,
            source: self.source,
            setup: self.setup,
            reference: self.reference,
            rests_on: self.rests_on,
            origin: origin.to_owned(),
            cells,
            benches: self.benches,
            tables: Vec::new(),
            curves: Vec::new(),
            frontiers: Vec::new(),
        };
        let sample = Sample::new();
        for (nr, curve) in self.curves.into_iter().enumerate() {
            study.curves.push(curve.curve(&format!("curves[{nr}]"), &self.workloads, &sample)?);
        }
        for (nr, frontier) in self.frontiers.into_iter().enumerate() {
            let place = format!("frontiers[{nr}]");
            study.frontiers.push(frontier.frontier(&place, &self.workloads, &sample)?);
        }
        for (nr, table) in self.tables.into_iter().enumerate() {
            let mut rows = Vec::new();
            for (row_nr, row) in table.rows.iter().enumerate() {
                let place = format!("tables[{nr}].rows[{row_nr}]");
                rows.push(row.row(&place, &table, Known { study: &study, sample: &sample })?);
            }
            study.tables.push(Table { title: table.title, rows });
        }
        Ok(study)
    }
}

impl CellFile {
    fn source(
        self,
        place: &str,
        workloads: &BTreeMap<String, Generated>,
    ) -> Result<Source, Mistake> {
        let has = [self.trace.is_some(), self.workload.is_some(), self.model.is_some()];
        let has = has.into_iter().filter(|&is_given| is_given).count();
        if has != 1 {
            return Err(Mistake::CellKind { place: place.to_owned(), has });
        }
        if let Some(model) = self.model {
            let superfluous = [
                ("kernel", self.kernel.is_some()),
                ("machine", self.machine.is_some()),
                ("filesystem", self.filesystem.is_some()),
                ("linked", !self.linked.is_empty()),
            ];
            if let Some((key, _)) = superfluous.into_iter().find(|(_, is_given)| *is_given) {
                return Err(Mistake::Superfluous { place: format!("{place}.{key}"), key });
            }
            let (kernel, machine) = model.names();
            kernel_named(kernel, &format!("{place}.model"))?;
            if let Some(machine) = machine {
                machine_named(machine, &format!("{place}.model"))?;
            }
            let mistake = |message| Mistake::Model { place: format!("{place}.model"), message };
            model.check().map_err(mistake)?;
            check_filesystem(model.filesystem(), &format!("{place}.model"))?;
            return Ok(Source::Model(model));
        }
        check_filesystem(self.filesystem.as_deref(), place)?;
        let spec = Box::new(self.spec(place)?);
        let input = input_of(place, self.trace.as_ref(), self.workload.as_ref(), workloads)?;
        Ok(Source::Replay(input, spec))
    }

    pub(super) fn spec(&self, place: &str) -> Result<CellSpec, Mistake> {
        let missing = |key| Mistake::Missing { place: place.to_owned(), key };
        let kernel = self.kernel.as_deref().ok_or(missing("kernel"))?;
        let machine = self.machine.as_deref().ok_or(missing("machine"))?;
        let kernel = kernel_named(kernel, &format!("{place}.kernel"))?;
        let machine = machine_named(machine, &format!("{place}.machine"))?;
        let mut spec = CellSpec::new(kernel, machine);
        let mistake = |error| Mistake::Kernel { place: format!("{place}.kernel"), error };
        spec.kernel.check_page(spec.page_size()).map_err(mistake)?;
        let mistake = |error| Mistake::Machine { place: format!("{place}.kernel"), error };
        spec.machine.clone().with_page_size(spec.page_size()).map_err(mistake)?;
        spec.filesystem.clone_from(&self.filesystem);
        for text in &self.linked {
            let linked = text.parse::<Linked>().and_then(|linked| {
                linked.check(&spec.machine.name, spec.page_size())?;
                Ok(linked)
            });
            let mistake = |error| Mistake::Linked { place: format!("{place}.linked"), error };
            spec.linked.push(linked.map_err(mistake)?);
        }
        spec.cache = match self.cache.as_deref() {
            None | Some("cold") => CacheState::Cold,
            Some("warm") => CacheState::Warm,
            Some(other) => {
                let (value, expected) = (other.to_owned(), "\"cold\" or \"warm\"");
                return Err(Mistake::Value { place: format!("{place}.cache"), value, expected });
            }
        };
        self.set_memory(&mut spec, place)?;
        spec.seed = self.seed.unwrap_or(spec.seed);
        spec.ns_per_reference = self.reference_ns.unwrap_or(spec.ns_per_reference);
        Ok(spec)
    }
}

impl CellFile {
    fn set_memory(&self, spec: &mut CellSpec, place: &str) -> Result<(), Mistake> {
        let wrong = |key: &str, value: &str, expected| {
            let (place, value) = (format!("{place}.{key}"), value.to_owned());
            Mistake::Value { place, value, expected }
        };
        if let Some(text) = &self.memory {
            let expected = "bytes, such as \"512M\", and at most 4T";
            spec.ram_bytes = size::memory(text).map_err(|_| wrong("memory", text, expected))?;
        }
        if let Some(text) = &self.swap {
            let expected = "bytes, such as \"1G\", and at most 4T";
            spec.swap_bytes = size::memory(text).map_err(|_| wrong("swap", text, expected))?;
        }
        if let Some(text) = &self.fragmentation {
            let expected = "SIZE:SHARE, such as \"64K:80%\"";
            let parsed = text.parse::<Fragmented>().ok();
            let parsed = parsed.filter(|fragmented| fragmented.fits(spec.page_size()));
            spec.fragmentation = parsed.ok_or_else(|| wrong("fragmentation", text, expected))?;
        }
        spec.aged_rounds = self.aged.unwrap_or_default();
        if spec.aged_rounds > AGED_ROUNDS_MAX {
            let expected = "at most 100 rounds";
            return Err(wrong("aged", &spec.aged_rounds.to_string(), expected));
        }
        Ok(())
    }
}

/// Returns the trace or the workload of `place`, which must have exactly one.
pub(super) fn input_of(
    place: &str,
    trace: Option<&String>,
    workload: Option<&String>,
    workloads: &BTreeMap<String, Generated>,
) -> Result<Input, Mistake> {
    match (trace, workload) {
        (Some(trace), None) => {
            let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_/.".contains(c);
            if trace.is_empty() || !trace.chars().all(is_plain) || trace.contains("..") {
                let expected = "the name of a trace in traces/, such as \"cc1\"";
                let (place, value) = (format!("{place}.trace"), trace.clone());
                return Err(Mistake::Value { place, value, expected });
            }
            Ok(Input::Recorded(trace.clone()))
        }
        (None, Some(name)) => {
            let Some(workload) = workloads.get(name) else {
                let hint = nearest(name, workloads.keys().map(String::as_str));
                let (place, name) = (format!("{place}.workload"), name.clone());
                return Err(Mistake::NoSuch { place, what: "workload", name, hint });
            };
            Ok(Input::Generated(workload.clone()))
        }
        _ => {
            let has = usize::from(trace.is_some()) + usize::from(workload.is_some());
            Err(Mistake::CellKind { place: place.to_owned(), has })
        }
    }
}

fn kernel_named(name: &str, place: &str) -> Result<Kernel, Mistake> {
    Kernel::parse(name).map_err(|error| Mistake::Kernel { place: place.to_owned(), error })
}

fn machine_named(name: &str, place: &str) -> Result<Machine, Mistake> {
    Machine::load(name).map_err(|error| Mistake::Machine { place: place.to_owned(), error })
}

/// A misspelt name would have no large folios under any kernel.
pub(super) fn check_filesystem(name: Option<&str>, place: &str) -> Result<(), Mistake> {
    let Some((name, hint)) = name.and_then(|name| Some((name, unknown_filesystem(name)?))) else {
        return Ok(());
    };
    let (place, name) = (format!("{place}.filesystem"), name.to_owned());
    Err(Mistake::Filesystem { place, name, hint })
}

fn is_readable(number: f64) -> bool {
    number == 0.0 || NUMBERS.contains(&number.abs())
}

impl RowFile {
    fn row(&self, place: &str, table: &TableFile, known: Known<'_>) -> Result<Row, Mistake> {
        let either = |own: &Option<String>, of_table: &Option<String>| {
            own.as_ref().or(of_table.as_ref()).cloned()
        };
        let common = Common {
            before: either(&self.before, &table.before),
            after: either(&self.after, &table.after),
            unit: either(&self.unit, &table.unit),
            ours_unit: either(&self.ours_unit, &table.ours_unit),
            change: self.change.or(table.change),
            same_within: self.same_within.or(table.same_within),
        };
        let wrong = |message| Mistake::Row { place: place.to_owned(), message };
        let ours = self.ours(place, &common, known)?;
        if self.disagrees.is_some() && (self.published.is_none() || matches!(ours, Ours::None(_))) {
            return Err(wrong(
                "only a row with both published numbers and our numbers can \
                              disagree",
            ));
        }
        let same_within = common.same_within.unwrap_or(0.0);
        if !same_within.is_finite() || same_within < 0.0 {
            return Err(wrong("same-within must be at least 0"));
        }
        let numbers = self.published.iter().flat_map(Published::numbers);
        let quoted = self.quoted.iter().flat_map(Quoted::numbers);
        let counted = self.in_kernel.iter().flat_map(InKernel::numbers);
        if !numbers.chain(quoted).chain(counted).all(is_readable) {
            return Err(wrong(
                "published and quoted numbers must be 0 or from 10^-15 to 10^15 in magnitude",
            ));
        }
        let (unit, ours_unit) = common.units(&ours, place)?;
        let is_about_both = self.inputs_of_series.is_some() || self.other_quantity.is_some();
        if is_about_both && self.published.is_none() {
            return Err(wrong(
                "inputs-of-series and other-quantity need a published number, but this row has \
                 none",
            ));
        }
        let of_published = |own, of_table| match self.published {
            Some(_) => either(own, of_table),
            None => None,
        };
        Ok(Row {
            what: self.what.clone(),
            published: self.published.clone(),
            ours_unit,
            unit,
            change: common.change.unwrap_or_default(),
            same_within,
            ours,
            in_kernel: self.in_kernel.clone(),
            basis: self.basis.clone().unwrap_or_else(|| table.basis.clone()),
            inputs_of_series: of_published(&self.inputs_of_series, &table.inputs_of_series),
            other_quantity: of_published(&self.other_quantity, &table.other_quantity),
            reason: self.reason.clone(),
            disagrees: self.disagrees.clone(),
        })
    }

    fn ours(&self, place: &str, common: &Common, known: Known<'_>) -> Result<Ours, Mistake> {
        let wrong = |message| Mistake::Row { place: place.to_owned(), message };
        let after = || common.after.clone().ok_or(wrong("no cell or bench: give after"));
        match (&self.count, self.bench, &self.none) {
            (Some(count), false, None) => {
                let metric = Metric::parse(count)
                    .map_err(|message| Mistake::Count { place: place.to_owned(), message })?;
                let (before, after) = (common.before.clone(), after()?);
                for name in before.iter().chain([&after]) {
                    known.check_metric(name, &metric, place)?;
                }
                Ok(Ours::Cells { metric, before, after })
            }
            (None, true, None) => {
                let before = common.before.clone().ok_or(wrong(
                    "a bench compares two sides: give \
                    before",
                ))?;
                let after = after()?;
                for name in [&before, &after] {
                    if !known.study.benches.contains_key(name) {
                        let names = known.study.benches.keys().map(String::as_str);
                        let (place, hint) = (place.to_owned(), nearest(name, names));
                        let name = name.clone();
                        return Err(Mistake::NoSuch { place, what: "bench", name, hint });
                    }
                }
                Ok(Ours::Bench { before, after, quoted: self.quoted.clone() })
            }
            (None, false, Some(why)) => Ok(Ours::None(why.clone())),
            _ => Err(wrong("give one of count = \"..\", bench = true and none = \"why\"")),
        }
    }
}

#[derive(Clone, Copy)]
struct Known<'a> {
    study: &'a Study,
    sample: &'a Sample,
}

impl Known<'_> {
    fn check_metric(self, name: &str, metric: &Metric, place: &str) -> Result<(), Mistake> {
        let place = || place.to_owned();
        let cells = &self.study.cells;
        let unknown = match cells.get(name) {
            None => {
                let hint = nearest(name, cells.keys().map(String::as_str));
                let (what, name) = ("cell", name.to_owned());
                return Err(Mistake::NoSuch { place: place(), what, name, hint });
            }
            Some(Source::Model(model)) => metric.unknown_in(&model.sample()),
            Some(_) => self.sample.unknown(metric),
        };
        match unknown {
            Some(message) => Err(Mistake::Count { place: place(), message }),
            None => Ok(()),
        }
    }
}

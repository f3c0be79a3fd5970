//! A calibration's output: a short table, or the curves as JSON or CSV.

use std::fmt::Write as _;
use std::path::Path;

use crate::ExportError;
use largefolio_linux::calibrate::{Calibration, Curve, Pace, Pages, Point, Side};
use largefolio_linux::measure::Spread;
use largefolio_sim::machine::Quantity;
use serde::Serialize;

use super::machine::{CalibratedMachine, Reach};
use crate::{Forms, running};

const SCHEMA_VERSION: u32 = 2;

#[derive(Serialize)]
pub struct CalibrationResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    machine: String,
    file: String,
    reach: Vec<ReachRow>,
    costs: Vec<CostRow>,
    storage: Vec<StorageRow>,
    pace: Option<Pace>,
    curves: Vec<CurveRow>,
    notes: Vec<String>,
}

#[derive(Serialize)]
struct ReachRow {
    structure: String,
    /// The working sets around the step, in pages of 4 KiB.
    measured: Option<[usize; 2]>,
    cpuid_entries: Option<u32>,
    agrees: Option<bool>,
}

#[derive(Serialize)]
struct CostRow {
    name: String,
    value: f64,
    unit: String,
    assumed: bool,
    source: String,
}

#[derive(Serialize)]
struct StorageRow {
    what: String,
    ns: Spread,
}

#[derive(Serialize)]
struct CurveRow {
    side: &'static str,
    folios: String,
    points: Vec<PointRow>,
}

#[derive(Serialize)]
struct PointRow {
    pages: usize,
    spread_ns: Spread,
    packed_ns: Spread,
    extra_ns: Spread,
}

impl CalibrationResult {
    #[must_use]
    pub fn new(
        command: Vec<String>,
        calibration: &Calibration,
        calibrated: &CalibratedMachine,
        output: &Path,
    ) -> Self {
        let costs = &calibrated.machine.costs;
        let single = costs.known().map(|(name, known)| cost_row(name, known));
        let rates = costs.rates().into_iter().flat_map(|(name, rates)| {
            rates.iter().map(move |rate| CostRow {
                name: format!("{name} of {}", String::from(rate.size)),
                value: rate.gb_per_s,
                unit: "GB/s".to_owned(),
                assumed: rate.assumed,
                source: rate.source.clone(),
            })
        });
        let storage = &calibration.storage;
        let rest = [&storage.random_direct, &storage.sequential, &storage.cached];
        let deep = storage.at_depth.iter().map(|(_, figure)| figure);
        let storage = storage.random.iter().chain(deep).chain(rest.into_iter().flatten());
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line: command,
            kernel: running::release(),
            machine: calibrated.machine.description.clone(),
            file: output.display().to_string(),
            reach: calibrated.reach.iter().map(ReachRow::from).collect(),
            costs: single.chain(rates).collect(),
            storage: storage
                .map(|figure| StorageRow { what: figure.how.clone(), ns: figure.ns })
                .collect(),
            pace: calibration.kernel.pace.clone(),
            curves: calibration.curves.iter().map(CurveRow::from).collect(),
            notes: calibrated.notes.clone(),
        }
    }
}

impl Forms for CalibrationResult {
    fn text(&self) -> String {
        let [page, _] = running::size_names();
        let mut text = format!("{}\n\nTLB reach, in pages of {page}\n", self.machine);
        for row in &self.reach {
            let measured = row
                .measured
                .map_or_else(|| "no step".to_owned(), |[last, next]| format!("{last} .. {next}"));
            let entries = row.cpuid_entries.map_or_else(|| "-".to_owned(), |nr| nr.to_string());
            let verdict = match row.agrees {
                Some(true) => "agree",
                Some(false) => "DISAGREE",
                None => "",
            };
            let name = &row.structure;
            let _ = writeln!(
                text,
                "  {name:30} measured {measured:>14}  CPUID {entries:>5}  {verdict}"
            );
        }
        text.push_str("\nCosts\n");
        for CostRow { name, value, unit, assumed, source } in &self.costs {
            let mark = if *assumed { "assumed" } else { "measured" };
            let source = source.strip_prefix("measured: ").unwrap_or(source);
            let _ = writeln!(text, "  {name:16} {value:>10} {unit:6} {mark:8}  {source}");
        }
        text.push_str("\nReads\n");
        for row in &self.storage {
            let Spread { median, min, max, n } = row.ns;
            let us = |ns: f64| ns / 1e3;
            let what = &row.what;
            let (median, min, max) = (us(median), us(min), us(max));
            let _ = writeln!(text, "  {median:>10.1} us [{min:.1} .. {max:.1}] n = {n}  {what}");
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        let _ = writeln!(
            text,
            "\nwritten: {}\nuse it:  folio predict TRACE --machine this --time\ntest it: \
             folio calibrate --check",
            self.file
        );
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut text = "side,folios,pages,what,ns,min,max,n\n".to_owned();
        for curve in &self.curves {
            for point in &curve.points {
                let parts = [
                    ("spread", point.spread_ns),
                    ("packed", point.packed_ns),
                    ("extra", point.extra_ns),
                ];
                for (what, Spread { median, min, max, n }) in parts {
                    let CurveRow { side, folios, .. } = curve;
                    let pages = point.pages;
                    let _ =
                        writeln!(text, "{side},{folios},{pages},{what},{median},{min},{max},{n}");
                }
            }
        }
        Ok(text)
    }
}

fn cost_row(name: &str, known: &Quantity) -> CostRow {
    CostRow {
        name: name.to_owned(),
        value: known.value,
        unit: known.unit.to_string(),
        assumed: known.assumed,
        source: known.source.clone(),
    }
}

impl From<&Reach> for ReachRow {
    fn from(reach: &Reach) -> Self {
        Self {
            structure: reach.name(),
            measured: reach.measured.map(|step| [step.last, step.next]),
            cpuid_entries: reach.documented,
            agrees: reach.agrees(),
        }
    }
}

impl From<&Curve> for CurveRow {
    fn from(curve: &Curve) -> Self {
        let [page, pmd] = running::size_names();
        let ns = |point: &Point| point.ns;
        let triples = curve.spread.iter().zip(&curve.packed).zip(&curve.extra);
        let points = triples.map(|((spread, packed), extra)| PointRow {
            pages: spread.nr,
            spread_ns: ns(spread),
            packed_ns: ns(packed),
            extra_ns: ns(extra),
        });
        Self {
            side: match curve.side {
                Side::Data => "data",
                Side::Instruction => "instruction",
            },
            folios: match curve.pages {
                Pages::Base => page,
                Pages::Pmd => pmd,
            },
            points: points.collect(),
        }
    }
}

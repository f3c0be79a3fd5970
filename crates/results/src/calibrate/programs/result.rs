//! The machine's errors and the bank's table.
//!
//! The table judges each program with the errors of the *other* programs, as if it were new.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use largefolio_sim::cost::Anchor;
use largefolio_sim::interval::Interval;
use largefolio_sim::machine::{BOUNDS_SHARE, COVERAGE, FLOOR_PERCENT, TimeErrors};
use serde::Serialize;

use super::ProgramsRequest;
use super::store::Visit;
use crate::trial::{Pair, SettingPairs};
use crate::{ExportError, Forms, anchor, running};

const SCHEMA_VERSION: u32 = 1;
/// A kind of time, and how to read it from a setting.
struct Kind {
    name: &'static str,
    /// Whether the prediction uses the slope of the program's other settings.
    is_anchored: bool,
    of: fn(&SettingPairs) -> Pair,
}

const USER: Kind = Kind { name: "user", is_anchored: false, of: |row| row.user };
const SYSTEM: Kind = Kind { name: "system", is_anchored: false, of: |row| row.system };
const TOTAL: Kind = Kind { name: "total", is_anchored: false, of: |row| row.total };
const ANCHORED_USER: Kind = Kind { name: "user, anchored", is_anchored: true, of: |row| row.user };
const ANCHORED_TOTAL: Kind =
    Kind { name: "total, anchored", is_anchored: true, of: |row| row.total };
const KINDS: [Kind; 5] = [USER, SYSTEM, TOTAL, ANCHORED_USER, ANCHORED_TOTAL];

#[derive(Debug, Serialize)]
pub struct ProgramsResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    machine: String,
    kernel: String,
    nr_programs: usize,
    nr_visits: usize,
    elapsed_s: f64,
    /// The errors of all programs; absent if there are too few.
    pub(super) errors: Option<TimeErrors>,
    /// All programs, by kind of time, then by class.
    summary: Vec<Summary>,
    rows: Vec<Row>,
    notes: Vec<String>,
}

/// How far the predictions of a kind of time were off, in percent of the run.
#[derive(Debug, Serialize)]
struct Summary {
    time: &'static str,
    /// Absent for all classes.
    class: Option<String>,
    nr_rows: usize,
    error_median: f64,
    error_p90: f64,
    /// Share of rows within the bounds that the other programs give; absent with too few programs.
    coverage: Option<f64>,
    width_median: Option<f64>,
}

#[derive(Debug, Serialize)]
struct Row {
    program: String,
    class: String,
    setting: String,
    time: &'static str,
    nr_visits: usize,
    /// By the latest visit, with the bounds that the other programs give.
    predicted: Interval,
    /// By all visits: median, smallest and largest round.
    measured: Interval,
    is_within: Option<bool>,
}

impl ProgramsResult {
    pub(super) fn new(
        command_line: Vec<String>,
        request: &ProgramsRequest,
        elapsed: Duration,
    ) -> Self {
        let visits = request.store.current();
        let nr_visits = visits.values().map(|visits| visits.len()).sum();
        let machine = request.trial.machine();
        let mut rows = Vec::new();
        for (&name, &program) in &visits {
            let class = request.bank.class(name);
            for kind in KINDS {
                let error = quantile(&visits, Some(name), &kind);
                rows.extend(pairs(program, &kind).into_iter().map(|(setting, pair)| {
                    let bounds = error.map(|error| bounds(pair.predicted, error));
                    Row {
                        program: name.to_owned(),
                        class: class.to_owned(),
                        setting,
                        time: kind.name,
                        nr_visits: program.len(),
                        predicted: bounds.unwrap_or(pair.predicted).rounded_to(100.0),
                        measured: pair.measured.rounded_to(100.0),
                        is_within: bounds
                            .map(|bounds| (bounds.low..=bounds.high).contains(&pair.measured.mid)),
                    }
                }));
            }
        }
        let source = format!(
            "folio calibrate --programs: {} programs, {nr_visits} visits, under {}",
            visits.len(),
            running::release()
        );
        let of = |kind| quantile(&visits, None, kind);
        let errors = of(&TOTAL).zip(of(&USER)).zip(of(&SYSTEM));
        let errors = errors.map(|((total, user), system)| TimeErrors {
            total: digits(total),
            user: digits(user),
            system: digits(system),
            anchored_total: of(&ANCHORED_TOTAL).map(digits),
            anchored_user: of(&ANCHORED_USER).map(digits),
            shipped: false,
            nr_programs: u32::try_from(visits.len()).unwrap_or(u32::MAX),
            source,
        });
        let mut notes = request.notes.clone();
        let nr_old = request.store.programs.len() - visits.len();
        if nr_old > 0 {
            notes.push(format!(
                "{nr_old} programs have predictions of another version only, and are left out until \
                 their next visit"
            ));
        }
        if errors.is_none() {
            notes.push(format!(
                "{} programs are too few to say how far nine of ten predictions are off; the \
                 machine file is unchanged",
                visits.len()
            ));
        }
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            machine: machine.description.clone(),
            kernel: running::release(),
            nr_programs: visits.len(),
            nr_visits,
            elapsed_s: elapsed.as_secs_f64().round(),
            errors,
            summary: summaries(&rows),
            rows,
            notes,
        }
    }
}

fn digits(value: f64) -> f64 {
    (value * 1000.0).ceil() / 1000.0
}

/// Returns the error that holds for a program that is not among `visits`, or not among those other
/// than `left_out`.
fn quantile(visits: &BTreeMap<&str, &[Visit]>, left_out: Option<&str>, kind: &Kind) -> Option<f64> {
    let others = visits.iter().filter(|(name, _)| left_out != Some(**name));
    let errors: Vec<f64> = others.filter_map(|(_, visits)| error(visits, kind)).collect();
    TimeErrors::quantile(&errors)
}

/// Returns a program's error, the largest of its settings.
fn error(visits: &[Visit], kind: &Kind) -> Option<f64> {
    let errors = pairs(visits, kind)
        .into_iter()
        .map(|(_, pair)| TimeErrors::score(pair.predicted, FLOOR_PERCENT, pair.measured.mid));
    errors.max_by(f64::total_cmp)
}

/// Returns the settings of a program and their pairs.
fn pairs(visits: &[Visit], kind: &Kind) -> Vec<(String, Pair)> {
    let settings = combined(visits);
    let nr_rounds = visits.iter().map(|visit| visit.nr_rounds).sum();
    let of = |nr: usize| {
        if kind.is_anchored {
            return (kind.of)(&anchored(&settings, nr, nr_rounds));
        }
        (kind.of)(&settings[nr])
    };
    (0..settings.len()).map(|nr| (settings[nr].setting.clone(), of(nr))).collect()
}

/// Returns the settings of the latest visit, with its predictions and what all visits measured: the
/// median of their medians, and the smallest and largest round.
fn combined(visits: &[Visit]) -> Vec<SettingPairs> {
    let latest = visits.last().into_iter().flat_map(|visit| &visit.settings);
    let of = |setting: &SettingPairs, of: fn(&SettingPairs) -> Pair| {
        let same = visits
            .iter()
            .flat_map(|visit| &visit.settings)
            .filter(|other| other.setting == setting.setting)
            .map(|other| of(other).measured);
        let all: Vec<Interval> = same.collect();
        let mids: Vec<f64> = all.iter().map(|measured| measured.mid).collect();
        let mid = Interval::measured(&mids).unwrap_or_default().mid;
        let low = all.iter().map(|measured| measured.low).fold(mid, f64::min);
        let high = all.iter().map(|measured| measured.high).fold(mid, f64::max);
        Pair { measured: Interval { low, mid, high }, ..of(setting) }
    };
    let combined = latest.map(|setting| SettingPairs {
        setting: setting.setting.clone(),
        user: of(setting, USER.of),
        system: of(setting, SYSTEM.of),
        total: of(setting, TOTAL.of),
    });
    combined.collect()
}

/// Returns setting `nr`, predicted with the slope of the program's other settings.
fn anchored(settings: &[SettingPairs], nr: usize, nr_rounds: usize) -> SettingPairs {
    let mut others = settings.to_vec();
    let mut setting = others.remove(nr);
    let slope = Anchor::slope(&anchor::changes(&others, nr_rounds));
    let user = setting.user.predicted.mid;
    let [one, mid, other] = [slope.low, slope.mid, slope.high].map(|slope| slope * user);
    let user = Interval { low: one.min(other), mid, high: one.max(other) };
    setting.user.predicted = user;
    setting.total.predicted = Interval::sum([setting.system.predicted, user]);
    setting
}

/// As [`TimeErrors::widen`], but measured changes have noise even if nothing differs.
fn bounds(change: Interval, error: f64) -> Interval {
    let nudged = Interval { high: change.high.max(change.mid + f64::MIN_POSITIVE), ..change };
    TimeErrors::widen(nudged, FLOOR_PERCENT, error)
}

fn summaries(rows: &[Row]) -> Vec<Summary> {
    let mut classes: Vec<&str> = rows.iter().map(|row| row.class.as_str()).collect();
    classes.sort_unstable();
    classes.dedup();
    let wanted = std::iter::once(None).chain(classes.into_iter().map(Some));
    let of = |class: Option<&str>, time: &'static str| {
        let mine = rows.iter().filter(|row| row.time == time);
        let mine: Vec<&Row> =
            mine.filter(|row| class.is_none_or(|class| row.class == class)).collect();
        let distance = |row: &&Row| (row.predicted.mid - row.measured.mid).abs();
        let errors = sorted(mine.iter().map(distance));
        let widths = sorted(
            mine.iter()
                .filter(|row| row.is_within.is_some())
                .map(|row| row.predicted.high - row.predicted.low),
        );
        let within = mine.iter().filter(|row| row.is_within == Some(true)).count();
        Summary {
            time,
            class: class.map(str::to_owned),
            nr_rows: mine.len(),
            error_median: at(&errors, 0.5).unwrap_or(0.0),
            error_p90: at(&errors, COVERAGE).unwrap_or(0.0),
            coverage: (!widths.is_empty()).then(|| share(within, widths.len())),
            width_median: at(&widths, 0.5),
        }
    };
    wanted.flat_map(|class| KINDS.map(|kind| of(class, kind.name))).collect()
}

fn sorted(values: impl Iterator<Item = f64>) -> Vec<f64> {
    let mut all: Vec<f64> = values.collect();
    all.sort_by(f64::total_cmp);
    all
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "hundreds of rows"
)]
fn at(sorted: &[f64], share: f64) -> Option<f64> {
    let nr = (share * sorted.len() as f64).ceil() as usize;
    sorted.get(nr.saturating_sub(1)).copied()
}

#[expect(clippy::cast_precision_loss, reason = "hundreds of rows")]
fn share(part: usize, of: usize) -> f64 {
    part as f64 / of as f64
}

impl ProgramsResult {
    fn write_table(&self, text: &mut String) {
        let _ = writeln!(
            text,
            "  {:12} {:15} {:>5} {:>13} {:>11} {:>9} {:>13}",
            "class", "time", "rows", "error, median", "error, 90%", "coverage", "width, median"
        );
        for one in &self.summary {
            let number = |value: Option<f64>, digits: usize| {
                value.map_or_else(|| "-".to_owned(), |value| format!("{value:.digits$}"))
            };
            let _ = writeln!(
                text,
                "  {:12} {:15} {:>5} {:>13.2} {:>11.2} {:>9} {:>13}",
                one.class.as_deref().unwrap_or("all"),
                one.time,
                one.nr_rows,
                one.error_median,
                one.error_p90,
                number(one.coverage.map(|share| 100.0 * share), 0) + "%",
                number(one.width_median, 1)
            );
        }
    }
}

impl Forms for ProgramsResult {
    fn text(&self) -> String {
        let mut text = String::new();
        match self.summary.iter().find(|one| one.class.is_none() && one.time == "total") {
            Some(Summary { error_median, coverage: Some(coverage), width_median, .. }) => {
                let _ = writeln!(
                    text,
                    "Predicted CPU times are off by {error_median:.1} points (median); {:.0}% of the \
                     measured changes are within the bounds that the other programs give, which are \
                     {:.1} points wide (median).",
                    100.0 * coverage,
                    width_median.unwrap_or(0.0)
                );
            }
            _ => text.push_str("Too few programs are measured to give bounds.\n"),
        }
        let _ = writeln!(
            text,
            "{} programs, {} visits{}; kernel {}\n{}\n",
            self.nr_programs,
            self.nr_visits,
            match self.elapsed_s {
                0.0 => String::new(),
                elapsed_s => format!(", {:.0} min", elapsed_s / 60.0),
            },
            self.kernel,
            self.machine
        );
        self.write_table(&mut text);
        text.push_str("\nAll figures are percentages of the plain run's CPU time. Changes outside their bounds:\n");
        let mut outside = self.rows.iter().filter(|row| row.is_within == Some(false)).peekable();
        if outside.peek().is_none() {
            text.push_str("  none\n");
        }
        for Row { program, setting, time, predicted, measured, .. } in outside {
            let _ = writeln!(
                text,
                "  {program:15} {setting:20} {time:15} predicted {:+.1} [{:+.1} .. {:+.1}], measured {:+.1}",
                predicted.mid, predicted.low, predicted.high, measured.mid
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "\nnote: {note}");
        }
        if let Some(errors) = &self.errors {
            let _ = writeln!(
                text,
                "\nPredictions for this machine multiply {BOUNDS_SHARE} of the costs' bounds, and \
                 {FLOOR_PERCENT}% of the run, by {} for user time, {} for system time and {} for \
                 the total.",
                errors.user, errors.system, errors.total
            );
        }
        text
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut text = "program,class,setting,time,visits,predicted,low,high,measured,\
                        measured_min,measured_max,within\n"
            .to_owned();
        for row in &self.rows {
            let _ = writeln!(
                text,
                "{},{},{},{},{},{},{},{},{},{},{},{}",
                row.program,
                row.class,
                row.setting,
                row.time,
                row.nr_visits,
                row.predicted.mid,
                row.predicted.low,
                row.predicted.high,
                row.measured.mid,
                row.measured.low,
                row.measured.high,
                row.is_within.map_or_else(String::new, |is| is.to_string()),
            );
        }
        Ok(text)
    }
}

#[cfg(test)]
mod tests {
    use largefolio_sim::replay::RESULTS_VERSION;

    use super::*;

    fn visit(predicted: f64, measured: f64) -> Visit {
        let exact = Interval::exact;
        let pair = Pair { predicted: exact(predicted), measured: exact(measured) };
        let setting = SettingPairs {
            setting: "thp.64K=always".to_owned(),
            user: pair,
            system: pair,
            total: pair,
        };
        Visit {
            version: RESULTS_VERSION,
            time: 0,
            kernel: "6.18".to_owned(),
            nr_rounds: 9,
            run_ns: 1e9,
            settings: vec![setting],
        }
    }

    #[test]
    fn a_program_is_judged_by_the_others() {
        // Twenty programs that are 1 point off, and one that is 50 off.
        let names: Vec<String> = (0..20).map(|nr| format!("p{nr}")).collect();
        let (near, far) = ([visit(-5.0, -6.0)], [visit(-5.0, 45.0)]);
        let mut visits: BTreeMap<&str, &[Visit]> =
            names.iter().map(|name| (name.as_str(), &near[..])).collect();
        visits.insert("other", &far);
        let of = |left_out| quantile(&visits, left_out, &TOTAL);
        assert_eq!(of(Some("other")), Some(0.5));
        assert_eq!(of(Some("p3")), Some(0.5));
        assert_eq!(of(None), Some(0.5));
        let bounds = bounds(Interval::exact(-5.0), 0.5);
        assert_eq!((bounds.low, bounds.high), (-6.0, -4.0));
    }

    #[test]
    fn visits_add_up_to_one_measurement() {
        let visits = [visit(7.0, 1.0), visit(8.0, -30.0), visit(0.0, 2.0)];
        assert_eq!(error(&visits, &USER), Some(0.5));
        let (setting, pair) = pairs(&visits, &USER).remove(0);
        assert_eq!(setting, "thp.64K=always");
        assert_eq!(pair.measured, Interval { low: -30.0, mid: 1.0, high: 2.0 });
        assert_eq!(error(&[], &USER), None);
    }
    #[test]
    fn an_anchored_prediction_uses_the_other_settings_alone() {
        let exact = Interval::exact;
        let setting = |name: &str, user: [f64; 2], system: f64| {
            let pair = |predicted, measured| Pair {
                predicted: exact(predicted),
                measured: exact(measured),
            };
            SettingPairs {
                setting: name.to_owned(),
                user: pair(user[0], user[1]),
                system: pair(system, system),
                total: pair(user[0] + system, user[1] + system),
            }
        };
        let settings = vec![
            setting("thp.enabled=always", [-20.0, -40.0], -1.0),
            setting("thp.64K=always", [-10.0, 70.0], -3.0),
        ];
        let visits = [Visit { settings, ..visit(0.0, 0.0) }];
        let of = |kind: &Kind| pairs(&visits, kind).remove(1).1;
        assert_eq!(of(&USER).predicted, exact(-10.0));
        let user = of(&ANCHORED_USER).predicted;
        assert!((user.mid - -20.0).abs() < 0.2 && user.low < user.mid && user.mid < user.high);
        assert!((of(&ANCHORED_TOTAL).predicted.mid - (user.mid - 3.0)).abs() < 1e-9);
        assert_eq!(of(&ANCHORED_USER).measured, exact(70.0));
    }
}

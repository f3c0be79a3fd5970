//! Notes around the table: which cells were replayed (above), and the limits of the numbers
//! (below).

use std::collections::BTreeSet;

use largefolio_sim::cost::{BaseSource, BaseTime, Constant, Estimate};
use largefolio_sim::interval::Interval;
use largefolio_sim::replay::outcome::PolicyAnswers;
use largefolio_sim::replay::{Changed, Outcome};

use crate::figures;
use crate::figures::grouped;
use crate::predict::PredictResult;
use crate::predict::gaps;
use crate::predict::labels::{self, Labels};

const COMMAND_CHARS_MAX: usize = 90;
/// The share of a run off the CPU from which a note reports it.
const OFF_CPU_TOLD: f64 = 0.2;

pub(crate) const FAULTS_ONLY: &str = "The trace contains only page faults (folio record --live), \
                                      so TLB misses, walks and the program's own time are not \
                                      known; pages that were touched without a fault on the \
                                      recording kernel are missing.";

pub(crate) fn title(report: &PredictResult) -> Vec<String> {
    let trace = &report.trace;
    let mut size = if let Some(attached) = &trace.attached {
        figures::recorded(trace.nr_references, attached)
    } else {
        let what = if trace.faults_only { "page faults" } else { "references" };
        let nr_references = figures::count(trace.nr_references);
        format!("{nr_references} {what} in {} rows", figures::count(trace.nr_rows))
    };
    if !trace.ended.is_empty() {
        let with = if trace.ended.starts_with("stopped") { "" } else { "ended with " };
        size = format!("{size}, {with}{}", trace.ended);
    }
    vec![
        format!("{}: {}", trace.path, shortened(&trace.command.join(" "))),
        format!("{size}; {}", origin(report)),
        setting(report),
    ]
}

fn origin(report: &PredictResult) -> String {
    let trace = &report.trace;
    let mut text = match trace.recorder.strip_prefix("generator ") {
        Some(name) => format!("generated ({name})"),
        None => format!("recorded with {}", trace.recorder),
    };
    if !trace.kernel.is_empty() {
        text = format!("{text} on Linux {}", trace.kernel);
    }
    if !trace.machine.is_empty() {
        text = format!("{text}, {}", trace.machine);
    }
    text
}

fn setting(report: &PredictResult) -> String {
    let settings = &report.settings;
    let cache = match report.rows.first().map(|row| row.cache.as_str()) {
        Some("warm") => "Warm page cache (an earlier run filled it)",
        _ => "Cold page cache",
    };
    let is_same = report.rows.iter().all(|row| row.memory_bytes == settings.memory_bytes);
    let memory = if is_same {
        format!("{} of memory", figures::bytes(settings.memory_bytes))
    } else {
        "several sizes of memory".to_owned()
    };
    let mut text = format!("{cache}, {memory}");
    let common = Labels::new(&report.rows).common;
    if !common.is_empty() {
        text = format!("{common}; {}", uncapitalized(&text));
    }
    if settings.swap_bytes > 0 {
        text = format!("{text}, {} of swap space", figures::bytes(settings.swap_bytes));
    }
    let groups = report.rows.first().map_or(&[][..], |row| &row.cgroups);
    // A catch-all group may have received nothing.
    for group in groups.iter().filter(|group| group.peak_bytes > 0) {
        let limit = figures::bytes(group.limit_bytes);
        text = match group.name.rsplit_once('=') {
            Some((program, _)) => {
                format!("{text}, {program} in a control group limited to {limit}")
            }
            None => format!("{text}, in a control group limited to {limit}"),
        };
    }
    if settings.unusable_permille > 0 {
        let (whole, tenth) = (settings.unusable_permille / 10, settings.unusable_permille % 10);
        let size = match settings.unusable_bytes {
            0 => "PMD".to_owned(),
            bytes => figures::size(bytes),
        };
        text = format!("{text}, {whole}.{tenth}% of it too fragmented for {size} folios");
    }
    if settings.aged_rounds > 0 {
        text = format!("{text}, fragmented by {} rounds of ageing", settings.aged_rounds);
    }
    if let Some(filesystem) = &settings.filesystem {
        text = format!("{text}, all files on {filesystem}");
    }
    let linked = report.rows.first().map(|row| &row.linked);
    if let Some(linked) = linked.filter(|linked| !linked.is_empty())
        && report.rows.iter().all(|row| row.linked == *linked)
    {
        text = format!("{text}, linked for {}", linked.join(", "));
    }
    if let Some(numa) = &settings.numa {
        text = format!("{text}, {numa}");
    }
    if let Some(allocator) = &settings.allocator {
        text = format!("{text}, allocator advises huge pages ({allocator})");
    }
    for change in &settings.changes {
        text = match change.split_once(':') {
            Some((share, edits)) => format!("{text}, {edits} from {share} of the trace on"),
            None => format!("{text}, {change}"),
        };
    }
    if !settings.annotations.is_empty() {
        text = format!("{text}, annotated {}", settings.annotations.join(" "));
    }
    text
}

fn uncapitalized(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |first| first.to_lowercase().chain(chars).collect())
}

fn shortened(text: &str) -> String {
    if text.chars().count() <= COMMAND_CHARS_MAX {
        return text.to_owned();
    }
    let mut short: String = text.chars().take(COMMAND_CHARS_MAX - 3).collect();
    short.push_str("...");
    short
}

pub(crate) fn notes(report: &PredictResult) -> Vec<String> {
    let mut notes = gaps::sentences(&report.rows, report.trace.nr_references);
    if report.rows.len() > 1 {
        notes.push(changes(report));
    }
    if report.trace.faults_only {
        notes.push(FAULTS_ONLY.to_owned());
    }
    notes.extend(replaced(&report.rows));
    notes.extend(linked(&report.rows));
    notes.extend(report.rows.iter().filter_map(|row| strays(row, report.trace.nr_references)));
    notes.extend(report.rows.iter().filter_map(policy));
    notes.extend(window_refused(report));
    notes.extend(report.rows.iter().filter_map(huge_pages));
    notes.extend(changed(&report.rows));
    notes.dedup();
    notes.extend(report.trace.warnings.iter().map(|warning| format!("trace warning: {warning}")));
    notes
}

/// Says when settings changed, and in which columns a change had no effect.
fn changed(rows: &[Outcome]) -> Vec<String> {
    let Some(first) = rows.first() else { return Vec::new() };
    let sentence = |(nr, change): (usize, &Changed)| {
        let Changed { at, edits, row, references, .. } = change;
        let idle = rows.iter().filter(|one| one.changes.get(nr).is_some_and(|it| !it.has_effect));
        let mut idle: Vec<&str> = idle.map(|row| row.kernel.as_str()).collect();
        idle.dedup();
        let had = match idle.as_slice() {
            [] => String::new(),
            kernels => format!("; {} already had this value", kernels.join(", ")),
        };
        format!(
            "{edits} from {at} of the trace on: before row {}, after {} references{had}.",
            grouped(*row),
            grouped(*references)
        )
    };
    first.changes.iter().enumerate().map(sentence).collect()
}

/// Says what each column is compared with: in the table the first column, in the answers a column
/// that is comparable for the goal.
fn changes(report: &PredictResult) -> String {
    let rows = &report.rows;
    let differs = |is: &dyn Fn(&Outcome) -> bool| !rows.iter().all(is);
    let machines = differs(&|row| row.machine == rows[0].machine);
    let sizes = differs(&|row| row.memory_bytes == rows[0].memory_bytes);
    let seeds = differs(&|row| row.seed == rows[0].seed);
    let run = if machines { " (run time: from the first column for the same machine)" } else { "" };
    let mut text = format!(
        "change: from the first column{run}; in percentage points (pp) for shares, otherwise \
         relative."
    );
    let is_across = report.verdict.goal.spans_machines();
    let same = match (machines && !is_across, sizes, seeds) {
        (true, true, true) => "machine, memory size and seed",
        (true, true, false) => "machine and memory size",
        (true, false, true) => "machine and seed",
        (true, false, false) => "machine",
        (false, true, true) => "memory size and seed",
        (false, true, false) => "memory size",
        (false, false, true) => "seed",
        (false, false, false) => "",
    };
    if !same.is_empty() {
        text = format!("{text} The answers compare only columns with the same {same}.");
    }
    text
}

fn off_cpu(run: &BaseTime) -> Option<String> {
    let share = run.off_cpu_ns? / run.wall_ns();
    if run.source == BaseSource::Cpu {
        return Some(format!(
            "{:.0}% of the wall-clock time is neither user nor system time: the program waits, or the \
             machine is busy. So changes are relative to the CPU time.",
            100.0 * share
        ));
    }
    (share >= OFF_CPU_TOLD).then(|| {
        format!(
            "{:.0}% of that run is neither user nor system time: the program waits, or the host \
             of this virtual machine backs its memory. The estimates do not change that part, \
             although larger folios may shorten it.",
            100.0 * share
        )
    })
}

pub(super) fn run_times(report: &PredictResult) -> Vec<String> {
    let (rows, is_recording) = (&report.rows, report.trace.attached.is_some());
    let mut notes = Vec::new();
    let machines: BTreeSet<&str> = rows.iter().map(|row| row.machine.as_str()).collect();
    for machine in machines {
        let mut of_machine =
            rows.iter().filter(|row| row.machine == machine).map(|row| &row.estimate);
        let Some(first) = of_machine.next() else { continue };
        if first.run.source == BaseSource::NotKnown {
            notes.push(format!(
                "the run time on {} is not known (use --runtime to set it).",
                labels::machine(machine)
            ));
            continue;
        }
        let how = match first.run.source {
            BaseSource::Measured | BaseSource::Cpu if is_recording => " while it was recorded",
            BaseSource::Measured | BaseSource::Cpu => " on this CPU",
            BaseSource::Given | BaseSource::NotKnown => "",
            BaseSource::Estimated => {
                ": instructions times cycles per instruction, plus memory management (without \
                 --machine, on the CPU of the recording, folio uses the times from folio record \
                 --runs; --runtime overrides both)"
            }
        };
        notes.push(format!(
            "run time on {}: {}{how}.",
            labels::machine(machine),
            figures::run_base(first)
        ));
        notes.extend(off_cpu(&first.run));
        notes.extend(bounds(first, rows, machine));
        let stand_ins: BTreeSet<String> = rows
            .iter()
            .filter(|row| row.machine == machine)
            .flat_map(|row| row.estimate.stand_ins.iter())
            .map(|(name, constant)| {
                format!(
                    "{} {:.3} .. {:.3} {}",
                    short(name),
                    constant.low,
                    constant.high,
                    constant.unit
                )
            })
            .collect();
        if !stand_ins.is_empty() {
            let list = stand_ins.into_iter().collect::<Vec<_>>().join(", ");
            notes.push(format!(
                "{machine}: for the change in run time, unknown costs are assumed to be within a \
                 factor of 4 of cascadelake's: {list}."
            ));
        }
    }
    notes
}

/// Explains where the bounds of the run times on a machine come from, and which are cut.
fn bounds(first: &Estimate, rows: &[Outcome], machine: &str) -> Vec<String> {
    let mut notes = Vec::new();
    notes.extend(first.errors.as_ref().map(|errors| {
        let bounds = figures::of_errors(errors);
        format!("bounds of the run time on {}: {bounds}.", labels::machine(machine))
    }));
    notes.extend(first.anchor.as_ref().map(|anchor| {
        let Interval { low, mid, high } = anchor.slope;
        if anchor.is_counted() {
            return format!(
                "walks on {}: the model's time times {mid:.2} ({low:.2} to {high:.2}), from the \
                 cycles with a walk in progress in {}; a program waits for at most these.",
                labels::machine(machine),
                figures::counted(anchor.nr_rounds as u64, "plain run")
            );
        }
        format!(
            "user time on {}: the model's times {mid:.2} ({low:.2} to {high:.2}), as measured \
             for this program ({}; n = {}).",
            labels::machine(machine),
            anchor.settings.join(", "),
            anchor.nr_rounds
        )
    }));
    let is_cut = |row: &Outcome| {
        row.machine == machine && row.estimate.run_change.is_some_and(|change| change.mid <= -100.0)
    };
    if rows.iter().any(is_cut) {
        notes.push(format!(
            "a change of the run time on {} is cut at -100%: the saving would exceed the whole \
             run, so --runtime or one of the machine's costs is wrong for this program.",
            labels::machine(machine)
        ));
    }
    notes
}

/// Compares the model's TLB misses with those that the CPU counted, in the first column for that
/// CPU: its kernel is the closest to the recording's.
pub(super) fn counted(report: &PredictResult) -> Option<String> {
    let counted = report.trace.counted?;
    let is_here =
        |row: &&Outcome| matches!(row.estimate.run.source, BaseSource::Measured | BaseSource::Cpu);
    let row = report.rows.iter().find(is_here)?;
    let sides = [
        ("data", counted.dtlb_misses, row.tlb.data.l2_misses),
        ("instruction", counted.itlb_misses, row.tlb.instruction.l2_misses),
    ];
    let mut parts: Vec<String> = sides
        .into_iter()
        .filter_map(|(side, counted, modelled)| {
            let Interval { low, mid, high } = counted?;
            let [low, mid, high] = [low, mid, high].map(whole);
            #[expect(clippy::cast_precision_loss, reason = "a count is read to three digits")]
            let percent = 100.0 * (modelled as f64 / mid.max(1) as f64 - 1.0);
            Some(format!(
                "{side} TLB misses {} ({} to {}), the model {} ({percent:+.0}%)",
                figures::count(mid),
                figures::count(low),
                figures::count(high),
                figures::count(modelled)
            ))
        })
        .collect();
    parts.extend(
        counted.walk_ns.map(|ns| {
            format!("{} with a walk in progress", figures::time(figures::whole_ns(ns.mid)))
        }),
    );
    parts.extend(
        counted.cycles_per_instruction.map(|cpi| format!("cycles per instruction {:.2}", cpi.mid)),
    );
    Some(format!(
        "counted by the CPU in {}, against {}: {}.",
        figures::counted(counted.nr_runs as u64, "plain run"),
        row.kernel,
        parts.join("; ")
    ))
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of events")]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

pub(super) fn brief() -> Vec<String> {
    vec![
        "Counts are exact in a model of the kernel, times are estimates; nothing was measured or \
         verified on a running kernel. --full shows all numbers, --time shows where the time goes."
            .to_owned(),
    ]
}

pub(super) fn explained() -> Vec<String> {
    vec![
        "Every number is an exact count in a model of the kernel, except the estimated time: counts \
         times costs. None is a measurement, and this prediction was not verified on a running \
         kernel."
            .to_owned(),
    ]
}

/// Explains estimated time: the constants it uses, and the missing ones.
pub(super) fn estimated(report: &PredictResult) -> Vec<String> {
    let mut notes = vec![
        "Estimated time is the sum of counts times the costs in the machine file. It does not \
         include the program's own instructions, cache misses, allocation and system calls."
            .to_owned(),
    ];
    let machines: BTreeSet<&str> = report.rows.iter().map(|row| row.machine.as_str()).collect();
    for machine in machines {
        let rows = report.rows.iter().filter(|row| row.machine == machine);
        let estimates: Vec<&Estimate> = rows.map(|row| &row.estimate).collect();
        let assumed: BTreeSet<String> =
            estimates.iter().flat_map(|estimate| estimate.assumed()).map(shown).collect();
        let not_known: BTreeSet<&str> =
            estimates.iter().flat_map(|e| e.not_known.iter().map(|name| short(name))).collect();
        if !assumed.is_empty() {
            let list = assumed.into_iter().collect::<Vec<_>>().join(", ");
            notes.push(format!("{machine}, assumed: {list}."));
        }
        if !not_known.is_empty() {
            let list = not_known.into_iter().collect::<Vec<_>>().join(", ");
            notes.push(format!("{machine}, not known: {list}."));
        }
    }
    notes.push(
        "Everything else is an exact count in a model of the kernel. None is a measurement, and \
         this prediction was not verified on a running kernel."
            .to_owned(),
    );
    notes
}

fn shown((name, constant): (&str, &Constant)) -> String {
    format!("{} {} {}", short(name), constant.value, constant.unit)
}

fn short(name: &str) -> &str {
    name.strip_prefix("costs.").unwrap_or(name)
}

fn replaced(rows: &[Outcome]) -> Option<String> {
    let mut machines: Vec<&str> =
        rows.iter().filter(|row| row.is_replaced).map(|row| row.machine.as_str()).collect();
    machines.sort_unstable();
    machines.dedup();
    (!machines.is_empty()).then(|| {
        format!(
            "{}: segments are at the addresses of programs linked for this architecture (64K \
             pages on arm64), not at the recorded ones.",
            machines.join(", ")
        )
    })
}

/// States the model's assumptions if segments are laid out for other page sizes.
fn linked(rows: &[Outcome]) -> Option<String> {
    rows.iter().any(|row| !row.linked.is_empty()).then(|| {
        "linked: the segments of programs and libraries were laid out again as with -z \
         max-page-size, from their recorded mappings. A trace does not contain ELF headers, so \
         partial pages, unmapped parts and the requested alignment are not known."
            .to_owned()
    })
}

fn policy(row: &Outcome) -> Option<String> {
    let policy = row.policy.as_ref()?;
    let point = |(name, answers): (&&str, &PolicyAnswers)| {
        format!(
            "{} times at {name} ({} honoured, {} refused)",
            figures::count(answers.asked),
            figures::count(answers.honoured),
            figures::count(answers.refused)
        )
    };
    let points: Vec<String> = policy.points.iter().map(point).collect();
    let was = if points.is_empty() {
        "was never called: nothing came up for it to decide, or the settings leave no choice"
            .to_owned()
    } else {
        format!("was called {}", points.join(", "))
    };
    Some(format!("{} on {}: the policy {was}.", row.kernel, row.machine))
}

/// Says why a policy's readahead window was refused, if another filesystem may allow it.
fn window_refused(report: &PredictResult) -> Option<String> {
    let refused = |row: &Outcome| row.policy.as_ref()?.points.get("window").map(|of| of.refused);
    let is_refused = report.rows.iter().filter_map(refused).any(|nr| nr > 0);
    (is_refused && report.settings.filesystem.is_none()).then(|| {
        "refused at window: readahead cannot read it, or the filesystem does not support folios of \
         that order under this kernel; --fs xfs replays all files on a filesystem that does."
            .to_owned()
    })
}

fn huge_pages(row: &Outcome) -> Option<String> {
    let huge = row.hugetlb?;
    let kinds = [
        (huge.allocated, "taken from the pool"),
        (huge.copied, "copied by stores"),
        (huge.taken, "taken from children"),
        (huge.sigbus, "touches without a page (SIGBUS)"),
        (huge.maps_refused, "mappings larger than the pool, replayed as ordinary memory"),
        (
            huge.maps_without_pool,
            "mappings without a pool, replayed as ordinary memory (--hugetlb-pages adds one)",
        ),
    ];
    let kinds_of_use: Vec<String> = kinds
        .iter()
        .filter(|(nr, _)| *nr > 0)
        .map(|(nr, what)| format!("{} {what}", figures::count(*nr)))
        .collect();
    (!kinds_of_use.is_empty()).then(|| {
        format!("{} on {}: huge pages: {}.", row.kernel, row.machine, kinds_of_use.join(", "))
    })
}

fn strays(row: &Outcome, nr_references: u64) -> Option<String> {
    let strays = &row.strays;
    let kinds = [
        (strays.unmapped, "to memory that no recorded mapping covers"),
        (strays.protected, "not allowed by their mapping"),
        (strays.beyond_file, "beyond the end of a file"),
    ];
    let all = strays.unmapped.saturating_add(strays.protected).saturating_add(strays.beyond_file);
    if all == 0 {
        return None;
    }
    let kinds: Vec<String> = kinds
        .iter()
        .filter(|(nr, _)| *nr > 0)
        .map(|(nr, what)| format!("{} {what}", figures::count(*nr)))
        .collect();
    let share = figures::percent(all, nr_references);
    Some(format!(
        "{} on {}: {share} of the references were left out: {}.",
        row.kernel,
        row.machine,
        kinds.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use largefolio_sim::replay::cgroup::CgroupOutcome;

    use super::*;
    use crate::predict::{Options, Settings, TraceInfo};

    #[test]
    fn what_a_change_is_against_is_said_exactly() {
        let notes_of = |cells: &[(&str, u64, u64)]| {
            let row = |&(machine, memory_bytes, seed): &(&str, u64, u64)| Outcome {
                machine: machine.to_owned(),
                memory_bytes,
                seed,
                ..Outcome::default()
            };
            let rows = cells.iter().map(row).collect();
            let (trace, settings) = (TraceInfo::default(), Settings::default());
            changes(&PredictResult::new(Vec::new(), trace, settings, rows, Options::default()))
        };
        let plain = "change: from the first column; in percentage points (pp) for shares, otherwise \
                     relative.";
        assert_eq!(notes_of(&[("altra", 1, 0), ("altra", 1, 0)]), plain);
        let with = "The answers compare only columns with the same";
        let sizes = notes_of(&[("altra", 1, 0), ("altra", 2, 0)]);
        assert_eq!(sizes, format!("{plain} {with} memory size."));
        let seeds = notes_of(&[("altra", 1, 0), ("altra", 1, 1)]);
        assert_eq!(seeds, format!("{plain} {with} seed."));
        let machines = notes_of(&[("altra", 1, 0), ("zen4", 1, 0)]);
        let run = " (run time: from the first column for the same machine);";
        let exact = format!("{} {with} machine.", plain.replace(';', run));
        assert_eq!(machines, exact);
    }

    #[test]
    fn a_group_that_nothing_was_in_is_not_named() {
        let group = |name: &str, peak_bytes| CgroupOutcome {
            name: name.to_owned(),
            limit_bytes: 1 << 20,
            peak_bytes,
            ..CgroupOutcome::default()
        };
        let cgroups = vec![group("1M", 0), group("cc1=1M", 5)];
        let rows = vec![Outcome { cgroups, ..Outcome::default() }];
        let (trace, settings) = (TraceInfo::default(), Settings::default());
        let note =
            setting(&PredictResult::new(Vec::new(), trace, settings, rows, Options::default()));
        assert!(note.ends_with(", cc1 in a control group limited to 1 MiB"), "{note}");
        assert_eq!(note.matches("control group").count(), 1, "{note}");
    }
}

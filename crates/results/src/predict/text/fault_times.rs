//! How long page faults take, and the parts of the slowest.

use largefolio_sim::interval::Interval;
use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::detail::AreaKind;
use largefolio_sim::replay::fault_times::{FaultParts, FaultTimes, LongFault};

use super::section::{Section, SectionLine};
use crate::figures::{counted, percent, printable, time, whole_ns};

/// What a part of the slowest faults' time is, in the order of the lines.
const PARTS: [(&str, &str); 8] = [
    ("fault", "the fault itself"),
    ("map", "setting entries"),
    ("clear", "clearing"),
    ("copy", "copying"),
    ("compaction", "compaction"),
    ("reclaim", "reclaim"),
    ("read", "waiting for reads"),
    ("swap", "swap"),
];

fn label(part: &str) -> &str {
    PARTS.iter().find(|(name, _)| *name == part).map_or(part, |(_, label)| label)
}

pub(super) fn section(rows: &[Outcome]) -> Option<Section> {
    let all: Vec<&FaultTimes> = rows.iter().filter_map(|row| row.fault_times.as_ref()).collect();
    if all.is_empty() || all.len() < rows.len() {
        return None;
    }
    let times = |label: &str, get: &dyn Fn(&FaultTimes) -> Interval| {
        let values = all.iter().map(|times| Some(whole_ns(get(times).mid)));
        SectionLine::times(label, values.collect())
    };
    let mut lines = vec![
        SectionLine::counts("faults", all.iter().map(|times| times.faults).collect()),
        SectionLine::counts("without a time", all.iter().map(|it| it.without_time).collect()),
        times("half take at most", &|times| times.p50_ns),
        times("99% take at most", &|times| times.p99_ns),
        times("99.9% take at most", &|times| times.p999_ns),
        times("the longest takes", &|times| times.max_ns),
    ];
    lines.extend(PARTS.iter().map(|(part, label)| {
        let share = |times: &&FaultTimes| {
            let ns = times.slowest.get(part).copied().unwrap_or_default();
            (ns, times.slowest.values().sum())
        };
        SectionLine::shares(format!("slowest 1%: {label}"), all.iter().map(share).collect())
    }));
    Some(Section::new("Time of page faults", lines))
}

/// Says how long the faults of the first column take, and what the longest does.
pub(super) fn sentence(rows: &[Outcome]) -> Option<String> {
    let times = rows.first()?.fault_times.as_ref()?;
    let Some(longest) = times.longest.first() else {
        return Some("No page fault has a time.".to_owned());
    };
    Some(format!(
        "Of {}, half take at most {} and 99% at most {}. The longest takes {}: {}, in {}.",
        counted(times.faults, "page fault"),
        of(times.p50_ns),
        of(times.p99_ns),
        with_bounds(times.max_ns),
        largest_parts(&longest.parts),
        place(longest),
    ))
}

pub(super) fn notes(rows: &[Outcome]) -> Vec<String> {
    let Some(times) = rows.first().and_then(|row| row.fault_times.as_ref()) else {
        return Vec::new();
    };
    let mut notes = vec![
        "times of page faults: what the model counts during a fault, times the machine's costs. \
         Locks, interrupts, other programs and the host of a virtual machine are not in them, and \
         neither are faults that a system call takes."
            .to_owned(),
    ];
    if !times.stand_ins.is_empty() {
        let names: Vec<&str> = times.stand_ins.iter().map(String::as_str).collect();
        notes.push(format!(
            "the machine file lacks {}: another machine's are used, within a factor of 4.",
            names.join(", ")
        ));
    }
    notes
}

fn of(interval: Interval) -> String {
    time(whole_ns(interval.mid))
}

fn with_bounds(ns: Interval) -> String {
    let Interval { low, high, .. } = ns;
    format!("{} [{} .. {}]", of(ns), time(whole_ns(low)), time(whole_ns(high)))
}

/// Names the parts that take at least a tenth, the largest first.
fn largest_parts(parts: &FaultParts) -> String {
    let sum: u64 = parts.values().sum();
    let mut large: Vec<(&str, u64)> = parts.iter().map(|(&part, &ns)| (part, ns)).collect();
    large.sort_by_key(|&(_, ns)| u64::MAX - ns);
    large.retain(|&(_, ns)| ns >= sum / 10);
    let text = large.into_iter().map(|(part, ns)| format!("{} {}", percent(ns, sum), label(part)));
    text.collect::<Vec<_>>().join(", ")
}

fn place(longest: &LongFault) -> String {
    let name = match longest.kind {
        AreaKind::File => printable(longest.path.rsplit('/').next().unwrap_or(&longest.path)),
        AreaKind::Heap => "the heap".to_owned(),
        AreaKind::Stack => "the stack".to_owned(),
        AreaKind::Private => "private memory".to_owned(),
    };
    format!("{name} at {:#x}", longest.address)
}

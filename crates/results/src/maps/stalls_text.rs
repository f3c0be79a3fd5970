//! The text of `folio maps --stalls`: the answer, the waits, what would help, what else moved.

use std::fmt::Write as _;

use largefolio_linux::shell::as_root;
use largefolio_linux::stalls::{Durations, Kind};

use super::stalls::{StallsResult, Waiter, Waits};
use super::table::grid;
use crate::figures::{counted, grouped, printable, ratio, size};
use crate::prose::hanging;

const LINE_CHARS: usize = 100;
/// The longest bar of a histogram.
const BAR_CHARS: u64 = 40;
/// What tracing cannot see.
const UNSEEN: &str = "\
Not seen: page faults that found free memory at once (clearing a large folio takes time too),
waits for swap, files and locks, and the sleep of groups above memory.high.\n";

const fn words(kind: Kind) -> &'static str {
    match kind {
        Kind::Compaction => "direct compaction",
        Kind::Reclaim => "direct reclaim",
        Kind::GroupReclaim => "reclaim at the limit of its group",
        Kind::NodeReclaim => "reclaim of a NUMA node",
    }
}

/// Formats a time in three digits.
fn time(ns: u64) -> String {
    let (per, unit) = match ns {
        1_000_000_000.. => (1_000_000_000, "s"),
        1_000_000.. => (1_000_000, "ms"),
        _ => (1_000, "us"),
    };
    match ratio(ns, per) {
        value if value < 10.0 => format!("{value:.2} {unit}"),
        value if value < 100.0 => format!("{value:.1} {unit}"),
        value => format!("{value:.0} {unit}"),
    }
}

fn folio(waits: &Waits) -> String {
    waits.folio_bytes.map_or_else(|| "-".to_owned(), size)
}

pub(super) fn of(result: &StallsResult) -> String {
    let mut out = answer(result);
    if !result.processes.is_empty() {
        add_processes(result, &mut out);
        for (kind, durations) in result.by_kind() {
            add_histogram(kind, &durations, &mut out);
        }
    }
    if !result.remedies.is_empty() {
        out.push_str("\nWhat would help:\n");
        for remedy in &result.remedies {
            for line in hanging("- ", &remedy.what, LINE_CHARS, LINE_CHARS) {
                out.push_str(&line);
                out.push('\n');
            }
            if !remedy.command.is_empty() {
                let _ = writeln!(out, "    {}", remedy.command);
            }
        }
    }
    add_kernel_threads(result, &mut out);
    add_counters(result, &mut out);
    add_pressure(result, &mut out);
    add_limits(result, &mut out);
    out
}

fn answer(result: &StallsResult) -> String {
    let elapsed = time(result.elapsed_ns);
    let mut out = match result.processes.as_slice() {
        [] => format!("Nothing waited for memory in {elapsed}.\n"),
        [first, ..] => {
            let mut out = format!("{} waited {}", name(first), time(first.total_ns));
            let _ = write!(out, " of {elapsed}");
            if first.nr_threads > 1 {
                let _ = write!(out, ", summed over {} threads", grouped(first.nr_threads as u64));
            }
            if let Some(most) = first.waits.first() {
                let mostly = if first.waits.len() > 1 { "mostly " } else { "" };
                let _ = write!(out, ", {mostly}in {}", words(most.kind));
                if most.folio_bytes.is_some_and(|bytes| bytes > result.page_bytes) {
                    let _ = write!(out, " for {} folios", folio(most));
                }
            }
            out + ".\n"
        }
    };
    if result.processes.len() > 1 {
        let nr = grouped(result.processes.len() as u64);
        let _ = writeln!(out, "{nr} processes waited {} in total.", time(result.total_ns()));
    }
    if result.others.count > 0 {
        let _ = writeln!(
            out,
            "Processes that were not selected waited {}. To see them: {}",
            time(result.others.total_ns),
            as_root("folio maps --stalls")
        );
    }
    if result.ended.count > 0 {
        let _ = writeln!(
            out,
            "Threads that ended before folio could find their process waited {}. Some may belong to \
             selected processes.",
            time(result.ended.total_ns)
        );
    }
    out
}

fn name(process: &Waiter) -> String {
    match process.pid {
        0 => "other processes".to_owned(),
        pid if process.name.is_empty() => format!("thread {pid}"),
        pid => format!("{} ({pid})", printable(&process.name)),
    }
}

fn add_processes(result: &StallsResult, out: &mut String) {
    let header = ["process", "waited in", "folio", "count", "total", "p50", "p99", "max"];
    let header = header.map(str::to_owned);
    let mut rows = Vec::new();
    for process in result.processes.iter().take(result.nr_shown) {
        for (nr, waits) in process.waits.iter().enumerate() {
            rows.push(vec![
                if nr == 0 { name(process) } else { String::new() },
                words(waits.kind).to_owned(),
                folio(waits),
                grouped(waits.count),
                time(waits.total_ns),
                time(waits.p50_ns),
                time(waits.p99_ns),
                time(waits.max_ns),
            ]);
        }
    }
    let _ = write!(out, "\n{}", grid(&header, rows, 2));
    let nr_more = result.processes.len().saturating_sub(result.nr_shown);
    if nr_more > 0 {
        let _ = writeln!(out, "and {} more; --json lists all", counted(nr_more as u64, "process"));
    }
    let waits = result.processes.iter().flat_map(|process| &process.waits);
    let nr_unfinished: u64 = waits.map(|waits| waits.nr_unfinished).sum();
    if nr_unfinished > 0 {
        let waits = counted(nr_unfinished, "wait");
        let _ = writeln!(out, "{waits} had not ended; counted up to the end of tracing.");
    }
}

fn add_histogram(kind: Kind, durations: &Durations, out: &mut String) {
    let title = words(kind);
    let _ = writeln!(out, "\n{}{}:", title[..1].to_uppercase(), &title[1..]);
    let powers = durations.powers();
    let most = powers.values().max().copied().unwrap_or(1).max(1);
    for (from_ns, count) in powers {
        // At least one character, and no overflow for any count.
        let bar = u128::from(count) * u128::from(BAR_CHARS) / u128::from(most);
        let bar = "#".repeat(usize::try_from(bar).unwrap_or(0).max(1));
        let upto = time(from_ns.saturating_mul(2));
        let _ = writeln!(out, "  below {upto:>7}  {:>9}  {bar}", grouped(count));
    }
}

fn add_kernel_threads(result: &StallsResult, out: &mut String) {
    let busy: Vec<String> = result
        .kernel_threads
        .iter()
        .filter(|thread| thread.cpu_ns > 0 || thread.nr_wakes > 0 || !thread.waits.is_empty())
        .map(|thread| {
            let mut text = format!("{} {}", printable(&thread.name), time(thread.cpu_ns));
            if thread.nr_wakes > 0 {
                let _ = write!(text, " (woken {} times)", grouped(thread.nr_wakes));
            }
            for waits in &thread.waits {
                let (for_, ns) = (folio(waits), time(waits.total_ns));
                let _ = write!(text, ", waited {ns} in {} for {for_} folios", words(waits.kind));
            }
            text
        })
        .collect();
    let text = if busy.is_empty() { "none".to_owned() } else { busy.join("; ") };
    let _ = writeln!(out, "\nCPU time of the kernel's memory threads: {text}.");
    if !result.collapses.is_empty() {
        let results = result.collapses.iter();
        let results: Vec<String> =
            results.map(|(name, nr)| format!("{} {}", printable(name), grouped(*nr))).collect();
        let _ = writeln!(out, "Attempts to collapse a block: {}.", results.join(", "));
    }
}

fn add_counters(result: &StallsResult, out: &mut String) {
    if result.counters.is_empty() {
        out.push_str("\nNo counter of waits or large folios moved.\n");
        return;
    }
    out.push_str("\nCounters that moved on the whole system:\n");
    for counter in &result.counters {
        let of_size = counter.folio_bytes.map(|bytes| format!("{} ", size(bytes)));
        let (of_size, name) = (of_size.unwrap_or_default(), printable(&counter.name));
        let _ =
            writeln!(out, "  {:>11}  {of_size}{name}", format!("+{}", grouped(counter.increase)));
    }
}

fn add_pressure(result: &StallsResult, out: &mut String) {
    out.push('\n');
    if result.pressure.is_empty() {
        out.push_str(
            "The kernel does not measure memory pressure (PSI): boot with psi=1 to have it.\n",
        );
    }
    for one in &result.pressure {
        let group = one.group.as_ref().map_or_else(
            || "the whole system".to_owned(),
            |group| format!("the control group {}", printable(group)),
        );
        let [some, full] = [one.some_us, one.full_us].map(|us| time(us.saturating_mul(1000)));
        let _ = writeln!(
            out,
            "Memory pressure (PSI) of {group}: some task waited for {some}, all tasks for {full}."
        );
    }
}

fn add_limits(result: &StallsResult, out: &mut String) {
    out.push_str(UNSEEN);
    if result.nr_begun_before > 0 {
        let waits = counted(result.nr_begun_before, "wait");
        let _ = writeln!(out, "{waits} began before tracing, and did not count.");
    }
    // Control groups and NUMA are optional, and without them there is no such wait.
    if result.missing_events.iter().any(|event| event.starts_with("compaction/")) {
        out.push_str("This kernel does not report compaction.\n");
    }
}

//! The result of `folio maps --stalls`: waits for memory, and what would help.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use largefolio_linux::census::cgroup::MemoryLimit;
use largefolio_linux::shell::{as_root, quoted};
use largefolio_linux::stalls::{self, Durations, Kind, Moved, Owner, Stalls, StallsError, Sums};
use largefolio_linux::system::{Live, System as _};
use serde::Serialize;

use super::MapsRequest;
use crate::cells::Cells;
use crate::{Error, ExportError, Remark, running};

const SCHEMA_VERSION: u32 = 1;

/// The result of `folio maps --stalls`.
#[derive(Debug, Serialize)]
pub struct StallsResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    pub(super) page_bytes: u64,
    pub(super) elapsed_ns: u64,
    /// The value of `thp.defrag`; `None` without THP.
    defrag: Option<String>,
    /// Longest waits first.
    pub(super) processes: Vec<Waiter>,
    pub(super) kernel_threads: Vec<KernelThread>,
    /// Processes that were not selected.
    pub(super) others: Others,
    /// Threads that ended before their process was known.
    pub(super) ended: Others,
    pub(super) counters: Vec<Counter>,
    /// Empty if the kernel does not measure pressure.
    pub(super) pressure: Vec<Pressure>,
    pub(super) collapses: BTreeMap<String, u64>,
    memory_limits: Vec<MemoryLimit>,
    pub(super) nr_lost_events: u64,
    pub(super) nr_begun_before: u64,
    /// Left out, because their end may be among the lost events.
    nr_without_end: u64,
    pub(super) missing_events: Vec<&'static str>,
    pub(super) remedies: Vec<Remedy>,
    #[serde(skip)]
    thp_orders: BTreeSet<u32>,
    /// Processes shown in the text.
    #[serde(skip)]
    pub(super) nr_shown: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct Waiter {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) has_ended: bool,
    pub(super) nr_threads: usize,
    pub(super) total_ns: u64,
    throttled_ns: u64,
    pub(super) waits: Vec<Waits>,
}

#[derive(Debug, Serialize)]
pub(super) struct Waits {
    #[serde(serialize_with = "kind_name")]
    pub(super) kind: Kind,
    order: Option<u32>,
    pub(super) folio_bytes: Option<u64>,
    pub(super) count: u64,
    pub(super) total_ns: u64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
    pub(super) nr_unfinished: u64,
    histogram: Vec<Bucket>,
    #[serde(skip)]
    durations: Durations,
}

/// Waits of at least `from_ns`, and less than twice as long.
#[derive(Debug, Serialize)]
pub(super) struct Bucket {
    pub(super) from_ns: u64,
    pub(super) count: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct KernelThread {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) cpu_ns: u64,
    pub(super) nr_wakes: u64,
    pub(super) waits: Vec<Waits>,
}

#[derive(Debug, Serialize)]
pub(super) struct Others {
    pub(super) count: u64,
    pub(super) total_ns: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Counter {
    pub(super) name: String,
    pub(super) folio_bytes: Option<u64>,
    pub(super) increase: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Pressure {
    /// `None`: the whole system.
    pub(super) group: Option<String>,
    pub(super) some_us: u64,
    pub(super) full_us: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Remedy {
    pub(super) what: String,
    /// Shell command; empty if it is not one.
    pub(super) command: String,
}

pub(super) const fn name_of(kind: Kind) -> &'static str {
    match kind {
        Kind::Compaction => "compaction",
        Kind::Reclaim => "reclaim",
        Kind::GroupReclaim => "group_reclaim",
        Kind::NodeReclaim => "node_reclaim",
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn kind_name<S: serde::Serializer>(kind: &Kind, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(name_of(*kind))
}

fn waits_of(sums: &Sums, page_bytes: u64) -> Vec<Waits> {
    let mut waits: Vec<Waits> = sums
        .by_kind
        .iter()
        .map(|(&(kind, order), sum)| Waits {
            kind,
            order,
            folio_bytes: order.and_then(|order| page_bytes.checked_shl(order)),
            count: sum.waits.nr,
            total_ns: sum.waits.total_ns,
            p50_ns: sum.waits.percentile_ns(50),
            p99_ns: sum.waits.percentile_ns(99),
            max_ns: sum.waits.max_ns,
            nr_unfinished: sum.nr_cut,
            histogram: buckets(&sum.waits),
            durations: sum.waits.clone(),
        })
        .collect();
    waits.sort_by_key(|waits| std::cmp::Reverse(waits.total_ns));
    waits
}

fn buckets(waits: &Durations) -> Vec<Bucket> {
    waits.powers().into_iter().map(|(from_ns, count)| Bucket { from_ns, count }).collect()
}

impl Others {
    fn of(sums: &Sums) -> Self {
        Self { count: sums.nr_waits(), total_ns: sums.total_ns() }
    }
}

impl MapsRequest {
    /// Watches for `time`, or until Ctrl-C. The text shows at most `nr_shown` processes.
    ///
    /// # Errors
    /// If nothing can be traced, or if a selected process does not exist.
    pub fn stalls(&self, time: Duration, nr_shown: usize) -> Result<StallsResult, Error> {
        let stalls = stalls::watch(&self.selection, time).map_err(|error| match error {
            StallsError::NotPermitted => Error::request(format!(
                "--stalls needs root to trace the kernel; {}",
                self.remedy()
            )),
            error => Error::request(error.to_string()),
        })?;
        Ok(StallsResult { nr_shown, ..StallsResult::new(self.command_line.clone(), stalls) })
    }
}

impl StallsResult {
    fn new(command_line: Vec<String>, stalls: Stalls) -> Self {
        let page_bytes = Live.page_bytes();
        let (kernel, users): (Vec<_>, Vec<_>) =
            stalls.waiters.into_iter().partition(|(owner, _)| owner.is_kernel);
        let processes: Vec<Waiter> = users
            .into_iter()
            .map(|(owner, sums)| waiter(owner, &sums, page_bytes))
            .filter(|waiter| !waiter.waits.is_empty())
            .collect();
        let mut result = Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: running::release(),
            page_bytes,
            elapsed_ns: u64::try_from(stalls.elapsed.as_nanos()).unwrap_or(u64::MAX),
            defrag: stalls.defrag,
            processes,
            kernel_threads: kernel_threads(stalls.threads, &kernel, page_bytes),
            others: Others::of(&stalls.others),
            ended: Others::of(&stalls.ended),
            counters: stalls.moved.into_iter().map(counter).collect(),
            pressure: stalls
                .pressures
                .into_iter()
                .map(|one| Pressure {
                    group: one.group,
                    some_us: one.pressure.some_us,
                    full_us: one.pressure.full_us,
                })
                .collect(),
            collapses: stalls.collapses,
            memory_limits: stalls.limits,
            nr_lost_events: stalls.nr_lost,
            nr_begun_before: stalls.nr_headless,
            nr_without_end: stalls.nr_without_end,
            thp_orders: stalls.thp_orders,
            missing_events: stalls.missing_events,
            remedies: Vec::new(),
            nr_shown: usize::MAX,
        };
        result.remedies = result.remedies();
        result
    }

    #[must_use]
    pub fn remarks(&self) -> Vec<Remark> {
        let lost = (self.nr_lost_events > 0).then(|| {
            let left_out = match self.nr_without_end {
                0 => String::new(),
                nr => format!(
                    ", among them {} whose end may be lost",
                    crate::figures::counted(nr, "wait")
                ),
            };
            Remark::Warning(format!(
                "{} events were lost because they arrived faster than folio could read them, so \
                 some waits are missing{left_out}",
                self.nr_lost_events
            ))
        });
        lost.into_iter().collect()
    }

    pub(super) fn total_ns(&self) -> u64 {
        self.processes.iter().map(|process| process.total_ns).fold(0, u64::saturating_add)
    }

    /// Returns all processes' waits by kind.
    pub(super) fn by_kind(&self) -> BTreeMap<Kind, Durations> {
        let mut all: BTreeMap<Kind, Durations> = BTreeMap::new();
        for waits in self.processes.iter().flat_map(|process| &process.waits) {
            all.entry(waits.kind).or_default().extend(&waits.durations);
        }
        all
    }

    /// Sums the time of all waits that `is_meant` selects.
    fn sum_ns(&self, is_meant: impl Fn(&Waits) -> bool) -> u64 {
        let waits = self.processes.iter().flat_map(|process| &process.waits);
        waits.filter(|waits| is_meant(waits)).map(|waits| waits.total_ns).sum()
    }

    fn increase(&self, name: &str) -> u64 {
        let of_all = |one: &&Counter| one.name == name && one.folio_bytes.is_none();
        self.counters.iter().find(of_all).map_or(0, |one| one.increase)
    }

    /// Returns what would help, the longest waits first.
    fn remedies(&self) -> Vec<Remedy> {
        let is_large = |waits: &Waits| waits.order.is_some_and(|order| order > 0);
        let is_for_folios =
            |waits: &Waits| waits.order.is_some_and(|order| self.thp_orders.contains(&order));
        let of_system = |waits: &Waits| matches!(waits.kind, Kind::Compaction | Kind::Reclaim);
        let mut all = vec![
            (self.sum_ns(|one| of_system(one) && is_for_folios(one)), self.of_folios()),
            (
                self.sum_ns(|one| of_system(one) && is_large(one) && !is_for_folios(one)),
                vec![of_other_orders()],
            ),
            (
                self.sum_ns(|one| one.kind == Kind::Reclaim && !is_large(one)),
                vec![of_free_memory()],
            ),
            (self.sum_ns(|one| one.kind == Kind::GroupReclaim), self.of_limits()),
            (self.sum_ns(|one| one.kind == Kind::NodeReclaim), vec![of_nodes()]),
        ];
        all.sort_by_key(|(ns, _)| std::cmp::Reverse(*ns));
        all.into_iter().filter(|(ns, _)| *ns > 0).flat_map(|(_, remedies)| remedies).collect()
    }

    fn of_folios(&self) -> Vec<Remedy> {
        let tune = |value: &str| as_root(&format!("folio tune --set thp.defrag={value} --yes"));
        let mut remedies = Vec::new();
        match self.defrag.as_deref() {
            Some("always") => remedies.extend([
                Remedy { what: of_faults("without MADV_HUGEPAGE"), command: tune("defer+madvise") },
                Remedy { what: of_faults("with MADV_HUGEPAGE too"), command: tune("defer") },
            ]),
            Some("madvise" | "defer+madvise") => remedies
                .push(Remedy { what: of_faults("with MADV_HUGEPAGE"), command: tune("defer") }),
            Some(value) => remedies.push(plain(format!(
                "thp.defrag is {value}, so these waits were not for faults on private memory. \
                 Collapses, large folios of files, network buffers and drivers wait too"
            ))),
            None => {}
        }
        let (fail, success) = (self.increase("compact_fail"), self.increase("compact_success"));
        if fail > success {
            remedies.push(plain(format!(
                "{fail} of {} compactions found no large folio: the waits were in vain. Free \
                 memory is short or cannot be moved",
                fail.saturating_add(success)
            )));
        }
        remedies
    }

    fn of_limits(&self) -> Vec<Remedy> {
        let of_limit = |limit: &MemoryLimit| {
            let (used, max) = (limit.used_bytes, limit.max_bytes);
            let what = format!(
                "the control group {} uses {} of its limit of {}. A higher limit ends the waits; \
                 this shows whether large folios hold memory that its programs never used",
                crate::figures::printable(&limit.group),
                crate::figures::bytes(used),
                crate::figures::bytes(max),
            );
            let group = quoted(&limit.group);
            Remedy { what, command: as_root(&format!("folio maps --cgroup {group} --waste")) }
        };
        // The limits of other groups were not reached.
        let is_near = |limit: &&MemoryLimit| limit.used_bytes >= limit.max_bytes / 10 * 9;
        let remedies: Vec<Remedy> =
            self.memory_limits.iter().filter(is_near).map(of_limit).collect();
        if !remedies.is_empty() {
            return remedies;
        }
        vec![plain(
            "a control group was at its limit, or above memory.high: raise it, or run less in it"
                .to_owned(),
        )]
    }
}

fn of_faults(memory: &str) -> String {
    format!(
        "faults on memory {memory} no longer wait for a large folio. If none is free, the memory \
         starts in small folios, and khugepaged collapses it later"
    )
}

fn plain(what: String) -> Remedy {
    Remedy { what, command: String::new() }
}

fn of_free_memory() -> Remedy {
    let what = "free memory ran out before kswapd had freed enough. A higher \
                vm.watermark_scale_factor lets kswapd begin earlier, and keeps more memory free. \
                This shows whether large folios hold memory that no program used";
    Remedy { what: what.to_owned(), command: as_root("folio maps --all --waste") }
}

fn of_other_orders() -> Remedy {
    plain(
        "some waits were for sizes that no fault and no collapse gets, because they are off. Large \
         folios of files, network buffers and drivers wait for such sizes, and no setting of THP \
         changes that"
            .to_owned(),
    )
}

fn of_nodes() -> Remedy {
    let what = "programs take memory of another NUMA node instead of freeing that of their own";
    Remedy { what: what.to_owned(), command: as_root("sysctl vm.zone_reclaim_mode=0") }
}

fn waiter(owner: Owner, sums: &Sums, page_bytes: u64) -> Waiter {
    Waiter {
        pid: owner.pid,
        name: owner.name,
        has_ended: owner.has_ended,
        nr_threads: sums.threads.len(),
        total_ns: sums.total_ns(),
        throttled_ns: sums.throttled_ns,
        waits: waits_of(sums, page_bytes),
    }
}

/// Joins the CPU time of kernel threads with what was traced of them.
fn kernel_threads(
    threads: Vec<stalls::KernelThread>,
    traced: &[(Owner, Sums)],
    page_bytes: u64,
) -> Vec<KernelThread> {
    let mut all: BTreeMap<(u32, String), KernelThread> = BTreeMap::new();
    let blank = |pid: u32, name: &str| KernelThread {
        pid,
        name: name.to_owned(),
        cpu_ns: 0,
        nr_wakes: 0,
        waits: Vec::new(),
    };
    for thread in threads {
        let own = KernelThread { cpu_ns: thread.cpu_ns, ..blank(thread.pid, &thread.name) };
        all.insert((thread.pid, thread.name), own);
    }
    for (owner, sums) in traced {
        let key = (owner.pid, owner.name.clone());
        let own = all.entry(key).or_insert_with(|| blank(owner.pid, &owner.name));
        own.nr_wakes = sums.nr_wakes;
        own.waits = waits_of(sums, page_bytes);
    }
    all.into_values().collect()
}

fn counter(moved: Moved) -> Counter {
    Counter { name: moved.name, folio_bytes: moved.folio_bytes, increase: moved.by }
}

impl StallsResult {
    /// Returns one row per process, kind and order.
    pub(super) fn records(&self) -> Result<String, ExportError> {
        let mut cells = Cells::text();
        cells.record([
            "pid",
            "name",
            "kind",
            "folio_bytes",
            "count",
            "total_ns",
            "p50_ns",
            "p99_ns",
            "max_ns",
        ])?;
        for process in &self.processes {
            for waits in &process.waits {
                cells.record([
                    process.pid.to_string(),
                    process.name.clone(),
                    name_of(waits.kind).to_owned(),
                    waits.folio_bytes.map(|bytes| bytes.to_string()).unwrap_or_default(),
                    waits.count.to_string(),
                    waits.total_ns.to_string(),
                    waits.p50_ns.to_string(),
                    waits.p99_ns.to_string(),
                    waits.max_ns.to_string(),
                ])?;
            }
        }
        cells.into_text()
    }
}

#[cfg(test)]
mod tests;

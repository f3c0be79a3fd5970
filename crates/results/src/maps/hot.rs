//! The result of `folio maps --hot`: how much memory is used, and its folio sizes.
//!
//! The kernel says how many bytes of a mapping were used, but not which pages. If a mapping has
//! folios of several sizes, the share of each size therefore has a lower and an upper bound.

use std::collections::BTreeMap;
use std::time::Duration;

use largefolio_linux::census::Access;
use largefolio_linux::census::hot::{self, HotProcess, LeftOut, Used};
use largefolio_linux::census::process::{Mapping, Process};
use largefolio_linux::reasons::{Finding, Refusal};
use largefolio_linux::remedies::Remedy;
use largefolio_linux::system::{Live, System as _};
use serde::Serialize;

use super::plain::what_in;
use super::{MapsRequest, Reading, Selection};
use crate::cells::Cells;
use crate::{Error, ExportError, Remark, running};

const SCHEMA_VERSION: u32 = 1;

#[derive(Debug, Serialize)]
pub struct HotResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    pub(super) page_bytes: u64,
    /// All processes together.
    #[serde(flatten)]
    pub(super) all: Use,
    pub(super) processes: Vec<HotOne>,
    left_out: Vec<NotWatched>,
    /// Rows shown in the text.
    #[serde(skip)]
    pub(super) nr_shown: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct HotOne {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) watched_ns: u64,
    clearing_ns: u64,
    #[serde(flatten)]
    pub(super) all: Use,
    /// Most used first.
    pub(super) mappings: Vec<HotMapping>,
}

#[derive(Debug, Serialize)]
pub(super) struct HotMapping {
    start: u64,
    pub(super) name: String,
    #[serde(flatten)]
    pub(super) all: Use,
    pub(super) reasons: Vec<Refusal>,
    pub(super) remedies: Vec<Remedy>,
}

#[derive(Debug, Serialize)]
struct NotWatched {
    pid: u32,
    name: String,
    why: &'static str,
}

/// Memory, and its part that was used. A page that several processes share counts in each.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct Use {
    pub(super) resident_bytes: u64,
    pub(super) used_bytes: u64,
    /// Part of `used_bytes` in mappings that grew or changed before their sizes were read.
    pub(super) used_bytes_unknown: u64,
    /// By folio size in bytes; without the unknown part.
    pub(super) sizes: BTreeMap<u64, SizeUse>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct SizeUse {
    pub(super) resident_bytes: u64,
    pub(super) used_bytes_min: u64,
    pub(super) used_bytes_max: u64,
}

impl Use {
    /// Distributes `used_bytes` over folio sizes, which are `resident` bytes by size.
    fn of(used: &Used, resident: &BTreeMap<u64, u64>) -> Self {
        let all: u64 = resident.values().sum();
        // The sizes were read a moment later.
        let used_bytes = used.used_bytes.min(all);
        let used_bytes_unknown = used.used_bytes - used_bytes;
        let of_size = |(&size, &resident_bytes): (&u64, &u64)| {
            let used_bytes_min = used_bytes.saturating_sub(all - resident_bytes);
            let used_bytes_max = used_bytes.min(resident_bytes);
            (size, SizeUse { resident_bytes, used_bytes_min, used_bytes_max })
        };
        Self {
            resident_bytes: used.resident_bytes,
            used_bytes: used.used_bytes,
            used_bytes_unknown,
            sizes: resident.iter().map(of_size).collect(),
        }
    }

    /// Returns the part of each size, and that of unknown sizes with an empty name.
    fn parts(&self) -> Vec<(String, SizeUse)> {
        let known = self.sizes.iter().map(|(size, part)| (size.to_string(), *part));
        let all: u64 = self.sizes.values().map(|part| part.resident_bytes).sum();
        let unknown = SizeUse {
            resident_bytes: self.resident_bytes.saturating_sub(all),
            used_bytes_min: self.used_bytes_unknown,
            used_bytes_max: self.used_bytes_unknown,
        };
        let unknown = (self.used_bytes_unknown > 0).then(|| (String::new(), unknown));
        known.chain(unknown).collect()
    }

    fn add(&mut self, other: &Self) {
        self.resident_bytes += other.resident_bytes;
        self.used_bytes += other.used_bytes;
        self.used_bytes_unknown += other.used_bytes_unknown;
        for (&size, part) in &other.sizes {
            let sum = self.sizes.entry(size).or_default();
            sum.resident_bytes += part.resident_bytes;
            sum.used_bytes_min += part.used_bytes_min;
            sum.used_bytes_max += part.used_bytes_max;
        }
    }
}

impl MapsRequest {
    /// Watches the selected processes for `time`, or until Ctrl-C. The text has at most `nr_shown`
    /// rows per process.
    ///
    /// # Errors
    /// Without root, without a selection, or if the processes have too much memory.
    pub fn hot(&self, time: Duration, nr_shown: usize) -> Result<(HotResult, Vec<Remark>), Error> {
        if self.selection.is_empty() || self.selection == Selection::All {
            return Err(Error::request(
                "--hot clears the accessed bits of every page of a process, by which the kernel \
                 chooses pages to free; select processes, such as folio maps 4242 --hot or folio \
                 maps --name postgres --hot",
            ));
        }
        let needs_root =
            || Error::request(format!("--hot needs to see page frames; {}", self.remedy()));
        if !rustix::process::geteuid().is_root() {
            return Err(needs_root());
        }
        let chosen = self.selection.chosen(&Live)?;
        let hot =
            hot::watch(&chosen.pids, time).map_err(|error| Error::request(error.to_string()))?;
        let mut remarks: Vec<Remark> =
            chosen.missing.iter().map(|missing| Remark::Missing(missing.to_string())).collect();
        remarks.extend(hot.left_out.iter().map(|(pid, name, why)| self.remark(*pid, name, *why)));
        let pids: Vec<u32> = hot.processes.iter().map(|process| process.pid).collect();
        // Without any, there is nothing to read.
        let now = Self { selection: Selection::Processes(pids), ..self.clone() };
        let reading = now.take_reading()?;
        if reading.census().is_some_and(|census| census.access != Access::Full) {
            return Err(needs_root());
        }
        let result = HotResult::new(self.command_line.clone(), hot, &reading);
        Ok((HotResult { nr_shown, ..result }, remarks))
    }

    /// Says why a process is not in the result: an error if it was given by PID.
    fn remark(&self, pid: u32, name: &str, why: LeftOut) -> Remark {
        let name = if name.is_empty() {
            String::new()
        } else {
            format!(" ({})", crate::figures::printable(name))
        };
        let text = format!("process {pid}{name} {}", words(why));
        let is_error =
            matches!(self.selection, Selection::Processes(_)) && why != LeftOut::NoMemory;
        if is_error { Remark::Missing(text) } else { Remark::Warning(text) }
    }
}

const fn words(why: LeftOut) -> &'static str {
    match why {
        LeftOut::Ended => "does not exist, or ended meanwhile",
        LeftOut::NoMemory => "has no memory of its own (a kernel thread or a zombie)",
        LeftOut::Refused => "hides its memory from this user",
    }
}

impl HotResult {
    fn new(command_line: Vec<String>, hot: hot::Hot, reading: &Reading) -> Self {
        let page_bytes = Live.page_bytes();
        let read = reading.census().map_or(&[][..], |census| &census.processes);
        // By process and mapping.
        let findings = reading.findings().iter();
        let findings = findings.map(|one| ((one.process, one.mapping), one)).collect();
        let mut all = Use::default();
        let mut processes = Vec::new();
        for watched in hot.processes {
            let mut found = read.iter().enumerate();
            let found = found.find(|(_, process)| process.pid == watched.pid);
            let process = one(watched, found, &findings, page_bytes);
            all.add(&process.all);
            processes.push(process);
        }
        processes.sort_by_key(|process| std::cmp::Reverse(process.all.used_bytes));
        let left_out = hot.left_out.into_iter();
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: running::release(),
            page_bytes,
            all,
            processes,
            left_out: left_out
                .map(|(pid, name, why)| NotWatched { pid, name, why: words(why) })
                .collect(),
            nr_shown: usize::MAX,
        }
    }

    /// Whether any process was watched.
    #[must_use]
    pub fn is_some(&self) -> bool {
        !self.processes.is_empty()
    }

    pub(super) fn records(&self) -> Result<String, ExportError> {
        let mut cells = Cells::text();
        cells.record([
            "pid",
            "name",
            "start",
            "mapping",
            "folio_bytes",
            "resident_bytes",
            "used_bytes_min",
            "used_bytes_max",
        ])?;
        for process in &self.processes {
            for mapping in &process.mappings {
                for (size, part) in mapping.all.parts() {
                    cells.record([
                        process.pid.to_string(),
                        process.name.clone(),
                        format!("{:#x}", mapping.start),
                        mapping.name.clone(),
                        size,
                        part.resident_bytes.to_string(),
                        part.used_bytes_min.to_string(),
                        part.used_bytes_max.to_string(),
                    ])?;
                }
            }
        }
        cells.into_text()
    }
}

/// Joins the use of a process's mappings with their folio sizes, reasons and remedies.
fn one(
    watched: HotProcess,
    found: Option<(usize, &Process)>,
    findings: &BTreeMap<(usize, usize), &Finding>,
    page_bytes: u64,
) -> HotOne {
    let mut all = Use::default();
    let mut mappings = Vec::new();
    for used in &watched.mappings {
        let mapping = found.and_then(|(at, process)| {
            let start = |one: &Mapping| one.vma.range.start;
            let nr = process.mappings.binary_search_by_key(&used.range.start, start).ok()?;
            let mapping = &process.mappings[nr];
            (mapping.vma.range == used.range).then_some(((at, nr), mapping))
        });
        // A mapping that has changed since has no sizes.
        let (mut sizes, mut name) = (BTreeMap::new(), "(changed meanwhile)".to_owned());
        let mut finding = None;
        if let Some((key, mapping)) = mapping {
            for (_, size, cell) in mapping.tally.cells() {
                if let Some(bytes) = size.bytes(page_bytes) {
                    *sizes.entry(bytes).or_default() += cell.mapped_bytes();
                }
            }
            name = what_in(&watched.name, &mapping.vma);
            finding = findings.get(&key).copied();
        }
        let usage = Use::of(used, &sizes);
        all.add(&usage);
        mappings.push(HotMapping {
            start: used.range.start,
            name,
            all: usage,
            reasons: finding.iter().flat_map(|one| &one.reasons).map(|one| one.refusal).collect(),
            remedies: finding.map(|one| one.remedies.clone()).unwrap_or_default(),
        });
    }
    mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.all.used_bytes));
    let ns = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    HotOne {
        pid: watched.pid,
        name: watched.name,
        watched_ns: ns(watched.watched),
        clearing_ns: ns(watched.clearing),
        all,
        mappings,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(used_bytes: u64, resident_bytes: u64) -> Used {
        Used { range: 0..1, resident_bytes, used_bytes }
    }

    #[test]
    fn one_size_is_exact_and_several_have_bounds() {
        let of = |used_bytes, sizes: &[(u64, u64)]| {
            let sizes: BTreeMap<u64, u64> = sizes.iter().copied().collect();
            let usage = Use::of(&used(used_bytes, sizes.values().sum()), &sizes);
            let bounds = usage.sizes.values().map(|one| (one.used_bytes_min, one.used_bytes_max));
            bounds.collect::<Vec<(u64, u64)>>()
        };
        assert_eq!(of(30, &[(4096, 100)]), [(30, 30)]);
        assert_eq!(of(30, &[(4096, 100), (65536, 20)]), [(10, 30), (0, 20)]);
        assert_eq!(of(120, &[(4096, 100), (65536, 20)]), [(100, 100), (20, 20)]);
        assert_eq!(of(0, &[(4096, 100), (65536, 20)]), [(0, 0), (0, 0)]);
    }

    #[test]
    fn memory_that_came_before_the_sizes_were_read_has_no_size() {
        let grown = Use::of(&used(100, 200), &BTreeMap::from([(4096, 1)]));
        assert_eq!(grown.used_bytes_unknown, 99);
        let parts: Vec<(String, u64, u64)> = grown
            .parts()
            .into_iter()
            .map(|(size, part)| (size, part.resident_bytes, part.used_bytes_max))
            .collect();
        assert_eq!(parts, [("4096".to_owned(), 1, 1), (String::new(), 199, 99)]);
        let mut all = Use::of(&used(50, 50), &BTreeMap::from([(4096, 50)]));
        assert_eq!((all.used_bytes_unknown, all.parts().len()), (0, 1));
        all.add(&grown);
        assert_eq!((all.used_bytes, all.used_bytes_unknown), (150, 99));
    }

    #[test]
    fn bounds_hold_for_every_distribution() {
        // For each of three sizes, up to three used and three unused bytes.
        for nr in 0..1 << 12 {
            let part = |size: u64| (nr >> (4 * size) & 3, nr >> (4 * size + 2) & 3);
            let sizes = BTreeMap::from([0, 1, 2].map(|size| (size, part(size).0 + part(size).1)));
            let sum = (0..3).map(|size| part(size).0).sum();
            let usage = Use::of(&used(sum, sizes.values().sum()), &sizes);
            for (size, one) in &usage.sizes {
                let exact = part(*size).0;
                assert!(one.used_bytes_min <= exact && exact <= one.used_bytes_max, "{nr:#x}");
            }
        }
    }
}

//! How much memory in large private folios holds only zeroes, and what gives it back.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

use largefolio_linux::census::waste::{self, MappingWaste, ProcessWaste};
use largefolio_linux::census::{Access, Census};
use largefolio_linux::proc::thp;
use largefolio_linux::shell::again_as_root;
use largefolio_linux::system::{Live, System as _};
use serde::Serialize;

use super::MapsRequest;
use crate::cells::Cells;
use crate::figures::{bytes, percent, printable, size};
use crate::{Error, ExportError, Forms, running};

const SCHEMA_VERSION: u32 = 1;
/// At most about as much is read.
const BYTES_MAX: u64 = 1 << 30;
const NR_MAPPINGS_SHOWN: usize = 5;
/// With less, remedies cost more than they give back.
const WASTE_PERCENT_MIN: u64 = 1;
const SMALLEST_PAGE_BYTES: u64 = 4 << 10;

/// The result of `folio maps --waste`. Sizes are estimated from the bytes read.
#[derive(Debug, Serialize)]
pub struct WasteResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    kernel: String,
    page_bytes: u64,
    /// Bytes read, and the time that it took.
    read_bytes: u64,
    elapsed_ms: f64,
    processes: Vec<Process>,
    remedies: Vec<Remedy>,
}

#[derive(Debug, Serialize)]
struct Process {
    pid: u32,
    name: String,
    #[serde(flatten)]
    memory: Memory,
    mappings: Vec<Mapping>,
    /// Mappings that were not read, and why.
    left_out: Vec<LeftOut>,
    /// Whether the process ended meanwhile, or the kernel does not show its memory.
    is_refused: bool,
}

#[derive(Debug, Serialize)]
struct Mapping {
    start: u64,
    name: String,
    #[serde(flatten)]
    memory: Memory,
}

#[derive(Debug, Serialize)]
struct LeftOut {
    start: u64,
    why: &'static str,
}

/// Private memory in large folios.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
struct Memory {
    large_bytes: u64,
    /// In pages of zeroes.
    zero_bytes: u64,
    /// By folio size in bytes.
    sizes: BTreeMap<u64, Size>,
    /// Memory that folios of at most this size would keep, by size in bytes.
    kept_bytes: BTreeMap<u64, u64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
struct Size {
    bytes: u64,
    zero_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Remedy {
    /// What it does, and what it costs.
    what: String,
    /// Shell command; empty if it is not one.
    command: String,
}

impl Memory {
    fn of(mapping: &MappingWaste) -> Self {
        let sizes: BTreeMap<u64, Size> = mapping
            .sizes
            .iter()
            .map(|(&size, waste)| {
                let zero_bytes = scaled(waste.zero_bytes, waste.bytes, waste.read_bytes);
                (size, Size { bytes: waste.bytes, zero_bytes })
            })
            .collect();
        let [large_bytes, zero_bytes] = [
            sizes.values().map(|size| size.bytes).sum(),
            sizes.values().map(|size| size.zero_bytes).sum(),
        ];
        let read_bytes = mapping.sizes.values().map(|waste| waste.read_bytes).sum();
        let kept = mapping.kept_bytes.iter();
        let kept = kept.map(|(&size, &kept)| (size, scaled(kept, large_bytes, read_bytes)));
        Self { large_bytes, zero_bytes, sizes, kept_bytes: kept.collect() }
    }

    /// Whether there is enough to give back.
    const fn is_wasteful(&self) -> bool {
        self.zero_bytes.saturating_mul(100) >= self.large_bytes.saturating_mul(WASTE_PERCENT_MIN)
    }

    fn add(&mut self, other: &Self) {
        self.large_bytes += other.large_bytes;
        self.zero_bytes += other.zero_bytes;
        for (&size, waste) in &other.sizes {
            let sum = self.sizes.entry(size).or_default();
            sum.bytes += waste.bytes;
            sum.zero_bytes += waste.zero_bytes;
        }
        for (&size, kept) in &other.kept_bytes {
            *self.kept_bytes.entry(size).or_default() += kept;
        }
    }
}

/// Estimates a part of `whole` bytes from that of the bytes read.
fn scaled(part: u64, whole: u64, read: u64) -> u64 {
    let scaled = u128::from(part) * u128::from(whole);
    scaled.checked_div(read.into()).and_then(|bytes| u64::try_from(bytes).ok()).unwrap_or(0)
}

fn share(part: u64, whole: u64) -> String {
    let share = percent(part, whole);
    if share.is_empty() { "0%".to_owned() } else { share }
}

impl MapsRequest {
    /// Reads the large folios of the census's processes.
    ///
    /// # Errors
    /// If the kernel does not show which memory is in large folios.
    pub fn waste(&self, census: &Census) -> Result<WasteResult, Error> {
        if census.access != Access::Full {
            return Err(Error::request(format!(
                "--waste needs to see page frames and memory; run: {}",
                again_as_root(&self.command_line)
            )));
        }
        let start = Instant::now();
        let found = waste::of(&Live, census, BYTES_MAX)
            .map_err(Error::system("cannot read /proc/kpageflags"))?;
        Ok(WasteResult::new(self.command_line.clone(), found, start.elapsed()))
    }
}

impl WasteResult {
    pub(super) fn new(
        command_line: Vec<String>,
        found: Vec<ProcessWaste>,
        elapsed: Duration,
    ) -> Self {
        let sizes = found.iter().flat_map(|process| &process.mappings).flat_map(|one| &one.sizes);
        let read_bytes = sizes.map(|(_, waste)| waste.read_bytes).sum();
        let mut processes: Vec<Process> = found
            .into_iter()
            .map(process)
            .filter(|process| process.memory.large_bytes > 0 || process.is_refused)
            .collect();
        processes.sort_by_key(|process| std::cmp::Reverse(process.memory.zero_bytes));
        let largest = processes.iter().flat_map(|process| process.memory.sizes.keys()).max();
        let page_bytes = Live.page_bytes();
        let of_pages = (page_bytes > SMALLEST_PAGE_BYTES).then(smaller_pages);
        let remedies =
            of_pages.into_iter().chain(remedies(largest.copied().unwrap_or(0))).collect();
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: running::release(),
            page_bytes,
            read_bytes,
            elapsed_ms: (elapsed.as_secs_f64() * 1e4).round() / 10.0,
            processes,
            remedies,
        }
    }

    /// Names the memory that was checked.
    fn large(&self) -> String {
        if self.page_bytes > SMALLEST_PAGE_BYTES {
            format!("private folios of {} and larger", size(self.page_bytes))
        } else {
            "large private folios".to_owned()
        }
    }

    /// Whether a process has large folios of private memory.
    fn is_some(&self) -> bool {
        self.processes.iter().any(|process| process.memory.large_bytes > 0)
    }

    /// Returns the pages of zeroes of each process by folio size, in bytes.
    pub(super) fn zero_bytes(&self) -> impl Iterator<Item = (&str, BTreeMap<u64, u64>)> {
        self.processes.iter().map(|process| {
            let sizes = process.memory.sizes.iter();
            (&*process.name, sizes.map(|(&size, waste)| (size, waste.zero_bytes)).collect())
        })
    }

    fn all(&self) -> Memory {
        let mut all = Memory::default();
        for process in &self.processes {
            all.add(&process.memory);
        }
        all
    }
}

fn process(found: ProcessWaste) -> Process {
    let mut mappings: Vec<Mapping> = found
        .mappings
        .iter()
        .map(|mapping| {
            let name = mapping.name.to_string_lossy().into_owned();
            Mapping { start: mapping.start, name, memory: Memory::of(mapping) }
        })
        .collect();
    mappings.sort_by_key(|mapping| std::cmp::Reverse(mapping.memory.zero_bytes));
    let mut memory = Memory::default();
    for mapping in &mappings {
        memory.add(&mapping.memory);
    }
    let left_out = found.left_out.into_iter().map(|(start, why)| LeftOut { start, why });
    Process {
        pid: found.pid,
        name: found.name,
        memory,
        mappings,
        left_out: left_out.collect(),
        is_refused: found.refused,
    }
}

/// Returns what gives wasted memory back here, from the narrowest to the widest.
fn smaller_pages() -> Remedy {
    Remedy {
        what:
            "a kernel with base pages of 4K keeps what the line for 4K says; a prediction from a \
               recording compares both, with page cache and page tables"
                .to_owned(),
        command: "folio predict job.folio --kernel this,this+page=4K".to_owned(),
    }
}

fn remedies(largest_bytes: u64) -> Vec<Remedy> {
    let of =
        |what: &str, command: &str| Remedy { what: what.to_owned(), command: command.to_owned() };
    let mut all = vec![
        of(
            "the program returns memory that it no longer uses: madvise(MADV_DONTNEED). The next \
            touch takes a fault",
            "",
        ),
        of(
            "start the program without large folios; its children inherit that. Page walks and faults \
            return",
            "folio run --thp off -- CMD",
        ),
        of(
            "the same for one service, which systemd then starts without large folios",
            "sudo folio tune --unit NAME --thp off --yes",
        ),
    ];
    if largest_bytes < 2 << 20 {
        return all;
    }
    let set = |name: &str| thp::chosen(&Live, &thp::setting(name));
    let shrinks = Live.text(&thp::setting("shrink_underused")).ok();
    let none = Live.text(&thp::setting("khugepaged/max_ptes_none")).ok();
    let none = none.and_then(|text| String::from_utf8_lossy(&text).trim().parse::<u64>().ok());
    let is_on = shrinks.is_some_and(|text| text.trim_ascii() == b"1");
    match (is_on, none) {
        (true, Some(none)) if none < 511 => all.push(of(
            &format!(
                "under memory pressure, the kernel already splits 2M folios with more than {none} \
                 pages of zeroes, and frees those pages"
            ),
            "",
        )),
        (true, Some(_)) => all.push(of(
            "under memory pressure, the kernel splits 2M folios of which more pages than \
             max_ptes_none are zeroes, and frees those; 511 turns that off. khugepaged then also \
             makes fewer 2M folios, for all programs",
            "sudo folio tune --set khugepaged.max_ptes_none=64 --yes",
        )),
        _ => {}
    }
    if set("hugepages-64kB/enabled").is_some() {
        all.push(of(
            "smaller large folios for all programs: see the sizes above. Other programs lose their \
             2M folios; without --yes, the command names them",
            "sudo folio tune --set thp.2M=never --set thp.64K=always --yes",
        ));
    }
    all
}

impl Forms for WasteResult {
    fn text(&self) -> String {
        let mut out = String::new();
        let all = self.all();
        if self.is_some() {
            let _ = writeln!(
                out,
                "{} of {} in {} ({}) holds only zeroes: it was probably never used.",
                bytes(all.zero_bytes),
                bytes(all.large_bytes),
                self.large(),
                share(all.zero_bytes, all.large_bytes)
            );
            write_sizes(&all, &mut out);
            self.write_processes(&mut out);
            let remedies = if all.is_wasteful() { &self.remedies[..] } else { &[] };
            out.push_str(if remedies.is_empty() {
                "\nThat is too little to give back.\n"
            } else {
                "\nWhat gives it back:\n"
            });
            for remedy in remedies {
                let _ = writeln!(out, "- {}", remedy.what);
                if !remedy.command.is_empty() {
                    let _ = writeln!(out, "    {}", remedy.command);
                }
            }
        } else {
            let _ = writeln!(out, "No process has private memory in {}.", self.large());
        }
        for process in self.processes.iter().filter(|process| process.is_refused) {
            let name = printable(&process.name);
            let _ = writeln!(
                out,
                "\n{} {name} could not be read: it ended, or hides its memory.",
                process.pid
            );
        }
        let _ = writeln!(out, "\n{} read in {} ms.", bytes(self.read_bytes), self.elapsed_ms);
        out
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut cells = Cells::text();
        cells.record(["pid", "name", "start", "mapping", "folio_bytes", "bytes", "zero_bytes"])?;
        for process in &self.processes {
            for mapping in &process.mappings {
                for (size, waste) in &mapping.memory.sizes {
                    cells.record([
                        process.pid.to_string(),
                        process.name.clone(),
                        format!("{:#x}", mapping.start),
                        mapping.name.clone(),
                        size.to_string(),
                        waste.bytes.to_string(),
                        waste.zero_bytes.to_string(),
                    ])?;
                }
            }
        }
        cells.into_text()
    }
}

impl WasteResult {
    fn write_processes(&self, out: &mut String) {
        let _ = writeln!(out, "\n {:>8} | {:>11} | {:>11} | process", "pid", "large", "zeroes");
        for process in self.processes.iter().filter(|one| one.memory.large_bytes > 0) {
            let (large, zero) = (process.memory.large_bytes, process.memory.zero_bytes);
            let name = printable(&process.name);
            let row = (bytes(large), bytes(zero));
            let _ = writeln!(out, " {:>8} | {:>11} | {:>11} | {name}", process.pid, row.0, row.1);
            for mapping in process.mappings.iter().take(NR_MAPPINGS_SHOWN) {
                let name = if mapping.name.is_empty() { "memory" } else { &mapping.name };
                let row = (bytes(mapping.memory.large_bytes), bytes(mapping.memory.zero_bytes));
                let _ = writeln!(
                    out,
                    " {:>8} | {:>11} | {:>11} |   {} at {:#x}",
                    "",
                    row.0,
                    row.1,
                    printable(name),
                    mapping.start
                );
            }
            for one in process.left_out.iter().take(NR_MAPPINGS_SHOWN) {
                let _ = writeln!(out, " {:>8} | not read: {} at {:#x}", "", one.why, one.start);
            }
        }
    }
}

fn write_sizes(all: &Memory, out: &mut String) {
    let _ = writeln!(out, "\n {:>10} | {:>11} | {:>11}", "folio size", "memory", "zeroes");
    for (size, waste) in &all.sizes {
        let row = (bytes(*size), bytes(waste.bytes), bytes(waste.zero_bytes));
        let share = share(waste.zero_bytes, waste.bytes);
        let _ = writeln!(out, " {:>10} | {:>11} | {:>11} ({share})", row.0, row.1, row.2);
    }
    let largest = all.sizes.keys().max().copied().unwrap_or(0);
    let smaller = all.kept_bytes.iter().filter(|(size, _)| **size < largest);
    let kept: Vec<String> =
        smaller.map(|(size, kept)| format!("{} with {}", bytes(*kept), bytes(*size))).collect();
    let _ = writeln!(out, "\nWith smaller folios, the same data takes {}.", kept.join(", "));
}

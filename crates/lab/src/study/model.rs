//! Cells without a trace: they use the memory manager directly.
//!
//! Owns three models. *clear*: a kernel's plan for zeroing a folio (series 001). *anon*: an
//! operation of series 004 on a region, counted and, with a machine, estimated. *history*: how much
//! of a file can be mapped large, depending on how it came into the page cache.

use largefolio_mm::fault::Access;
use largefolio_mm::io::Fadvice;
use largefolio_mm::map::{Madvice, Map};
use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::ram::{NR_UNITS, Ram, StretchWork, Stretches};
use largefolio_mm::rules::Arch;
use largefolio_mm::rules::clear::Plan;
use largefolio_mm::units::ByteRange;
use largefolio_mm::units::{Order, PageSize, Pfn, Vaddr};
use largefolio_mm::vma::Prot;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::parts;
use largefolio_sim::bench::{AnonBench, AnonOperation};
use largefolio_sim::cost::{Estimate, Events, Latency, Walks, by_unit};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::{Costs, Machine};

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(tag = "do", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Model {
    Clear {
        kernel: String,
        /// The folio, or a gigantic page.
        #[serde(with = "parts::bytes")]
        size: u64,
        /// The machine for the estimate; its CPU determines which lines are cached.
        machine: Option<String>,
        #[serde(default = "one")]
        times: u64,
        /// The page that faulted; default: the middle.
        touched: Option<u64>,
    },
    Anon {
        kernel: String,
        machine: String,
        operation: AnonOperation,
        #[serde(with = "parts::bytes")]
        size: u64,
        /// In bytes.
        #[serde(with = "parts::bytes")]
        region: u64,
    },
    History {
        /// Kernel rules, with the device's readahead window.
        kernel: String,
        filesystem: String,
        /// In bytes.
        #[serde(with = "parts::bytes")]
        size: u64,
        way: Way,
        /// Bytes per system call.
        #[serde(default = "whole_file", with = "parts::bytes")]
        call: u64,
    },
}

const fn one() -> u64 {
    1
}

/// Larger than any file, so one call transfers all.
fn whole_file() -> u64 {
    u64::MAX
}

/// Maximum number of calls per file, 1 KiB each for the largest file. Each call takes a step or
/// more, and no budget limits them.
const NR_CALLS_MAX: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Written by system calls, and still cached.
    Written,
    /// Written with one call for the page of headers and one for the rest, as linkers do.
    Linked,
    Read,
    /// Read by system calls after `POSIX_FADV_SEQUENTIAL`, as cat does.
    ReadSequentially,
    /// Executed page by page in order.
    Executed,
    /// Executed in order after `MADV_HUGEPAGE`.
    Advised,
    /// Read ahead by `POSIX_FADV_WILLNEED`.
    Willneed,
}

#[derive(Debug, Default, Serialize)]
struct Cleared {
    units: u64,
    /// Points at which the scheduler may switch.
    reschedule_points: u64,
    largest_unit_bytes: u64,
    /// Cache lines (64 bytes) that enter the cache, over all folios. If a piece is long enough, the
    /// CPU bypasses the cache for it.
    cache_lines: u64,
    latency: Latency,
    /// Estimated time of all folios by cause, in nanoseconds.
    estimate: Estimate,
}

/// Cache line size of every x86-64 CPU, in bytes.
const LINE_BYTES: u64 = 64;

#[derive(Debug, Default, Serialize)]
struct Anon {
    faults: u64,
    copied_pages: u64,
    /// Pages kept by their last remaining process.
    reused_pages: u64,
    entries_forked: u64,
    ptes_cleared: u64,
    /// Runs of PTEs of one folio that were cleared together.
    batches_cleared: u64,
    page_mapcounts: u64,
    /// Changes of the owner word: one per run of pages of one large folio.
    owner_words: u64,
    estimate: Estimate,
}

#[derive(Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "the unit of each")]
struct History {
    file_bytes: u64,
    cached_bytes: u64,
    /// In PMD-sized folios: PMD entries can map them if the mapping is aligned.
    pmd_folio_bytes: u64,
    /// In folios of 64 KiB and more.
    from_64k_bytes: u64,
    /// Mapped by PMD entries after every page of an aligned mapping was touched.
    pmd_mapped_bytes: u64,
}

impl Model {
    pub(super) fn names(&self) -> (&str, Option<&str>) {
        match self {
            Self::Clear { kernel, machine, .. } => (kernel, machine.as_deref()),
            Self::History { kernel, .. } => (kernel, None),
            Self::Anon { kernel, machine, .. } => (kernel, Some(machine)),
        }
    }

    pub(super) fn filesystem(&self) -> Option<&str> {
        match self {
            Self::History { filesystem, .. } => Some(filesystem),
            Self::Clear { .. } | Self::Anon { .. } => None,
        }
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let Self::History { size, call, .. } = self else { return Ok(()) };
        let nr_calls = size.div_ceil((*call).max(1));
        if nr_calls > NR_CALLS_MAX {
            return Err(format!(
                "{nr_calls} calls of {call} bytes for a file of {size}; expected at most \
                 {NR_CALLS_MAX} calls"
            ));
        }
        Ok(())
    }

    pub(super) fn sample(&self) -> Value {
        let value = match self {
            Self::Clear { .. } => serde_json::to_value(Cleared::default()),
            Self::Anon { .. } => serde_json::to_value(Anon::default()),
            Self::History { .. } => serde_json::to_value(History::default()),
        };
        value.unwrap_or_default()
    }

    pub(super) fn run(&self) -> Result<Value, String> {
        let value = match self {
            Self::Clear { kernel, size, machine, times, touched } => {
                let name = machine.as_deref();
                let machine = name.map(Machine::load).transpose().map_err(|e| e.to_string())?;
                let costs = machine.map(|machine| machine.costs).unwrap_or_default();
                let plan = clear_plan(&parse(kernel)?, *size, *touched)?;
                serde_json::to_value(clear(&parse(kernel)?, &plan, &costs, *times))
            }
            Self::Anon { kernel, machine, operation, size, region } => {
                let machine = Machine::load(machine).map_err(|error| error.to_string())?;
                let counted = anon(&parse(kernel)?, &machine, *operation, *size, *region)?;
                serde_json::to_value(counted)
            }
            Self::History { kernel, filesystem, size, way, call } => {
                let mut file = Lived::new(parse(kernel)?, filesystem, *size)?;
                file.live(*way, (*call).min(*size))?;
                serde_json::to_value(file.counted()?)
            }
        };
        value.map_err(|error| error.to_string())
    }
}

fn parse(kernel: &str) -> Result<Kernel, String> {
    let kernel = Kernel::parse(kernel).and_then(Kernel::without_policy);
    let mut kernel = kernel.map_err(|error| error.to_string())?;
    if !kernel.is_page_given {
        kernel.rules.page = PageSize::K4;
    }
    kernel.check_page(kernel.rules.page).map_err(|error| error.to_string())?;
    Ok(kernel)
}

/// Series 001 is about x86-64.
fn clear_plan(kernel: &Kernel, size: u64, touched: Option<u64>) -> Result<Plan, String> {
    let page = kernel.rules.page;
    let nr_pages = size / page.bytes();
    if !size.is_power_of_two() || !(2..=1 << 18).contains(&nr_pages) {
        return Err(format!("{size} bytes is not a folio size; expected a power of two up to 1G"));
    }
    let touched = touched.unwrap_or(nr_pages / 2);
    if touched >= nr_pages {
        return Err(format!("a folio of {nr_pages} pages has no page {touched}"));
    }
    Ok(kernel.rules.clear.plan(Arch::X86_64, page, page.order_of_bytes(size), touched))
}

fn clear(kernel: &Kernel, plan: &Plan, costs: &Costs, times: u64) -> Cleared {
    let page = kernel.rules.page;
    let largest = plan.units().map(|unit| unit.nr).max().unwrap_or(0);
    let mut ram = Ram::default();
    ram.clear_folio(Pfn(0), plan);
    let mut stretches = Stretches::default();
    stretches.plan(StretchWork::Clear, plan);
    let mut cleared = by_unit(&ram.counted.zeroed_by_unit, &[0; NR_UNITS], page.bytes());
    for bytes in cleared.values_mut() {
        *bytes = bytes.saturating_mul(times);
    }
    let elided = costs.elision.as_ref().map_or(u64::MAX, |elision| elision.from.0);
    let cached = cleared.iter().filter(|&(&unit, _)| unit < elided);
    let cached_bytes = cached.map(|(_, bytes)| bytes).sum::<u64>();
    let events = Events { cleared, ..Events::default() };
    Cleared {
        units: plan.nr_units(),
        reschedule_points: plan.nr_points(),
        largest_unit_bytes: largest * page.bytes(),
        cache_lines: cached_bytes / LINE_BYTES,
        latency: Latency::new(&stretches, kernel.rules.clear.preemption, page.bytes(), costs),
        estimate: Estimate::new(&events, costs, Walks::Native),
    }
}

fn anon(
    kernel: &Kernel,
    machine: &Machine,
    operation: AnonOperation,
    size: u64,
    region: u64,
) -> Result<Anon, String> {
    let message = |error: largefolio_sim::bench::AnonBenchError| error.to_string();
    let mut bench = AnonBench::new(kernel, size, region).map_err(message)?;
    let counted = bench.count(operation).map_err(message)?;
    let events = &counted.events;
    let updates = events.mapcounts_mapped + events.mapcounts_forked + events.mapcounts_unmapped;
    Ok(Anon {
        faults: events.faults,
        copied_pages: counted.copied_pages,
        reused_pages: counted.reused_pages,
        entries_forked: events.entries_forked,
        ptes_cleared: events.ptes_unmapped,
        batches_cleared: events.batches_unmapped + events.pmds_unmapped,
        page_mapcounts: updates.pages,
        owner_words: updates.owner_words,
        estimate: Estimate::new(events, &machine.costs, Walks::Native),
    })
}

struct Lived {
    memory: Memory,
    file: largefolio_mm::units::MappingId,
    size: u64,
}

/// An address that is aligned for every folio.
const AT: Vaddr = Vaddr(1 << 38);

impl Lived {
    fn new(kernel: Kernel, filesystem: &str, size: u64) -> Result<Self, String> {
        if !(1 << 12..=1 << 30).contains(&size) {
            return Err(format!("a file of {size} bytes; expected 4K to 1G"));
        }
        let config = Config { ram_bytes: 4 * size + (1 << 30), ..Config::new(Arch::X86_64) };
        let mut memory = Memory::new(kernel.rules, &config).map_err(|error| error.to_string())?;
        let file = memory.add_file(size, filesystem);
        Ok(Self { memory, file, size })
    }

    fn live(&mut self, way: Way, call: u64) -> Result<(), String> {
        let open = self.memory.open(self.file);
        let calls = (0..self.size).step_by(usize::try_from(call.max(1)).unwrap_or(usize::MAX));
        let headers = self.memory.rules().page.bytes().min(self.size);
        let message = |error: largefolio_mm::io::OutOfMemory| error.to_string();
        match way {
            Way::Linked => {
                self.memory.pwrite(open, 0, headers).map_err(message)?;
                self.memory.pwrite(open, headers, self.size - headers).map_err(message)?;
            }
            Way::Written => {
                for pos in calls {
                    self.memory.pwrite(open, pos, call.min(self.size - pos)).map_err(message)?;
                }
            }
            Way::Read | Way::ReadSequentially => {
                if way == Way::ReadSequentially {
                    self.memory.fadvise(
                        open,
                        ByteRange { pos: 0, len_bytes: self.size },
                        Fadvice::Sequential,
                    );
                }
                for pos in calls {
                    self.memory.pread(open, pos, call.min(self.size - pos)).map_err(message)?;
                }
            }
            Way::Willneed => self.memory.fadvise(
                open,
                ByteRange { pos: 0, len_bytes: self.size },
                Fadvice::Willneed,
            ),
            Way::Executed => self.touch_all(None)?,
            Way::Advised => self.touch_all(Some(Madvice::Hugepage))?,
        }
        Ok(())
    }

    /// Maps the file aligned, executes every page in order and exits. Returns the bytes under PMD
    /// entries.
    fn mapped(&mut self, advice: Option<Madvice>) -> Result<u64, String> {
        let message = |error: &dyn ToString| error.to_string();
        let mm = self.memory.new_space();
        let open = self.memory.open(self.file);
        let map = Map::file(open, 0, self.size, Prot::READ_EXEC).at(AT);
        self.memory.mmap(mm, map).map_err(|error| message(&error))?;
        if let Some(advice) = advice {
            self.memory.madvise(mm, AT, self.size, advice).map_err(|error| message(&error))?;
        }
        for pos in (0..self.size).step_by(4096) {
            let touched = self.memory.touch(mm, Vaddr(AT.0 + pos), Access::Exec);
            touched.map_err(|error| message(&error))?;
        }
        let page = self.memory.rules().page;
        let mut bytes = 0;
        for leaf in self.memory.space(mm).table.leaves(AT.vpn(page), page.pages_in(self.size)) {
            if leaf.kind == largefolio_mm::pgtable::LeafKind::Pmd {
                bytes += leaf.order.nr_pages() * page.bytes();
            }
        }
        self.memory.exit(mm);
        Ok(bytes)
    }

    fn touch_all(&mut self, advice: Option<Madvice>) -> Result<(), String> {
        self.mapped(advice).map(|_| ())
    }

    fn counted(&mut self) -> Result<History, String> {
        let page = self.memory.rules().page;
        let folios = |from: Order, memory: &Memory| {
            let large = memory.folios(self.file).filter(|entry| entry.order >= from);
            large.map(|entry| entry.order.nr_pages() * page.bytes()).sum::<u64>()
        };
        let cached_bytes = folios(Order::ZERO, &self.memory);
        let from_64k_bytes = folios(page.order_of_bytes(64 << 10), &self.memory);
        let pmd_folio_bytes = folios(page.pmd_order(), &self.memory);
        let pmd_mapped_bytes = self.mapped(None)?;
        let file_bytes = self.size;
        Ok(History { file_bytes, cached_bytes, pmd_folio_bytes, from_64k_bytes, pmd_mapped_bytes })
    }
}

//! `folio-lab crosscheck cow` and `collapse`: random programs of a few processes on the running
//! kernel.

use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_lab::crosscheck::processes::{
    ProcessProgram, ProgramOptions, Topic, ZswapTopic, generate,
};
use largefolio_lab::crosscheck::record::Facts;
use largefolio_lab::crosscheck::record::cow::{CowRecorder, Sets};
use largefolio_lab::crosscheck::record::pool::PoolNeed;
use largefolio_lab::crosscheck::result::{CowCheck, CowResult, GROUP, groups};
use largefolio_mm::hugetlb;
use largefolio_mm::rules::Arch;
use largefolio_mm::units::{Order, PageSize};
use largefolio_sim::kernel::Kernel;
use largefolio_trace::disk::read_text;
use largefolio_trace::shown;

use super::live::{interrupted, make};
use super::output::RulesArgs;
use crate::verbs::again_as_root;
use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::values;

/// The maximum length of a file of programs: a program takes a few hundred bytes.
const FROM_BYTES_MAX: u64 = 64 << 20;

/// Check fork and copy-on-write against the running kernel
///
/// Random programs of two to four processes (map, read, write, fork, munmap, madvise, mprotect,
/// mremap, exit) run in lockstep on the kernel and in the model. After each step, folio compares
/// for every page whether it is present, whether its frame is new, whether it is exclusive or
/// shared (and with which process), whether it is PMD-mapped, its folio's order, and its number of
/// mappings. For each area, the smaps values are compared. `--hugetlb` compares the free, reserved
/// and surplus pages in the pool instead. Needs root. For each group of programs, folio sets the
/// per-size THP controls and the pool of huge pages, and it keeps khugepaged asleep; it restores
/// all of this at the end.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck cow                            400 programs with eight sets of sizes
  sudo folio-lab crosscheck cow --programs 10000 --seed 7
  sudo folio-lab crosscheck cow --sizes 64K,2M --json
  sudo folio-lab crosscheck cow --hugetlb                  huge pages of a pool
  sudo folio-lab crosscheck cow --locked                   mlock, collapse and pins too
  sudo folio-lab crosscheck cow --from mine.txt            your own programs
  folio-lab crosscheck cow --programs 10 --sizes 64K --print > mine.txt

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error.")]
pub(super) struct CowArgs {
    /// Test hugetlb pages of this size instead (2M or another size that this machine supports)
    #[arg(long, value_name = "SIZE", num_args = 0..=1, default_missing_value = "2M", value_parser = values::size, conflicts_with = "sizes")]
    hugetlb: Option<u64>,
    /// Run the programs in a memory-limited cgroup with swap (to make recordings)
    #[arg(long, requires = "print", conflicts_with_all = ["hugetlb", "from"])]
    swap: bool,
    /// Run the programs on a kernel with zswap (to make recordings); `groups`: in a cgroup that
    /// limits zswap
    #[arg(long, value_name = "pages|groups", num_args = 0..=1, default_missing_value = "pages",
        value_parser = zswap, requires = "print", conflicts_with_all = ["hugetlb", "swap", "from"])]
    zswap: Option<ZswapTopic>,
    /// Also lock memory (mlock, mlockall), collapse it, and refer to its pages through a pipe
    #[arg(long, conflicts_with_all = ["hugetlb", "swap", "zswap", "from"])]
    locked: bool,
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// Check collapse against the running kernel
///
/// Random programs of one to four processes call `MADV_COLLAPSE` on anonymous memory and on a file
/// in memory (memfd, tmpfs) that they share or map privately. The memory has holes, pages shared
/// after a fork, read-only and lazy-free pages, partially mapped folios and pages that a pipe
/// refers to; some requests straddle or miss a block. The programs run in lockstep on the kernel
/// and in the model. After each step, the error number and every page (as in `crosscheck cow`),
/// including its contents, must match. Needs root. For each group of programs, folio sets the
/// per-size THP controls, and it keeps khugepaged asleep; it restores both at the end.
///
/// With `--khugepaged` the programs do not request a collapse: they call madvise, set khugepaged's
/// limits and wake it. folio also compares which blocks khugepaged scans, in order across all
/// processes, the result for each block, and the counters.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck collapse                       400 programs with four sets of sizes
  sudo folio-lab crosscheck collapse --programs 5000 --seed 7
  sudo folio-lab crosscheck collapse --khugepaged          400 programs that wake khugepaged
  sudo folio-lab crosscheck collapse --from mine.txt       your own programs
  folio-lab crosscheck collapse --programs 10 --print > mine.txt

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error.")]
pub(super) struct CollapseArgs {
    #[command(flatten)]
    programs: ProgramsArgs,
    /// Check khugepaged instead: the programs wake it, and its scans are compared
    #[arg(long, conflicts_with = "from")]
    khugepaged: bool,
    /// Run programs that share a file on a disk with writers (to make recordings)
    #[arg(long, requires = "print", conflicts_with = "from")]
    disk: bool,
    /// Also collapse files to sizes below the PMD size, as only kernels with `text_collapse` can
    #[arg(long, requires = "disk", conflicts_with = "khugepaged")]
    any_size: bool,
}

/// Check shared memory in large folios against the running kernel
///
/// Random programs of one to four processes share a memfd or a file on a tmpfs, shared anonymous
/// memory and System V segments. Each program sets `shmem_enabled`, its tmpfs's option `huge=` and
/// `shmem_enabled` for some sizes. It stores, writes, allocates (fallocate), punches holes and
/// makes the file longer or shorter. The programs run in lockstep on the kernel and in the model.
/// After each step, every page (as in `crosscheck cow`) and every cached folio of the file must
/// match. Needs root. The settings apply to the whole machine while a program runs. folio restores
/// them afterwards, and it keeps khugepaged asleep.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck shared                         400 programs, each with its settings
  sudo folio-lab crosscheck shared --programs 5000 --seed 7
  sudo folio-lab crosscheck shared --from mine.txt         your own programs
  folio-lab crosscheck shared --programs 10 --print > mine.txt

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error.")]
pub(super) struct SharedArgs {
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// Check memory policies and moves between NUMA nodes against the running kernel
///
/// Random programs of one to four processes run on CPUs of two nodes. They set policies for
/// themselves (`set_mempolicy`) and for ranges (`mbind`), and move pages (`move_pages`,
/// `migrate_pages`), between steps as in `crosscheck cow` and `crosscheck collapse`. The programs
/// run in lockstep on the kernel and in the model. After each step, every page and its node must
/// match. Needs root and a machine with two nodes. For each group of programs, folio sets the
/// per-size THP controls, and it keeps khugepaged asleep and NUMA balancing off; it restores all of
/// this at the end.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  sudo folio-lab crosscheck nodes                          400 programs with eight sets of sizes
  sudo folio-lab crosscheck nodes --programs 5000 --seed 7
  sudo folio-lab crosscheck nodes --from mine.txt          your own programs
  folio-lab crosscheck nodes --programs 10 --sizes 64K --print > mine.txt

Exit status: 0 if the kernel and the model agree, 1 if they differ, 2 on error.")]
pub(super) struct NodesArgs {
    #[command(flatten)]
    programs: ProgramsArgs,
}

/// The programs and their rules.
#[derive(Args, Debug)]
struct ProgramsArgs {
    /// Number of programs to generate
    #[arg(long, value_name = "N", default_value_t = 400, value_parser = values::number::<u64>)]
    programs: u64,
    /// Seed for the first program; each following program uses the next seed
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = values::number::<u64>)]
    seed: u64,
    /// Folio sizes to enable; `none` means only base pages [default: several sets in turn]
    #[arg(long, value_name = "SIZE,..", value_delimiter = ',', value_parser = size)]
    sizes: Vec<u64>,
    /// Number of steps in each program
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = values::within::<u16>(1..=1000))]
    steps: u16,
    /// Run the programs in this file instead
    #[arg(long, value_name = "FILE", conflicts_with_all = ["programs", "seed", "sizes", "steps"])]
    from: Option<PathBuf>,
    /// Print the programs without running them; needs no root
    #[arg(long)]
    print: bool,
    /// Print programs for this base page size [default: the running kernel's]
    #[arg(long, value_name = "SIZE", requires = "print", conflicts_with = "from",
        value_parser = values::page_bytes)]
    page: Option<u64>,
    /// Keep the recordings in this directory
    #[arg(long, value_name = "DIR")]
    keep: Option<PathBuf>,
    #[command(flatten)]
    rules: RulesArgs,
    /// Write JSON
    #[arg(long)]
    json: bool,
}

/// `--sizes none`: the base page size has no control, because every kernel provides it.
const NONE: u64 = 0;
pub(crate) struct CowPlan {
    programs: Vec<ProcessProgram>,
    is_printed: bool,
    facts: Facts,
    kernel: Option<Kernel>,
    keep: Option<PathBuf>,
    is_json: bool,
    command_line: Vec<String>,
}

impl CowArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<CowPlan> {
        let topic = match (self.hugetlb, self.zswap) {
            (Some(_), _) => Topic::Hugetlb,
            (None, Some(zswap)) => Topic::Zswap(zswap),
            (None, None) if self.swap => Topic::Swap,
            (None, None) if self.locked => Topic::Locked,
            (None, None) => Topic::Cow,
        };
        let mut programs = self.programs;
        programs.sizes.extend(self.hugetlb);
        programs.plan(topic, command_line)
    }
}

impl CollapseArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<CowPlan> {
        let topic = match (self.disk, self.khugepaged) {
            (false, false) => Topic::Collapse,
            (false, true) => Topic::Khugepaged,
            (true, false) if self.any_size => Topic::DiskSizes,
            (true, false) => Topic::Disk,
            (true, true) => Topic::DiskKhugepaged,
        };
        self.programs.plan(topic, command_line)
    }
}

impl SharedArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<CowPlan> {
        self.programs.plan(Topic::Shmem, command_line)
    }
}

impl NodesArgs {
    pub(super) fn plan(self, command_line: Vec<String>) -> Result<CowPlan> {
        self.programs.plan(Topic::Nodes, command_line)
    }
}

impl CowPlan {
    pub(super) fn run(self, console: &mut Console) -> Result<Exit> {
        if self.is_printed {
            let text: String = self.programs.iter().map(ProcessProgram::to_string).collect();
            console.deliver(text.as_bytes(), None)?;
            return Ok(Exit::Done);
        }
        make(self.keep.as_deref())?;
        let recorder = CowRecorder::new(
            &self.facts,
            Sets::of(&self.programs),
            &again_as_root(&self.command_line),
        )?;
        let nr_programs = self.programs.len();
        let mut result = CowResult::new(self.facts.release, nr_programs, self.command_line);
        let record = |text: &str, program: &ProcessProgram| {
            let pool = program.huge.map(|huge| PoolNeed { kib: huge.kib, nr_pages: huge.nr_pool });
            recorder.record(text, &program.sizes_kib, pool)
        };
        let check = CowCheck::new(&record, self.kernel, self.keep);
        let bar = console::counter(nr_programs as u64, "checking");
        for group in groups(&self.programs) {
            if let Err(error) = check.group(group, &mut result) {
                bar.finish_and_clear();
                return interrupted(error);
            }
            bar.inc(group.len() as u64);
        }
        bar.finish_and_clear();
        console::remark(result.remarks().as_slice());
        let text = if self.is_json { result.json()? } else { result.text() };
        console.deliver(text.as_bytes(), None)?;
        Ok(if result.nr_different() > 0 {
            Exit::No
        } else if result.is_nothing_judged() {
            Exit::Error
        } else {
            Exit::Done
        })
    }
}

impl ProgramsArgs {
    fn plan(self, topic: Topic, command_line: Vec<String>) -> Result<CowPlan> {
        let facts = Facts::of_host();
        let programs = self.all_programs(topic, &facts)?;
        // Printing needs no rules.
        let kernel = if self.print { None } else { self.rules.kernel()? };
        let (is_printed, keep, is_json) = (self.print, self.keep, self.json);
        Ok(CowPlan { programs, is_printed, facts, kernel, keep, is_json, command_line })
    }

    fn all_programs(&self, topic: Topic, facts: &Facts) -> Result<Vec<ProcessProgram>> {
        if let Some(path) = &self.from {
            let text = read_text(path, FROM_BYTES_MAX)
                .with_context(|| format!("cannot read {}", shown(path)))?;
            return Ok(ProcessProgram::all_of(&path.to_string_lossy(), &text)?);
        }
        let page = page_size(self.page.unwrap_or(facts.page_bytes));
        let sets = self.sets(topic, page)?;
        let one = |seed: u64| {
            let set = seed / GROUP as u64 % sets.len() as u64;
            let orders = usize::try_from(set).map_or_else(|_| Vec::new(), |set| sets[set].clone());
            generate(
                seed,
                &ProgramOptions { topic, page, orders, nr_steps: usize::from(self.steps) },
            )
        };
        Ok((self.seed..self.seed.saturating_add(self.programs)).map(one).collect())
    }

    fn huge_set(&self, page: PageSize) -> Result<Vec<Vec<Order>>> {
        let arch = if cfg!(target_arch = "aarch64") { Arch::Arm64 } else { Arch::X86_64 };
        let orders = hugetlb::orders(arch, page);
        let is_wanted = |order: &&Order| self.sizes.contains(&(page.bytes() << order.get()));
        let Some(order) = orders.iter().find(is_wanted) else {
            let kib = |order: &Order| format!("{}K", page.bytes() << order.get() >> 10);
            let known: Vec<String> = orders.iter().map(kib).collect();
            bail!("--hugetlb: this machine's huge page sizes are {}", known.join(", "))
        };
        Ok(vec![vec![*order]])
    }

    fn sets(&self, topic: Topic, page: PageSize) -> Result<Vec<Vec<Order>>> {
        let pmd = page.pmd_order();
        if topic == Topic::Hugetlb {
            return self.huge_set(page);
        }
        let fits = |order: Order| topic.fits(page, order);
        let has_small = matches!(
            topic,
            Topic::Cow | Topic::Locked | Topic::Nodes | Topic::Swap | Topic::Zswap(_)
        );
        if !has_small && !fits(pmd) {
            bail!(
                "with base pages of {}K, a PMD entry maps {}M, which is more than the programs in \
                 this check map; folio-lab crosscheck cow uses smaller folios",
                page.bytes() >> 10,
                page.bytes() << pmd.get() >> 20
            );
        }
        if self.sizes.is_empty() {
            let orders = |first: u8, last: u8| (first..=last).map(Order::new);
            let below = |first: u8| -> Vec<Order> {
                orders(first, pmd.get() - 1).filter(|order| fits(*order)).collect()
            };
            let all: Vec<Order> = orders(2, pmd.get()).filter(|order| fits(*order)).collect();
            let order = Order::new;
            if topic == Topic::Khugepaged {
                return Ok(vec![vec![pmd], vec![order(4), pmd], all]);
            }
            // The controls for anonymous memory do not apply to files.
            if matches!(topic, Topic::Disk | Topic::DiskKhugepaged | Topic::DiskSizes) {
                return Ok(vec![vec![pmd]]);
            }
            if topic == Topic::Shmem {
                return Ok(vec![Vec::new()]);
            }
            if topic == Topic::Collapse {
                return Ok(vec![Vec::new(), vec![pmd], vec![order(4)], all]);
            }
            let mut sets = vec![
                Vec::new(),
                vec![order(2)],
                vec![order(4)],
                vec![order(3), order(5)],
                below(2),
                vec![pmd],
                vec![order(4), pmd],
                all,
            ];
            sets.retain(|set| set.iter().all(|order| fits(*order)));
            return Ok(sets);
        }
        if self.sizes.contains(&NONE) && self.sizes.len() > 1 {
            bail!("--sizes none enables no size, so it cannot be combined with other sizes");
        }
        let mut orders = Vec::new();
        for &bytes in self.sizes.iter().filter(|&&bytes| bytes != page.bytes() && bytes != NONE) {
            let order = page.order_of_bytes(bytes);
            if page.bytes() << order.get() != bytes || order.get() < 2 || order > pmd {
                let (least, most) = (page.bytes() >> 8, page.bytes() << pmd.get() >> 10);
                bail!(
                    "this kernel has no folios of {}K; expected {least}K to {most}K",
                    bytes >> 10
                );
            }
            if !fits(order) {
                bail!("{}K is more than the programs in this check map", bytes >> 10);
            }
            orders.push(order);
        }
        Ok(vec![orders])
    }
}

fn page_size(bytes: u64) -> PageSize {
    match bytes >> 10 {
        4 => PageSize::K4,
        16 => PageSize::K16,
        _ => PageSize::K64,
    }
}

fn zswap(text: &str) -> Result<ZswapTopic, String> {
    match text {
        "pages" => Ok(ZswapTopic::Pages),
        "groups" => Ok(ZswapTopic::Groups),
        _ => Err("expected pages or groups".to_owned()),
    }
}

fn size(text: &str) -> Result<u64, String> {
    if text == "none" {
        return Ok(NONE);
    }
    values::size(text).map_err(|expected| format!("{expected}; or none"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_is_a_set_of_sizes_of_its_own() {
        assert_eq!(size("none"), Ok(NONE));
        assert_eq!(size("64K"), Ok(64 << 10));
        assert!(size("no").unwrap_err().contains("none"));
    }
}

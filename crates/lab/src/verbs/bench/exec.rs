//! `folio-lab bench exec`: calls of RET stubs by backing, cold and random (series 000, 002, 003).

use std::cell::RefCell;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use clap::{Args, ValueEnum};
use largefolio_lab::bench::{BenchRow, Scale, rows, short};
use largefolio_linux::calibrate::stubs::{Backing, Cache, Stubs, StubsError, default_dir};
use largefolio_linux::measure::interleave;
use largefolio_results::Form;

use super::{Measure, Measurements};
use largefolio_cli::console;
use largefolio_cli::verbs::values::{FormArgs, size, within};

/// Published results of series 002 (docs/behaviour J.3).
const PUBLISHED: [&str; 1] =
    ["series 002, Neoverse V2, 64K base pages, 512 MB on ext4: cold 83.4 \
     -> 41.3 ms (-50%), random 76.0 -> 58.3 ms (-23%)"];
/// Smaller regions are too noisy; larger ones may not fit in memory.
const REGION_BYTES: std::ops::RangeInclusive<u64> = 4 << 20..=16 << 30;

type Subject<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum BackingArg {
    /// Page cache of a file on disk, base pages
    #[value(name = "file-4K")]
    FileBase,
    /// The same in large folios: `MADV_HUGEPAGE` before the first touch
    FileLarge,
    /// File in memory, base pages
    #[value(name = "memfd-4K")]
    MemfdBase,
    /// The same after `MADV_COLLAPSE`
    MemfdCollapse,
    /// File in memory on reserved 2 MiB huge pages
    Hugetlb,
}

impl From<BackingArg> for Backing {
    fn from(arg: BackingArg) -> Self {
        match arg {
            BackingArg::FileBase => Self::CacheBase,
            BackingArg::FileLarge => Self::CacheLarge,
            BackingArg::MemfdBase => Self::Memfd,
            BackingArg::MemfdCollapse => Self::MemfdCollapsed,
            BackingArg::Hugetlb => Self::Hugetlb,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Phase {
    /// In-order sweep of a fresh mapping whose file is not in the page cache: the faults read the
    /// file
    Cold,
    /// The same with a warm page cache: the faults only map pages
    Mapped,
    /// Random calls after a sweep: no faults, only address translation
    Random,
}

impl Phase {
    const fn name(self) -> &'static str {
        match self {
            Self::Cold => "cold sweep (page cache dropped if the file is on disk)",
            Self::Mapped => "sweep of a fresh mapping (page cache warm)",
            Self::Random => "random calls after a warm sweep",
        }
    }
}

/// Time calls to one RET instruction per page, by the text's backing
///
/// Every page of a file contains one return instruction, on a cache line that varies from page to
/// page. Most of the time per call goes to the fault (cold, mapped) or the address translation
/// (random). The file has no name, so nothing remains afterwards. Only instructions that this
/// command wrote are executed.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab bench exec
  folio-lab bench exec --phase random --backing file-4K,memfd-collapse --rounds 15
  folio-lab bench exec --region 64M --dir /var/tmp --json

How to read it: nanoseconds per call, including the address list, the call and the stub's cache
miss. The first backing is the baseline. A note shows how much memory PMD entries map.")]
pub(crate) struct ExecArgs {
    /// Phases to time
    #[arg(long, value_delimiter = ',', default_value = "cold,random", value_enum)]
    phase: Vec<Phase>,
    /// Backings of the text [default: all that this machine supports]
    #[arg(long, value_delimiter = ',', value_enum)]
    backing: Vec<BackingArg>,
    /// Text size in bytes
    #[arg(long, default_value = "512M", value_parser = size)]
    region: u64,
    /// Calls per random round
    #[arg(long, default_value_t = 262_144, value_parser = within::<u32>(1..=u32::MAX))]
    calls: u32,
    /// Rounds
    #[arg(long, default_value_t = 7, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    /// Directory for the file on disk [default: the user's cache directory, else /var/tmp]
    #[arg(long, value_name = "DIR")]
    dir: Option<PathBuf>,
    #[command(flatten)]
    form: FormArgs,
}

pub(super) struct ExecPlan {
    args: ExecArgs,
    backings: Vec<Backing>,
    dir: PathBuf,
    len_bytes: usize,
}

impl ExecArgs {
    pub(super) fn plan(self) -> Result<ExecPlan> {
        if !REGION_BYTES.contains(&self.region) || !self.region.is_multiple_of(2 << 20) {
            bail!("--region: expected a multiple of 2M from 4M to 16G");
        }
        let mut backings: Vec<Backing> = self.backing.iter().map(|&arg| arg.into()).collect();
        if backings.is_empty() {
            backings = Backing::ALL.to_vec();
        }
        let len_bytes = usize::try_from(self.region).context("--region")?;
        let dir = self.dir.clone().unwrap_or_else(default_dir);
        Ok(ExecPlan { args: self, backings, dir, len_bytes })
    }
}

impl Measure for ExecPlan {
    fn form(&self) -> Form {
        self.args.form.form()
    }

    fn measured(&self) -> Result<Measurements> {
        let line = console::status();
        let (mut texts, mut notes) = (Vec::new(), Vec::new());
        for &backing in &self.backings {
            line.set_message(format!("making {}", backing.name()));
            match Stubs::new(backing, self.len_bytes, &self.dir) {
                Ok(stubs) => texts.push((backing, RefCell::new(stubs))),
                // If the user named it, this is an error.
                Err(error @ (StubsError::NotReserved { .. } | StubsError::NoBlock { .. }))
                    if self.args.backing.is_empty() =>
                {
                    notes.push(format!("{} is omitted: {error}", backing.name()));
                }
                Err(error) => bail!("{}: {error}", backing.name()),
            }
        }
        let mut rows = Vec::new();
        for &phase in &self.args.phase {
            line.set_message(phase.name());
            rows.extend(self.measure(phase, &texts)?);
        }
        for (backing, stubs) in &texts {
            let mapped = stubs.borrow().pmd_mapped_bytes() >> 20;
            let all = self.len_bytes >> 20;
            notes.push(format!("{}: PMD entries map {mapped} of {all} MiB", backing.name()));
        }
        line.finish_and_clear();
        Ok(Measurements { published: &PUBLISHED, rows, notes })
    }
}

impl ExecPlan {
    fn measure(&self, phase: Phase, texts: &[(Backing, RefCell<Stubs>)]) -> Result<Vec<BenchRow>> {
        let nr_calls = usize::try_from(self.args.calls).unwrap_or(usize::MAX);
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        for (_, stubs) in texts {
            let mut round = 0;
            subjects.push(Box::new(move || {
                round += 1;
                Ok(match phase {
                    Phase::Cold => stubs.borrow_mut().sweep(Cache::Dropped)?,
                    Phase::Mapped => stubs.borrow_mut().sweep(Cache::Warm)?,
                    Phase::Random => stubs.borrow().random(nr_calls, round),
                })
            }));
        }
        let rounds = usize::try_from(self.args.rounds).unwrap_or(usize::MAX);
        let series = interleave(rounds, &mut subjects, &mut |_| {})?;
        let names = texts.iter().map(|(backing, _)| backing.name().to_owned());
        let pairs: Vec<_> = names.zip(series).collect();
        let nr = match phase {
            Phase::Random => nr_calls,
            Phase::Cold | Phase::Mapped => self.len_bytes / rustix::param::page_size(),
        };
        #[expect(clippy::cast_precision_loss, reason = "at most 2^32 calls")]
        let scale = Scale::NsEach(nr as f64, "ns per call");
        Ok(rows(phase.name(), &short(self.args.region), scale, &pairs))
    }
}

//! `folio-lab bench owners`: threads that add and remove mappings (series 004).

use std::thread;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use largefolio_lab::bench::{BenchRow, Scale, rows};
use largefolio_linux::measure::{Series, interleave};
use largefolio_results::Form;
use largefolio_results::calibrate::counters::{Call, Counter};

use super::{Measure, Measurements};
use largefolio_cli::verbs::values::{FormArgs, within};

/// Orders of the folios: 64 KiB and 2 MiB in 4 KiB pages.
const ORDERS: [u32; 2] = [4, 9];
const CALLS: [u32; 6] = [1, 2, 4, 8, 16, 512];
/// Minimum number of pairs of calls per round that update page counts: enough for the clock's
/// resolution.
const NR_CALLS_MIN: u32 = 100;

/// Time threads that map and unmap pages in folios: the owner word against page counts
///
/// Each row times one call that maps the given number of pages and one that unmaps them. `page
/// counts` is the method in kernels up to 6.14: an atomic addition to the map count of each page,
/// one to the number of mapped pages if the first or the last mapping of a page is among them, and
/// one to the folio's mapcount; each page's count has its own cache line. `owner word` is this
/// project's method, which the model's memory manager also uses: one atomic operation to lock,
/// plain stores, a release store. `one addition` is a single atomic addition, for comparison: no
/// kernel has ever counted so little. Ratios are relative to page counts.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio-lab bench owners
  folio-lab bench owners --threads 2 --rounds 15 --json")]
pub(crate) struct OwnersArgs {
    /// Maximum number of threads: one row each for 1, 2, 4 .. up to this number [default: one per
    /// CPU]
    #[arg(long, value_parser = within::<u32>(1..=64))]
    threads: Option<u32>,
    /// Pairs of calls per thread and round; page counts use fewer, depending on the pages per call
    #[arg(long, default_value_t = 200_000, value_parser = within::<u32>(1..=u32::MAX))]
    calls: u32,
    /// Map all of many folios before the first is unmapped, so that no cache holds their counters
    #[arg(long)]
    cold: bool,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = within::<u32>(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    form: FormArgs,
}

type Subject<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

impl Measure for OwnersArgs {
    fn form(&self) -> Form {
        self.form.form()
    }

    fn measured(&self) -> Result<Measurements> {
        let mut all = Vec::new();
        for nr_threads in self.threads() {
            let of_folios = if self.cold { &[false][..] } else { &[true, false] };
            for &is_one_folio in of_folios {
                for order in ORDERS {
                    for nr_pages in CALLS.into_iter().filter(|nr| *nr <= 1 << order) {
                        let nr_calls = self.calls;
                        let is_cold = self.cold;
                        let call =
                            Call { nr_pages, order, nr_threads, is_one_folio, is_cold, nr_calls };
                        all.extend(self.row(call)?);
                    }
                }
            }
        }
        Ok(Measurements { published: &[], rows: all, notes: Vec::new() })
    }
}

impl OwnersArgs {
    fn threads(&self) -> Vec<u32> {
        let nr_cpus = thread::available_parallelism().map_or(1, |nr| nr.get().min(64));
        let most = self.threads.unwrap_or_else(|| u32::try_from(nr_cpus).unwrap_or(1));
        let mut all: Vec<u32> = (0..7).map(|log2| 1 << log2).filter(|nr| *nr < most).collect();
        all.push(most);
        all
    }

    fn row(&self, call: Call) -> Result<Vec<BenchRow>> {
        let fewer = (call.nr_calls / call.nr_pages).max(NR_CALLS_MIN.min(call.nr_calls));
        let mut subjects: Vec<Subject<'_>> = Vec::new();
        for counter in Counter::ALL {
            let nr_calls = if counter == Counter::Pages { fewer } else { call.nr_calls };
            let mut loops = Call { nr_calls, ..call }.loops(counter)?;
            subjects.push(Box::new(move || Ok(loops()?)));
        }
        let series = interleave(self.rounds as usize, &mut subjects, &mut |_| {})?;
        let names = Counter::ALL.map(|counter| counter.name().to_owned());
        let pairs: Vec<(String, Series)> = names.into_iter().zip(series).collect();
        let unit = "ns for a pair of calls, by pages per call";
        let threads = if call.nr_threads == 1 { "thread" } else { "threads" };
        let which = match (call.is_one_folio, call.is_cold) {
            (true, _) => "one folio",
            (false, false) => "many folios",
            (false, true) => "cold folios",
        };
        let (nr_threads, nr_pages) = (call.nr_threads, 1_u32 << call.order);
        let name = format!("{nr_threads} {threads}, {which} of {nr_pages} pages");
        Ok(rows(&name, &call.nr_pages.to_string(), Scale::NsEach(Call::NR_TIMED, unit), &pairs))
    }
}

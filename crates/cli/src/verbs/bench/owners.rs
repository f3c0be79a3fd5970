//! `folio bench owners`: two threads that add and remove mappings (series 004).

use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::Args;
use largefolio_linux::measure::{Series, interleave};
use largefolio_mm::rmap::owners::{MmOwnerId, OwnerIds, Owners, Wide};
use largefolio_results::Form;
use largefolio_results::bench::{Scale, rows};

use super::{Found, Measure};
use crate::verbs::values::FormArgs;

/// Folios that two threads share when each has its own.
const NR_FOLIOS: usize = 1024;
/// Mappings a call adds: those of a 64 KiB folio.
const NR_MAPPINGS: u32 = 16;

/// Threads that map and unmap folios: owner tracking against a plain counter
///
/// `tracked` is this project's owner word (one atomic read-modify-write to lock, plain stores, a
/// release store). `plain` is one atomic addition, as kernels did before.
#[derive(Args, Debug)]
pub(crate) struct OwnersArgs {
    /// Threads
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    /// Additions and removals of each thread in a round
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..))]
    calls: u32,
    /// Rounds
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    #[command(flatten)]
    form: FormArgs,
}

/// Takes one round's time.
type Subject<'a> = Box<dyn FnMut() -> Result<Duration> + 'a>;

/// What the threads work on.
trait Folio: Sync {
    fn add(&self, mm: MmOwnerId);
    fn remove(&self, mm: MmOwnerId);
}

impl Folio for Owners<Wide> {
    fn add(&self, mm: MmOwnerId) {
        // A pair of calls leaves the count as it was: it cannot overflow.
        let _ = Self::add(self, mm, NR_MAPPINGS);
    }

    fn remove(&self, mm: MmOwnerId) {
        Self::remove(self, mm, NR_MAPPINGS);
    }
}

/// A mapcount that knows no owners.
struct Plain(AtomicI32);

impl Folio for Plain {
    fn add(&self, _: MmOwnerId) {
        self.0.fetch_add(NR_MAPPINGS.cast_signed(), Ordering::Relaxed);
    }

    fn remove(&self, _: MmOwnerId) {
        self.0.fetch_sub(NR_MAPPINGS.cast_signed(), Ordering::Relaxed);
    }
}

impl Measure for OwnersArgs {
    fn form(&self) -> Form {
        self.form.form()
    }

    fn measured(&self) -> Result<Found> {
        let mut ids = OwnerIds::new::<Wide>();
        let mms = (0..self.threads).map(|_| ids.alloc()).collect::<Result<Vec<_>, _>>()?;
        let rounds = usize::try_from(self.rounds).unwrap_or(usize::MAX);
        let mut all = Vec::new();
        for (name, nr_folios) in [("one folio", 1), ("many folios", NR_FOLIOS)] {
            let plain: Vec<Plain> = (0..nr_folios).map(|_| Plain(AtomicI32::new(0))).collect();
            let tracked: Vec<Owners<Wide>> = (0..nr_folios).map(|_| Owners::new(None)).collect();
            let mut subjects: [Subject<'_>; 2] = [
                Box::new(|| Ok(self.time(&plain, &mms))),
                Box::new(|| Ok(self.time(&tracked, &mms))),
            ];
            let series = interleave(rounds, &mut subjects, &mut |_| {})?;
            let names = ["plain", "tracked"].map(str::to_owned);
            let pairs: Vec<(String, Series)> = names.into_iter().zip(series).collect();
            let unit = "ns for an addition and a removal of 16 mappings";
            let scale = Scale::NsEach(f64::from(self.calls), unit);
            let threads = format!("{}t", self.threads);
            all.extend(rows(name, &threads, scale, &pairs));
        }
        Ok(Found { published: &[], rows: all, notes: Vec::new() })
    }
}

impl OwnersArgs {
    /// All threads add to and remove from every folio in turn.
    fn time<F: Folio>(&self, folios: &[F], mms: &[MmOwnerId]) -> Duration {
        let start = Instant::now();
        thread::scope(|scope| {
            for (nr, &mm) in mms.iter().enumerate() {
                scope.spawn(move || {
                    // Threads begin at different folios, so that many folios are rarely shared.
                    let turn = folios.iter().cycle().skip(nr * folios.len() / mms.len());
                    for folio in turn.take(self.calls as usize) {
                        folio.add(mm);
                        folio.remove(mm);
                    }
                });
            }
        });
        start.elapsed()
    }
}

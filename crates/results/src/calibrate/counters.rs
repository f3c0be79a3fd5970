//! The costs of adding and removing mappings of a folio from several threads: with the memory
//! manager's owner word, and with the counters of earlier kernels (docs/behaviour F.3.1, F.3.4,
//! F.4.6).
//!
//! Owns the folios, the loops and their time. Does not own the owner word ([`Owners`]) or the order
//! of rounds. `folio-lab bench owners` and `folio calibrate` run the same loops.
//!
//! ```text
//!   page counts   |count of page 0| count of page 1, mapped pages, mapcount |count of page 2| ...
//!   owner word    |word, counts of slots, mapcount|
//!   an addition   |mapcount|                                      each |...| a line of 64 bytes
//! ```
//!
//! A `struct page` fills a cache line: each page's count has its own line, and the folio's counters
//! share the second page's line.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use largefolio_linux::calibrate::{Figure, MapcountCosts};
use largefolio_linux::measure::interleave;
use largefolio_owner_word::{IdsExhausted, MmOwnerId, OwnerIds, Owners, Wide};

/// Pages of all folios if each thread has its own: 2 MiB of lines of page counts.
const NR_PAGES: u32 = 1 << 15;
/// The same if no cache holds them: 256 MiB of lines.
const NR_PAGES_COLD: u32 = 1 << 22;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counter {
    /// Up to 6.14: one atomic addition each to every page's map count, to the mapped pages if a
    /// page is new, and to the folio's mapcount.
    Pages,
    /// The owner word: 6.15 and later without page map counts.
    OwnerWord,
    /// One atomic addition, which no kernel uses; for comparison.
    Addition,
}

impl Counter {
    pub const ALL: [Self; 3] = [Self::Pages, Self::OwnerWord, Self::Addition];

    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Pages => "page counts",
            Self::OwnerWord => "owner word",
            Self::Addition => "one addition",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// Pages that a call maps: a power of two, at most the folio's pages.
    pub nr_pages: u32,
    pub order: u32,
    pub nr_threads: u32,
    /// Whether all threads map one folio; otherwise each starts at another of many folios.
    pub is_one_folio: bool,
    /// Whether all of many folios are mapped before the first is unmapped, so that no cache holds
    /// their counters.
    pub is_cold: bool,
    /// Pairs of calls per thread; fewer if they update many pages.
    pub nr_calls: u32,
}

/// The folio that the threads work on.
trait Folio: Sync {
    fn new(order: u32) -> Self;
    fn add(&self, mm: MmOwnerId, first: u32, nr: u32);
    fn remove(&self, mm: MmOwnerId, first: u32, nr: u32);
    /// Returns the remaining mappings; only 0 is exact.
    fn mapcount(&self) -> u32;
}

#[repr(align(64))]
struct CacheLine<T>(T);

impl Folio for CacheLine<Owners<Wide>> {
    fn new(_: u32) -> Self {
        Self(Owners::new(None))
    }

    fn add(&self, mm: MmOwnerId, _: u32, nr: u32) {
        let _ = self.0.add(mm, nr);
    }

    fn remove(&self, mm: MmOwnerId, _: u32, nr: u32) {
        self.0.remove(mm, nr);
    }

    fn mapcount(&self) -> u32 {
        self.0.mapcount()
    }
}

impl Folio for CacheLine<AtomicI32> {
    fn new(_: u32) -> Self {
        Self(AtomicI32::new(-1))
    }

    fn add(&self, _: MmOwnerId, _: u32, nr: u32) {
        self.0.fetch_add(nr.cast_signed(), Ordering::Relaxed);
    }

    fn remove(&self, _: MmOwnerId, _: u32, nr: u32) {
        self.0.fetch_sub(nr.cast_signed(), Ordering::Relaxed);
    }

    fn mapcount(&self) -> u32 {
        (self.0.load(Ordering::Relaxed) + 1).cast_unsigned()
    }
}

/// The counters of a page and, in the second page, of its folio.
#[derive(Default)]
struct PageCounters {
    /// Minus one, like all counters except `nr_pages_mapped`.
    mapcount: AtomicI32,
    nr_pages_mapped: AtomicI32,
    large_mapcount: AtomicI32,
}

/// A folio with one count per page.
struct PerPageFolio(Box<[CacheLine<PageCounters>]>);

impl PerPageFolio {
    fn folio_counters(&self) -> &PageCounters {
        &self.0[1].0
    }

    fn pages(&self, first: u32, nr: u32) -> &[CacheLine<PageCounters>] {
        &self.0[first as usize..(first + nr) as usize]
    }
}

impl Folio for PerPageFolio {
    fn new(order: u32) -> Self {
        let unmapped = || AtomicI32::new(-1);
        let page = |_| {
            let (mapcount, large_mapcount) = (unmapped(), unmapped());
            CacheLine(PageCounters { mapcount, large_mapcount, ..PageCounters::default() })
        };
        Self((0..1_u32 << order).map(page).collect())
    }

    fn add(&self, _: MmOwnerId, first: u32, nr: u32) {
        let mut nr_first = 0;
        for page in self.pages(first, nr) {
            nr_first += i32::from(page.0.mapcount.fetch_add(1, Ordering::Relaxed) == -1);
        }
        if nr_first > 0 {
            self.folio_counters().nr_pages_mapped.fetch_add(nr_first, Ordering::Relaxed);
        }
        self.folio_counters().large_mapcount.fetch_add(nr.cast_signed(), Ordering::Relaxed);
    }

    fn remove(&self, _: MmOwnerId, first: u32, nr: u32) {
        self.folio_counters().large_mapcount.fetch_sub(nr.cast_signed(), Ordering::Relaxed);
        let mut nr_last = 0;
        for page in self.pages(first, nr) {
            nr_last += i32::from(page.0.mapcount.fetch_sub(1, Ordering::Relaxed) == 0);
        }
        if nr_last > 0 {
            self.folio_counters().nr_pages_mapped.fetch_sub(nr_last, Ordering::Relaxed);
        }
    }

    fn mapcount(&self) -> u32 {
        let sum: i32 = self.0.iter().map(|page| page.0.mapcount.load(Ordering::Relaxed) + 1).sum();
        let large = self.folio_counters().large_mapcount.load(Ordering::Relaxed) + 1;
        let mapped = self.folio_counters().nr_pages_mapped.load(Ordering::Relaxed);
        (sum + large + mapped).cast_unsigned()
    }
}

/// Reusable folios and threads: each call returns the time of a million pairs of calls.
pub type Loops = Box<dyn FnMut() -> Result<Duration, std::convert::Infallible>>;

impl Call {
    pub const NR_TIMED: f64 = 1e6;

    /// Prepares the loops of `counter`.
    ///
    /// # Errors
    /// If there are more threads than process ids.
    pub fn loops(self, counter: Counter) -> Result<Loops, IdsExhausted> {
        let mut ids = OwnerIds::new::<Wide>();
        let mms = (0..self.nr_threads).map(|_| ids.alloc()).collect::<Result<Vec<_>, _>>()?;
        Ok(match counter {
            Counter::Pages => self.on::<PerPageFolio>(mms),
            Counter::OwnerWord => self.on::<CacheLine<Owners<Wide>>>(mms),
            Counter::Addition => self.on::<CacheLine<AtomicI32>>(mms),
        })
    }

    fn on<F: Folio + 'static>(self, mms: Vec<MmOwnerId>) -> Loops {
        let nr_pages = if self.is_cold { NR_PAGES_COLD } else { NR_PAGES };
        let nr_folios = if self.is_one_folio { 1 } else { nr_pages >> self.order };
        let folios: Vec<F> = (0..nr_folios).map(|_| F::new(self.order)).collect();
        Box::new(move || Ok(self.time(&folios, &mms)))
    }

    /// Times all threads while they map and unmap pages of each folio in turn, at each position in
    /// turn.
    fn time<F: Folio>(&self, folios: &[F], mms: &[MmOwnerId]) -> Duration {
        let together = Barrier::new(mms.len());
        // All folios in turn, or their counters would stay in a cache.
        let all = u32::try_from(folios.len()).unwrap_or(u32::MAX);
        let nr_calls = if self.is_cold { all } else { self.nr_calls.max(1) };
        let last = thread::scope(|scope| {
            let run = |nr: usize| {
                let (together, mm) = (&together, mms[nr]);
                // Threads start at different folios, so with many folios they rarely share one.
                let turn = folios.iter().cycle().skip(nr * folios.len() / mms.len());
                scope.spawn(move || {
                    together.wait();
                    let start = Instant::now();
                    if self.is_cold {
                        let turn = turn.take(nr_calls as usize);
                        turn.clone().for_each(|folio| folio.add(mm, 0, self.nr_pages));
                        turn.for_each(|folio| folio.remove(mm, 0, self.nr_pages));
                        return start.elapsed();
                    }
                    let mut first = 0;
                    for folio in turn.take(nr_calls as usize) {
                        folio.add(mm, first, self.nr_pages);
                        folio.remove(mm, first, self.nr_pages);
                        first = (first + self.nr_pages) & ((1 << self.order) - 1);
                    }
                    start.elapsed()
                })
            };
            let threads: Vec<_> = (0..mms.len()).map(run).collect();
            threads.into_iter().filter_map(|thread| thread.join().ok()).max()
        });
        debug_assert!(folios.iter().all(|folio| folio.mapcount() == 0), "a call took back less");
        last.unwrap_or_default().mul_f64(Self::NR_TIMED / f64::from(nr_calls))
    }
}

/// Measures an update of a page's map count and a change of an owner word, with one thread and
/// cached folios.
#[must_use]
pub fn mapcount_costs(nr_rounds: usize) -> MapcountCosts {
    let call = |nr_pages| Call {
        nr_pages,
        order: 4,
        nr_threads: 1,
        is_one_folio: false,
        is_cold: false,
        nr_calls: 200_000,
    };
    let loops = [
        call(1).loops(Counter::Pages),
        call(16).loops(Counter::Pages),
        call(16).loops(Counter::OwnerWord),
    ];
    let Ok(mut loops) = loops.into_iter().collect::<Result<Vec<_>, _>>() else {
        return MapcountCosts::default();
    };
    let Ok(series) = interleave(nr_rounds, &mut loops, &mut |_| {});
    let [one, all, word] = series.as_slice() else { return MapcountCosts::default() };
    // A call and its reverse: two updates.
    let updates = Call::NR_TIMED * 2.0;
    let pairs = one.rounds_ns.iter().zip(&all.rounds_ns);
    let page: Vec<f64> = pairs.map(|(one, all)| (all - one) / 15.0 / updates).collect();
    let word: Vec<f64> = word.rounds_ns.iter().map(|ns| ns / updates).collect();
    MapcountCosts {
        page: Figure::of(
            &page,
            1,
            "folio-lab bench owners: 16 page counts minus 1, one thread, per count",
        ),
        owner_word: Figure::of(
            &word,
            1,
            "folio-lab bench owners: owner word, one thread, per call",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(nr_threads: u32) -> Call {
        Call {
            nr_pages: 4,
            order: 4,
            nr_threads,
            is_one_folio: true,
            is_cold: false,
            nr_calls: 1000,
        }
    }

    fn leaves_nothing<F: Folio>() {
        let mut ids = OwnerIds::new::<Wide>();
        let mms: Vec<MmOwnerId> = (0..3).map(|_| ids.alloc().unwrap()).collect();
        let folio = F::new(4);
        folio.add(mms[0], 4, 4);
        assert!(folio.mapcount() >= 4);
        folio.remove(mms[0], 4, 4);
        let folios = [folio];
        assert!(call(3).time(&folios, &mms) > Duration::ZERO);
        assert_eq!(folios[0].mapcount(), 0);
    }

    #[test]
    fn threads_remove_all_their_mappings() {
        leaves_nothing::<PerPageFolio>();
        leaves_nothing::<CacheLine<Owners<Wide>>>();
        leaves_nothing::<CacheLine<AtomicI32>>();
    }

    #[test]
    fn a_page_and_a_folio_have_a_line_of_their_own() {
        assert_eq!(size_of::<CacheLine<PageCounters>>(), 64);
        assert_eq!(size_of::<CacheLine<Owners<Wide>>>(), 64);
        assert_eq!(PerPageFolio::new(4).0.len(), 16);
    }
}

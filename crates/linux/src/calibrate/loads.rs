//! Measures how long loads wait for a line from each cache, and for page walks that overlap other
//! work.
//!
//! ```text
//!   lines    a circle over lines of a working set; each load depends on the one before it.
//!            Caches: all lines of the pages in random order, because unused neighbours would be
//!            fetched too. Memory: 16 lines of each page in sequence, so translation is a 16th.
//!   walks    one line of each page in random order, on folios of one page, and as many lines
//!            packed, 64 to 4 KiB. The difference is translation. Its share that delays the program:
//!               dense    addresses from a list, nothing between     (dense spread - packed)
//!               wide     the same over eight lines of each page     -----------------------
//!               sparse   as dense, 256 instructions between         (chain spread - packed)
//!               calls    of stubs on as many pages: their difference minus the chain's
//!            Dense and wide are the ends of a range: walks overlap with waits for memory. Both add
//!            about the same time per walk, however long a walk takes.
//! ```
//!
//! Each share is computed from the medians of several rounds. Packed lines are used instead of 2M
//! folios: if a host backs those with 4K pages, they need walks too. A call takes longer than the
//! walk by a time, not by a share: on Zen 5 by 4 to 25 ns (once by 98), for walks of 11 to
//! 131 ns.

use std::convert::Infallible;
use std::path::Path;
use std::time::Duration;

use rustix::mm::{Advice, ProtFlags};

use super::stubs::call::{LINE_BYTES, follow, line_of, load_apart, load_list, shuffled};
use super::stubs::mapping::{Mapping, Source};
use super::stubs::{Backing, Layout, Stubs, StubsError};
use super::{Figure, count};
use crate::geometry::page_bytes;
use crate::measure::{Spread, interleave};
use crate::proc::host::{self, Caches};
use crate::system::Live;

/// Page size of a circle, regardless of the base page.
const PAGE_BYTES: usize = 4096;
const NR_LINES: usize = PAGE_BYTES / LINE_BYTES;
const NR_LINES_APART: usize = 16;
const NR_LOADS_MIN: usize = 200_000;
/// Rounds that fill a cache. After a circle over memory, Zen 5 takes five before its last level
/// keeps a circle of 4 MiB.
const NR_FILLING: usize = 10;
/// Rounds of each circle that looks for the end of the last-level cache.
const NR_ROUNDS_KEPT: usize = 3;
/// Working sets of the shares in pages, larger than any level-2 TLB.
const SETS: [usize; 5] = [3 << 11, 1 << 13, 1 << 14, 1 << 15, 3 << 15];
/// Rounds of one share, which is their median. A difference of few rounds is mostly noise.
const BLOCK_ROUNDS: usize = 9;
/// A smaller difference of chains, in nanoseconds, is noise.
const DIFFERENCE_MIN_NS: f64 = 0.5;

#[derive(Clone, Debug, Default)]
pub struct LineCosts {
    pub l2: Option<Figure>,
    pub llc: Option<Figure>,
    pub memory: Option<Figure>,
    /// The largest circle that stays in the last-level cache: less than the cache if others use it.
    pub kept_bytes: Option<usize>,
}

/// Shares of a walk that delay the program: the smallest, middle and largest over working sets and
/// blocks of rounds.
#[derive(Clone, Debug, Default)]
pub struct WalkShares {
    /// Loads that follow each other immediately.
    pub overlapped: Option<Spread>,
    /// The same in nanoseconds per walk.
    pub overlapped_ns: Option<Spread>,
    /// Loads that are far apart.
    pub alone: Option<Spread>,
    /// Nanoseconds by which an instruction fetch that needs a walk takes longer than the walk.
    pub fetch_miss_ns: Option<Spread>,
}

/// Measures a line's latency in each cache and in memory.
///
/// # Errors
/// Too little memory.
pub(super) fn lines(
    caches: Caches,
    nr_rounds: usize,
    part: usize,
) -> Result<LineCosts, StubsError> {
    // Uses a quarter of a cache: other data and unevenly filled ways leave about that.
    let l2 = caches.l2_bytes / 4;
    let llc = (caches.llc_bytes / 8).max(caches.l2_bytes * 2);
    // Its pages take four times as much, so this uses at most half of available memory.
    let room = host::available_bytes(&Live).and_then(|bytes| usize::try_from(bytes / 8).ok());
    let room = room.unwrap_or(usize::MAX);
    let memory = ((caches.llc_bytes * 8).max(64 << 20) / part).min(room);
    let circles = [(l2, NR_LINES), (llc, NR_LINES), (memory, NR_LINES_APART)];
    let circles = circles.map(|(set_bytes, nr_of_page)| Circle::new(set_bytes, nr_of_page));
    let circles = circles.into_iter().collect::<Result<Vec<_>, _>>()?;
    let mut runs: Vec<LoadsRun<'_>> =
        circles.iter().map(|circle| Box::new(|| Ok(circle.go())) as LoadsRun<'_>).collect();
    let Ok(series) = interleave(nr_rounds, &mut runs, &mut |_| {});
    let figure = |nr: usize| {
        let kib = circles[nr].len_bytes() >> 10;
        let how = format!("loads that need each other, over {kib} KiB of lines");
        Figure::of(&series[nr].rounds_ns, circles[nr].nr_loads(), &how)
    };
    let is_beyond = part > 1 || memory >= caches.llc_bytes * 2;
    let [l2, llc, memory] = [figure(0), figure(1), figure(2).filter(|_| is_beyond)];
    let kept_bytes = match (&llc, &memory) {
        (Some(llc), Some(memory)) if part == 1 => {
            kept_bytes(caches, f64::midpoint(llc.ns.median, memory.ns.median))?
        }
        _ => None,
    };
    Ok(LineCosts { l2, llc, memory, kept_bytes })
}

/// Tries three circles and returns the largest in which the median load takes less than
/// `limit_ns`.
fn kept_bytes(caches: Caches, limit_ns: f64) -> Result<Option<usize>, StubsError> {
    for shift in 0..3 {
        let bytes = caches.llc_bytes >> shift;
        let circle = Circle::new(bytes, NR_LINES)?;
        let mut rounds_ns = Vec::new();
        for _ in 0..NR_ROUNDS_KEPT {
            rounds_ns.push(circle.go().as_secs_f64() * 1e9 / count(circle.nr_loads()));
        }
        let median_ns = Spread::of(&rounds_ns).map_or(f64::INFINITY, |ns| ns.median);
        if bytes > caches.l2_bytes && median_ns < limit_ns {
            return Ok(Some(bytes));
        }
    }
    Ok(None)
}

type LoadsRun<'a> = Box<dyn FnMut() -> Result<Duration, Infallible> + 'a>;

struct Circle {
    _mapping: Mapping,
    start: usize,
    nr_lines: usize,
    nr_filling: usize,
}

impl Circle {
    /// Builds it from `set_bytes` of lines, `nr_of_page` per page.
    fn new(set_bytes: usize, nr_of_page: usize) -> Result<Self, StubsError> {
        let nr_pages = (set_bytes / (nr_of_page * LINE_BYTES)).max(4);
        let len_bytes = (nr_pages * PAGE_BYTES).next_multiple_of(2 << 20);
        let mapping = field(len_bytes, Advice::LinuxHugepage)?;
        let lines: Vec<usize> = if nr_of_page == NR_LINES {
            shuffled(nr_pages * NR_LINES, 1)
        } else {
            let pages = shuffled(nr_pages, 1).into_iter().enumerate();
            pages
                .flat_map(|(nr, page)| {
                    let lines = shuffled(NR_LINES, nr as u64).into_iter().take(nr_of_page);
                    lines.map(move |line| page * NR_LINES + line)
                })
                .collect()
        };
        let order: Vec<usize> = lines.into_iter().map(|line| line * LINE_BYTES).collect();
        let start = link(&mapping, &order);
        // Of memory, one round is as good as many.
        let nr_filling = if nr_of_page == NR_LINES { NR_FILLING } else { 1 };
        Ok(Self { _mapping: mapping, start, nr_lines: order.len(), nr_filling })
    }

    fn len_bytes(&self) -> usize {
        self.nr_lines * LINE_BYTES
    }

    fn nr_loads(&self) -> usize {
        self.nr_lines * NR_LOADS_MIN.div_ceil(self.nr_lines)
    }

    /// Measures whole rounds, so each line is as old as possible, after those that fill a cache.
    fn go(&self) -> Duration {
        let start = self.start as *const usize;
        // SAFETY: the words form one circle.
        unsafe { follow(start, self.nr_filling * self.nr_lines) };
        // SAFETY: as above.
        unsafe { follow(start, self.nr_loads()) }
    }
}

fn link(mapping: &Mapping, order: &[usize]) -> usize {
    #[expect(clippy::cast_ptr_alignment, reason = "each is the first word of a line")]
    let word = |nr: usize| mapping.at().wrapping_add(order[nr % order.len()]).cast::<usize>();
    for nr in 0..order.len() {
        // SAFETY: a whole line inside the mapping, which nothing else refers to.
        unsafe { word(nr).write(word(nr + 1) as usize) };
    }
    word(0) as usize
}

fn field(len_bytes: usize, advice: Advice) -> Result<Mapping, StubsError> {
    let prot = ProtFlags::READ | ProtFlags::WRITE;
    let mapping = Mapping::new(Source::Anonymous, len_bytes, prot)?;
    mapping.advise(advice)?;
    mapping.store_each(PAGE_BYTES, 1);
    Ok(mapping)
}

#[derive(Clone, Copy)]
enum Way {
    Chain,
    Dense,
    Wide,
    Sparse,
    Calls,
}

const WAYS: [Way; 5] = [Way::Chain, Way::Dense, Way::Wide, Way::Sparse, Way::Calls];

const NR_LINES_WIDE: usize = 8;

struct Lines {
    _mapping: Mapping,
    stubs: Stubs,
    nr_pages: usize,
    list: Vec<usize>,
    wide: Vec<usize>,
}

impl Lines {
    fn new(nr_pages: usize, layout: Layout, dir: &Path) -> Result<Self, StubsError> {
        let at = |pass: usize, nr: usize| match layout {
            Layout::OnePerPage => nr * page_bytes() + line_of(nr + pass, page_bytes()),
            Layout::Packed => (pass * nr_pages + nr) * LINE_BYTES,
        };
        let len_bytes = match layout {
            Layout::OnePerPage => nr_pages * page_bytes(),
            Layout::Packed => nr_pages * NR_LINES_WIDE * LINE_BYTES,
        };
        let len_bytes = len_bytes.next_multiple_of(2 << 20);
        let mapping = field(len_bytes, Advice::LinuxNoHugepage)?;
        let pass = |pass: usize| {
            let order = shuffled(nr_pages, 1 + pass as u64).into_iter();
            order.map(move |nr| at(pass, nr))
        };
        let order: Vec<usize> = pass(0).collect();
        let _start = link(&mapping, &order);
        let address = |at: usize| mapping.at().wrapping_add(at) as usize;
        let list = order.iter().map(|&at| address(at)).collect();
        // Each pass over the pages takes another line of each.
        let wide = (0..NR_LINES_WIDE).flat_map(pass).map(address).collect();
        let stubs = Stubs::with_layout(Backing::Memfd, layout, len_bytes, dir)?;
        Ok(Self { _mapping: mapping, stubs, nr_pages, list, wide })
    }

    /// Returns the time of a load or call, times a thousand so a `Duration` keeps its fractions.
    fn go(&self, way: Way) -> Duration {
        let nr_passes = NR_LOADS_MIN.div_ceil(self.list.len());
        let run = |nr_passes: usize| match way {
            // SAFETY: the words form one circle.
            Way::Chain => unsafe {
                follow(self.list[0] as *const usize, nr_passes * self.list.len())
            },
            // SAFETY: each address is a word of the mapping.
            Way::Dense => unsafe { load_list(&self.list, nr_passes) },
            // SAFETY: as above.
            Way::Wide => unsafe { load_list(&self.wide, nr_passes) },
            // SAFETY: as above.
            Way::Sparse => unsafe { load_apart(&self.list, nr_passes) },
            Way::Calls => self.stubs.cycle(self.nr_pages, nr_passes, 1),
        };
        run(1);
        let nr_lines = if matches!(way, Way::Wide) { self.wide.len() } else { self.list.len() };
        run(nr_passes).mul_f64(1000.0 / count(nr_passes * nr_lines))
    }
}

/// Measures the shares of a walk that delay the program.
///
/// # Errors
/// Too little memory.
pub(super) fn shares(nr_rounds: usize, part: usize, dir: &Path) -> Result<WalkShares, StubsError> {
    let [mut overlapped, mut overlapped_ns] = [const { Vec::new() }; 2];
    let [mut alone, mut fetch_miss_ns] = [const { Vec::new() }; 2];
    // Fewer pages if they are larger, still more than any level-2 TLB covers.
    let fewer = (page_bytes() / PAGE_BYTES).clamp(1, 8);
    for nr_pages in SETS.map(|nr| nr / part / fewer) {
        let layouts = [Layout::OnePerPage, Layout::Packed];
        let [spread, packed] = layouts.map(|layout| Lines::new(nr_pages, layout, dir));
        let layouts = [spread?, packed?];
        let mut runs: Vec<LoadsRun<'_>> = Vec::new();
        for way in WAYS {
            runs.extend(
                layouts.iter().map(|lines| Box::new(move || Ok(lines.go(way))) as LoadsRun<'_>),
            );
        }
        let Ok(series) = interleave(nr_rounds, &mut runs, &mut |_| {});
        for first in (0..nr_rounds).step_by(BLOCK_ROUNDS) {
            let block = first..nr_rounds.min(first + BLOCK_ROUNDS);
            let longer = |way: Way| {
                let ns = |layout: usize| {
                    let rounds = &series[way as usize * 2 + layout].rounds_ns[block.clone()];
                    Spread::of(rounds).map_or(0.0, |ns| ns.median)
                };
                (ns(0) - ns(1)) / 1000.0
            };
            let chain = longer(Way::Chain);
            if chain < DIFFERENCE_MIN_NS {
                continue;
            }
            for way in [Way::Dense, Way::Wide] {
                overlapped.push(longer(way) / chain);
                overlapped_ns.push(longer(way));
            }
            alone.push(longer(Way::Sparse) / chain);
            fetch_miss_ns.push(longer(Way::Calls) - chain);
        }
    }
    let [overlapped, overlapped_ns, alone, fetch_miss_ns] =
        [overlapped, overlapped_ns, alone, fetch_miss_ns].map(|all| Spread::of(&all));
    Ok(WalkShares { overlapped, overlapped_ns, alone, fetch_miss_ns })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_circle_comes_back_after_all_its_lines() {
        let circle = Circle::new(64 << 10, NR_LINES_APART).unwrap();
        assert_eq!((circle.nr_lines, circle.len_bytes()), (1024, 64 << 10));
        assert_eq!(circle.nr_loads() % 1024, 0);
        let mut seen = std::collections::BTreeSet::new();
        let mut at = circle.start;
        while seen.insert(at) {
            // SAFETY: words of the circle hold addresses of words of the circle.
            at = unsafe { (at as *const usize).read() };
        }
        assert_eq!((at, seen.len()), (circle.start, 1024));
    }

    #[test]
    fn a_line_has_a_latency_in_each_cache_and_in_memory() {
        let caches = Caches { l2_bytes: 1 << 18, llc_bytes: 1 << 20, is_reported: true };
        let measured_lines = lines(caches, 2, 1).unwrap();
        for figure in [&measured_lines.l2, &measured_lines.llc, &measured_lines.memory] {
            assert!(figure.as_ref().unwrap().ns.median > 0.0, "{measured_lines:?}");
        }
    }

    #[test]
    fn both_layouts_have_as_many_lines_and_one_takes_a_64th_of_the_pages() {
        let dir = tempfile::tempdir().unwrap();
        let layouts = [Layout::OnePerPage, Layout::Packed];
        let [spread, packed] = layouts.map(|layout| Lines::new(512, layout, dir.path()).unwrap());
        for (of, nr_pages) in [(&spread, 512), (&packed, 8)] {
            let pages = |list: &[usize]| {
                list.iter().map(|at| at / PAGE_BYTES).collect::<std::collections::BTreeSet<_>>()
            };
            assert_eq!((of.list.len(), pages(&of.list).len()), (512, nr_pages));
            let distinct: std::collections::BTreeSet<_> = of.wide.iter().collect();
            assert_eq!(distinct.len(), 512 * NR_LINES_WIDE);
        }
    }
}

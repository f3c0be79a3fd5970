//! Time per reference over the working set, for data and for instructions.
//!
//! A working set of `n` is `n` cache lines in random order, once spread over `n` base pages (in
//! folios of one page, or under a PMD entry) and once packed into at most a 64th of them. Lines,
//! caches and predictions are the same, so the difference in time is the cost of translation.
//!
//! ```text
//!   spread   |..#.....|.....#..|#.......|  n pages        extra = spread - packed, round by round
//!   packed   |###.....|                    n lines
//! ```

use std::path::Path;
use std::time::Duration;

use rustix::mm::{Advice, ProtFlags};

use super::step::Point;
use super::stubs::call::{LINE_BYTES, follow, line_of, shuffled};
use super::stubs::mapping::{Mapping, Source};
use super::stubs::{Backing, Layout, Stubs, StubsError};
use crate::geometry::{page_bytes, pmd_bytes};
use crate::measure::{Series, interleave};

/// Larger folios are rarely available in quantity.
const PMD_BYTES_MAX: usize = 2 << 20;
const NR_REFERENCES: usize = 200_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Loads, each at an address read by the previous one.
    Data,
    Instruction,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pages {
    Base,
    Pmd,
}

#[derive(Clone, Debug)]
pub struct Curve {
    pub side: Side,
    pub pages: Pages,
    pub spread: Vec<Point>,
    pub packed: Vec<Point>,
    pub extra: Vec<Point>,
    /// How its base pages are spread over the host's table.
    pub host_lines: Option<HostLines>,
}

impl Curve {
    #[must_use]
    pub fn extra_over(&self, within: std::ops::RangeInclusive<usize>) -> Option<f64> {
        let points = self.extra.iter().filter(|point| within.contains(&point.nr));
        let values: Vec<f64> = points.map(|point| point.ns.median).collect();
        crate::measure::Spread::of(&values).map(|spread| spread.median)
    }
}

/// Lines of a host's page table with the entries of a working set, per base page. A line holds
/// eight entries.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct HostLines {
    /// On a host with pages of 4K.
    pub of_4k: f64,
    /// On a host with pages of 2M.
    pub of_2m: f64,
}

impl HostLines {
    /// Reads the page frames of a mapping. `None` if the kernel hides them, as it does from
    /// programs without `CAP_SYS_ADMIN`.
    fn of(mapping: &Mapping) -> Option<Self> {
        let frame = page_bytes().trailing_zeros();
        let lines = |host: u32| mapping.groups_per_page((host + 3).saturating_sub(frame));
        Some(Self { of_4k: lines(12)?, of_2m: lines(21)? })
    }

    /// Reads those of fresh memory, as a program gets it.
    ///
    /// # Errors
    /// Too little memory.
    pub(super) fn of_fresh(len_bytes: usize) -> Result<Option<Self>, StubsError> {
        match Field::data(Pages::Base, Layout::OnePerPage, len_bytes)? {
            Field::Data { mapping, .. } => Ok(Self::of(&mapping)),
            Field::Stubs(_) => Ok(None),
        }
    }
}

enum Field {
    Data { mapping: Mapping, layout: Layout },
    Stubs(Stubs),
}

impl Field {
    fn data(pages: Pages, layout: Layout, len_bytes: usize) -> Result<Self, StubsError> {
        let prot = ProtFlags::READ | ProtFlags::WRITE;
        let mapping = Mapping::new(Source::Anonymous, len_bytes, prot)?;
        let advice = match pages {
            Pages::Base => Advice::LinuxNoHugepage,
            Pages::Pmd => Advice::LinuxHugepage,
        };
        mapping.advise(advice)?;
        mapping.store_each(page_bytes(), 1);
        Ok(Self::Data { mapping, layout })
    }

    fn stubs(pages: Pages, layout: Layout, len: usize, dir: &Path) -> Result<Self, StubsError> {
        let backing = match pages {
            Pages::Base => Backing::Memfd,
            Pages::Pmd => Backing::MemfdCollapsed,
        };
        Stubs::with_layout(backing, layout, len, dir).map(Self::Stubs)
    }

    fn pmd_mapped_bytes(&self) -> u64 {
        match self {
            Self::Data { mapping, .. } => mapping.pmd_mapped_bytes(),
            Self::Stubs(stubs) => stubs.pmd_mapped_bytes(),
        }
    }

    fn cycle(&self, nr: usize, seed: u64) -> (Duration, usize) {
        let nr_passes = NR_REFERENCES.div_ceil(nr).max(1);
        let taken = match self {
            Self::Stubs(stubs) => stubs.cycle(nr, nr_passes, seed),
            Self::Data { mapping, layout } => {
                let at = |nr: usize| match layout {
                    Layout::OnePerPage => nr * page_bytes() + line_of(nr, page_bytes()),
                    Layout::Packed => nr * LINE_BYTES,
                };
                let order = shuffled(nr, seed);
                #[expect(clippy::cast_ptr_alignment, reason = "each is the first word of a line")]
                let word = |nr: usize| mapping.at().wrapping_add(at(nr)).cast::<usize>();
                for (nr, &line) in order.iter().enumerate() {
                    let next = order[(nr + 1) % order.len()];
                    // SAFETY: a whole line inside the mapping, which nothing else refers to.
                    unsafe { word(line).write(word(next) as usize) };
                }
                // SAFETY: the words form one circle.
                unsafe { follow(word(order[0]), nr) };
                // SAFETY: as above.
                unsafe { follow(word(order[0]), nr * nr_passes) }
            }
        };
        (taken, nr * nr_passes)
    }
}

/// Returns the curves of one side over `sets`, working sets in pages, on both kinds of page, and
/// the reason if one is missing.
///
/// # Errors
/// Too little memory.
pub(super) fn measure(
    side: Side,
    sets: &[usize],
    nr_rounds: usize,
    dir: &Path,
) -> Result<(Vec<Curve>, Option<String>), StubsError> {
    let nr_max = sets.iter().copied().max().unwrap_or(0);
    let bytes = |stride: usize| (nr_max * stride).next_multiple_of(2 << 20).max(4 << 20);
    let (len, packed_len) = (bytes(page_bytes()), bytes(LINE_BYTES));
    let field = |pages, layout, len| match side {
        Side::Data => Field::data(pages, layout, len),
        Side::Instruction => Field::stubs(pages, layout, len, dir),
    };
    let large = (pmd_bytes() <= PMD_BYTES_MAX).then(|| field(Pages::Pmd, Layout::OnePerPage, len));
    let mut fields = vec![field(Pages::Base, Layout::OnePerPage, len)?];
    let mut missing = None;
    match large {
        None => {
            missing = Some("too few of this size are free".to_owned());
        }
        // Allows for the last 2 MiB at the end of the file, and for fragmentation.
        Some(Ok(large)) if large.pmd_mapped_bytes() >= len as u64 / 8 * 7 => fields.push(large),
        Some(Ok(large)) => {
            let mapped = large.pmd_mapped_bytes() >> 20;
            missing = Some(format!("only {mapped} of {} MiB got folios of 2 MiB", len >> 20));
        }
        Some(Err(error)) => missing = Some(error.to_string()),
    }
    let kind = if fields.len() > 1 { Pages::Pmd } else { Pages::Base };
    fields.push(field(kind, Layout::Packed, packed_len)?);
    let (packed, spread) = fields.split_last().unwrap_or_else(|| unreachable!("just pushed"));
    let host_lines = match &spread[0] {
        Field::Data { mapping, .. } => HostLines::of(mapping),
        Field::Stubs(_) => None,
    };
    let mut curves: Vec<Curve> = [Pages::Base, Pages::Pmd]
        .into_iter()
        .zip(spread)
        .map(|(pages, _)| Curve {
            side,
            pages,
            spread: Vec::new(),
            packed: Vec::new(),
            extra: Vec::new(),
            host_lines: host_lines.filter(|_| pages == Pages::Base),
        })
        .collect();
    for &nr in sets {
        let series = at_point(nr, spread, packed, nr_rounds);
        for (curve, of) in curves.iter_mut().zip(&series) {
            let base = &series[series.len() - 1];
            curve.spread.extend(point(nr, of));
            curve.packed.extend(point(nr, base));
            curve.extra.extend(point(nr, &less(of, base)));
        }
    }
    Ok((curves, missing))
}

fn at_point(nr: usize, spread: &[Field], packed: &Field, nr_rounds: usize) -> Vec<Series> {
    type Run<'a> = Box<dyn FnMut() -> Result<Duration, std::convert::Infallible> + 'a>;
    let mut runs: Vec<Run<'_>> = Vec::new();
    for field in spread.iter().chain([packed]) {
        let mut round = 0;
        runs.push(Box::new(move || {
            round += 1;
            // Each round uses another order, so an unlucky one counts once.
            let (taken, nr_references) = field.cycle(nr, round);
            // Per thousand references, so a Duration keeps fractions of a nanosecond.
            let scale = 1000.0 / super::count(nr_references);
            Ok(taken.mul_f64(scale))
        }));
    }
    let Ok(mut series) = interleave(nr_rounds, &mut runs, &mut |_| {});
    for ns in series.iter_mut().flat_map(|series| &mut series.rounds_ns) {
        *ns /= 1000.0;
    }
    series
}

fn point(nr: usize, series: &Series) -> Option<Point> {
    series.spread().map(|ns| Point { nr, ns })
}

fn less(series: &Series, base: &Series) -> Series {
    let pairs = series.rounds_ns.iter().zip(&base.rounds_ns);
    Series { rounds_ns: pairs.map(|(value, base)| value - base).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_have_a_point_for_each_working_set() {
        for side in [Side::Data, Side::Instruction] {
            let (curves, missing) =
                measure(side, &[8, 256], 2, &crate::calibrate::stubs::default_dir()).unwrap();
            assert!(curves.len() == 2 || missing.is_some(), "{missing:?}");
            for curve in &curves {
                let sets: Vec<usize> = curve.extra.iter().map(|point| point.nr).collect();
                assert_eq!(sets, [8, 256]);
                assert!(curve.spread.iter().all(|point| point.ns.n == 2 && point.ns.min > 0.0));
                assert!(curve.extra_over(8..=256).unwrap().is_finite());
                assert_eq!(curve.extra_over(9..=10), None);
            }
        }
    }
}

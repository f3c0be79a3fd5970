//! The measured side: all variants of an operation in the same rounds.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use largefolio_linux::calibrate::stubs::{Backing, Cache, Layout, Stubs};
use largefolio_linux::calibrate::{
    AROUND_BYTES, OfSize, Operations, Pace, TimedWork, Times, Until, allowed, operations,
};
use largefolio_linux::measure::{Series, interleave};

use super::model;
use super::setup::{BACKINGS, Extent, Phase, WORKS, cached_pages};
use crate::{Error, running};

type TimedRun<'a> = Box<dyn FnMut() -> Result<Duration, Error> + 'a>;

pub(super) struct Calls {
    pub(super) of: Vec<(Backing, Phase, Series)>,
    pub(super) packed: Series,
}

/// Measures calls of stubs, with notes on their backing.
pub(super) fn stubs(extent: &Extent, dir: &Path) -> Result<(Calls, Vec<String>), Error> {
    let mut texts = Vec::new();
    for backing in BACKINGS {
        texts.push((backing, RefCell::new(Stubs::new(backing, extent.text_bytes, dir)?)));
    }
    let packed_bytes = (extent.text_bytes / 64).next_multiple_of(2 << 20);
    let packed = Stubs::with_layout(Backing::MemfdCollapsed, Layout::Packed, packed_bytes, dir)?;
    let nr_calls = extent.nr_calls;
    let mut runs: Vec<TimedRun<'_>> = Vec::new();
    let mut keys = Vec::new();
    for (backing, stubs) in &texts {
        keys.push((*backing, Phase::Mapped));
        runs.push(Box::new(move || Ok(stubs.borrow_mut().sweep(Cache::Warm)?)));
        keys.push((*backing, Phase::Random));
        let mut round = 0;
        runs.push(Box::new(move || {
            round += 1;
            Ok(stubs.borrow().random(nr_calls, round))
        }));
    }
    let (mut round, packed) = (0, &packed);
    runs.push(Box::new(move || {
        round += 1;
        Ok(packed.random(nr_calls, round))
    }));
    let mut series = interleave(extent.nr_rounds, &mut runs, &mut |_| {})?;
    drop(runs);
    let packed = each(series.pop().unwrap_or_default(), nr_calls);
    let nr = |phase| match phase {
        Phase::Mapped => extent.text_bytes >> running::page().shift(),
        Phase::Random => nr_calls,
    };
    let of = keys.into_iter().zip(series);
    let of = of.map(|((backing, phase), series)| (backing, phase, each(series, nr(phase))));
    let notes = texts.iter().map(|(backing, stubs)| {
        let mapped = stubs.borrow().pmd_mapped_bytes() >> 20;
        format!("{}: PMD entries map {mapped} of {} MiB", backing.name(), extent.text_bytes >> 20)
    });
    Ok((Calls { of: of.collect(), packed }, notes.collect()))
}

pub(super) struct Measured {
    /// Nanoseconds per 4 KiB, by work and folio size.
    pub(super) of: Vec<(TimedWork, usize, Series)>,
    /// Nanoseconds per read fault, by cached pages among the 16 around it.
    pub(super) faults: Vec<(usize, Series)>,
    pub(super) pace: Pace,
    pub(super) notes: Vec<String>,
}

pub(super) fn measure(extent: &Extent) -> Result<Measured, Error> {
    let shift = running::page().shift();
    let sizes = WORKS.iter().flat_map(|(_, _, sizes)| *sizes);
    let mut sizes: Vec<usize> = sizes.map(|nr| nr << shift).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let len_bytes = extent.region_bytes;
    let (sizes, notes) = allowed(sizes, |_| len_bytes);
    let of = |&folio_bytes: &usize| OfSize {
        folio_bytes,
        len_bytes,
        works: works(folio_bytes >> shift).collect(),
    };
    let plan: Vec<OfSize> = sizes.iter().map(of).collect();
    let until = Until::Counted(extent.nr_rounds);
    let Operations { works, faults, pace } = operations(until, &plan, &cached_pages(), len_bytes)?;
    let of = works.into_iter().map(|Times { work, folio_bytes, series, .. }| {
        (work, folio_bytes, each(series, len_bytes / 4096))
    });
    let faults = cached_pages().into_iter().zip(faults);
    let faults = faults.map(|(nr, series)| (nr, each(series, len_bytes / AROUND_BYTES)));
    Ok(Measured { of: of.collect(), faults: faults.collect(), pace, notes })
}

fn works(nr_pages: usize) -> impl Iterator<Item = TimedWork> {
    WORKS.iter().filter(move |(_, _, sizes)| sizes.contains(&nr_pages)).map(|(work, ..)| *work)
}

fn each(mut series: Series, nr: usize) -> Series {
    for ns in &mut series.rounds_ns {
        *ns /= model::float(nr);
    }
    series
}

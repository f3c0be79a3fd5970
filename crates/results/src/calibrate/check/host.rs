//! The measured side: everything of one operation in the same rounds.

use std::cell::RefCell;
use std::path::Path;
use std::time::Duration;

use largefolio_linux::bench::anon::{FolioSize, Operation};
use largefolio_linux::bench::stubs::{Backing, Cache, Layout, Stubs};
use largefolio_linux::measure::{Series, interleave};

use super::model;
use super::setup::{BACKINGS, Extent, Phase, SIZES};
use crate::Error;

/// Takes one round's time.
type Run<'a> = Box<dyn FnMut() -> Result<Duration, Error> + 'a>;

/// Nanoseconds per call, by backing and phase.
pub(super) struct Calls {
    pub(super) of: Vec<(Backing, Phase, Series)>,
    /// Of stubs packed into few pages.
    pub(super) packed: Series,
}

/// Calls of stubs; and notes on what backs them.
pub(super) fn stubs(extent: &Extent, dir: &Path) -> Result<(Calls, Vec<String>), Error> {
    let mut texts = Vec::new();
    for backing in BACKINGS {
        texts.push((backing, RefCell::new(Stubs::new(backing, extent.text_bytes, dir)?)));
    }
    let packed_bytes = (extent.text_bytes / 64).next_multiple_of(2 << 20);
    let packed = Stubs::with_layout(Backing::MemfdCollapsed, Layout::Packed, packed_bytes, dir)?;
    let nr_calls = extent.nr_calls;
    let mut runs: Vec<Run<'_>> = Vec::new();
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
        Phase::Mapped => extent.text_bytes / 4096,
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

/// Times by folio size.
type BySize = Vec<(usize, Series)>;

/// Nanoseconds for each 4 KiB by folio size; and which sizes are missing.
pub(super) fn anon(operation: Operation, extent: &Extent) -> Result<(BySize, Vec<String>), Error> {
    let (mut sizes, mut notes) = (Vec::new(), Vec::new());
    for bytes in SIZES {
        match FolioSize::enable(bytes) {
            Ok(_) => sizes.push(bytes),
            Err(error) => notes.push(format!("folios of {} KiB: {error}", bytes >> 10)),
        }
    }
    let len = extent.region_bytes;
    let mut runs: Vec<Run<'_>> = Vec::new();
    for &bytes in &sizes {
        runs.push(Box::new(move || Ok(FolioSize::enable(bytes)?.time(operation, len)?)));
    }
    let series = interleave(extent.nr_rounds, &mut runs, &mut |_| {})?;
    drop(runs);
    let series = series.into_iter().map(|series| each(series, len / 4096));
    Ok((sizes.into_iter().zip(series).collect(), notes))
}

fn each(mut series: Series, nr: usize) -> Series {
    for ns in &mut series.rounds_ns {
        *ns /= model::float(nr);
    }
    series
}

//! Asks the kernel for large folios: advice, first touch, collapse.

use crate::pages::Pages;
use crate::range::Range;
use crate::reason::{Reason, Shares};
use crate::settings::{ProcessThp, Settings};
use crate::sys::{Errno, Madvise, Result, block_bytes, madvise, page_bytes};

/// The advice about folios that a mapping keeps. The kernel has none that takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Huge,
    NoHuge,
}

/// Gives advice for the range. Memory keeps its contents and its folios.
///
/// # Errors
/// `ENOMEM` if a part is not mapped (the rest has the advice), `EINVAL` if the kernel has no large
/// folios or the mapping cannot have any.
pub fn advise(range: Range, advice: Advice) -> Result<()> {
    let advice = match advice {
        Advice::Huge => Madvise::Huge,
        Advice::NoHuge => Madvise::NoHuge,
    };
    madvise(range.start(), range.len(), advice)
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Options {
    /// Use all pages now, as a write would (Linux 5.14). They keep their contents.
    pub populate: bool,
    /// Move pages that are already in smaller folios to PMD folios (Linux 6.1).
    pub collapse: bool,
}

/// The result of [`back`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backed {
    /// In whole pages.
    pub range_bytes: u64,
    /// Largest folio size that the kernel gives memory with the advice now, 0 if none.
    pub folio_bytes: u64,
    /// Bytes in whole, naturally aligned blocks of that size. The ends get smaller folios.
    pub fitting_bytes: u64,
    pub advised_bytes: u64,
    pub populated_bytes: u64,
    pub collapsed_bytes: u64,
    /// `Complete` if nothing prevents the folios; [`crate::view`] shows which the memory has.
    pub reason: Reason,
}

/// Backs the range with the largest folios that the kernel gives: advises it, then does as
/// `options` say. A setting that gives no folios is a reason, not an error, and the advice stays
/// for the time when the setting changes.
///
/// # Errors
/// The kernel's, if it denies a call or has no memory for the pages.
pub fn back(range: Range, options: Options) -> Result<Backed> {
    let settings = Settings::read()?;
    let folio_bytes = settings.largest_bytes(true);
    let fitting = folio_bytes.and_then(|bytes| range.blocks(bytes));
    let mut done = Backed {
        range_bytes: range.len() as u64,
        folio_bytes: folio_bytes.unwrap_or(0) as u64,
        fitting_bytes: fitting.map_or(0, |blocks| blocks.len() as u64),
        advised_bytes: 0,
        populated_bytes: 0,
        collapsed_bytes: 0,
        reason: obstacle(range, &settings, folio_bytes),
    };
    if range.is_empty() {
        return Ok(done);
    }
    match advise(range, Advice::Huge) {
        Ok(()) => done.advised_bytes = range.len() as u64,
        Err(Errno(libc::ENOMEM)) => done.reason = Reason::Unmapped,
        Err(Errno(libc::EINVAL)) if !settings.has_thp => done.reason = Reason::NoThp,
        Err(Errno(libc::EINVAL)) => done.reason = Reason::NotPrivate,
        Err(error) => return Err(error),
    }
    if options.populate {
        madvise(range.start(), range.len(), Madvise::PopulateWrite)?;
        done.populated_bytes = range.len() as u64;
    }
    if options.collapse {
        let collapsed = collapse(range)?;
        done.collapsed_bytes = collapsed.collapsed_bytes;
        if done.reason == Reason::Complete {
            done.reason = collapsed.reason;
        }
    }
    Ok(done)
}

/// Returns the reason that prevents large folios in the range, or `Complete`.
fn obstacle(range: Range, settings: &Settings, folio_bytes: Option<usize>) -> Reason {
    match folio_bytes {
        None if !settings.has_thp => Reason::NoThp,
        None if settings.process == ProcessThp::Off => Reason::ProcessOff,
        None => Reason::SettingOff,
        Some(bytes) if range.blocks(bytes).is_some() => Reason::Complete,
        Some(bytes) if range.len() < bytes => Reason::TooShort,
        Some(_) => Reason::Misaligned,
    }
}

/// The result of [`collapse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Collapsed {
    /// The size of a PMD folio.
    pub folio_bytes: u64,
    /// Bytes in whole blocks of that size.
    pub fitting_bytes: u64,
    /// Bytes in PMD folios now, those that were before included.
    pub collapsed_bytes: u64,
    /// Of most blocks that are not.
    pub reason: Reason,
}

/// Moves the memory that is in use to PMD folios, whatever the settings say. Each takes a whole
/// block of memory, although parts of the block may not have been used yet.
///
/// # Errors
/// If the kernel denies the call or `/proc/self/pagemap`. That a block cannot be collapsed is a
/// reason.
pub fn collapse(range: Range) -> Result<Collapsed> {
    let block = block_bytes(page_bytes());
    let mut done = Collapsed {
        folio_bytes: block as u64,
        fitting_bytes: 0,
        collapsed_bytes: 0,
        reason: Reason::Complete,
    };
    let Some(blocks) = range.blocks(block) else {
        done.reason = if range.len() < block { Reason::TooShort } else { Reason::Misaligned };
        return Ok(done);
    };
    done.fitting_bytes = blocks.len() as u64;
    // The kernel checks the advice before the length.
    if madvise(blocks.start(), 0, Madvise::Collapse) == Err(Errno(libc::EINVAL)) {
        done.reason = Reason::OldKernel;
        return Ok(done);
    }
    let mut shares = Shares::new();
    for part in blocks.parts(block) {
        match madvise(part.start(), part.len(), Madvise::Collapse) {
            Ok(()) => done.collapsed_bytes += part.len() as u64,
            Err(error) => shares.add(why_not_collapsed(part, error)?, part.len()),
        }
    }
    done.reason = shares.main();
    Ok(done)
}

fn why_not_collapsed(block: Range, error: Errno) -> Result<Reason> {
    Ok(match error {
        Errno(libc::EAGAIN) => Reason::Busy,
        Errno(libc::EBUSY) => Reason::CgroupLimit,
        Errno(libc::ENOMEM) if !is_mapped(block) => Reason::Unmapped,
        Errno(libc::ENOMEM) => Reason::NoFreeFolio,
        Errno(libc::EINVAL) if !has_page(block)? => Reason::NotTouched,
        Errno(libc::EINVAL) => Reason::NotCollapsible,
        error => return Err(error),
    })
}

fn has_page(block: Range) -> Result<bool> {
    let mut has_page = false;
    Pages::open()?.visit(block, &mut |_, pages| {
        has_page |= pages.iter().any(|page| page.is_present && !page.is_zero);
    })?;
    Ok(has_page)
}

/// The kernel answers `ENOMEM` for a hole, too. `mincore` has no side effect and fails with it only
/// for a hole.
fn is_mapped(block: Range) -> bool {
    block
        .parts(crate::sys::MINCORE_PAGES * page_bytes())
        .all(|part| crate::sys::is_mapped(part.start(), part.len()))
}

#[cfg(test)]
mod tests;

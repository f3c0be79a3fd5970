//! Asks the kernel for large folios: advice, first touch, collapse.

use crate::area;
use crate::fd::Fd;
use crate::files::PAGEMAP;
use crate::pages::Pages;
use crate::range::Range;
use crate::reason::{Reason, Shares};
use crate::scan::{Wanted, category, scan};
use crate::settings::{ProcessThp, Settings};
use crate::sys::{self, Errno, Madvise, Result, block_bytes, madvise, page_bytes};
use crate::view::view;

/// The advice about folios that a mapping keeps. The kernel has none that takes it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Advice {
    Huge,
    NoHuge,
}

/// Gives advice for the range. Memory keeps its contents and its folios.
///
/// # Errors
/// `ENOMEM` if a part is not mapped (the rest has the advice), `EINVAL` if the kernel is built
/// without large folios or refuses the advice for such a mapping. For some memory that cannot have
/// large folios, the kernel accepts it.
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
    /// Largest size that fits the range and that the kernel gives advised memory now, 0 if none.
    pub folio_bytes: u64,
    /// Bytes in whole, naturally aligned blocks of that size. The ends get smaller folios.
    pub fitting_bytes: u64,
    pub advised_bytes: u64,
    pub populated_bytes: u64,
    pub collapsed_bytes: u64,
    /// What prevents the folios. After `populate` or `collapse`, the reason of [`crate::view`], which
    /// reads `/proc/self/smaps`; otherwise `Advised` if nothing is known to prevent them.
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
    let fitting = settings.fitting(settings.orders(true), range, range);
    let mut done = Backed {
        range_bytes: range.len() as u64,
        folio_bytes: fitting.map_or(0, |fitting| fitting.folio_bytes as u64),
        fitting_bytes: fitting.map_or(0, |fitting| fitting.blocks.len() as u64),
        advised_bytes: 0,
        populated_bytes: 0,
        collapsed_bytes: 0,
        reason: obstacle(range, &settings),
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
        if done.reason == Reason::Advised && collapsed.reason != Reason::Complete {
            done.reason = collapsed.reason;
        }
    }
    if done.reason == Reason::Advised && (options.populate || options.collapse) {
        // Missing `/proc` does not undo the work.
        done.reason = view(range).map_or(Reason::Advised, |found| found.reason);
    }
    Ok(done)
}

/// Returns the reason that prevents large folios in the range, or `Advised`.
fn obstacle(range: Range, settings: &Settings) -> Reason {
    let orders = settings.orders(true);
    match settings.obstacle() {
        Some(reason) => reason,
        None if settings.fitting(orders, range, range).is_some() => Reason::Advised,
        None => settings.misfit(orders, range),
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
    if let Some(reason) = why_no_block() {
        done.reason = reason;
        return Ok(done);
    }
    let mut tried = Tried { shares: Shares::new(), collapsed_bytes: 0, invalid_bytes: 0 };
    each_stretch(blocks, block, &mut |stretch, is_used| {
        if is_used {
            return stretch.parts(block).try_for_each(|part| tried.collapse(part));
        }
        let is_mapped = sys::is_mapped(stretch.start(), stretch.len());
        let reason = if is_mapped { Reason::NotTouched } else { Reason::Unmapped };
        tried.shares.add(reason, stretch.len());
        tried.invalid_bytes += if is_mapped { stretch.len() } else { 0 };
        Ok(())
    })?;
    done.collapsed_bytes = tried.collapsed_bytes;
    done.reason = tried.reason(blocks);
    Ok(done)
}

/// Returns why the kernel collapses no block at all. It checks an advice before the length.
fn why_no_block() -> Option<Reason> {
    if !sys::has_thp() {
        Some(Reason::NoThp)
    } else if madvise(0, 0, Madvise::Collapse) == Err(Errno(libc::EINVAL)) {
        Some(Reason::OldKernel)
    } else if ProcessThp::read() == ProcessThp::Off {
        Some(Reason::ProcessOff)
    } else {
        None
    }
}

/// Divides `blocks` into stretches with and without pages in use: terabytes of address space that
/// the program never used need no call per block. Pages of a file can be in memory without an entry
/// in the page table, so all of its memory counts as used; and if `PAGEMAP_SCAN` fails, any memory.
fn each_stretch(
    blocks: Range,
    block: usize,
    each: &mut dyn FnMut(Range, bool) -> Result<()>,
) -> Result<()> {
    let (mut next, mut result) = (blocks.start(), Ok(()));
    let mut stretch = |end: usize, is_used: bool| {
        if end > next && result.is_ok() {
            result = each(Range::of_pages(next, end), is_used);
        }
        next = next.max(end);
    };
    let wanted =
        Wanted { any_of: category::PRESENT | category::SWAPPED, returned: category::PRESENT };
    let addresses = blocks.start() as u64..blocks.end() as u64;
    let is_private = area::is_private(blocks) == Ok(true);
    let pagemap = Fd::open(PAGEMAP, libc::O_RDONLY).ok().filter(|_| is_private);
    let is_scanned = pagemap.is_some_and(|pagemap| {
        scan(pagemap.raw(), addresses, wanted, |region| {
            let [start, end] = [region.start, region.end.saturating_add(block as u64 - 1)]
                .map(|address| (sys::word(address) & !(block - 1)).min(blocks.end()));
            stretch(start, false);
            stretch(end, true);
        })
        .is_ok()
    });
    stretch(blocks.end(), !is_scanned);
    result
}

/// What became of the blocks so far.
struct Tried {
    shares: Shares,
    collapsed_bytes: u64,
    /// Bytes that the kernel refused as such, or would: their mapping can be the reason.
    invalid_bytes: usize,
}

impl Tried {
    fn collapse(&mut self, block: Range) -> Result<()> {
        let reason = match madvise(block.start(), block.len(), Madvise::Collapse) {
            Ok(()) => {
                self.collapsed_bytes += block.len() as u64;
                return Ok(());
            }
            Err(Errno(libc::EAGAIN)) => Reason::Busy,
            Err(Errno(libc::EBUSY)) => Reason::CgroupLimit,
            // The kernel's answer for a hole, too.
            Err(Errno(libc::ENOMEM)) if !sys::is_mapped(block.start(), block.len()) => {
                Reason::Unmapped
            }
            Err(Errno(libc::ENOMEM)) => Reason::NoFreeFolio,
            Err(Errno(libc::EINVAL)) => {
                self.invalid_bytes += block.len();
                if has_page(block)? { Reason::NotCollapsible } else { Reason::NotTouched }
            }
            Err(error) => return Err(error),
        };
        self.shares.add(reason, block.len());
        Ok(())
    }

    /// Returns the reason of most blocks. Only `smaps` shows the advice, and costs a walk: it is
    /// read once, and only if it can be the reason.
    fn reason(mut self, blocks: Range) -> Reason {
        let mut against = 0;
        if self.invalid_bytes > 0 {
            // Without `/proc`, the other reasons stay.
            let _ = area::each(blocks, &mut |area| {
                let part = area.range.overlap(&blocks).filter(|_| area.is_advised_against);
                against += part.map_or(0, |part| part.len());
                Ok(())
            });
        }
        for reason in [Reason::NotTouched, Reason::NotCollapsible] {
            let bytes = against.min(self.invalid_bytes);
            let moved = self.shares.replace(reason, Reason::AdvisedAgainst, bytes);
            against -= moved;
            self.invalid_bytes -= moved;
        }
        self.shares.main()
    }
}

fn has_page(block: Range) -> Result<bool> {
    let mut has_page = false;
    Pages::open()?.visit(block, &mut |_, pages| {
        has_page |= pages.iter().any(|page| page.is_present && !page.is_zero);
    })?;
    Ok(has_page)
}

#[cfg(test)]
mod tests;

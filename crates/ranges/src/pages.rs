//! The states of the process's own pages.
//!
//! ```text
//!   pagemap        present, swapped                        every process
//!   PAGEMAP_SCAN   zero page, mapped by a PMD entry        every process, Linux 6.7
//!   kpageflags     order of the folio                      root
//! ```

use crate::fd::Fd;
use crate::files::PAGEMAP;
use crate::folios::Folios;
use crate::range::Range;
use crate::scan::{Wanted, category, scan};
use crate::sys::{Result, page_bytes};

/// Pages in a step. More would save system calls, and take more of a small stack.
const STEP_PAGES: usize = 128;

const PRESENT: u64 = 1 << 63;
const SWAPPED: u64 = 1 << 62;
const PFN: u64 = (1 << 55) - 1;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "independent facts about a page")]
pub(crate) struct Page {
    pub(crate) is_present: bool,
    pub(crate) is_swapped: bool,
    /// The shared zero page: no memory of our own.
    pub(crate) is_zero: bool,
    /// Mapped by a PMD entry. False if the kernel does not say ([`Pages::has_scan`]).
    pub(crate) is_huge: bool,
    pub(crate) order: Option<u8>,
}

pub(crate) struct Pages {
    pagemap: Fd,
    folios: Option<Folios>,
    has_scan: bool,
}

impl Pages {
    pub(crate) fn open() -> Result<Self> {
        let pagemap = Fd::open(PAGEMAP, libc::O_RDONLY)?;
        Ok(Self { pagemap, folios: Folios::open().ok(), has_scan: true })
    }

    /// Whether `is_huge` and `is_zero` were known in all visits so far.
    pub(crate) const fn has_scan(&self) -> bool {
        self.has_scan
    }

    /// Whether `order` was known for each present page so far.
    pub(crate) const fn has_orders(&self) -> bool {
        self.folios.is_some()
    }

    /// Calls `each` with an address and the pages from there on, for the whole range in steps.
    pub(crate) fn visit(
        &mut self,
        range: Range,
        each: &mut dyn FnMut(usize, &[Page]),
    ) -> Result<()> {
        for step in range.parts(STEP_PAGES * page_bytes()) {
            let mut pages = [Page::default(); STEP_PAGES];
            let nr = step.len() / page_bytes();
            let Some(pages) = pages.get_mut(..nr) else { break };
            self.read(step, pages)?;
            each(step.start(), pages);
        }
        Ok(())
    }

    fn read(&mut self, step: Range, pages: &mut [Page]) -> Result<()> {
        let mut entries = [0_u64; STEP_PAGES];
        let Some(entries) = entries.get_mut(..pages.len()) else { return Ok(()) };
        let first = step.start() / page_bytes();
        // Past the end of user addresses there are no entries, and no pages.
        let nr = self.pagemap.read_words(first as u64, entries)?;
        for (page, entry) in pages.iter_mut().zip(entries.iter().take(nr)) {
            page.is_present = entry & PRESENT != 0;
            page.is_swapped = entry & SWAPPED != 0;
            if page.is_present {
                self.find_order(page, entry & PFN);
            }
        }
        if self.has_scan && pages.iter().any(|page| page.is_present) {
            self.has_scan = mark(&self.pagemap, step, pages).is_ok();
        }
        Ok(())
    }

    fn find_order(&mut self, page: &mut Page, pfn: u64) {
        let Some(folios) = &mut self.folios else { return };
        // Page frame numbers read as 0 without CAP_SYS_ADMIN.
        match Some(pfn).filter(|pfn| *pfn != 0).and_then(|pfn| folios.of(pfn)) {
            Some(folio) => {
                page.order = Some(folio.order());
                page.is_zero = folio.is_zero;
            }
            None => self.folios = None,
        }
    }
}

/// Marks the states that only `PAGEMAP_SCAN` shows.
fn mark(pagemap: &Fd, step: Range, pages: &mut [Page]) -> Result<()> {
    let page_bytes = page_bytes() as u64;
    let categories = category::HUGE | category::ZERO;
    let wanted = Wanted { any_of: categories, returned: categories };
    let addresses = step.start() as u64..step.end() as u64;
    scan(pagemap.raw(), addresses, wanted, |region| {
        let first = region.start.saturating_sub(step.start() as u64) / page_bytes;
        let nr = region.end.saturating_sub(region.start) / page_bytes;
        let [first, nr] = [first, nr].map(|pages| usize::try_from(pages).unwrap_or(usize::MAX));
        for page in pages.iter_mut().skip(first).take(nr) {
            // The states may have changed since pagemap was read.
            page.is_huge = page.is_present && region.categories & category::HUGE != 0;
            page.is_zero |= region.categories & category::ZERO != 0;
        }
    })
}

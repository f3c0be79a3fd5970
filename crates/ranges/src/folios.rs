//! Folio orders from `/proc/kpageflags`, which only root can read.

use crate::fd::Fd;
use crate::files::KPAGEFLAGS;
use crate::settings::NR_ORDERS;
use crate::sys::Result;

const HEAD: u64 = 1 << 15;
const TAIL: u64 = 1 << 16;
const ZERO: u64 = 1 << 24;
const WINDOW: usize = 128;
/// Bounds the search for a head or an end: a damaged or changing table cannot make it long.
const FOLIO_PAGES_MAX: u64 = 1 << (NR_ORDERS - 1);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Folio {
    head: u64,
    nr_pages: u64,
    pub(crate) is_zero: bool,
}

impl Folio {
    pub(crate) fn order(&self) -> u8 {
        u8::try_from(self.nr_pages.max(1).ilog2()).unwrap_or(u8::MAX)
    }

    const fn contains(&self, pfn: u64) -> bool {
        pfn >= self.head && pfn - self.head < self.nr_pages
    }
}

/// Reads the flags of large folios in windows, and remembers the last folio.
pub(crate) struct Folios {
    file: Fd,
    first: u64,
    nr: usize,
    window: [u64; WINDOW],
    last: Folio,
}

impl Folios {
    pub(crate) fn open() -> Result<Self> {
        let file = Fd::open(KPAGEFLAGS, libc::O_RDONLY)?;
        let last = Folio { head: 0, nr_pages: 0, is_zero: false };
        Ok(Self { file, first: 0, nr: 0, window: [0; WINDOW], last })
    }

    /// Returns the folio of a page, `None` if it cannot be read.
    pub(crate) fn of(&mut self, pfn: u64) -> Option<Folio> {
        if !self.last.contains(pfn) {
            self.last = self.find(pfn)?;
        }
        Some(self.last)
    }

    fn find(&mut self, pfn: u64) -> Option<Folio> {
        let own = self.flags_alone(pfn)?;
        let is_zero = own & ZERO != 0;
        if own & (HEAD | TAIL) == 0 {
            return Some(Folio { head: pfn, nr_pages: 1, is_zero });
        }
        let mut head = pfn;
        while pfn - head < FOLIO_PAGES_MAX && self.flags(head)? & TAIL != 0 {
            head = head.checked_sub(1)?;
        }
        let mut nr_pages = 1;
        while nr_pages < FOLIO_PAGES_MAX
            && self.flags(head + nr_pages).is_some_and(|flags| flags & TAIL != 0)
        {
            nr_pages += 1;
        }
        Some(Folio { head, nr_pages, is_zero })
    }

    /// Reads one number rather than a window: base pages lie scattered in memory.
    fn flags_alone(&self, pfn: u64) -> Option<u64> {
        let mut flags = [0];
        let nr = self.file.read_words(pfn, &mut flags).ok()?;
        flags.first().copied().filter(|_| nr == 1)
    }

    fn flags(&mut self, pfn: u64) -> Option<u64> {
        let first = pfn & !(WINDOW as u64 - 1);
        if first != self.first || self.nr == 0 {
            self.nr = self.file.read_words(first, &mut self.window).ok()?;
            self.first = first;
        }
        let at = usize::try_from(pfn - first).ok()?;
        self.window.get(..self.nr)?.get(at).copied()
    }
}

//! Which folio sizes a range has, and why no larger ones.

use crate::area::{self, Area, Kind};
use crate::pages::{Page, Pages};
use crate::range::Range;
use crate::reason::{Reason, Shares};
use crate::settings::{NR_ORDERS, Settings};
use crate::sys::{Result, page_bytes};

/// The memory of a range, by state. Counting equation, if `bytes_by_order` is known: its sum is
/// `present_bytes - zero_page_bytes`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct View {
    /// In whole pages.
    pub range_bytes: u64,
    pub mapped_bytes: u64,
    pub present_bytes: u64,
    pub swapped_bytes: u64,
    /// Mapped to the shared zero page, which takes no memory. `None` before Linux 6.7.
    pub zero_page_bytes: Option<u64>,
    /// Mapped by PMD entries, without the zero page. `None` before Linux 6.7 if a mapping
    /// reaches past the range.
    pub huge_bytes: Option<u64>,
    /// By folio order; `None` without `CAP_SYS_ADMIN`.
    pub bytes_by_order: Option<[u64; NR_ORDERS]>,
    /// Largest folio size that fits and that the kernel gives this memory now, 0 if none.
    pub folio_bytes: u64,
    /// Bytes in whole, naturally aligned blocks of that size.
    pub fitting_bytes: u64,
    /// Of most bytes that are not in the largest folios.
    pub reason: Reason,
}

/// Looks at the process's own memory.
///
/// # Errors
/// If `/proc/self/smaps` or `pagemap` cannot be opened or read.
pub fn view(range: Range) -> Result<View> {
    let settings = Settings::read()?;
    let mut pages = Pages::open()?;
    let mut sum = Sum::new(range);
    area::each(range, &mut |area| {
        let Some(part) = area.range.overlap(&range) else { return Ok(()) };
        let mut seen = Seen::default();
        pages.visit(part, &mut |_, pages| seen.count(pages))?;
        if !pages.has_scan() {
            seen.huge = if part == area.range { Some(to_usize(area.huge_bytes)) } else { None };
            seen.zero = None;
        }
        if !pages.has_orders() {
            seen.by_order = None;
        }
        sum.add(&seen, &Evidence { area, part, settings: &settings, seen: &seen }.judge());
        Ok(())
    })?;
    Ok(sum.finish())
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).unwrap_or(usize::MAX)
}

/// Bytes of a mapping's part, by state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Seen {
    total: usize,
    present: usize,
    swapped: usize,
    zero: Option<usize>,
    huge: Option<usize>,
    by_order: Option<[usize; NR_ORDERS]>,
}

impl Default for Seen {
    fn default() -> Self {
        Self {
            total: 0,
            present: 0,
            swapped: 0,
            zero: Some(0),
            huge: Some(0),
            by_order: Some([0; NR_ORDERS]),
        }
    }
}

impl Seen {
    fn count(&mut self, pages: &[Page]) {
        let bytes = page_bytes();
        for page in pages {
            self.total += bytes;
            self.present += if page.is_present { bytes } else { 0 };
            self.swapped += if page.is_swapped { bytes } else { 0 };
            let zero = if page.is_zero { bytes } else { 0 };
            self.zero = self.zero.map(|sum| sum + zero);
            let huge = if page.is_huge && !page.is_zero { bytes } else { 0 };
            self.huge = self.huge.map(|sum| sum + huge);
            if let (Some(by_order), Some(order), false) =
                (&mut self.by_order, page.order, page.is_zero)
                && let Some(sum) = by_order.get_mut(usize::from(order).min(NR_ORDERS - 1))
            {
                *sum += bytes;
            }
        }
    }

    /// Returns the bytes in folios of at least `bytes`, `None` if that is not visible.
    fn in_folios_of(&self, bytes: usize, settings: &Settings) -> Option<usize> {
        let order = (bytes / settings.page_bytes).checked_ilog2()?;
        match self.by_order {
            Some(by_order) => Some(by_order.iter().skip(order as usize).sum()),
            None => self.huge.filter(|huge| order == settings.pmd_order || *huge == self.present),
        }
    }
}

struct Evidence<'a> {
    area: &'a Area,
    part: Range,
    settings: &'a Settings,
    seen: &'a Seen,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Verdict {
    folio_bytes: usize,
    fitting_bytes: usize,
    reason: Reason,
    /// Bytes for which the reason holds.
    missing_bytes: usize,
}

impl Evidence<'_> {
    fn judge(&self) -> Verdict {
        let Self { area, settings, .. } = self;
        let enabled = settings.orders(area.is_advised);
        let prevented = self.prevented();
        // A collapse makes PMD folios whatever the settings are.
        let orders = if enabled == 0 { 1 << settings.pmd_order } else { enabled };
        // A folio may reach past the range, but not past its mapping.
        let fitting = settings.fitting(orders, area.range, self.part);
        let wanted = fitting.map_or_else(|| settings.pmd_bytes(), |fitting| fitting.folio_bytes);
        let fitting_bytes = fitting.map_or(0, |fitting| fitting.blocks.len());
        let got = self.seen.in_folios_of(wanted, settings);
        let is_complete = fitting_bytes > 0 && got.is_some_and(|got| got >= fitting_bytes);
        let (reason, missing_bytes) = if is_complete && area.kind != Kind::Hugetlb {
            (Reason::Complete, 0)
        } else if let Some(reason) = prevented {
            (reason, self.part.len())
        } else if fitting_bytes == 0 {
            (settings.misfit(orders, area.range), self.part.len())
        } else {
            self.lacking(fitting_bytes, got)
        };
        let is_possible = prevented.is_none();
        Verdict {
            folio_bytes: if is_possible && fitting.is_some() { wanted } else { 0 },
            fitting_bytes: if is_possible { fitting_bytes } else { 0 },
            reason,
            missing_bytes,
        }
    }

    /// Returns the reason that prevents large folios at any address and with any contents.
    fn prevented(&self) -> Option<Reason> {
        let Self { area, settings, .. } = self;
        match area.kind {
            Kind::Hugetlb => return Some(Reason::Hugetlb),
            Kind::File => return Some(Reason::NotPrivate),
            Kind::Private => {}
        }
        let obstacle = settings.obstacle();
        if area.is_advised_against && !matches!(obstacle, Some(Reason::NoThp | Reason::ProcessOff))
        {
            Some(Reason::AdvisedAgainst)
        } else if obstacle.is_none() && settings.orders(area.is_advised) == 0 {
            Some(Reason::NeedsAdvice)
        } else {
            obstacle
        }
    }

    /// Returns why blocks that would fit have no folio of the wanted size.
    fn lacking(&self, fitting_bytes: usize, got: Option<usize>) -> (Reason, usize) {
        let seen = self.seen;
        let zero = seen.zero.unwrap_or(0);
        let absent = seen.total.saturating_sub(seen.present).saturating_sub(seen.swapped);
        let small = seen.present.saturating_sub(zero).saturating_sub(got.unwrap_or(0));
        let why_small = if got.is_some() { Reason::SmallFolios } else { Reason::NotVisible };
        let mut shares = Shares::new();
        shares.add(Reason::NotTouched, absent);
        shares.add(Reason::OnlyRead, zero);
        shares.add(Reason::Swapped, seen.swapped);
        shares.add(why_small, small);
        (shares.main(), fitting_bytes.saturating_sub(got.unwrap_or(0)))
    }
}

struct Sum {
    range: Range,
    total: Seen,
    folio_bytes: usize,
    fitting_bytes: usize,
    shares: Shares,
}

impl Sum {
    fn new(range: Range) -> Self {
        let total = Seen::default();
        Self { range, total, folio_bytes: 0, fitting_bytes: 0, shares: Shares::new() }
    }

    fn add(&mut self, seen: &Seen, verdict: &Verdict) {
        let total = &mut self.total;
        total.total += seen.total;
        total.present += seen.present;
        total.swapped += seen.swapped;
        total.zero = total.zero.zip(seen.zero).map(|(one, other)| one + other);
        total.huge = total.huge.zip(seen.huge).map(|(one, other)| one + other);
        total.by_order = total.by_order.zip(seen.by_order).map(|(mut one, other)| {
            one.iter_mut().zip(other).for_each(|(sum, bytes)| *sum += bytes);
            one
        });
        self.folio_bytes = self.folio_bytes.max(verdict.folio_bytes);
        self.fitting_bytes += verdict.fitting_bytes;
        self.shares.add(verdict.reason, verdict.missing_bytes);
    }

    fn finish(mut self) -> View {
        let total = &self.total;
        self.shares.add(Reason::Unmapped, self.range.len().saturating_sub(total.total));
        if self.range.is_empty() {
            self.shares.add(Reason::TooShort, 1);
        }
        View {
            range_bytes: self.range.len() as u64,
            mapped_bytes: total.total as u64,
            present_bytes: total.present as u64,
            swapped_bytes: total.swapped as u64,
            zero_page_bytes: total.zero.map(|bytes| bytes as u64),
            huge_bytes: total.huge.map(|bytes| bytes as u64),
            bytes_by_order: total.by_order.map(|orders| orders.map(|bytes| bytes as u64)),
            folio_bytes: self.folio_bytes as u64,
            fitting_bytes: self.fitting_bytes as u64,
            reason: self.shares.main(),
        }
    }
}

#[cfg(test)]
mod tests;

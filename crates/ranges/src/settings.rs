//! Which folio sizes the kernel gives private memory now.

use core::ffi::CStr;

use crate::fd::Fd;
use crate::files::THP;
use crate::range::Range;
use crate::reason::Reason;
use crate::sys::{self, Errno, Result, block_bytes, page_bytes};
use crate::text::has_word;

/// Folio orders that are distinguished; larger folios count as the last.
pub const NR_ORDERS: usize = 16;
/// The kernel has no anonymous folios of two pages.
const ORDER_MIN: u32 = 2;

/// This process's limit, set with prctl(2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProcessThp {
    Allowed,
    /// Linux 6.18.
    OnlyAdvised,
    Off,
}

/// The settings, as they are at the call. They can change at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    pub page_bytes: usize,
    /// The order of a folio that one PMD entry maps.
    pub pmd_order: u32,
    /// Orders that any private memory gets, one bit each.
    pub always: u32,
    /// Orders that memory with `MADV_HUGEPAGE` gets, including `always`.
    pub advised: u32,
    pub process: ProcessThp,
    /// Whether the kernel has large folios for private memory.
    pub has_thp: bool,
    /// False if `/sys` is hidden, as in some containers: then no order is known.
    pub is_visible: bool,
}

/// The naturally aligned blocks of a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fitting {
    pub(crate) folio_bytes: usize,
    pub(crate) blocks: Range,
}

impl ProcessThp {
    pub(crate) fn read() -> Self {
        match sys::thp_disabled() {
            // 6.18 adds the flags; bit 1 exempts advised memory.
            Ok(flags) if flags & 3 == 3 => Self::OnlyAdvised,
            Ok(flags) if flags & 1 != 0 => Self::Off,
            _ => Self::Allowed,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Choice {
    Never,
    Advised,
    Always,
    Inherit,
}

impl Choice {
    fn parse(text: &[u8]) -> Self {
        let is = |word| has_word(text, word);
        if is(b"[always]") {
            Self::Always
        } else if is(b"[madvise]") {
            Self::Advised
        } else if is(b"[inherit]") {
            Self::Inherit
        } else {
            Self::Never
        }
    }
}

#[cfg(test)]
impl Settings {
    /// 4K pages, and 2M folios for advised memory.
    pub(crate) const TYPICAL: Self = Self {
        page_bytes: 4096,
        pmd_order: 9,
        always: 0,
        advised: 1 << 9,
        process: ProcessThp::Allowed,
        has_thp: true,
        is_visible: true,
    };
}

impl Settings {
    /// Reads the settings. Takes a dozen short files, about 0.1 ms.
    ///
    /// # Errors
    /// If the folder exists and the kernel refuses to open it.
    pub fn read() -> Result<Self> {
        let page_bytes = page_bytes();
        let pmd_order = (block_bytes(page_bytes) / page_bytes).trailing_zeros();
        let (process, has_thp) = (ProcessThp::read(), sys::has_thp());
        let mut found = Self {
            page_bytes,
            pmd_order,
            always: 0,
            advised: 0,
            process,
            has_thp,
            is_visible: false,
        };
        let folder = match Fd::open(THP, libc::O_RDONLY | libc::O_DIRECTORY) {
            Ok(folder) => folder,
            Err(Errno(libc::ENOENT)) => return Ok(found),
            Err(error) => return Err(error),
        };
        found.is_visible = true;
        let global = choice(&folder, c"enabled").unwrap_or(Choice::Never);
        for order in ORDER_MIN..=pmd_order {
            let own = size_choice(&folder, (page_bytes as u64) << order >> 10);
            // Before Linux 6.8, only the PMD size exists and follows the global setting.
            let own = own.unwrap_or(if order == pmd_order { global } else { Choice::Never });
            let own = if own == Choice::Inherit { global } else { own };
            let bit = 1 << order;
            found.always |= if own == Choice::Always { bit } else { 0 };
            found.advised |= if matches!(own, Choice::Always | Choice::Advised) { bit } else { 0 };
        }
        Ok(found)
    }

    /// Returns the orders that memory with or without advice gets in this process.
    #[must_use]
    pub const fn orders(&self, is_advised: bool) -> u32 {
        match (self.process, is_advised) {
            (ProcessThp::Off, _) | (ProcessThp::OnlyAdvised, false) => 0,
            (ProcessThp::Allowed, false) => self.always,
            (ProcessThp::Allowed | ProcessThp::OnlyAdvised, true) => self.advised,
        }
    }

    /// Returns the largest folio size in bytes that memory with or without advice gets, `None` if
    /// it gets only base pages.
    #[must_use]
    pub fn largest_bytes(&self, is_advised: bool) -> Option<usize> {
        self.orders(is_advised).checked_ilog2().map(|order| self.page_bytes << order)
    }

    /// Returns why memory with advice gets no large folios, `None` if it gets some.
    pub(crate) const fn obstacle(&self) -> Option<Reason> {
        Some(match self {
            Self { has_thp: false, .. } => Reason::NoThp,
            Self { process: ProcessThp::Off, .. } => Reason::ProcessOff,
            Self { is_visible: false, .. } => Reason::SettingHidden,
            Self { advised: 0, .. } => Reason::SettingOff,
            _ => return None,
        })
    }

    /// Returns the largest of these orders that has whole blocks in `mapping`, some of them in
    /// `part`. The kernel, too, tries the next smaller order if a block does not fit.
    pub(crate) fn fitting(&self, orders: u32, mapping: Range, part: Range) -> Option<Fitting> {
        (0..u32::BITS).rev().filter(|order| orders >> order & 1 != 0).find_map(|order| {
            let folio_bytes = self.page_bytes.checked_shl(order)?;
            let blocks = mapping.blocks(folio_bytes)?.overlap(&part)?;
            Some(Fitting { folio_bytes, blocks })
        })
    }

    /// Returns why none of these orders fits into `mapping`.
    pub(crate) const fn misfit(&self, orders: u32, mapping: Range) -> Reason {
        let smallest = self.page_bytes << (orders.trailing_zeros() % u32::BITS);
        if mapping.len() < smallest { Reason::TooShort } else { Reason::Misaligned }
    }

    #[must_use]
    pub fn pmd_bytes(&self) -> usize {
        self.page_bytes << self.pmd_order
    }
}

fn choice(folder: &Fd, name: &CStr) -> Option<Choice> {
    let mut buffer = [0; 64];
    let nr = folder.open_at(name, libc::O_RDONLY, 0).ok()?.read(&mut buffer).ok()?;
    Some(Choice::parse(buffer.get(..nr)?))
}

fn size_choice(folder: &Fd, kib: u64) -> Option<Choice> {
    let mut name = [0_u8; 64];
    let mut digits = [0_u8; 20];
    let mut slots = name.iter_mut();
    let mut push = |text: &mut dyn Iterator<Item = u8>| {
        text.for_each(|byte| {
            if let Some(slot) = slots.next() {
                *slot = byte;
            }
        });
    };
    push(&mut b"hugepages-".iter().copied());
    push(&mut decimal(kib, &mut digits).iter().copied());
    push(&mut b"kB/enabled".iter().copied());
    choice(folder, CStr::from_bytes_until_nul(&name).ok()?)
}

fn decimal(mut number: u64, digits: &mut [u8; 20]) -> &[u8] {
    let mut nr_unused = digits.len();
    for slot in digits.iter_mut().rev() {
        *slot = b'0' + u8::try_from(number % 10).unwrap_or(0);
        number /= 10;
        nr_unused -= 1;
        if number == 0 {
            break;
        }
    }
    digits.get(nr_unused..).unwrap_or(&[])
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZES: Settings = Settings {
        page_bytes: 4096,
        pmd_order: 9,
        always: 1 << 4,
        advised: 1 << 4 | 1 << 9,
        process: ProcessThp::Allowed,
        has_thp: true,
        is_visible: true,
    };

    #[test]
    fn the_chosen_word_stands_in_brackets() {
        assert_eq!(Choice::parse(b"always [madvise] never\n"), Choice::Advised);
        assert_eq!(Choice::parse(b"always inherit madvise [never]\n"), Choice::Never);
        assert_eq!(Choice::parse(b"always [inherit] madvise never\n"), Choice::Inherit);
        assert_eq!(Choice::parse(b"[always]"), Choice::Always);
        assert_eq!(Choice::parse(b""), Choice::Never);
    }

    #[test]
    fn the_largest_size_depends_on_advice_and_on_the_process() {
        assert_eq!(SIZES.largest_bytes(true), Some(2 << 20));
        assert_eq!(SIZES.largest_bytes(false), Some(64 << 10));
        let only = Settings { process: ProcessThp::OnlyAdvised, ..SIZES };
        assert_eq!((only.largest_bytes(true), only.largest_bytes(false)), (Some(2 << 20), None));
        assert_eq!(Settings { process: ProcessThp::Off, ..SIZES }.largest_bytes(true), None);
    }

    #[test]
    fn the_largest_order_with_a_whole_block_counts() {
        const START: usize = 0x7f00_0000_0000;
        let orders = SIZES.orders(true);
        let of = |from, to| {
            let range = Range::of_pages(START + from, START + to);
            let found = SIZES.fitting(orders, range, range);
            found
                .map(|found| (found.folio_bytes, found.blocks.len()))
                .ok_or_else(|| SIZES.misfit(orders, range))
        };
        assert_eq!(of(0, 3 << 20), Ok((2 << 20, 2 << 20)));
        assert_eq!(of(0, 1 << 20), Ok((64 << 10, 1 << 20)));
        assert_eq!(of(4096, 2 << 20), Ok((64 << 10, (2 << 20) - (64 << 10))));
        assert_eq!(of(4096, 68 << 10), Err(Reason::Misaligned));
        assert_eq!(of(0, 60 << 10), Err(Reason::TooShort));
        // The mapping's only large block lies outside the part.
        let [mapping, part] =
            [0, 2 << 20].map(|from| Range::of_pages(START + from, START + (3 << 20)));
        assert_eq!(SIZES.fitting(orders, mapping, part).unwrap().folio_bytes, 64 << 10);
    }

    #[test]
    fn what_prevents_every_size_is_named_in_order() {
        assert_eq!(SIZES.obstacle(), None);
        let off = Settings { always: 0, advised: 0, ..SIZES };
        assert_eq!(off.obstacle(), Some(Reason::SettingOff));
        let hidden = Settings { is_visible: false, ..off };
        assert_eq!(hidden.obstacle(), Some(Reason::SettingHidden));
        let process = Settings { process: ProcessThp::Off, ..hidden };
        assert_eq!(process.obstacle(), Some(Reason::ProcessOff));
        assert_eq!(Settings { has_thp: false, ..process }.obstacle(), Some(Reason::NoThp));
    }

    #[test]
    fn numbers_are_printed_whole() {
        assert_eq!(decimal(0, &mut [0; 20]), b"0");
        assert_eq!(decimal(524_288, &mut [0; 20]), b"524288");
        assert_eq!(decimal(u64::MAX, &mut [0; 20]), b"18446744073709551615");
    }
}

//! The host's page-table lines with the entries of a virtual machine's page frames.
//!
//! A machine that has run for a while hands out base pages in an order that has nothing to do with
//! their addresses. Their entries take more lines of the host's table than necessary, and two
//! neighbours in a program's memory rarely share one. Owns the choice of lines (W5).
//!
//! ```text
//!   frames of a folio of 32K    |0 1 2 3 4 5 6 7|     one line
//!   base pages, in order        |0 1 2 3 4 5 6 7|     host_lines = 125
//!   base pages, spread          |0   9  |  1 4  |7     |     each of several lines has some of them
//! ```

use largefolio_mm::units::Order;

use super::LineId;

/// Folios are spread within this many of them.
const BLOCK_BITS: u32 = 15;
/// An odd factor close to the golden section of the block, which moves neighbours far apart.
const FACTOR: u64 = 20_251;
/// Fixed-point bits of a number of lines.
const FRACTION_BITS: u32 = 20;

#[derive(Clone, Debug)]
pub(super) struct HostPlaces {
    /// Page frames of a line, as an order.
    line_shift: u32,
    /// Lines per folio of each order, if the folios are spread.
    lines_per_folio: Vec<u64>,
}

impl HostPlaces {
    /// Creates the places for lines of `2^line_shift` page frames. `host_lines` are the lines of
    /// 1,000 base pages.
    pub(super) fn new(line_shift: u32, host_lines: Option<u32>) -> Self {
        let lines_per_folio = host_lines.map_or_else(Vec::new, |host_lines| {
            (0..line_shift).map(|order| lines_per_folio(line_shift, order, host_lines)).collect()
        });
        Self { line_shift, lines_per_folio }
    }

    pub(super) fn line(&self, pfn: u64, folio: Order) -> LineId {
        let order = folio.get();
        match self.lines_per_folio.get(usize::from(order)) {
            None => self.line_in_order(pfn),
            Some(&lines) => {
                LineId::new(LineId::HOST_OF_ORDER + u64::from(order), spread(pfn >> order, lines))
            }
        }
    }

    pub(super) const fn line_in_order(&self, pfn: u64) -> LineId {
        LineId::new(LineId::HOST, pfn >> self.line_shift)
    }

    pub(super) fn line_of_table(&self, level: u32, table: u64) -> LineId {
        let line = match self.lines_per_folio.first() {
            None => table >> self.line_shift,
            Some(&lines) => spread(table, lines),
        };
        LineId::new(LineId::HOST_OF_TABLE + u64::from(level), line)
    }
}

/// Returns a fixed-point number. A program uses each other folio of a line with the same
/// probability, which follows from `host_lines`.
fn lines_per_folio(line_shift: u32, order: u32, host_lines: u32) -> u64 {
    let (pages, others) = (f64::from(1 << line_shift), f64::from((1 << (line_shift - order)) - 1));
    let in_use = ((1000.0 / f64::from(host_lines) - 1.0) / (pages - 1.0)).clamp(0.0, 1.0);
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "at most 2^20")]
    let fixed = (f64::from(1 << FRACTION_BITS) / (1.0 + others * in_use)).round() as u64;
    fixed
}

/// Returns the line of folio number `folio`, with `lines` per folio.
const fn spread(folio: u64, lines: u64) -> u64 {
    let (block, low) = (folio >> BLOCK_BITS, folio & ((1 << BLOCK_BITS) - 1));
    let moved = (low * FACTOR) & ((1 << BLOCK_BITS) - 1);
    let nr_lines = ((lines << BLOCK_BITS) >> FRACTION_BITS) + 1;
    // The tags of address spaces make numbers of tables large.
    block.wrapping_mul(nr_lines).wrapping_add((moved * lines) >> FRACTION_BITS)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn nr_lines(places: &HostPlaces, nr_pages: u64, order: u8) -> usize {
        let lines = (0..nr_pages).map(|pfn| places.line(pfn, Order::new(order)).0);
        lines.collect::<BTreeSet<_>>().len()
    }

    #[test]
    fn base_pages_take_as_many_lines_as_the_machine_says() {
        for host_lines in [125, 300, 640, 1000] {
            let places = HostPlaces::new(3, Some(host_lines));
            let nr = nr_lines(&places, 1 << 15, 0);
            let expected = (1 << 15) * host_lines as usize / 1000;
            assert!(nr.abs_diff(expected) <= expected / 100, "{host_lines}: {nr}");
        }
        assert_eq!(nr_lines(&HostPlaces::new(3, None), 1 << 15, 0), 1 << 12);
    }

    #[test]
    fn neighbours_share_a_line_only_inside_a_folio() {
        let places = HostPlaces::new(3, Some(400));
        let line = |pfn, order| places.line(pfn, Order::new(order));
        assert_ne!(line(8, 0), line(9, 0));
        assert_eq!(line(8, 2), line(11, 2));
        assert_ne!(line(8, 2), line(12, 2));
        assert_eq!(line(8, 3), line(15, 3));
        assert_eq!(line(8, 3), line(8, 9));
        assert_ne!(places.line_of_table(0, 1), places.line_of_table(0, 2));
    }

    #[test]
    fn larger_folios_take_fewer_lines() {
        let places = HostPlaces::new(3, Some(640));
        let nr: Vec<usize> = (0..5).map(|order| nr_lines(&places, 1 << 15, order)).collect();
        assert!(nr[0] > nr[1] && nr[1] > nr[2] && nr[2] > nr[3], "{nr:?}");
        assert_eq!(nr[3..], [4096, 4096]);
    }
}

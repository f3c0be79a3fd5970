//! Splits private memory into pieces that were each mapped by one call.
//!
//! ```text
//!   requests to glibc's malloc    | 9 MiB |  3 MiB | 400 KiB | 400 KiB |
//!   the kernel's one mapping      |____________________________________|
//!   blocks that can be large        |  |  |   |
//! ```
//!
//! glibc's malloc maps each large request, and the kernel merges neighbours into one mapping. A
//! block across a border was not whole when its first page was touched, so no setting or advice
//! makes it large the next time the program starts; `MADV_COLLAPSE` does.
//!
//! Owns the borders, found by malloc's headers. Only present memory is read. Invariant P1: pieces
//! ascend, are not empty, and cover the mapping.

use std::ops::Range;

use super::contents::Words;
use crate::proc::maps::Vma;

/// At most this many pages are read per mapping: about 50 ms.
const PAGES_MAX: u64 = 1 << 15;
/// How many pages are searched for the next header.
const SOUGHT_MAX: u64 = 1 << 14;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct HeapPiece {
    pub(super) range: Range<u64>,
    pub(super) is_chunk: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Pieces {
    list: Vec<HeapPiece>,
    is_known: bool,
}

impl Pieces {
    pub(super) fn whole(vma: &Vma) -> Self {
        Self {
            list: vec![HeapPiece { range: vma.range.clone(), is_chunk: false }],
            is_known: false,
        }
    }

    pub(super) fn find(vma: &Vma, page_bytes: u64, mut start: impl FnMut(u64) -> Words<2>) -> Self {
        let Range { start: mut at, end } = vma.range;
        let (mut list, mut nr_read) = (Vec::new(), 0);
        let mut is_known = false;
        while at < end && nr_read < PAGES_MAX {
            nr_read += 1;
            let first = start(at);
            is_known |= at == vma.range.start && first != Words::Unread;
            let (to, is_chunk) = match chunk(first, end - at, page_bytes) {
                Some(bytes) => (at + bytes, true),
                None => (sought(at, end, page_bytes, &mut nr_read, &mut start), false),
            };
            list.push(HeapPiece { range: at..to, is_chunk });
            at = to;
        }
        if at < end {
            list.push(HeapPiece { range: at..end, is_chunk: false });
        }
        Self { list, is_known }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &HeapPiece> {
        self.list.iter()
    }

    pub(super) const fn has_borders(&self) -> bool {
        self.list.len() > 1
    }

    pub(super) fn longest_chunk(&self) -> Option<u64> {
        let chunks = self.list.iter().filter(|piece| piece.is_chunk);
        let longest = chunks.map(|piece| piece.range.end - piece.range.start).max();
        longest.or(self.is_known.then_some(0))
    }
}

/// Returns a chunk's length if a page starts with its header: a zero word, then the size in pages
/// with only the bit `IS_MMAPPED` (2) set.
fn chunk(start: Words<2>, bytes_max: u64, page_bytes: u64) -> Option<u64> {
    let Words::Read([before, size]) = start else { return None };
    let bytes = size & !7;
    let is_header = before == 0 && size & 7 == 2 && bytes > 0 && bytes.is_multiple_of(page_bytes);
    (is_header && bytes <= bytes_max).then_some(bytes)
}

/// Finds the next chunk after `at` that ends at the mapping's end or at another chunk. Other memory
/// can look like a header by chance.
fn sought(
    at: u64,
    end: u64,
    page_bytes: u64,
    nr_read: &mut u64,
    start: &mut impl FnMut(u64) -> Words<2>,
) -> u64 {
    let last = (at / page_bytes).saturating_add(SOUGHT_MAX).min(end / page_bytes);
    for page in at / page_bytes + 1..last {
        let address = page * page_bytes;
        *nr_read += 1;
        if *nr_read > PAGES_MAX {
            break;
        }
        let Some(bytes) = chunk(start(address), end - address, page_bytes) else { continue };
        let next = address + bytes;
        if next == end || chunk(start(next), end - next, page_bytes).is_some() {
            return address;
        }
    }
    end
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    const PAGE: u64 = 4096;

    fn vma(bytes: u64) -> Vma {
        let start = 0x7f00_0000_3000;
        Vma { range: start..start + bytes, ..Vma::default() }
    }

    fn pieces(vma: &Vma, words: &BTreeMap<u64, [u64; 2]>) -> Vec<(u64, bool)> {
        let all = Pieces::find(vma, PAGE, |address| {
            assert!(vma.range.contains(&address) && address.is_multiple_of(PAGE));
            words.get(&address).map_or(Words::Empty, |words| Words::Read(*words))
        });
        all.iter().map(|one| ((one.range.end - one.range.start) / PAGE, one.is_chunk)).collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        /// malloc places chunks above all earlier mappings.
        #[test]
        fn each_request_is_a_piece_and_what_lies_below_is_one(
            below in 0..300_u64,
            chunks in prop::collection::vec(1..900_u64, 0..20),
            odd in prop::collection::vec((1..300_u64, any::<[u64; 2]>()), 0..9),
        ) {
            let nr = below + chunks.iter().sum::<u64>();
            prop_assume!(nr > 0);
            let vma = vma(nr * PAGE);
            let mut words = BTreeMap::new();
            let mut expected = Vec::new();
            expected.extend((below > 0).then_some((below, false)));
            for (page, content) in odd.iter().filter(|(page, _)| *page < below) {
                words.insert(vma.range.start + page * PAGE, *content);
            }
            let mut at = vma.range.start + below * PAGE;
            for nr in chunks {
                words.insert(at, [0, (nr * PAGE) | 2]);
                expected.push((nr, true));
                at += nr * PAGE;
            }
            prop_assert_eq!(pieces(&vma, &words), expected);
        }

        #[test]
        fn pieces_cover_the_mapping_whatever_its_pages_hold(
            nr in 1..70_000_u64,
            words in prop::collection::vec((0..70_000_u64, 0..2_u64, 0..400_u64, 0..8_u64), 0..60),
        ) {
            let vma = vma(nr * PAGE);
            let content = words.iter().filter(|(page, ..)| *page < nr).map(|(page, before, len, bits)| {
                (vma.range.start + page * PAGE, [*before, (len * PAGE) | bits])
            });
            let all = pieces(&vma, &content.collect());
            prop_assert!(all.iter().all(|(nr, _)| *nr > 0));
            prop_assert_eq!(all.iter().map(|(nr, _)| nr).sum::<u64>(), nr);
        }
    }

    #[test]
    fn only_a_size_in_pages_with_the_bit_of_malloc_is_a_header() {
        let (bytes, vma) = (8 << 20, vma(8 << 20));
        let is_chunk = |words: [u64; 2]| {
            pieces(&vma, &BTreeMap::from([(vma.range.start, words)])).first().unwrap().1
        };
        assert!(is_chunk([0, bytes | 2]) && is_chunk([0, PAGE | 2]));
        for other in
            [[0, 0], [0, bytes], [0, bytes | 3], [0, bytes + PAGE + 2], [0, 5002], [1, bytes | 2]]
        {
            assert!(!is_chunk(other), "{other:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_says_nothing_of_malloc() {
        let vma = vma(4 << 20);
        let of = |start: Words<2>| Pieces::find(&vma, PAGE, |_| start).longest_chunk();
        assert_eq!([of(Words::Unread), of(Words::Empty)], [None, Some(0)]);
        assert_eq!(of(Words::Read([0, 4 << 20 | 2])), Some(4 << 20));
    }
}

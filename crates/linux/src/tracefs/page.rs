//! Pages of the kernel's trace ring buffer, as read from `trace_pipe_raw`.
//!
//! ```text
//!   u64 time of the page | u64 bytes committed, flags above | events
//!   event: u32 = type:5 delta:27
//!     type 1..28   4 * type bytes of data      29  padding: rest of the page, or u32 bytes
//!          0       u32 bytes, data             30  u32 more bits of the delta     31  absolute time
//! ```
//!
//! Owns the layout; `format` finds the fields of an event. Invariant P1: no byte is trusted; if a
//! page ends inside an event, decoding stops there.

const HEADER_BYTES: usize = 16;
/// The byte count in the second word; the bits above are flags.
const COMMIT_MASK: u64 = (1 << 27) - 1;
const DELTA_BITS: u32 = 27;
/// Bits of an absolute time in an event; the page's time has the rest.
const STAMP_BITS: u32 = 59;

const PADDING: u32 = 29;
const TIME_EXTEND: u32 = 30;
const TIME_STAMP: u32 = 31;

/// Calls `take` for each event with its time in nanoseconds and its data.
pub(crate) fn events(page: &[u8], take: &mut dyn FnMut(u64, &[u8])) {
    let (Some(mut time), Some(commit)) = (u64_at(page, 0), u64_at(page, 8)) else { return };
    // At most 2^27, which fits.
    let committed = (commit & COMMIT_MASK) as usize;
    let rest = page.get(HEADER_BYTES..).unwrap_or_default();
    let mut rest = rest.get(..committed).unwrap_or(rest);
    while let Some(word) = u32_at(rest, 0) {
        let (kind, delta) = (word & 31, u64::from(word >> 5));
        rest = &rest[4..];
        let second = u32_at(rest, 0);
        let nr_bytes = match (kind, second) {
            (PADDING, _) if delta == 0 => return,
            (TIME_EXTEND, Some(high)) => {
                time = time.wrapping_add(u64::from(high) << DELTA_BITS | delta);
                4
            }
            (TIME_STAMP, Some(high)) => {
                let stamp = u64::from(high) << DELTA_BITS | delta;
                time = time >> STAMP_BITS << STAMP_BITS | stamp;
                4
            }
            (0 | PADDING, Some(nr_bytes)) => nr_bytes as usize,
            (1..PADDING, _) => 4 * kind as usize,
            _ => return,
        };
        let Some(data) = rest.get(..nr_bytes).filter(|_| nr_bytes > 0) else { return };
        match kind {
            0 | 1..PADDING => {
                time = time.wrapping_add(delta);
                take(time, if kind == 0 { data.get(4..).unwrap_or_default() } else { data });
            }
            PADDING => time = time.wrapping_add(delta),
            _ => {}
        }
        // The data's length may not be a multiple of four, but its space is.
        rest = rest.get(nr_bytes.next_multiple_of(4)..).unwrap_or_default();
    }
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at.checked_add(8)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn page(time: u64, words: &[u32]) -> Vec<u8> {
        let commit = (4 * words.len() as u64) | (1 << 31);
        let mut bytes = [time.to_le_bytes(), commit.to_le_bytes()].concat();
        bytes.extend(words.iter().flat_map(|word| word.to_le_bytes()));
        // Bytes after the committed part are old.
        bytes.extend([0xff; 8]);
        bytes
    }

    fn events_of(page: &[u8]) -> Vec<(u64, Vec<u8>)> {
        let mut all = Vec::new();
        events(page, &mut |time, data| all.push((time, data.to_vec())));
        all
    }

    #[test]
    fn times_add_up_and_lengths_have_two_forms() {
        let short = [2 | 5 << 5, 0x0403_0201, 0x0807_0605];
        let long = [7 << 5, 4 + 5, 0x0403_0201, 0x05];
        let extend = [TIME_EXTEND | 1 << 5, 2];
        let skipped = [PADDING | 3 << 5, 8, 0xdead];
        let words = [&short[..], &extend, &skipped, &long, &[PADDING]].concat();
        let later = 100 + 5 + (2 << 27 | 1) + 3 + 7;
        let expected = vec![(105, (1..=8).collect()), (later, (1..=5).collect::<Vec<u8>>())];
        assert_eq!(events_of(&page(100, &words)), expected);
    }

    #[test]
    fn an_absolute_time_keeps_the_top_bits_of_the_page() {
        let words = [TIME_STAMP | 9 << 5, 1, 1, 0xaa];
        assert_eq!(events_of(&page(1 << 60 | 5, &words))[0].0, 1 << 60 | 1 << 27 | 9);
    }

    proptest! {
        #[test]
        fn no_page_is_read_past_its_end(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let mut nr_bytes = 0;
            events(&bytes, &mut |_, data| nr_bytes += data.len() + 4);
            prop_assert!(nr_bytes <= bytes.len());
        }
    }
}

//! Tracks which 4 KiB pieces of files the program used, for any base page size.
//!
//! The bytes that a kernel *reads* depend on its rules; the bytes that a program *uses* do not.
//! Their ratio is the read amplification.

use std::collections::BTreeMap;

use largefolio_trace::FileId;

use super::place::RECORDED_SHIFT;

/// One bit per 4 KiB of each file. Memory grows with the pieces used, not with the files' sizes.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    /// 64 pieces, by file and the first piece's number / 64.
    words: BTreeMap<(FileId, u64), u64>,
    nr_pieces: u64,
}

impl Touched {
    /// Marks the pieces of `[pos, pos + len)`, cut to `size`. Returns the words visited: the work
    /// done.
    pub(super) fn mark(&mut self, file: FileId, pos: u64, len: u64, size: u64) -> usize {
        let end = pos.saturating_add(len).min(size);
        if pos >= end {
            return 0;
        }
        let (first, last) = (pos >> RECORDED_SHIFT, (end - 1) >> RECORDED_SHIFT);
        let mut nr_words = 0;
        for number in first / 64..=last / 64 {
            let from = first.max(number * 64) % 64;
            let to = last.min(number * 64 + 63) % 64;
            let bits = (u64::MAX >> (63 - (to - from))) << from;
            let word = self.words.entry((file, number)).or_default();
            self.nr_pieces += u64::from((bits & !*word).count_ones());
            *word |= bits;
            nr_words += 1;
        }
        nr_words
    }

    pub(super) fn nr_words(&self) -> usize {
        self.words.len()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.nr_pieces << RECORDED_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD_BYTES: u64 = 64 << RECORDED_SHIFT;

    #[test]
    fn a_piece_counts_once_and_only_inside_the_file() {
        let mut touched = Touched::default();
        touched.mark(0, 4000, 200, 1 << 20);
        touched.mark(0, 0, 10, 1 << 20);
        touched.mark(1, 8192, 100_000, 10_000);
        touched.mark(1, 20_000, 1, 10_000);
        assert_eq!(touched.bytes(), 3 * 4096);
    }

    #[test]
    fn words_are_counted_each_time_they_are_visited() {
        let mut touched = Touched::default();
        assert_eq!(touched.mark(0, 4096, 4 * WORD_BYTES, 1 << 40), 5);
        assert_eq!(touched.mark(0, 4096, 4 * WORD_BYTES, 1 << 40), 5);
        assert_eq!(touched.mark(0, 8192, 0, 1 << 40), 0);
        assert_eq!(touched.nr_words(), 5);
    }
}

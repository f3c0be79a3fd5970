//! Which 4 KiB pieces of files the program used, whatever the base page is.
//!
//! The bytes a kernel *reads* depend on its rules; the bytes a program *uses* do not. Their ratio
//! is the read amplification.

/// Granularity in bytes: that of the trace.
const PIECE_SHIFT: u32 = 12;

/// One bit per 4 KiB of each file.
#[derive(Clone, Debug, Default)]
pub(super) struct Touched {
    files: Vec<Vec<u64>>,
    nr_pieces: u64,
}

impl Touched {
    /// Nothing used yet of files with these sizes in bytes.
    pub(super) fn new(nr_files: usize) -> Self {
        Self { files: vec![Vec::new(); nr_files], nr_pieces: 0 }
    }

    /// Marks the pieces of bytes `[pos, pos + len)`, cut to the file's `size` in bytes.
    pub(super) fn mark(&mut self, file: u32, (pos, len): (u64, u64), size: u64) {
        let end = pos.saturating_add(len).min(size);
        if pos >= end {
            return;
        }
        let Some(bits) = self.files.get_mut(file as usize) else { return };
        for piece in pos >> PIECE_SHIFT..=(end - 1) >> PIECE_SHIFT {
            let (word, bit) = ((piece / 64) as usize, 1 << (piece % 64));
            if word >= bits.len() {
                bits.resize(word + 1, 0);
            }
            self.nr_pieces += u64::from(bits[word] & bit == 0);
            bits[word] |= bit;
        }
    }

    /// Bytes of all pieces used.
    pub(super) fn bytes(&self) -> u64 {
        self.nr_pieces << PIECE_SHIFT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_piece_counts_once_and_only_inside_the_file() {
        let mut touched = Touched::new(2);
        touched.mark(0, (4000, 200), 1 << 20);
        touched.mark(0, (0, 10), 1 << 20);
        touched.mark(1, (8192, 100_000), 10_000);
        touched.mark(1, (20_000, 1), 10_000);
        touched.mark(7, (0, 1), 10_000);
        assert_eq!(touched.bytes(), 3 * 4096);
    }
}

//! Options for how much of a reading is shown.

use crate::prose::hanging;

use super::group::Sort;

const JUDGED_OF_ROW: usize = 8;
/// Characters per line for the columns next to a name.
const BESIDE: usize = 68;
/// Memory below this needs no reason, nor does memory below 1% of all: two 2M folios.
const LEAST_BYTES: u64 = 4 << 20;
pub(super) const NAME_MIN: usize = 24;

/// Minimum number of characters of prose per line.
const PROSE_MIN: usize = 20;

#[derive(Clone, Copy, Debug)]
pub struct Show {
    pub nr_rows: usize,
    pub sort: Sort,
    pub width: usize,
    /// Characters per line of prose; `None` for files, which have no limit.
    pub prose: Option<usize>,
    pub is_full: bool,
}

impl Show {
    /// Returns the number of mappings to judge: more than are shown, since they are grouped by
    /// file.
    #[must_use]
    pub const fn nr_judged(self) -> usize {
        self.nr_rows.saturating_mul(JUDGED_OF_ROW)
    }

    /// Returns the smallest part of `all_bytes` that needs reasons and remedies.
    pub(super) fn least_bytes(self, all_bytes: u64) -> u64 {
        if self.is_full { 0 } else { LEAST_BYTES.max(all_bytes / 100) }
    }

    pub(super) fn add(self, text: &mut String, first: &str, prose: &str) {
        let width = self.prose.unwrap_or(usize::MAX);
        for line in hanging(first, prose, width, PROSE_MIN) {
            text.push_str(&line);
            text.push('\n');
        }
    }

    pub(super) fn name_chars(self) -> usize {
        self.width.saturating_sub(BESIDE).max(NAME_MIN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prose_fits_a_narrow_terminal_and_is_one_line_in_a_file() {
        let prose =
            "cost: each block is copied once; if the program forks, the next write splits it";
        let written = |prose_width| {
            let show = Show {
                nr_rows: 9,
                sort: Sort::Size,
                width: 60,
                prose: prose_width,
                is_full: false,
            };
            let mut text = String::new();
            show.add(&mut text, "        -> ", prose);
            text
        };
        let narrow = written(Some(60));
        assert!(narrow.lines().count() == 2 && narrow.lines().all(|line| line.len() <= 60));
        assert!(narrow.contains("\n           "), "{narrow}");
        let joined: Vec<&str> = narrow.split_whitespace().skip(1).collect();
        assert_eq!(joined.join(" "), prose);
        assert_eq!(written(None), format!("        -> {prose}\n"));
        assert!(written(Some(1)).lines().all(|line| line.len() <= 11 + PROSE_MIN));
    }
}

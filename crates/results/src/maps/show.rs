//! How much of a look is shown.

use largefolio_report::prose::hanging;

use super::group::Sort;

/// Mappings that are judged for a row.
const JUDGED_OF_ROW: usize = 8;
/// Characters of a line that the columns beside a name take.
const BESIDE: usize = 68;
/// Memory that is not worth a reason below it, and 1% of all: two blocks of 2M.
const LEAST_BYTES: u64 = 4 << 20;
/// Characters a name gets at least.
pub(super) const NAME_MIN: usize = 24;

/// Characters of prose in a line at least.
const PROSE_MIN: usize = 20;

/// How much is shown, in which order.
#[derive(Clone, Copy, Debug)]
pub struct Show {
    /// Rows of each table.
    pub nr_rows: usize,
    /// Their order.
    pub sort: Sort,
    /// Characters of a line.
    pub width: usize,
    /// Characters of a line of prose; a file has as long ones as there are.
    pub prose: Option<usize>,
    /// Reasons and remedies of small mappings too.
    pub is_full: bool,
}

impl Show {
    /// Mappings that are judged: more than are shown, since they are grouped by file.
    #[must_use]
    pub const fn nr_judged(self) -> usize {
        self.nr_rows.saturating_mul(JUDGED_OF_ROW)
    }

    /// Least memory that is worth reasons and remedies, of `all_bytes`.
    pub(super) fn least_bytes(self, all_bytes: u64) -> u64 {
        if self.is_full { 0 } else { LEAST_BYTES.max(all_bytes / 100) }
    }

    /// Adds `prose` after `first`; further lines begin below it. Words are not broken.
    pub(super) fn add(self, text: &mut String, first: &str, prose: &str) {
        let width = self.prose.unwrap_or(usize::MAX);
        for line in hanging(first, prose, width, PROSE_MIN) {
            text.push_str(&line);
            text.push('\n');
        }
    }

    /// Characters of a name beside the columns of a table.
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

//! What processes became: the footer's tables of executions and images.
//!
//! Owns that nothing is in them twice, and what is left out where they end.

use std::collections::HashMap;
use std::hash::Hash;

use largefolio_trace::validate::{META_BYTES_MAX, NR_EXECS_MAX, NR_IMAGES_MAX};
use largefolio_trace::{Execution, Image};
use serde::Serialize;

use super::files::json_bytes;

/// Bytes of a command that an execution keeps, with one between words.
pub(super) const COMMAND_BYTES_MAX: usize = 160;

/// What images, and executions with their commands, may take in the footer: a quarter of it each.
const TABLE_BYTES_MAX: usize = META_BYTES_MAX / 4;

/// Executions with a command of their own. The rows left are for images whose commands are left out.
const NR_NAMED_MAX: usize = NR_EXECS_MAX - NR_IMAGES_MAX;

/// The tables.
#[derive(Debug, Default)]
pub(crate) struct Executions {
    /// As in the footer.
    pub(crate) execs: Vec<Execution>,
    /// As in the footer.
    pub(crate) images: Vec<Image>,
    /// Rows that name them.
    pub(crate) nr: u64,
    known_execs: Known<Execution>,
    known_images: Known<Image>,
}

/// Rows of a table by what they are, and what they take in the footer.
#[derive(Debug)]
struct Known<T> {
    rows: HashMap<T, u32>,
    table_bytes: usize,
}

/// What a table may have at most.
#[derive(Clone, Copy, Debug)]
struct Room {
    nr_rows: usize,
    table_bytes: usize,
}

impl<T> Default for Known<T> {
    fn default() -> Self {
        Self { rows: HashMap::new(), table_bytes: 0 }
    }
}

impl Executions {
    /// Row of an execution; `None` if there is no room for its image.
    pub(crate) fn add(&mut self, command: Vec<String>, image: Image) -> Option<u32> {
        let of_images = Room { nr_rows: NR_IMAGES_MAX, table_bytes: TABLE_BYTES_MAX };
        let image = row_of(&mut self.images, &mut self.known_images, image, of_images)?;
        let (execs, known) = (&mut self.execs, &mut self.known_execs);
        let named = Execution { command: cut(command), image };
        let of_named = Room { nr_rows: NR_NAMED_MAX, table_bytes: TABLE_BYTES_MAX };
        let row = row_of(execs, known, named, of_named).or_else(|| {
            // There are no more of them than images.
            let of_all = Room { nr_rows: NR_EXECS_MAX, table_bytes: META_BYTES_MAX };
            row_of(execs, known, Execution { command: Vec::new(), image }, of_all)
        })?;
        self.nr += 1;
        Some(row)
    }
}

/// The row of `value` in `table`, a new one if there is room for it.
fn row_of<T: Clone + Eq + Hash + Serialize>(
    table: &mut Vec<T>,
    known: &mut Known<T>,
    value: T,
    room: Room,
) -> Option<u32> {
    if let Some(&row) = known.rows.get(&value) {
        return Some(row);
    }
    let row = u32::try_from(table.len()).ok().filter(|_| table.len() < room.nr_rows)?;
    let bytes = known.table_bytes.saturating_add(json_bytes(&value));
    if bytes > room.table_bytes {
        return None;
    }
    known.table_bytes = bytes;
    known.rows.insert(value.clone(), row);
    table.push(value);
    Some(row)
}

/// The first words of a command; dots stand for what is left out.
fn cut(command: Vec<String>) -> Vec<String> {
    let mut nr_left = COMMAND_BYTES_MAX;
    let mut words = Vec::new();
    for word in command {
        if word.len() > nr_left {
            let end = word.floor_char_boundary(nr_left);
            words.push(format!("{}...", &word[..end]));
            break;
        }
        nr_left = nr_left.saturating_sub(word.len() + 1);
        words.push(word);
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(brk: u64) -> Image {
        Image { layout: Vec::new(), brk }
    }

    #[test]
    fn an_execution_is_kept_once_and_its_command_cut() {
        let mut executions = Executions::default();
        let command = |word: &str| vec!["cc".to_owned(), word.to_owned()];
        assert_eq!(executions.add(command("a"), image(1)), Some(0));
        assert_eq!(executions.add(command("b"), image(1)), Some(1));
        assert_eq!(executions.add(command("a"), image(1)), Some(0));
        assert_eq!(executions.add(command("a"), image(2)), Some(2));
        assert_eq!(executions.add(command(&"é".repeat(200)), image(2)), Some(3));
        assert_eq!(executions.execs[3].command[1], format!("{}...", "é".repeat(78)));
        assert_eq!((executions.images.len(), executions.nr), (2, 5));
    }

    #[test]
    fn full_tables_leave_commands_out_and_refuse_images() {
        let mut executions = Executions::default();
        for nr in 0..NR_EXECS_MAX as u64 {
            assert!(executions.add(vec![nr.to_string()], image(nr % 3)).is_some());
        }
        let row = executions.add(vec!["another".to_owned()], image(1)).expect("a row");
        assert!(executions.execs[row as usize].command.is_empty());
        for nr in 3..NR_IMAGES_MAX as u64 {
            assert!(executions.add(vec!["x".to_owned()], image(nr)).is_some());
        }
        assert_eq!(executions.add(vec!["x".to_owned()], image(u64::MAX)), None);
        assert!(executions.execs.len() <= NR_EXECS_MAX);
    }
}

//! The footer's tables of executions and images.
//!
//! Ensures that no row occurs twice, and chooses the rows to drop if a table is full.

use std::collections::HashMap;
use std::hash::Hash;

use largefolio_trace::validate::{META_BYTES_MAX, NR_EXECS_MAX, NR_IMAGES_MAX};
use largefolio_trace::{Execution, Image};
use serde::Serialize;

use super::files::json_bytes;

/// Bytes of a command that an execution keeps, with one separator between words.
pub(super) const COMMAND_BYTES_MAX: usize = 160;

/// The footer space for images, and for executions with their commands: a quarter each.
const TABLE_BYTES_MAX: usize = META_BYTES_MAX / 4;

/// At most this many executions keep their command. The other rows are for images without one.
const NR_NAMED_MAX: usize = NR_EXECS_MAX - NR_IMAGES_MAX;

#[derive(Debug, Default)]
pub(crate) struct Executions {
    pub(crate) execs: Vec<Execution>,
    /// Both tables as in the footer.
    pub(crate) images: Vec<Image>,
    /// How many events refer to them.
    pub(crate) nr: u64,
    known_execs: Known<Execution>,
    known_images: Known<Image>,
}

#[derive(Debug)]
struct Known<T> {
    rows: HashMap<T, u32>,
    table_bytes: usize,
}

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
    pub(crate) fn add(&mut self, command: Vec<String>, image: Image) -> Option<u32> {
        let of_images = Room { nr_rows: NR_IMAGES_MAX, table_bytes: TABLE_BYTES_MAX };
        let image = row_of(&mut self.images, &mut self.known_images, image, of_images)?;
        let (execs, known) = (&mut self.execs, &mut self.known_execs);
        let named = Execution { command: cut(command), image };
        let of_named = Room { nr_rows: NR_NAMED_MAX, table_bytes: TABLE_BYTES_MAX };
        let row = row_of(execs, known, named, of_named).or_else(|| {
            // At most one per image.
            let of_all = Room { nr_rows: NR_EXECS_MAX, table_bytes: META_BYTES_MAX };
            row_of(execs, known, Execution { command: Vec::new(), image }, of_all)
        })?;
        self.nr += 1;
        Some(row)
    }
}

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

fn cut(command: Vec<String>) -> Vec<String> {
    let mut nr_left = COMMAND_BYTES_MAX;
    let mut arguments = Vec::new();
    for word in command {
        if word.len() > nr_left {
            let end = word.floor_char_boundary(nr_left);
            arguments.push(format!("{}...", &word[..end]));
            break;
        }
        nr_left = nr_left.saturating_sub(word.len() + 1);
        arguments.push(word);
    }
    arguments
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

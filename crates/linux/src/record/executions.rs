//! What processes became: the footer's tables of executions and images.
//!
//! Owns that nothing is in them twice, and what is left out where they end.

use std::collections::HashMap;
use std::hash::Hash;

use largefolio_trace::validate::{NR_EXECS_MAX, NR_IMAGES_MAX};
use largefolio_trace::{Execution, Image};

/// Bytes of a command that an execution keeps.
const COMMAND_BYTES_MAX: usize = 160;

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
    known_execs: HashMap<Execution, u32>,
    known_images: HashMap<Image, u32>,
}

impl Executions {
    /// Row of an execution; `None` if there is no room for its image.
    pub(crate) fn add(&mut self, command: Vec<String>, image: Image) -> Option<u32> {
        let image = row_of(&mut self.images, &mut self.known_images, image, NR_IMAGES_MAX)?;
        let (execs, known) = (&mut self.execs, &mut self.known_execs);
        let named = Execution { command: cut(command), image };
        let row = match row_of(execs, known, named, NR_NAMED_MAX) {
            Some(row) => row,
            None => row_of(execs, known, Execution { command: Vec::new(), image }, NR_EXECS_MAX)?,
        };
        self.nr += 1;
        Some(row)
    }
}

/// The row of `value` in `table`, a new one if there are fewer than `nr_max`.
fn row_of<T: Clone + Eq + Hash>(
    table: &mut Vec<T>,
    known: &mut HashMap<T, u32>,
    value: T,
    nr_max: usize,
) -> Option<u32> {
    if let Some(&row) = known.get(&value) {
        return Some(row);
    }
    let row = u32::try_from(table.len()).ok().filter(|_| table.len() < nr_max)?;
    known.insert(value.clone(), row);
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
        nr_left -= word.len();
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
        assert_eq!(executions.execs[3].command[1], format!("{}...", "é".repeat(79)));
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

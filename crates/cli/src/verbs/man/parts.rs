//! The parts of a help text: examples, exit status, and the rest.
//!
//! The text below the options in `--help` is the only source: a manual page adds nothing to it.

/// The text below the options.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Parts {
    /// Lines of the examples, without their common indentation.
    pub(super) examples: Vec<String>,
    /// The meaning of the exit status, one paragraph.
    pub(super) exit_status: Option<String>,
    pub(super) notes: Vec<String>,
}

const EXAMPLES: &str = "Examples:";
const EXIT_STATUS: &str = "Exit status";

impl Parts {
    pub(super) fn of(text: &str) -> Self {
        let mut parts = Self::default();
        for paragraph in text.split("\n\n") {
            match paragraph.trim_start_matches('\n').strip_prefix(EXAMPLES) {
                Some(lines) => {
                    let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty());
                    parts.examples.extend(lines.map(str::to_owned));
                }
                None => parts.add(&joined(paragraph)),
            }
        }
        parts
    }

    fn add(&mut self, paragraph: &str) {
        let at = paragraph.find(EXIT_STATUS).unwrap_or(paragraph.len());
        let (note, status) = paragraph.split_at(at);
        if !note.trim().is_empty() {
            self.notes.push(note.trim().to_owned());
        }
        if let Some(status) = status.strip_prefix(EXIT_STATUS) {
            self.exit_status = Some(capitalised(status.trim_start_matches([':', ' '])));
        }
    }
}

pub(super) fn joined(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_has_examples_notes_and_an_exit_status() {
        let parts = Parts::of(
            "Examples:\n  folio x            why\n  folio y\n\nNeeds\nroot.\n\nExit status: that of\nit.",
        );
        assert_eq!(parts.examples, ["folio x            why", "folio y"]);
        assert_eq!(parts.notes, ["Needs root."]);
        assert_eq!(parts.exit_status.as_deref(), Some("That of it."));
    }

    #[test]
    fn an_exit_status_ends_a_paragraph() {
        let parts = Parts::of("Old values: there. Exit status of --undo: 1 if one was left.");
        assert_eq!(parts.notes, ["Old values: there."]);
        assert_eq!(parts.exit_status.as_deref(), Some("Of --undo: 1 if one was left."));
    }

    #[test]
    fn nothing_has_no_parts() {
        assert_eq!(Parts::of(""), Parts::default());
    }
}

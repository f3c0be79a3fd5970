//! A setting as shown in its file.

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Choice {
    pub value: String,
    /// The options; empty for a number.
    pub choices: Vec<String>,
}

impl Choice {
    /// Parses `always [madvise] never`, or a number.
    pub(crate) fn parse(text: &str) -> Self {
        let text = text.trim();
        let choices: Vec<&str> = text.split_whitespace().collect();
        let chosen = choices.iter().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'));
        let Some(chosen) = chosen else {
            return Self { value: text.to_owned(), choices: Vec::new() };
        };
        let plain = |word: &&str| word.trim_matches(['[', ']']).to_owned();
        Self { value: chosen.to_owned(), choices: choices.iter().map(plain).collect() }
    }

    pub(crate) fn shown_with(&self, value: &str) -> String {
        if self.choices.is_empty() {
            return value.to_owned();
        }
        let shown = |word: &String| if word == value { format!("[{word}]") } else { word.clone() };
        self.choices.iter().map(shown).collect::<Vec<_>>().join(" ")
    }
}

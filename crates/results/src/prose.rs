//! Wraps prose into lines.

use largefolio_trace::shown::printable;

/// Wraps `text` into lines of at most `width` characters, unless a word is longer, and indents all
/// lines but the first. Removes control characters, which a trace may contain.
#[must_use]
pub fn wrapped(text: &str, width: usize, indent: usize) -> String {
    let text = printable(text);
    let mut lines = vec![String::new()];
    // State of the last line. It is kept rather than recomputed for each word: a text may have
    // megabytes of spaces in one line.
    let (mut nr_chars, mut is_blank) = (0, true);
    for word in text.split(' ') {
        let Some(line) = lines.last_mut() else { unreachable!("there is a first line") };
        let word_chars = word.chars().count();
        let is_word_blank = word.trim().is_empty();
        if !is_blank && nr_chars + 1 + word_chars > width {
            lines.push(format!("{}{word}", " ".repeat(indent)));
            (nr_chars, is_blank) = (indent + word_chars, is_word_blank);
            continue;
        }
        if !line.is_empty() {
            line.push(' ');
            nr_chars += 1;
        }
        line.push_str(word);
        nr_chars += word_chars;
        is_blank &= is_word_blank;
    }
    lines.join("\n")
}

/// Writes `first` and then `prose` in lines of at most `width` characters, unless a word is longer.
/// Further lines align with the first word of `prose`, which always gets at least `prose_min`
/// characters per line.
#[must_use]
pub fn hanging(first: &str, prose: &str, width: usize, prose_min: usize) -> Vec<String> {
    let indent = first.chars().count();
    let prose = wrapped(prose, width.saturating_sub(indent).max(prose_min), 0);
    let begin = |nr: usize| if nr == 0 { first.to_owned() } else { " ".repeat(indent) };
    prose.split('\n').enumerate().map(|(nr, line)| format!("{}{line}", begin(nr))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_go_on_indented_lines() {
        assert_eq!(wrapped("one two three", 8, 2), "one two\n  three");
        assert_eq!(wrapped("  one two", 6, 2), "one\n  two");
        assert_eq!(wrapped("a_long_word b", 4, 2), "a_long_word\n  b");
    }

    #[test]
    fn megabytes_of_spaces_are_read_once() {
        // Rescanning the line for each space would take hours.
        let text = format!("{}{}b", "a".repeat(150), " ".repeat(4 << 20));
        let lines = wrapped(&text, 100, 4);
        assert_eq!(lines.lines().map(str::len).collect::<Vec<_>>(), [150, (4 << 20) + 4]);
    }

    #[test]
    fn prose_stands_beside_what_it_begins_with() {
        assert_eq!(hanging("  -> ", "one two three", 12, 2), ["  -> one two", "     three"]);
        assert_eq!(hanging("  -> ", "one two", 1, 7), ["  -> one two"]);
        assert_eq!(hanging("x ", "", 9, 2), ["x "]);
    }
}

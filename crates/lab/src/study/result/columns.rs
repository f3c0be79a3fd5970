//! Formats numbers, columns and prose of findings.

use std::fmt::Write as _;

const WIDTH: usize = 110;

pub(super) fn signed(change: f64) -> String {
    match change {
        0.0 => "0".to_owned(),
        small if small.abs() < 0.05 => format!("{change:+.2}"),
        large if large.abs() >= 1000.0 => format!("{change:+.0}"),
        _ => format!("{change:+.1}"),
    }
}

pub(super) fn number(value: f64, unit: &str) -> String {
    let shown = match value.abs() {
        large if large >= 1000.0 => grouped(value),
        _ if value.fract() == 0.0 => format!("{value}"),
        large if large >= 100.0 => format!("{value:.0}"),
        middle if middle >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    };
    match unit {
        "" => shown,
        "%" => shown + "%",
        unit => format!("{shown} {unit}"),
    }
}

fn grouped(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut shown = String::new();
    for (nr, digit) in digits.chars().enumerate() {
        if nr > 0 && (digits.len() - nr).is_multiple_of(3) {
            shown.push(',');
        }
        shown.push(digit);
    }
    if value < 0.0 { format!("-{shown}") } else { shown }
}

pub(super) fn columns(text: &mut String, indent: &str, lines: &[Vec<String>]) {
    let nr_columns = lines.first().map_or(0, Vec::len);
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max();
    let widths: Vec<usize> = (0..nr_columns).filter_map(width).collect();
    for line in lines {
        let mut shown = indent.to_owned();
        for (cell, width) in line.iter().zip(&widths) {
            let _ = write!(shown, " {cell:>width$} ");
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
}

pub(super) fn wrapped(text: &mut String, indent: &str, prose: &str) {
    let mut line = indent.to_owned();
    for word in prose.split_whitespace() {
        let is_full = line.chars().count() + word.chars().count() > WIDTH;
        if is_full && line.trim() != "" {
            let _ = writeln!(text, "{}", line.trim_end());
            line = format!("{indent}    ");
        }
        line.push_str(word);
        line.push(' ');
    }
    let _ = writeln!(text, "{}", line.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short_and_changes_have_a_sign() {
        assert_eq!(number(598_995_035_942.0, ""), "598,995,035,942");
        assert_eq!(
            [number(46.0, "%"), number(0.854, "%"), number(11.82, "GB/s")],
            ["46%", "0.85%", "11.8 GB/s"]
        );
        assert_eq!([signed(0.0), signed(-73.0), signed(0.01)], ["0", "-73.0", "+0.01"]);
    }

    #[test]
    fn prose_is_wrapped_between_words() {
        let mut text = String::new();
        wrapped(&mut text, "  ", &"word ".repeat(60));
        assert!(text.lines().count() > 2 && text.lines().all(|line| line.len() <= WIDTH), "{text}");
    }
}

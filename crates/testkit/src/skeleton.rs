//! A page reduced for golden tests: structure and words, without drawings and digits.

#[must_use]
pub fn between<'a>(text: &'a str, start: &str, end: &str) -> Vec<&'a str> {
    let parts = text.split(start).skip(1);
    parts.map(|part| part.split(end).next().unwrap_or_default()).collect()
}

/// The page without style, scripts, data, numbers and drawings, one line per element.
#[must_use]
pub fn skeleton(page: &str) -> String {
    let mut text = page.to_owned();
    for (start, end) in [
        ("<style>", "</style>"),
        ("<script>", "</script>"),
        ("id=\"result\">", "</script>"),
        (" d=\"", "\""),
        ("data-tip=\"", "\""),
    ] {
        for part in between(page, start, end) {
            text = text.replace(&format!("{start}{part}{end}"), &format!("{start}{end}"));
        }
    }
    for part in ["<tr", "<section", "<figure", "<div", "<h3", "<li", "<p", "<td", "<svg"] {
        text = text.replace(part, &format!("\n{part}"));
    }
    let mut lines: Vec<String> = Vec::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        let mut shown = String::new();
        for c in line.chars() {
            let c = if c.is_ascii_digit() { '0' } else { c };
            if c != '0' || !shown.ends_with(['0', '.', ',']) {
                shown.push(c);
            }
        }
        if lines.last() != Some(&shown) {
            lines.push(shown);
        }
    }
    lines.join("\n")
}

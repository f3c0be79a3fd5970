//! Turns text into HTML; text from a trace is always escaped.
//!
//! Invariants:
//! - I1: text reaches a page only through [`escaped`], or through [`script_json`] as data.
//! - I2: escaped text contains no character that ends an element or an attribute, no control
//!   character and no bidirectional control.

use largefolio_trace::shown::is_printable;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Markup(String);

impl Markup {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds HTML unchanged: only HTML written by this crate, or [`escaped`] text.
    pub fn raw(&mut self, html: &str) -> &mut Self {
        self.0.push_str(html);
        self
    }

    pub fn text(&mut self, text: &str) -> &mut Self {
        self.raw(&escaped(text))
    }

    /// Adds an element with text; `head` is the element's name with its attributes.
    pub fn element(&mut self, head: &str, text: &str) -> &mut Self {
        let name = head.split(' ').next().unwrap_or(head);
        self.raw(&format!("<{head}>")).text(text).raw(&format!("</{name}>"))
    }

    pub fn number(&mut self, at: &str, value: impl std::fmt::Display, shown: &str) -> &mut Self {
        let head = format!("data value=\"{value}\" data-at=\"{}\"", escaped(at));
        self.element(&head, shown)
    }

    pub fn append(&mut self, other: &Self) -> &mut Self {
        self.raw(&other.0)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Escapes `text` for an element or a quoted attribute (I2).
#[must_use]
pub fn escaped(text: &str) -> String {
    let mut html = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => html.push_str("&lt;"),
            '>' => html.push_str("&gt;"),
            '&' => html.push_str("&amp;"),
            '"' => html.push_str("&quot;"),
            '\'' => html.push_str("&#39;"),
            c if !is_printable(c) => html.push('\u{fffd}'),
            c => html.push(c),
        }
    }
    html
}

/// Escapes JSON for a script element, which `</` would end and `<!--` would change. In JSON these
/// characters occur only within strings, so they can be written as `\u` escapes.
#[must_use]
pub fn script_json(json: &str) -> String {
    let mut text = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' => {
                text.push_str(&escape_of(c));
            }
            c => text.push(c),
        }
    }
    text
}

fn escape_of(c: char) -> String {
    format!("\\u{:04x}", u32::from(c))
}

#[must_use]
pub fn pointer_part(text: &str) -> String {
    text.replace('~', "~0").replace('/', "~1")
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOSTILE: &str = "</script><!--\"'&\u{1b}\u{202e}\u{2028}";

    #[test]
    fn nothing_ends_an_element_or_an_attribute() {
        let shown = escaped(HOSTILE);
        assert_eq!(shown, "&lt;/script&gt;&lt;!--&quot;&#39;&amp;\u{fffd}\u{fffd}\u{fffd}");
    }

    #[test]
    fn nothing_ends_a_script_and_the_data_stay_what_they_are() -> Result<(), serde_json::Error> {
        let json = serde_json::to_string(HOSTILE)?;
        let text = script_json(&json);
        assert!(!text.contains(['<', '>', '&', '\u{2028}']), "{text}");
        assert_eq!(serde_json::from_str::<String>(&text)?, HOSTILE);
        Ok(())
    }

    #[test]
    fn an_element_ends_as_it_began() {
        let mut markup = Markup::new();
        markup.element("b class=\"x\"", "1 < 2").number("/rows/0", 3, "3");
        let expected = "<b class=\"x\">1 &lt; 2</b><data value=\"3\" data-at=\"/rows/0\">3</data>";
        assert_eq!(markup.as_str(), expected);
    }
}

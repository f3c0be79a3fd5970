//! The frame of a one-file page: head, navigation, sections, data. It fits any result.
//!
//! Invariants:
//! - I1: the page names nothing outside itself, and its policy forbids the browser to load anything.
//! - I2: everything can be read without scripts; the script only adds pointing, zoom and the choice
//!   of light or dark.

use std::borrow::Cow;

use super::markup::{Markup, escaped, script_json};

/// Style of every page.
const CSS: &str = include_str!("../../assets/report.css");
/// Script of every page.
const JS: &str = include_str!("../../assets/report.js");

/// What the browser may do: apply the style and run the script that are in the page, and save the
/// data.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

/// What the numbers of a section are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Counted exactly in the model.
    Counted,
    /// Counts times the costs of a machine file.
    Estimated,
    /// Read or timed on the running kernel.
    Measured,
    /// About the page itself, or each number says it.
    None,
}

/// A part of a page.
#[derive(Clone, Debug)]
pub struct Section {
    /// Its anchor: letters and hyphens.
    pub id: Cow<'static, str>,
    /// Its title.
    pub title: Cow<'static, str>,
    /// What it answers, in a sentence.
    pub lead: String,
    /// What its numbers are.
    pub basis: Basis,
    /// What it shows.
    pub body: Markup,
}

/// A page.
#[derive(Clone, Debug)]
pub struct Page {
    /// What it is about.
    pub title: String,
    /// The line above the title.
    pub kind: &'static str,
    /// The answer, below the title.
    pub answer: Markup,
    /// Its parts.
    pub sections: Vec<Section>,
    /// The result as JSON, which the page holds.
    pub json: String,
    /// Who made it.
    pub footer: String,
}

impl Page {
    /// All of it as HTML.
    #[must_use]
    pub fn html(&self) -> String {
        let mut page = Markup::new();
        page.raw("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n");
        page.raw("<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n");
        page.raw(&format!(
            "<meta http-equiv=\"Content-Security-Policy\" content=\"{}\">\n",
            escaped(POLICY).replace("&#39;", "'")
        ));
        page.raw("<meta name=\"color-scheme\" content=\"light dark\">\n");
        page.element("title", &self.title).raw("\n<style>\n").raw(CSS).raw("</style>\n</head>\n");
        page.raw("<body>\n<a class=\"skip\" href=\"#answer\">To the answer</a>\n");
        page.append(&self.head());
        page.raw("<main>\n");
        for section in &self.sections {
            page.append(&section.markup());
        }
        page.raw("</main>\n").element("footer", &self.footer);
        page.raw("\n<div id=\"tip\" role=\"status\" hidden></div>\n");
        page.raw("<script type=\"application/json\" id=\"result\">");
        page.raw(&script_json(&self.json)).raw("</script>\n<script>\n").raw(JS);
        page.raw("</script>\n</body>\n</html>\n");
        page.as_str().to_owned()
    }

    fn head(&self) -> Markup {
        let mut head = Markup::new();
        head.raw("<header>\n").element("p class=\"kind\"", self.kind);
        head.element("h1", &self.title);
        head.raw("\n<div id=\"answer\">").append(&self.answer).raw("</div>\n<nav><ul>");
        for section in &self.sections {
            let (id, title) = (&section.id, escaped(&section.title));
            head.raw(&format!("<li><a href=\"#{id}\">{title}</a></li>"));
        }
        head.raw("</ul></nav>\n</header>\n");
        head
    }
}

impl Section {
    fn markup(&self) -> Markup {
        let badge = match self.basis {
            Basis::Counted => " <a class=\"basis\" href=\"#sources\">counted</a>",
            Basis::Estimated => " <a class=\"basis estimated\" href=\"#sources\">estimated</a>",
            Basis::Measured => " <a class=\"basis measured\" href=\"#sources\">measured</a>",
            Basis::None => "",
        };
        let mut markup = Markup::new();
        markup.raw(&format!("<section id=\"{}\">\n<h2>", self.id)).text(&self.title).raw(badge);
        markup.raw("</h2>\n");
        if !self.lead.is_empty() {
            markup.element("p class=\"lead\"", &self.lead);
        }
        markup.append(&self.body).raw("</section>\n");
        markup
    }
}

/// A picture with its table, which says the same without it.
#[must_use]
pub fn figure(caption: &str, picture: &Markup, table: &Markup) -> Markup {
    let mut figure = Markup::new();
    figure.raw("<figure>").element("figcaption", caption).append(picture);
    figure.raw("<details class=\"as-table\"><summary>As a table</summary><div class=\"wide\">");
    figure.append(table).raw("</div></details></figure>\n");
    figure
}

/// The beginning of a table: what its lines are called, and its columns.
#[must_use]
pub fn table_head(corner: &str, columns: &[String]) -> Markup {
    let mut head = Markup::new();
    head.raw("<table><thead><tr>").element("th scope=\"col\"", corner);
    for column in columns {
        head.element("th scope=\"col\"", column);
    }
    head.raw("</tr></thead><tbody>");
    head
}

/// The end of a table.
pub const TABLE_END: &str = "</tbody></table>\n";

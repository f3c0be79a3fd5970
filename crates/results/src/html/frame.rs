//! The frame of a one-file page for any result: head, navigation, sections, data.
//!
//! Invariants:
//! - I1: the page refers to nothing outside itself, and its content policy forbids the browser to
//!   load anything.
//! - I2: everything is readable without scripts. The script only adds tooltips, zoom and the choice
//!   of light or dark mode.

use std::borrow::Cow;

use super::markup::{Markup, escaped, script_json};

const CSS: &str = include_str!("../../assets/report.css");
const JS: &str = include_str!("../../assets/report.js");

/// The browser may use the page's own style and script, and save the data.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      base-uri 'none'; form-action 'none'";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// Counted exactly in the model.
    Counted,
    /// Counts times a machine file's costs.
    Estimated,
    /// Read or timed on the running kernel.
    Measured,
    /// The section has no numbers of its own, or states the origin of each.
    None,
}

#[derive(Clone, Debug)]
pub struct Section {
    /// Anchor: letters and hyphens.
    pub id: Cow<'static, str>,
    pub title: Cow<'static, str>,
    pub lead: String,
    pub basis: Basis,
    pub body: Markup,
}

#[derive(Clone, Debug)]
pub struct Page {
    pub title: String,
    pub kind: &'static str,
    pub answer: Markup,
    pub sections: Vec<Section>,
    pub json: String,
    pub footer: String,
}

impl Page {
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

#[must_use]
pub fn figure(caption: &str, picture: &Markup, table: &Markup) -> Markup {
    let mut figure = Markup::new();
    figure.raw("<figure>").element("figcaption", caption).append(picture);
    figure.raw("<details class=\"as-table\"><summary>As a table</summary><div class=\"wide\">");
    figure.append(table).raw("</div></details></figure>\n");
    figure
}

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

pub const TABLE_END: &str = "</tbody></table>\n";

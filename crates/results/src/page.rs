//! The shared parts of the verbs' pages; [`crate::html`] draws them.

use crate::html::frame::{Basis, Section};
use crate::html::markup::Markup;

pub(crate) fn section(
    id: &'static str,
    title: &'static str,
    basis: Basis,
    lead: &str,
    body: Markup,
) -> Section {
    Section { id: id.into(), title: title.into(), lead: lead.to_owned(), basis, body }
}

pub(crate) fn footer(tool_version: &str, command_line: &[String]) -> String {
    format!("folio {tool_version}: {}", command_line.join(" "))
}

pub(crate) fn notes<'a>(notes: impl IntoIterator<Item = &'a str>) -> Markup {
    let mut list = Markup::new();
    list.raw("<ul class=\"notes\">");
    for note in notes {
        list.element("li", note);
    }
    list.raw("</ul>\n");
    list
}

pub(crate) fn meanings(meanings: &[(&str, &str)]) -> Markup {
    let mut list = Markup::new();
    list.raw("<dl class=\"bases\">");
    for (term, meaning) in meanings {
        list.element("dt", term).element("dd", meaning);
    }
    list.raw("</dl>\n");
    list
}

//! Every number: the terminal table as HTML.

use largefolio_sim::replay::Outcome;

use crate::html::frame::{TABLE_END, table_head};
use crate::html::markup::Markup;
use crate::predict::labels::Labels;
use crate::predict::text;

pub(super) fn table(rows: &[Outcome]) -> Markup {
    let mut table = Markup::new();
    table.raw("<div class=\"wide\">").append(&table_head("", &Labels::names(rows)));
    for line in text::lines(rows) {
        table.raw(if line.is_heading { "<tr class=\"heading\">" } else { "<tr>" });
        table.element("th scope=\"row\"", line.label().trim());
        for (nr, entry) in line.entries.iter().enumerate() {
            table.raw("<td>").text(&entry.value);
            for text in [Some(&entry.proportion), (nr > 0).then_some(&entry.change)] {
                if let Some(text) = text.filter(|text| !text.is_empty()) {
                    table.raw(" ").element("small", text);
                }
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END).raw("</div>\n");
    table
}

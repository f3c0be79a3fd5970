//! The origin of the numbers: counts, and each constant of an estimate with its source.

use std::collections::BTreeMap;

use largefolio_sim::cost::Constant;

use crate::html::frame::TABLE_END;
use crate::html::markup::{Markup, pointer_part};
use crate::predict::{PredictResult, text};

pub(super) fn body(report: &PredictResult) -> Markup {
    let mut body = Markup::new();
    body.raw("<dl class=\"bases\"><dt>counted</dt><dd>");
    body.text(
        "Exact in the model of the kernel: the same trace, kernel and command give the same \
         numbers. Everything except times is counted; nothing is measured.",
    );
    body.raw("</dd><dt>estimated</dt><dd>");
    body.text(
        "The sum of counts times the costs in the machine file. It does not include the program's \
         own instructions, cache misses, allocation and system calls.",
    );
    body.raw("</dd><dt>assumed</dt><dd>");
    body.text("A cost that no document or measurement supports; the reason is next to it.");
    body.raw("</dd></dl>\n");
    for (machine, row) in machines(report) {
        body.append(&constants(report, &machine, row));
    }
    body.raw("<h3>Notes</h3><ul class=\"notes\">");
    for note in text::notes(report) {
        body.element("li", &note);
    }
    body.raw("</ul>");
    body
}

fn machines(report: &PredictResult) -> BTreeMap<String, usize> {
    let mut machines: BTreeMap<String, usize> = BTreeMap::new();
    for (nr, row) in report.rows.iter().enumerate() {
        let best = machines.entry(row.machine.clone()).or_insert(nr);
        if row.estimate.constants.len() > report.rows[*best].estimate.constants.len() {
            *best = nr;
        }
    }
    machines
}

fn constants(report: &PredictResult, machine: &str, nr: usize) -> Markup {
    let estimate = &report.rows[nr].estimate;
    let mut table = Markup::new();
    table.raw("<h3>").text(&format!("Costs of {machine}")).raw("</h3>\n<div class=\"wide\">");
    table.raw("<table class=\"constants\"><thead><tr>");
    for title in ["Cost", "Value", "", "Source"] {
        table.element("th scope=\"col\"", title);
    }
    table.raw("</tr></thead><tbody>");
    for (name, constant) in &estimate.constants {
        let Constant { value, unit, source, assumed, low, high } = constant;
        let at = format!("/rows/{nr}/estimate/constants/{}/value", pointer_part(name));
        table.raw("<tr>").element("th scope=\"row\"", name).raw("<td>");
        table.number(&at, value, &format!("{value} {unit}"));
        table.raw(" ").element("small", &format!("{low:.4} .. {high:.4}")).raw("</td><td>");
        table.raw(if *assumed { "<b class=\"assumed\">assumed</b>" } else { "sourced" });
        table.raw("</td>").element("td", source).raw("</tr>");
    }
    for name in &estimate.not_known {
        table.raw("<tr>").element("th scope=\"row\"", name);
        table.raw("<td>not known</td><td></td><td></td></tr>");
    }
    table.raw(TABLE_END).raw("</div>\n");
    table
}

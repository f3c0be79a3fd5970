//! Which rule makes the difference: from one kernel to the other, rule by rule.

use super::steps::{between, picture, signed};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use largefolio_sim::explain::{Explained, Why};

use crate::figures;
use crate::figures::value;
use crate::predict::PredictResult;
use crate::predict::text::{pair, sentences};

pub(super) const LEAD: &str = "The rules are changed one after another, the oldest first; rules \
                               that change nothing are omitted. The tables also show the effect of \
                               each rule by itself, and how much of the change is lost without it.";

pub(super) fn figures(report: &PredictResult, answers: &[Why]) -> Markup {
    let mut body = Markup::new();
    for (nr, why) in answers.iter().enumerate() {
        body.element("h3", &pair(report, why)).raw("<ul class=\"notes\">");
        for sentence in sentences(report, why) {
            body.element("li", sentence.trim_start_matches("- "));
        }
        body.raw("</ul>\n");
        for (at, result) in why.shown() {
            body.append(&of_result(report, why, (&format!("/why/{nr}/results/{at}"), result)));
        }
    }
    body
}

fn of_result(report: &PredictResult, why: &Why, (at, result): (&str, &Explained)) -> Markup {
    let show = |number: u64| value(number, result.unit);
    let kernel = |row: usize| report.rows[row].kernel.clone();
    let changes = result.effects.iter().filter(|effect| effect.in_order != 0);
    let changes = changes.map(|effect| (label(why, effect.switch), effect.in_order));
    let ends = [(why.before, result.before), (why.after, result.after)];
    let [start, end] = ends.map(|(row, value)| (kernel(row), value));
    let caption = format!("{}, from {} to {}", result.name(), start.0, end.0);
    let steps = between(start, changes, end);
    figure(&caption, &picture(&steps, &show), &table(report, why, (at, result)))
}

fn label(why: &Why, switch: usize) -> String {
    let switch = &why.switches[switch];
    format!("{} ({})", switch.name(), switch.origin())
}

fn table(report: &PredictResult, why: &Why, (at, result): (&str, &Explained)) -> Markup {
    let show = |number: u64| value(number, result.unit);
    let (before, after) = (&report.rows[why.before].kernel, &report.rows[why.after].kernel);
    let columns =
        ["In order".to_owned(), format!("Alone on {before}"), format!("Left out of {after}")];
    let mut table = table_head("Rule", &columns);
    let number = |table: &mut Markup, at: String, value: i128| {
        table.raw("<td>").number(&at, value, &signed(value, &show)).raw("</td>");
    };
    for (nr, effect) in result.effects.iter().enumerate() {
        let switch = &why.switches[effect.switch];
        let name = figures::printable(&format!("{} ({})", switch.change(), switch.origin()));
        table.raw("<tr>").element("th scope=\"row\"", &name);
        let of =
            [("in_order", effect.in_order), ("alone", effect.alone), ("left_out", effect.left_out)];
        for (name, value) in of {
            number(&mut table, format!("{at}/effects/{nr}/{name}"), value);
        }
        table.raw("</tr>");
    }
    for (nr, pair) in result.interactions.iter().enumerate() {
        let [one, other] = pair.switches.map(|switch| why.switches[switch].name());
        let name = format!("{one} with {other}");
        table.raw("<tr>").element("th scope=\"row\"", &name).raw("<td></td>");
        number(&mut table, format!("{at}/interactions/{nr}/value"), pair.value);
        table.raw("<td></td></tr>");
    }
    if result.together != 0 {
        table.raw("<tr>").element("th scope=\"row\"", why.together()).raw("<td></td>");
        number(&mut table, format!("{at}/together"), result.together);
        table.raw("<td></td></tr>");
    }
    table.raw("<tr>").element("th scope=\"row\"", "sum");
    for _ in 0..2 {
        number(&mut table, format!("{at}/difference"), result.difference);
    }
    table.raw("<td></td></tr>").raw(TABLE_END);
    table
}

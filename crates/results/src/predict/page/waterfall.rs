//! Estimated time by cause: from the baseline to another cell, step by step.

use largefolio_sim::cost::Cause;
use largefolio_sim::replay::Outcome;

use super::steps::{ChartStep, between, picture, signed};
use crate::figures::{cause as cause_name, time};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::predict::labels::Labels;

const NR_OPEN: usize = 3;

pub(super) fn figures(rows: &[Outcome]) -> Markup {
    let names = Labels::names(rows);
    let mut body = Markup::new();
    body.append(&whole(rows, &names));
    for nr in 1..rows.len() {
        let caption = format!("From {} to {}", names[0], names[nr]);
        let figure = if let Some((steps, causes)) = steps(&rows[0], &rows[nr]) {
            figure(&caption, &picture(&steps, &time), &table(nr, &causes, &rows[nr]))
        } else {
            let mut plain = Markup::new();
            plain.raw("<figure>").element("figcaption", &caption);
            plain.append(&not_known(&rows[0], &rows[nr])).raw("</figure>");
            plain
        };
        if nr > NR_OPEN {
            body.raw("<details class=\"more\"><summary>").text(&caption).raw("</summary>");
            body.append(&figure).raw("</details>\n");
        } else {
            body.append(&figure);
        }
    }
    body
}

fn whole(rows: &[Outcome], names: &[String]) -> Markup {
    let mut drawn = Vec::new();
    for (nr, row) in rows.iter().enumerate() {
        let causes = Cause::ALL.into_iter().zip(0..);
        let parts = causes.filter_map(|(cause, class)| {
            let ns = row.estimate.causes.get(&cause)?.ns?;
            let tip = format!("{}: {}", cause_name(cause, row.estimate.walks), time(ns));
            Some(BarPart { class: format!("cause c{class}"), value: ns, tip })
        });
        let parts = parts.collect();
        let mut total = Markup::new();
        match row.estimate.total_ns {
            Some(ns) => total.number(&format!("/rows/{nr}/estimate/total_ns"), ns, &time(ns)),
            None => total
                .number(
                    &format!("/rows/{nr}/estimate/known_ns"),
                    row.estimate.known_ns,
                    &time(row.estimate.known_ns),
                )
                .text(" known"),
        };
        drawn.push(Bar { label: names[nr].clone(), parts, total });
    }
    let mut picture = Markup::new();
    picture.raw("<ul class=\"legend\">");
    let used = |cause: Cause| {
        rows.iter()
            .any(|row| row.estimate.causes.get(&cause).is_some_and(|t| t.ns.unwrap_or(0) > 0))
    };
    for (cause, class) in Cause::ALL.into_iter().zip(0..).filter(|(cause, _)| used(*cause)) {
        picture.raw("<li><svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">");
        picture.raw(&format!("<rect class=\"cause c{class}\" width=\"12\" height=\"12\"/></svg>"));
        picture
            .text(rows.first().map_or("", |row| cause_name(cause, row.estimate.walks)))
            .raw("</li>");
    }
    picture.raw("</ul>").append(&bars(&drawn));
    figure("Estimated time by cause", &picture, &causes_table(rows, names))
}

fn causes_table(rows: &[Outcome], names: &[String]) -> Markup {
    let mut table = table_head("Estimated time", names);
    for cause in Cause::ALL {
        table.raw("<tr>");
        table.element(
            "th scope=\"row\"",
            rows.first().map_or("", |row| cause_name(cause, row.estimate.walks)),
        );
        for (nr, row) in rows.iter().enumerate() {
            table.raw("<td>");
            match row.estimate.causes.get(&cause).and_then(|time| time.ns) {
                Some(ns) => {
                    let at = format!("/rows/{nr}/estimate/causes/{}/ns", cause.name());
                    table.number(&at, ns, &time(ns))
                }
                None => table.element("small", "not known"),
            };
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

/// Returns the totals and the changes between them, the largest first; `None` if a total is not
/// known.
fn steps(before: &Outcome, now: &Outcome) -> Option<(Vec<ChartStep>, Vec<Cause>)> {
    let (start, end) = (before.estimate.total_ns?, now.estimate.total_ns?);
    let mut changes: Vec<(Cause, i64)> = now
        .estimate
        .causes
        .iter()
        .filter_map(|(&cause, time)| Some((cause, time.difference_ns?)))
        .filter(|(_, difference)| *difference != 0)
        .collect();
    changes.sort_by_key(|&(cause, difference)| (std::cmp::Reverse(difference.abs()), cause));
    let name = |row: &Outcome| format!("{} on {}", row.kernel, row.machine);
    let label = |cause| cause_name(cause, now.estimate.walks).to_owned();
    let steps = changes.iter().map(|&(cause, difference)| (label(cause), difference.into()));
    let steps = between((name(before), start.into()), steps, (name(now), end.into()));
    Some((steps, changes.into_iter().map(|(cause, _)| cause).collect()))
}

fn table(nr: usize, causes: &[Cause], row: &Outcome) -> Markup {
    let mut table = table_head("Cause", &["Difference".to_owned()]);
    for &cause in causes {
        let Some(of_cause) = row.estimate.causes.get(&cause) else { continue };
        let at = format!("/rows/{nr}/estimate/causes/{}/difference_ns", cause.name());
        let difference = of_cause.difference_ns.unwrap_or(0);
        let label = cause_name(cause, row.estimate.walks);
        table.raw("<tr>").element("th scope=\"row\"", label).raw("<td>");
        table.number(&at, difference, &signed(difference.into(), &time)).raw("</td></tr>");
    }
    table.raw(TABLE_END);
    table
}

fn not_known(before: &Outcome, now: &Outcome) -> Markup {
    let mut names: Vec<String> = Vec::new();
    for row in [before, now] {
        names
            .extend(row.estimate.not_known.iter().map(|cost| format!("{cost} of {}", row.machine)));
    }
    names.dedup();
    let mut note = Markup::new();
    let text = format!("There is no total because these costs are unknown: {}.", names.join(", "));
    note.element("p class=\"note\"", &text);
    note
}

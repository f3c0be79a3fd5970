//! Estimated time by cause: from the baseline to another cell, step by step.

use largefolio_sim::cost::Cause;
use largefolio_sim::replay::Outcome;

use super::bars::{Bar, Part, bars};
use super::cells::names;
use super::frame::{TABLE_END, figure, table_head};
use super::markup::{Markup, escaped};
use crate::figures::time;
use crate::figures::{cause as cause_name, ratio};

/// Waterfalls that are open at first.
const NR_OPEN: usize = 3;

/// The figures: the whole of each cell, then the steps from the baseline.
pub(super) fn figures(rows: &[Outcome]) -> Markup {
    let names = names(rows);
    let mut body = Markup::new();
    body.append(&whole(rows, &names));
    for nr in 1..rows.len() {
        let caption = format!("From {} to {}", names[0], names[nr]);
        let figure = if let Some(steps) = steps(&rows[0], &rows[nr]) {
            figure(&caption, &picture(&steps), &table(nr, &steps, &rows[nr]))
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

/// What each cell's time is made of.
fn whole(rows: &[Outcome], names: &[String]) -> Markup {
    let mut drawn = Vec::new();
    for (nr, row) in rows.iter().enumerate() {
        let causes = Cause::ALL.into_iter().zip(0..);
        let parts = causes.filter_map(|(cause, class)| {
            let ns = row.estimate.causes.get(&cause)?.ns?;
            let tip = format!("{}: {}", cause_name(cause, row.estimate.walks), time(ns));
            Some(Part { class: format!("cause c{class}"), value: ns, tip })
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

/// One step of a waterfall.
struct Step {
    label: String,
    cause: Option<Cause>,
    /// From, to; a total goes from 0.
    from_ns: i128,
    to_ns: i128,
}

/// The totals and the changes between them, the largest first; `None` where a total is not known.
fn steps(before: &Outcome, now: &Outcome) -> Option<Vec<Step>> {
    let (start, end) = (before.estimate.total_ns?, now.estimate.total_ns?);
    let mut changes: Vec<(Cause, i64)> = now
        .estimate
        .causes
        .iter()
        .filter_map(|(&cause, time)| Some((cause, time.difference_ns?)))
        .filter(|(_, difference)| *difference != 0)
        .collect();
    changes.sort_by_key(|&(cause, difference)| (std::cmp::Reverse(difference.abs()), cause));
    let total = |label: String, ns: u64| Step { label, cause: None, from_ns: 0, to_ns: ns.into() };
    let mut steps = vec![total(format!("{} on {}", before.kernel, before.machine), start)];
    let mut at = i128::from(start);
    for (cause, difference) in changes {
        let to = at + i128::from(difference);
        let label = cause_name(cause, now.estimate.walks).to_owned();
        steps.push(Step { label, cause: Some(cause), from_ns: at, to_ns: to });
        at = to;
    }
    steps.push(total(format!("{} on {}", now.kernel, now.machine), end));
    Some(steps)
}

/// A difference with its sign.
fn signed(ns: i128) -> String {
    let size = time(u64::try_from(ns.unsigned_abs()).unwrap_or(u64::MAX));
    if ns < 0 { format!("\u{2212}{size}") } else { format!("+{size}") }
}

fn picture(steps: &[Step]) -> Markup {
    let (start, end) = span(steps);
    let width = u64::try_from(end - start).unwrap_or(u64::MAX);
    let at = |ns: i128| 1000.0 * ratio(u64::try_from(ns - start).unwrap_or(0), width);
    let mut picture = Markup::new();
    picture.raw("<div class=\"bars waterfall\">");
    for step in steps {
        let (low, high) = (step.from_ns.min(step.to_ns).max(start), step.from_ns.max(step.to_ns));
        let (class, shown) = match step.cause {
            None => ("total-bar", time(u64::try_from(step.to_ns).unwrap_or(0))),
            Some(_) if step.to_ns < step.from_ns => ("less", signed(step.to_ns - step.from_ns)),
            Some(_) => ("more-time", signed(step.to_ns - step.from_ns)),
        };
        let width = (at(high) - at(low)).max(1.5);
        picture.raw("<div class=\"bar\">").element("span class=\"name\"", &step.label);
        picture.raw(
            "<svg class=\"row\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\">",
        );
        picture.element("title", &format!("{}: {shown}", step.label));
        picture.raw(&format!(
            "<rect class=\"{class}\" x=\"{:.1}\" width=\"{width:.1}\" height=\"10\" data-tip=\"{}\"/></svg>",
            at(low).min(1000.0 - width),
            escaped(&format!("{}: {shown}", step.label))
        ));
        picture.element("span class=\"total\"", &shown).raw("</div>");
    }
    picture.raw("</div>\n");
    if start > 0 {
        let start = time(u64::try_from(start).unwrap_or(0));
        let text = format!("The bars begin at {start}, not at 0, to make the steps visible.");
        picture.element("p class=\"note\"", &text);
    }
    picture
}

/// What the width of a waterfall stands for: from 0, or from below the smallest value where the
/// steps would else be too short to be seen.
fn span(steps: &[Step]) -> (i128, i128) {
    let ends = || steps.iter().flat_map(|step| [step.from_ns, step.to_ns]);
    let end = ends().max().unwrap_or(0);
    let low = ends().filter(|&ns| ns > 0).min().unwrap_or(0);
    let margin = (end - low) / 2;
    if low - margin > end / 2 { (low - margin, end) } else { (0, end) }
}

fn table(nr: usize, steps: &[Step], row: &Outcome) -> Markup {
    let mut table = table_head("Cause", &["Difference".to_owned()]);
    for step in steps {
        let Some(cause) = step.cause else { continue };
        let Some(time) = row.estimate.causes.get(&cause) else { continue };
        let at = format!("/rows/{nr}/estimate/causes/{}/difference_ns", cause.name());
        let difference = time.difference_ns.unwrap_or(0);
        table.raw("<tr>").element("th scope=\"row\"", &step.label).raw("<td>");
        table.number(&at, difference, &signed(difference.into())).raw("</td></tr>");
    }
    table.raw(TABLE_END);
    table
}

/// Which costs are missing.
fn not_known(before: &Outcome, now: &Outcome) -> Markup {
    let mut names: Vec<String> = Vec::new();
    for row in [before, now] {
        names
            .extend(row.estimate.not_known.iter().map(|cost| format!("{cost} of {}", row.machine)));
    }
    names.dedup();
    let mut note = Markup::new();
    let text = format!("There is no total, because these costs are unknown: {}.", names.join(", "));
    note.element("p class=\"note\"", &text);
    note
}

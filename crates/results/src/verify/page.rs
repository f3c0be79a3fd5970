//! The comparison as a page: the verdict, every round, every quantity, reasons for doubt, and the
//! prediction.

use crate::ExportError;
use crate::html::frame::{Basis, Page, Section, TABLE_END, figure, table_head};
use crate::html::lanes::{Axis, Guide, Lane, Mark, Point, Shape, Side, field, key, lanes};
use crate::html::markup::Markup;

use super::prediction::{PredictedChange, PredictedTime};
use super::result::{QuantityRow as Row, RoundRow as Round, RunRow, VerifyResult};
use super::sentences::{self, metric_name, spread};
use crate::page::{footer, meanings, notes, section};

/// Maximum number of rounds on a page; each takes about 600 bytes with its numbers and marks.
const NR_ROUNDS_MAX: usize = 1500;

pub(super) fn of(view: &VerifyResult) -> Result<Page, ExportError> {
    let view = &thin_rounds(view);
    let mut sections = vec![section("rounds", "The rounds", Basis::Measured, "", rounds(view))];
    sections.push(section(
        "quantities",
        "Every quantity",
        Basis::Measured,
        &format!(
            "Changed divided by plain, within a round: median and \
                  {}.",
            sentences::interval(view.nr_counted)
        ),
        quantities(view),
    ));
    sections.push(section("runs", "The runs", Basis::Measured, "", runs(view)));
    sections.extend(view.prediction.as_ref().map(|predicted| prediction(view, predicted)));
    sections.extend([
        section("doubts", "Doubts", Basis::None, "Reasons to doubt the verdict.", doubts(view)),
        section("sources", "Sources", Basis::None, "", sources(view)),
    ]);
    Ok(Page {
        title: view.change.change.clone(),
        kind: "folio verify: does this change help?",
        answer: headline(view),
        sections,
        json: serde_json::to_string(view)?,
        footer: footer(view.tool_version, &view.command),
    })
}

fn thin_rounds(view: &VerifyResult) -> VerifyResult {
    let nr = view.rounds.len();
    if nr <= NR_ROUNDS_MAX {
        return view.clone();
    }
    let rounds =
        (0..NR_ROUNDS_MAX).map(|at| view.rounds[at * nr / NR_ROUNDS_MAX].clone()).collect();
    VerifyResult { rounds, ..view.clone() }
}

fn headline(view: &VerifyResult) -> Markup {
    let mut markup = Markup::new();
    let class = match view.verdict {
        "confirmed" => "yes",
        "not confirmed" => "no",
        _ => "open",
    };
    markup
        .raw("<p class=\"answer\">")
        .element(&format!("b class=\"verdict {class}\""), view.verdict);
    markup.text(&view.reason()).raw("</p>");
    if let Some((at, row)) = judged(view) {
        markup.raw("<ul class=\"facts\"><li>");
        markup.number(&format!("/rows/{at}/nr_rounds"), row.nr_rounds, &row.nr_rounds.to_string());
        markup.text(" rounds").raw("</li><li>plain ").raw("<b>");
        markup.number(&format!("/rows/{at}/plain"), row.plain, &short(&row.unit, row.plain));
        markup.raw("</b></li><li>changed <b>");
        markup.number(&format!("/rows/{at}/changed"), row.changed, &short(&row.unit, row.changed));
        markup.raw("</b></li>");
        if let Some(ratio) = view.prediction.as_ref().and_then(|predicted| predicted.wall.ratio) {
            markup.raw("<li>predicted <b>");
            markup.number("/prediction/ratio", ratio, &percent(ratio)).raw("</b></li>");
        }
        markup.raw("</ul>");
    }
    for warning in &view.warnings {
        markup.element("p class=\"honest\"", &format!("Warning: {warning}"));
    }
    for limit in &view.thresholds {
        markup.element("p", &limit.sentence());
    }
    markup.raw("<p class=\"about\">").text(&format!("kernel {}", view.kernel)).raw("<br>");
    markup.text(&format!("changed: {}", view.change.change));
    for effect in &view.change.effects {
        markup.raw("<br>").text(effect);
    }
    markup.raw("</p>");
    markup
}

fn judged(view: &VerifyResult) -> Option<(usize, &Row)> {
    view.rows.iter().enumerate().find(|(_, row)| row.quantity == view.metric)
}

fn percent(ratio: f64) -> String {
    format!("{:+.1}%", 100.0 * (ratio - 1.0))
}

fn short(unit: &str, value: f64) -> String {
    let shown = spread(unit, [value, value, value]);
    shown.split(" [").next().unwrap_or_default().to_owned()
}

fn guides(view: &VerifyResult, interval: Option<[f64; 3]>) -> Vec<Guide> {
    let margin = view.margin;
    let mut guides = vec![Guide { from: 1.0 - margin, to: 1.0 + margin, class: "margin" }];
    if let Some([median, low, high]) = interval {
        guides.push(Guide { from: low, to: high, class: "interval" });
        guides.push(Guide { from: median, to: median, class: "median" });
    }
    guides.push(Guide { from: 1.0, to: 1.0, class: "one" });
    guides
}

fn interval(row: &Row) -> Option<[f64; 3]> {
    Some([row.ratio?, row.ratio_low?, row.ratio_high?])
}

fn rounds(view: &VerifyResult) -> Markup {
    let mut body = Markup::new();
    let interval = judged(view).and_then(|(_, row)| interval(row));
    let rounds_with_ratio: Vec<(usize, &Round, f64)> = (0..)
        .zip(&view.rounds)
        .filter(|(_, round)| round.dropped.is_none())
        .filter_map(|(at, round)| Some((at, round, round.ratio.filter(|r| r.is_finite())?)))
        .collect();
    if rounds_with_ratio.is_empty() {
        body.element("p", "No round that counts has a ratio.");
        return body;
    }
    let ratios = rounds_with_ratio.iter().map(|(.., ratio)| *ratio);
    let up = Axis::over(ratios.chain([1.0]).chain(interval.into_iter().flatten()), "");
    let numbers = rounds_with_ratio.iter().map(|(_, round, _)| number(round.nr));
    let last = numbers.clone().fold(1.0, f64::max);
    let across = Axis::between(0.0, last + 1.0);
    let unit = unit(view);
    let points = rounds_with_ratio.iter().zip(numbers).map(|((_, round, ratio), x)| Point {
        x,
        y: *ratio,
        shape: Shape::Dot,
        class: "changed-run",
        tip: format!(
            "round {}: {ratio:.4}\nplain {}, changed {}",
            round.nr,
            short(unit, value(&round.plain)),
            short(unit, value(&round.changed)),
        ),
    });
    let points: Vec<Point> = points.collect();
    let mut picture = Markup::new();
    picture.append(&key(&[
        (Shape::Dot, "changed-run", better(view)),
        (Shape::Tick, "changed-run", "median, with its interval around it"),
        (Shape::Tick, "published", "1: no difference, with the margin"),
    ]));
    let title = format!("Ratio of {}, round by round", metric_name(&view.metric));
    picture.append(&field(&title, (&across, &up), &guides(view, interval), &points));
    picture.element("p class=\"note\"", "From left to right: the first round to the last.");
    body.append(&figure(&title, &picture, &rounds_table(view)));
    let nr_all = view.nr_rounds;
    if view.rounds.len() < nr_all {
        let text = format!("{} of {nr_all} rounds are shown, evenly spread.", view.rounds.len());
        body.element("p class=\"note\"", &text);
    }
    body
}

#[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
fn number(nr: usize) -> f64 {
    nr as f64
}

fn value(run: &RunRow) -> f64 {
    run.value.unwrap_or_default()
}

fn unit(view: &VerifyResult) -> &str {
    judged(view).map_or("ns", |(_, row)| &row.unit)
}

fn better(view: &VerifyResult) -> &'static str {
    match view.better {
        "higher" => "a round: above 1 the changed run was better",
        _ => "a round: below 1 the changed run was better",
    }
}

fn rounds_table(view: &VerifyResult) -> Markup {
    let metric = &view.metric;
    let columns = [
        format!("plain, {metric}"),
        format!("changed, {metric}"),
        "ratio".to_owned(),
        "minor faults, plain".to_owned(),
        "changed".to_owned(),
        "major faults, plain".to_owned(),
        "changed".to_owned(),
        "counts".to_owned(),
    ];
    let mut table = table_head("Round", &columns);
    for (at, round) in view.rounds.iter().enumerate() {
        table.raw("<tr>").element("th scope=\"row\"", &round.nr.to_string());
        for (arm, run) in [("plain", &round.plain), ("changed", &round.changed)] {
            table.raw("<td>");
            if let Some(value) = run.value {
                let shown = short(unit(view), value);
                table.number(&format!("/rounds/{at}/{arm}/value"), value, &shown);
            }
            table.raw("</td>");
        }
        table.raw("<td>");
        if let Some(ratio) = round.ratio {
            table.number(&format!("/rounds/{at}/ratio"), ratio, &format!("{ratio:.4}"));
        }
        table.raw("</td>");
        let faults = [
            ("plain/minor_faults", round.plain.minor_faults),
            ("changed/minor_faults", round.changed.minor_faults),
            ("plain/major_faults", round.plain.major_faults),
            ("changed/major_faults", round.changed.major_faults),
        ];
        for (key, nr) in faults {
            table.raw("<td>").number(&format!("/rounds/{at}/{key}"), nr, &nr.to_string());
            table.raw("</td>");
        }
        table.element("td", round.dropped.as_deref().unwrap_or("yes")).raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

fn ratio(value: f64) -> String {
    match value {
        ..10.0 => format!("{value:.3}"),
        ..100.0 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

fn quantities(view: &VerifyResult) -> Markup {
    let intervals = view.rows.iter().filter_map(interval).flatten();
    let axis = Axis::of_ratios(intervals);
    let ratio_lanes = view.rows.iter().enumerate().map(|(at, row)| {
        let mut name = Markup::new();
        name.text(&row.quantity);
        if row.quantity == view.metric {
            name.raw(" ").element("small", "the verdict is about this one");
        }
        let mut end = Markup::new();
        let mut marks = Vec::new();
        if let Some([median, low, high]) = interval(row) {
            let side = Side::Middle;
            let ends = sentences::interval(row.nr_rounds);
            let tip = format!("{}: {median:.3}, {ends} {low:.3} to {high:.3}", row.quantity);
            marks.push(Mark::Span {
                from: low,
                to: high,
                side,
                class: "interval",
                tip: tip.clone(),
            });
            let (shape, class) = (Shape::Dot, "changed-run");
            marks.push(Mark::At { value: median, side, shape, class, tip });
            end.number(&format!("/rows/{at}/ratio"), median, &ratio(median)).text(" [");
            end.number(&format!("/rows/{at}/ratio_low"), low, &ratio(low)).text(" .. ");
            end.number(&format!("/rows/{at}/ratio_high"), high, &ratio(high)).text("]");
        } else {
            end.text(sentences::no_ratio(row.nr_rounds));
        }
        Lane { title: format!("Ratio of {}", row.quantity), name, marks, end }
    });
    let ratio_lanes: Vec<Lane> = ratio_lanes.collect();
    let mut picture = Markup::new();
    picture.append(&key(&[
        (Shape::Dot, "changed-run", "median of the ratios, and its interval"),
        (Shape::Tick, "published", "1: no difference, with the margin"),
    ]));
    if view.rows.iter().filter_map(interval).flatten().any(|value| !axis.shows(value)) {
        picture.element("p class=\"note\"", "A triangle at an end: the ratio is off the scale.");
    }
    picture.append(&lanes(&axis, &guides(view, None), &ratio_lanes));
    figure("Changed over plain", &picture, &quantities_table(view))
}

fn quantities_table(view: &VerifyResult) -> Markup {
    let columns = ["plain, median [range]", "changed, median [range]", "ratio", "from", "to", "n"];
    let mut table = table_head("Quantity", &columns.map(str::to_owned));
    for (at, row) in view.rows.iter().enumerate() {
        table.raw("<tr>").element("th scope=\"row\"", &row.quantity).raw("<td>");
        let plain = spread(&row.unit, [row.plain, row.plain_min, row.plain_max]);
        table.number(&format!("/rows/{at}/plain"), row.plain, &plain).raw("</td><td>");
        let changed = spread(&row.unit, [row.changed, row.changed_min, row.changed_max]);
        table.number(&format!("/rows/{at}/changed"), row.changed, &changed).raw("</td>");
        let parts =
            [("ratio", row.ratio), ("ratio_low", row.ratio_low), ("ratio_high", row.ratio_high)];
        for (key, value) in parts {
            table.raw("<td>");
            if let Some(value) = value {
                table.number(&format!("/rows/{at}/{key}"), value, &ratio(value));
            }
            table.raw("</td>");
        }
        let n = row.nr_rounds;
        table.raw("<td>").number(&format!("/rows/{at}/nr_rounds"), n, &n.to_string());
        table.raw("</td></tr>");
    }
    table.raw(TABLE_END);
    table
}

fn runs(view: &VerifyResult) -> Markup {
    let what = metric_name(&view.metric);
    let arms = [("plain", "plain-run"), ("changed", "changed-run")];
    let unit = unit(view);
    // A scale needs round numbers, so times are shown in ms and memory in MiB.
    let (divisor, scale) = match unit {
        "ns" => (1e6, " ms"),
        "bytes" => (f64::from(1 << 20), " MiB"),
        _ => (1.0, ""),
    };
    let run = |round: &Round, arm: &str| {
        value(if arm == "plain" { &round.plain } else { &round.changed }) / divisor
    };
    let counted = || view.rounds.iter().filter(|round| round.dropped.is_none());
    let all = arms.iter().flat_map(|(arm, _)| counted().map(move |round| run(round, arm)));
    let axis = Axis::over(all.chain([0.0]), scale);
    let median = judged(view).map(|(at, row)| (at, [row.plain, row.changed]));
    let mut table =
        table_head("Runs", &["median".to_owned(), "smallest".to_owned(), "largest".to_owned()]);
    let lane = |(nr, (arm, class)): (usize, &(&'static str, &'static str))| {
        let each = counted().map(|round| {
            let value = run(round, arm);
            let tip = format!("{arm}, round {}: {value:.3}{scale}", round.nr);
            Mark::At { value, side: Side::Middle, shape: Shape::Dot, class, tip }
        });
        let mut marks: Vec<Mark> = each.collect();
        let mut end = Markup::new();
        if let Some((at, medians)) = median {
            let value = medians[nr] / divisor;
            let tip = format!("{arm}, median: {value:.3}{scale}");
            let (shape, class) = (Shape::Tick, "published");
            marks.push(Mark::At { value, side: Side::Middle, shape, class, tip });
            end.number(&format!("/rows/{at}/{arm}"), medians[nr], &short(unit, medians[nr]));
        }
        let mut name = Markup::new();
        name.text(arm);
        Lane { title: format!("{what} of each {arm} run"), name, marks, end }
    };
    let both: Vec<Lane> = arms.iter().enumerate().map(lane).collect();
    if let Some((at, row)) = judged(view) {
        for (arm, values) in [
            ("plain", [row.plain, row.plain_min, row.plain_max]),
            ("changed", [row.changed, row.changed_min, row.changed_max]),
        ] {
            table.raw("<tr>").element("th scope=\"row\"", arm);
            for (end, value) in ["", "_min", "_max"].iter().zip(values) {
                table.raw("<td>");
                table.number(&format!("/rows/{at}/{arm}{end}"), value, &short(unit, value));
                table.raw("</td>");
            }
            table.raw("</tr>");
        }
    }
    table.raw(TABLE_END);
    let mut picture = Markup::new();
    picture.append(&key(&[
        (Shape::Dot, "plain-run", "a plain run"),
        (Shape::Dot, "changed-run", "a changed run"),
        (Shape::Tick, "published", "median"),
    ]));
    picture.append(&lanes(&axis, &[], &both));
    figure(&format!("Each run, {what}"), &picture, &table)
}

fn prediction(view: &VerifyResult, predicted: &PredictedChange) -> Section {
    let lead = "The command's trace, replayed under this kernel's rules and settings with and \
                without the change; the estimated difference is added to the measured plain time.";
    let mut body = Markup::new();
    let wall = view.rows.iter().enumerate().find(|(_, row)| row.quantity == "wall");
    let measured = wall.and_then(|(at, row)| Some((at, interval(row)?)));
    match (predicted.wall.ratio, measured) {
        (Some(ratio), Some((at, measured))) => {
            body.append(&compared(view, ratio, predicted, at, measured));
        }
        (Some(ratio), None) => {
            let change = percent(ratio);
            body.element("p", &format!("Wall time {change}; no ratio was measured."));
        }
        (None, _) => {
            body.element("p", &format!("Not known: {}.", predicted.why_none()));
        }
    }
    let line = |(name, time): (&str, &PredictedTime)| {
        format!("Predicted {name}: {}.", time.text(|| predicted.why_none()))
    };
    let mut sentences: Vec<String> = predicted.times().map(line).into();
    sentences.push(format!("Plain: {} on {}.", predicted.kernel, predicted.machine));
    sentences.push(format!("Changed: {}.", predicted.changed_kernel));
    if !predicted.assumed.is_empty() {
        let assumed = predicted.assumed.join(", ");
        sentences.push(format!("The prediction depends on assumed costs: {assumed}."));
    }
    body.append(&notes(sentences.iter().filter(|text| !text.is_empty()).map(String::as_str)));
    section("prediction", "Prediction", Basis::Estimated, lead, body)
}

fn compared(
    view: &VerifyResult,
    ratio: f64,
    predicted: &PredictedChange,
    at: usize,
    [median, low, high]: [f64; 3],
) -> Markup {
    let [least, most] = predicted.wall.ratio_range.unwrap_or([ratio; 2]);
    let (axis, side) = (Axis::over([least, most, median, low, high, 1.0], ""), Side::Middle);
    let ends = sentences::interval(view.rows[at].nr_rounds);
    let tip = format!("measured: {median:.3}, {ends} {low:.3} to {high:.3}");
    let name = |text: &str| {
        let mut name = Markup::new();
        name.text(text);
        name
    };
    let mut end = Markup::new();
    end.number(&format!("/rows/{at}/ratio"), median, &percent(median));
    let measured = Lane {
        title: "Measured ratio of wall time".to_owned(),
        name: name("measured"),
        marks: vec![
            Mark::Span { from: low, to: high, side, class: "interval", tip: tip.clone() },
            Mark::At { value: median, side, shape: Shape::Dot, class: "changed-run", tip },
        ],
        end,
    };
    let mut end = Markup::new();
    end.number("/prediction/ratio", ratio, &percent(ratio));
    let tip = format!("predicted: {ratio:.3}, {least:.3} to {most:.3}, {}", predicted.machine);
    let estimated = Lane {
        title: "Predicted ratio of wall time".to_owned(),
        name: name("predicted"),
        marks: vec![
            Mark::Span { from: least, to: most, side, class: "interval", tip: tip.clone() },
            Mark::At { value: ratio, side, shape: Shape::Diamond, class: "predicted", tip },
        ],
        end,
    };
    let picture = lanes(&axis, &guides(view, None), &[measured, estimated]);
    let mut table = table_head("Ratio of wall time", &["value".to_owned()]);
    table.raw("<tr>").element("th scope=\"row\"", "measured, median").raw("<td>");
    table.number(&format!("/rows/{at}/ratio"), median, &format!("{median:.3}"));
    table.raw("</td></tr><tr>").element("th scope=\"row\"", "predicted").raw("<td>");
    table.number("/prediction/ratio", ratio, &format!("{ratio:.3}"));
    if predicted.wall.ratio_range.is_some() {
        let end = |nr: usize| format!("/prediction/ratio_range/{nr}");
        table.text(" [").number(&end(0), least, &format!("{least:.3}")).text(" .. ");
        table.number(&end(1), most, &format!("{most:.3}")).text("]");
    }
    table.raw("</td></tr>").raw(TABLE_END);
    figure("Measured and predicted", &picture, &table)
}

fn doubts(view: &VerifyResult) -> Markup {
    if view.warnings.is_empty() {
        return notes([
            "None: there are enough rounds, the plain runs vary little, their halves do not drift, \
             and the runs are long compared with starting a process.",
        ]);
    }
    notes(view.warnings.iter().map(String::as_str))
}

fn sources(view: &VerifyResult) -> Markup {
    let margin = format!(
        "A change must gain {}% to count (--margin). Confirmed: the whole interval is beyond that \
         limit; not confirmed: the interval does not reach it; inconclusive: the interval \
         contains it, or there are fewer than ten rounds; not proved: the change took effect in \
         fewer than ten.",
        100.0 * view.margin
    );
    meanings(&[
        (
            "measured",
            "Plain and changed runs take turns on this kernel, and the order alternates from round \
             to round; one warm-up round is not counted. Preparing a change is not timed.",
        ),
        ("ratio", "Changed divided by plain within one round, so that machine drift affects both."),
        ("interval", "95% bootstrap interval of the median; with 3 to 5 rounds, the range."),
        ("verdict", &margin),
        ("estimated", "The prediction: counts from the model times the costs in the machine file."),
    ])
}

#[cfg(test)]
mod tests;

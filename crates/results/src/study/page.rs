//! Findings as a page: each table shows published numbers and ours as marks on one axis.
//!
//! ```text
//!   shares of a whole      before o----O after         published above, ours below
//!   other changes          published O---O ours        on the axis of the change
//!   single numbers         published O---O ours        on the axis of their unit
//!   programs below limits  a line for each kernel      over the limits
//!   kernels over programs  a point for each            gain over cost
//! ```

mod over_limits;
mod over_programs;
mod overview;

use largefolio_report::ExportError;
use largefolio_report::html::frame::{Basis, Page, Section, TABLE_END, figure, table_head};
use largefolio_report::html::lanes::{Axis, Guide, Lane, Mark, Shape, Side, key, lanes};
use largefolio_report::html::markup::Markup;
use largefolio_sim::study::{Change, Finding, How, Pair, RowFinding, TableFinding};

use super::columns::{number, signed};
use super::result::StudyResult;
use super::text;
use crate::page::{footer, meanings, section};

/// A larger change becomes an arrow at the axis's end: three times as much.
const PERCENT_MAX: f64 = 200.0;

pub(super) fn of(report: &StudyResult) -> Result<Page, ExportError> {
    let mut sections = Vec::new();
    if report.summary.iter().any(|counts| counts.nr_rows > 0) {
        let (body, lead) = (overview::overview(report), "Rows of each study.");
        sections.push(section("overview", "Overview", Basis::None, lead, body));
    }
    sections.extend(report.studies.iter().enumerate().map(study));
    sections.push(section("sources", "Sources", Basis::None, "", sources(report)));
    let names: Vec<&str> = report.studies.iter().map(|finding| finding.study.as_str()).collect();
    Ok(Page {
        title: names.join(", "),
        kind: "folio study: published numbers next to ours",
        answer: overview::headline(report),
        sections,
        json: serde_json::to_string(report)?,
        footer: footer(&report.command_line),
    })
}

fn study((nr, finding): (usize, &Finding)) -> Section {
    let mut body = Markup::new();
    for (table_nr, table) in finding.tables.iter().enumerate() {
        let (at, reference) = (format!("/studies/{nr}/tables/{table_nr}"), &finding.reference);
        body.append(&Drawing { at, table, reference }.figures());
    }
    for (found_nr, found) in finding.frontiers.iter().enumerate() {
        body.append(&over_programs::drawn(found, &format!("/studies/{nr}/frontiers/{found_nr}")));
    }
    for (curve_nr, curve) in finding.curves.iter().enumerate() {
        body.append(&over_limits::drawn(curve, &format!("/studies/{nr}/curves/{curve_nr}")));
    }
    Section {
        id: format!("study-{nr}").into(),
        title: finding.study.clone().into(),
        lead: format!(
            "{}. Ours next to the {} numbers: {}; {}.",
            finding.title, finding.reference, finding.source, finding.setup
        ),
        basis: Basis::None,
        body,
    }
}

#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Ground {
    Shares,
    Changes,
    Numbers(String),
    Nothing,
}

fn ground(row: &RowFinding) -> Ground {
    let pairs = [row.published, row.ours];
    let has = |of: fn(&Pair) -> bool| pairs.iter().flatten().any(of);
    if row.measure == Change::Points && has(|pair| pair.before.is_some() && pair.after.is_some()) {
        Ground::Shares
    } else if has(|pair| pair.change.is_some()) {
        Ground::Changes
    } else if has(|pair| pair.after.is_some()) {
        Ground::Numbers(if row.ours.is_some() { &row.ours_unit } else { &row.unit }.clone())
    } else {
        Ground::Nothing
    }
}

const fn how_class(how: &How) -> (&'static str, &'static str) {
    match how {
        How::Counted { .. } => ("counted", "counted"),
        How::Estimated { .. } => ("estimated-mark", "estimated"),
        How::Measured(_) => ("measured-mark", "measured"),
        How::Quoted(_) => ("quoted", "quoted"),
        How::None { .. } => ("skipped", "none"),
    }
}

struct Drawing<'a> {
    at: String,
    table: &'a TableFinding,
    reference: &'a str,
}

type Row<'a> = (usize, &'a RowFinding);

impl Drawing<'_> {
    fn figures(&self) -> Markup {
        let mut notes: Vec<(usize, &str, bool)> = Vec::new();
        for row in &self.table.rows {
            for note in text::notes_of(row) {
                if !notes.iter().any(|(_, known, _)| *known == note) {
                    let is_other = row.disagrees.as_deref() == Some(note);
                    notes.push((notes.len() + 1, note, is_other));
                }
            }
        }
        let mut grounds: Vec<Ground> = self.table.rows.iter().map(ground).collect();
        grounds.sort();
        grounds.dedup();
        let mut body = Markup::new();
        let is_one = grounds.len() == 1;
        for ground_of in grounds {
            let rows = self.table.rows.iter().enumerate();
            let rows: Vec<Row<'_>> = rows.filter(|(_, row)| ground(row) == ground_of).collect();
            let caption = match (&ground_of, is_one) {
                (_, true) => self.table.title.clone(),
                (Ground::Shares, _) => format!("{}: shares", self.table.title),
                (Ground::Changes, _) => format!("{}: changes", self.table.title),
                (Ground::Numbers(unit), _) => format!("{}: {unit}", self.table.title),
                (Ground::Nothing, _) => format!("{}: without a number", self.table.title),
            };
            let table = self.rows(&rows, &notes);
            if ground_of == Ground::Nothing {
                body.element("h3", &caption).raw("<div class=\"wide\">").append(&table);
                body.raw("</div>");
            } else {
                body.append(&figure(&caption, &self.picture(&ground_of, &rows, &notes), &table));
            }
        }
        if !notes.is_empty() {
            body.raw("<ol class=\"notes\">");
            for (_, note, is_other) in notes {
                body.raw("<li>");
                if is_other {
                    body.element("b class=\"other-way-text\"", "another way").text(": ");
                }
                body.text(note).raw("</li>");
            }
            body.raw("</ol>");
        }
        body
    }

    fn picture(&self, ground: &Ground, rows: &[Row<'_>], notes: &[(usize, &str, bool)]) -> Markup {
        let values = rows.iter().flat_map(|(_, row)| {
            let clamp = |change: f64| change.clamp(-100.0, PERCENT_MAX);
            [row.published, row.ours].into_iter().flatten().flat_map(move |pair| match ground {
                Ground::Shares => [pair.before, pair.after],
                Ground::Changes => [pair.change.map(clamp), None],
                Ground::Numbers(_) | Ground::Nothing => [pair.after, None],
            })
        });
        let unit = if matches!(ground, Ground::Numbers(_)) { "" } else { "%" };
        let axis = Axis::over(values.flatten().chain([0.0]), unit);
        let all: Vec<Lane> = rows.iter().map(|row| self.lane(ground, *row, notes)).collect();
        let guides = [Guide { from: 0.0, to: 0.0, class: "one" }];
        let mut picture = legend(ground, rows, self.reference);
        picture.append(&lanes(&axis, &guides, &all));
        if rows.iter().any(|(_, row)| {
            let pairs = [row.published, row.ours].into_iter().flatten();
            *ground == Ground::Changes
                && pairs.filter_map(|pair| pair.change).any(|change| change > axis.bounds().1)
        }) {
            picture.element(
                "p class=\"note\"",
                "A pointer at the end of the axis means a larger \
                                              value.",
            );
        }
        picture
    }

    fn lane(&self, ground: &Ground, (nr, row): Row<'_>, notes: &[(usize, &str, bool)]) -> Lane {
        let mut name = Markup::new();
        name.text(&row.what);
        if let Some(mark) = mark_of(row, notes) {
            name.text(" ").element("small", &mark);
        }
        let is_other = row.closeness.is_some_and(|found| !found.agrees());
        if is_other {
            name.text(" ").element("small class=\"other-way-text\"", "another way");
        }
        let (class, word) = how_class(&row.how);
        let mut marks = Vec::new();
        if *ground == Ground::Shares {
            for (pair, side, class, who) in [
                (row.published, Side::Upper, "published", "published"),
                (row.ours, Side::Lower, class, word),
            ] {
                marks.extend(pair.into_iter().flat_map(|pair| shares(pair, side, class, who)));
            }
        } else {
            let of = |pair: Option<Pair>| match ground {
                Ground::Changes => pair?.change,
                _ => pair?.after,
            };
            let way = if is_other { "other-way" } else { "way" };
            let (published, ours) = (of(row.published), of(row.ours));
            marks.extend(apart(published, ours, &row.how, way, ground));
        }
        Lane { title: row.what.clone(), name, marks, end: self.end(ground, (nr, row)) }
    }

    fn end(&self, ground: &Ground, (nr, row): Row<'_>) -> Markup {
        let mut end = Markup::new();
        let is_change = matches!(ground, Ground::Shares | Ground::Changes);
        let key = if is_change { "change" } else { "after" };
        for (who, pair, unit) in
            [("published", row.published, &row.unit), ("ours", row.ours, &row.ours_unit)]
        {
            let value = pair.and_then(|pair| if is_change { pair.change } else { pair.after });
            let text = row.published_text.as_deref().filter(|_| who == "published");
            if value.is_none() && text.is_none() {
                continue;
            }
            if !end.as_str().is_empty() {
                end.raw("<br>");
            }
            end.text(who).text(" ");
            let at = format!("{}/rows/{nr}/{who}/{key}", self.at);
            match value {
                Some(value) if is_change => {
                    let unit = if row.measure == Change::Points { "pp" } else { "%" };
                    end.number(&at, value, &(signed(value) + unit));
                }
                Some(value) => {
                    end.number(&at, value, &number(value, unit));
                }
                None => {
                    end.text(text.unwrap_or_default());
                }
            }
        }
        end
    }

    fn rows(&self, rows: &[Row<'_>], notes: &[(usize, &str, bool)]) -> Markup {
        let columns = [
            self.reference,
            "ours",
            "distance",
            "change",
            "level",
            "score",
            "source of our number",
        ];
        let mut table = Markup::new();
        table.raw(&table_head("Row", &columns.map(str::to_owned)).as_str().replacen(
            "<table>",
            "<table class=\"wrap\">",
            1,
        ));
        for (nr, row) in rows {
            let at = |who: &str| format!("{}/rows/{nr}/{who}", self.at);
            table.raw("<tr>").raw("<th scope=\"row\">").text(&row.what);
            if let Some(mark) = mark_of(row, notes) {
                table.text(" ").element("small", &mark);
            }
            table.raw("</th><td>");
            pair(&mut table, row.published, &at("published"), &row.unit, row);
            let asides = [row.published_text.as_ref(), row.published_spread.as_ref()];
            for aside in asides.into_iter().flatten() {
                table.raw(" ").element("small", aside);
            }
            table.raw("</td><td>");
            pair(&mut table, row.ours, &at("ours"), &row.ours_unit, row);
            table.raw("</td><td>");
            if let Some(distance) = row.distance {
                table.number(&at("distance"), distance, &text::apart(distance, row));
            }
            table.raw("</td><td>");
            let class = match row.closeness {
                Some(found) if found.agrees() => "span class=\"same-way\"",
                Some(_) => "span class=\"other-way-text\"",
                None => "span",
            };
            table.element(class, &text::closeness(row.closeness).to_lowercase());
            table.raw("</td>").element("td", &text::closeness(row.level));
            table.element("td", &text::score(row)).element("td", &obtained(row)).raw("</tr>");
        }
        table.raw(TABLE_END);
        table
    }
}

fn mark_of(row: &RowFinding, notes: &[(usize, &str, bool)]) -> Option<String> {
    let numbers = text::notes_of(row)
        .filter_map(|note| notes.iter().find(|(_, known, _)| *known == note).map(|(nr, ..)| *nr));
    let marks: Vec<String> = numbers.map(|nr| format!("[{nr}]")).collect();
    (!marks.is_empty()).then(|| marks.join(" "))
}

fn shares(pair: Pair, side: Side, class: &'static str, who: &str) -> Vec<Mark> {
    let (before, after) = (pair.before, pair.after);
    let shown = |value: Option<f64>| value.map_or("-".to_owned(), |value| number(value, "%"));
    let tip = format!("{who}: {} before, {} after", shown(before), shown(after));
    let at = |value, shape| Mark::At { value, side, shape, class, tip: tip.clone() };
    let mut marks = Vec::new();
    if let (Some(from), Some(to)) = (before, after) {
        marks.push(Mark::Span { from, to, side, class: "way", tip: tip.clone() });
    }
    marks.extend(before.map(|value| at(value, Shape::Ring)));
    marks.extend(after.map(|value| at(value, Shape::Dot)));
    marks
}

fn apart(
    published: Option<f64>,
    ours: Option<f64>,
    how: &How,
    way: &'static str,
    ground: &Ground,
) -> Vec<Mark> {
    let (class, word) = how_class(how);
    let side = Side::Middle;
    let shown = |value: f64| match ground {
        Ground::Numbers(unit) => number(value, unit),
        _ => signed(value) + "%",
    };
    let mut marks = Vec::new();
    if let (Some(from), Some(to)) = (published, ours) {
        let tip = format!("published {}, {word} {}", shown(from), shown(to));
        marks.push(Mark::Span { from, to, side, class: way, tip });
    }
    let at = |value, shape, class, tip| Mark::At { value, side, shape, class, tip };
    // A ring around the dot: both stay visible if they coincide.
    marks.extend(
        ours.map(|value| at(value, Shape::Dot, class, format!("{word}: {}", shown(value)))),
    );
    marks.extend(
        published.map(|value| {
            at(value, Shape::Tick, "published", format!("published: {}", shown(value)))
        }),
    );
    marks
}

fn legend(ground: &Ground, rows: &[Row<'_>], reference: &str) -> Markup {
    let mut entries = Vec::new();
    let above = format!("{reference}, above");
    if *ground == Ground::Shares {
        entries.push((Shape::Dot, "published", above.as_str()));
    } else {
        entries.push((Shape::Tick, "published", reference));
    }
    let mut hows: Vec<_> = rows.iter().map(|(_, row)| how_class(&row.how)).collect();
    hows.sort_unstable();
    hows.dedup();
    let ours = hows.into_iter().filter(|(_, word)| *word != "none");
    let words: Vec<(&str, String)> =
        ours.map(|(class, word)| (class, format!("ours, {word}"))).collect();
    entries.extend(words.iter().map(|(class, words)| (Shape::Dot, *class, words.as_str())));
    if *ground == Ground::Shares {
        entries.push((Shape::Ring, "total-bar", "before"));
        entries.push((Shape::Dot, "total-bar", "after"));
    }
    key(&entries)
}

fn pair(table: &mut Markup, pair: Option<Pair>, at: &str, unit: &str, row: &RowFinding) {
    let Some(pair) = pair else { return };
    if let Some(before) = pair.before {
        let shown = number(before, "");
        table.number(&format!("{at}/before"), before, &shown).text(" \u{2192} ");
    }
    if let Some(after) = pair.after {
        table.number(&format!("{at}/after"), after, &number(after, unit)).text(" ");
    }
    if let Some(change) = pair.change {
        let unit = if row.measure == Change::Points { "pp" } else { "%" };
        let shown = signed(change) + unit;
        table.raw("<small>").number(&format!("{at}/change"), change, &shown).raw("</small>");
    }
}

fn obtained(row: &RowFinding) -> String {
    let (how, basis) = (&row.how, text::basis(row));
    match how {
        How::Counted { of } => format!("counted, {basis}: {of}"),
        How::Estimated { of, .. } => format!("estimated, {basis}: {of}{}", text::caveats(how)),
        How::Measured(measured) => {
            let [_, min, max] = measured.change;
            format!(
                "{basis}: n = {}, {min:+.0}% to {max:+.0}%, {}, {}",
                measured.n, measured.cpu, measured.kernel
            )
        }
        How::Quoted(quoted) => {
            let range = quoted.range.map(|[min, max]| format!(", {min:+.0}% to {max:+.0}%"));
            let range = range.unwrap_or_default();
            format!("{basis}: {}; {}, n = {}{range}", quoted.from, quoted.cpu, quoted.n)
        }
        How::None { why } => format!("none: {why}"),
    }
}

fn sources(report: &StudyResult) -> Markup {
    let mut body = meanings(&[
        ("published", "As printed in the posting or document that each study names."),
        ("counted", "Exact in the model: the same trace, kernel and machine give the same number."),
        (
            "estimated",
            "Counts times the costs in a machine file, which gives the source of each \
                       cost.",
        ),
        (
            "measured",
            "Timed now on this kernel (--live): medians over rounds that alternate between both \
             sides.",
        ),
        ("quoted", "Measured earlier; the named document gives the processor and n."),
        (
            "change, level",
            "Within 10% of the published number, or within the resolution of its table; within a \
             factor of 2; a change may also only have the same direction, or the opposite one.",
        ),
        (
            "score",
            "A row matches if both its level and its change are within 10%. An estimate that \
             rests on assumed constants can match only by coincidence. Rows that use an input \
             from their own series, measure another quantity or compare zero with zero do not \
             count.",
        ),
    ]);
    body.raw("<h3>Published</h3><ul class=\"notes\">");
    for finding in &report.studies {
        let Finding { study, reference, source, setup, .. } = finding;
        let rests_on = finding.rests_on.as_ref();
        let rests_on = rests_on.map(|text| format!(". Published work in our inputs: {text}"));
        let text =
            format!("{study}, {reference}: {source}; {setup}{}", rests_on.unwrap_or_default());
        body.element("li", &text);
    }
    body.raw("</ul>");
    body
}

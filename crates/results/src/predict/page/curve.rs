//! TLB misses by number of entries: a chart for each machine and side, a line for each kernel, and
//! dots for the machine's own TLB.
//!
//! ```text
//!   misses per million |--.            .  one line: LRU buffers of every size, exact
//!   (log)              |   '--.        o  misses of the machine's sets and ways,
//!                      |   o   '--.       at its own number of entries
//!                      +---------------- entries (log)
//! ```

use std::collections::BTreeMap;

use largefolio_sim::replay::Outcome;
use largefolio_sim::tlb::Side;
use largefolio_sim::tlb::curve::{Curve, NR_ENTRIES_MAX};

use crate::figures::{grouped, per_million, ratio, size};
use crate::html::decades::{Area, Decades};
use crate::html::frame::{TABLE_END, figure, table_head};
use crate::html::lines::{colour, legend};
use crate::html::markup::{Markup, escaped};
use crate::predict::labels::Labels;
use crate::predict::sums::references;

/// Chart size in drawing units, roughly CSS pixels, so that text has its usual size.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;
const AREA: Area = Area { left: 46.0, right: 392.0, top: 18.0, bottom: 192.0 };
/// Buffers smaller than this are inexact for a recorded trace: the recorder merges references to a
/// thread's last eight rows (docs/design/replay.md, "Collapsed rows").
const NR_MERGED: usize = 8;

const SIDES: [(Side, &str, &str); 2] =
    [(Side::Instruction, "instruction", "Instructions"), (Side::Data, "data", "Data")];

struct CurveLine<'a> {
    nr: usize,
    row: &'a Outcome,
    curve: &'a Curve,
    name: &'a str,
    policy: &'a str,
    /// Colour number: one per kernel and other difference.
    colour: usize,
}

struct Dot {
    entries: usize,
    misses: u64,
    level: &'static str,
}

pub(super) fn figures(rows: &[Outcome]) -> Option<Markup> {
    let names = Labels::names(rows);
    let policies: Vec<String> =
        rows.iter().zip(&names).map(|(row, name)| policy(row, name)).collect();
    let mut distinct: Vec<&str> = Vec::new();
    for policy in &policies {
        if !distinct.contains(&policy.as_str()) {
            distinct.push(policy);
        }
    }
    let lines: Vec<CurveLine<'_>> = (0..rows.len())
        .filter_map(|nr| {
            let colour = distinct.iter().position(|policy| *policy == policies[nr])?;
            let curve = &rows[nr].detail.as_ref()?.tlb_curve;
            let (name, policy) = (&names[nr], &policies[nr]);
            Some(CurveLine { nr, row: &rows[nr], curve, name, policy, colour })
        })
        .collect();
    if lines.is_empty() {
        return None;
    }
    let mut body = Markup::new();
    body.element("h3", "Over the number of entries").element("p class=\"note\"", NOTE);
    body.append(&legend(&distinct));
    for side in SIDES {
        let caption = format!("{}: misses per million references", side.2);
        body.append(&figure(&caption, &charts(&lines, side), &table(&lines, side)));
    }
    Some(body)
}

const NOTE: &str = "Lines: a fully associative buffer with this many entries that replaces the \
                    least recently used one. It holds the same base pages, coalesced blocks and \
                    PMD entries, and misses are counted exactly for every size. Dots: the misses \
                    in the machine's own TLB, with its sets and ways, at its number of entries: \
                    misses at level 1, walks at level 2. If instructions and data share level 2, \
                    each has fewer entries, so the dots lie above the lines. Shaded, up to eight \
                    entries: lower bounds, because a recorded trace does not record how often the \
                    program alternated between its last eight pages. With scripts: point at a \
                    chart, or step through it with the arrow keys.";

/// Returns the cell's name without machine and base page, which all lines of a chart share.
fn policy(row: &Outcome, name: &str) -> String {
    let machine = format!(" on {}", row.machine);
    let pages = format!(", {} pages", size(row.page_bytes));
    match name.strip_prefix(row.kernel.as_str()).and_then(|rest| rest.strip_prefix(&machine)) {
        Some(rest) => format!("{}{}", row.kernel, rest.strip_prefix(&pages).unwrap_or(rest)),
        None => name.to_owned(),
    }
}

fn charts(lines: &[CurveLine<'_>], side: (Side, &str, &str)) -> Markup {
    let mut machines: BTreeMap<(usize, &str, u64), Vec<&CurveLine<'_>>> = BTreeMap::new();
    for line in lines {
        let (machine, page) = (line.row.machine.as_str(), line.row.page_bytes);
        let same = |other: &&CurveLine<'_>| {
            (other.row.machine.as_str(), other.row.page_bytes) == (machine, page)
        };
        let first = lines.iter().find(same).map_or(line.nr, |first| first.nr);
        machines.entry((first, machine, page)).or_default().push(line);
    }
    let has_pages = lines.iter().any(|line| line.row.page_bytes != lines[0].row.page_bytes);
    let scale = decades(lines, side.0);
    let mut charts = Markup::new();
    charts.raw("<div class=\"charts\">");
    for ((_, machine, page), of_machine) in machines {
        let pages = format!(", {} pages", size(page));
        let name = format!("{machine}{}", if has_pages { &pages } else { "" });
        charts.raw("<div class=\"chart\">").element("b", &name).raw(" ");
        charts.element("small", &alike(&of_machine, side.0));
        charts.append(&chart(&of_machine, side, &scale, &name)).raw("</div>");
    }
    charts.raw("</div>\n");
    charts
}

fn alike(lines: &[&CurveLine<'_>], side: Side) -> String {
    let mut groups: Vec<Vec<&CurveLine<'_>>> = Vec::new();
    for line in lines {
        let same =
            |group: &&mut Vec<&CurveLine<'_>>| group[0].curve.of(side) == line.curve.of(side);
        match groups.iter_mut().find(same) {
            Some(group) => group.push(line),
            None => groups.push(vec![line]),
        }
    }
    let alike = groups.iter().filter(|group| group.len() > 1).map(|group| {
        let names: Vec<&str> = group.iter().map(|line| line.policy).collect();
        format!("{}: the same line", names.join(", "))
    });
    alike.collect::<Vec<_>>().join("; ")
}

fn chart(
    lines: &[&CurveLine<'_>],
    (side, key, title): (Side, &str, &str),
    scale: &Decades,
    name: &str,
) -> Markup {
    let Area { left, right, top, bottom } = AREA;
    let mut chart = Markup::new();
    let join = |get: fn(&CurveLine<'_>) -> usize| {
        lines.iter().map(|line| get(line).to_string()).collect::<Vec<_>>().join(" ")
    };
    let (rows, names) = (join(|line| line.nr), join(|line| line.colour));
    chart.raw(&format!(
        "<svg class=\"curve\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" tabindex=\"0\" \
         data-rows=\"{rows}\" data-names=\"{names}\" data-side=\"{key}\" data-x=\"{left} {right} {NR_ENTRIES_MAX}\" \
         data-y=\"{top} {bottom}\">"
    ));
    chart.element("title", &format!("{title} on {name}: misses over entries"));
    chart.append(&axes(scale)).append(&own_sizes(lines, side));
    for line in lines {
        let points = line.curve.of(side).iter();
        let all = references(line.row);
        let mut path = String::new();
        for point in points {
            let (x, y) = (x_of(point.entries), scale.y_of(rate(point.misses, all)));
            let drawn = format!("{}{x:.1} {y:.1}", if path.is_empty() { 'M' } else { 'L' });
            path.push_str(&drawn);
        }
        chart.raw(&format!("<path class=\"line {}\" d=\"{path}\"/>", colour(line.colour)));
    }
    for line in lines {
        for dot in dots(line, side) {
            let all = references(line.row);
            let (x, y) = (x_of(dot.entries), scale.y_of(rate(dot.misses, all)));
            let shown = per_million(dot.misses, all);
            let tip = format!(
                "{}: the machine's {} with {} entries misses {} per million references ({})",
                line.name,
                dot.level,
                grouped(dot.entries as u64),
                if shown.is_empty() { "0" } else { &shown },
                grouped(dot.misses)
            );
            chart.raw(&format!(
                "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" data-tip=\"{}\"/>",
                colour(line.colour),
                escaped(&tip)
            ));
        }
    }
    chart.raw("</svg>");
    chart
}

fn dots(line: &CurveLine<'_>, side: Side) -> Vec<Dot> {
    let counted = line.row.tlb.side(side);
    let [l1, l2] = line.curve.own.of(side);
    let levels = [(l1, counted.l1_misses, "level 1"), (l2, counted.l2_misses, "level 2")];
    let dot = |(entries, misses, level): (Option<usize>, u64, &'static str)| {
        let entries = entries.filter(|&entries| entries <= NR_ENTRIES_MAX)?;
        Some(Dot { entries, misses, level })
    };
    levels.into_iter().filter_map(dot).collect()
}

fn own_sizes(lines: &[&CurveLine<'_>], side: Side) -> Markup {
    let mut sizes: BTreeMap<usize, &str> = BTreeMap::new();
    for dot in lines.iter().flat_map(|line| dots(line, side)) {
        sizes.entry(dot.entries).or_insert(if dot.level == "level 1" { "L1" } else { "L2" });
    }
    let mut marks = Markup::new();
    let mut last = f64::NEG_INFINITY;
    for (entries, level) in sizes {
        let x = x_of(entries);
        marks.raw(&format!("<path class=\"own\" d=\"M{x:.1} {}V{}\"/>", AREA.top, AREA.bottom));
        if x - last > 60.0 {
            marks.raw(&format!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"12\" text-anchor=\"middle\">"
            ));
            marks.text(&format!("{level}: {}", grouped(entries as u64))).raw("</text>");
            last = x;
        }
    }
    marks
}

fn x_of(entries: usize) -> f64 {
    let octaves = ratio(entries as u64, 1).log2() / ratio(NR_ENTRIES_MAX as u64, 1).log2();
    AREA.left + octaves * (AREA.right - AREA.left)
}

fn rate(misses: u64, references: u64) -> f64 {
    1e6 * ratio(misses, references)
}

fn decades(lines: &[CurveLine<'_>], side: Side) -> Decades {
    let rates = lines.iter().flat_map(|line| {
        let points = line.curve.of(side).iter().map(|point| point.misses);
        let dots = dots(line, side).into_iter().map(|dot| dot.misses);
        points.chain(dots).map(|misses| rate(misses, references(line.row)))
    });
    Decades::over(rates, AREA)
}

fn axes(scale: &Decades) -> Markup {
    let Area { left, right, top, bottom } = AREA;
    let mut axes = Markup::new();
    axes.raw(&format!(
        "<rect class=\"merged\" x=\"{left}\" y=\"{top}\" width=\"{:.1}\" height=\"{}\"/>",
        x_of(NR_MERGED) - left,
        bottom - top
    ));
    axes.append(&scale.axis());
    for shift in (0..=NR_ENTRIES_MAX.ilog2()).step_by(2) {
        axes.append(&AREA.mark(x_of(1 << shift), &grouped(1_u64 << shift)));
    }
    axes.raw(&format!(
        "<text class=\"tick\" x=\"{right}\" y=\"{}\" text-anchor=\"end\">entries</text>",
        bottom + 33.0
    ));
    axes
}

fn table(lines: &[CurveLine<'_>], (side, key, _): (Side, &str, &str)) -> Markup {
    let columns: Vec<String> = lines.iter().map(|line| line.name.to_owned()).collect();
    let mut sizes: Vec<usize> = (0..=NR_ENTRIES_MAX.ilog2()).map(|shift| 1 << shift).collect();
    sizes.extend(lines.iter().flat_map(|line| dots(line, side)).map(|dot| dot.entries));
    sizes.sort_unstable();
    sizes.dedup();
    let mut table = table_head("Entries", &columns);
    for entries in sizes {
        table.raw("<tr>").element("th scope=\"row\"", &grouped(entries as u64));
        for line in lines {
            table.raw("<td>");
            let points = line.curve.of(side);
            if let Ok(at) = points.binary_search_by_key(&entries, |point| point.entries) {
                let (misses, nr) = (points[at].misses, line.nr);
                let place = format!("/rows/{nr}/detail/tlb_curve/{key}/{at}/1");
                table.number(&place, misses, &grouped(misses)).raw(" ");
                table.element("small", &per_million(misses, references(line.row)));
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

//! Programs below limits as charts: a line per kernel, with the two kinds of lists next to each
//! other.

use largefolio_report::html::frame::{TABLE_END, figure, table_head};
use largefolio_report::html::lines::{Chart, Line, Point, charts, legend};
use largefolio_report::html::markup::Markup;
use largefolio_sim::study::{CountFinding, CurveFinding, LineFinding, Series};

use super::super::curve::{basis, head, mib, value, verdict};

pub(super) fn answer(answer: &mut Markup, curve: &CurveFinding) {
    let Some(count) = curve.counts.first() else { return };
    answer.raw("<p class=\"answer\">").element("b", &curve.title);
    answer.text(&format!(". {}, {}.", count.what, verdict(curve, count))).raw("</p>");
}

pub(super) fn drawn(curve: &CurveFinding, at: &str) -> Markup {
    let mut body = Markup::new();
    body.element("h3", &curve.title).element("p class=\"note\"", &basis(curve));
    for (nr, count) in curve.counts.iter().enumerate() {
        let at = format!("{at}/counts/{nr}");
        body.append(&figure(&head(count), &picture(curve, count), &table(curve, count, &at)));
        body.element("p class=\"note\"", &format!("{}, {}.", count.what, verdict(curve, count)));
    }
    body
}

fn picture(curve: &CurveFinding, count: &CountFinding) -> Markup {
    let places: Vec<String> =
        curve.limits.iter().map(|limit| format!("{}%", limit.percent)).collect();
    let names: Vec<&str> = count.lines.iter().map(|line| line.name.as_str()).collect();
    let line = |name: &str, series: &Series| {
        let point = |nr: usize| Point {
            value: series.values[nr],
            tip: format!("{name} at {}: {}", places[nr], value(curve, series, nr)),
        };
        Line { points: (0..places.len()).map(point).collect() }
    };
    let own = count.lines.iter().map(|found| line(&found.name, &found.own)).collect();
    let mut all = vec![Chart { title: "As in the kernel".to_owned(), lines: own }];
    if let Some(name) = &curve.beside {
        let lines =
            count.lines.iter().filter_map(|found| Some(line(&found.name, found.beside.as_ref()?)));
        let title = format!("With {name}");
        all.push(Chart { title, lines: lines.collect() });
    }
    let mut picture = legend(&names);
    picture.append(&charts(&places, &all));
    picture
}

fn table(curve: &CurveFinding, count: &CountFinding, at: &str) -> Markup {
    let columns: Vec<String> = count.lines.iter().flat_map(|line| columns(curve, line)).collect();
    let mut table = table_head("memory.max", &columns);
    for (nr, limit) in curve.limits.iter().enumerate() {
        let place = format!("{}% ({})", limit.percent, mib(limit.bytes));
        table.raw("<tr>").element("th scope=\"row\"", &place);
        for (line_nr, line) in count.lines.iter().enumerate() {
            for (kind, series) in [("own", Some(&line.own)), ("beside", line.beside.as_ref())] {
                let Some(series) = series else { continue };
                let shown = value(curve, series, nr);
                table.raw("<td>");
                match series.values[nr] {
                    Some(exact) => {
                        let place = format!("{at}/lines/{line_nr}/{kind}/values/{nr}");
                        table.number(&place, exact, &shown);
                    }
                    None => {
                        table.text(&shown);
                    }
                }
                table.raw("</td>");
            }
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

fn columns(curve: &CurveFinding, line: &LineFinding) -> Vec<String> {
    let beside = line.beside.as_ref().and(curve.beside.as_ref());
    let beside = beside.map(|beside| format!("{}, {beside}", line.name));
    std::iter::once(line.name.clone()).chain(beside).collect()
}

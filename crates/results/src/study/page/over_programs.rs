//! Kernels over many programs as fields: each kernel's gain over its cost, on average and per
//! program.

use largefolio_report::html::frame::{TABLE_END, figure, table_head};
use largefolio_report::html::lanes::{Axis, Guide, Point, Shape, field, key};
use largefolio_report::html::markup::Markup;
use largefolio_sim::study::{FrontierFinding, FrontierLine};

use super::super::columns::signed;
use super::super::frontier::{basis, lower, verdict};

/// Line colours; a frontier has at most this many lines.
const COLOURS: [&str; 8] =
    ["dot k0", "dot k1", "dot k2", "dot k3", "dot k4", "dot k5", "dot k6", "dot k7"];

pub(super) fn answer(answer: &mut Markup, found: &FrontierFinding) {
    let nr_paid = found.counts.len().saturating_sub(1);
    let sentences: Vec<String> = verdict(found).into_iter().take(nr_paid).collect();
    answer.raw("<p class=\"answer\">").element("b", &found.title);
    answer.text(&format!(": {}.", sentences.join("; "))).raw("</p>");
}

pub(super) fn drawn(found: &FrontierFinding, at: &str) -> Markup {
    let mut body = Markup::new();
    body.element("h3", &found.title).element("p class=\"note\"", &basis(found));
    let Some((gain, paid)) = found.counts.split_first() else { return body };
    for (nr, count) in paid.iter().enumerate() {
        let caption = format!("{} over {}", gain.what, lower(&count.what));
        body.append(&figure(&caption, &picture(found, nr + 1), &table(found, nr + 1, at)));
    }
    body.raw("<ul class=\"notes\">");
    for sentence in verdict(found) {
        body.element("li", &sentence);
    }
    body.raw("</ul>");
    body
}

fn picture(found: &FrontierFinding, paid: usize) -> Markup {
    let name_of = |line: &FrontierLine| {
        let is_on_frontier = line.is_on_frontier[paid - 1];
        line.name.clone() + if is_on_frontier { ", on the frontier" } else { "" }
    };
    let names: Vec<String> = found.lines.iter().map(name_of).collect();
    let mut points = Vec::new();
    for (line, class) in found.lines.iter().zip(COLOURS.iter().cycle()).skip(1) {
        let [gains, pays] = [0, paid].map(|nr| &line.changes[nr]);
        for ((x, y), program) in pays.percent.iter().zip(&gains.percent).zip(&found.programs) {
            let (Some(x), Some(y)) = (*x, *y) else { continue };
            let tip = tip(found, paid, &format!("{}, {program}", line.name), (x, y));
            points.push(Point { x, y, shape: Shape::Dot, class, tip });
        }
    }
    for (line, class) in found.lines.iter().zip(COLOURS.iter().cycle()) {
        let [gains, pays] = [0, paid].map(|nr| line.changes[nr].mean_percent);
        let (Some(x), Some(y)) = (pays, gains) else { continue };
        let tip = tip(found, paid, &format!("{}, mean", line.name), (x, y));
        points.push(Point { x, y, shape: Shape::Diamond, class, tip });
    }
    let across = Axis::over(points.iter().map(|point| point.x).chain([0.0]), "%");
    let up = Axis::over(points.iter().map(|point| point.y).chain([0.0]), "%");
    let entries: Vec<(Shape, &str, &str)> = names
        .iter()
        .zip(COLOURS.iter().cycle())
        .map(|(name, class)| (Shape::Diamond, *class, name.as_str()))
        .collect();
    let [gain, pays] = [0, paid].map(|nr| lower(&found.counts[nr].what));
    let title = format!("Change of {gain} over change of {pays}");
    let unchanged = [Guide { from: 0.0, to: 0.0, class: "one" }];
    let mut picture = key(&entries);
    picture.append(&field(&title, (&across, &up), &unchanged, &points));
    let note = format!(
        "Up: change of {gain}. From left to right: change of {pays}. Less of both is better: below and \
         to the left. Diamonds: mean of the programs; dots: one program each."
    );
    picture.element("p class=\"note\"", &note);
    picture
}

fn tip(found: &FrontierFinding, paid: usize, name: &str, (x, y): (f64, f64)) -> String {
    let [gain, pays] = [0, paid].map(|nr| &found.counts[nr].what);
    format!("{name}\n{gain} {}%\n{pays} {}%", signed(y), signed(x))
}

fn table(found: &FrontierFinding, paid: usize, at: &str) -> Markup {
    let columns: Vec<String> = found.lines.iter().skip(1).map(|line| line.name.clone()).collect();
    let mut table = table_head("Program", &columns);
    let number = |table: &mut Markup, place: String, percent: Option<f64>| {
        match percent {
            Some(percent) => table.number(&place, percent, &(signed(percent) + "%")),
            None => table.text("-"),
        };
    };
    for (nr, program) in found.programs.iter().map(Some).chain([None]).enumerate() {
        let name = program.map_or("mean", String::as_str);
        table.raw("<tr>").element("th scope=\"row\"", name);
        for (line_nr, line) in found.lines.iter().enumerate().skip(1) {
            table.raw("<td>");
            for (count, between) in [(0, " / "), (paid, "")] {
                let change = &line.changes[count];
                let at = format!("{at}/lines/{line_nr}/changes/{count}");
                match program {
                    Some(_) => number(&mut table, format!("{at}/percent/{nr}"), change.percent[nr]),
                    None => number(&mut table, format!("{at}/mean_percent"), change.mean_percent),
                }
                table.text(between);
            }
            table.raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

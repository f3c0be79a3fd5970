//! Line charts with a logarithmic axis, one chart per group of lines, all on one scale.
//!
//! ```text
//!   1K |--.  x          x  a line that has no value here
//!      |   '--.___
//!   10 |_____________   places, evenly apart
//!       10% 25% 50%
//! ```

use std::fmt::Write as _;

use super::decades::{Area, Decades};
use super::markup::{Markup, escaped};

/// Chart size in drawing units, roughly CSS pixels, so that text has its usual size.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;
const AREA: Area = Area { left: 46.0, right: 386.0, top: 22.0, bottom: 192.0 };
/// Number of line colours; further lines reuse them with other dashes.
const NR_COLOURS: usize = 8;

#[derive(Clone, Debug)]
pub struct Chart {
    pub title: String,
    /// In the order of the legend.
    pub lines: Vec<ChartLine>,
}

#[derive(Clone, Debug)]
pub struct ChartLine {
    pub points: Vec<Point>,
}

#[derive(Clone, Debug)]
pub struct Point {
    /// `None`: a cross at the top.
    pub value: Option<f64>,
    pub tip: String,
}

#[must_use]
pub fn colour(nr: usize) -> String {
    let dash = if nr < NR_COLOURS { "" } else { " again" };
    format!("k{}{dash}", nr % NR_COLOURS)
}

#[must_use]
pub fn legend(names: &[&str]) -> Markup {
    let mut legend = Markup::new();
    legend.raw("<ul class=\"legend policies\">");
    for (nr, name) in names.iter().enumerate() {
        legend.raw("<li><svg class=\"key wide-key\" viewBox=\"0 0 28 12\" aria-hidden=\"true\">");
        legend.raw(&format!("<path class=\"line {}\" d=\"M0 6H28\"/>", colour(nr)));
        legend.raw(&format!("<circle class=\"dot {}\" cx=\"14\" cy=\"6\" r=\"3.5\"/>", colour(nr)));
        legend.raw("</svg>").text(name).raw("</li>");
    }
    legend.raw("</ul>\n");
    legend
}

/// Draws charts next to each other; `places` are the names along the axis.
#[must_use]
pub fn charts(places: &[String], charts: &[Chart]) -> Markup {
    let points = charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.points);
    let scale = Decades::over(points.filter_map(|point| point.value), AREA);
    let mut markup = Markup::new();
    markup.raw("<div class=\"charts\">");
    for chart in charts {
        markup.raw("<div class=\"chart\">").element("b", &chart.title);
        markup.raw(&format!(
            "<svg class=\"line-chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" tabindex=\"0\">"
        ));
        markup.element("title", &chart.title).append(&scale.axis());
        for (nr, place) in places.iter().enumerate() {
            markup.append(&AREA.mark(x_of(nr, places.len()), place));
        }
        for (nr, line) in chart.lines.iter().enumerate() {
            markup.append(&drawn(nr, line, &scale, places.len()));
        }
        markup.raw("</svg></div>");
    }
    markup.raw("</div>\n");
    markup
}

fn drawn(nr: usize, line: &ChartLine, scale: &Decades, nr_places: usize) -> Markup {
    let (mut path, mut dots) = (String::new(), Markup::new());
    let mut is_joined = false;
    for (place, point) in line.points.iter().enumerate() {
        let (x, tip) = (x_of(place, nr_places), escaped(&point.tip));
        let Some(value) = point.value else {
            dots.raw(&format!(
                "<path class=\"line {}\" d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\" data-tip=\"{tip}\"/>",
                colour(nr),
                x - 3.0,
                AREA.top - 14.0
            ));
            is_joined = false;
            continue;
        };
        let y = scale.y_of(value);
        let _ = write!(path, "{}{x:.1} {y:.1}", if is_joined { 'L' } else { 'M' });
        is_joined = true;
        dots.raw(&format!(
            "<circle class=\"dot {}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4\" data-tip=\"{tip}\"/>",
            colour(nr)
        ));
    }
    let mut markup = Markup::new();
    markup.raw(&format!("<path class=\"line {}\" d=\"{path}\"/>", colour(nr))).append(&dots);
    markup
}

fn x_of(place: usize, nr_places: usize) -> f64 {
    let last = nr_places.saturating_sub(1).max(1);
    #[expect(clippy::cast_precision_loss, reason = "a handful of places")]
    let part = place as f64 / last as f64;
    AREA.left + part * (AREA.right - AREA.left)
}

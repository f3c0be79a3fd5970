//! Lines over a few places: values on a logarithmic axis, a chart for each group of lines, all on
//! one scale.
//!
//! ```text
//!   1K |--.  x          x  a line that has no value here
//!      |   '--.___
//!   10 |_____________   places, evenly apart
//!       10% 25% 50%
//! ```

use std::fmt::Write as _;

use super::markup::{Markup, escaped};

/// Size of a chart in its own units, about dots: text in it is read as it is.
const WIDTH: f64 = 400.0;
const HEIGHT: f64 = 230.0;
/// Where the lines are drawn.
const LEFT: f64 = 46.0;
const RIGHT: f64 = 386.0;
const TOP: f64 = 22.0;
const BOTTOM: f64 = 192.0;
/// Colours of lines; beyond, they come again with other dashes.
const NR_COLOURS: usize = 8;

/// A chart.
#[derive(Clone, Debug)]
pub struct Chart {
    /// What stands above it.
    pub title: String,
    /// In the order of the legend.
    pub lines: Vec<Line>,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// A point for each place.
    pub points: Vec<Point>,
}

/// A value at a place.
#[derive(Clone, Debug)]
pub struct Point {
    /// Absent: a cross at the top.
    pub value: Option<f64>,
    /// What is told of it.
    pub tip: String,
}

/// Class of the line with this number.
#[must_use]
pub fn colour(nr: usize) -> String {
    let dash = if nr < NR_COLOURS { "" } else { " again" };
    format!("k{}{dash}", nr % NR_COLOURS)
}

/// The lines by name.
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

/// Charts side by side; `places` are the names along the axis.
#[must_use]
pub fn charts(places: &[String], charts: &[Chart]) -> Markup {
    let points = charts.iter().flat_map(|chart| &chart.lines).flat_map(|line| &line.points);
    let scale = Scale::over(points.filter_map(|point| point.value));
    let mut markup = Markup::new();
    markup.raw("<div class=\"charts\">");
    for chart in charts {
        markup.raw("<div class=\"chart\">").element("b", &chart.title);
        markup.raw(&format!(
            "<svg class=\"line-chart\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" role=\"img\" tabindex=\"0\">"
        ));
        markup.element("title", &chart.title).append(&scale.axes(places));
        for (nr, line) in chart.lines.iter().enumerate() {
            markup.append(&drawn(nr, line, &scale, places.len()));
        }
        markup.raw("</svg></div>");
    }
    markup.raw("</div>\n");
    markup
}

fn drawn(nr: usize, line: &Line, scale: &Scale, nr_places: usize) -> Markup {
    let (mut path, mut dots) = (String::new(), Markup::new());
    let mut is_joined = false;
    for (place, point) in line.points.iter().enumerate() {
        let (x, tip) = (x_of(place, nr_places), escaped(&point.tip));
        let Some(value) = point.value else {
            dots.raw(&format!(
                "<path class=\"line {}\" d=\"M{:.1} {:.1}l6 6m0 -6l-6 6\" data-tip=\"{tip}\"/>",
                colour(nr),
                x - 3.0,
                TOP - 14.0
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
    LEFT + part * (RIGHT - LEFT)
}

/// Decades, and nothing at the bottom.
struct Scale {
    low: i32,
    high: i32,
}

impl Scale {
    fn over(values: impl Iterator<Item = f64>) -> Self {
        let logs = values.filter(|value| *value > 0.0).map(f64::log10);
        let (low, high) = logs.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), log| {
            (low.min(log), high.max(log))
        });
        if low > high {
            return Self { low: 0, high: 1 };
        }
        let (low, high) = (decade(low.floor()), decade(high.ceil()));
        Self { low, high: high.max(low + 1) }
    }

    fn y_of(&self, value: f64) -> f64 {
        if value <= 0.0 {
            return BOTTOM;
        }
        let part = (value.log10() - f64::from(self.low)) / f64::from(self.high - self.low);
        BOTTOM - part.clamp(0.0, 1.0) * (BOTTOM - TOP)
    }

    fn axes(&self, places: &[String]) -> Markup {
        let mut axes = Markup::new();
        for decade in self.low..=self.high {
            let y = self.y_of(10_f64.powi(decade));
            axes.raw(&format!("<path class=\"grid\" d=\"M{LEFT} {y:.1}H{RIGHT}\"/>"));
            axes.raw(&format!(
                "<text class=\"tick\" x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                LEFT - 5.0,
                y + 4.0,
                power_of_ten(decade)
            ));
        }
        for (nr, place) in places.iter().enumerate() {
            let x = x_of(nr, places.len());
            axes.raw(&format!("<path class=\"grid\" d=\"M{x:.1} {BOTTOM}v4\"/>"));
            axes.raw(&format!(
                "<text class=\"tick\" x=\"{x:.1}\" y=\"{}\" text-anchor=\"middle\">",
                BOTTOM + 17.0
            ));
            axes.text(place).raw("</text>");
        }
        axes
    }
}

/// Decade of a logarithm.
#[expect(
    clippy::cast_possible_truncation,
    reason = "of a number that is drawn: a few hundred at most"
)]
pub(super) const fn decade(log10: f64) -> i32 {
    log10 as i32
}

/// `0.01`, `100`, `10K`.
pub(super) fn power_of_ten(decade: i32) -> String {
    match decade {
        ..0 => format!("0.{}1", "0".repeat((-decade - 1).unsigned_abs() as usize)),
        0..3 => format!("1{}", "0".repeat(decade.unsigned_abs() as usize)),
        3..6 => format!("1{}K", "0".repeat((decade - 3).unsigned_abs() as usize)),
        _ => format!("1{}M", "0".repeat((decade - 6).unsigned_abs() as usize)),
    }
}

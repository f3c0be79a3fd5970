//! Marks on one axis: lanes below each other, or points in a field.
//!
//! ```text
//!   one thing        |     :   o====O     |    published and ours
//!   another          |  o--:--O           |    `:` a guide over all lanes
//!                    0     1     2     3       ticks
//! ```
//!
//! Positions are percentages of the width, so drawings need no fixed size and marks stay round.
//!
//! Invariant: a mark beyond the axis becomes an arrow at the axis's end. The table contains its
//! number.

use super::markup::{Markup, escaped};

const NR_TICKS: f64 = 4.0;
const FIELD_HEIGHT: u32 = 240;
/// Allowed steps between ticks, times a power of ten.
const STEPS: [f64; 4] = [1.0, 2.0, 5.0, 10.0];
/// Ratios with a smaller span are easier to read on a linear axis.
const LINEAR_SPAN: f64 = 3.0;
/// An axis of ratios covers at least this part of them. Values beyond are drawn at its ends if
/// showing them would make the axis [`FAR`] times as long.
const NEAR_PART: f64 = 0.75;
const FAR: f64 = 2.0;

#[derive(Clone, Debug, PartialEq)]
pub struct Axis {
    low: f64,
    high: f64,
    ticks: Vec<f64>,
    digits: usize,
    unit: &'static str,
    is_log: bool,
}

impl Axis {
    /// Creates an axis from the first tick below `low` to the first above `high`.
    ///
    /// ```
    /// # use largefolio_results::html::lanes::Axis;
    /// let axis = Axis::over([-39.0, 75.0], "pp");
    /// assert_eq!(axis.bounds(), (-50.0, 100.0));
    /// assert!((axis.place(25.0) - 50.0).abs() < 1e-9);
    /// ```
    #[must_use]
    pub fn over(values: impl IntoIterator<Item = f64>, unit: &'static str) -> Self {
        let finite = values.into_iter().filter(|value| value.is_finite());
        let bounds = finite.fold(None, |bounds: Option<(f64, f64)>, value| {
            Some(bounds.map_or((value, value), |(low, high)| (low.min(value), high.max(value))))
        });
        let (low, high) = bounds.unwrap_or((0.0, 1.0));
        let span = if high > low { high - low } else { high.abs().max(1.0) };
        let rough = span / NR_TICKS;
        let power = 10_f64.powf(rough.log10().floor());
        let step = STEPS.iter().map(|step| step * power).find(|step| *step >= rough * 0.999);
        let step = step.unwrap_or(power * 10.0);
        let (low, high) = ((low / step).floor() * step, (high / step).ceil() * step);
        let high = if high > low { high } else { low + step };
        let mut ticks = Vec::new();
        let mut tick = low;
        while tick <= high + step / 2.0 && ticks.len() < 16 {
            // Rounding errors of a step like 0.1 would miss 0.
            ticks.push(if tick.abs() < step / 1e6 { 0.0 } else { tick });
            tick += step;
        }
        Self { low, high, ticks, digits: digits(step), unit, is_log: false }
    }

    /// Creates an axis of ratios around 1. It is logarithmic if the ratios span more than a few
    /// times, and leaves out a few extreme values that would squeeze all others together.
    ///
    /// ```
    /// # use largefolio_results::html::lanes::Axis;
    /// let axis = Axis::of_ratios([0.9, 0.95, 1.0, 1.1, 564.0]);
    /// assert!(axis.place(1.1) - axis.place(0.9) > 25.0);
    /// assert!((axis.place(564.0) - 100.0).abs() < 1e-9);
    /// ```
    #[must_use]
    pub fn of_ratios(values: impl IntoIterator<Item = f64>) -> Self {
        let positive = values.into_iter().filter(|value| value.is_finite() && *value > 0.0);
        let mut values: Vec<f64> = positive.map(|value| value.clamp(1e-9, 1e9)).collect();
        values.sort_by(|a, b| a.ln().abs().total_cmp(&b.ln().abs()));
        let ends = |values: &[f64]| {
            values
                .iter()
                .fold((1.0_f64, 1.0_f64), |(low, high), one| (low.min(*one), high.max(*one)))
        };
        let span = |(low, high): (f64, f64)| (high / low).ln();
        let (near, all) = (ends(&values[..nr_near(values.len())]), ends(&values));
        let is_far = span(all) > FAR * span(near).max(LINEAR_SPAN.ln() / FAR);
        let (low, high) = if is_far { near } else { all };
        if high / low < LINEAR_SPAN {
            return Self::over([low, high], "");
        }
        let ticks = ratio_ticks(low, high);
        let (low, high) = (ticks[0], ticks[ticks.len() - 1]);
        Self { low, high, ticks, digits: 0, unit: "", is_log: true }
    }

    #[must_use]
    pub fn between(low: f64, high: f64) -> Self {
        let high = if high > low { high } else { low + 1.0 };
        Self { low, high, ticks: Vec::new(), digits: 0, unit: "", is_log: false }
    }

    #[must_use]
    pub const fn bounds(&self) -> (f64, f64) {
        (self.low, self.high)
    }

    #[must_use]
    pub fn place(&self, value: f64) -> f64 {
        let place = if self.is_log {
            100.0 * (value.max(0.0) / self.low).ln() / (self.high / self.low).ln()
        } else {
            100.0 * (value - self.low) / (self.high - self.low)
        };
        if place.is_nan() { 0.0 } else { place.clamp(0.0, 100.0) }
    }

    #[must_use]
    pub fn shows(&self, value: f64) -> bool {
        (self.low..=self.high).contains(&value)
    }

    fn name(&self, tick: f64) -> String {
        if self.is_log {
            return format!("{tick}");
        }
        format!("{tick:.*}{}", self.digits, self.unit)
    }

    fn names(&self) -> Markup {
        let mut names = Markup::new();
        names.raw("<svg class=\"row ticks\">");
        for (nr, tick) in self.ticks.iter().enumerate() {
            let anchor = match nr {
                0 => "start",
                nr if nr + 1 == self.ticks.len() => "end",
                _ => "middle",
            };
            let at = self.place(*tick);
            names.raw(&format!("<text x=\"{at:.2}%\" y=\"13\" text-anchor=\"{anchor}\">"));
            names.text(&self.name(*tick)).raw("</text>");
        }
        names.raw("</svg>");
        names
    }
}

/// Returns how many of the values nearest to 1 an axis of ratios must show.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_precision_loss,
    clippy::cast_sign_loss,
    reason = "a part of a count"
)]
fn nr_near(nr: usize) -> usize {
    ((nr as f64 * NEAR_PART).ceil() as usize).min(nr)
}

/// Returns 1, 2 and 5 times powers of ten from below `low` to above `high`; over many decades, only
/// the powers.
fn ratio_ticks(low: f64, high: f64) -> Vec<f64> {
    let steps: &[f64] = if high / low > 200.0 { &[1.0] } else { &[1.0, 2.0, 5.0] };
    let power = |value: f64| value.log10().floor();
    let (mut decade, last) = (power(low), power(high) + 1.0);
    let mut all = Vec::new();
    while decade <= last {
        // A quotient instead of a negative power: 10^-1 is then 0.1 and prints that way.
        let tick = |step: &f64| {
            if decade < 0.0 { step / 10_f64.powf(-decade) } else { step * 10_f64.powf(decade) }
        };
        all.extend(steps.iter().map(tick));
        decade += 1.0;
    }
    let first = all.iter().rposition(|tick| *tick <= low * 1.0001).unwrap_or(0);
    let end = all.iter().position(|tick| *tick >= high * 0.9999).unwrap_or(all.len() - 1);
    all[first..=end].to_vec()
}

fn digits(step: f64) -> usize {
    (0..9)
        .find(|&nr| {
            let scaled = step * 10_f64.powi(nr);
            (scaled - scaled.round()).abs() < 1e-6 * scaled
        })
        .map_or(9, |nr| usize::try_from(nr).unwrap_or(0))
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    Dot,
    Ring,
    Tick,
    Diamond,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    Middle,
    Upper,
    Lower,
}

impl Side {
    const fn place(self) -> f64 {
        match self {
            Self::Middle => 50.0,
            Self::Upper => 27.0,
            Self::Lower => 73.0,
        }
    }
}

#[derive(Clone, Debug)]
pub enum Mark {
    At { value: f64, side: Side, shape: Shape, class: &'static str, tip: String },
    Span { from: f64, to: f64, side: Side, class: &'static str, tip: String },
}

#[derive(Clone, Debug)]
pub struct Lane {
    pub title: String,
    pub name: Markup,
    /// Later marks cover earlier ones.
    pub marks: Vec<Mark>,
    pub end: Markup,
}

/// A vertical line across all lanes, or a band if its ends differ.
#[derive(Clone, Copy, Debug)]
pub struct Guide {
    pub from: f64,
    pub to: f64,
    pub class: &'static str,
}

#[must_use]
pub fn lanes(axis: &Axis, guides: &[Guide], lanes: &[Lane]) -> Markup {
    let mut picture = Markup::new();
    picture.raw("<div class=\"bars lanes\">");
    for lane in lanes {
        picture.raw("<div class=\"bar\"><span class=\"name\">").append(&lane.name);
        picture.raw("</span><svg class=\"row lane\" role=\"img\">");
        picture.element("title", &lane.title);
        for guide in guides {
            picture.append(&across(axis, guide));
        }
        for tick in &axis.ticks {
            let at = axis.place(*tick);
            picture.raw(&format!(
                "<line class=\"grid\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"100%\"/>"
            ));
        }
        for mark in &lane.marks {
            picture.append(&drawn(axis, mark));
        }
        picture.raw("</svg><span class=\"total\">").append(&lane.end).raw("</span></div>");
    }
    picture.raw("<div class=\"bar\" aria-hidden=\"true\"><span></span>");
    picture.append(&axis.names()).raw("<span></span></div></div>\n");
    picture
}

fn across(axis: &Axis, guide: &Guide) -> Markup {
    let mut markup = Markup::new();
    let (from, to) = (axis.place(guide.from), axis.place(guide.to));
    let (from, to) = (from.min(to), from.max(to));
    let class = guide.class;
    if to > from {
        let width = to - from;
        markup.raw(&format!(
            "<rect class=\"{class}\" x=\"{from:.2}%\" width=\"{width:.2}%\" height=\"100%\"/>"
        ));
    } else if axis.shows(guide.from) {
        markup.raw(&format!(
            "<line class=\"{class}\" x1=\"{from:.2}%\" x2=\"{from:.2}%\" y1=\"0\" y2=\"100%\"/>"
        ));
    }
    markup
}

fn drawn(axis: &Axis, mark: &Mark) -> Markup {
    match mark {
        Mark::At { value, side, shape, class, tip } => {
            let beyond = match *value {
                value if value < axis.low => Some("M6 -5L-1 0L6 5z"),
                value if value > axis.high => Some("M-6 -5L1 0L-6 5z"),
                _ => None,
            };
            let place = (axis.place(*value), side.place());
            beyond.map_or_else(
                || glyph(place, *shape, (class, tip)),
                |path| held(place, &format!("<path class=\"{class}\" d=\"{path}\""), tip),
            )
        }
        Mark::Span { from, to, side, class, tip } => {
            let (from, to, y) = (axis.place(*from), axis.place(*to), side.place());
            let mut markup = Markup::new();
            markup.raw(&format!(
                "<line class=\"span {class}\" x1=\"{from:.2}%\" x2=\"{to:.2}%\" y1=\"{y}%\" \
                 y2=\"{y}%\" data-tip=\"{}\"/>",
                escaped(tip)
            ));
            markup
        }
    }
}

fn glyph((x, y): (f64, f64), shape: Shape, (class, tip): (&str, &str)) -> Markup {
    let body = match shape {
        Shape::Dot => format!("<circle class=\"{class}\" r=\"4.5\""),
        Shape::Ring => format!("<circle class=\"ring {class}\" r=\"4.5\""),
        Shape::Tick => format!("<path class=\"upright {class}\" d=\"M0 -8v16\""),
        Shape::Diamond => format!("<path class=\"{class}\" d=\"M0 -6L6 0L0 6L-6 0z\""),
    };
    held((x, y), &body, tip)
}

fn held((x, y): (f64, f64), body: &str, tip: &str) -> Markup {
    let mut markup = Markup::new();
    markup.raw(&format!("<svg class=\"mark\" x=\"{x:.2}%\" y=\"{y:.2}%\">{body} data-tip=\""));
    markup.text(tip).raw("\"/></svg>");
    markup
}

#[derive(Clone, Debug)]
pub struct Point {
    pub x: f64,
    pub y: f64,
    pub shape: Shape,
    pub class: &'static str,
    pub tip: String,
}

#[must_use]
pub fn field(title: &str, (across, up): (&Axis, &Axis), guides: &[Guide], of: &[Point]) -> Markup {
    let mut picture = Markup::new();
    picture.raw(&format!("<svg class=\"field\" role=\"img\" height=\"{FIELD_HEIGHT}\">"));
    picture.element("title", title);
    for guide in guides {
        let (low, high) = (guide.from.min(guide.to), guide.from.max(guide.to));
        let (top, end, class) = (100.0 - up.place(high), 100.0 - up.place(low), guide.class);
        if end > top {
            let height = end - top;
            picture.raw(&format!(
                "<rect class=\"{class}\" y=\"{top:.2}%\" width=\"100%\" height=\"{height:.2}%\"/>"
            ));
        } else if up.shows(low) {
            picture.raw(&format!(
                "<line class=\"{class}\" x1=\"0\" x2=\"100%\" y1=\"{top:.2}%\" y2=\"{top:.2}%\"/>"
            ));
        }
    }
    for tick in &up.ticks {
        let at = 100.0 - up.place(*tick);
        picture.raw(&format!(
            "<line class=\"grid\" x1=\"0\" x2=\"100%\" y1=\"{at:.2}%\" y2=\"{at:.2}%\"/>"
        ));
    }
    for tick in &across.ticks {
        let at = across.place(*tick);
        picture.raw(&format!(
            "<line class=\"grid\" x1=\"{at:.2}%\" x2=\"{at:.2}%\" y1=\"0\" y2=\"100%\"/>"
        ));
    }
    for point in of {
        let place = (across.place(point.x), 100.0 - up.place(point.y));
        picture.append(&glyph(place, point.shape, (point.class, &point.tip)));
    }
    picture.raw("</svg>");
    let mut labels = Markup::new();
    labels.raw("<svg class=\"field labels\" aria-hidden=\"true\" ");
    labels.raw(&format!("height=\"{FIELD_HEIGHT}\">"));
    for tick in &up.ticks {
        let at = 100.0 - up.place(*tick);
        labels.raw(&format!("<text x=\"100%\" y=\"{at:.2}%\" dy=\"4\" text-anchor=\"end\">"));
        labels.text(&up.name(*tick)).raw("</text>");
    }
    labels.raw("</svg>");
    let mut both = Markup::new();
    both.raw("<div class=\"fielded\">").append(&labels).append(&picture);
    if !across.ticks.is_empty() {
        both.raw("<span></span>").append(&across.names());
    }
    both.raw("</div>\n");
    both
}

#[must_use]
pub fn key(entries: &[(Shape, &str, &str)]) -> Markup {
    let mut legend = Markup::new();
    legend.raw("<ul class=\"legend\">");
    for (shape, class, caption) in entries {
        legend.raw("<li><svg class=\"key\" viewBox=\"-6 -6 12 12\" aria-hidden=\"true\">");
        let body = glyph((0.0, 0.0), *shape, (class, ""));
        legend.raw(&body.as_str().replace(" data-tip=\"\"", "")).raw("</svg>");
        legend.text(caption).raw("</li>");
    }
    legend.raw("</ul>\n");
    legend
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_numbers_around_the_values() {
        let axis = Axis::over([0.93, 1.042], "");
        assert_eq!(
            axis.ticks.iter().map(|t| axis.name(*t)).collect::<Vec<_>>(),
            ["0.90", "0.95", "1.00", "1.05"]
        );
        let axis = Axis::over([-100.0, 150.0], "%");
        assert_eq!(axis.ticks.len(), 4);
        assert_eq!((axis.name(axis.ticks[1]), axis.bounds()), ("0%".to_owned(), (-100.0, 200.0)));
    }

    #[test]
    fn one_value_no_value_and_no_number_make_an_axis_too() {
        for values in
            [vec![], vec![0.0], vec![5.0], vec![f64::NAN, f64::INFINITY], vec![-3.0, -3.0]]
        {
            let axis = Axis::over(values, "");
            let (low, high) = axis.bounds();
            assert!(low < high && axis.ticks.len() > 1, "{axis:?}");
            assert!((0.0..=100.0).contains(&axis.place(f64::NAN)));
        }
    }

    #[test]
    fn far_ratios_do_not_press_the_others_together() {
        let near = [0.959, 0.986, 1.0, 0.924, 1.057, 0.806, 1.028];
        let axis = Axis::of_ratios(near.into_iter().chain([564.861, 0.489]));
        assert!(axis.place(1.057) - axis.place(0.924) > 15.0, "{axis:?}");
        assert!((axis.place(564.861) - 100.0).abs() < 1e-9 && !axis.shows(564.861));
        assert!(axis.shows(1.0));
        // Half of the values are far, so they belong to the picture.
        let axis = Axis::of_ratios([1.0, 1.1, 40.0, 564.0]);
        assert!(axis.shows(40.0) && axis.is_log, "{axis:?}");
        let names: Vec<String> = axis.ticks.iter().map(|tick| axis.name(*tick)).collect();
        assert_eq!((names[0].as_str(), names.last().map(String::as_str)), ("1", Some("1000")));
    }

    #[test]
    fn ticks_of_ratios_are_short_numbers_on_both_sides() {
        let names = |values: &[f64]| {
            let axis = Axis::of_ratios(values.iter().copied());
            axis.ticks.iter().map(|tick| axis.name(*tick)).collect::<Vec<_>>()
        };
        assert_eq!(names(&[0.3, 4.0]), ["0.2", "0.5", "1", "2", "5"]);
        assert_eq!(names(&[0.004, 0.02, 7.0, 30.0]), ["0.001", "0.01", "0.1", "1", "10", "100"]);
        assert_eq!(names(&[0.93, 1.042]), ["0.90", "0.95", "1.00", "1.05"]);
        for odd in [&[][..], &[0.0], &[-1.0, f64::NAN, f64::INFINITY], &[1e-300, 1e300]] {
            let axis = Axis::of_ratios(odd.iter().copied());
            assert!(axis.low < axis.high && axis.ticks.len() > 1 && axis.shows(1.0), "{axis:?}");
            assert!((0.0..=100.0).contains(&axis.place(0.0)), "{axis:?}");
        }
    }

    #[test]
    fn what_lies_beyond_is_a_pointer_at_the_end() {
        let axis = Axis::over([0.0, 10.0], "");
        let side = Side::Middle;
        let at =
            |value| Mark::At { value, side, shape: Shape::Dot, class: "x", tip: "<tip>".into() };
        let inside = drawn(&axis, &at(5.0));
        assert!(inside.as_str().contains("<circle") && inside.as_str().contains("&lt;tip&gt;"));
        assert!(drawn(&axis, &at(50.0)).as_str().contains("x=\"100.00%\""));
        assert!(drawn(&axis, &at(-50.0)).as_str().contains("<path"));
    }
}

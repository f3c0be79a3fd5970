//! Horizontal stacked bars on one scale.

use super::markup::{Markup, escaped};
use crate::figures::ratio;

/// Width in drawing units; the page stretches it.
const WIDTH: f64 = 1000.0;

#[derive(Clone, Debug)]
pub struct BarPart {
    pub class: String,
    pub value: u64,
    pub tip: String,
}

#[derive(Clone, Debug)]
pub struct Bar {
    pub label: String,
    pub parts: Vec<BarPart>,
    pub total: Markup,
}

impl Bar {
    fn sum(&self) -> u64 {
        self.parts.iter().map(|part| part.value).fold(0, u64::saturating_add)
    }
}

#[must_use]
pub fn bars(bars: &[Bar]) -> Markup {
    let max = bars.iter().map(Bar::sum).max().unwrap_or(0);
    let mut picture = Markup::new();
    picture.raw("<div class=\"bars\">");
    for bar in bars {
        picture.raw("<div class=\"bar\">").element("span class=\"name\"", &bar.label);
        picture.append(&drawing(bar, max));
        picture.raw("<span class=\"total\">").append(&bar.total).raw("</span></div>");
    }
    picture.raw("</div>\n");
    picture
}

#[must_use]
pub fn drawing(bar: &Bar, max: u64) -> Markup {
    let mut drawing = Markup::new();
    drawing.raw(
        "<svg class=\"row\" viewBox=\"0 0 1000 10\" preserveAspectRatio=\"none\" role=\"img\">",
    );
    drawing.element("title", &bar.label);
    let mut sum = 0_u64;
    for part in bar.parts.iter().filter(|part| part.value > 0) {
        let (x, end) = (at(sum, max), at(sum.saturating_add(part.value), max));
        sum = sum.saturating_add(part.value);
        drawing.raw(&format!(
            "<rect class=\"{}\" x=\"{x:.1}\" width=\"{:.1}\" height=\"10\" data-tip=\"{}\"/>",
            part.class,
            end - x,
            escaped(&part.tip)
        ));
    }
    drawing.raw("</svg>");
    drawing
}

fn at(value: u64, max: u64) -> f64 {
    WIDTH * ratio(value, max)
}

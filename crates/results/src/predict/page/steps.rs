//! A waterfall chart, which leads from one total to another step by step.

use crate::figures::{difference, ratio};
use crate::html::markup::{Markup, escaped};

/// A step. A total starts at 0.
pub(super) struct ChartStep {
    label: String,
    is_total: bool,
    from: i128,
    to: i128,
}

pub(super) fn between(
    start: (String, i128),
    changes: impl Iterator<Item = (String, i128)>,
    end: (String, i128),
) -> Vec<ChartStep> {
    let total = |(label, to)| ChartStep { label, is_total: true, from: 0, to };
    let mut at = start.1;
    let mut steps = vec![total(start)];
    for (label, difference) in changes {
        let to = at + difference;
        steps.push(ChartStep { label, is_total: false, from: at, to });
        at = to;
    }
    steps.push(total(end));
    steps
}

pub(super) fn signed(value: i128, show: &dyn Fn(u64) -> String) -> String {
    difference(value, '\u{2212}', show)
}

pub(super) fn picture(steps: &[ChartStep], show: &dyn Fn(u64) -> String) -> Markup {
    let (start, end) = span(steps);
    let whole = u64::try_from(end - start).unwrap_or(u64::MAX);
    let at = |value: i128| 1000.0 * ratio(u64::try_from(value - start).unwrap_or(0), whole);
    let mut picture = Markup::new();
    picture.raw("<div class=\"bars waterfall\">");
    for step in steps {
        let (low, high) = (step.from.min(step.to).max(start), step.from.max(step.to));
        let (class, shown) = match step.is_total {
            true => ("total-bar", show(u64::try_from(step.to).unwrap_or(0))),
            false if step.to < step.from => ("less", signed(step.to - step.from, show)),
            false => ("more-time", signed(step.to - step.from, show)),
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
        let start = show(u64::try_from(start).unwrap_or(0));
        let text = format!("The bars begin at {start}, not at 0, to make the steps visible.");
        picture.element("p class=\"note\"", &text);
    }
    picture
}

/// Returns the range of values that the picture covers: from 0, or from just below the smallest
/// value if the steps would otherwise be too short to see.
fn span(steps: &[ChartStep]) -> (i128, i128) {
    let ends = || steps.iter().flat_map(|step| [step.from, step.to]);
    let end = ends().max().unwrap_or(0);
    let low = ends().filter(|&value| value > 0).min().unwrap_or(0);
    let margin = (end - low) / 2;
    if low - margin > end / 2 { (low - margin, end) } else { (0, end) }
}

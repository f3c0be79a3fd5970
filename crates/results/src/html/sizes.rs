//! Folio sizes as colours, the same on the whole page.
//!
//! The colours are ordered by lightness, with grey for base pages, so they remain distinct in print
//! and for any colour vision. `report.css` defines them for light and dark mode.

use std::collections::BTreeSet;

use super::markup::Markup;
use crate::figures::size;

/// Colour classes range from 4 KiB to 1 GiB.
const LOG2: std::ops::RangeInclusive<u32> = 12..=30;

#[must_use]
pub fn class(bytes: u64) -> String {
    format!("s{}", bytes.max(1).ilog2().clamp(*LOG2.start(), *LOG2.end()))
}

/// Draws the legend: the picture's folio sizes, then other colour classes with their meaning.
#[must_use]
pub fn legend(sizes: &BTreeSet<u64>, others: &[(&str, &str)]) -> Markup {
    let mut legend = Markup::new();
    legend.raw("<ul class=\"legend\">");
    for &bytes in sizes {
        entry(&mut legend, &class(bytes), &size(bytes));
    }
    for (class, name) in others {
        entry(&mut legend, class, name);
    }
    legend.raw("</ul>\n");
    legend
}

fn entry(legend: &mut Markup, class: &str, name: &str) {
    legend.raw("<li><svg class=\"key\" viewBox=\"0 0 12 12\" aria-hidden=\"true\">");
    legend.raw(&format!("<rect class=\"{class}\" width=\"12\" height=\"12\"/></svg>"));
    legend.text(name).raw("</li>");
}

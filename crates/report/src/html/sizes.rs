//! Folio sizes as colours, the same on the whole page.
//!
//! The colours are ordered in lightness, base pages grey, so that they can be told apart in print
//! and with any colour vision; `report.css` has them, for light and for dark.

use std::collections::BTreeSet;

use super::markup::Markup;
use crate::figures::size;

/// Colour classes go from 4 KiB to 1 GiB.
const LOG2: std::ops::RangeInclusive<u32> = 12..=30;

/// Class of a folio size.
#[must_use]
pub fn class(bytes: u64) -> String {
    format!("s{}", bytes.max(1).ilog2().clamp(*LOG2.start(), *LOG2.end()))
}

/// The sizes of a picture with their colours, then other colour classes with what they mean.
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

//! Runs of folios along a mapping or a file, coloured by folio size.
//!
//! A strip is drawn in units of base pages, with one path per folio size, so zooming changes only
//! the `viewBox`. Tooltips come from the page's data: strip number `nr` is `strips[nr]`, which also
//! has `page_bytes`, `cell_pages` and `runs: [[page, pages, order, how]]`; `how` is an index into
//! `hows`.

use std::collections::BTreeMap;

use super::markup::{Markup, escaped};
use super::sizes::class;
use crate::figures;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    pub page: u64,
    pub nr_pages: u64,
    pub folio_bytes: u64,
    /// Whether it is drawn faint because it is not mapped whole and aligned.
    pub is_faint: bool,
}

#[derive(Clone, Debug)]
pub struct Strip<'a> {
    pub nr: usize,
    pub name: &'a str,
    pub about: &'a str,
    pub nr_pages: u64,
    pub page_bytes: u64,
    /// In ascending order.
    pub runs: &'a [Drawn],
}

impl Strip<'_> {
    #[must_use]
    pub fn figure(&self, end: &str, table: &Markup) -> Markup {
        let mut figure = Markup::new();
        let nr_units = self.nr_pages.max(1);
        let len = figures::bytes(self.nr_pages.saturating_mul(self.page_bytes));
        figure.raw(&format!("<figure class=\"strips\" data-units=\"{nr_units}\" "));
        figure.raw(&format!("data-unit-bytes=\"{}\"><figcaption>", self.page_bytes));
        figure.text(self.name).raw(" ").element("small", &format!("{len}{}", self.about));
        figure.raw("</figcaption><div class=\"bars single\"><div class=\"bar\">");
        figure.append(&self.drawing(nr_units));
        figure.element("span class=\"total\"", end).raw("</div>");
        figure.raw("<div class=\"bar\" aria-hidden=\"true\"><div class=\"axis\"><span>0</span>");
        figure.element("span", &len).raw("</div><span></span></div></div>");
        figure.raw("<details class=\"as-table\"><summary>As a table</summary><div class=\"wide\">");
        figure.append(table).raw("</div></details></figure>\n");
        figure
    }

    fn drawing(&self, nr_units: u64) -> Markup {
        let mut drawing = Markup::new();
        drawing.raw(&format!(
            "<svg class=\"row strip\" viewBox=\"0 0 {nr_units} 10\" preserveAspectRatio=\"none\" \
             role=\"img\" tabindex=\"0\" data-strip=\"{}\">",
            self.nr
        ));
        drawing.raw("<title>").raw(&escaped(self.name)).raw("</title>");
        drawing.raw(&format!("<rect class=\"hole\" width=\"{nr_units}\" height=\"10\"/>"));
        let mut paths: BTreeMap<(u64, bool), String> = BTreeMap::new();
        for run in self.runs {
            let Drawn { page, nr_pages, folio_bytes, is_faint } = *run;
            let path = format!("M{page} 0h{nr_pages}v10h-{nr_pages}z");
            paths.entry((folio_bytes, is_faint)).or_default().push_str(&path);
        }
        for ((bytes, is_faint), path) in paths {
            let faint = if is_faint { " pale" } else { "" };
            drawing.raw(&format!("<path class=\"{}{faint}\" d=\"{path}\"/>", class(bytes)));
        }
        drawing.raw("</svg>");
        drawing
    }
}

//! Runs of folios along something: a mapping, a file; coloured by folio size.
//!
//! A strip is drawn in units of base pages with one path for each folio size, so that zooming only
//! changes the `viewBox`. What pointing says comes from the data of the page: the strip numbered
//! `nr` is `strips[nr]` there, with `page_bytes` beside, and has `cell_pages` and `runs: [[page,
//! pages, order, how]]`, where `how` is an index into `hows`.

use std::collections::BTreeMap;

use super::markup::{Markup, escaped};
use super::sizes::class;
use crate::figures;

/// A run of folios of one order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drawn {
    /// First page.
    pub page: u64,
    /// Pages.
    pub nr_pages: u64,
    /// Bytes of a folio.
    pub folio_bytes: u64,
    /// Whether it is drawn faint: not mapped whole and aligned.
    pub is_faint: bool,
}

/// A strip that can be zoomed.
#[derive(Clone, Debug)]
pub struct Strip<'a> {
    /// Its number in the data of the page.
    pub nr: usize,
    /// What it is of.
    pub name: &'a str,
    /// More about it, behind the name.
    pub about: &'a str,
    /// Pages.
    pub nr_pages: u64,
    /// Bytes of a page.
    pub page_bytes: u64,
    /// What lies where, ascending.
    pub runs: &'a [Drawn],
}

impl Strip<'_> {
    /// The strip with its table.
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

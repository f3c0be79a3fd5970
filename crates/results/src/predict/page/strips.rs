//! Where folios are: the page cache of each file and the private memory of each process, one strip
//! per cell, coloured by folio size.
//!
//! A strip is drawn in units of 4 KiB, with one path per folio size, so zooming changes only the
//! `viewBox`. Tooltips come from the page's data.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::detail::{Area, AreaKind, Detail, Origin};

use crate::figures::{self, Scale, percent, size};
use crate::html::frame::{TABLE_END, table_head};
use crate::html::markup::Markup;
use crate::html::sizes::{class, legend};
use crate::predict::labels::Labels;
use crate::predict::sums::LARGE_BYTES;

const UNIT_BYTES: u64 = 4 << 10;
const NR_OPEN: usize = 5;

type Key<'a> = (AreaKind, &'a str, usize, u64);

struct Group<'a> {
    key: Key<'a>,
    /// Index of the private area within its process, by address.
    nr: usize,
    nr_private: usize,
    cells: Vec<Option<(usize, &'a Area)>>,
}

pub(super) fn strips(rows: &[Outcome]) -> Option<Markup> {
    let details: Vec<Option<&Detail>> = rows.iter().map(|row| row.detail.as_ref()).collect();
    if details.iter().all(Option::is_none) {
        return None;
    }
    let mut groups = groups(rows, &details);
    groups.sort_by_key(|group| std::cmp::Reverse(group.max_bytes(rows)));
    let mut body = Markup::new();
    body.append(&legend(&sizes(rows), &[("hole", "no folio")]));
    let names = Labels::names(rows);
    let nr_open = groups.len().min(NR_OPEN);
    for group in &groups[..nr_open] {
        body.append(&group.markup(rows, &names));
    }
    if nr_open < groups.len() {
        let nr = groups.len() - nr_open;
        body.raw(&format!("<details class=\"more\"><summary>{nr} smaller ones</summary>\n"));
        for group in &groups[nr_open..] {
            body.append(&group.markup(rows, &names));
        }
        body.raw("</details>\n");
    }
    let nr_left_out: u64 = details.iter().flatten().map(|detail| detail.nr_left_out).sum();
    if nr_left_out > 0 {
        let text = format!("{nr_left_out} areas contain too many folios to draw and are omitted.");
        body.element("p class=\"note\"", &text);
    }
    Some(body)
}

fn groups<'a>(rows: &[Outcome], details: &[Option<&'a Detail>]) -> Vec<Group<'a>> {
    let mut groups: BTreeMap<Key<'a>, Vec<Option<(usize, &'a Area)>>> = BTreeMap::new();
    for (cell, detail) in details.iter().enumerate() {
        for (nr, area) in detail.iter().flat_map(|detail| detail.areas.iter().enumerate()) {
            let key = (area.kind, area.path.as_str(), area.process, area.start);
            groups.entry(key).or_insert_with(|| vec![None; rows.len()])[cell] = Some((nr, area));
        }
    }
    let mut nr_private: BTreeMap<usize, usize> = BTreeMap::new();
    for (kind, _, process, _) in groups.keys() {
        *nr_private.entry(*process).or_default() += usize::from(*kind == AreaKind::Private);
    }
    let mut nr_before: BTreeMap<usize, usize> = BTreeMap::new();
    let group = |(key, cells): (Key<'a>, _)| {
        let nr = nr_before.entry(key.2).or_default();
        *nr += usize::from(key.0 == AreaKind::Private);
        Group { key, nr: *nr, nr_private: nr_private[&key.2], cells }
    };
    groups.into_iter().map(group).collect()
}

fn sizes(rows: &[Outcome]) -> BTreeSet<u64> {
    let areas = rows.iter().filter_map(|row| Some((row, row.detail.as_ref()?)));
    areas
        .flat_map(|(row, detail)| detail.areas.iter().flat_map(|a| by_size(row, a).into_keys()))
        .collect()
}

fn by_size(row: &Outcome, area: &Area) -> BTreeMap<u64, u64> {
    let mut bytes = BTreeMap::new();
    for run in &area.runs {
        let folio = row.page_bytes << run.order.get();
        *bytes.entry(folio).or_default() += run.nr_pages * row.page_bytes;
    }
    bytes
}

impl Group<'_> {
    fn max_bytes(&self, rows: &[Outcome]) -> u64 {
        let bytes = |(cell, area): (usize, &Option<(usize, &Area)>)| {
            area.map_or(0, |(_, area)| by_size(&rows[cell], area).values().sum::<u64>())
        };
        self.cells.iter().enumerate().map(bytes).max().unwrap_or(0)
    }

    fn nr_units(&self) -> u64 {
        let len = |(_, area): &(usize, &Area)| area.len_bytes.div_ceil(UNIT_BYTES);
        self.cells.iter().flatten().map(len).max().unwrap_or(0).max(1)
    }

    fn name(&self) -> String {
        let (kind, path, process, _) = self.key;
        let of = if process == 0 { String::new() } else { format!(" of process {process}") };
        match kind {
            AreaKind::File => path.to_owned(),
            AreaKind::Heap => format!("heap{of}"),
            AreaKind::Stack => format!("stack{of}"),
            AreaKind::Private if self.nr_private == 1 => format!("private memory{of}"),
            AreaKind::Private => {
                format!("private memory{of}, area {} of {}", self.nr, self.nr_private)
            }
        }
    }

    fn about(&self, len: &str) -> String {
        let (kind, .., start) = self.key;
        match kind {
            AreaKind::Private => format!("{len}, mapped at {start:#x} in the recording"),
            AreaKind::File | AreaKind::Heap | AreaKind::Stack => len.to_owned(),
        }
    }

    fn markup(&self, rows: &[Outcome], names: &[String]) -> Markup {
        let nr_units = self.nr_units();
        // A file's recorded length can be any number.
        let len = figures::bytes(nr_units.saturating_mul(UNIT_BYTES));
        let mut group = Markup::new();
        group.raw(&format!("<figure class=\"strips\" data-units=\"{nr_units}\"><figcaption>"));
        group.text(&self.name()).raw(" ");
        group.element("small", &self.about(&len));
        group.raw("</figcaption><div class=\"bars\">");
        for (cell, row) in rows.iter().enumerate() {
            group.raw("<div class=\"bar\">").element("span class=\"name\"", &names[cell]);
            group.append(&self.strip(cell, row, nr_units, &names[cell]));
            group.element("span class=\"total\"", &self.large_share(cell, row)).raw("</div>");
        }
        group.raw("<div class=\"bar\" aria-hidden=\"true\"><span></span><div class=\"axis\">");
        group.raw("<span>0</span>").element("span", &len);
        group.raw("</div><span></span></div></div>");
        group.raw("<details class=\"as-table\"><summary>As a table</summary><div class=\"wide\">");
        group.append(&self.table(rows, names)).raw("</div></details></figure>\n");
        group
    }

    fn strip(&self, cell: usize, row: &Outcome, nr_units: u64, name: &str) -> Markup {
        let mut strip = Markup::new();
        let area = self.cells[cell];
        let number = area.map_or(String::new(), |(nr, _)| format!(" data-area=\"{nr}\""));
        strip.raw(&format!(
            "<svg class=\"row strip\" viewBox=\"0 0 {nr_units} 10\" preserveAspectRatio=\"none\" \
             role=\"img\" tabindex=\"0\" data-row=\"{cell}\"{number}>"
        ));
        strip.element("title", &format!("{} under {}", self.name(), name));
        strip.raw(&format!("<rect class=\"hole\" width=\"{nr_units}\" height=\"10\"/>"));
        let mut paths: BTreeMap<u64, String> = BTreeMap::new();
        let per_page = row.page_bytes / UNIT_BYTES;
        for run in area.iter().flat_map(|(_, area)| &area.runs) {
            let (x, width) = (run.page * per_page, run.nr_pages * per_page);
            let drawn = format!("M{x} 0h{width}v10h-{width}z");
            paths.entry(row.page_bytes << run.order.get()).or_default().push_str(&drawn);
        }
        for (bytes, path) in paths {
            strip.raw(&format!("<path class=\"{}\" d=\"{path}\"/>", class(bytes)));
        }
        strip.raw("</svg>");
        strip
    }

    fn large_share(&self, cell: usize, row: &Outcome) -> String {
        let Some((_, area)) = self.cells[cell] else { return "nothing".to_owned() };
        let sizes = by_size(row, area);
        let large: u64 = sizes.range(LARGE_BYTES..).map(|(_, bytes)| bytes).sum();
        let share = percent(large, sizes.values().sum());
        format!("{} in {}+", if share.is_empty() { "0%" } else { &share }, size(LARGE_BYTES))
    }

    fn causes(&self, rows: &[Outcome], scale: Scale, table: &mut Markup) {
        for origin in Origin::ALL {
            let bytes = |(row, area): (&Outcome, &Option<(usize, &Area)>)| {
                let runs = area.iter().flat_map(|(_, area)| &area.runs);
                let of = runs.filter(|run| run.origin == origin);
                of.map(|run| run.nr_pages * row.page_bytes).sum::<u64>()
            };
            let bytes: Vec<u64> = rows.iter().zip(&self.cells).map(bytes).collect();
            if bytes.iter().all(|&bytes| bytes == 0) {
                continue;
            }
            let name = format!("caused by: {}", origin.name());
            table.raw("<tr>").element("th scope=\"row\"", &name);
            for bytes in bytes {
                table.element("td", &scale.show(bytes));
            }
            table.raw("</tr>");
        }
    }

    fn table(&self, rows: &[Outcome], names: &[String]) -> Markup {
        let sizes: Vec<BTreeMap<u64, u64>> = rows
            .iter()
            .zip(&self.cells)
            .map(|(row, area)| area.map_or_else(BTreeMap::new, |(_, area)| by_size(row, area)))
            .collect();
        let max = sizes.iter().map(|sizes| sizes.values().sum::<u64>()).max().unwrap_or(0);
        let scale = Scale::of_bytes(max);
        let all: BTreeSet<u64> = sizes.iter().flat_map(|sizes| sizes.keys().copied()).collect();
        let mut table = table_head(&format!("Folio size, {}", scale.name), names);
        for bytes in all {
            table.raw("<tr>").element("th scope=\"row\"", &size(bytes));
            for of_cell in &sizes {
                let value = of_cell.get(&bytes).copied().unwrap_or(0);
                table.element("td", &scale.show(value));
            }
            table.raw("</tr>");
        }
        self.causes(rows, scale, &mut table);
        table.raw(TABLE_END);
        table
    }
}

/// How to use the pictures, for the section's introduction.
pub(super) const LEAD: &str = "Files: the page cache at the end, mapped or not. Private memory: \
                               its state when the process ended. With scripts: point at a strip to \
                               see a folio, its order and its cause; drag or press + and - to \
                               zoom; use the arrow keys to step from folio to folio.";

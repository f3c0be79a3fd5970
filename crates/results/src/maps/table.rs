//! Text tables: folio size columns, shares, signed bytes.

use std::cmp::Ordering;

use crate::figures;
use comfy_table::{
    Cell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table, TableStyle,
};
use largefolio_linux::census::Access;
use largefolio_linux::census::folios::{Size, Tally};
use largefolio_linux::geometry::Geometry;
use largefolio_mm::rules::sizes::size_name;

const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none())
    .header_separator(LineStyle::none().fill('-').junction('-'))
    .content_lines(ContentLineStyle::none());
/// The folio size columns: base pages, below contpte blocks, below PMD entries, and the rest.
pub(super) struct Classes {
    geometry: Geometry,
    has_unknown: bool,
}

impl Classes {
    pub(super) fn new(geometry: Geometry, access: Access) -> Self {
        Self { geometry, has_unknown: access == Access::Smaps }
    }

    pub(super) fn names(&self) -> Vec<String> {
        let Geometry { page_bytes, contpte_order, pmd_order, .. } = self.geometry;
        let name = |order: u32| size_name(page_bytes << order);
        let range = |from, to| format!("{}-{}", name(from), name(to));
        let mut names = vec![
            name(0),
            range(1, contpte_order - 1),
            range(contpte_order, pmd_order - 1),
            format!("{}+", name(pmd_order)),
        ];
        if self.has_unknown {
            names = vec![name(pmd_order), "unknown".to_owned()];
        }
        names
    }

    pub(super) fn bytes(&self, tally: &Tally) -> Vec<u64> {
        let Geometry { contpte_order, pmd_order, .. } = self.geometry;
        let sum = |from: u32, to: u32| {
            let is_in = |_, size| matches!(size, Size::Order(order) if order >= from && order < to);
            tally.sum(is_in).mapped_bytes()
        };
        if self.has_unknown {
            let unknown = tally.sum(|_, size| size == Size::Unknown).mapped_bytes();
            return vec![sum(pmd_order, u32::MAX), unknown];
        }
        vec![
            sum(0, 1),
            sum(1, contpte_order),
            sum(contpte_order, pmd_order),
            sum(pmd_order, u32::MAX),
        ]
    }

    pub(super) fn shares(&self, tally: &Tally) -> Vec<String> {
        let all = tally.all().mapped_bytes();
        self.bytes(tally).into_iter().map(|bytes| share(bytes, all)).collect()
    }

    pub(super) fn mapped(&self, tally: &Tally) -> Vec<String> {
        let all = tally.all().mapped_bytes();
        self.mapped_bytes(tally).into_iter().map(|bytes| share(bytes, all)).collect()
    }

    pub(super) fn mapped_bytes(&self, tally: &Tally) -> Vec<u64> {
        let all = tally.all();
        if self.has_unknown { vec![all.pmd_bytes] } else { vec![all.contpte_bytes, all.pmd_bytes] }
    }

    pub(super) fn mapped_names(&self) -> Vec<String> {
        if self.has_unknown {
            return vec!["PMD".to_owned()];
        }
        vec!["contpte".to_owned(), "PMD".to_owned()]
    }
}

/// `45%`; empty if `part` is 0.
pub(super) fn share(part: u64, all: u64) -> String {
    match part {
        0 => ".".to_owned(),
        part if part == all => "100%".to_owned(),
        part => {
            let percent = 100.0 * figures::ratio(part, all);
            if percent < 0.5 { "<1%".to_owned() } else { format!("{:.0}%", percent.min(99.0)) }
        }
    }
}

/// Formats bytes, or `.` for 0.
pub(super) fn bytes_or_point(bytes: u64) -> String {
    if bytes == 0 { ".".to_owned() } else { figures::bytes(bytes) }
}

/// `+2 MiB`, or `.` for no change.
pub(super) fn change(old: u64, new: u64) -> String {
    match new.cmp(&old) {
        Ordering::Equal => ".".to_owned(),
        Ordering::Greater => format!("+{}", figures::bytes(new - old)),
        Ordering::Less => format!("-{}", figures::bytes(old - new)),
    }
}

/// Draws a table. The first `nr_left` columns, and the last one if it is a name, are left-aligned.
pub(super) fn grid(header: &[String], rows: Vec<Vec<String>>, nr_left: usize) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled).force_no_tty();
    let is_name = |name: &str| matches!(name, "mapping" | "file");
    let last_is_name = header.last().is_some_and(|name| is_name(name)) && header[0] != "file";
    let cell = |at: usize, text: &str| {
        let is_left = at < nr_left || last_is_name && at + 1 == header.len();
        let side = if is_left { CellAlignment::Left } else { CellAlignment::Right };
        Cell::new(text).set_alignment(side)
    };
    table.set_header(header.iter().enumerate().map(|(at, text)| cell(at, text)));
    for row in rows {
        table.add_row(row.iter().enumerate().map(|(at, text)| cell(at, text)));
    }
    table.trim_fmt() + "\n"
}

//! Columns and blocks.
//!
//! A column has three parts, each right-aligned over the whole table: the value, a number derived
//! from it, and the change from the baseline. The baseline itself has no change.

use comfy_table::{
    Attribute, Cell, CellAlignment, ContentArrangement, ContentLineStyle, LineStyle, Table,
    TableStyle,
};
use largefolio_sim::replay::Outcome;

use super::section::{Entry, Shown};
use crate::predict::labels::Labels;

/// ASCII only: it looks the same on a terminal, in a file and in an email.
pub(super) const STYLE: TableStyle = TableStyle::new()
    .header_lines(ContentLineStyle::none().junction('|'))
    .header_separator(LineStyle::none().fill('-').junction('+'))
    .content_lines(ContentLineStyle::none().junction('|'));

/// Characters that comfy-table adds to a column: a space on each side and a separator.
const FRAME_CHARS: usize = 3;
const GAP: &str = "  ";

pub(super) fn blocks(
    rows: &[Outcome],
    sections: &[Vec<Shown>],
    width: usize,
    is_styled: bool,
) -> Vec<String> {
    if rows.is_empty() {
        return Vec::new();
    }
    let labels = Labels::new(rows).cells.into_iter().enumerate();
    let columns: Vec<Column> =
        labels.map(|(cell, label)| Column::new(label.lines(), sections, cell)).collect();
    let label_chars = sections.iter().flatten().map(|line| line.label().chars().count()).max();
    let used = label_chars.unwrap_or(0) + columns[0].chars() + 2 * FRAME_CHARS;
    groups(&columns, width.saturating_sub(used))
        .into_iter()
        .map(|group| block(&columns, sections, &group, is_styled))
        .collect()
}

fn groups(columns: &[Column], room: usize) -> Vec<Vec<usize>> {
    let mut groups = vec![vec![0]];
    let mut left = room;
    for (cell, column) in columns.iter().enumerate().skip(1) {
        let chars = column.chars() + FRAME_CHARS;
        let is_first = groups.last().is_none_or(|group| group.len() == 1);
        if chars > left && !is_first {
            groups.push(vec![0]);
            left = room;
        }
        left = left.saturating_sub(chars);
        if let Some(group) = groups.last_mut() {
            group.push(cell);
        }
    }
    groups
}

fn block(columns: &[Column], sections: &[Vec<Shown>], group: &[usize], is_styled: bool) -> String {
    let mut table = Table::new();
    table.load_style(STYLE).set_content_arrangement(ContentArrangement::Disabled);
    if is_styled {
        table.enforce_styling();
    } else {
        table.force_no_tty();
    }
    let mut header = vec![Cell::new("")];
    header.extend(group.iter().map(|&cell| right(columns[cell].header.join("\n"), is_styled)));
    table.set_header(header);
    let mut is_first = true;
    for section in sections.iter().filter(|section| !section.is_empty()) {
        if !is_first {
            table.add_row(vec![""; group.len() + 1]);
        }
        is_first = false;
        for line in section {
            let is_bold = is_styled && line.is_heading;
            let label = Cell::new(line.label());
            let mut row = vec![if is_bold { label.add_attribute(Attribute::Bold) } else { label }];
            row.extend(
                group.iter().map(|&cell| right(columns[cell].join(&line.entries[cell]), false)),
            );
            table.add_row(row);
        }
    }
    table.trim_fmt()
}

fn right(text: String, is_bold: bool) -> Cell {
    let cell = Cell::new(text).set_alignment(CellAlignment::Right);
    if is_bold { cell.add_attribute(Attribute::Bold) } else { cell }
}

struct Column {
    header: Vec<String>,
    is_reference: bool,
    /// Widths in characters of value, derived number and change.
    parts: [usize; 3],
}

impl Column {
    fn new(header: Vec<String>, sections: &[Vec<Shown>], cell: usize) -> Self {
        let mut parts = [0; 3];
        for entry in sections.iter().flatten().map(|line| &line.entries[cell]) {
            let texts = [&entry.value, &entry.proportion, &entry.change];
            for (part, text) in parts.iter_mut().zip(texts) {
                *part = (*part).max(text.chars().count());
            }
        }
        Self { header, is_reference: cell == 0, parts }
    }

    fn chars(&self) -> usize {
        let header = self.header.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        header.max(self.join(&Entry::default()).chars().count())
    }

    fn join(&self, entry: &Entry) -> String {
        let [value, proportion, change] = self.parts;
        let mut text = vec![format!("{:>value$}", entry.value)];
        if proportion > 0 {
            text.push(format!("{:>proportion$}", entry.proportion));
        }
        if !self.is_reference {
            text.push(format!("{:>change$}", entry.change));
        }
        text.join(GAP)
    }
}

//! Draws a picture on the screen with text, bold and reversed; without colour, so `NO_COLOR` has no
//! effect.
//!
//! ```text
//!   title                      always
//!   notes                      missing parts of the readings
//!   totals                     if the table keeps ROWS_MIN rows
//!   heading, table             the rest; scrolled to show the selected row
//!   keys                       the last line, if there are at least two
//! ```
//!
//! Invariant W1: a screen of any size can be drawn, down to a single cell.

use std::fmt::Write as _;
use std::time::Duration;

use largefolio_results::maps::{Grid, Picture, shortened};
use largefolio_results::prose::hanging;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

/// Rows of the table that the totals must leave.
const ROWS_MIN: usize = 6;
/// Minimum number of characters of a name, unless the screen has fewer.
const NAME_MIN: usize = 12;

const KEYS: &str =
    "q quit  arrows move  Enter open  Esc back  s sort  c change  Tab next view  ? help";

/// The column of the explanations in the help.
const KEY_WIDTH: usize = 19;
const HELP: &[&str] = &[
    "up, down, j, k     move; Page Up, Page Down by 10; Home, End",
    "Enter, right       the processes of a control group, the mappings of a process",
    "Esc, left          back",
    "Tab                processes, control groups, mappings by file, cached files",
    "s                  order: mapped, base pages, text, file, private, shared, PMD-mapped",
    "c                  columns: shares now, change since the last look, change since the start",
    "space              look now",
    "q, Ctrl-C          quit",
    "",
    "Memory that several processes map counts once in the upper table, and once in each process.",
    "contpte: in naturally aligned blocks from one folio; PMD: mapped by one PMD entry.",
    "Why folios are not larger, and what helps: folio maps PID",
];

/// Everything on the screen except the picture.
pub(super) struct Status {
    /// Missing parts of the readings.
    pub(super) notes: Vec<String>,
    pub(super) every: Duration,
    pub(super) nr_readings: u64,
    /// The first help line, if the help is shown.
    pub(super) help: Option<usize>,
}

struct Styled(String, Style);

pub(super) fn draw(frame: &mut Frame<'_>, picture: &Picture, status: &Status) {
    let Rect { width, height, .. } = frame.area();
    let (width, height) = (usize::from(width), usize::from(height));
    let body = height.saturating_sub(usize::from(height > 1));
    for (at, line) in lines(picture, status, width, body).into_iter().take(body).enumerate() {
        put(frame, at, line);
    }
    if height > 1 {
        put(frame, height - 1, Styled(KEYS.to_owned(), plain(Modifier::DIM)));
    }
}

fn put(frame: &mut Frame<'_>, at: usize, Styled(text, style): Styled) {
    let width = frame.area().width;
    let area = Rect::new(0, u16::try_from(at).unwrap_or(u16::MAX), width, 1);
    frame.render_widget(Line::styled(text, style), area.intersection(frame.area()));
}

fn plain(modifier: Modifier) -> Style {
    Style::new().add_modifier(modifier)
}

/// Returns the lines above the keys, at most `height` if possible.
fn lines(picture: &Picture, status: &Status, width: usize, height: usize) -> Vec<Styled> {
    let none = Style::new();
    let title = format!(
        "{}; every {} s, look {}",
        picture.title,
        status.every.as_secs(),
        status.nr_readings
    );
    let mut lines = vec![Styled(title, plain(Modifier::BOLD))];
    if let Some(first) = status.help {
        let help: Vec<String> = HELP.iter().flat_map(|text| wrapped(text, width)).collect();
        let first = first.min((help.len() + 1).saturating_sub(height));
        lines.extend(help.into_iter().skip(first).map(|text| Styled(text, none)));
        return lines;
    }
    lines.extend(status.notes.iter().map(|note| Styled(note.clone(), none)));
    let totals = &picture.totals;
    if !totals.rows.is_empty() && lines.len() + totals.rows.len() + ROWS_MIN + 3 <= height {
        let widths = Widths::of(totals, width);
        lines.push(Styled(widths.line(totals, &totals.header), plain(Modifier::BOLD)));
        lines.extend(totals.rows.iter().map(|row| Styled(widths.line(totals, row), none)));
    }
    let table = &picture.table;
    lines.push(Styled(picture.heading.clone(), plain(Modifier::BOLD)));
    let widths = Widths::of(table, width);
    lines.push(Styled(widths.line(table, &table.header), plain(Modifier::BOLD)));
    let nr_rows = height.saturating_sub(lines.len()).max(1);
    let above = (picture.chosen + 1).saturating_sub(nr_rows);
    for (at, row) in table.rows.iter().enumerate().skip(above).take(nr_rows) {
        let style = if at == picture.chosen { plain(Modifier::REVERSED) } else { none };
        lines.push(Styled(widths.line(table, row), style));
    }
    if table.rows.is_empty() {
        lines.push(Styled("  nothing".to_owned(), none));
    }
    lines
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let (first, rest) = match text.find("  ") {
        Some(_) if width >= 2 * KEY_WIDTH => text.split_at(KEY_WIDTH),
        _ => ("", text),
    };
    let words: Vec<&str> = rest.split_whitespace().collect();
    hanging(first, &words.join(" "), width, 1)
}

/// Widths of the columns that fit, from the left.
struct Widths(Vec<usize>);

impl Widths {
    fn of(grid: &Grid, width: usize) -> Self {
        let cells = |at: usize| grid.rows.iter().filter_map(move |row| row.get(at));
        let longest = |at: usize| {
            let all = cells(at).chain(grid.header.get(at)).map(|cell| cell.chars().count());
            all.max().unwrap_or(0)
        };
        let mut widths: Vec<usize> = (0..grid.header.len()).map(longest).collect();
        let Some(name) = widths.get(grid.name_column).copied() else { return Self(widths) };
        // One blank before, two between.
        let of = |widths: &[usize]| widths.iter().map(|one| one + 2).sum::<usize>();
        while widths.len() > grid.name_column + 2 && of(&widths) - name + name.min(NAME_MIN) > width
        {
            widths.pop();
        }
        let others = of(&widths) - name;
        widths[grid.name_column] = name.min(width.saturating_sub(others).max(NAME_MIN));
        Self(widths)
    }

    fn line(&self, grid: &Grid, cells: &[String]) -> String {
        let mut line = String::new();
        for (at, (cell, &width)) in cells.iter().zip(&self.0).enumerate() {
            let cell: String = shortened(cell, width).chars().take(width).collect();
            line.push_str(if at == 0 { " " } else { "  " });
            let is_last = at + 1 == grid.header.len();
            let _ = if at == grid.name_column || is_last {
                write!(line, "{cell:<width$}")
            } else {
                write!(line, "{cell:>width$}")
            };
        }
        line
    }
}

#[cfg(test)]
mod tests {
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    use super::*;

    fn grid(header: &str, rows: &[&str], name_column: usize) -> Grid {
        let cells = |line: &str| line.split('|').map(str::to_owned).collect();
        Grid {
            header: cells(header),
            rows: rows.iter().map(|row| cells(row)).collect(),
            name_column,
        }
    }

    fn picture() -> Picture {
        let rows: Vec<String> = (0..40)
            .map(|nr| format!("{}|process{nr}|{} MiB|90%|.|.|10%|8%|10%|", 100 + nr, 400 - nr))
            .collect();
        let rows: Vec<&str> = rows.iter().map(String::as_str).collect();
        let header = "pid|process|mapped|4K|8K-32K|64K-1M|2M+|contpte|PMD|";
        Picture {
            title: "40 processes, kernel 6.18.44, 4K pages".to_owned(),
            totals: grid(
                "folios|all|share|since last look|since start|text|anon",
                &["4K|90 MiB|90%|-4 KiB|+1 MiB|40 MiB|50 MiB", "2M|10 MiB|10%|.|+2 MiB|.|10 MiB"],
                0,
            ),
            heading: "processes, shares by folio size; most mapped bytes first".to_owned(),
            table: grid(header, &rows, 1),
            chosen: 1,
        }
    }

    fn status() -> Status {
        let notes = vec!["without PFNs, only the size of PMD-mapped memory is known".to_owned()];
        Status { notes, every: Duration::from_secs(2), nr_readings: 7, help: None }
    }

    fn drawn(width: u16, height: u16, picture: &Picture, status: &Status) -> Terminal<TestBackend> {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|frame| draw(frame, picture, status)).unwrap();
        terminal
    }

    #[test]
    fn a_screen_has_totals_and_a_table() {
        insta::assert_snapshot!(drawn(90, 24, &picture(), &status()).backend());
    }

    #[test]
    fn a_small_screen_keeps_the_table_and_the_chosen_row() {
        let picture = Picture { chosen: 39, ..picture() };
        insta::assert_snapshot!(drawn(40, 9, &picture, &status()).backend());
    }

    #[test]
    fn help_replaces_the_tables() {
        let status = Status { help: Some(0), ..status() };
        insta::assert_snapshot!(drawn(96, 16, &picture(), &status).backend());
    }

    #[test]
    fn help_is_wrapped_and_scrolls_on_a_small_screen() {
        let text = |width, height, first| {
            let status = Status { help: Some(first), ..status() };
            drawn(width, height, &picture(), &status).backend().to_string()
        };
        let all = text(50, 40, 0);
        let normalized =
            |text: &str| text.replace('"', " ").split_whitespace().collect::<Vec<_>>().join(" ");
        let all = normalized(&all);
        for line in HELP {
            assert!(all.contains(&normalized(line)), "{line} is not whole in {all}");
        }
        assert!(!text(30, 9, 0).contains("folio maps PID"));
        assert!(text(30, 9, 999).contains("folio maps PID"));
    }

    #[test]
    fn every_size_is_drawn() {
        let long = Picture { title: "x".repeat(500), ..picture() };
        for picture in [picture(), long, Picture::default()] {
            for (width, height) in [(1, 1), (2, 1), (1, 2), (7, 3), (13, 4), (300, 5), (20, 200)] {
                drawn(width, height, &picture, &status());
            }
        }
    }

    #[test]
    fn the_chosen_row_is_reversed_and_nothing_has_a_colour() {
        let terminal = drawn(90, 24, &picture(), &status());
        let buffer = terminal.backend().buffer();
        let row = |name: &str| {
            let line = |y: u16| (0..90).map(|x| buffer[(x, y)].symbol()).collect::<String>();
            (0..24).find(|&y| line(y).contains(name)).unwrap()
        };
        let is_reversed = |name: &str| buffer[(5, row(name))].modifier.contains(Modifier::REVERSED);
        assert_eq!([is_reversed("process0"), is_reversed("process1 ")], [false, true]);
        let is_plain = |cell: &ratatui::buffer::Cell| {
            (cell.fg, cell.bg) == (ratatui::style::Color::Reset, ratatui::style::Color::Reset)
        };
        assert!(buffer.content().iter().all(is_plain));
    }

    #[test]
    fn long_names_are_cut_but_short_columns_are_not() {
        let mut picture = picture();
        picture.table.rows[0][1] = "a-very-long-name-of-a-process-that-does-not-fit".to_owned();
        let text = drawn(90, 24, &picture, &status()).backend().to_string();
        assert!(text.contains("400 MiB") && text.contains("-not-fit"), "{text}");
    }
}

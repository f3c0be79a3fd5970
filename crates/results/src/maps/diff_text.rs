//! The changes as text: an answer, then tables with the largest changes.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figures::{self, printable};
use largefolio_linux::census::folios::Tally;
use largefolio_mm::rules::sizes::size_name;

use super::diff::{CellChange, DiffResult, DiffRow, ProcessChange};
use super::plain::shortened;
use super::show::NAME_MIN;
use super::table::{change as signed, grid};

impl DiffResult {
    pub(super) fn as_text(&self) -> String {
        let mut text = String::new();
        self.add_answer(&mut text);
        self.add_totals(&mut text);
        self.add_processes(&mut text);
        let rows: Vec<&DiffRow> = self.groups.iter().collect();
        self.add_rows(&mut text, "mappings of all processes by file", "mapping", &rows);
        let rows: Vec<&DiffRow> = self.files.iter().map(|file| &file.row).collect();
        self.add_rows(&mut text, "page cache of files", "file", &rows);
        text
    }

    fn add_answer(&self, text: &mut String) {
        let mut sizes: BTreeMap<Option<u64>, (u64, u64)> = BTreeMap::new();
        for cell in &self.totals {
            let both = sizes.entry(cell.folio_bytes).or_default();
            both.0 += cell.old_bytes;
            both.1 += cell.new_bytes;
        }
        let (old, new) = sizes.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        let most = sizes.iter().max_by_key(|(_, (old, new))| old.abs_diff(*new));
        match most.filter(|(_, (old, new))| old != new) {
            None => text.push_str("no change in mapped memory"),
            Some((size, (was, is))) => {
                let all = if old == new { "unchanged".to_owned() } else { signed(old, new) };
                let of = folios_of(*size);
                let _ = write!(text, "{} in {of}; mapped memory {all}", signed(*was, *is));
            }
        }
        if let Some(time) = elapsed(self.old.taken_unix_s, self.new.taken_unix_s) {
            let _ = write!(text, ", {time}");
        }
        if !self.is_same_boot {
            text.push_str(", after a reboot or on another machine");
        }
        text.push('\n');
        let processes = if self.old.nr_processes == 1 { "process" } else { "processes" };
        let nr = |fate| self.nr_processes.get(fate).copied().unwrap_or(0);
        let _ = writeln!(
            text,
            "{} {processes}, then {}: {} the same, {} replaced under the same name, {} appeared, \
             {} ended",
            self.old.nr_processes,
            self.new.nr_processes,
            nr("same"),
            nr("replaced"),
            nr("appeared"),
            nr("ended")
        );
        if self.old.kernel != self.new.kernel {
            let (old, new) = (printable(&self.old.kernel), printable(&self.new.kernel));
            let _ = writeln!(text, "kernel {old}, then {new}");
        }
    }

    fn add_totals(&self, text: &mut String) {
        if self.totals.is_empty() {
            return;
        }
        let header = ["changed, each page once", "kind", "before", "after", "change"];
        let row = |cell: &CellChange| {
            vec![
                folios_of(cell.folio_bytes),
                cell.kind.name().to_owned(),
                figures::bytes(cell.old_bytes),
                figures::bytes(cell.new_bytes),
                signed(cell.old_bytes, cell.new_bytes),
            ]
        };
        text.push('\n');
        text.push_str(&grid(&header.map(str::to_owned), self.totals.iter().map(row).collect(), 2));
    }

    fn add_processes(&self, text: &mut String) {
        let is_listed = |one: &&ProcessChange| one.row.moved_bytes() > 0 || one.old_pid.is_some();
        let rows: Vec<&ProcessChange> = self.processes.iter().filter(is_listed).collect();
        if rows.is_empty() {
            return;
        }
        let mut header: Vec<String> = ["pid", "process", "mapped"].map(str::to_owned).to_vec();
        header.extend(self.classes.names());
        header.push("state".to_owned());
        let cells = rows.iter().take(self.show.nr_rows).map(|process| {
            let name = shortened(&printable(&process.name), NAME_MIN);
            let state = match process.old_pid {
                Some(pid) => format!("replaced {pid}"),
                None => process.row.about.clone(),
            };
            let mut row = vec![process.pid.to_string(), name];
            row.extend(self.changes(&process.row));
            row.push(state);
            row
        });
        text.push_str("\nprocesses, change by folio size:\n");
        text.push_str(&grid(&header, cells.collect(), 2));
        self.add_more(text, rows.len());
    }

    fn add_rows(&self, text: &mut String, title: &str, name: &str, rows: &[&DiffRow]) {
        if rows.is_empty() {
            return;
        }
        let mut header = vec!["mapped".to_owned()];
        header.extend(self.classes.names());
        header.extend(["perm".to_owned(), name.to_owned()]);
        let cells = rows.iter().take(self.show.nr_rows).map(|row| {
            let mut cells = self.changes(row);
            cells.push(row.about.clone());
            cells.push(shortened(&printable(&row.name), self.show.name_chars()));
            cells
        });
        let _ = writeln!(text, "\n{title}, change by folio size:");
        text.push_str(&grid(&header, cells.collect(), 0));
        self.add_more(text, rows.len());
    }

    fn changes(&self, row: &DiffRow) -> Vec<String> {
        let all = |tally: &Tally| tally.all().mapped_bytes();
        let classes = self.classes.bytes(&row.old).into_iter().zip(self.classes.bytes(&row.new));
        let all = std::iter::once((all(&row.old), all(&row.new)));
        all.chain(classes).map(|(old, new)| signed(old, new)).collect()
    }

    fn add_more(&self, text: &mut String, nr: usize) {
        if nr > self.show.nr_rows {
            let _ = writeln!(text, "  and {} more: --top {nr}", nr - self.show.nr_rows);
        }
    }
}

fn folios_of(size: Option<u64>) -> String {
    size.map_or_else(
        || "folios of unknown size".to_owned(),
        |bytes| format!("{} folios", size_name(bytes)),
    )
}

fn elapsed(old: u64, new: u64) -> Option<String> {
    if old == 0 || new == 0 {
        return None;
    }
    let seconds = old.abs_diff(new);
    let span = match seconds {
        ..120 => format!("{seconds} s"),
        120..7200 => format!("{} min", seconds / 60),
        7200..172_800 => format!("{} h", seconds / 3600),
        _ => format!("{} days", seconds / 86400),
    };
    Some(format!(
        "{span} {}",
        if new < old { "earlier: are the files in the right order?" } else { "later" }
    ))
}

//! The rows and tables of the full-screen view.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::figures::{self, printable};
use largefolio_linux::census::folios::{MemoryKind, Size, Tally};
use largefolio_mm::rules::sizes::size_name;

use super::change::{self, Fate};
use super::diff::{by_file, moved_bytes, sizes};
use super::group::{Sort, rank};
use super::state::{Mappings, State};
use super::table::{Classes, bytes_or_point, change as signed, share};

/// Folio sizes with less than `1 / SHARE_MIN` of the memory share a row.
const SHARE_MIN: u64 = 100;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum View {
    Processes,
    Groups,
    Mappings,
    Files,
    OfGroup(String),
    OfProcess(u32, String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Since {
    Now,
    Last,
    Start,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    pub header: Vec<String>,
    /// Each row has one cell per column.
    pub rows: Vec<Vec<String>>,
    /// The left-aligned column, which takes the remaining space.
    pub name_column: usize,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Key {
    Process(u32, String),
    Group(String),
    Mapping(String, String),
}

pub(super) struct BoardRow {
    pub(super) key: Key,
    about: String,
    old: Tally,
    new: Tally,
}

impl BoardRow {
    fn moved_bytes(&self) -> u64 {
        moved_bytes(&self.old, &self.new)
    }
}

pub(super) fn title(now: &State) -> String {
    let nr = now.processes.len();
    let processes = if nr == 1 { "process" } else { "processes" };
    let what = if now.processes.is_empty() && !now.files.is_empty() {
        format!("{} files", now.files.len())
    } else {
        format!("{nr} {processes}")
    };
    let (kernel, page) = (printable(&now.kernel), size_name(now.geometry.page_bytes));
    let refused = match now.nr_refused {
        0 => String::new(),
        nr => format!("; {nr} not shown"),
    };
    format!("{what}, kernel {kernel}, {page} pages{refused}")
}

pub(super) fn heading(view: &View, since: Since, sort: Sort) -> String {
    let what = match view {
        View::Processes => "processes".to_owned(),
        View::Groups => "control groups".to_owned(),
        View::Mappings => "mappings of all processes by file".to_owned(),
        View::Files => "page cache of files".to_owned(),
        View::OfGroup(group) => format!("processes of {}", printable(group)),
        View::OfProcess(pid, name) => format!("mappings of {pid} {}", printable(name)),
    };
    match since {
        Since::Now => format!("{what}, shares by folio size; most {} first", sort.label()),
        Since::Last => format!("{what}, change since the last look; most first"),
        Since::Start => format!("{what}, change since the start; most first"),
    }
}

pub(super) fn totals(first: &State, last: &State, now: &State) -> Grid {
    let kinds: Vec<MemoryKind> = MemoryKind::ALL
        .into_iter()
        .filter(|kind| now.totals.of(*kind).mapped_bytes() > 0)
        .collect();
    let mut header = vec!["folios".to_owned()];
    header.extend(["all", "share", "since last look", "since start"].map(str::to_owned));
    header.extend(kinds.iter().map(|kind| kind.name().to_owned()));
    let all = now.totals.all().mapped_bytes();
    let of = |state: &State, sizes: &[Size], kind: Option<MemoryKind>| {
        let is_in = |k, size| kind.is_none_or(|kind| kind == k) && sizes.contains(&size);
        state.totals.sum(is_in).mapped_bytes()
    };
    let row = |name: String, sizes: &[Size]| {
        let bytes = of(now, sizes, None);
        let mut row = vec![name, bytes_or_point(bytes), share(bytes, all)];
        row.push(signed(of(last, sizes, None), bytes));
        row.push(signed(of(first, sizes, None), bytes));
        row.extend(kinds.iter().map(|kind| bytes_or_point(of(now, sizes, Some(*kind)))));
        row
    };
    let every: Vec<Size> = sizes(&first.totals, &now.totals).into_keys().collect();
    let is_small = |size: &Size| {
        let smallest = all / SHARE_MIN;
        [first, now].iter().all(|state| of(state, &[*size], None) < smallest)
    };
    let (small, large): (Vec<Size>, Vec<Size>) = every.iter().copied().partition(is_small);
    let (small, large) = if small.len() > 1 { (small, large) } else { (Vec::new(), every.clone()) };
    let name = |size: &Size| {
        let bytes = size.bytes(now.geometry.page_bytes);
        bytes.map_or_else(|| "unknown".to_owned(), size_name)
    };
    let mut rows: Vec<Vec<String>> = large.iter().map(|size| row(name(size), &[*size])).collect();
    if !small.is_empty() {
        rows.push(row(format!("{} others", small.len()), &small));
    }
    rows.push(row("all".to_owned(), &every));
    Grid { header, rows, name_column: 0 }
}

/// Returns the view's rows in order; for changes, only rows that changed.
pub(super) fn rows(
    view: &View,
    old: &State,
    now: &State,
    since: Since,
    sort: Sort,
) -> Vec<BoardRow> {
    let mut rows = match view {
        View::Processes => processes(old, now, None),
        View::OfGroup(group) => processes(old, now, Some(group)),
        View::Groups => groups(old, now),
        View::Mappings => changed_rows(&by_file(old), &by_file(now)),
        View::Files => changed_rows(&old.files, &now.files),
        View::OfProcess(pid, name) => {
            let of = |state: &State| {
                let mut all = state.processes.iter();
                let own = all.find(|process| process.pid == *pid && process.name == *name);
                own.map(|process| process.mappings.clone()).unwrap_or_default()
            };
            changed_rows(&of(old), &of(now))
        }
    };
    if since == Since::Now {
        rows.retain(|row| rank(&row.new, sort) > 0);
        rows.sort_by_key(|row| Reverse(rank(&row.new, sort)));
    } else {
        rows.retain(|row| row.moved_bytes() > 0);
        rows.sort_by_key(|row| Reverse(row.moved_bytes()));
    }
    rows
}

fn processes(old: &State, now: &State, group: Option<&str>) -> Vec<BoardRow> {
    let pairs = change::pairs(old, now);
    let inside =
        pairs.iter().filter(|pair| group.is_none_or(|group| pair.process().group == group));
    let row = |pair: &change::Pair<'_>| {
        let process = pair.process();
        let (old, new) = pair.tallies();
        let about = match pair.fate() {
            Fate::Same => "",
            Fate::Replaced | Fate::Appeared => "new",
            Fate::Ended => "ended",
        };
        let key = Key::Process(process.pid, process.name.clone());
        BoardRow { key, about: about.to_owned(), old, new }
    };
    inside.map(row).collect()
}

fn groups(old: &State, now: &State) -> Vec<BoardRow> {
    type Both = (usize, Tally, Tally);
    let mut all: BTreeMap<&str, Both> = BTreeMap::new();
    for process in &old.processes {
        all.entry(&process.group).or_default().1.add_all(&process.tally);
    }
    for process in &now.processes {
        let group = all.entry(&process.group).or_default();
        group.0 += 1;
        group.2.add_all(&process.tally);
    }
    let row = |(group, (nr, old, new)): (&str, Both)| BoardRow {
        key: Key::Group(group.to_owned()),
        about: nr.to_string(),
        old,
        new,
    };
    all.into_iter().map(row).collect()
}

fn changed_rows(old: &Mappings, new: &Mappings) -> Vec<BoardRow> {
    let mut all: BTreeMap<&(String, String), (Tally, Tally)> = BTreeMap::new();
    for (key, tally) in old {
        all.entry(key).or_default().0 = tally.clone();
    }
    for (key, tally) in new {
        all.entry(key).or_default().1 = tally.clone();
    }
    let row = |((name, permissions), (old, new)): (&(String, String), (Tally, Tally))| BoardRow {
        key: Key::Mapping(name.clone(), permissions.clone()),
        about: permissions.clone(),
        old,
        new,
    };
    all.into_iter().map(row).collect()
}

pub(super) fn grid(view: &View, since: Since, now: &State, rows: &[BoardRow]) -> Grid {
    let classes = Classes::new(now.geometry, now.access);
    let (before, after): (&[&str], &str) = match view {
        View::Processes | View::OfGroup(_) => (&["pid", "process"], ""),
        View::Groups => (&["control group"], "procs"),
        View::Mappings | View::OfProcess(..) => (&["mapping"], "perm"),
        View::Files => (&["file"], ""),
    };
    let name_column = before.len() - 1;
    let mut header: Vec<String> = before.iter().map(|name| (*name).to_owned()).collect();
    header.push(if matches!(view, View::Files) { "cached" } else { "mapped" }.to_owned());
    header.extend(classes.names());
    if !matches!(view, View::Files) {
        header.extend(classes.mapped_names());
    }
    header.push(after.to_owned());
    let nr_columns = header.len();
    let row = |row: &BoardRow| {
        let mut cells = match &row.key {
            Key::Process(pid, name) => vec![pid.to_string(), printable(name)],
            Key::Group(name) | Key::Mapping(name, _) => vec![printable(name)],
        };
        cells.extend(numbers(&classes, since, row));
        cells.truncate(nr_columns - 1);
        cells.push(row.about.clone());
        cells
    };
    Grid { header, rows: rows.iter().map(row).collect(), name_column }
}

fn numbers(classes: &Classes, since: Since, row: &BoardRow) -> Vec<String> {
    let all = |tally: &Tally| tally.all().mapped_bytes();
    let mut cells = Vec::new();
    if since == Since::Now {
        cells.push(figures::bytes(all(&row.new)));
        cells.extend(classes.shares(&row.new));
        cells.extend(classes.mapped(&row.new));
        return cells;
    }
    cells.push(signed(all(&row.old), all(&row.new)));
    for of in [Classes::bytes, Classes::mapped_bytes] {
        let both = of(classes, &row.old).into_iter().zip(of(classes, &row.new));
        cells.extend(both.map(|(old, new)| signed(old, new)));
    }
    cells
}

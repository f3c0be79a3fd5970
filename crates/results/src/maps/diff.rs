//! `--diff`: the changes between two states, as data and text.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use crate::ExportError;
use crate::cells::Cells;
use largefolio_linux::census::Access;
use largefolio_linux::census::folios::{MemoryKind, Size, Tally};
use largefolio_mm::rules::sizes::size_name;
use serde::Serialize;

use super::change::{self, Fate, Pair};
use super::show::Show;
use super::state::{Mappings, State};
use super::table::Classes;
use crate::{Error, Forms};

const SCHEMA_VERSION: u32 = 1;

#[derive(Serialize)]
pub struct DiffResult {
    schema_version: u32,
    tool_version: &'static str,
    command_line: Vec<String>,
    pub(super) old: Side,
    pub(super) new: Side,
    /// Pids are compared only within one boot.
    pub(super) is_same_boot: bool,
    pub(super) nr_processes: BTreeMap<&'static str, usize>,
    /// Counts each page once.
    pub(super) totals: Vec<CellChange>,
    pub(super) processes: Vec<ProcessChange>,
    pub(super) files: Vec<MappingChange>,
    #[serde(skip)]
    pub(super) show: Show,
    #[serde(skip)]
    pub(super) classes: Classes,
    #[serde(skip)]
    pub(super) groups: Vec<DiffRow>,
}

#[derive(Serialize)]
pub(super) struct Side {
    /// The file; `None` for the running system.
    file: Option<String>,
    pub(super) kernel: String,
    pub(super) taken_unix_s: u64,
    pub(super) nr_processes: usize,
    nr_refused: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct CellChange {
    pub(super) kind: MemoryKind,
    pub(super) folio_bytes: Option<u64>,
    pub(super) old_bytes: u64,
    pub(super) new_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct ProcessChange {
    pub(super) pid: u32,
    pub(super) old_pid: Option<u32>,
    pub(super) name: String,
    fate: Fate,
    folios: Vec<CellChange>,
    mappings: Vec<MappingChange>,
    #[serde(skip)]
    pub(super) row: DiffRow,
}

#[derive(Serialize)]
pub(super) struct MappingChange {
    path: String,
    permissions: Option<String>,
    folios: Vec<CellChange>,
    #[serde(skip)]
    pub(super) row: DiffRow,
}

pub(super) struct DiffRow {
    pub(super) name: String,
    pub(super) about: String,
    pub(super) old: Tally,
    pub(super) new: Tally,
}

impl DiffResult {
    /// Compares `old` with `new`.
    ///
    /// # Errors
    /// If the two have no folio sizes in common.
    pub fn of(
        old: &State,
        new: &State,
        show: Show,
        command_line: Vec<String>,
    ) -> Result<Self, Error> {
        check(old, new)?;
        let page_bytes = new.geometry.page_bytes;
        let pairs = change::pairs(old, new);
        let mut nr_processes: BTreeMap<&'static str, usize> =
            ["same", "replaced", "appeared", "ended"].map(|fate| (fate, 0)).into();
        for pair in &pairs {
            *nr_processes.entry(word(pair.fate())).or_default() += 1;
        }
        let processes = pairs.iter().filter_map(|pair| process(pair, page_bytes));
        let mut processes: Vec<ProcessChange> = processes.collect();
        processes.sort_by_key(|process| Reverse(process.row.moved_bytes()));
        let files = change::changed(Some(&old.files), Some(&new.files));
        let (old_groups, new_groups) = (by_file(old), by_file(new));
        let groups = change::changed(Some(&old_groups), Some(&new_groups));
        Ok(Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            old: Side::of(old),
            new: Side::of(new),
            is_same_boot: old.boot_id.is_some() && old.boot_id == new.boot_id,
            nr_processes,
            totals: cells(&old.totals, &new.totals, page_bytes),
            processes,
            files: rows(files).into_iter().map(|row| mapping(row, page_bytes)).collect(),
            show,
            classes: Classes::new(new.geometry, new.access),
            groups: rows(groups),
        })
    }
}

fn check(old: &State, new: &State) -> Result<(), Error> {
    let name = |state: &State| state.source.clone().unwrap_or_else(|| "this look".to_owned());
    let (first, second) = (name(old), name(new));
    if old.access != new.access {
        let blind = if old.access == Access::Smaps { first } else { second };
        return Err(Error::request(format!(
            "{blind} was taken without PFNs and contains no folio sizes; take both as root"
        )));
    }
    if old.geometry != new.geometry {
        return Err(Error::request(format!(
            "{first} has base pages of {} and {second} of {}: they come from different machines \
             or kernels",
            size_name(old.geometry.page_bytes),
            size_name(new.geometry.page_bytes)
        )));
    }
    Ok(())
}

impl Side {
    fn of(state: &State) -> Self {
        Self {
            file: state.source.clone(),
            kernel: state.kernel.clone(),
            taken_unix_s: state.taken_unix_s,
            nr_processes: state.processes.len(),
            nr_refused: state.nr_refused,
        }
    }
}

impl DiffRow {
    pub(super) fn moved_bytes(&self) -> u64 {
        moved_bytes(&self.old, &self.new)
    }
}

const fn word(fate: Fate) -> &'static str {
    match fate {
        Fate::Same => "same",
        Fate::Replaced => "replaced",
        Fate::Appeared => "appeared",
        Fate::Ended => "ended",
    }
}

pub(super) fn sizes(old: &Tally, new: &Tally) -> BTreeMap<Size, (u64, u64)> {
    let mut sizes: BTreeMap<Size, (u64, u64)> = BTreeMap::new();
    for (_, size, cell) in old.cells() {
        sizes.entry(size).or_default().0 += cell.mapped_bytes();
    }
    for (_, size, cell) in new.cells() {
        sizes.entry(size).or_default().1 += cell.mapped_bytes();
    }
    sizes
}

/// Sums bytes that came or went, size by size. Memory that moved to larger folios counts too.
pub(super) fn moved_bytes(old: &Tally, new: &Tally) -> u64 {
    sizes(old, new).into_values().map(|(old, new)| old.abs_diff(new)).sum()
}

fn cells(old: &Tally, new: &Tally, page_bytes: u64) -> Vec<CellChange> {
    let mut both: BTreeMap<(MemoryKind, Size), (u64, u64)> = BTreeMap::new();
    for (kind, size, cell) in old.cells() {
        both.entry((kind, size)).or_default().0 = cell.mapped_bytes();
    }
    for (kind, size, cell) in new.cells() {
        both.entry((kind, size)).or_default().1 = cell.mapped_bytes();
    }
    let changed = both.into_iter().filter(|(_, (old, new))| old != new);
    let cell = |((kind, size), (old_bytes, new_bytes)): ((MemoryKind, Size), _)| CellChange {
        kind,
        folio_bytes: size.bytes(page_bytes),
        old_bytes,
        new_bytes,
    };
    changed.map(cell).collect()
}

pub(super) fn by_file(state: &State) -> Mappings {
    let mut all = Mappings::new();
    for (key, tally) in state.processes.iter().flat_map(|process| &process.mappings) {
        all.entry(key.clone()).or_default().add_all(tally);
    }
    all
}

/// Most bytes first.
fn rows(changed: Vec<(&(String, String), Tally, Tally)>) -> Vec<DiffRow> {
    let row = |((name, about), old, new): (&(String, String), _, _)| {
        let (name, about) = (name.clone(), about.clone());
        DiffRow { name, about, old, new }
    };
    let mut rows: Vec<DiffRow> =
        changed.into_iter().map(row).filter(|row| row.moved_bytes() > 0).collect();
    rows.sort_by_key(|row| Reverse(row.moved_bytes()));
    rows
}

fn mapping(row: DiffRow, page_bytes: u64) -> MappingChange {
    let folios = cells(&row.old, &row.new, page_bytes);
    let permissions = (!row.about.is_empty()).then(|| row.about.clone());
    MappingChange { path: row.name.clone(), permissions, folios, row }
}

fn process(pair: &Pair<'_>, page_bytes: u64) -> Option<ProcessChange> {
    let (process, fate) = (pair.process(), pair.fate());
    let (old, new) = pair.tallies();
    let mappings = rows(pair.mappings());
    if fate == Fate::Same && mappings.is_empty() {
        return None;
    }
    let about = if fate == Fate::Same { String::new() } else { word(fate).to_owned() };
    Some(ProcessChange {
        pid: process.pid,
        old_pid: pair.old.map(|old| old.pid).filter(|_| fate == Fate::Replaced),
        name: process.name.clone(),
        fate,
        folios: cells(&old, &new, page_bytes),
        mappings: mappings.into_iter().map(|row| mapping(row, page_bytes)).collect(),
        row: DiffRow { name: process.name.clone(), about, old, new },
    })
}

impl Forms for DiffResult {
    fn text(&self) -> String {
        self.as_text()
    }

    fn csv(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        writer.record([
            "pid",
            "process",
            "fate",
            "path",
            "permissions",
            "kind",
            "folio_bytes",
            "old_bytes",
            "new_bytes",
        ])?;
        let mut add = |of: [&str; 3], mapping: &MappingChange| {
            for cell in &mapping.folios {
                writer.record([
                    of[0],
                    of[1],
                    of[2],
                    &mapping.path,
                    mapping.permissions.as_deref().unwrap_or_default(),
                    cell.kind.name(),
                    &cell.folio_bytes.map_or_else(String::new, |bytes| bytes.to_string()),
                    &cell.old_bytes.to_string(),
                    &cell.new_bytes.to_string(),
                ])?;
            }
            Ok::<_, ExportError>(())
        };
        for process in &self.processes {
            for mapping in &process.mappings {
                add([&process.pid.to_string(), &process.name, word(process.fate)], mapping)?;
            }
        }
        self.files.iter().try_for_each(|file| add(["", "", ""], file))?;
        writer.into_text()
    }
}

#[cfg(test)]
mod tests {
    use super::super::change::tests::state;
    use super::super::group::Sort;
    use super::*;

    const SHOW: Show =
        Show { nr_rows: 10, sort: Sort::Size, width: 100, prose: None, is_full: false };

    fn diff(old: &State, new: &State) -> DiffResult {
        DiffResult::of(old, new, SHOW, vec!["folio".to_owned()]).unwrap()
    }

    #[test]
    fn the_answer_comes_first() {
        let old = state("a", &[(1, "db", 4096, 0), (2, "old", 8, 0)]);
        let new = State { taken_unix_s: 400, ..state("a", &[(7, "db", 1024, 4096)]) };
        let text = diff(&State { taken_unix_s: 100, ..old }, &new).text();
        insta::assert_snapshot!(text);
    }

    #[test]
    fn no_change_has_a_sentence() {
        let old = state("a", &[(1, "db", 4096, 0)]);
        let text = diff(&old, &old).text();
        assert!(text.starts_with("no change in mapped memory\n"), "{text}");
        assert!(text.contains("1 the same, 0 replaced"), "{text}");
        assert_eq!(text.lines().count(), 2, "{text}");
    }

    #[test]
    fn every_form_has_the_change_of_each_mapping() {
        let old = state("a", &[(1, "db", 4096, 0)]);
        let new = state("a", &[(1, "db", 2048, 2048)]);
        let result = diff(&old, &new);
        let csv = result.csv().unwrap();
        assert!(csv.contains("1,db,same,[heap],rw-p,anon,2097152,0,2097152"), "{csv}");
        let json: serde_json::Value = serde_json::from_str(&result.json().unwrap()).unwrap();
        let folios = &json["processes"][0]["mappings"][0]["folios"];
        assert_eq!(folios[0]["old_bytes"], 4 << 20);
        assert_eq!(json["nr_processes"]["same"], 1);
    }

    #[test]
    fn what_cannot_be_compared_is_refused() {
        let old = state("a", &[]);
        let blind =
            State { access: Access::Smaps, source: Some("x.json".to_owned()), ..old.clone() };
        let error = DiffResult::of(&blind, &old, SHOW, Vec::new()).err().unwrap().to_string();
        assert!(error.starts_with("x.json was taken without PFNs"), "{error}");
    }
}

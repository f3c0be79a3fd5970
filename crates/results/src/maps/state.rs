//! The comparable part of a reading: bytes by kind and folio size of each process and mapping.
//!
//! A state comes from a reading of the running system or from an earlier reading's JSON, which is
//! not trusted. Invariants:
//! - E1: the bytes in a saved state add up to less than 2^63, so no sum or difference overflows.
//! - E2: a file longer than [`FILE_BYTES_MAX`] is not read.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use largefolio_linux::census::Access;
use largefolio_linux::census::cgroup::Group;
use largefolio_linux::census::folios::{Cell, MemoryKind, Size, Tally};
use largefolio_linux::geometry::Geometry;
use largefolio_linux::system::{Live, System as _};
use largefolio_trace::{disk, shown};
use serde::Deserialize;

use super::plain::{plain, what, what_of};
use super::reading::Reading;
use super::view::SCHEMA_VERSION;
use crate::Error;

/// The longest saved state: a thousand processes with fifty mappings take about 50 MiB.
const FILE_BYTES_MAX: u64 = 1 << 30;
const NR_ORDERS: u32 = 16;

pub(super) type Mappings = BTreeMap<(String, String), Tally>;

#[derive(Clone, Debug)]
pub struct State {
    /// The file it comes from; `None` for the running system.
    pub(super) source: Option<String>,
    pub(super) kernel: String,
    pub(super) boot_id: Option<String>,
    pub(super) taken_unix_s: u64,
    pub(super) geometry: Geometry,
    pub(super) access: Access,
    pub(super) nr_refused: usize,
    /// Counts each page once.
    pub(super) totals: Tally,
    /// Sorted by pid.
    pub(super) processes: Vec<ProcessState>,
    pub(super) files: Mappings,
}

#[derive(Clone, Debug)]
pub(super) struct ProcessState {
    pub(super) pid: u32,
    pub(super) name: String,
    pub(super) group: String,
    pub(super) tally: Tally,
    pub(super) mappings: Mappings,
}

impl State {
    #[must_use]
    pub fn of(reading: &Reading) -> Self {
        let census = reading.census.as_ref();
        let process = |process: &largefolio_linux::census::process::Process| {
            let mut mappings = Mappings::new();
            for mapping in &process.mappings {
                if mapping.tally.all().mapped_bytes() > 0 {
                    let key = (what(&mapping.vma), mapping.vma.permission_text());
                    mappings.entry(key).or_default().add_all(&mapping.tally);
                }
            }
            let (pid, name, tally) = (process.pid, process.name.clone(), process.tally.clone());
            ProcessState { pid, name, group: Group::of(&Live, process.pid).0, tally, mappings }
        };
        let mut files = Mappings::new();
        for file in reading.cached.iter().flat_map(|cached| &cached.files) {
            files.entry((plain(&file.path), String::new())).or_default().add_all(&file.tally);
        }
        Self {
            source: None,
            kernel: reading.release.clone(),
            boot_id: reading.boot_id.clone(),
            taken_unix_s: reading.taken.as_secs(),
            geometry: Geometry::running(),
            access: census.map_or(Access::Full, |census| census.access),
            nr_refused: census.map_or(0, |census| census.skipped.refused.len()),
            totals: census.map(|census| census.totals.clone()).unwrap_or_default(),
            processes: census.iter().flat_map(|census| &census.processes).map(process).collect(),
            files,
        }
    }

    /// Reads the JSON that `folio maps --json` wrote into a file.
    ///
    /// # Errors
    /// If the file cannot be read, or is not such a result.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let name = shown(path).to_string();
        let bytes = disk::read_whole(path, FILE_BYTES_MAX)
            .map_err(Error::system(format!("cannot read {name}")))?;
        let state = Self::parse(&bytes).map_err(|fault| {
            Error::request(format!("{name} {fault}; folio maps --json writes one"))
        })?;
        Ok(Self { source: Some(name), ..state })
    }

    /// Parses the JSON; an error does not name the file.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let is_none = |error: serde_json::Error| format!("is not a result of folio maps: {error}");
        let head: Head = serde_json::from_slice(bytes).map_err(is_none)?;
        if head.schema_version != SCHEMA_VERSION {
            let version = head.schema_version;
            return Err(format!(
                "has schema version {version}, but this version of folio uses {SCHEMA_VERSION}"
            ));
        }
        let saved: Saved = serde_json::from_slice(bytes).map_err(is_none)?;
        saved.state()
    }
}

#[derive(Deserialize)]
struct Head {
    schema_version: u32,
}

#[derive(Deserialize)]
struct Saved {
    kernel: String,
    boot_id: Option<String>,
    taken_unix_s: u64,
    #[serde(default)]
    page_bytes: Option<u64>,
    #[serde(default)]
    access: Option<Access>,
    #[serde(default)]
    skipped: SavedSkipped,
    #[serde(default)]
    totals: Vec<SavedCell>,
    #[serde(default)]
    processes: Vec<SavedProcess>,
    files: Vec<SavedFile>,
}

#[derive(Default, Deserialize)]
struct SavedSkipped {
    #[serde(default)]
    refused: Vec<u32>,
}

#[derive(Deserialize)]
struct SavedCell {
    kind: MemoryKind,
    folio_bytes: Option<u64>,
    #[serde(flatten)]
    cell: Cell,
}

#[derive(Deserialize)]
struct SavedProcess {
    pid: u32,
    name: String,
    mappings: Vec<SavedMapping>,
}

#[derive(Deserialize)]
struct SavedMapping {
    permissions: String,
    path: String,
    is_deleted: bool,
    folios: Vec<SavedCell>,
}

#[derive(Deserialize)]
struct SavedFile {
    path: String,
    folios: Vec<SavedFolio>,
}

#[derive(Deserialize)]
struct SavedFolio {
    folio_bytes: Option<u64>,
    cached_bytes: u64,
}

/// Adds a file's numbers with overflow checks (E1).
struct Adder {
    geometry: Geometry,
    left_bytes: u64,
}

impl Adder {
    fn add(&mut self, tally: &mut Tally, saved: &SavedCell) -> Result<(), String> {
        let cell = saved.cell;
        let parts = [
            cell.aligned_bytes,
            cell.unaligned_bytes,
            cell.partial_bytes,
            cell.contpte_bytes,
            cell.pmd_bytes,
        ];
        for bytes in parts {
            let left = self.left_bytes.checked_sub(bytes);
            self.left_bytes = left.ok_or("contains more bytes than memory can hold")?;
        }
        tally.add(saved.kind, self.size(saved.folio_bytes)?, &cell);
        Ok(())
    }

    fn size(&self, folio_bytes: Option<u64>) -> Result<Size, String> {
        let Some(bytes) = folio_bytes else { return Ok(Size::Unknown) };
        let order = bytes.checked_div(self.geometry.page_bytes).unwrap_or(0);
        let is_folio = order.is_power_of_two() && order.ilog2() < NR_ORDERS;
        if is_folio && order * self.geometry.page_bytes == bytes {
            return Ok(Size::Order(order.ilog2()));
        }
        Err(format!("contains a folio of {bytes} bytes, which is not a folio size"))
    }

    fn tally(&mut self, cells: &[SavedCell]) -> Result<Tally, String> {
        let mut tally = Tally::default();
        cells.iter().try_for_each(|cell| self.add(&mut tally, cell))?;
        Ok(tally)
    }

    fn process(&mut self, saved: &SavedProcess) -> Result<ProcessState, String> {
        let mut mappings = Mappings::new();
        let mut tally = Tally::default();
        for mapping in &saved.mappings {
            let own = self.tally(&mapping.folios)?;
            let permissions = shown(&mapping.permissions).to_string();
            let key = (what_of(&mapping.path, mapping.is_deleted), permissions);
            tally.add_all(&own);
            mappings.entry(key).or_default().add_all(&own);
        }
        let (pid, name) = (saved.pid, saved.name.clone());
        Ok(ProcessState { pid, name, group: String::new(), tally, mappings })
    }

    fn file(&mut self, saved: &SavedFile) -> Result<((String, String), Tally), String> {
        let cell = |folio: &SavedFolio| SavedCell {
            kind: MemoryKind::File,
            folio_bytes: folio.folio_bytes,
            cell: Cell { aligned_bytes: folio.cached_bytes, ..Cell::default() },
        };
        let cells: Vec<SavedCell> = saved.folios.iter().map(cell).collect();
        Ok(((saved.path.clone(), String::new()), self.tally(&cells)?))
    }
}

impl Saved {
    fn state(self) -> Result<State, String> {
        let page_bytes = self.page_bytes.unwrap_or_else(|| Live.page_bytes());
        if ![4096, 16384, 65536].contains(&page_bytes) {
            return Err(format!("contains base pages of {page_bytes} bytes, which no kernel uses"));
        }
        let geometry = Geometry::of(page_bytes);
        let mut adder = Adder { geometry, left_bytes: i64::MAX.unsigned_abs() };
        let totals = adder.tally(&self.totals)?;
        let processes: Result<Vec<_>, _> =
            self.processes.iter().map(|process| adder.process(process)).collect();
        let mut processes = processes?;
        processes.sort_by_key(|process| process.pid);
        let pids: BTreeSet<u32> = processes.iter().map(|process| process.pid).collect();
        if pids.len() < processes.len() {
            return Err("lists a process twice".to_owned());
        }
        let files: Result<Mappings, _> = self.files.iter().map(|file| adder.file(file)).collect();
        Ok(State {
            source: None,
            kernel: self.kernel,
            boot_id: self.boot_id,
            taken_unix_s: self.taken_unix_s,
            geometry,
            access: self.access.unwrap_or(Access::Full),
            nr_refused: self.skipped.refused.len(),
            totals,
            processes,
            files: files?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn saved(edit: impl Fn(&mut serde_json::Value)) -> Result<State, String> {
        let cell = serde_json::json!({
            "kind": "anon", "folio_bytes": 65536, "mapped_bytes": 65536, "aligned_bytes": 65536,
            "unaligned_bytes": 0, "partial_bytes": 0, "contpte_bytes": 0, "pmd_bytes": 0
        });
        let mapping = serde_json::json!({
            "start": 0, "end": 65536, "permissions": "rw-p", "offset": 0, "path": "[heap]",
            "is_deleted": false, "folios": [cell], "target": null
        });
        let mut value = serde_json::json!({
            "schema_version": SCHEMA_VERSION, "kernel": "6.18", "boot_id": null,
            "taken_unix_s": 7, "page_bytes": 4096, "access": "full",
            "skipped": {"gone": [], "refused": [], "nr_empty": 0}, "totals": [cell],
            "processes": [{"pid": 7, "name": "a", "mappings": [mapping]}], "files": []
        });
        edit(&mut value);
        State::parse(value.to_string().as_bytes())
    }

    #[test]
    fn a_saved_result_reads_back_unchanged() {
        let state = saved(|_| {}).unwrap();
        assert_eq!(state.processes[0].tally, state.totals);
        let cells: Vec<_> = state.totals.cells().map(|(kind, size, _)| (kind, size)).collect();
        assert_eq!(cells, [(MemoryKind::Anon, Size::Order(4))]);
        let key = ("[heap]".to_owned(), "rw-p".to_owned());
        assert_eq!(state.processes[0].mappings[&key], state.totals);
    }

    #[test]
    fn what_cannot_be_is_refused() {
        type Edit<'a> = &'a dyn Fn(&mut serde_json::Value);
        let refusals: [(Edit<'_>, &str); 6] = [
            (
                &|value| value["schema_version"] = 2.into(),
                "has schema version 2, but this version of folio uses 3",
            ),
            (&|value| value["page_bytes"] = 5000.into(), "base pages of 5000 bytes"),
            (&|value| value["totals"][0]["folio_bytes"] = 12288.into(), "folio of 12288 bytes"),
            (&|value| value["totals"][0]["pmd_bytes"] = u64::MAX.into(), "than memory can hold"),
            (&|value| value["totals"][0]["kind"] = "odd".into(), "is not a result of folio maps"),
            (
                &|value| {
                    let one = value["processes"][0].clone();
                    value["processes"] = serde_json::json!([one, one]);
                },
                "a process twice",
            ),
        ];
        for (edit, expected) in refusals {
            let error = saved(edit).unwrap_err();
            assert!(error.contains(expected), "{error}");
        }
        assert!(State::parse(b"{").unwrap_err().contains("not a result"));
        assert!(State::parse(&vec![b'['; 1 << 16]).unwrap_err().contains("not a result"));
    }
}

//! The result as data: JSON, and CSV with one row per process, mapping, kind and folio size.

use crate::ExportError;
use crate::cells::Cells;
use largefolio_linux::census::cgroup::MemoryLimit;
use largefolio_linux::census::file::CachedFile;
use largefolio_linux::census::folios::{Cell, MemoryKind, Size, Tally};
use largefolio_linux::census::process::{Mapping, Process};
use largefolio_linux::census::{Access, Census, Skipped};
use largefolio_linux::reasons::Reason;
use largefolio_linux::remedies::Remedy;
use serde::Serialize;

use super::plain::plain;
use super::reading::Reading;

pub(super) const SCHEMA_VERSION: u32 = 3;

/// Memory of processes and cached files by folio size, in bytes, with the reasons why it is not in
/// larger folios.
#[derive(Debug, Serialize)]
pub struct MapsResult<'a> {
    schema_version: u32,
    tool_version: &'static str,
    command_line: &'a [String],
    kernel: &'a str,
    /// The boot id: pids are only comparable within one boot.
    boot_id: Option<&'a str>,
    taken_unix_s: u64,
    rules_note: Option<&'a str>,
    #[serde(flatten)]
    system: Option<SystemView<'a>>,
    files: Vec<FileView>,
    nr_files_not_cached: usize,
    failed: Vec<String>,
}

#[derive(Debug, Serialize)]
struct SystemView<'a> {
    page_bytes: u64,
    contpte_bytes: u64,
    pmd_bytes: u64,
    access: Access,
    skipped: SkippedView<'a>,
    memory_limits: &'a [MemoryLimit],
    /// Pages past the end of kpageflags.
    nr_pages_beyond: u64,
    /// Counts each page once.
    totals: Vec<CellView>,
    processes: Vec<ProcessView<'a>>,
}

#[derive(Debug, Serialize)]
struct SkippedView<'a> {
    gone: &'a [u32],
    refused: &'a [u32],
    nr_empty: usize,
    empty: &'a [u32],
}

impl<'a> SkippedView<'a> {
    fn of(skipped: &'a Skipped) -> Self {
        let Skipped { gone, refused, empty } = skipped;
        Self { gone, refused, nr_empty: empty.len(), empty }
    }
}

#[derive(Debug, Serialize)]
struct CellView {
    kind: MemoryKind,
    /// `None` if the size is not known.
    folio_bytes: Option<u64>,
    mapped_bytes: u64,
    #[serde(flatten)]
    cell: Cell,
}

#[derive(Debug, Serialize)]
struct ProcessView<'a> {
    pid: u32,
    name: &'a str,
    /// Page tables (`VmPTE`).
    page_table_bytes: u64,
    /// Pinned memory (`VmPin`).
    pinned_bytes: u64,
    mappings: Vec<MappingView<'a>>,
}

#[derive(Debug, Serialize)]
struct MappingView<'a> {
    start: u64,
    end: u64,
    permissions: String,
    offset: u64,
    path: String,
    is_deleted: bool,
    folios: Vec<CellView>,
    /// The largest possible size, if larger than the current one.
    target: Option<TargetView<'a>>,
}

#[derive(Debug, Serialize)]
struct TargetView<'a> {
    target_bytes: u64,
    large_bytes: u64,
    missing_bytes: u64,
    reasons: &'a [Reason],
    remedies: &'a [Remedy],
}

#[derive(Debug, Serialize)]
struct FileView {
    path: String,
    bytes: u64,
    cached_bytes: u64,
    folios: Vec<FolioView>,
}

#[derive(Debug, Serialize)]
struct FolioView {
    folio_bytes: Option<u64>,
    cached_bytes: u64,
}

impl<'a> MapsResult<'a> {
    #[must_use]
    pub fn of(reading: &'a Reading, command_line: &'a [String]) -> Self {
        let cached = reading.cached.as_ref();
        Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: &reading.release,
            boot_id: reading.boot_id.as_deref(),
            taken_unix_s: reading.taken.as_secs(),
            rules_note: reading.rules_note.as_deref(),
            system: reading.census.as_ref().map(|census| system(census, reading)),
            files: cached.into_iter().flat_map(|cached| &cached.files).map(file).collect(),
            nr_files_not_cached: cached.map_or(0, |cached| cached.nr_empty),
            failed: cached
                .into_iter()
                .flat_map(|cached| &cached.failed)
                .map(ToString::to_string)
                .collect(),
        }
    }

    /// # Errors
    /// Never in practice: the result is names and numbers.
    pub fn json(&self) -> Result<String, ExportError> {
        Ok(serde_json::to_string_pretty(self)? + "\n")
    }

    /// Returns JSON in one line, for a stream of results.
    ///
    /// # Errors
    /// Never in practice, as [`MapsResult::json`].
    pub fn json_line(&self) -> Result<String, ExportError> {
        Ok(serde_json::to_string(self)? + "\n")
    }

    pub(super) fn csv(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        writer.record([
            "pid",
            "process",
            "start",
            "end",
            "permissions",
            "offset",
            "path",
            "kind",
            "folio_bytes",
            "mapped_bytes",
            "aligned_bytes",
            "unaligned_bytes",
            "partial_bytes",
            "contpte_bytes",
            "pmd_bytes",
        ])?;
        for process in self.system.iter().flat_map(|system| &system.processes) {
            for mapping in &process.mappings {
                for cell in &mapping.folios {
                    writer.record(row(process, mapping, cell))?;
                }
            }
        }
        for file in &self.files {
            for folio in &file.folios {
                let mut row: [String; 15] = std::array::from_fn(|_| String::new());
                row[6].clone_from(&file.path);
                "cached".clone_into(&mut row[7]);
                row[8] = text(folio.folio_bytes);
                row[9] = folio.cached_bytes.to_string();
                writer.record(row)?;
            }
        }
        writer.into_text()
    }
}

fn row(process: &ProcessView<'_>, mapping: &MappingView<'_>, view: &CellView) -> [String; 15] {
    let CellView { kind, folio_bytes, mapped_bytes, cell } = view;
    [
        process.pid.to_string(),
        process.name.to_owned(),
        format!("{:#x}", mapping.start),
        format!("{:#x}", mapping.end),
        mapping.permissions.clone(),
        mapping.offset.to_string(),
        mapping.path.clone(),
        kind.name().to_owned(),
        text(*folio_bytes),
        mapped_bytes.to_string(),
        cell.aligned_bytes.to_string(),
        cell.unaligned_bytes.to_string(),
        cell.partial_bytes.to_string(),
        cell.contpte_bytes.to_string(),
        cell.pmd_bytes.to_string(),
    ]
}

fn text(number: Option<u64>) -> String {
    number.map_or_else(String::new, |number| number.to_string())
}

fn system<'a>(census: &'a Census, reading: &'a Reading) -> SystemView<'a> {
    let page_bytes = census.geometry.page_bytes;
    let mut processes: Vec<ProcessView<'a>> =
        census.processes.iter().map(|process| of_process(process, page_bytes)).collect();
    for finding in &reading.findings {
        processes[finding.process].mappings[finding.mapping].target = Some(TargetView {
            target_bytes: finding.target_bytes,
            large_bytes: finding.large_bytes,
            missing_bytes: finding.missing_bytes,
            reasons: &finding.reasons,
            remedies: &finding.remedies,
        });
    }
    for process in &mut processes {
        process.mappings.retain(|mapping| !mapping.folios.is_empty() || mapping.target.is_some());
    }
    SystemView {
        page_bytes,
        contpte_bytes: census.geometry.contpte_bytes(),
        pmd_bytes: census.geometry.pmd_bytes(),
        access: census.access,
        skipped: SkippedView::of(&census.skipped),
        memory_limits: &reading.limits,
        nr_pages_beyond: census.nr_beyond,
        totals: cells(&census.totals, page_bytes),
        processes,
    }
}

fn of_process(process: &Process, page_bytes: u64) -> ProcessView<'_> {
    let mapping = |mapping: &Mapping| MappingView {
        start: mapping.vma.range.start,
        end: mapping.vma.range.end,
        permissions: mapping.vma.permission_text(),
        offset: mapping.vma.pos,
        path: plain(&mapping.vma.path),
        is_deleted: mapping.vma.is_deleted,
        folios: cells(&mapping.tally, page_bytes),
        target: None,
    };
    ProcessView {
        pid: process.pid,
        name: &process.name,
        page_table_bytes: process.held.page_table_bytes,
        pinned_bytes: process.held.pinned.bytes,
        mappings: process.mappings.iter().map(mapping).collect(),
    }
}

fn cells(tally: &Tally, page_bytes: u64) -> Vec<CellView> {
    let view = |(kind, size, cell): (MemoryKind, Size, &Cell)| CellView {
        kind,
        folio_bytes: size.bytes(page_bytes),
        mapped_bytes: cell.mapped_bytes(),
        cell: *cell,
    };
    tally.cells().map(view).collect()
}

fn file(file: &CachedFile) -> FileView {
    let page_bytes = largefolio_linux::system::System::page_bytes(&largefolio_linux::system::Live);
    FileView {
        path: plain(&file.path),
        bytes: file.len_bytes,
        cached_bytes: file.tally.all().mapped_bytes(),
        folios: file
            .tally
            .cells()
            .map(|(_, size, cell)| FolioView {
                folio_bytes: size.bytes(page_bytes),
                cached_bytes: cell.mapped_bytes(),
            })
            .collect(),
    }
}

//! The data of a page about the running system: sums, the largest items, strips.
//!
//! A census has no size limit (a thousand processes have a hundred thousand mappings), but a page
//! does. `--json` has everything.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::path::Path;

use largefolio_linux::census::file::CachedFile;
use largefolio_linux::census::folios::{MemoryKind, Tally};
use largefolio_linux::census::layout::{self, Layout, RunMapping};
use largefolio_linux::census::maps::Vma;
use largefolio_linux::census::process::Process;
use largefolio_linux::census::{Access, Census};
use largefolio_linux::geometry::Geometry;
use largefolio_linux::reasons::Refusal;
use largefolio_linux::remedies::Remedy;
use largefolio_linux::system::System;
use serde::Serialize;

use super::group::{self, Group, REMEDIES_MAX, Sort, Subject};
use super::plain::plain;
use super::reading::Reading;
use crate::remedy::leading;

/// The version of the page's data. The JSON of `folio maps` has its own.
const SCHEMA_VERSION: u32 = 3;
const NR_ROWS_MAX: usize = 24;
const NR_SUBJECTS_MAX: usize = 40;
/// Maximum number of mappings, and of files, drawn as strips.
const NR_STRIPS_MAX: usize = 12;
/// Maximum number of runs of a strip; with its path, that takes 80 KiB.
const NR_RUNS_MAX: usize = 2048;

#[derive(Serialize)]
pub(super) struct Summary<'a> {
    schema_version: u32,
    pub(super) tool_version: &'static str,
    pub(super) command_line: &'a [String],
    pub(super) kernel: &'a str,
    pub(super) page_bytes: u64,
    pub(super) contpte_bytes: u64,
    pub(super) pmd_bytes: u64,
    pub(super) access: Option<Access>,
    pub(super) nr_processes: usize,
    pub(super) nr_refused: usize,
    /// All memory, counting each page once.
    pub(super) total: Sizes,
    pub(super) kinds: Vec<NamedSizes>,
    /// The largest processes. A shared page counts in each.
    pub(super) processes: Vec<NamedSizes>,
    pub(super) nr_processes_not_shown: usize,
    /// The largest mappings; with several processes, by file and permissions.
    pub(super) mappings: Vec<NamedSizes>,
    pub(super) nr_mappings_not_shown: usize,
    pub(super) reasons: Vec<ReasonData>,
    pub(super) subjects: Vec<SubjectData>,
    pub(super) nr_subjects_not_shown: usize,
    pub(super) cached: Sizes,
    pub(super) files: Vec<NamedSizes>,
    pub(super) nr_files_not_shown: usize,
    pub(super) nr_files_not_cached: usize,
    /// The meanings of the indexes in `strips[].runs`.
    hows: [RunMapping; 5],
    pub(super) strips: Vec<StripData>,
}

impl Summary<'_> {
    pub(super) fn best(&self) -> Option<(&str, &Remedy)> {
        let all = self.subjects.iter().flat_map(|subject| {
            subject.remedies.iter().map(|remedy| (subject.name.as_str(), remedy))
        });
        leading(all)
    }
}

#[derive(Serialize)]
pub(super) struct Sizes {
    pub(super) mapped_bytes: u64,
    pub(super) unaligned_bytes: u64,
    pub(super) partial_bytes: u64,
    pub(super) contpte_bytes: u64,
    pub(super) pmd_bytes: u64,
    pub(super) by_size: Vec<SizeData>,
}

#[derive(Clone, Copy, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "keys of the JSON, with their unit")]
pub(super) struct SizeData {
    pub(super) folio_bytes: Option<u64>,
    pub(super) mapped_bytes: u64,
    pub(super) unaligned_bytes: u64,
    pub(super) partial_bytes: u64,
}

#[derive(Serialize)]
pub(super) struct NamedSizes {
    pub(super) name: String,
    /// Permissions, number of processes, or file size.
    pub(super) about: String,
    #[serde(flatten)]
    pub(super) sizes: Sizes,
}

/// A reason, summed over everything that was judged.
#[derive(Serialize)]
pub(super) struct ReasonData {
    pub(super) refusal: Refusal,
    pub(super) meaning: &'static str,
    pub(super) bytes: u64,
}

#[derive(Serialize)]
pub(super) struct SubjectData {
    pub(super) name: String,
    pub(super) nr_processes: usize,
    pub(super) target_bytes: u64,
    pub(super) bytes: u64,
    pub(super) reasons: Vec<ReasonData>,
    pub(super) remedies: Vec<Remedy>,
}

#[derive(Serialize)]
pub(super) struct StripData {
    pub(super) name: String,
    pub(super) about: String,
    /// Whether it is a file's page cache, mapped or not.
    pub(super) is_file: bool,
    pub(super) nr_pages: u64,
    /// Pages per cell if there are too many runs to show each; otherwise 1.
    pub(super) cell_pages: u64,
    /// First page, number of pages, order, index into `hows`.
    pub(super) runs: Vec<[u64; 4]>,
}

struct MappingPlace<'a> {
    bytes: u64,
    process: &'a Process,
    vma: &'a Vma,
}

impl Sizes {
    pub(super) fn of(tally: &Tally, page_bytes: u64) -> Self {
        let all = tally.all();
        let mut by_size: BTreeMap<Option<u64>, SizeData> = BTreeMap::new();
        for (_, size, cell) in tally.cells() {
            let folio_bytes = size.bytes(page_bytes);
            let data = by_size.entry(folio_bytes).or_default();
            data.folio_bytes = folio_bytes;
            data.mapped_bytes += cell.mapped_bytes();
            data.unaligned_bytes += cell.unaligned_bytes;
            data.partial_bytes += cell.partial_bytes;
        }
        Self {
            mapped_bytes: all.mapped_bytes(),
            unaligned_bytes: all.unaligned_bytes,
            partial_bytes: all.partial_bytes,
            contpte_bytes: all.contpte_bytes,
            pmd_bytes: all.pmd_bytes,
            by_size: by_size.into_values().collect(),
        }
    }

    pub(super) fn of_at_least(&self, folio_bytes: u64) -> u64 {
        let is_large = |size: &&SizeData| size.folio_bytes.is_some_and(|own| own >= folio_bytes);
        self.by_size.iter().filter(is_large).map(|size| size.mapped_bytes).sum()
    }
}

impl<'a> Summary<'a> {
    pub(super) fn of(
        reading: &'a Reading,
        command_line: &'a [String],
        system: &dyn System,
    ) -> Self {
        let page_bytes = system.page_bytes();
        let geometry = Geometry::of(page_bytes);
        let census = reading.census.as_ref();
        let empty = Tally::default();
        let mut summary = Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: &reading.release,
            page_bytes,
            contpte_bytes: geometry.contpte_bytes(),
            pmd_bytes: geometry.pmd_bytes(),
            access: census.map(|census| census.access),
            nr_processes: census.map_or(0, |census| census.processes.len()),
            nr_refused: census.map_or(0, |census| census.skipped.refused.len()),
            total: Sizes::of(census.map_or(&empty, |census| &census.totals), page_bytes),
            kinds: Vec::new(),
            processes: Vec::new(),
            nr_processes_not_shown: 0,
            mappings: Vec::new(),
            nr_mappings_not_shown: 0,
            reasons: Vec::new(),
            subjects: Vec::new(),
            nr_subjects_not_shown: 0,
            cached: Sizes::of(&empty, page_bytes),
            files: Vec::new(),
            nr_files_not_shown: 0,
            nr_files_not_cached: reading.cached.as_ref().map_or(0, |cached| cached.nr_empty),
            hows: RunMapping::ALL,
            strips: Vec::new(),
        };
        if let Some(census) = census {
            summary.add_census(census, system);
            summary.add_subjects(group::subjects(census, &reading.findings));
        }
        if let Some(cached) = &reading.cached {
            summary.add_files(&cached.files);
        }
        summary
    }

    fn named(&self, name: String, about: String, tally: &Tally) -> NamedSizes {
        NamedSizes { name, about, sizes: Sizes::of(tally, self.page_bytes) }
    }

    fn add_census(&mut self, census: &Census, system: &dyn System) {
        for kind in MemoryKind::ALL {
            let mut tally = Tally::default();
            for (_, size, cell) in census.totals.cells().filter(|(of, ..)| *of == kind) {
                tally.add(kind, size, cell);
            }
            if tally.all().mapped_bytes() > 0 {
                self.kinds.push(self.named(kind.name().to_owned(), String::new(), &tally));
            }
        }
        let processes = group::processes(census, Sort::Size);
        for process in processes.iter().take(NR_ROWS_MAX) {
            let name = format!("{} {}", process.pid, process.name);
            self.processes.push(self.named(name, String::new(), &process.tally));
        }
        self.nr_processes_not_shown = processes.len().saturating_sub(NR_ROWS_MAX);
        let groups = group::mappings(census, Sort::Size);
        for one in groups.iter().take(NR_ROWS_MAX) {
            let mut about = one.permissions.clone();
            if one.nr_processes > 1 {
                about = format!("{about}, {} processes", one.nr_processes);
            }
            self.mappings.push(self.named(one.what.clone(), about, &one.tally));
        }
        self.nr_mappings_not_shown = groups.len().saturating_sub(NR_ROWS_MAX);
        if census.access == Access::Full {
            self.add_strips(census, &groups, system);
        }
    }

    fn add_strips(&mut self, census: &Census, groups: &[Group], system: &dyn System) {
        let is_folios = |one: &&Group| one.tally.of(MemoryKind::Other) != one.tally.all();
        let mut chosen: Vec<(&Group, Option<MappingPlace<'_>>)> =
            groups.iter().filter(is_folios).take(NR_STRIPS_MAX).map(|one| (one, None)).collect();
        for process in &census.processes {
            for mapping in &process.mappings {
                let key = group::key(mapping, census.processes.len());
                let is_same = |one: &Group| (&one.what, &one.permissions) == (&key.0, &key.1);
                let Some((_, best)) = chosen.iter_mut().find(|(one, _)| is_same(one)) else {
                    continue;
                };
                let bytes = mapping.tally.all().mapped_bytes();
                if best.as_ref().is_none_or(|best| bytes > best.bytes) {
                    *best = Some(MappingPlace { bytes, process, vma: &mapping.vma });
                }
            }
        }
        let places: Vec<(&Group, MappingPlace<'_>)> =
            chosen.into_iter().filter_map(|(one, best)| Some((one, best?))).collect();
        let wanted: Vec<(u32, &Vma)> =
            places.iter().map(|(_, place)| (place.process.pid, place.vma)).collect();
        let Ok(layouts) = layout::of_mappings(system, &wanted, NR_RUNS_MAX) else { return };
        for ((one, MappingPlace { process, vma, .. }), layout) in places.into_iter().zip(layouts) {
            let of = if census.processes.len() > 1 {
                let (start, pid, name) = (vma.range.start, process.pid, &process.name);
                format!(" at {start:#x} of process {pid} ({name})")
            } else {
                String::new()
            };
            let about = format!(", {}{of}", one.permissions);
            self.strips.extend(layout.map(|layout| strip(one.what.clone(), about, &layout)));
        }
    }

    fn add_subjects(&mut self, subjects: Vec<Subject>) {
        let mut reasons: BTreeMap<Refusal, u64> = BTreeMap::new();
        for subject in &subjects {
            for (refusal, bytes) in &subject.reasons {
                let sum = reasons.entry(*refusal).or_default();
                *sum = sum.saturating_add(*bytes);
            }
        }
        let mut reasons: Vec<ReasonData> = reasons
            .into_iter()
            .map(|(refusal, bytes)| ReasonData { refusal, meaning: refusal.meaning(), bytes })
            .collect();
        reasons.sort_by_key(|reason| Reverse(reason.bytes));
        self.reasons = reasons;
        let has_remedy =
            |subject: &Subject| subject.reasons.keys().any(|refusal| !refusal.has_no_remedy());
        let subjects: Vec<Subject> = subjects.into_iter().filter(has_remedy).collect();
        self.nr_subjects_not_shown = subjects.len().saturating_sub(NR_SUBJECTS_MAX);
        self.subjects = subjects.into_iter().take(NR_SUBJECTS_MAX).map(subject_data).collect();
    }

    fn add_files(&mut self, files: &[CachedFile]) {
        self.cached = Sizes::of(&sum(files), self.page_bytes);
        let mut files: Vec<&CachedFile> = files.iter().collect();
        files.sort_by_key(|file| Reverse(file.tally.all().mapped_bytes()));
        self.nr_files_not_shown = files.len().saturating_sub(NR_ROWS_MAX);
        files.truncate(NR_ROWS_MAX);
        for file in &files {
            let about = crate::figures::bytes(file.len_bytes);
            self.files.push(self.named(plain(&file.path), about, &file.tally));
        }
        files.retain(|file| file.tally.all().mapped_bytes() > 0);
        files.truncate(NR_STRIPS_MAX);
        let paths: Vec<&Path> = files.iter().map(|file| file.path.as_path()).collect();
        let Ok(layouts) = layout::of_files(&paths, NR_RUNS_MAX) else { return };
        for (file, layout) in files.iter().zip(layouts) {
            let drawn = layout.map(|layout| strip(plain(&file.path), String::new(), &layout));
            self.strips.extend(drawn.map(|strip| StripData { is_file: true, ..strip }));
        }
    }
}

pub(super) fn sum(files: &[CachedFile]) -> Tally {
    let mut all = Tally::default();
    for file in files {
        all.add_all(&file.tally);
    }
    all
}

fn subject_data(subject: Subject) -> SubjectData {
    let Subject { what, target_bytes, bytes, nr_processes, reasons, mut remedies } = subject;
    remedies.truncate(REMEDIES_MAX);
    let reasons = reasons.into_iter().filter(|(refusal, _)| !refusal.has_no_remedy());
    let reason = |(refusal, bytes): (Refusal, u64)| ReasonData {
        refusal,
        meaning: refusal.meaning(),
        bytes,
    };
    let mut reasons: Vec<ReasonData> = reasons.map(reason).collect();
    reasons.sort_by_key(|reason| Reverse(reason.bytes));
    SubjectData { name: what, nr_processes, target_bytes, bytes, reasons, remedies }
}

fn strip(name: String, about: String, layout: &Layout) -> StripData {
    let how_nr =
        |how: RunMapping| RunMapping::ALL.iter().position(|one| *one == how).unwrap_or(0) as u64;
    let run =
        |run: &layout::LayoutRun| [run.page, run.nr_pages, u64::from(run.order), how_nr(run.how)];
    StripData {
        name,
        about,
        is_file: false,
        nr_pages: layout.nr_pages,
        cell_pages: layout.cell_pages,
        runs: layout.runs.iter().map(run).collect(),
    }
}

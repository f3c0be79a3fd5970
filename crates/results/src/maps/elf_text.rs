//! Files on disk, as text.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::figures::{self, printable};
use largefolio_linux::alignment::AlignRefusal;
use largefolio_mm::rules::sizes::size_name;

use super::elf::{ElfResult, FileView, SegmentView, SizeView};

/// Width of a size column: a word and a separator.
const CELL: usize = LONGEST.len() + 1;
const LONGEST: &str = "no folio";

pub(super) fn of(view: &ElfResult) -> String {
    let mut text = String::new();
    for file in &view.files {
        file_text(&mut text, view, file);
    }
    if !view.files.is_empty() {
        text += &footer(view);
    }
    text
}

fn file_text(text: &mut String, view: &ElfResult, file: &FileView) {
    let order = if file.is_little_endian { "" } else { ", big-endian" };
    let what = match (file.kind, file.step_bytes) {
        ("fixed", _) => "program at fixed addresses".to_owned(),
        (kind, step) => {
            let kind = if kind == "program" { "program (PIE)" } else { "shared object" };
            let step = step.map_or_else(String::new, size_name);
            format!("{kind}, loaded at a multiple of {step}")
        }
    };
    let (path, machine, bits) = (printable(&file.path), &file.machine, file.bits);
    let _ = writeln!(text, "{path}: {machine}, {bits}-bit{order}, {what}");
    let _ = write!(
        text,
        "  seg  flags  {:>10}  {:>12}  {:>10}  {:>6} ",
        "offset", "address", "bytes", "align"
    );
    for &bytes in &view.size_bytes {
        let _ = write!(text, "{:>CELL$}", size_name(bytes));
    }
    text.push('\n');
    for segment in &file.segments {
        let (nr, flags) = (segment.nr, &segment.flags);
        let align = size_name(segment.align.max(1));
        let size = figures::bytes(segment.file_bytes);
        let _ = write!(text, "  {nr:>3}  {flags:5}  ");
        let _ = write!(
            text,
            "{:>#10x}  {:>#12x}  {size:>10}  {align:>6} ",
            segment.offset, segment.vaddr
        );
        for size in &segment.sizes {
            let _ = write!(text, "{:>CELL$}", cell(segment, size));
        }
        text.push('\n');
    }
    for note in notes(view, file) {
        let _ = writeln!(text, "  {note}");
    }
    text.push('\n');
}

pub(super) fn cell(segment: &SegmentView, size: &SizeView) -> String {
    match size.refusal {
        None => {
            let (covered, all) = (size.covered_bytes.into(), segment.file_bytes.max(1).into());
            format!("{}%", 100 * u128::min(covered, all) / all)
        }
        Some(refusal) => word(refusal).to_owned(),
    }
}

fn word(refusal: AlignRefusal) -> &'static str {
    match refusal {
        AlignRefusal::TooSmall => "small",
        AlignRefusal::NoWholeBlock => "ends",
        AlignRefusal::Incongruent => "offset",
        AlignRefusal::RandomAddress => "random",
        AlignRefusal::Filesystem => LONGEST,
    }
}

/// Says why text is not mapped with larger folios, what helps, and whether a size fits only on some
/// filesystems.
pub(super) fn notes(view: &ElfResult, file: &FileView) -> Vec<String> {
    let mut notes = Vec::new();
    for (refusal, sizes) in refused(file) {
        let names: Vec<_> = sizes.keys().map(|&bytes| size_name(bytes)).collect();
        let names = names.join(", ");
        let step = size_name(file.step_bytes.unwrap_or(0));
        let why = match refusal {
            AlignRefusal::TooSmall => continue,
            AlignRefusal::NoWholeBlock => {
                format!("the segment contains no whole block of {names}")
            }
            AlignRefusal::Incongruent => {
                format!("address and file offset differ modulo {names}, wherever it is loaded")
            }
            AlignRefusal::RandomAddress => {
                format!(
                    "the load address is random in steps of {step}, so {names} fits only by \
                         chance"
                )
            }
            AlignRefusal::Filesystem => format!("no filesystem supports folios of {names}"),
        };
        let remedy = sizes.values().next_back().copied().flatten();
        let remedy = remedy.map_or_else(String::new, |remedy| format!("; {remedy}"));
        notes.push(format!("{}: {why}{remedy}", word(refusal)));
    }
    for segment in file.segments.iter().filter(|s| s.is_text() && !s.shares_page_with.is_empty()) {
        let others: Vec<_> = segment.shares_page_with.iter().map(ToString::to_string).collect();
        let (nr, others) = (segment.nr, others.join(", "));
        let page = view.page_bytes;
        // If the linker assumed smaller pages, it separates segments no further than those.
        let (page_option, why) = if segment.align < page {
            let why =
                format!("because it is linked for pages of {}", size_name(segment.align.max(1)));
            (format!(",-z,max-page-size={page}"), why)
        } else {
            (String::new(), String::new())
        };
        notes.push(format!(
            "text: segment {nr} shares a file page of {} with segment {others}{why}; re-link \
             with -Wl,-z,separate-code{page_option}",
            size_name(page)
        ));
    }
    notes.extend(partly(view, file));
    notes
}

/// Groups refusals of text segments, with sizes and remedies; without text, covers all segments.
fn refused(file: &FileView) -> BTreeMap<AlignRefusal, BTreeMap<u64, Option<&str>>> {
    let mut refused: BTreeMap<AlignRefusal, BTreeMap<u64, Option<&str>>> = BTreeMap::new();
    let has_text = file.segments.iter().any(SegmentView::is_text);
    let segments = file.segments.iter().filter(|segment| segment.is_text() || !has_text);
    for size in segments.flat_map(|segment| &segment.sizes) {
        if let Some(refusal) = size.refusal {
            refused.entry(refusal).or_default().insert(size.bytes, size.remedy.as_deref());
        }
    }
    refused
}

fn partly(view: &ElfResult, file: &FileView) -> Option<String> {
    let text = file.segments.iter().filter(|segment| segment.is_text());
    let sizes = text.flat_map(|segment| &segment.sizes);
    let is_part = |size: &&SizeView| (1..view.filesystems.len()).contains(&size.filesystems.len());
    let some: BTreeMap<u64, String> =
        sizes.filter(is_part).map(|size| (size.bytes, size.filesystems.join(", "))).collect();
    let parts: Vec<_> =
        some.iter().map(|(&bytes, names)| format!("{} on {names}", size_name(bytes))).collect();
    (!parts.is_empty()).then(|| format!("only: {}", parts.join("; ")))
}

pub(super) fn limits(view: &ElfResult) -> String {
    let mut by_size: BTreeMap<u64, Vec<&str>> = BTreeMap::new();
    for (name, bytes) in &view.filesystems {
        by_size.entry(*bytes).or_default().push(name);
    }
    let groups = by_size.iter().rev();
    let mut limits: Vec<_> = groups
        .map(|(&bytes, names)| format!("up to {} on {}", size_name(bytes), names.join(", ")))
        .collect();
    limits
        .push(if limits.is_empty() { "on no filesystem" } else { "none on any other" }.to_owned());
    limits.join("; ")
}

fn footer(view: &ElfResult) -> String {
    let (kernel, page, limits) = (&view.kernel, size_name(view.page_bytes), limits(view));
    let mut text = format!("kernel {kernel}, {page} pages: large folios {limits}\n");
    let summary = view.summary;
    if summary.nr_files > 1 {
        let share = |part: usize| figures::ratio(100 * part as u64, summary.nr_exec as u64);
        let _ = writeln!(
            text,
            "{} files, {} executable segments: {} of at least 16K ({:.1}%), {} of at least 64K \
             ({:.1}%); 64K folios can map part of {} ({:.1}%)",
            summary.nr_files,
            summary.nr_exec,
            summary.nr_exec_16k,
            share(summary.nr_exec_16k),
            summary.nr_exec_64k,
            share(summary.nr_exec_64k),
            summary.nr_exec_mapped_64k,
            share(summary.nr_exec_mapped_64k),
        );
    }
    text
}

//! Files on disk as a page: for each part of a segment, the largest folio that can map it.

use std::collections::BTreeSet;

use crate::ExportError;
use crate::figures::{self, size};
use crate::html::bars::{Bar, BarPart, bars};
use crate::html::frame::{Basis, Page, TABLE_END, figure, table_head};
use crate::html::markup::Markup;
use crate::html::sizes::{class, legend};
use serde::Serialize;

use super::elf::{ElfCounts, ElfResult, FileView, SegmentView};
use super::elf_text;
use crate::page::{footer, meanings, notes, section};

/// The version of the page's data. The JSON of `folio maps --elf` has its own.
const SCHEMA_VERSION: u32 = 1;
/// Maximum number of files on a page, those with most text first: about 8 KiB each.
const NR_FILES_MAX: usize = 100;

#[derive(Serialize)]
struct ElfPageData<'a> {
    schema_version: u32,
    tool_version: &'static str,
    command_line: &'a [String],
    kernel: &'a str,
    page_bytes: u64,
    filesystems: &'a [(String, u64)],
    size_bytes: &'a [u64],
    files: Vec<&'a FileView>,
    nr_files_not_shown: usize,
    failed: &'a [(String, String)],
    summary: ElfCounts,
}

pub(super) fn of(view: &ElfResult) -> Result<Page, ExportError> {
    let mut files: Vec<&FileView> = view.files.iter().collect();
    let text_bytes = |file: &FileView| {
        let text = file.segments.iter().filter(|segment| segment.is_text());
        text.map(|segment| segment.file_bytes).max().unwrap_or(0)
    };
    if files.len() > NR_FILES_MAX {
        files.sort_by_key(|file| std::cmp::Reverse(text_bytes(file)));
        files.truncate(NR_FILES_MAX);
    }
    let data = ElfPageData {
        schema_version: SCHEMA_VERSION,
        tool_version: env!("CARGO_PKG_VERSION"),
        command_line: &view.command_line,
        kernel: &view.kernel,
        page_bytes: view.page_bytes,
        filesystems: &view.filesystems,
        size_bytes: &view.size_bytes,
        nr_files_not_shown: view.files.len() - files.len(),
        files,
        failed: &view.failed[..view.failed.len().min(NR_FILES_MAX)],
        summary: view.summary,
    };
    let lead = "From left to right: the parts of a segment, by the largest folio that can map \
                them at any load address. Each file has its own scale.";
    let title = match view.files.as_slice() {
        [one] => one.path.clone(),
        many => format!("{} files", many.len()),
    };
    Ok(Page {
        title,
        kind: "folio maps --elf: which folio sizes can map these segments",
        answer: headline(view),
        sections: vec![
            section("segments", "Segments", Basis::Counted, lead, segments(view, &data)),
            section("sources", "Sources", Basis::None, "", sources(view)),
        ],
        json: serde_json::to_string(&data)?,
        footer: footer(view.tool_version, &view.command_line),
    })
}

fn headline(view: &ElfResult) -> Markup {
    let summary = view.summary;
    let mut markup = Markup::new();
    markup.raw("<p class=\"answer\">Folios of 64K can map part of <b>");
    let nr = summary.nr_exec_mapped_64k;
    markup.number("/summary/nr_exec_mapped_64k", nr, &nr.to_string()).raw(" of ");
    markup.number("/summary/nr_exec", summary.nr_exec, &summary.nr_exec.to_string());
    let segments = if summary.nr_exec == 1 { "segment" } else { "segments" };
    markup.raw("</b> ").text(&format!("executable {segments} at any load address."));
    markup.raw("</p><ul class=\"facts\">");
    for (key, nr, text) in [
        ("nr_files", summary.nr_files, "files"),
        ("nr_exec_16k", summary.nr_exec_16k, "segments of at least 16K"),
        ("nr_exec_64k", summary.nr_exec_64k, "of at least 64K"),
    ] {
        markup.raw("<li><b>").number(&format!("/summary/{key}"), nr, &nr.to_string());
        markup.raw("</b> ").text(text).raw("</li>");
    }
    markup.raw("</ul>");
    for (path, why) in view.failed.iter().take(NR_FILES_MAX) {
        let text = if why.contains(path) { why.clone() } else { format!("{path}: {why}") };
        markup.element("p class=\"honest\"", &text);
    }
    let about = format!("rules of {}, {} pages", view.kernel, size(view.page_bytes));
    markup.element("p class=\"about\"", &about);
    markup
}

fn segments(view: &ElfResult, data: &ElfPageData<'_>) -> Markup {
    let mut body = Markup::new();
    let sizes: BTreeSet<u64> = view.size_bytes.iter().copied().collect();
    body.append(&legend(&sizes, &[("s12", "base pages only")]));
    for (nr, file) in data.files.iter().enumerate() {
        let drawn: Vec<Bar> =
            file.segments.iter().enumerate().map(|(at, one)| bar(nr, at, one)).collect();
        if drawn.is_empty() {
            continue;
        }
        let mut picture = bars(&drawn);
        let text = elf_text::notes(view, file);
        if !text.is_empty() {
            picture.append(&notes(text.iter().map(String::as_str)));
        }
        body.append(&figure(&file.path, &picture, &table(view, nr, file)));
    }
    if data.nr_files_not_shown > 0 {
        let nr = data.nr_files_not_shown;
        let text = format!("{nr} files with less text are not shown; --json lists all of them.");
        body.element("p class=\"note\"", &text);
    }
    body
}

fn bar(file: usize, nr: usize, segment: &SegmentView) -> Bar {
    let mut sizes: Vec<_> = segment.sizes.iter().collect();
    sizes.sort_by_key(|size| std::cmp::Reverse(size.bytes));
    let (mut done, mut parts) = (0_u64, Vec::new());
    for one in sizes {
        let covered = one.covered_bytes.min(segment.file_bytes);
        let value = covered.saturating_sub(done);
        done = done.max(covered);
        let tip = format!("{} folios: {}", size(one.bytes), figures::bytes(value));
        parts.push(BarPart { class: class(one.bytes), value, tip });
    }
    let value = segment.file_bytes.saturating_sub(done);
    let tip = format!("no folio of these sizes: {}", figures::bytes(value));
    parts.push(BarPart { class: "s12".to_owned(), value, tip });
    let mut total = Markup::new();
    let at = format!("/files/{file}/segments/{nr}/file_bytes");
    total.number(&at, segment.file_bytes, &figures::bytes(segment.file_bytes));
    Bar { label: format!("{} {}", segment.nr, segment.flags), parts, total }
}

fn table(view: &ElfResult, nr: usize, file: &FileView) -> Markup {
    let mut columns = ["offset", "address", "bytes", "align"].map(str::to_owned).to_vec();
    columns.extend(view.size_bytes.iter().map(|bytes| size(*bytes)));
    let mut table = table_head("Segment", &columns);
    for (at, segment) in file.segments.iter().enumerate() {
        let of = format!("/files/{nr}/segments/{at}");
        let name = format!("{} {}", segment.nr, segment.flags);
        table.raw("<tr>").element("th scope=\"row\"", &name);
        for (key, value, shown) in [
            ("offset", segment.offset, format!("{:#x}", segment.offset)),
            ("vaddr", segment.vaddr, format!("{:#x}", segment.vaddr)),
            ("file_bytes", segment.file_bytes, figures::bytes(segment.file_bytes)),
            ("align", segment.align, format!("{:#x}", segment.align)),
        ] {
            table.raw("<td>").number(&format!("{of}/{key}"), value, &shown).raw("</td>");
        }
        for (at, one) in segment.sizes.iter().enumerate() {
            table.raw("<td>");
            let at = format!("{of}/sizes/{at}/covered_bytes");
            table.number(&at, one.covered_bytes, &elf_text::cell(segment, one)).raw("</td>");
        }
        table.raw("</tr>");
    }
    table.raw(TABLE_END);
    table
}

fn sources(view: &ElfResult) -> Markup {
    let limits = elf_text::limits(view);
    meanings(&[
        (
            "counted",
            "From the program headers, under the rules of the named kernel. `folio predict` shows \
             what a kernel then actually reads and maps.",
        ),
        ("filesystems", &limits),
        ("small", "The segment has fewer bytes than the folio."),
        ("ends", "The segment contains no whole block."),
        ("offset", "Address and file offset differ modulo the folio size."),
        ("random", "The load address is random in smaller steps."),
        ("no folio", "No filesystem supports such folios under this kernel."),
    ])
}

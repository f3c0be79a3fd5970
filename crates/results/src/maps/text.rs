//! The text output: totals, the largest mappings with their shares, reasons with remedies.

use std::fmt::Write as _;

use crate::figures::{self, printable};
use largefolio_linux::census::cgroup::MemoryLimit;
use largefolio_linux::census::file::CachedFiles;
use largefolio_linux::census::folios::{self, MemoryKind, Size};
use largefolio_linux::census::{Access, Census};
use largefolio_linux::geometry::Geometry;
use largefolio_linux::reasons::Refusal;
use largefolio_linux::remedies::Remedy;
use largefolio_mm::rules::sizes::size_name;

use super::group::{self, REMEDIES_MAX, Subject};
use super::headline;
use super::plain::{plain, shortened};
use super::reading::Reading;
use super::show::{NAME_MIN, Show};
use super::summary::{self, Sizes};
use super::table::{Classes, bytes_or_point, grid, share};
use crate::remedy::{leading, takes};
use crate::sentence;

/// The smallest page tables worth a line: 16 MiB map 8 GiB in 4K base pages.
const PAGE_TABLES_MIN: u64 = 16 << 20;

pub(super) fn of(reading: &Reading, show: Show) -> String {
    let mut text = String::new();
    if let Some(census) = &reading.census {
        heading(&mut text, reading, census);
        if !census.processes.is_empty() {
            let (mut subjects, mut omitted) =
                split_off_omitted(group::subjects(census, &reading.findings));
            omitted.omit_small(&mut subjects, show.least_bytes(census.totals.all().mapped_bytes()));
            headline(&mut text, census, &subjects, show);
            totals(&mut text, census);
            page_tables(&mut text, census);
            limits(&mut text, &reading.limits, show);
            if census.processes.len() > 1 {
                processes(&mut text, census, show);
            }
            mappings(&mut text, census, show);
            add_reasons(&mut text, census, &subjects, &omitted, show);
        }
    }
    if let Some(cached) = &reading.cached {
        if reading.census.is_some() {
            text.push('\n');
        }
        files(&mut text, cached, show);
    }
    text
}

fn heading(text: &mut String, reading: &Reading, census: &Census) {
    let (release, page) = (&reading.release, size_name(census.geometry.page_bytes));
    match census.processes.as_slice() {
        [one] => {
            let _ = write!(text, "process {} ({})", one.pid, printable(&one.name));
        }
        many => {
            let _ = write!(text, "{} processes", many.len());
        }
    }
    let _ = write!(text, ", kernel {release}, {page} pages");
    let skipped = &census.skipped;
    for (nr, what) in [
        (skipped.refused.len(), "not shown"),
        (skipped.gone.len(), "ended before they were read"),
        (skipped.empty.len(), "without their own memory"),
    ] {
        if nr > 0 {
            let _ = write!(text, "; {nr} {what}");
        }
    }
    text.push_str("\n\n");
}

fn headline(text: &mut String, census: &Census, subjects: &[Subject], show: Show) {
    let total = Sizes::of(&census.totals, census.geometry.page_bytes);
    let pmd_bytes = census.geometry.pmd_bytes();
    let share = sentence::plain(&headline::processes(&total, census.access, pmd_bytes));
    show.add(text, "", &share);
    let remedies = subjects.iter().take(show.nr_rows).flat_map(|subject| {
        subject.remedies.iter().take(REMEDIES_MAX).map(move |remedy| (&subject.what, remedy))
    });
    if let Some((what, best)) = leading(remedies) {
        let (gain, size) = (figures::bytes(best.gain_bytes), size_name(best.folio_bytes));
        let best = format!("The remedy for {what} gains the most: {gain} in {size} folios.");
        show.add(text, "", &best);
    }
    text.push('\n');
}

fn limits(text: &mut String, limits: &[MemoryLimit], show: Show) {
    let mut nearest: Vec<&MemoryLimit> = limits.iter().collect();
    nearest.sort_by_key(|limit| limit.max_bytes.saturating_sub(limit.used_bytes));
    let header = ["control group", "memory", "limit", "cold files"].map(str::to_owned);
    let rows = nearest.iter().take(show.nr_rows).map(|limit| {
        let bytes = [limit.used_bytes, limit.max_bytes, limit.cold_file_bytes];
        std::iter::once(printable(&limit.group)).chain(bytes.map(bytes_or_point)).collect()
    });
    let rows: Vec<Vec<String>> = rows.collect();
    if !rows.is_empty() {
        text.push('\n');
        text.push_str(&grid(&header, rows, 1));
    }
}

fn totals(text: &mut String, census: &Census) {
    let totals = &census.totals;
    let kinds: Vec<MemoryKind> =
        MemoryKind::ALL.into_iter().filter(|kind| totals.of(*kind).mapped_bytes() > 0).collect();
    let all = totals.all().mapped_bytes();
    let mut sizes: Vec<Size> = totals.cells().map(|(_, size, _)| size).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let once = if census.access == Access::Full { "mapped, each page once" } else { "mapped" };
    let mut header = vec![once.to_owned()];
    header.extend(kinds.iter().map(|kind| kind.name().to_owned()));
    header.extend(["all".to_owned(), "share".to_owned()]);
    let line = |name: String, pick: &dyn Fn(MemoryKind, &folios::Cell, Size) -> u64| {
        let of = |wanted: Option<MemoryKind>| -> u64 {
            let cells = totals.cells().filter(|(kind, ..)| wanted.is_none_or(|w| w == *kind));
            cells.map(|(kind, size, cell)| pick(kind, cell, size)).sum()
        };
        let mut row = vec![name];
        row.extend(kinds.iter().map(|kind| bytes_or_point(of(Some(*kind)))));
        row.extend([bytes_or_point(of(None)), share(of(None), all)]);
        row
    };
    let mut rows = Vec::new();
    for size in sizes {
        let name = size.bytes(census.geometry.page_bytes).map_or_else(
            || "folios of unknown size".to_owned(),
            |bytes| format!("{:>4} folios", size_name(bytes)),
        );
        rows.push(line(name, &|_, cell, at| if at == size { cell.mapped_bytes() } else { 0 }));
    }
    rows.push(line("all".to_owned(), &|_, cell, _| cell.mapped_bytes()));
    let contpte = size_name(census.geometry.contpte_bytes());
    let pmd = size_name(census.geometry.pmd_bytes());
    if census.access == Access::Full {
        rows.push(line("mapped unaligned".to_owned(), &|_, cell, _| cell.unaligned_bytes));
        rows.push(line("partly mapped".to_owned(), &|_, cell, _| cell.partial_bytes));
        rows.push(line(format!("in contpte blocks of {contpte}"), &|_, cell, _| {
            cell.contpte_bytes
        }));
    }
    rows.push(line(format!("by PMD entries of {pmd}"), &|_, cell, _| cell.pmd_bytes));
    text.push_str(&grid(&header, rows, 1));
    if census.nr_beyond > 0 {
        let _ = writeln!(text, "{} pages have no flags: device memory", census.nr_beyond);
    }
}

fn processes(text: &mut String, census: &Census, show: Show) {
    let classes = Classes::new(census.geometry, census.access);
    let mut header: Vec<String> = ["pid", "process", "mapped"].map(str::to_owned).to_vec();
    header.extend(classes.names());
    header.extend(classes.mapped_names());
    let processes = group::processes(census, show.sort);
    let rows = processes.iter().take(show.nr_rows).map(|process| {
        let mut row = vec![process.pid.to_string(), shortened(&printable(&process.name), NAME_MIN)];
        row.push(figures::bytes(process.tally.all().mapped_bytes()));
        row.extend(classes.shares(&process.tally));
        row.extend(classes.mapped(&process.tally));
        row
    });
    let _ = writeln!(text, "\nprocesses, shares by folio size:");
    text.push_str(&grid(&header, rows.collect(), 2));
    more(text, processes.len(), show);
}

fn mappings(text: &mut String, census: &Census, show: Show) {
    let classes = Classes::new(census.geometry, census.access);
    let is_many = census.processes.len() > 1;
    let mut header = vec!["mapped".to_owned()];
    header.extend(classes.names());
    header.extend(classes.mapped_names());
    header.extend(is_many.then(|| "procs".to_owned()));
    header.extend(["perm".to_owned(), "mapping".to_owned()]);
    let groups = group::mappings(census, show.sort);
    let rows = groups.iter().take(show.nr_rows).map(|group| {
        let mut row = vec![figures::bytes(group.tally.all().mapped_bytes())];
        row.extend(classes.shares(&group.tally));
        row.extend(classes.mapped(&group.tally));
        row.extend(is_many.then(|| group.nr_processes.to_string()));
        row.extend([group.permissions.clone(), shortened(&group.what, show.name_chars())]);
        row
    });
    let what = if is_many { "mappings of all processes by file" } else { "mappings" };
    let _ = writeln!(text, "\n{what}, shares by folio size:");
    text.push_str(&grid(&header, rows.collect(), 0));
    more(text, groups.len(), show);
}

fn more(text: &mut String, nr: usize, show: Show) {
    if nr > show.nr_rows {
        let _ = writeln!(text, "  and {} more: --top {nr}", nr - show.nr_rows);
    }
}

struct Omitted {
    refusals: [(Refusal, u64); 3],
    nr_small: usize,
    small_bytes: u64,
}

impl Omitted {
    fn omit_small(&mut self, subjects: &mut Vec<Subject>, least_bytes: u64) {
        let is_small = |subject: &Subject| subject.bytes < least_bytes;
        let small = subjects.iter().filter(|subject| is_small(subject));
        self.small_bytes = small.clone().map(|subject| subject.bytes).sum();
        self.nr_small = small.count();
        subjects.retain(|subject| !is_small(subject));
    }
}

fn split_off_omitted(mut subjects: Vec<Subject>) -> (Vec<Subject>, Omitted) {
    let mut refusals = Refusal::WITHOUT_REMEDY.map(|refusal| (refusal, 0));
    for subject in &mut subjects {
        for (refusal, bytes) in &mut refusals {
            *bytes += subject.reasons.remove(refusal).unwrap_or(0);
        }
    }
    subjects.retain(|subject| !subject.reasons.is_empty());
    (subjects, Omitted { refusals, nr_small: 0, small_bytes: 0 })
}

/// Lists by file what could be larger. Memory without a remedy gets one line per kind.
fn add_reasons(
    text: &mut String,
    census: &Census,
    subjects: &[Subject],
    omitted: &Omitted,
    show: Show,
) {
    if !subjects.is_empty() {
        text.push_str("\nwhy not larger, and how to change it:\n");
    }
    for subject in subjects.iter().take(show.nr_rows) {
        add_reason(text, census, subject, show);
    }
    more(text, subjects.len(), show);
    let rest: Vec<_> = omitted.refusals.iter().filter(|(_, bytes)| *bytes > 0).collect();
    if subjects.is_empty() && (omitted.nr_small > 0 || !rest.is_empty()) {
        text.push('\n');
    }
    if omitted.nr_small > 0 {
        let (nr, bytes) = (omitted.nr_small, figures::bytes(omitted.small_bytes));
        let files = if nr == 1 { "file or area" } else { "files and areas" };
        let _ = writeln!(text, "  and {bytes} of {nr} small {files}: --full");
    }
    for (refusal, bytes) in rest {
        let _ = writeln!(text, "  {} {}", figures::bytes(*bytes), refusal.meaning());
    }
}

fn page_tables(text: &mut String, census: &Census) {
    let bytes: u64 = census.processes.iter().map(|one| one.held.page_table_bytes).sum();
    if bytes >= PAGE_TABLES_MIN && bytes >= census.totals.all().mapped_bytes() / 100 {
        let owner = match census.processes.len() {
            1 => "the process's".to_owned(),
            nr => format!("the {nr} processes'"),
        };
        let _ = writeln!(text, "{owner} page tables take {} (VmPTE)", figures::bytes(bytes));
    }
}

fn add_reason(text: &mut String, census: &Census, subject: &Subject, show: Show) {
    let bytes = figures::bytes(subject.bytes);
    let target = size_name(subject.target_bytes);
    let processes = match (subject.nr_processes, census.processes.len()) {
        (_, 1) | (1, _) => String::new(),
        (nr, _) => format!(", in {nr} processes"),
    };
    let _ = writeln!(text, "{bytes:>11} not in {target}{processes}: {}", subject.what);
    let mut reasons: Vec<_> = subject.reasons.iter().collect();
    reasons.sort_by_key(|(_, bytes)| std::cmp::Reverse(**bytes));
    for (refusal, bytes) in reasons {
        let part = if *bytes == subject.bytes {
            String::new()
        } else {
            format!(" ({})", figures::bytes(*bytes))
        };
        show.add(text, &" ".repeat(13), &format!("{}{part}", refusal.meaning()));
    }
    for remedy in subject.remedies.iter().take(REMEDIES_MAX) {
        let first = format!("{:>16}", "-> ");
        let remedy_text = remedy.to_string();
        // Commands are copied, so they stay on one line.
        let layout = if remedy.is_some() { Show { prose: None, ..show } } else { show };
        layout.add(text, &first, &remedy_text);
        for term in terms(remedy) {
            show.add(text, &" ".repeat(16), &term);
        }
    }
    let nr = subject.remedies.len();
    if nr > REMEDIES_MAX {
        let _ = writeln!(text, "{:>16}and {} more like these: --json", "", nr - REMEDIES_MAX);
    }
}

pub(super) fn terms(remedy: &Remedy) -> Vec<String> {
    if !remedy.is_some() {
        return Vec::new();
    }
    let (gain, size) = (figures::bytes(remedy.gain_bytes), size_name(remedy.folio_bytes));
    let mut first = vec![format!("gains {gain} in {size} folios")];
    first.extend(takes(remedy));
    let named = |name, text: &str| (!text.is_empty()).then(|| format!("{name}: {text}"));
    let more = [named("cost", &remedy.cost), named("undo", &remedy.undo)];
    [first.join("; ")].into_iter().chain(more.into_iter().flatten()).collect()
}

fn files(text: &mut String, cached: &CachedFiles, show: Show) {
    let geometry = Geometry::running();
    let classes = Classes::new(geometry, Access::Full);
    let mut files: Vec<_> = cached.files.iter().collect();
    files.sort_by_key(|file| std::cmp::Reverse(file.tally.all().mapped_bytes()));
    let all = summary::sum(&cached.files);
    let mut header: Vec<String> = ["cached", "of"].map(str::to_owned).to_vec();
    header.extend(classes.names());
    header.push("file".to_owned());
    let mut rows: Vec<Vec<String>> = Vec::new();
    for file in files.iter().take(show.nr_rows) {
        let bytes = file.tally.all().mapped_bytes();
        let mut row = vec![figures::bytes(bytes), share(bytes, file.len_bytes.max(bytes))];
        row.extend(classes.shares(&file.tally));
        row.push(shortened(&printable(&plain(&file.path)), show.name_chars()));
        rows.push(row);
    }
    if files.len() > 1 {
        let mut row = vec![figures::bytes(all.all().mapped_bytes()), String::new()];
        row.extend(classes.shares(&all));
        row.push(format!("all {} files", files.len()));
        rows.push(row);
    }
    if !files.is_empty() {
        text.push_str(&sentence::plain(&headline::files(&Sizes::of(&all, geometry.page_bytes))));
        text.push_str("\n\n");
    }
    text.push_str("page cache of files, mapped or not, shares by folio size:\n");
    text.push_str(&grid(&header, rows, 0));
    more(text, files.len(), show);
    if cached.nr_empty > 0 {
        let files = if cached.nr_empty == 1 { "file" } else { "files" };
        let _ = writeln!(text, "  and {} {files} without cached pages", cached.nr_empty);
    }
}

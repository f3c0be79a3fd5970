//! Sentences about gaps: everything without a rule or a recording ([`largefolio_sim::gaps`]).

use std::collections::BTreeMap;

use largefolio_sim::gaps::{Gap, GapKind};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::replay::Outcome;

use crate::figures;

/// Returns a sentence per gap of the rows. A gap of several rows is named once, with the rows'
/// largest share of `nr_references`; one that not all rows have names their kernels.
pub(crate) fn sentences(rows: &[Outcome], nr_references: u64) -> Vec<String> {
    let mut by_gap: BTreeMap<&Gap, Vec<&str>> = BTreeMap::new();
    for row in rows {
        // A warning of the trace has a note of its own.
        for gap in row.gaps.iter().filter(|gap| !gap.instead.is_empty()) {
            let kernels = by_gap.entry(gap).or_default();
            if !kernels.contains(&row.kernel.as_str()) {
                kernels.push(&row.kernel);
            }
        }
    }
    let nr_kernels = rows.iter().map(|row| &row.kernel).collect::<std::collections::BTreeSet<_>>();
    let is_of_all = |kernels: &[&str]| kernels.len() == nr_kernels.len();
    let text = |(gap, kernels): (&Gap, Vec<&str>)| {
        let text = sentence(gap, nr_references);
        let names_kernel = gap.kind == GapKind::Kernel || is_of_all(&kernels);
        if names_kernel { text } else { format!("{}: {text}", kernels.join(", ")) }
    };
    by_gap.into_iter().map(text).collect()
}

/// Returns the sentences about a kernel's own gaps.
pub(crate) fn of_kernel(kernel: &Kernel) -> impl Iterator<Item = String> {
    kernel.gaps.iter().map(|gap| sentence(gap, 0))
}

/// Returns a gap as one text, for a column.
pub(crate) fn short(gap: &Gap) -> String {
    format!("{}: {}", gap.kind.name(), gap.what)
}

fn sentence(gap: &Gap, nr_references: u64) -> String {
    let Gap { kind, what, instead, .. } = gap;
    match kind {
        GapKind::Kernel if what.starts_with("Linux ") => format!("not checked: {what}; {instead}."),
        GapKind::Kernel => {
            format!(
                "not checked: no recording of a real kernel checks the rules of {what}: {instead}."
            )
        }
        GapKind::Setting => format!("not modelled: {what} ({instead})."),
        GapKind::Unread => format!("not read on this system: {what}; {instead} is assumed."),
        GapKind::Filesystem => filesystem(gap, nr_references),
        GapKind::Call => {
            let nr = figures::count(gap.nr_calls.unwrap_or_default());
            format!("not modelled: {what} ({instead}), called {nr} times.")
        }
        GapKind::Recording => format!("not in the trace: {what}; {instead}."),
    }
}

fn filesystem(gap: &Gap, nr_references: u64) -> String {
    let (references, nr_calls) =
        (gap.nr_references.unwrap_or_default(), gap.nr_calls.unwrap_or_default());
    let share = figures::percent(references, nr_references);
    let calls = match nr_calls {
        0 => String::new(),
        nr => format!(" and {} calls", figures::count(nr)),
    };
    let Gap { what, instead, .. } = gap;
    let on = if what.starts_with("files ") { what.clone() } else { format!("files on {what}") };
    format!(
        "not judged: {on}, with {share} of the references{calls}: no recording shows its \
             behaviour; {instead}."
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(kernel: &str, gaps: Vec<Gap>) -> Outcome {
        Outcome { kernel: kernel.to_owned(), gaps, ..Outcome::default() }
    }

    #[test]
    fn every_kind_is_a_sentence_and_a_common_gap_is_named_once() {
        let of_all = [
            Gap::new(GapKind::Setting, "vm.swappiness=10", "as if 60"),
            Gap::new(GapKind::Unread, "fault_around_bytes", "64K"),
            Gap::new(GapKind::Recording, "msync and fsync", "record again"),
        ];
        let squashfs = Gap {
            nr_references: Some(12),
            nr_calls: Some(3),
            ..Gap::new(GapKind::Filesystem, "squashfs", "their page cache has base pages only")
        };
        let call = Gap { nr_calls: Some(2), ..Gap::new(GapKind::Call, "unlink", "ignored") };
        let both = || of_all.iter().cloned().chain([squashfs.clone()]);
        let first = both().chain([call]).collect();
        let second = both().chain([Gap::new(GapKind::Kernel, "6.6", "guessed")]).collect();
        let texts = sentences(&[row("7.2", first), row("6.6", second)], 100);
        assert_eq!(
            texts,
            [
                "not checked: no recording of a real kernel checks the rules of 6.6: guessed.",
                "not modelled: vm.swappiness=10 (as if 60).",
                "not read on this system: fault_around_bytes; 64K is assumed.",
                "not judged: files on squashfs, with 12.0% of the references and 3 calls: no \
                 recording shows its behaviour; their page cache has base pages only.",
                "7.2: not modelled: unlink (ignored), called 2 times.",
                "not in the trace: msync and fsync; record again.",
            ]
        );
    }
}

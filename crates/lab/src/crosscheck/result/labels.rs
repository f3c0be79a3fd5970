//! Outcomes and aspects in words, the same in CSV, text and page.

use crate::crosscheck::Aspect;

use super::rows::CrosscheckOutcome as Outcome;

pub(super) const fn outcome(outcome: Outcome) -> &'static str {
    match outcome {
        Outcome::Equal => "equal",
        Outcome::Different => "different",
        Outcome::Skipped => "skipped",
        Outcome::Failed => "failed",
    }
}

pub(super) const fn label_of(aspect: Aspect) -> &'static str {
    match aspect {
        Aspect::Insertions => "insertions",
        Aspect::Removals => "folios dropped or truncated",
        Aspect::Evictions => "evicted folios",
        Aspect::Group => "counts of the group",
        Aspect::Reserved => "reservations",
        Aspect::Windows => "windows",
        Aspect::Entries => "readahead calls",
        Aspect::ColdStates => "states at cold faults",
        Aspect::HandlerHits => "hits in the handler",
        Aspect::Around => "runs of fault-around",
        Aspect::Handler => "passes of the handler",
        Aspect::Faults => "touches that faulted",
        Aspect::Points => "pages at marked points",
        Aspect::Mapped => "mapped pages",
        Aspect::Folios => "runs of large folios",
        Aspect::PmdMapped => "PMD totals",
        Aspect::MajorFaults => "major faults",
        Aspect::Answer => "answers",
        Aspect::NrFaults => "faults of processes",
        Aspect::Presence => "pages of processes",
        Aspect::Folio => "folios of processes",
        Aspect::Exclusive => "exclusive bits",
        Aspect::Pmd => "PMD entries",
        Aspect::Node => "nodes",
        Aspect::Frame => "new frames",
        Aspect::Content => "contents",
        Aspect::Cached => "pages cached",
        Aspect::Swap => "swap space",
        Aspect::Zswap => "zswap",
        Aspect::Scan => "blocks that khugepaged scanned",
        Aspect::Sharing => "shared pages",
        Aspect::Mapcount => "map counts",
        Aspect::Pool => "numbers of the pool",
        Aspect::Smaps => "smaps",
        Aspect::Machine => "mapped pages on the machine",
        Aspect::Clearing => "steps of clearing",
        Aspect::Decisions => "decisions of a policy",
        Aspect::Invariant => "invariants",
    }
}

//! Rules for readahead and for read and write calls (docs/behaviour A).
//!
//! Owns the values; `readahead/`, `io/` and `mapping/` follow them.

use serde::{Deserialize, Serialize};

/// Differences between kernels in section A.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReadaheadRules {
    /// Sync and async entry (`readahead/{sync,marker}.rs`).
    pub entry: Entry,
    /// Source of a window's order (`readahead/issue.rs`).
    pub ramp: Ramp,
    /// Order-1 file folios (A.5.5).
    pub order1: OrderOne,
    /// Windows of fewer pages are read in base pages (A.5.1); 0 = no minimum.
    pub large_window_min_pages: u64,
    /// Marker in a window that reaches the file's last page (A.5.2, A.6.1).
    pub eof_marker: EofMarker,
    /// Pages to read in base pages after a failed insertion (A.5.8).
    pub remainder: Remainder,
    /// Result of a backward search that finds no hole (A.4.6).
    pub full_search: FullSearch,
    /// Result of a forward search that finds no hole.
    pub forward_search: FullSearch,
    /// Folios that a write call allocates (A.7.1).
    pub writes: WriteFolios,
    /// When a read call records its position (A.3.4).
    pub position: ReadPosition,
    /// When a write call's absent source pages fault (A.7.5).
    #[serde(default)]
    pub write_source: WriteSource,
    /// Whether a write beyond a file's end adds its own folio first on ext4 (A.7.7).
    #[serde(default)]
    pub beyond_end: BeyondEnd,
}

/// A.7.7: a write that begins beyond a file's end, on ext4 (`io/write.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum BeyondEnd {
    /// \[..7.0\] its first folio comes before the page at the old end.
    #[default]
    FolioFirst,
    /// \[7.1+\] the page at the old end comes first, as on other filesystems.
    EndFirst,
}

/// A.7.5: absent pages of the memory that a write call copies (`io/copy.rs`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteSource {
    /// \[..6.14\] they fault before each copy.
    #[default]
    FaultedFirst,
    /// \[6.15+\] they end the copy early; the call faults them in and tries a smaller one.
    Short,
}

/// A.3.3: one function for both entries, or two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Entry {
    /// \[6.1\] one function: `start + size` is also a hit, and a self-triggering window is merged.
    Unified,
    /// \[6.12+\] two functions.
    Split,
}

/// A.4.4 and A.5.3: how folio orders grow from window to window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ramp {
    /// \[..6.16\] the marked folio's order + 2, at most log2 of the window. 6.1 does not limit the
    /// largest order by the window. The result is the same: no folio extends beyond the window.
    Inherited,
    /// \[6.17+\] the readahead state keeps the order; the window ends on a natural boundary.
    Remembered,
}

/// A.5.5: whether a file folio can have order 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum OrderOne {
    /// \[6.1\] order 1 becomes 0.
    Never,
    /// \[6.12+\] legal.
    Legal,
}

/// A.5.2: the marker at the end of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EofMarker {
    /// Placed as in any window.
    Placed,
    /// \[7.2\] omitted if the window reaches the last page.
    Omitted,
}

/// A.5.8: the base-order remainder of a window that could not be filled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Remainder {
    /// \[6.12\] the whole window's length again, from the failed index.
    WholeSize,
    /// \[7.0+\] the rest of the window.
    Rest,
}

/// A.7.1: folios of a write call on a filesystem with large folios.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WriteFolios {
    /// \[6.1\] the smallest.
    Smallest,
    /// \[6.12+\] as large as the write.
    Large,
}

/// A.3.4: when a read call records its position, which decides whether the next miss is sequential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ReadPosition {
    /// \[6.1\] after each folio.
    ByFolio,
    /// \[6.12+\] when it returns.
    AtEnd,
}

/// A.4.6: result of a hole search if every page is cached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FullSearch {
    /// The last page examined: \[6.1\], backward up to 7.1.
    LastPage,
    /// Beyond the search: forward from 6.12, backward in \[7.2\].
    Beyond,
}

impl ReadaheadRules {
    /// The newest kernels' rules, unless a kernel file overrides them.
    pub(super) const fn stock() -> Self {
        Self {
            entry: Entry::Split,
            ramp: Ramp::Remembered,
            order1: OrderOne::Legal,
            large_window_min_pages: 0,
            eof_marker: EofMarker::Placed,
            remainder: Remainder::Rest,
            full_search: FullSearch::LastPage,
            forward_search: FullSearch::Beyond,
            writes: WriteFolios::Large,
            position: ReadPosition::AtEnd,
            write_source: WriteSource::Short,
            beyond_end: BeyondEnd::EndFirst,
        }
    }
}

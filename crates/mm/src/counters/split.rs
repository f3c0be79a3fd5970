//! Refusals to split a folio.

/// Why a folio was not split (G.4.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SplitRefusal {
    /// The folio's order is already this small.
    #[error("the folio is not larger than the requested order")]
    NotLarger,
    /// An anonymous folio cannot have order 1: it lacks room for the deferred-split list.
    #[error("an anonymous folio cannot have order 1")]
    AnonOrderOne,
    /// The file's minimum order is larger.
    #[error("the file cannot have folios of such a small order")]
    BelowMinimum,
    /// The file's filesystem does not support large folios.
    #[error("the file cannot have large folios")]
    NoLargeFolios,
    /// A reference beyond mappings and page cache exists: a pin.
    #[error("the folio is pinned")]
    ExtraReference,
    /// The folio left the page cache.
    #[error("the folio no longer belongs to a file")]
    Truncated,
}

impl SplitRefusal {
    /// Every refusal, in the order of [`super::Counters::split_refused`].
    pub const ALL: [Self; 6] = [
        Self::NotLarger,
        Self::AnonOrderOne,
        Self::BelowMinimum,
        Self::NoLargeFolios,
        Self::ExtraReference,
        Self::Truncated,
    ];

    /// Name in JSON and tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NotLarger => "not_larger",
            Self::AnonOrderOne => "anon_order_one",
            Self::BelowMinimum => "below_minimum",
            Self::NoLargeFolios => "no_large_folios",
            Self::ExtraReference => "extra_reference",
            Self::Truncated => "truncated",
        }
    }
}

//! The share of memory in large folios, in a sentence.

use crate::figures::{self, percent, size};
use largefolio_linux::census::Access;

use super::summary::Sizes;
use crate::sentence::{Piece, figure, text};

/// The smallest large folio: most TLBs map it with one entry, and 4K pages with one contpte block.
pub(super) const LARGE_BYTES: u64 = 64 << 10;

pub(super) fn processes(total: &Sizes, access: Access, pmd_bytes: u64) -> Vec<Piece> {
    let by_pmd = figure(share(total.pmd_bytes, total.mapped_bytes));
    let pmd = size(pmd_bytes);
    match access {
        Access::Full => vec![
            text("Folios of 64K and more back "),
            figure(share(total.of_at_least(LARGE_BYTES), total.mapped_bytes)),
            text(" of the mapped memory; "),
            by_pmd,
            text(format!(" is mapped by PMD entries of {pmd}.")),
        ],
        Access::Smaps => vec![
            text(format!("PMD entries of {pmd} map ")),
            by_pmd,
            text(" of the mapped memory; reading other sizes needs root."),
        ],
    }
}

pub(super) fn files(cached: &Sizes) -> Vec<Piece> {
    vec![
        text("Folios of 64K and more hold "),
        figure(share(cached.of_at_least(LARGE_BYTES), cached.mapped_bytes)),
        text(format!(" of the {} that are cached.", figures::bytes(cached.mapped_bytes))),
    ]
}

fn share(part: u64, whole: u64) -> String {
    match percent(part, whole) {
        share if share.is_empty() => "none".to_owned(),
        share => share,
    }
}

//! Memory pressure: reclaim and compaction (docs/behaviour G.5, D.5, I.6 .. I.11).
//!
//! ```text
//!   fault, read ---> free < low? --> kswapd: scan until free >= high
//!                    free < min? --> direct: scan until there is enough (allocstall)
//!                    no block of the order? --> compact, if effort and index allow
//!
//!   scan:  active list --not used--> inactive list --not used--> evict
//!   evict: file       unmap, write back if dirty, leave a shadow
//!          anonymous  partially mapped: split; else contiguous slots: swap out; none: split
//!          lazy-free  discard
//! ```
//!
//! Reading order: `charge` `scan` `chosen` `lists` `references` `generations` `examine` `evict` `zswap` `effort` [`compact`] `migrate`. The
//! state is in [`crate::core`], the lists are in [`crate::folio::lru`].
//!
//! A page counts as used if a page walk (a replayed TLB miss) reached it since reclaim last
//! checked. As on hardware, TLB hits are invisible. Fault-around alone does not count.
//!
//! Differs:
//! - Background reclaim takes no time: it finishes before the allocation that woke it continues.
//! - Memory for a whole readahead window is allocated before the read, not folio by folio.
//! - All entries of a file page share one accessed bit: two processes that use it count once.
//! - Writeback takes no time: a dirty folio is written when reclaim chooses it, and is clean
//!   afterwards.
//! - Page tables and the kernel's own memory use no pages, and there is only one zone.
//!
//! Invariants:
//! - I1: reclaim never evicts a folio that a caller holds: it runs before a fault looks anything
//!   up, or while the folio found has an extra reference.

mod charge;
mod chosen;
pub mod compact;
mod effort;
mod evict;
mod examine;
mod generations;
mod lists;
mod references;
mod scan;
mod victim;
mod zswap;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EvictOutcome {
    Freed,
    Keep,
    Activate,
    Split,
}

enum Victim {
    Own,
    Evict,
    Done(EvictOutcome),
}

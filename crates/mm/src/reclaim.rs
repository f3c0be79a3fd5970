//! Memory pressure: which memory is given up when it runs out (docs/behaviour G.5, D.5, I.6 ..
//! I.11).
//!
//! ```text
//!   fault, read ---> free < low? --> kswapd: scan until free >= high
//!                    free < min? --> direct: scan until there is enough (allocstall)
//!                    no block of the order? --> compact, where effort and index allow
//!
//!   scan:  active list --not used--> inactive list --not used--> evict
//!   evict: file       unmap, write back if dirty, leave a shadow
//!          anonymous  partially mapped: split; else contiguous slots: swap out; none: split
//!          lazy-free  throw away
//! ```
//!
//! Owns who is evicted and when. Does not own unmapping ([`crate::unmap`], the reverse map of
//! [`crate::split`]) nor free blocks ([`crate::buddy`]). Reading order: `charge` `scan`
//! `lists` `generations` `evict` `effort` [`compact`] `migrate`. What it keeps stands in [`crate::core`]: `pressure` `watermarks` `swap`
//! `workingset`; the lists in [`crate::folio::lru`].
//!
//! A page counts as used when a page walk reached it - a TLB miss of the machine replayed - since
//! reclaim last looked; a hit in the TLB does not show, as on hardware. Fault-around alone does not
//! count.
//!
//! Differs:
//! - Background reclaim takes no time: it is done when the allocation that woke it goes on.
//! - Room for a readahead window is made before it is read, not folio by folio.
//! - The accessed bits of all entries of a page are one: two processes that use it count once.
//! - Writeback takes no time: a dirty folio is written when reclaim wants it, and is clean then.
//! - Page tables and the kernel's own memory take no pages; there is one zone.
//!
//! Invariants:
//! - I1: nothing is evicted that a caller holds: reclaim runs before a fault looks anything up, or
//!   while what it found has a reference more.

mod advised;
mod charge;
pub mod compact;
mod effort;
mod evict;
mod fate;
mod generations;
mod lists;
mod migrate;
mod scan;
mod victim;

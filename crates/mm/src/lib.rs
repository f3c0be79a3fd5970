#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "ids and offsets are bounded where they are made: 32-bit ids, 6-bit slots"
)]
//! The memory manager of largefolio: page cache, readahead, faults and page tables of a modern
//! kernel as a deterministic state machine, without an operating system and without unsafe code.
//!
//! Reading order: [`units`] [`rules`] [`ram`] [`buddy`] `frames` [`folio`] [`rmap`] `mapped`
//! [`mapping`] [`observed`] [`page_cache`] [`readahead`] [`pgtable`] [`vma`] [`placement`]
//! [`fault`] [`map`] [`unmap`] [`fork`] [`split`] [`reclaim`] `lazyfree` `writeback` [`collapse`]
//! [`writers`] [`pin`] [`io`] [`memory`] `access` `annotate` [`view`] [`validate`].
//!
//! # Words
//!
//! | word | meaning |
//! |---|---|
//! | base page | the kernel's page: 4, 16 or 64 KiB |
//! | folio | `2^order` naturally aligned base pages managed as one |
//! | order | log2 of a folio's base pages |
//! | pfn | number of a base page of physical memory |
//! | index, pos | page offset and byte offset in a file |
//! | mapping | the page cache of one file |
//! | vma | an area of virtual memory with one backing and one protection |
//! | window | what one readahead reads: start, size, `async_size` |
//! | marker | flag on the folio whose reach starts the next window |
//! | fault-around | mapping what is cached around a fault |
//! | contpte | a folded block of page-table entries that takes one TLB entry (arm64) |
//! | exclusive | an anonymous page that no other process sees: a store needs no copy |
//! | partially mapped | a large folio with pages that nobody maps: queued for a deferred split |
//! | PMD order | order of the folio that one PMD entry maps |

mod access;
mod annotate;
pub mod buddy;
pub mod collapse;
pub mod counters;
pub mod fault;
pub mod folio;
pub mod fork;
mod frames;
pub mod in_flight;
#[cfg(test)]
mod interleave;
pub mod io;
mod lazyfree;
pub mod map;
mod mapped;
pub mod mapping;
pub mod memory;
pub mod observed;
pub mod page_cache;
pub mod pgtable;
pub mod pin;
pub mod placement;
pub mod ram;
pub mod readahead;
pub mod reclaim;
pub mod rmap;
pub mod rules;
pub mod space;
pub mod split;
pub mod units;
pub mod unmap;
pub mod validate;
pub mod view;
pub mod vma;
mod writeback;
pub mod writers;

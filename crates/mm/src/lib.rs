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

// The ground: words, and what stands alone.
pub mod buddy;
pub mod counters;
pub mod pgtable;
pub mod placement;
pub mod ram;
pub mod rmap;
pub mod rules;
pub mod units;
pub mod vma;
// What is kept: folios, files, and all of it together.
pub mod core;
pub mod folio;
pub mod mapping;
// What is read before it is asked for, and the whole machine.
pub mod memory;
pub mod readahead;
// What is done: each file extends `Memory` by one operation.
mod access;
pub mod collapse;
pub mod fault;
pub mod fork;
pub mod io;
pub mod map;
pub mod pin;
pub mod reclaim;
pub mod split;
pub mod unmap;
pub mod writers;
// What is seen from outside.
pub mod validate;
pub mod view;

#[cfg(test)]
mod interleave;

#![forbid(unsafe_code)]
#![warn(missing_docs, clippy::missing_errors_doc)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "ids and offsets are bounded where they are made: 32-bit ids, 6-bit slots"
)]
//! The memory manager of largefolio: page cache, readahead, faults and page tables of a modern
//! kernel as a deterministic state machine, without an operating system and without unsafe code.
//!
//! # Example
//!
//! Maps a file, faults it from end to end, and prints its large folios:
//!
//! ```
//! use largefolio_mm::fault::Access;
//! use largefolio_mm::map::Map;
//! use largefolio_mm::memory::{Config, Memory};
//! use largefolio_mm::rules::{Arch, Rules};
//! use largefolio_mm::units::Vaddr;
//! use largefolio_mm::vma::Prot;
//!
//! let rules = Rules::example(); // 6.18 with 4 KiB pages; other kernels are other values
//! let page_bytes = rules.page.bytes();
//! let mut memory = Memory::new(rules, &Config::new(Arch::X86_64))?;
//! let file = memory.add_file(1 << 20, "xfs");
//! let (open, process) = (memory.open(file), memory.new_space());
//! let start = memory.mmap(process, Map::file(open, 0, 1 << 20, Prot::READ))?;
//! for page in 0..256 {
//!     memory.touch(process, Vaddr(start.0 + page * page_bytes), Access::Read)?;
//! }
//! for folio in memory.folios(file).filter(|folio| folio.order.get() > 0) {
//!     println!("pages {}..{} are one folio", folio.index, folio.end());
//! }
//! # let large = memory.folios(file).filter(|folio| folio.order.get() > 0);
//! # assert!(large.count() > 5, "no large folios");
//! # memory.validate()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Layers
//!
//! A file imports only from rows above its own.
//!
//! | layer | modules | owns |
//! |---|---|---|
//! | units | [`units`] | numbers with a unit, ids of files, processes and slots |
//! | ground | [`buddy`] [`ram`] [`pgtable`] [`vma`] [`rmap`] [`placement`] | independent parts: free memory, bytes, one page table, one process's areas, one folio's map counts |
//! | | [`policy`] | decision points, a policy's input and answers |
//! | | [`counters`] | counts of events and refusals |
//! | | [`rules`] | the behaviour of one kernel version |
//! | state | [`folio`] | folios, their frames, the LRU lists, the deferred-split queue |
//! | | [`mapping`] | one file: its cached folios, its filesystem, its writers |
//! | | [`core`] | all state together, including memory pressure, khugepaged and reads in flight |
//! | machine | [`readahead`] | reads before they are requested |
//! | | [`memory`] | the whole machine; each operation below extends [`memory::Memory`] |
//! | operations | [`fault`] [`unmap`] [`fork`] [`split`] [`reclaim`] [`io`] [`writers`] | actions of a process or the kernel |
//! | | [`map`] [`collapse`] [`hugetlb`] [`pin`] `access` | actions built on those |
//! | views | [`view`] [`validate`] | the view from outside, such as pagemap; every invariant |
//!
//! # Glossary
//!
//! | term | meaning |
//! |---|---|
//! | base page | the kernel's page: 4, 16 or 64 KiB |
//! | folio | `2^order` naturally aligned base pages managed as one |
//! | order | log2 of a folio's base pages |
//! | pfn | number of a base page of physical memory |
//! | index, pos | page offset and byte offset in a file |
//! | mapping | the page cache of one file |
//! | vma | an area of virtual memory with one backing and one protection |
//! | window | one readahead: start, size, `async_size` |
//! | node | NUMA: the memory near some CPUs |
//! | marker | flag on the folio that starts the next window when a reader reaches it |
//! | fault-around | mapping cached pages around a fault |
//! | contpte | a folded block of page-table entries that takes one TLB entry (arm64) |
//! | exclusive | an anonymous page that no other process sees: a store needs no copy |
//! | partially mapped | a large folio with unmapped pages: queued for a deferred split |
//! | PMD order | order of the folio that one PMD entry maps |

// Units, and modules that depend on little else.
pub mod buddy;
pub mod counters;
pub mod mempolicy;
pub mod nodes;
pub mod pgtable;
pub mod placement;
pub mod policy;
pub mod ram;
pub mod rmap;
pub mod rules;
pub mod units;
pub mod vma;
// Folios, files, and all state together.
pub mod core;
pub mod folio;
pub mod mapping;
// Readahead, and the whole machine.
pub mod memory;
pub mod readahead;
mod route;
// Each file extends `Memory` by one operation.
mod access;
pub mod collapse;
pub mod fault;
pub mod fork;
pub mod hugetlb;
pub mod io;
pub mod map;
pub mod numa;
pub mod pin;
pub mod reclaim;
mod shmem;
pub mod split;
pub mod unmap;
pub mod writers;
// The view from outside.
pub mod validate;
pub mod view;

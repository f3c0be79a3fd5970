//! The TLB of one CPU: which references need a page-table walk.
//!
//! Owns a TLB's structures, their replacement and the range of an entry; the page-walk caches,
//! which determine which entries a walk reads; and the walker, which determines how long a walk
//! waits. Does not own the page tables (a [`Walk`] describes them), a walk's cost, or any machine's
//! numbers ([`crate::machine`]).
//!
//! ```text
//!    instruction fetch             load, store
//!           │                           │
//!      ┌────▼────┐                 ┌────▼────┐     per side: a table of hints in front, which
//!      │  hints  │                 │  hints  │     only says where an entry was last seen
//!      └────┬────┘                 └────┬────┘
//!   ┌───────▼────────┐         ┌────────▼───────┐
//!   │ L1 instruction │         │    L1 data     │  a level = one or more structures, each
//!   │ 4K  128, 8-way │         │ 4K   64, 4-way │  nr_sets x ways; a structure lists the
//!   │ 2M    8, full  │         │ 2M   32, 4-way │  sizes of the entries it may hold
//!   └───────┬────────┘         │ 1G    4, full  │
//!           │                  └────────┬───────┘       one structure:  set = block mod nr_sets
//!           │  miss                     │  miss           way 0   way 1   way 2
//!           └────────────┬──────────────┘          set 0 │ vpn.. │ vpn.. │       │
//!              ┌─────────▼─────────┐               set 1 │       │       │       │
//!              │ L2: unified, or   │               set 2 │ vpn.. │       │       │  any number
//!              │ one per side, or  │               block = vpn >> order of the entry
//!              │ none              │               the least recently used way of a set goes
//!              └─────────┬─────────┘
//!                        │  miss: the caller walks the page table, then `fill_walk`
//! ```
//!
//! If the TLB remembers a row's entry by recorded page, the row is served before any of this; see
//! `front` and `hints`.
//!
//! Invariants of a level:
//! - I1: no two entries cover the same page (a real TLB treats that as a conflict). A new entry
//!   replaces the entries it overlaps.
//! - I2: an entry is in the set that its block selects, in a structure that holds its order.
//! - I3: the index finds exactly the resident entries.
//! - I4: an entry is naturally aligned and not larger than a PMD entry.
//!
//! Rules (docs/behaviour C; if the manuals are silent, an assumption that `docs/design` repeats):
//! - Replacement is true LRU within a set. Real structures often use pseudo-LRU.
//! - A level-2 hit fills level 1; a walk fills both. Neither level includes the other: an eviction
//!   from one does not affect the other.
//! - Level 1 stores the largest size it can hold within the translation, the piece around the
//!   referenced page (Cortex-A76 TRM A5.2: the TLB breaks larger sizes down for level 1). Level 2
//!   does the same for pages in a contpte block, but never for a PMD entry: if it has no entries of
//!   that size, it does not hold the PMD entry.
//! - In a virtual machine, an entry covers the smaller of its page and the host's page. Level 2 then
//!   holds pieces of a PMD entry. (Measured on Zen 4 and Zen 5 with a host of 4K pages: working sets
//!   in 2M folios miss where those in 4K folios do.)
//! - Page-walk caches, if the machine has them, count the entries that walks read; see `walk_cache`.
//!   Where walks find these entries, and which walks overlap: see `walker`.
//! - A write that finds a read-only entry is a *permission miss*: the kernel changes the PTE and
//!   flushes it, so every level drops the page's entries. It is counted separately.
//!
//! ```
//! use largefolio_mm::units::{Order, PageSize, Pfn, Vpn};
//! use largefolio_sim::machine::Machine;
//! use largefolio_sim::tlb::{Access, LeafKind, Lookup, Side, Tlb, Walk};
//!
//! let machine = Machine::named("altra")?;
//! let mut tlb = Tlb::new(&machine.tlb, PageSize::K4);
//! assert_eq!(tlb.lookup(Side::Data, Vpn(0x25), Access::Read), Lookup::Miss);
//! // The walk finds a folded contpte block: 16 pages in one entry.
//! tlb.fill_walk(Side::Data, &Walk {
//!     leaf: LeafKind::Contpte,
//!     order: Order::new(4),
//!     run: Order::new(4),
//!     ..Walk::page(Vpn(0x25), Pfn(0x95), false)
//! });
//! assert_eq!(tlb.lookup_run(Side::Data, Vpn(0x2f), Access::Read, 9), Lookup::L1);
//! assert_eq!(tlb.lookup(Side::Data, Vpn(0x2f), Access::Write), Lookup::Permission);
//! assert_eq!(tlb.counters().data.references, 11);
//! assert_eq!((tlb.counters().l2_misses(), tlb.counters().permission_misses()), (1, 1));
//! # Ok::<(), largefolio_sim::machine::MachineError>(())
//! ```

mod access;
mod coalesce;
mod config;
mod counters;
pub mod curve;
mod entry;
mod front;
mod hierarchy;
mod hints;
mod index;
mod level;
mod resident;
mod sizes;
mod spaces;
mod structure;
mod walk_cache;
mod walker;
mod ways;

#[cfg(test)]
mod tests;

pub use access::{Access, Side};
pub use coalesce::{Aggregation, Coalescing, CoalescingMode, LeafKind, Translation, Walk};
pub use config::{
    AddressSpaces, CoalescingConfig, ConfigError, MAX_ENTRIES, MAX_STRUCTURES, StructureConfig,
    TlbConfig,
};
pub use counters::{Counters, SideCounters};
pub use entry::Entry;
pub use front::{Rows, Served};
pub use hierarchy::{Lookup, Tlb};
pub use level::Violation;
pub use sizes::{CacheSize, EntrySize, EntrySizes};
pub use spaces::NR_SPACES_MAX;
pub use walk_cache::{MAX_WALK_ENTRIES, Steps, TlbLevel, WalkCacheConfig, WalkCaches, nr_levels};
pub use walker::{KindCounters, Lines, WalkCounters, WalkerConfig};
pub use ways::Ways;

//! The TLB of one CPU: which references need a page-table walk.
//!
//! Owns the structures of a TLB, their replacement and what one entry covers, the page-walk caches,
//! which say what a walk reads, and the walker, which says what a walk waits for. Does not own the page tables (a [`Walk`] describes what
//! they say), the cost of a walk, or the numbers of any machine ([`crate::machine`]).
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
//! Rows of a trace are served in front of all this where their entries are remembered by recorded page;
//! see `front` and `hints`.
//!
//! Invariants of a level:
//! - I1: no two of its entries cover the same page (a real TLB treats that as a conflict). An entry
//!   that is filled replaces what it overlaps.
//! - I2: an entry lies in the set its block selects, in a structure that holds its order.
//! - I3: the index finds exactly the resident entries.
//! - I4: an entry is naturally aligned and not larger than a PMD entry.
//!
//! Rules (docs/behaviour C; where the manuals say nothing, an assumption that `docs/design`
//! repeats):
//! - Replacement is true LRU within a set. Real structures often use pseudo-LRU.
//! - A level-2 hit fills level 1; a walk fills both. Neither level includes the other: evicting an
//!   entry of one leaves the other alone.
//! - Level 1 stores the largest size it holds that fits into the translation, the piece around the
//!   referenced page (Cortex-A76 TRM A5.2: the TLB breaks larger sizes down for level 1). Level 2
//!   does so for pages of a contpte block, but never for a PMD entry: a level 2 without that size
//!   does not hold it at all.
//! - Page-walk caches, where the machine has them, count what walks read; see `walk_cache`. Where
//!   that is found, and which walks overlap: see `walker`.
//! - A write that finds a read-only entry is a *permission miss*: every entry of the page goes, in
//!   all levels, because the kernel changes the PTE and flushes it. It is counted apart.
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
pub use walk_cache::{MAX_WALK_ENTRIES, Steps, TableLevel, WalkCacheConfig, WalkCaches, nr_levels};
pub use walker::{KindCounters, Lines, WalkCounters, WalkerConfig};
pub use ways::Ways;

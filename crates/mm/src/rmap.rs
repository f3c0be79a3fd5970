//! Reverse map: how often a folio is mapped, and by which processes (docs/behaviour F).
//!
//! Owns a folio's counters. Does not own the folio, its reference count or the machine's
//! statistics: each operation returns their [`Change`], which the caller adds up.
//!
//! - [`owners`]: a large folio's mapcount and two owners;
//! - [`mapcount`]: all counters of one folio, in the three modes in which kernels are built.
//!
//! # Fault, fork and unmap
//!
//! ```
//! use largefolio_mm::rmap::mapcount::{Level, Mapcount, MapcountRules, Shape};
//! use largefolio_mm::rmap::owners::{NotExclusive, OwnerIds, Wide};
//! use largefolio_mm::units::Order;
//!
//! let mut ids = OwnerIds::new::<Wide>();
//! let (parent, child) = (ids.alloc()?, ids.alloc()?);
//! let of = Shape::new(Order::new(4), MapcountRules::LINUX_6_18);
//!
//! // The first touch of 64 KiB of anonymous memory; the folio holds 16 references.
//! let (mut folio, change) = Mapcount::new_anon(&of, parent, Level::Ptes);
//! assert_eq!((folio.mapcount(), change.mapped_pages), (16, 16));
//!
//! // fork: 16 references more, then the mappings of the child.
//! folio.add_ptes(&of, child, 0..16)?;
//! assert!(folio.maybe_mapped_shared(&of));
//! assert_eq!(folio.try_exclusive(&of, parent, 32), Err(NotExclusive::Shared));
//!
//! // The child exits: first its mappings, then 16 references. The parent may write in place.
//! folio.remove_ptes(&of, child, 0..16);
//! assert_eq!(folio.try_exclusive(&of, parent, 16), Ok(()));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # References
//!
//! The folio holds the reference count. Mapping first takes references, then counts the mapping.
//! Unmapping first uncounts the mapping, then drops the references (E.3.7). So the mapcount never
//! exceeds the reference count, and if the two are equal, only mappings hold references. A PTE
//! holds one reference, a PMD entry [`mapcount::Shape::pmd_refs`].

pub mod mapcount;
pub mod owners;

pub use mapcount::{Change, Mapcount};
pub use owners::{MmOwnerId, OwnerIds};

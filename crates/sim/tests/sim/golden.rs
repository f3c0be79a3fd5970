//! The rules of docs/behaviour A, B, C and L as worked examples, and random runs of the whole
//! memory manager with all invariants checked after every step.

#![expect(clippy::unwrap_used, reason = "a world that cannot be made fails the test")]

mod areas;
mod around;
mod clearing;
mod contpte;
mod exec;
mod fallback;
mod finish;
mod forced;
mod invariants;
mod live_host;
mod mapcounts;
mod mapped_start;
mod misses;
mod proposed;
mod random;
mod reads;
mod ret_stubs;
mod sizes;
mod small_world;
mod windows;
mod world;
mod worn;

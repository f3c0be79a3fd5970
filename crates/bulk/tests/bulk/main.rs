//! Clearing and copying through the crate's public interface.
#![expect(clippy::unwrap_used, reason = "memory or a plan that cannot be made fails the test")]

#[cfg(not(miri))] // Miri maps no guard pages: `portable` is for it.
mod extents;
#[cfg(not(miri))]
mod guarded;
mod plan;
mod portable;

//! Results in every form, and sweeps, through the crate's public interface.
#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

mod browser;
mod exports;
mod html;
mod support;
mod sweep;
mod table;
mod why;

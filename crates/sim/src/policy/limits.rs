//! A policy's size limits, and the section names in its file, as printed in errors.

pub(super) const OBJECT_BYTES_MAX: usize = 1 << 20;
/// The limit that Linux sets for unprivileged programs.
pub(super) const NR_INSNS_MAX: usize = 4096;
pub(super) const NR_MAPS_MAX: usize = 64;
/// Functions that helpers may call.
pub(super) const NR_FUNCTIONS_MAX: usize = 64;
/// Instructions of one decision, loops and the helpers' cost included: 5 ms at 5 ns each. Without
/// loops, a program takes at most a sixteenth.
pub(super) const NR_RUN_INSNS_MAX: u64 = 1 << 20;
pub(super) const MAPS: &str = "folio_maps";
pub(super) const INTERVAL: &str = "folio_interval";

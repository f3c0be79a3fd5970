//! A policy's size limits, and the section names in its file, as printed in errors.

pub(super) const OBJECT_BYTES_MAX: usize = 1 << 20;
/// The limit that Linux sets for unprivileged programs.
pub(super) const NR_INSNS_MAX: usize = 4096;
pub(super) const NR_MAPS_MAX: usize = 64;
pub(super) const MAPS: &str = "folio_maps";

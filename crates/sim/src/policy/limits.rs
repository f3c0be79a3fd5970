//! How large a policy may be, and what its file is made of: what errors tell.

/// Bytes of an object file.
pub(super) const OBJECT_BYTES_MAX: usize = 1 << 20;
/// Instructions of a program: as a kernel without privileges.
pub(super) const NR_INSNS_MAX: usize = 4096;
/// Maps of a policy.
pub(super) const NR_MAPS_MAX: usize = 64;
/// Section of maps.
pub(super) const MAPS: &str = "folio_maps";

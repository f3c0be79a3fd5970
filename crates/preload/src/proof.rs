//! Proves that a copy holds the bytes that the process has mapped.
//!
//! The kernel's metadata does not identify a file's contents. Device numbers are reused, and
//! reproducible images (squashfs, erofs, container layers) have equal inodes, sizes and times
//! although their programs differ. The text is therefore compared with the copy before each use:
//!
//! ```text
//!   text (as the loader mapped it)   |== block ==|== block ==|     populated, then read
//!   copy (mapped elsewhere, r-x)     |== block ==|== block ==|     block by block
//! ```
//!
//! The comparison uses the mapping that will be replaced, not the file at its path. It reads both
//! at about memory speed; reading the file through its descriptor takes 1.3 to 1.5 times as long
//! (docs/design/remap.md).
//!
//! Invariants:
//! - V1: every byte of a [`Proven`] copy was compared with the blocks it refers to, after they were
//!   mapped. Since then only this user can have changed it (D1, D2 of `store`), and this user can
//!   change the process too.
//! - V2: pages are faulted in by calls that return an error, and read right after. If the file is
//!   truncated between the two, the process dies, as it would if it ran its text.

use crate::maps::Blocks;
use crate::sys::{self, Area, Errno, Fd, Madvise, Mapping, Window};
use crate::wire::Refusal;

/// A copy that holds the bytes of `blocks` (V1).
pub(crate) struct Proven<'a> {
    copy: Fd,
    blocks: &'a Blocks,
}

pub(crate) enum Proof<'a> {
    Holds(Proven<'a>),
    /// The copy that was compared.
    Differs(Fd),
}

/// Maps `copy` as text, which shows that this is allowed, and compares it with `blocks`.
pub(crate) fn prove(copy: Fd, blocks: &Blocks) -> Result<Proof<'_>, Refusal> {
    let area = Area::reserve_blocks(blocks.len).map_err(|_| Refusal::LowMemory)?;
    let address = area.first_block();
    // SAFETY: the reserved area has room for the blocks after its first aligned address.
    unsafe { copy.map_over(address, window(blocks), Mapping::Text) }.map_err(of_map)?;
    for at in (0..blocks.len).step_by(blocks.block) {
        let (text, same) = (blocks.start + at, address + at);
        sys::madvise(text, blocks.block, Madvise::PopulateRead).map_err(|_| Refusal::Unreadable)?;
        sys::madvise(same, blocks.block, Madvise::PopulateRead).map_err(|_| Refusal::BadCopy)?;
        // SAFETY: both mappings are readable (`r-x`), and their pages are present (V2).
        if !unsafe { sys::is_same(text, same, blocks.block) } {
            return Ok(Proof::Differs(copy));
        }
    }
    Ok(Proof::Holds(Proven { copy, blocks }))
}

impl Proven<'_> {
    pub(crate) fn replace_text(self) -> Result<(), Refusal> {
        // SAFETY: the range is text, and the copy holds the same bytes: V1.
        unsafe { self.copy.map_over(self.blocks.start, window(self.blocks), Mapping::Text) }
            .map_err(of_map)
    }
}

const fn window(blocks: &Blocks) -> Window {
    Window { offset: blocks.offset + blocks.shift(), len: blocks.len }
}

fn of_map(error: Errno) -> Refusal {
    match error {
        Errno(libc::EPERM) => Refusal::NoExec,
        Errno(libc::EACCES) => Refusal::Denied,
        Errno(libc::ENOMEM) => Refusal::LowMemory,
        _ => Refusal::Os,
    }
}

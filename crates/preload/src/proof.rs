//! The proof that a copy holds the bytes that the process has mapped.
//!
//! Nothing the kernel tells of a file says what is in it. Device numbers are given again, and images
//! that are made reproducibly (squashfs, erofs, layers of containers) agree in inodes, sizes and times
//! while their programs differ. So the text is compared with the copy, before each use:
//!
//! ```text
//!   text (as the loader mapped it)   |== block ==|== block ==|     populated, then read
//!   copy (mapped elsewhere, r-x)     |== block ==|== block ==|     block by block
//! ```
//!
//! What is compared is the mapping that goes, not the file by its path: however the copy was found,
//! it holds what would have run. It costs a read of both, about as fast as memory allows; reading the
//! file through its descriptor instead costs 1.3 to 1.5 times as much (docs/design/remap.md).
//!
//! Invariants:
//! - V1: a [`Proven`] copy was compared whole with the blocks it refers to, after they were mapped. Since
//!   then only this user can have changed it (D1, D2 of `store`), who can change this process, too.
//! - V2: pages come by calls that answer with an error; they are read right after. A file that is cut
//!   between the two ends the process, as running its text would.

use crate::maps::Blocks;
use crate::sys::{self, Advice, Area, Errno, Fd, Mapping, Window};
use crate::wire::Refusal;

/// A copy that holds the bytes of `blocks` (V1).
pub(crate) struct Proven<'a> {
    copy: Fd,
    blocks: &'a Blocks,
}

/// What comparing gave.
pub(crate) enum Proof<'a> {
    /// The same bytes.
    Holds(Proven<'a>),
    /// Others: the copy that was compared.
    Differs(Fd),
}

/// Maps `copy` as text, which shows that this is allowed, and compares it with what `blocks` hold.
pub(crate) fn prove(copy: Fd, blocks: &Blocks) -> Result<Proof<'_>, Refusal> {
    let area = Area::reserve_blocks(blocks.len).map_err(|_| Refusal::LowMemory)?;
    let address = area.first_block();
    // SAFETY: the reserved area has room for the blocks after its first address that is aligned.
    unsafe { copy.map_over(address, window(blocks), Mapping::Text) }.map_err(of_map)?;
    for at in (0..blocks.len).step_by(blocks.block) {
        let (text, same) = (blocks.start + at, address + at);
        sys::advise(text, blocks.block, Advice::PopulateRead).map_err(|_| Refusal::Unreadable)?;
        sys::advise(same, blocks.block, Advice::PopulateRead).map_err(|_| Refusal::BadCopy)?;
        // SAFETY: both are mapped to be read (`r-x`), and their pages are there (V2).
        if !unsafe { sys::is_same(text, same, blocks.block) } {
            return Ok(Proof::Differs(copy));
        }
    }
    Ok(Proof::Holds(Proven { copy, blocks }))
}

impl Proven<'_> {
    /// Maps the copy over the text.
    pub(crate) fn replace_text(self) -> Result<(), Refusal> {
        // SAFETY: the range is text, and the copy holds the same bytes: V1.
        unsafe { self.copy.map_over(self.blocks.start, window(self.blocks), Mapping::Text) }
            .map_err(of_map)
    }
}

/// Where the blocks are in their copy.
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

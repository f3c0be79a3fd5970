//! Files that a user names: opening them never blocks, and results appear only when they are
//! complete.
//!
//! Owns the lookup of names ([`PathHandle`]), opening input ([`open_regular`]), the place of a
//! result
//! ([`Place`]), writing it ([`Whole`], [`write_whole`], [`check`]), and its new directories
//! ([`MadeDirs`]). Invariants:
//! - I1: opening an input neither waits for the other end of a FIFO nor touches a device.
//! - I2: a result gets its name only when it is complete and synced. Until then, an earlier file
//!   with that name remains unchanged, even after SIGKILL or if the disk is full.
//! - I3: a symbolic link with a result's name is replaced, never followed.
//! - I4: the object that was checked is the object that is opened: no name is looked up twice.

mod made;
mod open;
mod path_handle;
mod place;
mod whole;

pub use made::MadeDirs;
pub use open::{
    is_foreign, open_lock, open_own, open_quietly, open_regular, other_kind, read_from, read_text,
    read_whole,
};
pub use path_handle::{NotRegular, PathHandle};
pub use place::Place;
pub use whole::{Whole, check, is_stdout, remove_stale, write_whole};

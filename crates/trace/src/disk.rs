//! Files that a user names: opened so that nothing blocks, written so that they appear whole.
//!
//! Owns the one way in which a name is looked up ([`Found`]), how every crate opens its input
//! ([`open_regular`]), the place of a result ([`Place`]) and how it is written ([`Whole`],
//! [`write_whole`], [`check`]), and the directories that are made for one ([`MadeDirs`]). Does not own
//! their content. Invariants:
//! - I1: to open an input neither waits for the other end of a FIFO nor touches a device.
//! - I2: under its own name a result is complete and on the disk; until then a file that had the
//!   name before is untouched. Whatever ends the process, SIGKILL and a full disk included.
//! - I3: a symbolic link that has the name of a result is replaced, never followed.
//! - I4: the object that was judged is the object that is opened: no name is looked up twice.

mod found;
mod made;
mod open;
mod place;
mod whole;

pub use found::{Found, NotRegular};
pub use made::MadeDirs;
pub use open::{
    is_foreign, open_lock, open_own, open_quietly, open_regular, other_kind, read_from, read_text,
    read_whole,
};
pub use place::Place;
pub use whole::{Whole, check, is_stdout, remove_stale, write_whole};

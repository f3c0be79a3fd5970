//! Identifies the allocator of private memory by the memory's contents.
//!
//! Owns the facts about one mapping, read once: requests to glibc's malloc, glibc's thread arenas,
//! and `CPython`'s object arenas.

use super::contents::{Contents, Words};
use super::objects;
use super::pieces::Pieces;
use crate::proc::Task;
use crate::proc::maps::Vma;

/// The alignment of glibc's thread arenas (`HEAP_MAX_SIZE`, 64-bit).
const ARENA_BYTES: u64 = 64 << 20;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Allocated {
    pub(super) pieces: Pieces,
    /// Whether it starts with a glibc thread arena; `None` if not read.
    pub(super) is_arena: Option<bool>,
    pub(super) is_object_arena: bool,
}

impl Allocated {
    pub(super) fn of(task: &Task<'_>, vma: &Vma, page_bytes: u64, may_be_glibcs: bool) -> Self {
        let is_at_arena = vma.range.start.is_multiple_of(ARENA_BYTES);
        let unread = Self {
            pieces: Pieces::whole(vma),
            is_arena: (!is_at_arena).then_some(false),
            is_object_arena: false,
        };
        if vma.has_file() {
            return unread;
        }
        let Ok(mut contents) = Contents::of(task, page_bytes) else { return unread };
        let is_sought = may_be_glibcs && !vma.is_heap() && !vma.is_stack();
        let pieces =
            is_sought.then(|| Pieces::find(vma, page_bytes, |address| contents.words(address)));
        let is_arena = match is_at_arena.then(|| contents.words(vma.range.start)) {
            Some(Words::Read(words)) => Some(is_arena(words, page_bytes)),
            Some(_) => None,
            None => Some(false),
        };
        let is_object_arena = objects::is_arena(&mut contents, vma);
        Self { pieces: pieces.unwrap_or(unread.pieces), is_arena, is_object_arena }
    }
}

/// Checks for a thread arena's header: a pointer to its state, the used and accessible lengths.
fn is_arena([arena, _, used, accessible]: [u64; 4], page_bytes: u64) -> bool {
    let is_near = (1..page_bytes).contains(&(arena % ARENA_BYTES));
    let is_length = |bytes: u64| bytes.is_multiple_of(page_bytes) && bytes <= ARENA_BYTES;
    is_near && is_length(used) && is_length(accessible) && (1..=accessible).contains(&used)
}

//! Lets the kernel choose the addresses of the program's mappings.
//!
//! QEMU 7.2 searches a free address itself, upward and by pages. A kernel searches downward, aligns
//! large mappings to the sizes of folios, and aligns huge pages, which QEMU cannot map otherwise
//! (`EINVAL`). Programs compute addresses from its choice. QEMU reserves the address that it found
//! with one call of a fixed form (`mmap_find_vma`) and takes any address that this call returns:
//!
//! ```text
//!   program: mmap(0, len, ..) -> QEMU: mmap64(hint, len, PROT_NONE, RESERVING, -1, 0) = address
//!                                 ^ here: mmap(0, len, PROT_NONE, the program's flags, its file)
//!                                QEMU: mmap64(address, len, .., MAP_FIXED ..)
//! ```
//!
//! For an mremap, QEMU reserves an address too, and moves the mapping there. A kernel leaves a
//! mapping that does not grow in place, even if it is several, which cannot move together.
//!
//! The calls are caught by replacing the functions' addresses in QEMU's own table of imported
//! functions (its GOT). A QEMU that does not call them this way, such as 10.0, is left as it is.
//!
//! Invariants:
//! - P1: only calls of this form change, and only while the calling thread runs a call in which
//!   the program lets the kernel choose.
//! - P2: whatever fails, QEMU's own call is made.
//! - P3: the kernel gives freed addresses away at once. So the calls that take and free addresses
//!   run one after the other, each until its event is sent ([`Turn`]).

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use crate::spin::Spin;
use crate::tail::Tail;
use crate::{epoch, imports, sys};

/// How the program asked for a mapping at any address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    /// `MAP_*`.
    pub(crate) flags: c_int,
    pub(crate) fd: c_int,
    pub(crate) pos: i64,
}

impl Wish {
    /// Anonymous memory, for mremap and shmat.
    pub(crate) const ANONYMOUS: Self =
        Self { flags: libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, fd: -1, pos: 0 };
}

/// Flags of the call with which QEMU reserves an address.
const RESERVING: c_int = libc::MAP_ANONYMOUS | libc::MAP_PRIVATE | libc::MAP_NORESERVE;

/// Flags of the program that influence the address.
const DECIDING: c_int = libc::MAP_SHARED
    | libc::MAP_PRIVATE
    | libc::MAP_ANONYMOUS
    | libc::MAP_HUGETLB
    | libc::MAP_HUGE_MASK << libc::MAP_HUGE_SHIFT;

static TURNS: Spin = Spin::new();
static IS_ACTIVE: AtomicBool = AtomicBool::new(false);

thread_local! {
    static WISH: Cell<Option<Wish>> = const { Cell::new(None) };
    static HAS_TURN: Cell<bool> = const { Cell::new(false) };
    /// The address that the kernel chose in this call, null if it has chosen none.
    static FOUND: Cell<*mut c_void> = const { Cell::new(ptr::null_mut()) };
}

/// Ends the calling thread's turn when dropped, if it has one.
pub(crate) struct Turn;

impl Turn {
    /// Begins a turn, which lasts until a `Turn` is dropped.
    pub(crate) fn begin(own: &Tail) {
        // The thread that has its turn may wait for this one.
        TURNS.lock(|| {
            if epoch::is_behind(own) {
                epoch::catch_up(own);
            }
        });
        HAS_TURN.set(true);
    }

    /// Starts over in the child of a fork.
    pub(crate) fn restart_in_child() {
        HAS_TURN.set(false);
        TURNS.reset();
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        WISH.set(None);
        if HAS_TURN.take() {
            TURNS.unlock();
        }
    }
}

/// Replaces QEMU's `mmap64` and `mremap`. Does nothing if QEMU does not import them.
pub(crate) fn start() {
    // SAFETY: the types match the C library's functions, this library stays loaded, and QEMU
    // loads its plugins before it starts a thread of the program.
    unsafe { imports::replace(c"mmap64", mmap64 as *const c_void) };
    // SAFETY: as above.
    unsafe { imports::replace(c"mremap", mremap as *const c_void) };
}

/// Whether QEMU has let the kernel choose.
pub(crate) fn is_active() -> bool {
    IS_ACTIVE.load(Relaxed)
}

/// Notes that the calling thread's call lets the kernel choose an address, until its turn ends.
pub(crate) fn wish(wish: Wish) {
    // A program may move a mapping to an address that an earlier call returned.
    FOUND.set(ptr::null_mut());
    WISH.set(Some(wish));
}

/// Called by QEMU instead of the C library's function.
unsafe extern "C" fn mmap64(
    addr: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    fd: c_int,
    pos: i64,
) -> *mut c_void {
    let is_search = (prot, flags, fd, pos) == (libc::PROT_NONE, RESERVING, -1, 0);
    if is_search && let Some(wish) = WISH.get() {
        IS_ACTIVE.store(true, Relaxed);
        let flags = wish.flags & DECIDING | libc::MAP_NORESERVE;
        if let Some(found) = sys::map_anywhere(len, flags, wish.fd, wish.pos) {
            FOUND.set(found);
            return found;
        }
        // No huge pages: QEMU's own search would end in EINVAL, not in the kernel's ENOMEM.
        if wish.flags & libc::MAP_HUGETLB != 0 {
            return libc::MAP_FAILED;
        }
    }
    // SAFETY: QEMU's call, unchanged.
    unsafe { libc::mmap(addr, len, prot, flags, fd, pos) }
}

/// Called by QEMU instead of the C library's function, always with `MREMAP_FIXED` if the program
/// allows a move.
unsafe extern "C" fn mremap(
    old: *mut c_void,
    old_len: usize,
    new_len: usize,
    flags: c_int,
    new: *mut c_void,
) -> *mut c_void {
    let is_reserved = !new.is_null() && FOUND.get() == new;
    let copies = old_len == 0 || flags & libc::MREMAP_DONTUNMAP != 0;
    if is_reserved && !copies && new_len <= old_len {
        // SAFETY: QEMU reserved this range for the move, which does not happen.
        unsafe { libc::munmap(new, new_len) };
        // SAFETY: QEMU's call on the program's mapping, in place.
        return unsafe { libc::mremap(old, old_len, new_len, 0) };
    }
    // SAFETY: QEMU's call, unchanged.
    unsafe { libc::mremap(old, old_len, new_len, flags, new) }
}

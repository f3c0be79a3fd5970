//! The threads of the recorded process.
//!
//! Owns the table from QEMU's virtual CPU number to a thread's tail and private state. Invariants:
//! - H1: a thread fills its slot at its first callback and empties it at its exit. The child of a
//!   fork empties the slots of threads it does not have.
//! - H2: another thread uses a tail only under the registry lock, and a tail is released only under
//!   it.

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};
use std::sync::atomic::{AtomicPtr, AtomicU32};

use crate::arguments::Arguments;
use crate::spin::Spin;
use crate::tail::Tail;
use crate::{epoch, link, sys, wire};

/// Maximum number of recorded virtual CPUs. QEMU numbers live threads densely. Threads beyond the
/// limit run unrecorded.
const SLOTS_MAX: usize = 4096;

pub(crate) struct Thread {
    pub(crate) args: Cell<[u64; 6]>,
    pub(crate) announced: RefCell<Vec<u64>>,
    /// Whether it keeps the connection closed during its system call.
    pub(crate) is_aside: Cell<bool>,
    pub(crate) is_executing: Cell<bool>,
    /// Key of the file whose last name the current call takes, 0 for none.
    pub(crate) nameless: Cell<u64>,
    pub(crate) blocked: Cell<u64>,
    /// The data mark at the last unseen clear of a block, and the number of clears since it
    /// changed.
    pub(crate) cleared: Cell<([u64; 2], u64)>,
    tail_path: RefCell<PathBuf>,
}

struct Slot {
    tail: AtomicPtr<Tail>,
    thread: AtomicPtr<Thread>,
}

static SLOTS: [Slot; SLOTS_MAX] = [const {
    Slot { tail: AtomicPtr::new(ptr::null_mut()), thread: AtomicPtr::new(ptr::null_mut()) }
}; SLOTS_MAX];
static NR_THREADS: AtomicU32 = AtomicU32::new(0);
static NR_TAILS: AtomicU32 = AtomicU32::new(0);
static REGISTRY: Spin = Spin::new();

pub(crate) fn nr_threads() -> u32 {
    NR_THREADS.load(Acquire)
}

#[inline]
pub(crate) fn tail_of(vcpu: u32) -> Option<&'static Tail> {
    let slot = SLOTS.get(vcpu as usize)?;
    let tail = slot.tail.load(Relaxed);
    if tail.is_null() {
        return attach(slot);
    }
    // SAFETY: H1: the slot belongs to the calling thread, which alone empties it.
    Some(unsafe { &*tail })
}

/// Returns the tail and private state of the calling thread, which is virtual CPU `vcpu`.
pub(crate) fn thread_of(vcpu: u32) -> Option<(&'static Tail, &'static Thread)> {
    let tail = tail_of(vcpu)?;
    let thread = SLOTS.get(vcpu as usize)?.thread.load(Relaxed);
    // SAFETY: H1: filled together with the tail, emptied only by the calling thread.
    unsafe { thread.as_ref() }.map(|thread| (tail, thread))
}

#[cold]
fn attach(slot: &'static Slot) -> Option<&'static Tail> {
    let path = tail_path();
    let tail = Tail::create(&path, std::process::id(), sys::thread_number())?;
    // SAFETY: the tail was just made and stays mapped until `detach`.
    let tail = unsafe { tail.as_ref() };
    epoch::join(tail);
    let thread = Thread {
        args: Cell::new([0; 6]),
        announced: RefCell::new(Vec::new()),
        is_aside: Cell::new(false),
        is_executing: Cell::new(false),
        nameless: Cell::new(0),
        // QEMU's own mask equals the program's as long as no signal is pending.
        blocked: Cell::new(sys::blocked_signals()),
        cleared: Cell::default(),
        tail_path: RefCell::new(path),
    };
    slot.thread.store(Box::into_raw(Box::new(thread)), Relaxed);
    slot.tail.store(ptr::from_ref(tail).cast_mut(), Release);
    NR_THREADS.fetch_add(1, Release);
    Some(tail)
}

fn tail_path() -> PathBuf {
    let number = NR_TAILS.fetch_add(1, Relaxed);
    let generation = Arguments::kept().map_or(0, |arguments| arguments.generation);
    let name = format!("{}{number}", wire::tail_prefix(std::process::id(), generation));
    link::directory().map(|directory| directory.join(name)).unwrap_or_default()
}

pub(crate) fn detach(vcpu: u32) {
    let Some((own, _)) = thread_of(vcpu) else { return };
    let Some(slot) = SLOTS.get(vcpu as usize) else { return };
    let thread = slot.thread.swap(ptr::null_mut(), Relaxed);
    let mut tail = ptr::null_mut();
    with_registry(own, || {
        tail = slot.tail.swap(ptr::null_mut(), Relaxed);
        NR_THREADS.fetch_sub(1, Release);
        let mut nr_expired = own.take_grace_expired();
        for_each_tail(|other| other.count_grace_expired(std::mem::take(&mut nr_expired)));
        if let Some(tail) = NonNull::new(tail) {
            // SAFETY: H2: the slot is empty and we hold the registry, so nothing uses the tail.
            unsafe { Tail::release(tail) };
        }
    });
    if !thread.is_null() {
        // SAFETY: H1: `attach` made it with Box::into_raw and the slot no longer has it.
        let thread = unsafe { Box::from_raw(thread) };
        // `folio record` may have removed the directory already.
        let _ = std::fs::remove_file(&*thread.tail_path.borrow());
    }
}

/// Runs `f` while no tail can be released. Keeps up with epochs while it waits, because the holder
/// may be waiting for the caller.
pub(crate) fn with_registry(own: &Tail, f: impl FnOnce()) {
    REGISTRY.lock(|| {
        if epoch::is_behind(own) {
            epoch::catch_up(own);
        }
    });
    f();
    REGISTRY.unlock();
}

pub(crate) fn for_each_tail(mut f: impl FnMut(&Tail)) {
    let mut nr_left = nr_threads();
    for slot in &SLOTS {
        if nr_left == 0 {
            break;
        }
        // SAFETY: H2: under the registry lock no tail is released.
        if let Some(tail) = unsafe { slot.tail.load(Acquire).as_ref() } {
            nr_left -= 1;
            f(tail);
        }
    }
}

/// Starts over in the child of a fork, whose only thread is virtual CPU `vcpu`. The child shares no
/// tail with the parent, but keeps its announced files and blocked signals.
pub(crate) fn restart_in_child(vcpu: u32, parent: u32) {
    REGISTRY.reset();
    link::restart_in_child(parent);
    for slot in &SLOTS {
        if let Some(tail) = NonNull::new(slot.tail.swap(ptr::null_mut(), Relaxed)) {
            // SAFETY: H1: this process has one thread, and it dropped its reference.
            unsafe { Tail::release(tail) };
        }
    }
    NR_THREADS.store(0, Release);
    let thread = SLOTS.get(vcpu as usize).map(|slot| slot.thread.load(Relaxed));
    // SAFETY: H1: the slot is the calling thread's.
    let before = thread.and_then(NonNull::new).map(|thread| unsafe { thread.as_ref() });
    if let (Some(before), Some((_, thread))) = (before, thread_of(vcpu)) {
        thread.announced.replace(before.announced.take());
        thread.blocked.set(before.blocked.get());
        thread.args.set(before.args.get());
    }
}

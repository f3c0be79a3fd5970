//! Runs folio's work on a stack of its own size, regardless of `ulimit -s`.
//!
//! Raising the limit would also affect the programs that folio runs, so a separate thread gets the
//! stack. If no thread can be created (a seccomp filter, a limit), the work runs on the original
//! stack.
//!
//! A signal for the process goes to any thread that does not block it. The work blocks some signals
//! and takes them one by one (`run/child`), so the waiting thread blocks all.

use std::io;
use std::mem::MaybeUninit;
use std::panic;
use std::thread;

use rustix::process::{Resource, getrlimit};

/// With this much stack no thread is needed: parsing a command line takes 240 to 300 KiB in a debug
/// build.
const ENOUGH_BYTES: u64 = 1 << 20;
const STACK_BYTES: usize = 8 << 20;

pub fn with_enough<T: Send + 'static>(work: impl Fn() -> T + Copy + Send + 'static) -> T {
    let limit = getrlimit(Resource::Stack).current;
    if limit.is_none_or(|bytes| bytes >= ENOUGH_BYTES) {
        return work();
    }
    // SAFETY: an all-zero set is valid: no signal.
    let mut all: libc::sigset_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: the set is whole.
    unsafe { libc::sigfillset(&raw mut all) };
    let Ok(earlier) = set_mask(&all) else { return work() };
    let in_thread = move || {
        // The kernel accepts a set that it returned.
        let _ = set_mask(&earlier);
        work()
    };
    let made = thread::Builder::new().stack_size(STACK_BYTES).spawn(in_thread);
    let result = made.map(thread::JoinHandle::join);
    let _ = set_mask(&earlier);
    match result {
        Ok(Ok(result)) => result,
        Ok(Err(panic)) => panic::resume_unwind(panic),
        Err(_) => work(),
    }
}

/// Sets this thread's signal mask and returns the previous one.
fn set_mask(mask: &libc::sigset_t) -> io::Result<libc::sigset_t> {
    let mut earlier = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: both point to whole sets.
    let error = unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, mask, earlier.as_mut_ptr()) };
    if error != 0 {
        return Err(io::Error::from_raw_os_error(error));
    }
    // SAFETY: zeroed, which is a set, and written by the kernel.
    Ok(unsafe { earlier.assume_init() })
}

//! The work of folio on a stack of its own size, whatever `ulimit -s` says.
//!
//! The limit is the program's that is run, and the main thread obeys it: it can only be raised up to the
//! hard limit, and would have to be put back before each program. A thread is asked for its stack.
//!
//! Owns the signals of that time. A signal for the process goes to any thread that does not block it;
//! the work blocks some and takes them one by one (`run/child`). So the thread that only waits blocks all.
//! Where no thread can be made (a seccomp filter, a limit), the work is done without.

use std::io;
use std::mem::MaybeUninit;
use std::panic;
use std::thread;

use rustix::process::{Resource, getrlimit};

/// Stack from which on no thread is needed: reading a command line takes 240 to 300 KiB in a debug build.
const ENOUGH_BYTES: u64 = 1 << 20;
/// Stack of the thread, as systems give it to programs.
const STACK_BYTES: usize = 8 << 20;

/// What `work` returns, done on a stack that is large enough for it.
pub fn with_enough<T: Send + 'static>(work: fn() -> T) -> T {
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
        // A set that the kernel gave is one it takes.
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

/// Sets the signals this thread blocks; those it blocked before.
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

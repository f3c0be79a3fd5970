//! The functions that this library replaces, in the next library.

use core::ffi::CStr;
use core::sync::atomic::{AtomicUsize, Ordering};

const UNKNOWN: usize = 0;
/// The lookup runs: an older loader allocates during it. `start` looks up every function before
/// there are threads, so no other thread sees this.
const RUNNING: usize = 1;

pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicUsize,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(UNKNOWN) }
    }

    /// Returns the function's address; `None` if there is none, or during its own lookup.
    pub(crate) fn get(&self) -> Option<usize> {
        match self.address.load(Ordering::Relaxed) {
            UNKNOWN => self.find(),
            RUNNING => None,
            address => Some(address),
        }
    }

    #[cold]
    fn find(&self) -> Option<usize> {
        self.address.store(RUNNING, Ordering::Relaxed);
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }.addr();
        self.address.store(found, Ordering::Relaxed);
        Some(found).filter(|found| *found != UNKNOWN)
    }
}

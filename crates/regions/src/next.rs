//! The functions that this library replaces, in the next library.

use core::ffi::{CStr, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};

const UNKNOWN: usize = 0;

/// A function of the next library. Libraries that the program needs may call it, in several
/// threads, before `start` looks it up.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicUsize,
    /// The thread that looks the function up. An older loader allocates during a lookup, so this
    /// thread must not start another one. Other threads can: all find the same address.
    finder: AtomicUsize,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicUsize::new(UNKNOWN), finder: AtomicUsize::new(0) }
    }

    /// Returns the function's address, `None` if it is missing or this thread looks it up now.
    pub(crate) fn get(&self) -> Option<usize> {
        match self.address.load(Ordering::Relaxed) {
            UNKNOWN => self.find(),
            address => Some(address),
        }
    }

    #[cold]
    fn find(&self) -> Option<usize> {
        let own = thread();
        if self.finder.swap(own, Ordering::Relaxed) == own {
            return None;
        }
        // SAFETY: the name is a C string.
        let found = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) }.addr();
        let _ = self.finder.compare_exchange(own, 0, Ordering::Relaxed, Ordering::Relaxed);
        self.address.store(found, Ordering::Relaxed);
        Some(found).filter(|found| *found != UNKNOWN)
    }
}

/// Returns a number that no other living thread has: the address of its errno.
fn thread() -> usize {
    // SAFETY: the call takes nothing.
    unsafe { libc::__errno_location() }.addr()
}

/// Looks for a function in all libraries of the program.
pub(crate) fn anywhere(name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the name is a C string.
    let found = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
    if found.is_null() {
        // The program must not find our error.
        // SAFETY: the call takes nothing.
        unsafe { libc::dlerror() };
    }
    Some(found).filter(|found| !found.is_null())
}

/// Returns the start of the library that contains an address.
pub(crate) fn library_of(address: usize) -> Option<usize> {
    // SAFETY: a structure of numbers and pointers, for which 0 is valid.
    let mut found: libc::Dl_info = unsafe { core::mem::zeroed() };
    // SAFETY: `found` outlives the call, which accepts any address.
    let is_found = unsafe { libc::dladdr(core::ptr::without_provenance(address), &raw mut found) };
    (is_found != 0).then(|| found.dli_fbase.addr())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn during_a_lookup_by(finder: usize) -> Option<usize> {
        let next = Next::new(c"getppid");
        next.finder.store(finder, Ordering::Relaxed);
        next.get()
    }

    #[test]
    fn a_lookup_stops_only_its_own_thread() {
        assert_eq!(during_a_lookup_by(thread()), None);
        let other = std::thread::spawn(thread).join();
        assert_eq!(during_a_lookup_by(other.unwrap_or(1)), during_a_lookup_by(0));
        assert!(during_a_lookup_by(0).is_some());
    }

    #[test]
    fn a_function_is_found_in_its_library() {
        let function = anywhere(c"gnu_get_libc_version").map(|found| library_of(found.addr()));
        assert_eq!(function, Some(library_of(libc::getppid as *const () as usize)));
        assert_eq!(anywhere(c"no_such_function"), None);
    }
}

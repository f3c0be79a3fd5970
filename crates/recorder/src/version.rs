//! Differences between the QEMU versions that load this plugin.
//!
//! QEMU reads `qemu_plugin_version` after loading this library and before calling it.
//!
//! ```text
//!   QEMU         takes versions   the plugin says   the value of a load      variables
//!   6.0 to 8.2   0 to 1           1                 is read from memory      in reverse
//!   9.0, 9.1     2 to 2, 3        2                 is read from memory      in order
//!   9.2, 10.0    2 to 4           2                 is reported by QEMU      in order
//! ```
//!
//! Tested with 7.2 and 10.0.
//!
//! Invariants:
//! - V1: no version works for all of them, so the library detects which QEMU loads it. Every
//!   function and callback it uses (`qemu`) works the same in all of them.
//! - V2: program memory is not read if QEMU reports the value: 10.0 ends the program when the
//!   plugin faults in its place.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr};

const WITH_N_VCPUS: c_int = 1;
/// The interface since QEMU 9.0, the oldest that later ones accept.
#[cfg_attr(test, expect(dead_code, reason = "no QEMU loads a unit test"))]
const WITH_NUM_VCPUS: c_int = 2;

/// Read by QEMU after [`AT_LOAD`] has run.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: AtomicI32 = AtomicI32::new(WITH_N_VCPUS);

/// `qemu_plugin_mem_get_value`, null if QEMU does not have it.
static MEM_GET_VALUE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

#[repr(C)]
struct MemValue {
    kind: c_int,
    low: u64,
    high: u64,
}

type MemGetValue = unsafe extern "C" fn(u32) -> MemValue;

/// The dynamic linker calls it before `dlopen` returns to QEMU.
#[cfg(not(test))]
#[used]
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = look;

/// Detects the QEMU version by its function names: version 2 renamed one.
#[cfg(not(test))]
extern "C" fn look() {
    let find = |name: &std::ffi::CStr| {
        // SAFETY: the name is a C string, and the symbol is looked up, not called.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    };
    if !find(c"qemu_plugin_num_vcpus").is_null() {
        qemu_plugin_version.store(WITH_NUM_VCPUS, Relaxed);
    }
    MEM_GET_VALUE.store(find(c"qemu_plugin_mem_get_value"), Relaxed);
}

/// Returns whether a program gets its variables in the order QEMU got them. QEMU up to 8.2 reverses
/// them.
pub(crate) fn keeps_order_of_variables() -> bool {
    qemu_plugin_version.load(Relaxed) != WITH_N_VCPUS
}

/// Returns the value that an access of at most 8 bytes read or wrote, if QEMU reports it.
///
/// # Safety
/// `info` is the handle that QEMU passed to the running access callback.
#[inline]
pub(crate) unsafe fn value_of(info: u32) -> Option<u64> {
    let function = MEM_GET_VALUE.load(Relaxed);
    if function.is_null() {
        return None;
    }
    // SAFETY: QEMU's function of this name has always had this type.
    let function = unsafe { mem::transmute::<*mut c_void, MemGetValue>(function) };
    // SAFETY: by the caller's promise.
    Some(unsafe { function(info) }.low)
}

//! What differs between the QEMUs that load this plugin.
//!
//! Owns `qemu_plugin_version`, which QEMU reads between loading this library and calling it, the
//! value of a load and the order of variables.
//!
//! ```text
//!   QEMU         takes versions   the plugin says   the value of a load      variables
//!   6.0 to 8.2   0 to 1           1                 is read from memory      in reverse
//!   9.0, 9.1     2 to 2, 3        2                 is read from memory      in order
//!   9.2, 10.0    2 to 4           2                 is told by QEMU          in order
//! ```
//!
//! 7.2 and 10.0 were tried.
//!
//! Invariants:
//! - V1: no version that all take exists, so the library looks at the QEMU that loads it. What the
//!   plugin calls and registers (`qemu`) has one meaning in all of them.
//! - V2: the program's memory is not read where QEMU tells the value: 10.0 ends a program when the
//!   plugin faults in its place.

use std::ffi::{c_int, c_void};
use std::mem;
use std::ptr;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicI32, AtomicPtr};

/// The interface of QEMU 6.0 to 8.2.
const WITH_N_VCPUS: c_int = 1;
/// The interface since QEMU 9.0, the oldest that later ones take.
#[cfg_attr(test, expect(dead_code, reason = "no QEMU loads a unit test"))]
const WITH_NUM_VCPUS: c_int = 2;

/// What QEMU reads; [`AT_LOAD`] has run by then.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: AtomicI32 = AtomicI32::new(WITH_N_VCPUS);

/// `qemu_plugin_mem_get_value`; null where QEMU does not have it.
static MEM_GET_VALUE: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());

/// `qemu_plugin_mem_value`.
#[repr(C)]
struct MemValue {
    /// log2 of the size.
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

/// The names of QEMU's functions tell which one loads this library: version 2 renamed one.
#[cfg(not(test))]
extern "C" fn look() {
    let find = |name: &std::ffi::CStr| {
        // SAFETY: the name is a C string; what it names is looked up, not called.
        unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) }
    };
    if !find(c"qemu_plugin_num_vcpus").is_null() {
        qemu_plugin_version.store(WITH_NUM_VCPUS, Relaxed);
    }
    MEM_GET_VALUE.store(find(c"qemu_plugin_mem_get_value"), Relaxed);
}

/// Whether a program gets its variables in the order in which QEMU got them: until 8.2 QEMU puts each
/// in front of those before.
pub(crate) fn keeps_order_of_variables() -> bool {
    qemu_plugin_version.load(Relaxed) != WITH_N_VCPUS
}

/// What the access of at most 8 bytes found or wrote, if QEMU tells it.
///
/// # Safety
/// `info` is the handle that QEMU passed to the callback of an access, which runs.
#[inline]
pub(crate) unsafe fn value_of(info: u32) -> Option<u64> {
    let function = MEM_GET_VALUE.load(Relaxed);
    if function.is_null() {
        return None;
    }
    // SAFETY: QEMU's function of this name, which has this type since it exists.
    let function = unsafe { mem::transmute::<*mut c_void, MemGetValue>(function) };
    // SAFETY: by the caller's promise.
    Some(unsafe { function(info) }.low)
}

//! The version of the plugin interface that is announced to QEMU.
//!
//! Owns `qemu_plugin_version`, which QEMU reads between loading this library and calling it.
//!
//! ```text
//!   QEMU            takes versions   largefolio says
//!   6.0 to 8.2      0 to 1           1
//!   9.0 to 10.0     2 to 2, 3, 4     2
//! ```
//!
//! Invariant:
//! - V1: no version that both take exists, so the library looks at the QEMU that loads it. What the
//!   plugin calls and registers (`qemu`) has one meaning in all of them.

use std::ffi::c_int;
use std::sync::atomic::AtomicI32;

/// The interface of QEMU 6.0 to 8.2.
const WITH_N_VCPUS: c_int = 1;
/// The interface since QEMU 9.0, the oldest that later ones take.
#[cfg_attr(test, expect(dead_code, reason = "no QEMU loads a unit test"))]
const WITH_NUM_VCPUS: c_int = 2;

/// What QEMU reads; [`choose`] has run by then.
#[unsafe(no_mangle)]
pub(crate) static qemu_plugin_version: AtomicI32 = AtomicI32::new(WITH_N_VCPUS);

/// The dynamic linker calls [`choose`] before `dlopen` returns to QEMU.
#[cfg(not(test))]
#[used]
// SAFETY: an entry of .init_array is a function without result, which may ignore its arguments.
#[unsafe(link_section = ".init_array")]
static AT_LOAD: extern "C" fn() = choose;

/// Version 2 renamed a function of QEMU, so its name tells which one loads this library.
#[cfg(not(test))]
extern "C" fn choose() {
    use std::sync::atomic::Ordering::Relaxed;

    // SAFETY: the name is a C string; the function is looked up, not called.
    let renamed = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"qemu_plugin_num_vcpus".as_ptr()) };
    if !renamed.is_null() {
        qemu_plugin_version.store(WITH_NUM_VCPUS, Relaxed);
    }
}

//! A QEMU TCG plugin that reports the memory references of an unmodified program to `folio record`.
//!
//! Owns everything inside the recorded process: QEMU's callbacks (`block`, `syscall`), the collapse
//! of references into rows (`tail`), the links between loads (`named`), threads (`thread`, `grace`),
//! the addresses of mappings (`placed`) and the connection (`link`). `largefolio-linux` owns ids, files' metadata and the trace file.
//!
//! ```text
//!   translated block -> block::executed / read / written -> Tail (8192 rows, shared file)
//!   system call      -> syscall::entered / left ----------> flush, then the event
//!                                                             | one packet
//!                                                             v
//!                                               folio record (SOCK_SEQPACKET)
//! ```
//!
//! Invariants:
//! - R1: recording does not change the program's behaviour: no signal, no low descriptor, no write
//!   to its files, no failure passed on.
//! - R2: one thread's rows and events arrive in program order. An effect of another thread's event
//!   arrives after that event.
//! - R3: no callback unwinds, allocates on the hot path or waits without bound.

#![deny(unsafe_op_in_unsafe_fn)]

mod access;
mod arch;
mod arguments;
mod block;
mod epoch;
mod grace;
mod head;
mod holes;
mod imports;
mod indexed;
mod layout;
mod link;
mod modify;
mod named;
mod placed;
mod qemu;
mod restore;
mod send;
mod spin;
mod sys;
mod syscall;
mod tail;
mod thread;
mod unseen;
mod variables;
mod version;
#[expect(dead_code, reason = "the other side of the wire uses the rest")]
mod wire;

use std::ffi::{CStr, c_char, c_int, c_void};

use crate::arch::Arch;
use crate::arguments::Arguments;

/// QEMU's entry point: connects to the recording named in the arguments.
///
/// Returns 0, or -1 if there is no recording to connect to. QEMU then does not start. A program
/// executed by the recorded one starts anyway, unrecorded.
///
/// # Safety
/// `info` names the architecture, and `arguments` points to `nr_arguments` C strings, as QEMU
/// promises.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn qemu_plugin_install(
    id: qemu::PluginId,
    info: *const c_void,
    nr_arguments: c_int,
    arguments: *mut *mut c_char,
) -> c_int {
    // SAFETY: by the caller's promise.
    let words = unsafe { words(nr_arguments, arguments) };
    // SAFETY: as above.
    let target = unsafe { CStr::from_ptr((*info.cast::<qemu::Info>()).target_name) };
    let Some(arch) = Arch::named(target.to_bytes()) else { return -1 };
    let arguments = Arguments::parse(arch, words.iter().map(|word| word.to_bytes())).keep();
    let linked = link::start(arguments);
    // QEMU reads the program's mask after this.
    if let Some(signals) = arguments.blocked {
        sys::block_signals(signals);
    }
    if linked.is_err() {
        return if arguments.generation > 0 { 0 } else { -1 };
    }
    layout::start();
    placed::start();
    // SAFETY: `id` is the number QEMU gave this plugin; callbacks are functions of this library,
    // which is never unloaded.
    unsafe { qemu::qemu_plugin_register_vcpu_tb_trans_cb(id, block::translated) };
    // SAFETY: as above.
    unsafe { qemu::qemu_plugin_register_vcpu_syscall_cb(id, syscall::entered) };
    // SAFETY: as above.
    unsafe { qemu::qemu_plugin_register_vcpu_syscall_ret_cb(id, syscall::left) };
    0
}

/// # Safety
/// `arguments` points to `nr` C strings that outlive the call of QEMU's entry.
unsafe fn words<'a>(nr: c_int, arguments: *mut *mut c_char) -> Vec<&'a CStr> {
    let word = |index: usize| {
        // SAFETY: `index` is below `nr`.
        let slot = unsafe { arguments.add(index) };
        // SAFETY: the slot is one of the `nr` pointers.
        let argument = unsafe { *slot };
        // SAFETY: each argument is a C string.
        unsafe { CStr::from_ptr(argument) }
    };
    (0..usize::try_from(nr).unwrap_or(0)).map(word).collect()
}

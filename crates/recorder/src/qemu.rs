//! QEMU's plugin interface, version 1, declared by hand.
//!
//! Owns the prototypes of the functions and callbacks, which QEMU 6.0 and later export. No Debian
//! package ships `qemu-plugin.h`.

use std::ffi::{c_char, c_int, c_uint, c_void};

pub(crate) type PluginId = u64;

/// QEMU's description of itself. The first member is the same in all versions.
#[repr(C)]
pub(crate) struct Info {
    pub(crate) target_name: *const c_char,
}

/// A translation block, valid during the translation callback.
#[repr(C)]
pub(crate) struct Block {
    _opaque: [u8; 0],
}

/// An instruction of a block, valid during the translation callback.
#[repr(C)]
pub(crate) struct Insn {
    _opaque: [u8; 0],
}

pub(crate) const NO_REGS: c_int = 0;
pub(crate) const MEM_BOTH: c_int = 3;

pub(crate) type BlockTranslated = extern "C" fn(PluginId, *mut Block);
pub(crate) type Executed = extern "C" fn(c_uint, *mut c_void);
pub(crate) type Accessed = extern "C" fn(c_uint, u32, u64, *mut c_void);
/// Plugin, virtual CPU, number, eight arguments.
pub(crate) type SyscallEntered =
    extern "C" fn(PluginId, c_uint, i64, u64, u64, u64, u64, u64, u64, u64, u64);
pub(crate) type SyscallLeft = extern "C" fn(PluginId, c_uint, i64, i64);

#[cfg(not(test))]
unsafe extern "C" {
    pub(crate) fn qemu_plugin_register_vcpu_tb_trans_cb(id: PluginId, cb: BlockTranslated);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_cb(id: PluginId, cb: SyscallEntered);
    pub(crate) fn qemu_plugin_register_vcpu_syscall_ret_cb(id: PluginId, cb: SyscallLeft);
    pub(crate) fn qemu_plugin_tb_n_insns(block: *const Block) -> usize;
    pub(crate) fn qemu_plugin_tb_get_insn(block: *const Block, index: usize) -> *mut Insn;
    pub(crate) fn qemu_plugin_insn_vaddr(insn: *const Insn) -> u64;
    pub(crate) fn qemu_plugin_insn_haddr(insn: *const Insn) -> *mut c_void;
    pub(crate) fn qemu_plugin_insn_size(insn: *const Insn) -> usize;
    pub(crate) fn qemu_plugin_register_vcpu_tb_exec_cb(
        block: *mut Block,
        cb: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_insn_exec_cb(
        insn: *mut Insn,
        cb: Executed,
        flags: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_register_vcpu_mem_cb(
        insn: *mut Insn,
        cb: Accessed,
        flags: c_int,
        direction: c_int,
        data: *mut c_void,
    );
    pub(crate) fn qemu_plugin_mem_size_shift(info: u32) -> c_uint;
    pub(crate) fn qemu_plugin_mem_is_store(info: u32) -> bool;
}

#[cfg(test)]
pub(crate) use stand_in::*;

/// Stubs for unit tests, which do not link QEMU's executable. They do nothing.
#[cfg(test)]
mod stand_in {
    use super::{Accessed, Block, BlockTranslated, Executed, Insn};
    use super::{PluginId, SyscallEntered, SyscallLeft, c_int, c_uint, c_void};

    macro_rules! stand_ins {
        ($(fn $name:ident($($arg:ty),*) -> $result:ty = $value:expr;)*) => {
            $(pub(crate) unsafe fn $name($(_: $arg),*) -> $result { $value })*
        };
    }

    stand_ins! {
        fn qemu_plugin_register_vcpu_tb_trans_cb(PluginId, BlockTranslated) -> () = ();
        fn qemu_plugin_register_vcpu_syscall_cb(PluginId, SyscallEntered) -> () = ();
        fn qemu_plugin_register_vcpu_syscall_ret_cb(PluginId, SyscallLeft) -> () = ();
        fn qemu_plugin_tb_n_insns(*const Block) -> usize = 0;
        fn qemu_plugin_tb_get_insn(*const Block, usize) -> *mut Insn = std::ptr::null_mut();
        fn qemu_plugin_insn_vaddr(*const Insn) -> u64 = 0;
        fn qemu_plugin_insn_haddr(*const Insn) -> *mut c_void = std::ptr::null_mut();
        fn qemu_plugin_insn_size(*const Insn) -> usize = 1;
        fn qemu_plugin_register_vcpu_tb_exec_cb(*mut Block, Executed, c_int, *mut c_void)
            -> () = ();
        fn qemu_plugin_register_vcpu_insn_exec_cb(*mut Insn, Executed, c_int, *mut c_void)
            -> () = ();
        fn qemu_plugin_register_vcpu_mem_cb(*mut Insn, Accessed, c_int, c_int, *mut c_void)
            -> () = ();
        fn qemu_plugin_mem_size_shift(u32) -> c_uint = 3;
        fn qemu_plugin_mem_is_store(u32) -> bool = false;
    }
}

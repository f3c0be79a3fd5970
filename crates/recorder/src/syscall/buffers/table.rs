//! The buffers of each system call.
//!
//! One row per call: its number on each architecture, and the arguments that point to memory which
//! the kernel loads from or stores to. A call without a row has no buffers.

use super::Len::{
    Arg, Args, Bits, Bytes, Data, Fcntl, Futex, IfAny, Ioctl, Message, Messages, Pages, Pointed,
    Prctl, Result, Results, Sized, String, Vector,
};
use super::{Buffer, Len, Size};
use crate::arch::Arch;

const NONE: usize = usize::MAX;

/// Only numbers below this are looked up.
const NR_KNOWN: usize = 512;

const STAT: Len = Sized(Size { x86_64: 144, arm64: 128 });
const EPOLL_EVENT: Size = Size { x86_64: 12, arm64: 16 };
const MMSGHDR: Size = Size::of(64);

struct Row {
    x86_64: usize,
    arm64: usize,
    buffers: &'static [Buffer],
}

const fn loads(arg: usize, len: Len) -> Buffer {
    Buffer { arg, len, is_stored: false }
}

const fn stores(arg: usize, len: Len) -> Buffer {
    Buffer { arg, len, is_stored: true }
}

macro_rules! rows {
    (@check $name:ident $x86_64:tt NONE) => {
        #[cfg(target_arch = "x86_64")]
        assert_eq!($x86_64, libc::$name, stringify!($name));
    };
    (@check $name:ident $x86_64:tt $arm64:tt) => {
        let own = if cfg!(target_arch = "x86_64") { $x86_64 } else { $arm64 };
        assert_eq!(own, libc::$name, stringify!($name));
    };
    ($($name:ident: $x86_64:tt, $arm64:tt, [$($buffer:expr),*];)*) => {
        static ROWS: &[Row] = &[
            $(Row { x86_64: $x86_64, arm64: $arm64, buffers: &[$($buffer),*] }),*
        ];

        #[test]
        fn numbers_of_this_architecture_are_those_of_the_c_library() {
            $(rows!(@check $name $x86_64 $arm64);)*
        }
    };
}

rows! {
    SYS_accept4: 288, 242, [loads(2, Bytes(4)), stores(1, Pointed(2)), stores(2, Bytes(4))];
    SYS_accept: 43, 202, [loads(2, Bytes(4)), stores(1, Pointed(2)), stores(2, Bytes(4))];
    SYS_access: 21, NONE, [loads(0, String)];
    SYS_bind: 49, 200, [loads(1, Arg(2))];
    SYS_capget: 125, 90, [loads(0, Bytes(8)), stores(1, Bytes(24))];
    SYS_capset: 126, 91, [loads(0, Bytes(8)), loads(1, Bytes(24))];
    SYS_chdir: 80, 49, [loads(0, String)];
    SYS_chmod: 90, NONE, [loads(0, String)];
    SYS_chown: 92, NONE, [loads(0, String)];
    SYS_chroot: 161, 51, [loads(0, String)];
    SYS_clock_getres: 229, 114, [stores(1, Bytes(16))];
    SYS_clock_gettime: 228, 113, [stores(1, Bytes(16))];
    SYS_clock_nanosleep: 230, 115, [loads(2, Bytes(16))];
    SYS_connect: 42, 203, [loads(1, Arg(2))];
    SYS_copy_file_range: 326, 285, [loads(1, Bytes(8)), loads(3, Bytes(8)), stores(1, Bytes(8)), stores(3, Bytes(8))];
    SYS_creat: 85, NONE, [loads(0, String)];
    SYS_epoll_ctl: 233, 21, [loads(3, Sized(EPOLL_EVENT))];
    SYS_epoll_pwait2: 441, 441, [loads(3, Bytes(16)), loads(4, Bytes(8)), stores(1, Results(EPOLL_EVENT))];
    SYS_epoll_pwait: 281, 22, [loads(4, Bytes(8)), stores(1, Results(EPOLL_EVENT))];
    SYS_epoll_wait: 232, NONE, [stores(1, Results(EPOLL_EVENT))];
    SYS_execve: 59, 221, [loads(0, String)];
    SYS_execveat: 322, 281, [loads(1, String)];
    SYS_faccessat2: 439, 439, [loads(1, String)];
    SYS_faccessat: 269, 48, [loads(1, String)];
    SYS_fchmodat: 268, 53, [loads(1, String)];
    SYS_fchownat: 260, 54, [loads(1, String)];
    SYS_fcntl: 72, 25, [loads(2, Fcntl), stores(2, Fcntl)];
    SYS_fgetxattr: 193, 10, [loads(1, String), stores(2, Result)];
    SYS_flistxattr: 196, 13, [stores(1, Result)];
    SYS_fremovexattr: 199, 16, [loads(1, String)];
    SYS_fsetxattr: 190, 7, [loads(1, String), loads(2, Arg(3))];
    SYS_fstat: 5, 80, [stores(1, STAT)];
    SYS_fstatfs: 138, 44, [stores(1, Bytes(120))];
    SYS_futex: 202, 98, [loads(0, Futex), loads(3, Futex)];
    SYS_getcpu: 309, 168, [stores(0, Bytes(4)), stores(1, Bytes(4))];
    SYS_getcwd: 79, 17, [stores(0, Result)];
    SYS_getdents64: 217, 61, [stores(1, Result)];
    SYS_getgroups: 115, 158, [stores(1, Results(Size::of(4)))];
    SYS_getitimer: 36, 102, [stores(1, Bytes(32))];
    SYS_getpeername: 52, 205, [loads(2, Bytes(4)), stores(1, Pointed(2)), stores(2, Bytes(4))];
    SYS_getrandom: 318, 278, [stores(0, Result)];
    SYS_getresgid: 120, 150, [stores(0, Bytes(4)), stores(1, Bytes(4)), stores(2, Bytes(4))];
    SYS_getresuid: 118, 148, [stores(0, Bytes(4)), stores(1, Bytes(4)), stores(2, Bytes(4))];
    SYS_getrlimit: 97, 163, [stores(1, Bytes(16))];
    SYS_getrusage: 98, 165, [stores(1, Bytes(144))];
    SYS_getsockname: 51, 204, [loads(2, Bytes(4)), stores(1, Pointed(2)), stores(2, Bytes(4))];
    SYS_getsockopt: 55, 209, [loads(4, Bytes(4)), stores(3, Pointed(4)), stores(4, Bytes(4))];
    SYS_gettimeofday: 96, 169, [stores(0, Bytes(16)), stores(1, Bytes(8))];
    SYS_getxattr: 191, 8, [loads(0, String), loads(1, String), stores(2, Result)];
    SYS_inotify_add_watch: 254, 27, [loads(1, String)];
    SYS_ioctl: 16, 29, [loads(2, Ioctl), stores(2, Ioctl)];
    SYS_lchown: 94, NONE, [loads(0, String)];
    SYS_lgetxattr: 192, 9, [loads(0, String), loads(1, String), stores(2, Result)];
    SYS_link: 86, NONE, [loads(0, String), loads(1, String)];
    SYS_linkat: 265, 37, [loads(1, String), loads(3, String)];
    SYS_listxattr: 194, 11, [loads(0, String), stores(1, Result)];
    SYS_llistxattr: 195, 12, [loads(0, String), stores(1, Result)];
    SYS_lremovexattr: 198, 15, [loads(0, String), loads(1, String)];
    SYS_lsetxattr: 189, 6, [loads(0, String), loads(1, String), loads(2, Arg(3))];
    SYS_lstat: 6, NONE, [loads(0, String), stores(1, STAT)];
    SYS_memfd_create: 319, 279, [loads(0, String)];
    SYS_mincore: 27, 232, [stores(2, Pages(1))];
    SYS_mkdir: 83, NONE, [loads(0, String)];
    SYS_mkdirat: 258, 34, [loads(1, String)];
    SYS_mknod: 133, NONE, [loads(0, String)];
    SYS_mknodat: 259, 33, [loads(1, String)];
    SYS_msgrcv: 70, 188, [stores(1, Result)];
    SYS_msgsnd: 69, 189, [loads(1, Arg(2))];
    SYS_nanosleep: 35, 101, [loads(0, Bytes(16))];
    SYS_newfstatat: 262, 79, [loads(1, String), stores(2, STAT)];
    SYS_open: 2, NONE, [loads(0, String)];
    SYS_openat2: 437, 437, [loads(1, String), loads(2, Arg(3))];
    SYS_openat: 257, 56, [loads(1, String)];
    SYS_pipe2: 293, 59, [stores(0, Bytes(8))];
    SYS_pipe: 22, NONE, [stores(0, Bytes(8))];
    SYS_poll: 7, NONE, [loads(0, Args(1, 8)), stores(0, Args(1, 8))];
    SYS_ppoll: 271, 73, [loads(0, Args(1, 8)), loads(2, Bytes(16)), loads(3, Bytes(8)), stores(0, Args(1, 8)), stores(2, Bytes(16))];
    SYS_prctl: 157, 167, [loads(1, Prctl), stores(1, Prctl), loads(4, Prctl)];
    SYS_pread64: 17, 67, [stores(1, Result)];
    SYS_preadv2: 327, 286, [stores(1, Vector(2))];
    SYS_preadv: 295, 69, [stores(1, Vector(2))];
    SYS_prlimit64: 302, 261, [loads(2, Bytes(16)), stores(3, Bytes(16))];
    SYS_process_madvise: 440, 440, [loads(1, Args(2, 16))];
    SYS_process_vm_readv: 310, 270, [loads(3, Args(4, 16)), stores(1, Vector(2))];
    SYS_process_vm_writev: 311, 271, [loads(1, Vector(2)), loads(3, Args(4, 16))];
    SYS_pselect6: 270, 72, [loads(1, Bits(0)), loads(2, Bits(0)), loads(3, Bits(0)), loads(4, Bytes(16)), loads(5, Bytes(16)), stores(1, Bits(0)), stores(2, Bits(0)), stores(3, Bits(0)), stores(4, Bytes(16))];
    SYS_pwrite64: 18, 68, [loads(1, Data(2))];
    SYS_pwritev2: 328, 287, [loads(1, Vector(2))];
    SYS_pwritev: 296, 70, [loads(1, Vector(2))];
    SYS_read: 0, 63, [stores(1, Result)];
    SYS_readlink: 89, NONE, [loads(0, String), stores(1, Result)];
    SYS_readlinkat: 267, 78, [loads(1, String), stores(2, Result)];
    SYS_readv: 19, 65, [stores(1, Vector(2))];
    SYS_recvfrom: 45, 207, [loads(5, Bytes(4)), stores(1, Result), stores(4, Pointed(5)), stores(5, Bytes(4))];
    SYS_recvmmsg: 299, 243, [loads(1, Args(2, 64)), loads(4, Bytes(16)), stores(1, Messages(2))];
    SYS_recvmsg: 47, 212, [loads(1, Bytes(56)), stores(1, Message)];
    SYS_removexattr: 197, 14, [loads(0, String), loads(1, String)];
    SYS_rename: 82, NONE, [loads(0, String), loads(1, String)];
    SYS_renameat2: 316, 276, [loads(1, String), loads(3, String)];
    SYS_renameat: 264, 38, [loads(1, String), loads(3, String)];
    SYS_rmdir: 84, NONE, [loads(0, String)];
    SYS_rt_sigaction: 13, 134, [loads(1, Bytes(32)), stores(2, Bytes(32))];
    SYS_rt_sigpending: 127, 136, [stores(0, Bytes(8))];
    SYS_rt_sigprocmask: 14, 135, [loads(1, Bytes(8)), stores(2, Bytes(8))];
    SYS_rt_sigsuspend: 130, 133, [loads(0, Bytes(8))];
    SYS_rt_sigtimedwait: 128, 137, [loads(0, Bytes(8)), loads(2, Bytes(16)), stores(1, Bytes(128))];
    SYS_sched_getaffinity: 204, 123, [stores(2, Result)];
    SYS_sched_getparam: 143, 121, [stores(1, Bytes(4))];
    SYS_sched_rr_get_interval: 148, 127, [stores(1, Bytes(16))];
    SYS_sched_setaffinity: 203, 122, [loads(2, Arg(1))];
    SYS_sched_setparam: 142, 118, [loads(1, Bytes(4))];
    SYS_sched_setscheduler: 144, 119, [loads(2, Bytes(4))];
    SYS_select: 23, NONE, [loads(1, Bits(0)), loads(2, Bits(0)), loads(3, Bits(0)), loads(4, Bytes(16)), stores(1, Bits(0)), stores(2, Bits(0)), stores(3, Bits(0)), stores(4, Bytes(16))];
    SYS_semop: 65, 193, [loads(1, Args(2, 6))];
    SYS_sendfile: 40, 71, [loads(2, Bytes(8)), stores(2, Bytes(8))];
    SYS_sendmmsg: 307, 269, [loads(1, Messages(2)), stores(1, Results(MMSGHDR))];
    SYS_sendmsg: 46, 211, [loads(1, Message)];
    SYS_sendto: 44, 206, [loads(1, Data(2)), loads(4, Arg(5))];
    SYS_setgroups: 116, 159, [loads(1, Args(0, 4))];
    SYS_setitimer: 38, 103, [loads(1, Bytes(32)), stores(2, Bytes(32))];
    SYS_setrlimit: 160, 164, [loads(1, Bytes(16))];
    SYS_setsockopt: 54, 208, [loads(3, Arg(4))];
    SYS_setxattr: 188, 5, [loads(0, String), loads(1, String), loads(2, Arg(3))];
    SYS_sigaltstack: 131, 132, [loads(0, Bytes(24)), stores(1, Bytes(24))];
    SYS_signalfd4: 289, 74, [loads(1, Arg(2))];
    SYS_socketpair: 53, 199, [stores(3, Bytes(8))];
    SYS_splice: 275, 76, [loads(1, Bytes(8)), loads(3, Bytes(8)), stores(1, Bytes(8)), stores(3, Bytes(8))];
    SYS_stat: 4, NONE, [loads(0, String), stores(1, STAT)];
    SYS_statfs: 137, 43, [loads(0, String), stores(1, Bytes(120))];
    SYS_statx: 332, 291, [loads(1, String), stores(4, Bytes(256))];
    SYS_symlink: 88, NONE, [loads(0, String), loads(1, String)];
    SYS_symlinkat: 266, 36, [loads(0, String), loads(2, String)];
    SYS_sysinfo: 99, 179, [stores(0, Bytes(112))];
    SYS_time: 201, NONE, [stores(0, Bytes(8))];
    SYS_timer_create: 222, 107, [loads(1, Bytes(64)), stores(2, Bytes(4))];
    SYS_timer_gettime: 224, 108, [stores(1, Bytes(32))];
    SYS_timer_settime: 223, 110, [loads(2, Bytes(32)), stores(3, Bytes(32))];
    SYS_timerfd_gettime: 287, 87, [stores(1, Bytes(32))];
    SYS_timerfd_settime: 286, 86, [loads(2, Bytes(32)), stores(3, Bytes(32))];
    SYS_times: 100, 153, [stores(0, Bytes(32))];
    SYS_truncate: 76, 45, [loads(0, String)];
    SYS_uname: 63, 160, [stores(0, Bytes(390))];
    SYS_unlink: 87, NONE, [loads(0, String)];
    SYS_unlinkat: 263, 35, [loads(1, String)];
    SYS_utimensat: 280, 88, [loads(1, String), loads(2, Bytes(32))];
    SYS_vmsplice: 278, 75, [loads(1, Vector(2))];
    SYS_wait4: 61, 260, [stores(1, IfAny(4)), stores(3, IfAny(144))];
    SYS_waitid: 247, 95, [stores(2, Bytes(128)), stores(4, Bytes(144))];
    SYS_write: 1, 64, [loads(1, Data(2))];
    SYS_writev: 20, 66, [loads(1, Vector(2))];
}

static X86_64: [&[Buffer]; NR_KNOWN] = table(Arch::X86_64);
static ARM64: [&[Buffer]; NR_KNOWN] = table(Arch::Arm64);

const fn table(arch: Arch) -> [&'static [Buffer]; NR_KNOWN] {
    let mut table: [&[Buffer]; NR_KNOWN] = [&[]; NR_KNOWN];
    let mut index = 0;
    while index < ROWS.len() {
        let number = match arch {
            Arch::X86_64 => ROWS[index].x86_64,
            Arch::Arm64 => ROWS[index].arm64,
        };
        if number != NONE {
            table[number] = ROWS[index].buffers;
        }
        index += 1;
    }
    table
}

pub(super) fn buffers_of(arch: Arch, number: i64) -> &'static [Buffer] {
    let table = match arch {
        Arch::X86_64 => &X86_64,
        Arch::Arm64 => &ARM64,
    };
    usize::try_from(number).ok().and_then(|number| table.get(number)).copied().unwrap_or(&[])
}

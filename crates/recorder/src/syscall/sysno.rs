//! System call numbers.
//!
//! Owns the calls' names and their numbers on each architecture. The recorded program's
//! architecture can differ from the machine's.

use crate::arch::Arch;

const NONE: usize = usize::MAX;

/// Only numbers below this are looked up.
const NR_KNOWN: usize = 512;

macro_rules! sysnos {
    ($($call:ident: $x86_64:expr, $arm64:expr;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(super) enum Sysno {
            $($call,)*
            Other,
        }

        static X86_64: [Sysno; NR_KNOWN] = table(&[$((Sysno::$call, $x86_64)),*]);
        static ARM64: [Sysno; NR_KNOWN] = table(&[$((Sysno::$call, $arm64)),*]);
    };
}

sysnos! {
    Accept: 43, 202;
    Accept4: 288, 242;
    Brk: 12, 214;
    ClockNanosleep: 230, 115;
    Clone: 56, 220;
    Clone3: 435, 435;
    Close: 3, 57;
    CloseRange: 436, 436;
    Connect: 42, 203;
    CopyFileRange: 326, 285;
    Creat: 85, NONE;
    Dup: 32, 23;
    Dup2: 33, NONE;
    Dup3: 292, 24;
    EpollPwait: 281, 22;
    EpollPwait2: 441, 441;
    EpollWait: 232, NONE;
    Execve: 59, 221;
    Execveat: 322, 281;
    Exit: 60, 93;
    ExitGroup: 231, 94;
    Fadvise64: 221, 223;
    Fallocate: 285, 47;
    Fcntl: 72, 25;
    Fdatasync: 75, 83;
    Flock: 73, 32;
    Fork: 57, NONE;
    Fsync: 74, 82;
    Ftruncate: 77, 46;
    Futex: 202, 98;
    Kill: 62, 129;
    Madvise: 28, 233;
    Mbind: 237, 235;
    MemfdCreate: 319, 279;
    Mlock: 149, 228;
    Mlock2: 325, 284;
    Mlockall: 151, 230;
    Mmap: 9, 222;
    Mprotect: 10, 226;
    Mremap: 25, 216;
    Msgrcv: 70, 188;
    Msgsnd: 69, 189;
    Msync: 26, 227;
    Munlock: 150, 229;
    Munlockall: 152, 231;
    Munmap: 11, 215;
    Nanosleep: 35, 101;
    Open: 2, NONE;
    Openat: 257, 56;
    Openat2: 437, 437;
    Pause: 34, NONE;
    PidfdSendSignal: 424, 424;
    Poll: 7, NONE;
    Ppoll: 271, 73;
    Prctl: 157, 167;
    Pread64: 17, 67;
    Preadv: 295, 69;
    Preadv2: 327, 286;
    Pselect6: 270, 72;
    Pwrite64: 18, 68;
    Pwritev: 296, 70;
    Pwritev2: 328, 287;
    Read: 0, 63;
    Readahead: 187, 213;
    Readv: 19, 65;
    Recvfrom: 45, 207;
    Recvmmsg: 299, 243;
    Recvmsg: 47, 212;
    Rename: 82, NONE;
    Renameat: 264, 38;
    Renameat2: 316, 276;
    RtSigprocmask: 14, 135;
    RtSigqueueinfo: 129, 138;
    RtSigsuspend: 130, 133;
    RtSigtimedwait: 128, 137;
    SchedYield: 24, 124;
    Select: 23, NONE;
    Semop: 65, 193;
    Semtimedop: 220, 192;
    Sendfile: 40, 71;
    Sendmmsg: 307, 269;
    Sendmsg: 46, 211;
    Sendto: 44, 206;
    SetMempolicy: 238, 237;
    Shmat: 30, 196;
    Shmdt: 67, 197;
    Shutdown: 48, 210;
    Splice: 275, 76;
    Sync: 162, 81;
    SyncFileRange: 277, 84;
    Syncfs: 306, 267;
    Tee: 276, 77;
    Tgkill: 234, 131;
    Tkill: 200, 130;
    Truncate: 76, 45;
    Unlink: 87, NONE;
    Unlinkat: 263, 35;
    Vfork: 58, NONE;
    Vmsplice: 278, 75;
    Wait4: 61, 260;
    Waitid: 247, 95;
    Write: 1, 64;
    Writev: 20, 66;
}

const fn table(calls: &[(Sysno, usize)]) -> [Sysno; NR_KNOWN] {
    let mut table = [Sysno::Other; NR_KNOWN];
    let mut index = 0;
    while index < calls.len() {
        let (call, number) = calls[index];
        if number != NONE {
            table[number] = call;
        }
        index += 1;
    }
    table
}

impl Sysno {
    pub(super) fn of(arch: Arch, number: i64) -> Self {
        let table = match arch {
            Arch::X86_64 => &X86_64,
            Arch::Arm64 => &ARM64,
        };
        let index = usize::try_from(number).unwrap_or(usize::MAX);
        table.get(index).copied().unwrap_or(Self::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::Sysno::*;
    use super::*;

    const COMMON: &[(Sysno, i64)] = &[
        (Accept, libc::SYS_accept),
        (Accept4, libc::SYS_accept4),
        (Brk, libc::SYS_brk),
        (ClockNanosleep, libc::SYS_clock_nanosleep),
        (Clone, libc::SYS_clone),
        (Clone3, libc::SYS_clone3),
        (Close, libc::SYS_close),
        (CloseRange, libc::SYS_close_range),
        (Connect, libc::SYS_connect),
        (CopyFileRange, libc::SYS_copy_file_range),
        (Dup, libc::SYS_dup),
        (Dup3, libc::SYS_dup3),
        (EpollPwait, libc::SYS_epoll_pwait),
        (EpollPwait2, libc::SYS_epoll_pwait2),
        (Execve, libc::SYS_execve),
        (Execveat, libc::SYS_execveat),
        (Exit, libc::SYS_exit),
        (ExitGroup, libc::SYS_exit_group),
        (Fadvise64, libc::SYS_fadvise64),
        (Fallocate, libc::SYS_fallocate),
        (Fcntl, libc::SYS_fcntl),
        (Fdatasync, libc::SYS_fdatasync),
        (Flock, libc::SYS_flock),
        (Fsync, libc::SYS_fsync),
        (Ftruncate, libc::SYS_ftruncate),
        (Futex, libc::SYS_futex),
        (Kill, libc::SYS_kill),
        (Madvise, libc::SYS_madvise),
        (Mbind, libc::SYS_mbind),
        (MemfdCreate, libc::SYS_memfd_create),
        (Mlock, libc::SYS_mlock),
        (Mlock2, libc::SYS_mlock2),
        (Mlockall, libc::SYS_mlockall),
        (Mmap, libc::SYS_mmap),
        (Mprotect, libc::SYS_mprotect),
        (Mremap, libc::SYS_mremap),
        (Msgrcv, libc::SYS_msgrcv),
        (Msgsnd, libc::SYS_msgsnd),
        (Msync, libc::SYS_msync),
        (Munlock, libc::SYS_munlock),
        (Munlockall, libc::SYS_munlockall),
        (Munmap, libc::SYS_munmap),
        (Nanosleep, libc::SYS_nanosleep),
        (Openat, libc::SYS_openat),
        (Openat2, libc::SYS_openat2),
        (PidfdSendSignal, libc::SYS_pidfd_send_signal),
        (Ppoll, libc::SYS_ppoll),
        (Prctl, libc::SYS_prctl),
        (Pread64, libc::SYS_pread64),
        (Preadv, libc::SYS_preadv),
        (Preadv2, libc::SYS_preadv2),
        (Pselect6, libc::SYS_pselect6),
        (Pwrite64, libc::SYS_pwrite64),
        (Pwritev, libc::SYS_pwritev),
        (Pwritev2, libc::SYS_pwritev2),
        (Read, libc::SYS_read),
        (Readahead, libc::SYS_readahead),
        (Readv, libc::SYS_readv),
        (Recvfrom, libc::SYS_recvfrom),
        (Recvmmsg, libc::SYS_recvmmsg),
        (Recvmsg, libc::SYS_recvmsg),
        (Renameat, libc::SYS_renameat),
        (Renameat2, libc::SYS_renameat2),
        (RtSigprocmask, libc::SYS_rt_sigprocmask),
        (RtSigqueueinfo, libc::SYS_rt_sigqueueinfo),
        (RtSigsuspend, libc::SYS_rt_sigsuspend),
        (RtSigtimedwait, libc::SYS_rt_sigtimedwait),
        (SchedYield, libc::SYS_sched_yield),
        (Semop, libc::SYS_semop),
        (Semtimedop, libc::SYS_semtimedop),
        (Sendfile, libc::SYS_sendfile),
        (Sendmmsg, libc::SYS_sendmmsg),
        (Sendmsg, libc::SYS_sendmsg),
        (Sendto, libc::SYS_sendto),
        (SetMempolicy, libc::SYS_set_mempolicy),
        (Shmat, libc::SYS_shmat),
        (Shmdt, libc::SYS_shmdt),
        (Shutdown, libc::SYS_shutdown),
        (Splice, libc::SYS_splice),
        (Sync, libc::SYS_sync),
        (SyncFileRange, libc::SYS_sync_file_range),
        (Syncfs, libc::SYS_syncfs),
        (Tee, libc::SYS_tee),
        (Tgkill, libc::SYS_tgkill),
        (Tkill, libc::SYS_tkill),
        (Truncate, libc::SYS_truncate),
        (Unlinkat, libc::SYS_unlinkat),
        (Vmsplice, libc::SYS_vmsplice),
        (Wait4, libc::SYS_wait4),
        (Waitid, libc::SYS_waitid),
        (Write, libc::SYS_write),
        (Writev, libc::SYS_writev),
    ];

    #[test]
    fn numbers_of_this_architecture_are_those_of_the_c_library() {
        let own = if cfg!(target_arch = "x86_64") { Arch::X86_64 } else { Arch::Arm64 };
        for &(call, number) in COMMON {
            assert_eq!(Sysno::of(own, number), call);
        }
    }

    #[test]
    fn a_number_means_another_call_on_another_architecture() {
        assert_eq!((Sysno::of(Arch::X86_64, 222), Sysno::of(Arch::Arm64, 222)), (Other, Mmap));
        for arch in Arch::ALL {
            for number in [-1, 511, 512, i64::MIN, i64::MAX] {
                assert_eq!(Sysno::of(arch, number), Other);
            }
            let nr = (0..512).filter(|&number| Sysno::of(arch, number) != Other).count();
            let nr_missing = if arch == Arch::Arm64 { 11 } else { 0 };
            assert_eq!(nr, COMMON.len() + 11 - nr_missing);
        }
    }
}

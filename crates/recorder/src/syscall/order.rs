//! Keeps the accesses of different processes in order.
//!
//! A thread sends its rows late: when its tail is full, or before its next event. Before a call that
//! can wait for another process, or wake it, the thread sends them at once. So they precede the other
//! process's next accesses.

use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;

use super::sysno::Sysno;
use super::{Call, low};
use crate::arguments::Arguments;
use crate::{send, sys};

/// Whether this process has a parent or children that are recorded.
static HAS_RELATIVES: AtomicBool = AtomicBool::new(false);

pub(super) fn forked() {
    HAS_RELATIVES.store(true, Relaxed);
}

pub(super) fn before(call: &Call) {
    let is_executed = || Arguments::kept().is_some_and(|kept| kept.generation > 0);
    if (HAS_RELATIVES.load(Relaxed) || is_executed()) && may_wait_or_wake(call) {
        send::flush(call.tail);
    }
}

/// Whether other processes may run until the call returns, or because of it.
fn may_wait_or_wake(call: &Call) -> bool {
    match call.sysno {
        // A call on a regular file does not wait.
        Sysno::Read | Sysno::Readv | Sysno::Write | Sysno::Writev => {
            sys::position(call.descriptor(0)).is_none()
        }
        Sysno::Futex => low(call.args[1]).cast_signed() & libc::FUTEX_PRIVATE_FLAG == 0,
        Sysno::Accept
        | Sysno::Accept4
        | Sysno::ClockNanosleep
        | Sysno::Connect
        | Sysno::EpollPwait
        | Sysno::EpollPwait2
        | Sysno::EpollWait
        | Sysno::Flock
        | Sysno::Kill
        | Sysno::Msgrcv
        | Sysno::Msgsnd
        | Sysno::Nanosleep
        | Sysno::Pause
        | Sysno::PidfdSendSignal
        | Sysno::Poll
        | Sysno::Ppoll
        | Sysno::Pselect6
        | Sysno::Recvfrom
        | Sysno::Recvmmsg
        | Sysno::Recvmsg
        | Sysno::RtSigqueueinfo
        | Sysno::RtSigsuspend
        | Sysno::RtSigtimedwait
        | Sysno::SchedYield
        | Sysno::Select
        | Sysno::Semop
        | Sysno::Semtimedop
        | Sysno::Sendmmsg
        | Sysno::Sendmsg
        | Sysno::Sendto
        | Sysno::Shutdown
        | Sysno::Splice
        | Sysno::Tee
        | Sysno::Tgkill
        | Sysno::Tkill
        | Sysno::Vmsplice
        | Sysno::Wait4
        | Sysno::Waitid => true,
        _ => false,
    }
}

//! SIGINT, SIGTERM and SIGHUP during recording, SIGXFSZ in folio, and SIGPIPE in started programs.
//!
//! A signal from the terminal also reaches the recorded program (same process group). The caller
//! forwards a signal that `kill` sent only to folio. A program may ignore SIGINT, so the second one
//! is passed on as SIGTERM, and each further one as SIGKILL. Invariant S1: dropping `Signals`
//! restores the earlier dispositions.

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32};

const WATCHED: [i32; 4] = [libc::SIGINT, libc::SIGQUIT, libc::SIGTERM, libc::SIGHUP];

static SENT: AtomicI32 = AtomicI32::new(0);

/// Last signal of any kind, 0 for none.
static SEEN: AtomicI32 = AtomicI32::new(0);

static NR_INTERRUPTS: AtomicU32 = AtomicU32::new(0);

static NR_WATCHING: AtomicU32 = AtomicU32::new(0);

#[derive(Debug)]
pub struct Signals {
    earlier: Vec<(i32, libc::sigaction)>,
    sent: &'static AtomicI32,
    received: &'static AtomicI32,
}

extern "C" fn note(signal: i32, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo.
    let code = unsafe { (*info).si_code };
    SEEN.store(signal, Relaxed);
    let nr_before = if signal == libc::SIGINT { NR_INTERRUPTS.fetch_add(1, Relaxed) } else { 0 };
    match nr_before {
        // SI_USER and below: kill, tgkill, sigqueue. The terminal's signals are SI_KERNEL.
        0 if code <= libc::SI_USER => SENT.store(signal, Relaxed),
        0 => {}
        1 => SENT.store(libc::SIGTERM, Relaxed),
        _ => SENT.store(libc::SIGKILL, Relaxed),
    }
}

impl Signals {
    /// Installs the handlers. A signal that is ignored (nohup) stays ignored.
    pub fn watch() -> io::Result<Self> {
        // A watcher inside another one must not forget what arrived.
        if NR_WATCHING.fetch_add(1, Relaxed) == 0 {
            SENT.store(0, Relaxed);
            SEEN.store(0, Relaxed);
            NR_INTERRUPTS.store(0, Relaxed);
        }
        let mut signals = Self { earlier: Vec::new(), sent: &SENT, received: &SEEN };
        for signal in WATCHED {
            // SAFETY: an all-zero sigaction is valid: default disposition, empty mask.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: as above.
            let mut earlier: libc::sigaction = unsafe { std::mem::zeroed() };
            action.sa_sigaction = note as *const () as libc::sighandler_t;
            action.sa_flags = libc::SA_SIGINFO;
            set(signal, &action, &mut earlier)?;
            if earlier.sa_sigaction == libc::SIG_IGN {
                set(signal, &earlier, &mut action)?;
            } else {
                signals.earlier.push((signal, earlier));
            }
        }
        Ok(signals)
    }

    #[must_use]
    pub fn take(&self) -> Option<i32> {
        Some(self.sent.swap(0, Relaxed)).filter(|signal| *signal != 0)
    }

    #[must_use]
    pub fn received(&self) -> Option<i32> {
        Some(self.received.load(Relaxed)).filter(|signal| *signal != 0)
    }
}

/// Notes Ctrl-C and similar signals, for work that ends at its next step and cleans up.
#[derive(Debug)]
pub struct Stop(Signals);

impl Stop {
    /// Notes signals until this is dropped.
    ///
    /// # Errors
    /// If a handler cannot be installed.
    pub fn watch() -> io::Result<Self> {
        Signals::watch().map(Self)
    }

    #[must_use]
    pub fn asked_by(&self) -> Option<i32> {
        self.0.received()
    }
}

/// Makes a write beyond the file size limit (`ulimit -f`) fail with `EFBIG` instead of ending this
/// process by SIGXFSZ. Started programs get our original disposition: execve(2) removes handlers,
/// and an ignored signal stays ignored.
///
/// # Errors
/// If the handler cannot be installed.
pub fn outlive_file_limit() -> io::Result<()> {
    // SAFETY: an all-zero sigaction is valid: default disposition, empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: as above.
    let mut earlier: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = pass as *const () as libc::sighandler_t;
    action.sa_flags = libc::SA_RESTART;
    set(libc::SIGXFSZ, &action, &mut earlier)?;
    if earlier.sa_sigaction == libc::SIG_IGN {
        set(libc::SIGXFSZ, &earlier, &mut action)?;
    }
    Ok(())
}

/// Whether this process was started with SIGPIPE ignored, as services are.
static IGNORES_PIPE: AtomicBool = AtomicBool::new(false);

/// Called by the loader. By the time `main` begins, the Rust runtime has already ignored the
/// signal.
#[used]
#[unsafe(link_section = ".init_array")]
static AT_START: extern "C" fn() = note_pipe;

extern "C" fn note_pipe() {
    // SAFETY: an all-zero sigaction is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: `action` is a whole sigaction, and the call changes nothing.
    let result = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut action) };
    IGNORES_PIPE.store(result == 0 && action.sa_sigaction == libc::SIG_IGN, Relaxed);
}

/// Gives the program of `command` this process's original SIGPIPE disposition. std would reset it
/// to the default.
pub(crate) fn hand_on(command: &mut Command) {
    if !IGNORES_PIPE.load(Relaxed) {
        return;
    }
    let ignore = || {
        // SAFETY: signal(2) is async-signal-safe and stores no pointer.
        let earlier = unsafe { libc::signal(libc::SIGPIPE, libc::SIG_IGN) };
        if earlier == libc::SIG_ERR { Err(io::Error::last_os_error()) } else { Ok(()) }
    };
    // SAFETY: the function only makes a system call.
    unsafe { command.pre_exec(ignore) };
}

/// Does nothing: the failed call returns the error.
extern "C" fn pass(_signal: i32) {}

fn set(signal: i32, action: &libc::sigaction, earlier: &mut libc::sigaction) -> io::Result<()> {
    // SAFETY: both point to whole sigactions; the handlers change atomics at most, which is
    // async-signal-safe.
    let result = unsafe { libc::sigaction(signal, action, earlier) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

impl Drop for Signals {
    fn drop(&mut self) {
        NR_WATCHING.fetch_sub(1, Relaxed);
        for (signal, earlier) in &self.earlier {
            // SAFETY: an all-zero sigaction is valid.
            let mut ours: libc::sigaction = unsafe { std::mem::zeroed() };
            let _ = set(*signal, earlier, &mut ours);
        }
    }
}

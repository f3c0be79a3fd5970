//! Traces a program and its children with ptrace, stopped at every system call.
//!
//! Owns the stops; the [`Observer`] interprets the calls. While an observer runs, its thread is
//! stopped.
//!
//! Invariant T1: no traced process outlives [`run`], which uses `PTRACE_O_EXITKILL` and waits for
//! the end.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::mem::MaybeUninit;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::ptr;
use std::sync::atomic::AtomicI32;
use std::sync::atomic::Ordering::Relaxed;

use rustix::process::getpid;

use super::births::{BirthStop, Births};
use largefolio_linux::helpers;
use largefolio_linux::signals::Signals;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Call {
    pub(crate) nr: i64,
    pub(crate) args: [u64; 6],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Birth {
    /// `fork`: a copy of the address space.
    Fork,
    /// `vfork`: the parent's address space until it executes a program.
    Vfork,
    /// `clone`: a thread, or a process with any flags.
    Clone,
}

pub(crate) trait Observer {
    /// The first process is about to call `execve`.
    fn starts(&mut self, tid: i32) -> io::Result<()>;
    fn enters(&mut self, tid: i32, call: &Call) -> io::Result<()>;
    fn leaves(&mut self, tid: i32, call: &Call, result: i64) -> io::Result<()>;
    /// A new program is mapped but has not run yet.
    fn executes(&mut self, tid: i32) -> io::Result<()>;
    /// A thread is about to end; its memory is still there.
    fn exits(&mut self, _tid: i32) -> io::Result<()> {
        Ok(())
    }
    fn ends(&mut self, tid: i32);
    /// A child exists but has not run yet.
    fn births(&mut self, tid: i32, child: i32, how: Birth) -> io::Result<()>;
}

/// The program to run, prepared before the fork, because nothing may allocate after it.
#[derive(Debug)]
pub(crate) struct TracedProgram {
    path: CString,
    arguments: Vec<CString>,
    environment: Vec<CString>,
    /// Whether the kernel chooses addresses at random, as usual.
    has_random_addresses: bool,
}

/// The program's CPU; `None` for any.
pub(crate) type Cpu = Option<usize>;

/// The exit status if `execve` fails: the shell's "found but not executable".
const EXIT_NOT_EXECUTED: i32 = 126;
/// Set in the signal of a system call stop (`PTRACE_O_TRACESYSGOOD`).
const SYSCALL_STOP: i32 = libc::SIGTRAP | 0x80;

impl TracedProgram {
    /// `arguments` includes the name; `environment` is `KEY=VALUE`.
    pub(crate) fn new(path: CString, arguments: Vec<CString>, environment: Vec<CString>) -> Self {
        Self { path, arguments, environment, has_random_addresses: true }
    }

    /// The kernel always chooses the same addresses.
    pub(crate) fn with_fixed_addresses(self) -> Self {
        Self { has_random_addresses: false, ..self }
    }

    fn spawn(&self, cpu: Cpu) -> io::Result<i32> {
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([ptr::null()]).collect()
        };
        let (arguments, environment) = (pointers(&self.arguments), pointers(&self.environment));
        let set = cpu.map(cpu_set);
        let parent = getpid();
        // SAFETY: the child calls only async-signal-safe functions and never returns.
        let pid = unsafe { libc::fork() };
        if pid != 0 {
            return if pid > 0 { Ok(pid) } else { Err(io::Error::last_os_error()) };
        }
        // If the parent died before tracing the child, the child would stay stopped forever.
        if !helpers::end_with(parent) {
            // SAFETY: ends the child without running the parent's handlers.
            unsafe { libc::_exit(EXIT_NOT_EXECUTED) }
        }
        if let Some(set) = &set {
            // SAFETY: the set is a whole cpu_set_t; failure leaves the program on any CPU.
            unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), set) };
        }
        if !self.has_random_addresses {
            // SAFETY: sets a flag of this process; if it is refused, addresses stay random.
            unsafe { libc::personality(libc::ADDR_NO_RANDOMIZE as libc::c_ulong) };
        }
        // Standard output is reserved for the result. SAFETY: takes two numbers; a program without
        // standard error keeps its output.
        unsafe { libc::dup2(libc::STDERR_FILENO, libc::STDOUT_FILENO) };
        // SAFETY: PTRACE_TRACEME has no further arguments.
        unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
        // SAFETY: stops this process until its tracer continues it.
        unsafe { libc::raise(libc::SIGSTOP) };
        // From here it is traced, and ends with its tracer.
        helpers::end_alone();
        // SAFETY: path and both lists are terminated and live until the call replaces them.
        unsafe { libc::execve(self.path.as_ptr(), arguments.as_ptr(), environment.as_ptr()) };
        // SAFETY: ends the child without running the parent's handlers.
        unsafe { libc::_exit(EXIT_NOT_EXECUTED) }
    }
}

fn cpu_set(cpu: usize) -> libc::cpu_set_t {
    // SAFETY: an all-zero set is the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU_SET checks the number against the set's length.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    set
}

/// The traced program; 0 while nothing is traced.
static TRACED: AtomicI32 = AtomicI32::new(0);

/// Passes a signal on to the traced program. While nothing is traced, the signal stays for others.
pub(crate) fn pass_on(signals: &Signals) {
    let pid = TRACED.load(Relaxed);
    if pid > 0
        && let Some(signal) = signals.take()
    {
        // SAFETY: our own child; its pid is cleared once it has been reaped.
        unsafe { libc::kill(pid, signal) };
    }
}

/// Runs `program` to its end and reports to `watch`; returns the first process's exit status.
pub(crate) fn run(
    program: &TracedProgram,
    cpu: Cpu,
    watch: &mut dyn Observer,
) -> io::Result<ExitStatus> {
    let first = program.spawn(cpu)?;
    TRACED.store(first, Relaxed);
    let mut births = Births::default();
    births.reported(first);
    // `spawn` already waited for its first stop.
    births.stopped(first);
    let mut tracer = Tracer { first, living: BTreeSet::from([first]), births, calls: Vec::new() };
    let result = tracer.follow(watch);
    if result.is_err() {
        tracer.end();
    }
    TRACED.store(0, Relaxed);
    result
}

struct Tracer {
    first: i32,
    /// Threads that were seen and have not ended. Keepers are children too, but not traced.
    living: BTreeSet<i32>,
    births: Births,
    calls: Vec<(i32, Call)>,
}

impl Tracer {
    fn follow(&mut self, watch: &mut dyn Observer) -> io::Result<ExitStatus> {
        let (_, status) = wait()?;
        if !libc::WIFSTOPPED(status) {
            return Ok(ExitStatus::from_raw(status));
        }
        let options = libc::PTRACE_O_TRACESYSGOOD
            | libc::PTRACE_O_TRACEEXEC
            | libc::PTRACE_O_TRACEFORK
            | libc::PTRACE_O_TRACEVFORK
            | libc::PTRACE_O_TRACECLONE
            | libc::PTRACE_O_TRACEEXIT
            | libc::PTRACE_O_EXITKILL;
        let options = usize::try_from(options).unwrap_or(0);
        ptrace(libc::PTRACE_SETOPTIONS, self.first, options)?;
        watch.starts(self.first)?;
        go_on(self.first, 0)?;
        let mut ended = None;
        while !self.living.is_empty() {
            let (tid, status) = match wait() {
                Ok(process) => process,
                Err(error) if error.raw_os_error() == Some(libc::ECHILD) => break,
                Err(error) => return Err(error),
            };
            if libc::WIFSTOPPED(status) {
                self.living.insert(tid);
                if let Some(signal) = self.stopped(tid, status, watch)? {
                    go_on(tid, signal)?;
                }
            } else if self.living.remove(&tid) {
                self.calls.retain(|(other, _)| *other != tid);
                self.births.ended(tid);
                watch.ends(tid);
                if tid == self.first {
                    ended = Some(ExitStatus::from_raw(status));
                }
                if tid == TRACED.load(Relaxed) {
                    // Signals go to a process that is left.
                    TRACED.store(self.living.first().copied().unwrap_or(0), Relaxed);
                }
            }
        }
        ended.ok_or_else(|| io::Error::other("the tracer did not report the program's end"))
    }

    /// Handles a stop; returns the signal to pass on, or `None` if the thread stays stopped.
    fn stopped(
        &mut self,
        tid: i32,
        status: i32,
        watch: &mut dyn Observer,
    ) -> io::Result<Option<i32>> {
        let signal = libc::WSTOPSIG(status);
        match status >> 16 {
            0 if signal == SYSCALL_STOP => self.call(tid, watch).map(|()| Some(0)),
            0 if signal == libc::SIGSTOP => Ok(match self.births.stopped(tid) {
                BirthStop::First => Some(0),
                BirthStop::Early => None,
                BirthStop::Signal => Some(signal),
            }),
            0 => Ok(Some(signal)),
            libc::PTRACE_EVENT_EXEC => {
                // The thread that executes takes over the process's number.
                let earlier = event_message(tid)?;
                if earlier != tid {
                    self.living.remove(&earlier);
                    self.calls.retain(|(other, _)| *other != earlier);
                }
                watch.executes(tid).map(|()| Some(0))
            }
            libc::PTRACE_EVENT_EXIT => watch.exits(tid).map(|()| Some(0)),
            event => {
                let how = match event {
                    libc::PTRACE_EVENT_FORK => Birth::Fork,
                    libc::PTRACE_EVENT_VFORK => Birth::Vfork,
                    libc::PTRACE_EVENT_CLONE => Birth::Clone,
                    _ => return Ok(Some(0)),
                };
                let child = event_message(tid)?;
                self.living.insert(child);
                watch.births(tid, child, how)?;
                if self.births.reported(child) {
                    go_on(child, 0)?;
                }
                Ok(Some(0))
            }
        }
    }

    fn end(&mut self) {
        for &tid in &self.living {
            // SAFETY: our own child, or a thread of one, that has not been waited for.
            unsafe { libc::kill(tid, libc::SIGKILL) };
        }
        while !self.living.is_empty()
            && let Ok((tid, status)) = wait()
        {
            if libc::WIFSTOPPED(status) {
                // A killed thread still stops at its exit.
                let _ = go_on(tid, 0);
            } else {
                self.living.remove(&tid);
            }
        }
    }

    fn call(&mut self, tid: i32, watch: &mut dyn Observer) -> io::Result<()> {
        match syscall_info(tid)? {
            Info::Entry(call) => {
                self.calls.retain(|(other, _)| *other != tid);
                self.calls.push((tid, call));
                watch.enters(tid, &call)
            }
            Info::Exit(result) => {
                let call = self.calls.iter().find(|(other, _)| *other == tid);
                match call.map(|(_, call)| *call) {
                    Some(call) => watch.leaves(tid, &call, result),
                    None => Ok(()),
                }
            }
            Info::Other => Ok(()),
        }
    }
}

enum Info {
    Entry(Call),
    Exit(i64),
    Other,
}

fn syscall_info(tid: i32) -> io::Result<Info> {
    let mut info = MaybeUninit::<libc::ptrace_syscall_info>::zeroed();
    let size = size_of::<libc::ptrace_syscall_info>();
    // SAFETY: the kernel writes at most `size` bytes to the structure.
    let result =
        unsafe { libc::ptrace(libc::PTRACE_GET_SYSCALL_INFO, tid, size, info.as_mut_ptr()) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: zeroed before the call, and all its fields are plain numbers.
    let info = unsafe { info.assume_init() };
    Ok(match info.op {
        libc::PTRACE_SYSCALL_INFO_ENTRY => {
            // SAFETY: `op` says which part of the union was written.
            let entry = unsafe { info.u.entry };
            Info::Entry(Call { nr: i64::try_from(entry.nr).unwrap_or(-1), args: entry.args })
        }
        // SAFETY: as above.
        libc::PTRACE_SYSCALL_INFO_EXIT => Info::Exit(unsafe { info.u.exit }.sval),
        _ => Info::Other,
    })
}

fn event_message(tid: i32) -> io::Result<i32> {
    let mut message: libc::c_ulong = 0;
    let to: *mut libc::c_ulong = &raw mut message;
    // SAFETY: the kernel writes one unsigned long.
    let result = unsafe { libc::ptrace(libc::PTRACE_GETEVENTMSG, tid, 0, to) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    i32::try_from(message).map_err(io::Error::other)
}

fn ptrace(request: libc::c_uint, tid: i32, data: usize) -> io::Result<()> {
    // SAFETY: only for requests with a number as data.
    let result = unsafe { libc::ptrace(request, tid, 0, data) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Continues a thread to its next stop. If it was killed, the next wait reports its end.
fn go_on(tid: i32, signal: i32) -> io::Result<()> {
    let signal = usize::try_from(signal).unwrap_or(0);
    match ptrace(libc::PTRACE_SYSCALL, tid, signal) {
        Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
        result => result,
    }
}

fn wait() -> io::Result<(i32, i32)> {
    let mut status = 0;
    loop {
        // SAFETY: the kernel writes one int.
        let tid = unsafe { libc::waitpid(-1, &raw mut status, libc::__WALL | libc::__WNOTHREAD) };
        if tid > 0 {
            return Ok((tid, status));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

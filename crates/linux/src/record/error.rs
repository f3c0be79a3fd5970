//! Why a recording is not possible: cause and remedy in one sentence each.

use std::io;
use std::path::PathBuf;

use largefolio_trace::TraceError;
use largefolio_trace::shown;
use thiserror::Error;

use crate::timed_run::TimedRunError;

/// Why a recording failed. All but the last four are found before the program starts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    #[error("there is no program to record; put it after `--`, as in `folio record -- ls -l`")]
    NoProgram,
    #[error("{name}: not found in PATH; give its path, as in `./{name}`", name = shown(.0))]
    NotInPath(String),
    #[error("{}: there is no such file; check the path", shown(.0))]
    Missing(PathBuf),
    #[error("{}: this is a directory; name a program in it", shown(.0))]
    Directory(PathBuf),
    #[error(
        "{path}: not executable; run `chmod +x {path}`",
        path = shown(.0)
    )]
    NotExecutable(PathBuf),
    #[error("{}: {source}; the recorder must be able to read the program", shown(path))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error(
        "{path}: neither an ELF program nor a script with a `#!` line; \
         if it is a shell script, record `sh {path}`", path = shown(.0)
    )]
    NotAProgram(PathBuf),
    #[error("{}: its `#!` interpreters form a loop; fix the first line", shown(.0))]
    InterpreterLoop(PathBuf),
    #[error("{}: its interpreter cannot be recorded: {source}", shown(script))]
    Interpreter { script: PathBuf, source: Box<RecordError> },
    #[error("{}: this is a 32-bit program, and only x86-64 and arm64 programs can be recorded; \
        build it for one of these", shown(.0))]
    ThirtyTwoBit(PathBuf),
    #[error(
        "{}: this is a program for {machine}, and only x86-64 and arm64 programs can be recorded; \
         build it for one of these",
        shown(path)
    )]
    ForeignMachine { path: PathBuf, machine: String },
    #[error("{}: this ELF file is not a program (it is an object file, a core dump or damaged); \
        if it is an object file, link it first", shown(.0))]
    NotExecutableElf(PathBuf),
    #[error(
        "{}: cannot write the trace: {source}; choose another place with --output",
        shown(path)
    )]
    Output { path: PathBuf, source: io::Error },
    #[error("{name} not found in PATH{}; get one with `{command}`", hint(why))]
    NoQemu {
        name: &'static str,
        command: String,
        /// Why the QEMU built for `folio` is not used.
        why: String,
    },
    #[error(
        "{}: built without plugins{}; get a QEMU that has them with `{command}`",
        shown(qemu),
        hint(why)
    )]
    QemuWithoutPlugins { qemu: PathBuf, command: String, why: String },
    #[error("{}: no such directory; --root must name a directory with another \
             system's files", shown(.0))]
    NoRoot(PathBuf),
    /// A program of this system, although `--root` names another one.
    #[error(
        "{}: not below {}, so it is a program from this system; omit --root, or name a program \
         below that root",
        shown(path),
        shown(root)
    )]
    NotInRoot { path: PathBuf, root: PathBuf },
    /// The loader of a foreign program is missing.
    #[error(
        "{}: its loader {} is not on this system; use --root to name a directory with the {arch} \
            libraries (mmdebstrap creates one)",
        shown(program),
        shown(loader)
    )]
    NoLoader { program: PathBuf, loader: PathBuf, arch: &'static str },
    #[error(
        "{}: it runs with another user's or group's privileges or with capabilities \
         (set-user-ID), which a recorded program does not get; run folio as that user",
        shown(.0)
    )]
    OtherRights(PathBuf),
    #[error(
        "standard output is the program's own, so the trace cannot go there; write it to a file, such \
         as -o {}",
        shown(.0)
    )]
    ToStdout(PathBuf),
    #[error(
        "--live traces programs that run on this machine, which cannot run programs for {0}; omit \
         --live"
    )]
    NotNativeLive(&'static str),
    #[error(
        "--runs times the program without a recorder, and this machine cannot run programs {0}; \
         omit --runs"
    )]
    NotNative(String),
    #[error("the recorder plugin {} was not found (looked in {}); build it with `cargo build \
        --release -p largefolio-recorder` or name it in LARGEFOLIO_RECORDER",
        crate::library::RECORDER.name, .0)]
    NoPlugin(String),
    /// The plugin uses another protocol version.
    #[error(
        "{}: the recorder plugin and folio have different versions, so nothing was recorded; \
         build both (`make build`), or name the right plugin in LARGEFOLIO_RECORDER", shown(.0)
    )]
    OtherPlugin(PathBuf),
    #[error(
        "{recorder} did not start recording ({status}); run it by hand to see why: \
        {command}"
    )]
    RecorderFailed { recorder: &'static str, status: String, command: String },
    #[error(
        "{command} {how} when it ran without a recorder for --runs, so its time is not valid; run \
         it by hand to see why, or record it without --runs",
        command = shown(command)
    )]
    PlainRunFailed {
        command: PathBuf,
        /// `exited with 1`, `was killed by signal 11`.
        how: String,
    },
    #[error(transparent)]
    PlainRun(#[from] TimedRunError),
    #[error("interrupted before the program started; there is nothing to write")]
    Interrupted(i32),
    #[error("no process {0} is running; pgrep -a NAME finds processes by name")]
    NoProcess(u32),
    #[error("there is no process to record: {0}")]
    NoMatch(String),
    #[error("a live recording uses kernel tracing, which needs root; run `{0}`")]
    NotRoot(String),
    #[error(
        "cannot open tracefs: not permitted; a live recording needs CAP_SYS_ADMIN (in a container: \
         docker run --privileged, or record from the host)"
    )]
    NotPermitted,
    #[error(
        "this kernel has no tracefs (built without CONFIG_TRACING); use a kernel that has it, or \
         record without --live"
    )]
    NoTracefs,
    /// folio runs in a container.
    #[error(
        "this is a PID namespace (a container), and the kernel's events identify processes by \
         their PIDs on the host; run it outside, or in a container that shares the host's PIDs \
         (docker run --pid=host)"
    )]
    PidNamespace,
    #[error(
        "this kernel does not record which pages were written (built without \
         CONFIG_MEM_SOFT_DIRTY), which --hot needs; omit --hot"
    )]
    NoSoftDirty,
    #[error(
        "this kernel has no event {0}; a live recording needs CONFIG_FTRACE_SYSCALLS: use a \
         kernel that has it, or record without --live"
    )]
    NoEvent(String),
    #[error(
        "this kernel does not report page-fault addresses: it has no tracepoint for them, and no \
         probe can be set ({0}); probes need CONFIG_KPROBE_EVENTS. Use a kernel that has it, or \
         record without --live"
    )]
    NoFaults(io::Error),
    #[error("cannot {action}: {source}")]
    Os {
        /// The operation, as a verb.
        action: &'static str,
        source: io::Error,
    },
    /// The trace could not be written. The program ran to its end.
    #[error(transparent)]
    Trace(#[from] TraceError),
}

fn hint(reason: &str) -> String {
    if reason.is_empty() { String::new() } else { format!(" ({reason})") }
}

impl RecordError {
    pub(crate) fn os<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { action, source: source.into() }
    }
}

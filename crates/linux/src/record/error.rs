//! Why a recording cannot be made: cause and remedy in one sentence each.

use std::io;
use std::path::PathBuf;

use largefolio_trace::TraceError;
use largefolio_trace::shown;
use thiserror::Error;

use crate::verify::VerifyError;

/// Failure to record. All but the last four are found before the program starts.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum RecordError {
    /// No program was named.
    #[error("no program to record: put it after `--`, as in `folio record -- ls -l`")]
    NoProgram,
    /// Nothing of that name in `PATH`.
    #[error("{name}: not found in PATH; give its path, as in `./{name}`", name = shown(.0))]
    NotInPath(String),
    /// No such file.
    #[error("{}: no such file; check the path", shown(.0))]
    Missing(PathBuf),
    /// A directory.
    #[error("{}: is a directory; name a program in it", shown(.0))]
    Directory(PathBuf),
    /// No right to execute.
    #[error("{path}: not executable; make it so with `chmod +x {path}`", path = shown(.0))]
    NotExecutable(PathBuf),
    /// Not readable.
    #[error("{}: {source}; the recorder must be able to read the program", shown(path))]
    Unreadable {
        /// Program.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A text file without `#!`.
    #[error(
        "{path}: neither an ELF program nor a script with a `#!` line; \
         if it is a shell script, record `sh {path}`", path = shown(.0)
    )]
    NotAProgram(PathBuf),
    /// Interpreters of interpreters without end.
    #[error("{}: its `#!` interpreters form a loop; fix the first line", shown(.0))]
    InterpreterLoop(PathBuf),
    /// The `#!` interpreter cannot be used.
    #[error("{}: its interpreter cannot be recorded: {source}", shown(script))]
    Interpreter {
        /// Script.
        script: PathBuf,
        /// What is wrong with the interpreter.
        source: Box<RecordError>,
    },
    /// A 32-bit program.
    #[error("{}: a 32-bit program; only programs for x86-64 and arm64 can be recorded; build it with \
        64 bits", shown(.0))]
    ThirtyTwoBit(PathBuf),
    /// A program for another architecture.
    #[error(
        "{}: a program for {machine}; only programs for x86-64 and arm64 can be recorded; build it for \
         one of them",
        shown(path)
    )]
    ForeignMachine {
        /// Program.
        path: PathBuf,
        /// Architecture by name or number.
        machine: String,
    },
    /// An ELF file that is not a program.
    #[error("{}: an ELF file that is not a program (object file, core dump or damaged); link it \
        first", shown(.0))]
    NotExecutableElf(PathBuf),
    /// The output cannot be written.
    #[error(
        "{}: cannot write the trace: {source}; choose another place with --output",
        shown(path)
    )]
    Output {
        /// Output file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// Neither recorder is installed.
    #[error(
        "neither qemu-x86_64 with plugins nor valgrind found; get one: `{command}` (fast) or \
        `apt-get install valgrind`{}",
        hint(reason)
    )]
    NoRecorder {
        /// What gets a QEMU with plugins.
        command: String,
        /// Why the QEMU that was found is not used.
        reason: String,
    },
    /// No QEMU was found.
    #[error("{name} not found in PATH{}; get one with `{command}`{or}", hint(why))]
    NoQemu {
        /// Name of the program.
        name: &'static str,
        /// What gets a QEMU with plugins.
        command: String,
        /// Why another one is not used.
        why: String,
        /// Another way, if there is one.
        or: &'static str,
    },
    /// No QEMU that was found has plugins.
    #[error(
        "{}: built without plugins{}; get a QEMU that has them with `{command}`{or}",
        shown(qemu),
        hint(why)
    )]
    QemuWithoutPlugins {
        /// The first that was found.
        qemu: PathBuf,
        /// What gets a QEMU with plugins.
        command: String,
        /// Why another one is not used.
        why: String,
        /// Another way, if there is one.
        or: &'static str,
    },
    /// Valgrind was asked for and is not installed.
    #[error(
        "valgrind not found in PATH; install it: `apt-get install valgrind`, or use --with \
        qemu"
    )]
    NoValgrind,
    /// Valgrind was asked for a program of another architecture.
    #[error("valgrind runs no program for {0} on this machine; use --with qemu")]
    NotUnderValgrind(&'static str),
    /// The root is none.
    #[error("{}: no such directory; --root names one with the files of another system", shown(.0))]
    NoRoot(PathBuf),
    /// A program of this system though another one's root was named.
    #[error(
        "{}: not below {}; it is a program of this system: leave --root out, or name one of that root",
        shown(path),
        shown(root)
    )]
    NotInRoot {
        /// Program.
        path: PathBuf,
        /// Root.
        root: PathBuf,
    },
    /// The loader of a program of another architecture is not there.
    #[error(
        "{}: its loader {} is not on this system; name a directory that has the libraries of {arch} \
         with --root (mmdebstrap makes one)",
        shown(program),
        shown(loader)
    )]
    NoLoader {
        /// Program.
        program: PathBuf,
        /// What it asks for.
        loader: PathBuf,
        /// Architecture.
        arch: &'static str,
    },
    /// It would run with the rights of this process.
    #[error(
        "{}: runs with another user's or group's rights or with capabilities (set-user-id), which a \
         recorded program does not get; run folio as that user",
        shown(.0)
    )]
    OtherRights(PathBuf),
    /// The program writes there as well.
    #[error(
        "standard output is the program's own, so the trace cannot go there; write it to a file, such \
         as -o {}",
        shown(.0)
    )]
    ToStdout(PathBuf),
    /// A program of another architecture, at its own speed.
    #[error(
        "--live follows what this machine runs, and it does not run programs for {0}; leave --live out"
    )]
    NotNativeLive(&'static str),
    /// Plain runs of a program of another architecture or system.
    #[error(
        "--runs times the program without a recorder, and this machine does not run programs {0}; leave \
         --runs out"
    )]
    NotNative(String),
    /// The plugin is nowhere.
    #[error("the recorder plugin {} was not found (looked in {}); build it with `cargo build \
        --release -p largefolio-recorder` or name it in LARGEFOLIO_RECORDER",
        crate::library::RECORDER.name, .0)]
    NoPlugin(String),
    /// The plugin speaks another version of the protocol.
    #[error(
        "{}: the recorder plugin is of another version than folio, and nothing was recorded; build both \
         (`make build`), or name the right one in LARGEFOLIO_RECORDER", shown(.0)
    )]
    OtherPlugin(PathBuf),
    /// The recorder did not start.
    #[error(
        "{recorder} did not start recording ({status}); run it by hand to see why: \
        {command}"
    )]
    RecorderFailed {
        /// Name of the recorder.
        recorder: &'static str,
        /// How its process ended.
        status: String,
        /// Command line.
        command: String,
    },
    /// A plain run ended badly.
    #[error(
        "{command} {how} when it ran by itself for --runs: its time says nothing; run it by hand to \
         see why, or record it without --runs",
        command = shown(command)
    )]
    PlainRunFailed {
        /// The program.
        command: PathBuf,
        /// `exited with 1`, `was killed by signal 11`.
        how: String,
    },
    /// A plain run could not be made.
    #[error(transparent)]
    PlainRun(#[from] VerifyError),
    /// A signal came before the program did anything.
    #[error("interrupted before the program began; there is nothing to write")]
    Interrupted(i32),
    /// No process to record.
    #[error("no process {0} is running; pgrep -a NAME lists those of a name")]
    NoProcess(u32),
    /// What was named is not there.
    #[error("no process to record: {0}")]
    Nobody(String),
    /// A live recording without root.
    #[error("a live recording asks the kernel what a program does, which needs root; run `{0}`")]
    NotRoot(String),
    /// Root without the capability to mount.
    #[error(
        "cannot open tracefs: not permitted; a live recording needs CAP_SYS_ADMIN (in a container: \
         docker run --privileged, or record from the host)"
    )]
    NotPermitted,
    /// No tracefs in the kernel.
    #[error(
        "this kernel has no tracefs (built without CONFIG_TRACING); use a kernel with it, or record \
         without --live"
    )]
    NoTracefs,
    /// In a container.
    #[error(
        "this is a PID namespace (a container), and the kernel's events name processes by the numbers \
         of the machine; run it outside, or in a container with the machine's processes (docker run \
         --pid=host)"
    )]
    PidNamespace,
    /// No soft-dirty bits in the kernel.
    #[error(
        "this kernel does not know which pages were written (built without CONFIG_MEM_SOFT_DIRTY), so \
         --hot has nobody to ask; leave --hot out"
    )]
    NoSoftDirty,
    /// An event that nothing can be done without.
    #[error(
        "this kernel has no event {0}; a live recording needs CONFIG_FTRACE_SYSCALLS: use a kernel with \
         it, or record without --live"
    )]
    NoEvent(String),
    /// Neither events of page faults with addresses nor a probe in their place.
    #[error(
        "this kernel does not tell the addresses of page faults: it has no events of them, and no \
         probe can be set ({0}); probes need CONFIG_KPROBE_EVENTS. Use a kernel with it, or record \
         without --live"
    )]
    NoFaults(io::Error),
    /// The operating system refused something the recording needs.
    #[error("cannot {action}: {source}")]
    Os {
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
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
    /// For `map_err`.
    pub(crate) fn os<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { action, source: source.into() }
    }
}

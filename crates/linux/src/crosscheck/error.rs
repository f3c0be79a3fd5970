//! Why the running kernel cannot be recorded: cause and remedy in one sentence each.

use std::io;
use std::path::PathBuf;

use largefolio_trace::shown;
use thiserror::Error;

use crate::setting::SettingError;
use crate::shell::{as_root, compact_memory, quoted};

/// Failure to set up or to record.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CrosscheckError {
    /// Not root.
    #[error("recording the running kernel needs root; run `{0}`")]
    NotRoot(String),
    /// Root without the capability to mount.
    #[error(
        "cannot mount {what}: not permitted; recording needs CAP_SYS_ADMIN (in a container: \
         docker run --privileged, or run it on the host)"
    )]
    NotPermitted {
        /// What.
        what: &'static str,
    },
    /// The global THP setting is another.
    #[error(
        "the programs advise their memory, so transparent_hugepage/enabled must be madvise; run \
         `echo madvise | {}`",
        as_root("tee /sys/kernel/mm/transparent_hugepage/enabled")
    )]
    ThpNotMadvise,
    /// Shared memory could get large folios at its first touch.
    #[error(
        "the programs share memory in base pages, but {path} is {value:?}; run `echo never | {}`",
        as_root(&format!("tee {}", quoted(path)))
    )]
    SharedNotNever {
        /// The setting.
        path: PathBuf,
        /// Its value.
        value: String,
    },
    /// Somebody uses huge pages.
    #[error(
        "programs of this machine use huge pages of {kib} KiB, so the pool cannot be set: end them, \
         or choose another size with --hugetlb"
    )]
    PoolInUse {
        /// Size of the pages.
        kib: u64,
    },
    /// Memory is too fragmented for the pool.
    #[error(
        "the kernel gave {got} of {wanted} huge pages of {kib} KiB: memory is fragmented; run \
         `{}` and try again",
        compact_memory()
    )]
    PoolTooSmall {
        /// Size of the pages.
        kib: u64,
        /// Pages asked for.
        wanted: u64,
        /// Pages of the pool.
        got: u64,
    },
    /// No tracefs in the kernel.
    #[error(
        "this kernel has no tracefs (built without CONFIG_TRACING); use a kernel with it, or \
         `folio crosscheck replay` for recordings made elsewhere"
    )]
    NoTracefs,
    /// In a container.
    #[error(
        "this is a PID namespace (a container), and the kernel's events name processes by the numbers \
         of the machine; run it outside, or in a container with the machine's processes (docker run \
         --pid=host)"
    )]
    PidNamespace,
    /// An event that nothing can be done without.
    #[error(
        "this kernel has no event {0}; recording needs it (CONFIG_EVENT_TRACING, Linux 6.1 or \
         later)"
    )]
    NoEvent(&'static str),
    /// No memory cgroup can have a limit.
    #[error(
        "this system has no memory cgroups to make one of: cgroup.subtree_control of \
         /sys/fs/cgroup lacks memory; run \
         `echo +memory | {}`",
        as_root("tee /sys/fs/cgroup/cgroup.subtree_control")
    )]
    NoMemoryGroups,
    /// What a group pays is not only folios.
    #[error(
        "this kernel charges its own memory to memory cgroups too, so what it evicts differs from \
         the model by some pages; boot it with `cgroup.memory=nokmem` and control groups of \
         version 2, or run `folio crosscheck replay` on recordings of such a kernel"
    )]
    KernelMemory,
    /// No filesystem of the selection can be made here.
    #[error("no filesystem to record on: {0}")]
    NoFilesystem(String),
    /// Nothing selected.
    #[error("no workload is left: {0}")]
    NothingSelected(String),
    /// A custom workload's word.
    #[error("{word:?}: {what}")]
    Word {
        /// Word as typed.
        word: String,
        /// What is wrong, and what is right.
        what: String,
    },
    /// A tool that failed.
    #[error("`{}` failed: {}", shown(command), shown(said))]
    Tool {
        /// Command line.
        command: String,
        /// What it wrote to standard error.
        said: String,
    },
    /// The filesystem cannot be mounted.
    #[error(
        "cannot mount {filesystem} from a loop device: {source}; is its driver in this kernel?"
    )]
    Mount {
        /// Filesystem.
        filesystem: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// No loop device.
    #[error("no loop device: {0}; load the driver (`modprobe loop`) or free one (`losetup -a`)")]
    NoLoop(io::Error),
    /// A setting that cannot be changed.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// A file that cannot be read or written.
    #[error("{}: {source}", shown(path))]
    File {
        /// Which.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// The operating system refused something else.
    #[error("cannot {action}: {source}")]
    Os {
        /// What was tried, as a verb.
        action: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The probe could not record a workload: an event was lost, the file was cached.
    #[error("{}: {}", shown(workload), shown(said))]
    Probe {
        /// Workload.
        workload: String,
        /// What the probe said.
        said: String,
    },
    /// Neither events of faults nor probes.
    #[error(
        "this kernel does not tell the addresses of page faults: it has no events of them, and no \
         probe can be set ({0}); probes need CONFIG_KPROBE_EVENTS"
    )]
    NoFaultAddresses(io::Error),
    /// The command cannot be started.
    #[error("{}: not found; name a program in PATH or a path to one after `--`", shown(.0))]
    NoProgram(String),
    /// Nothing to compare.
    #[error("{} opens no regular file for reading, so there is nothing to compare", shown(.0))]
    NoFiles(String),
    /// Events did not fit the buffer.
    #[error(
        "{0} events were lost: the program is too long for the trace buffer; record a shorter run"
    )]
    EventsLost(u64),
    /// The trace is not understood.
    #[error("cannot understand the kernel's trace: {0}; please report it")]
    Trace(String),
    /// A signal requested a stop.
    #[error("interrupted; everything is unmounted and removed")]
    Interrupted(i32),
}

impl CrosscheckError {
    /// For `map_err`.
    pub(crate) fn os<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { action, source: source.into() }
    }

    /// For `map_err`.
    pub(crate) fn file<E: Into<io::Error>>(path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::File { path, source: source.into() }
    }
}

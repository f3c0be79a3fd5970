//! Why a recording on the running kernel is not possible: cause and remedy in one sentence each.

use std::io;
use std::path::PathBuf;

use largefolio_trace::shown;
use thiserror::Error;

use largefolio_linux::record::RecordError;
use largefolio_linux::setting::SettingError;
use largefolio_linux::shell::{as_root, compact_memory, quoted};

#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CrosscheckError {
    #[error("recording the running kernel needs root; run `{0}`")]
    NotRoot(String),
    #[error(
        "cannot mount {what}: not permitted; recording needs CAP_SYS_ADMIN (in a container: \
         docker run --privileged, or run it on the host)"
    )]
    NotPermitted { what: &'static str },
    #[error(
        "the programs use madvise, so transparent_hugepage/enabled must be madvise; run `echo \
         madvise | {}`",
        as_root("tee /sys/kernel/mm/transparent_hugepage/enabled")
    )]
    ThpNotMadvise,
    #[error(
        "the programs need shared memory in base pages, but {path} is {value:?}; run `echo never \
         | {}`",
        as_root(&format!("tee {}", quoted(path)))
    )]
    SharedNotNever { path: PathBuf, value: String },
    #[error(
        "programs on this machine are using huge pages of {kib} KiB, so the pool cannot be set; \
         stop them, or choose another size with --hugetlb"
    )]
    PoolInUse { kib: u64 },
    #[error(
        "the kernel provided only {got} of {wanted} huge pages of {kib} KiB because memory is \
         fragmented; run `{}` and try again",
        compact_memory()
    )]
    PoolTooSmall { kib: u64, wanted: u64, got: u64 },
    #[error(
        "this kernel has no tracefs (built without CONFIG_TRACING); use a kernel that has it, or \
         `folio-lab crosscheck replay` for recordings made elsewhere"
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
        "this kernel has no event {0}; recording needs it (CONFIG_EVENT_TRACING, Linux 6.1 or \
         later)"
    )]
    NoEvent(&'static str),
    #[error(
        "no memory cgroup can be created because cgroup.subtree_control in /sys/fs/cgroup lacks \
         memory; run `echo +memory | {}`",
        as_root("tee /sys/fs/cgroup/cgroup.subtree_control")
    )]
    NoMemoryGroups,
    #[error(
        "this kernel also charges its own memory to memory cgroups, so it evicts a few pages more \
         or fewer than the model; boot it with `cgroup.memory=nokmem` and cgroup v2, or run \
         `folio-lab crosscheck replay` on recordings from such a kernel"
    )]
    KernelMemory,
    #[error(
        "this machine has one NUMA node, and these programs need two; run them in a virtual machine \
         with two (scripts/recordings/nodes.py), or print them with --print"
    )]
    OneNode,
    #[error("there is no filesystem to record on: {0}")]
    NoFilesystem(String),
    #[error("no workload is left: {0}")]
    NothingSelected(String),
    #[error("{word:?}: {what}")]
    Word {
        word: String,
        /// The problem, and the legal values.
        what: String,
    },
    #[error("`{}` failed: {}", shown(command), shown(stderr))]
    Tool { command: String, stderr: String },
    #[error(
        "cannot mount {filesystem} from a loop device: {source}; does this kernel support {filesystem}?"
    )]
    Mount { filesystem: &'static str, source: io::Error },
    #[error("no loop device: {0}; load the driver (`modprobe loop`) or free one (`losetup -a`)")]
    NoLoop(io::Error),
    #[error(transparent)]
    Setting(#[from] SettingError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("{}: {source}", shown(path))]
    File { path: PathBuf, source: io::Error },
    #[error("cannot {action}: {source}")]
    Os {
        /// The operation, as a verb.
        action: &'static str,
        source: io::Error,
    },
    /// The probe failed: an event was lost, or the file was cached.
    #[error("{}: {}", shown(workload), shown(message))]
    Probe { workload: String, message: String },
    #[error(
        "this kernel does not report page-fault addresses: it has no tracepoint for them, and no \
         probe can be set ({0}); probes need CONFIG_KPROBE_EVENTS"
    )]
    NoFaultAddresses(io::Error),
    #[error("{}: not found; after `--`, name a program in PATH or give the path of one", shown(.0))]
    NoProgram(String),
    #[error("{} reads no regular file, so there is nothing to compare", shown(.0))]
    NoFiles(String),
    #[error(
        "{0} events were lost: the trace buffer is too small for this program; record a shorter run"
    )]
    EventsLost(u64),
    #[error("cannot parse the kernel's trace: {0}; please report it")]
    Trace(String),
    #[error("interrupted; everything has been unmounted and removed")]
    Interrupted(i32),
}

impl CrosscheckError {
    pub(crate) fn os<E: Into<io::Error>>(action: &'static str) -> impl FnOnce(E) -> Self {
        move |source| Self::Os { action, source: source.into() }
    }

    pub(crate) fn file<E: Into<io::Error>>(path: impl Into<PathBuf>) -> impl FnOnce(E) -> Self {
        let path = path.into();
        move |source| Self::File { path, source: source.into() }
    }
}

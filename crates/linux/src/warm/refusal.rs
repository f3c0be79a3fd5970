//! Reasons why a file, or a part of it, is not in large folios.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::path::Path;

use super::users::NR_USERS_MAX;
use crate::census::file::nr_cached;
use crate::geometry::Geometry;
use crate::proc::cgroup::{self, Room};
use crate::proc::{host, thp};
use crate::setting::thp::size_name;
use crate::shell::{as_root, as_typed, compact_memory, quoted};
use crate::system::{Live, System};

/// Suggests stopping at most this many processes. A library has more.
const NR_STOPPED_MAX: usize = 4;

/// The cause, like the kernel's scan results: counted and reported, not an error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WarmRefusal {
    TooSmall {
        folio_bytes: u64,
    },
    NoFolios {
        filesystem: String,
    },
    /// The file exists only in memory, so the page cache is not a copy.
    NotCached {
        filesystem: String,
    },
    InUse {
        bytes: u64,
        pids: Vec<u32>,
    },
    Busy {
        bytes: u64,
    },
    Fragmented {
        bytes: u64,
    },
    /// The filesystem supports such folios and memory has them free, but some are still smaller.
    Disturbed {
        bytes: u64,
        free_bytes: u64,
    },
    LowMemory {
        need_bytes: u64,
        have_bytes: u64,
    },
    /// The reads would be charged to a cgroup that is near its limit.
    LowGroup {
        need_bytes: u64,
        /// Bytes that the cgroup can take, counting cold files as free.
        have_bytes: u64,
    },
    /// The kernel shows folio sizes only to root, except for PMD entries.
    Unseen {
        folio_bytes: u64,
    },
    NoThp,
    /// The kernel lacks `MADV_POPULATE_READ` (Linux 5.14).
    OldKernel,
}

impl WarmRefusal {
    /// Returns the reason if the machine or this process's cgroup cannot cache `need_bytes` more.
    pub(super) fn of_memory(need_bytes: u64) -> Option<Self> {
        let low = |have: Option<u64>| have.filter(|&have_bytes| have_bytes < need_bytes);
        let of_group = cgroup::room_bytes(&Live, Room::WithColdFiles);
        low(host::available_bytes(&Live))
            .map(|have_bytes| Self::LowMemory { need_bytes, have_bytes })
            .or_else(|| low(of_group).map(|have_bytes| Self::LowGroup { need_bytes, have_bytes }))
    }

    /// Returns why `bytes` got folios below `folio_bytes` from a filesystem that supports them.
    /// Blames memory only if it had none free.
    pub(super) fn of_small(system: &dyn System, bytes: u64, folio_bytes: u64) -> Self {
        let free_bytes = host::free_bytes_in(system, folio_bytes);
        // Half of it may be reserved, or on another node.
        if free_bytes / 2 > bytes {
            Self::Disturbed { bytes, free_bytes }
        } else {
            Self::Fragmented { bytes }
        }
    }

    /// Returns the reason if `wanted` bytes of a file cannot all be cached. Runs before the check
    /// of each page, which takes time in proportion to the file. If the kernel does not count
    /// cached pages, assumes that the file is cached as far as it fits into memory.
    pub(super) fn of_size(file: &File, wanted: &Range<u64>) -> Option<Self> {
        let page_bytes = Geometry::running().page_bytes;
        let nr_cached = nr_cached(file, wanted).unwrap_or(u64::MAX);
        let most_bytes = host::memory_bytes(&Live).unwrap_or(u64::MAX);
        let cached_bytes = nr_cached.saturating_mul(page_bytes).min(most_bytes);
        let need_bytes = (wanted.end - wanted.start).saturating_sub(cached_bytes);
        Self::of_memory(need_bytes).filter(|_| need_bytes > 0)
    }

    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::TooSmall { .. } => "too_small",
            Self::NoFolios { .. } => "no_folios",
            Self::NotCached { .. } => "not_cached",
            Self::InUse { .. } => "in_use",
            Self::Busy { .. } => "busy",
            Self::Fragmented { .. } => "fragmented",
            Self::Disturbed { .. } => "disturbed",
            Self::LowMemory { .. } => "low_memory",
            Self::LowGroup { .. } => "low_group",
            Self::Unseen { .. } => "unseen",
            Self::NoThp => "no_thp",
            Self::OldKernel => "old_kernel",
        }
    }

    #[must_use]
    pub fn remedy(&self, file: &Path) -> String {
        match self {
            Self::TooSmall { .. } => "nothing to do: it is too short to benefit".to_owned(),
            Self::NoFolios { .. } => match Geometry::running().page_bytes >> 10 {
                16 => "copy the file to ext4 (Linux 6.16) or XFS, and use the copy",
                64 => {
                    "boot Linux 7.2 or later, with the file on ext4 or XFS: with 64K pages, \
                        earlier kernels do not read files into folios of this size on request"
                }
                _ => {
                    "copy the file to ext4 (Linux 6.16), XFS or btrfs (Linux 6.17), and use the copy"
                }
            }
            .to_owned(),
            Self::NotCached { .. } => {
                "copy the file to a disk filesystem, or collapse the memory of the process that \
                 maps it: folio collapse PID"
                    .to_owned()
            }
            Self::InUse { pids, .. } => {
                let copy = replaced_by_copy(file, str::to_owned);
                let copy = format!("replace the file with a copy of itself ({copy}) and warm the \
                                    copy");
                let who: Vec<_> = pids.iter().map(ToString::to_string).collect();
                match who.len() {
                    0 => format!("stop the processes and run this again, or {copy}"),
                    1 => format!("stop process {} and run this again, or {copy}", who.join(" ")),
                    2..=NR_STOPPED_MAX => {
                        format!("stop processes {} and run this again, or {copy}", who.join(" "))
                    }
                    _ => copy,
                }
            }
            Self::Busy { .. } => format!(
                "write the dirty pages to disk (sync) and run this again; if they still cannot be \
                 evicted, \
                 wait until no process has the file open (fuser -v {})",
                quoted(file)
            ),
            Self::Fragmented { .. } => {
                format!("compact memory and run this again: {}", compact_memory())
            }
            Self::Disturbed { .. } => {
                format!("run this again while no other process \
                         uses it: {}", as_typed(&format!("folio warm {}", quoted(file))))
            }
            Self::LowMemory { .. } => "free memory, or warm fewer files".to_owned(),
            Self::LowGroup { .. } => {
                "run this outside the control group, or raise its memory.max".to_owned()
            }
            Self::Unseen { .. } => {
                format!("{} shows it", as_root(&format!("folio warm --check {}", quoted(file))))
            },
            Self::NoThp => "boot a kernel with CONFIG_TRANSPARENT_HUGEPAGE".to_owned(),
            Self::OldKernel => "boot Linux 5.14 or later".to_owned(),
        }
    }
}

impl fmt::Display for WarmRefusal {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mib = |bytes: &u64| bytes.div_ceil(1 << 20);
        match self {
            Self::TooSmall { folio_bytes } => {
                write!(out, "shorter than one folio of {}", size_name(*folio_bytes))
            }
            Self::NoFolios { filesystem } => write!(
                out,
                "{filesystem} gave no folio of this size; it may not support them under this kernel"
            ),
            Self::NotCached { filesystem } => {
                write!(out, "on {filesystem}, which keeps files in memory instead of caching them")
            }
            Self::InUse { bytes, pids } => {
                let held = match *bytes {
                    few if few < 1 << 20 => format!("{} KiB", few.div_ceil(1 << 10)),
                    some if some < 10 << 20 => {
                        let tenths = (some * 10).div_ceil(1 << 20);
                        format!("{}.{} MiB", tenths / 10, tenths % 10)
                    }
                    many => format!("{} MiB", mib(&many)),
                };
                match pids.as_slice() {
                    [] => write!(out, "{held} are mapped by running processes"),
                    [pid] => write!(out, "{held} are mapped by process {pid}"),
                    [first, ..] => {
                        let nr = pids.len();
                        let more = if nr < NR_USERS_MAX { "" } else { " or more" };
                        write!(out, "{held} are mapped by {nr}{more} processes, the first {first}")
                    }
                }
            }
            Self::Busy { bytes } => write!(
                out,
                "{} MiB cannot be evicted: they are not yet written to disk, or a process is \
                 reading, writing or locking them",
                mib(bytes)
            ),
            Self::Fragmented { bytes } => {
                write!(out, "{} MiB got smaller folios: memory is fragmented or scarce", mib(bytes))
            }
            Self::Disturbed { bytes, free_bytes } => write!(
                out,
                "{} MiB got smaller folios although {} MiB are free in large blocks: another \
                 process read or mapped the file in the meantime",
                mib(bytes),
                free_bytes >> 20
            ),
            Self::LowMemory { need_bytes, have_bytes } => write!(
                out,
                "it needs {} MiB of memory, but only {} MiB are available",
                mib(need_bytes),
                mib(have_bytes)
            ),
            Self::LowGroup { need_bytes, have_bytes } => write!(
                out,
                "it needs {} MiB of memory, but the control group can use only {} MiB more",
                mib(need_bytes),
                mib(have_bytes)
            ),
            Self::Unseen { folio_bytes } => write!(
                out,
                "only root can check whether its folios are {} or larger",
                size_name(*folio_bytes)
            ),
            Self::NoThp => out.write_str("this kernel has no transparent huge pages"),
            Self::OldKernel => out.write_str("this kernel cannot populate a mapping"),
        }
    }
}

pub(super) fn refused(error: &io::Error) -> Option<WarmRefusal> {
    // MADV_POPULATE_READ returns EINVAL before 5.14, and so does MADV_HUGEPAGE without THP.
    if error.raw_os_error() != Some(libc::EINVAL) {
        return None;
    }
    Some(if thp::setting("enabled").exists() { WarmRefusal::OldKernel } else { WarmRefusal::NoThp })
}

/// Builds the commands that replace a file by a copy. mktemp never overwrites an existing file.
pub(crate) fn replaced_by_copy(path: &Path, typed: impl Fn(&str) -> String) -> String {
    let mut name = path.as_os_str().to_owned();
    name.push(".XXXXXX");
    let (file, name) = (quoted(path), quoted(&name));
    let make = typed(&format!("mktemp {name}"));
    let copy = typed(&format!("cp -a {file} \"$new\""));
    let replace = typed(&format!("mv \"$new\" {file}"));
    format!("new=$({make}) && {copy} && {replace}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn memory_is_blamed_only_if_it_has_no_free_blocks() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let of = |zones: &str| {
            std::fs::write(dir.path().join("buddyinfo"), zones).unwrap();
            WarmRefusal::of_small(&system, 14 << 20, 2 << 20)
        };
        let zone =
            |large: u32| format!("Node 0, zone   Normal  90000 8 7 6 5 4 3 2 1 {large} {large}\n");
        assert_eq!(of(&zone(0)), WarmRefusal::Fragmented { bytes: 14 << 20 });
        let plenty = of(&format!("{}{}", zone(0), zone(3200)));
        let free_bytes = 3200 * (6 << 20);
        assert_eq!(plenty, WarmRefusal::Disturbed { bytes: 14 << 20, free_bytes });
        let remedy = plenty.remedy(Path::new("FILE"));
        assert!(!remedy.contains("compact") && remedy.contains("folio warm FILE"), "{remedy}");
        assert!(of("").remedy(Path::new("FILE")).contains("compact_memory"));
        let busy = WarmRefusal::Busy { bytes: 1 };
        assert!(busy.remedy(Path::new("FILE")).contains("(sync)"));
    }

    #[test]
    fn nobody_is_told_to_stop_sixteen_processes_and_that_there_are_more_is_said() {
        let of = |nr: u32| WarmRefusal::InUse { bytes: 1, pids: (1..=nr).collect() };
        assert!(
            of(2)
                .remedy(Path::new("FILE"))
                .starts_with("stop processes 1 2 and run this again, or replace")
        );
        let copy = "replace the file with a copy of itself (new=$(mktemp FILE.XXXXXX) && cp -a \
                    FILE \
                    \"$new\" && mv \"$new\" FILE) and warm the copy";
        assert_eq!(of(5).remedy(Path::new("FILE")), copy);
        assert!(of(5).to_string().ends_with("by 5 processes, the first 1"));
        assert!(of(16).to_string().ends_with("by 16 or more processes, the first 1"));
    }
}

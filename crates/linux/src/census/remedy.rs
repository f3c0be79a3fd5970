//! What to do about a refusal.
//!
//! Owns the remedies and the commands they are written as. Each works on today's kernels without a
//! patch; a remedy that needs a new program says so.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

/// What removes a refusal.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Remedy {
    /// Nothing: it is as it should be, or cannot be helped.
    Nothing,
    /// Refill the page cache of a file with large folios.
    Warm {
        /// File.
        path: PathBuf,
    },
    /// Give a program segments that are aligned in memory as in the file.
    Align {
        /// File.
        path: PathBuf,
        /// Alignment.
        bytes: u64,
    },
    /// Map at an address that is aligned as the position in the file is.
    MapAligned {
        /// Alignment.
        bytes: u64,
    },
    /// Copy the file to a filesystem with large folios.
    Copy {
        /// File.
        path: PathBuf,
    },
    /// The program must not give this advice.
    DropAdvice,
    /// Let the kernel collapse what is there.
    Collapse {
        /// Process.
        pid: u32,
    },
    /// Change a setting.
    Set {
        /// Value.
        value: &'static str,
        /// File of the setting.
        path: PathBuf,
    },
    /// Change a setting, or give the advice in the program.
    SetOrAdvise {
        /// Value.
        value: &'static str,
        /// File of the setting.
        path: PathBuf,
    },
    /// Let go of the file.
    CloseWriters {
        /// Who has it open for writing, as far as known.
        pids: Vec<u32>,
    },
    /// Start the program again, so that it maps the file that has the name now.
    Restart {
        /// Process.
        pid: u32,
    },
    /// Link so that the segment holds a whole block.
    Relink {
        /// Alignment.
        bytes: u64,
    },
}

impl fmt::Display for Remedy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => Ok(()),
            Self::Warm { path } => write!(f, "folio warm {}", shell(path)),
            Self::Align { path, bytes } => {
                let path = shell(path);
                write!(f, "folio align {path} -o COPY, or link with -Wl,-z,max-page-size={bytes}")
            }
            Self::MapAligned { bytes } => {
                write!(f, "map at an address that equals the file position modulo {bytes}")
            }
            Self::Copy { path } => {
                write!(f, "copy {} to ext4 or XFS, then folio warm the copy", shell(path))
            }
            Self::DropAdvice => {
                f.write_str("remove MADV_NOHUGEPAGE or PR_SET_THP_DISABLE from the program")
            }
            Self::Collapse { pid } => write!(f, "folio collapse {pid}"),
            Self::Set { value, path } => write!(f, "echo {value} > {}", shell(path)),
            Self::SetOrAdvise { value, path } => write!(
                f,
                "MADV_HUGEPAGE in the program (malloc: GLIBC_TUNABLES=glibc.malloc.hugetlb=1), or \
                 echo {value} > {}",
                shell(path)
            ),
            Self::CloseWriters { pids } if pids.is_empty() => {
                f.write_str("close the descriptor that is open for writing")
            }
            Self::CloseWriters { pids } => {
                let pids: Vec<_> = pids.iter().map(ToString::to_string).collect();
                write!(f, "close it in process {}", pids.join(", "))
            }
            Self::Restart { pid } => write!(f, "restart process {pid}: its file was replaced"),
            Self::Relink { bytes } => {
                write!(f, "link with -Wl,-z,separate-code,-z,max-page-size={bytes}")
            }
        }
    }
}

/// A path as a shell takes it.
fn shell(path: &std::path::Path) -> String {
    let text = path.to_string_lossy();
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/._-+:@%=,".contains(c);
    if text.chars().all(is_plain) {
        return text.into_owned();
    }
    if text.chars().any(char::is_control) {
        return format!("{text:?}");
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_can_be_pasted() {
        let warm = |path: &str| Remedy::Warm { path: path.into() }.to_string();
        assert_eq!(warm("/usr/lib/libc.so.6"), "folio warm /usr/lib/libc.so.6");
        assert_eq!(warm("/a b's"), "folio warm '/a b'\\''s'");
        assert_eq!(warm("/a\nb"), "folio warm \"/a\\nb\"");
        let set = Remedy::Set { value: "madvise", path: "/sys/x".into() };
        assert_eq!(set.to_string(), "echo madvise > /sys/x");
    }
}

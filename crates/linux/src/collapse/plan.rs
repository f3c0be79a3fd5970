//! Which blocks of an area `folio collapse` would try; nothing is done here.
//!
//! Owns the choice. What the kernel then refuses block by block is not known before.

use crate::proc::maps::Vma;
use crate::proc::smaps::Smap;
use crate::setting::thp::size_name;
use crate::system::mounts;

/// What kind of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum CollapseKind {
    /// Private memory without a file.
    Anon,
    /// memfd, tmpfs, shared anonymous memory.
    Shmem,
    /// Files with a page cache: text, libraries.
    File,
}

impl CollapseKind {
    /// A word for tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Anon => "anon",
            Self::Shmem => "shmem",
            Self::File => "file",
        }
    }
}

/// Why an area is not tried.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Left {
    /// Address and position in the file or in shared memory differ mod the block.
    Incongruent,
    /// `MADV_NOHUGEPAGE`, a stack of glibc's threads (`MAP_STACK` counts as that advice from Linux
    /// 6.7 on), or THP disabled for the process: the kernel would refuse each block.
    Forbidden,
    /// Below the smallest area that was asked for.
    BelowMinimum,
    /// No whole block.
    Short,
}

impl Left {
    /// Name in exports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Incongruent => "incongruent",
            Self::Forbidden => "no_huge_advice",
            Self::BelowMinimum => "below_min_size",
            Self::Short => "too_small",
        }
    }

    /// For people, of blocks of `block_bytes`.
    #[must_use]
    pub fn meaning(self, block_bytes: u64) -> String {
        let size = size_name(block_bytes);
        match self {
            Self::Incongruent => format!(
                "mapped at an address that no {size} entry fits: it differs from the position in \
                 the memory or file modulo {size}"
            ),
            Self::Forbidden => "forbidden: MADV_NOHUGEPAGE, a thread's stack, or THP disabled for \
                                the process"
                .to_owned(),
            Self::BelowMinimum => "in areas below --min-size".to_owned(),
            Self::Short => format!("in areas without a whole {size} block"),
        }
    }

    /// Whether an area that is left keeps what was wanted from being done. The stacks of threads
    /// hold some pages each: what would not fill one block is not missed.
    pub(super) const fn is_missed(self, resident_bytes: u64, block_bytes: u64) -> bool {
        match self {
            Self::Incongruent => true,
            Self::Forbidden => resident_bytes >= block_bytes,
            Self::BelowMinimum | Self::Short => false,
        }
    }
}

/// Addresses of the blocks of an area that would be tried.
///
/// # Errors
/// Why there are none.
pub fn blocks_of(
    smap: &Smap,
    kind: CollapseKind,
    min_bytes: u64,
    block_bytes: u64,
) -> Result<Vec<u64>, Left> {
    let vma = &smap.vma;
    if vma.nr_whole_blocks(block_bytes) == 0 {
        Err(Left::Short)
    } else if vma.len_bytes() < min_bytes {
        Err(Left::BelowMinimum)
    } else if smap.is_no_huge {
        Err(Left::Forbidden)
    } else if kind != CollapseKind::Anon && !vma.is_congruent(block_bytes) {
        Err(Left::Incongruent)
    } else {
        Ok(blocks(vma, block_bytes))
    }
}

/// The kind of an area of a process with these mounts; `None` for those of the kernel and of devices.
/// Nothing is opened by a name that the process chose.
pub(super) fn kind_of(vma: &Vma, mountinfo: &[u8]) -> Option<CollapseKind> {
    let name = vma.path.to_string_lossy();
    let name = &*name;
    if ["[vdso]", "[vvar]", "[vvar_vclock]", "[vsyscall]"].contains(&name)
        || name.starts_with("/anon_hugepage")
    {
        return None;
    }
    if vma.inode == 0 {
        return Some(CollapseKind::Anon);
    }
    let filesystem = || mounts::filesystem(mountinfo, vma.device, &vma.path);
    if vma.is_nameless_shared() || filesystem().as_deref() == Some("tmpfs") {
        return Some(CollapseKind::Shmem);
    }
    (name.starts_with('/') && !name.starts_with("/dev/")).then_some(CollapseKind::File)
}

/// Addresses of the whole blocks inside an area.
fn blocks(vma: &Vma, block_bytes: u64) -> Vec<u64> {
    let first = vma.range.start.next_multiple_of(block_bytes);
    (0..vma.nr_whole_blocks(block_bytes)).map(|nr| first + nr * block_bytes).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: u64 = 2 << 20;

    fn vma(start: u64, end: u64, pos: u64, name: &str) -> Vma {
        let inode = u64::from(name.starts_with('/'));
        Vma { range: start..end, pos, inode, path: name.into(), ..Vma::default() }
    }

    fn judged(vma: Vma, kind: CollapseKind) -> Result<Vec<u64>, Left> {
        blocks_of(&Smap { vma, ..Smap::default() }, kind, M2, M2)
    }

    #[test]
    fn blocks_lie_inside_the_area_and_agree_with_the_offset() {
        let anon = vma(M2 - 4096, 3 * M2 + 4096, 0, "");
        assert_eq!(judged(anon, CollapseKind::Anon), Ok(vec![M2, 2 * M2]));
        let file = vma(M2 + 4096, 4 * M2, 4096, "/x");
        assert_eq!(judged(file, CollapseKind::File), Ok(vec![2 * M2, 3 * M2]));
        let shifted = vma(M2 + 4096, 4 * M2, 0, "/x");
        assert_eq!(judged(shifted, CollapseKind::File), Err(Left::Incongruent));
        let short = vma(M2 + 4096, 2 * M2, 0, "");
        assert_eq!(judged(short, CollapseKind::Anon), Err(Left::Short));
        let last = vma(u64::MAX - 4095, u64::MAX, 0, "");
        assert_eq!(judged(last, CollapseKind::Anon), Err(Left::Short));
    }

    #[test]
    fn what_is_left_has_its_reason() {
        let area = |min_bytes, is_no_huge| {
            let vma = vma(M2, 3 * M2, 0, "");
            let smap = Smap { vma, is_no_huge, ..Smap::default() };
            blocks_of(&smap, CollapseKind::Anon, min_bytes, M2)
        };
        assert_eq!(area(3 * M2, false), Err(Left::BelowMinimum));
        assert_eq!(area(M2, true), Err(Left::Forbidden));
    }

    #[test]
    fn a_forbidden_area_is_missed_once_it_would_fill_a_block() {
        assert!(!Left::Forbidden.is_missed(8 << 10, M2) && Left::Forbidden.is_missed(M2, M2));
        assert!(Left::Incongruent.is_missed(4096, M2) && !Left::Short.is_missed(M2, M2));
    }

    #[test]
    fn kinds_are_told_by_name() {
        let mounts =
            b"30 22 0:24 / /dev/shm rw - tmpfs tmpfs rw\n22 1 254:0 / / rw - ext4 /dev/vda rw\n";
        let kind = |name: &str| kind_of(&vma(0, M2, 0, name), mounts);
        let nameless =
            |name: &str| kind_of(&Vma { is_deleted: true, ..vma(0, M2, 0, name) }, mounts);
        let of_device = |device| kind_of(&Vma { device, ..vma(0, M2, 0, "/dev/shm/x") }, mounts);
        assert_eq!(of_device((0, 24)), Some(CollapseKind::Shmem));
        assert_eq!(of_device((254, 0)), None, "a device, whatever the name says");
        assert_eq!(kind(""), Some(CollapseKind::Anon));
        assert_eq!(kind("[heap]"), Some(CollapseKind::Anon));
        assert_eq!(kind("[vdso]"), None);
        assert_eq!(nameless("/memfd:x"), Some(CollapseKind::Shmem));
        assert_eq!(nameless("/dev/zero"), Some(CollapseKind::Shmem));
        assert_eq!(kind("/dev/dri/card0"), None);
        assert_eq!(kind("/proc/version"), Some(CollapseKind::File));
    }
}

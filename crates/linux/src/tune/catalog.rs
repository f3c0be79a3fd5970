//! Settings: their names, files and legal values.
//!
//! | name | file |
//! |---|---|
//! | `thp.enabled` `thp.defrag` `thp.shmem_enabled` `thp.use_zero_page` | `/sys/kernel/mm/transparent_hugepage/..` |
//! | `thp.64K` `thp.64K.shmem` | its `hugepages-64kB/enabled`, `hugepages-64kB/shmem_enabled` |
//! | `khugepaged.pages_to_scan` .. | its `khugepaged/..` |
//! | `readahead.vda` | `/sys/block/vda/queue/read_ahead_kb` |
//! | `largefolio.exec_order` .. | `/sys/kernel/mm/largefolio/..`, in kernels built with `kernel/` |
//! | `largefolio.file_sizes.64K` | its `file_sizes/hugepages-64kB` |

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::read_text;

use super::TuneError;
use crate::proc::choice::Choice;
use crate::proc::{block, host, largefolio, thp};
use crate::setting;
use crate::system::{self, mounts};

const THP: [&str; 4] = ["enabled", "defrag", "shmem_enabled", "use_zero_page"];
const KHUGEPAGED: [&str; 7] = [
    "defrag",
    "pages_to_scan",
    "scan_sleep_millisecs",
    "alloc_sleep_millisecs",
    "max_ptes_none",
    "max_ptes_swap",
    "max_ptes_shared",
];
const EXPECTED: &str = "expected thp.enabled, thp.defrag, thp.shmem_enabled, thp.use_zero_page, \
                        thp.SIZE, thp.SIZE.shmem, khugepaged.NAME, readahead.DISK or \
                        largefolio.NAME, such as thp.64K or readahead.vda";
const LARGEFOLIO: &str = "largefolio.";
/// Start of the settings for files in folios of one size, without [`LARGEFOLIO`].
const FILE_SIZES: &str = "file_sizes.";
/// Settings of [`LARGEFOLIO`] that decide in which folios files are read; the sizes do too.
const READS: [&str; 5] = ["exec_order", "exec_order_bytes", "exec_miss", "forced", "forced_gate"];
/// The smallest folio sizes that have a setting, in KiB: for memory, and for files.
const MEMORY_KIB_MIN: u64 = 8;
const FILE_KIB_MIN: u64 = 4;
const SIZES_KIB_MAX: u64 = 16 << 20;
/// Largest number for any of these settings. A larger readahead window or pause is a typo.
const NUMBER_MAX: u64 = 1 << 31;
/// A setting is one line, which the kernel limits to a page.
const VALUE_BYTES_MAX: u64 = 64 << 10;
const ONE_EXEC: &str = "; only one size can have exec: set the other size to always or never first";
const VALUES: &str = "; docs/guide/tune.md lists the values";
/// A list of mounts or of swap space.
const TEXT_BYTES_MAX: u64 = 16 << 20;

/// Settings below a root directory: `/`, or a copy for tests.
#[derive(Clone, Debug)]
pub struct Catalog {
    root: PathBuf,
}

impl Catalog {
    #[must_use]
    pub fn below(root: &Path) -> Self {
        Self { root: root.to_owned() }
    }

    /// Returns the names of all settings but the readahead windows; `sizes` are the folio sizes that
    /// have settings of their own, in bytes.
    pub(crate) fn names(sizes: &BTreeSet<u64>) -> Vec<String> {
        let thp = THP.iter().map(|name| format!("thp.{name}"));
        let khugepaged = KHUGEPAGED.iter().map(|name| format!("khugepaged.{name}"));
        let sizes = sizes.iter().map(|bytes| setting::thp::size_name(*bytes));
        let of_size = sizes.flat_map(|size| [format!("thp.{size}"), format!("thp.{size}.shmem")]);
        thp.chain(khugepaged).chain(of_size).collect()
    }

    /// # Errors
    /// [`TuneError::Name`].
    pub fn path(&self, name: &str) -> Result<PathBuf, TuneError> {
        let unknown = || TuneError::Name { name: name.to_owned(), expected: EXPECTED };
        let (room, rest) = name.split_once('.').ok_or_else(unknown)?;
        let file = match room {
            "thp" if THP.contains(&rest) => thp::setting(rest),
            "thp" => {
                let (size, file) = match rest.strip_suffix(".shmem") {
                    Some(size) => (size, "shmem_enabled"),
                    None => (rest, "enabled"),
                };
                let kib = kib_of(size, MEMORY_KIB_MIN).ok_or_else(unknown)?;
                thp::of_size(kib, file)
            }
            "largefolio" if largefolio::NAMES.contains(&rest) => largefolio::setting(rest),
            "largefolio" => {
                let size = rest.strip_prefix(FILE_SIZES);
                let kib = size.and_then(|size| kib_of(size, FILE_KIB_MIN)).ok_or_else(unknown)?;
                largefolio::of_size(kib)
            }
            "khugepaged" if KHUGEPAGED.contains(&rest) => {
                thp::setting(&format!("khugepaged/{rest}"))
            }
            "readahead" if is_disk_name(rest) => block::of_disk(rest, "queue/read_ahead_kb"),
            _ => return Err(unknown()),
        };
        Ok(self.below_root(&file))
    }

    #[must_use]
    pub fn decides_folios(name: &str) -> bool {
        let rest = name.strip_prefix("thp.");
        rest.is_some_and(|rest| !["defrag", "use_zero_page"].contains(&rest))
    }

    /// Returns whether a setting decides in which folios files are read. Cached
    /// pages keep their folios.
    #[must_use]
    pub fn decides_reads(name: &str) -> bool {
        let rest = name.strip_prefix(LARGEFOLIO);
        rest.is_some_and(|rest| READS.contains(&rest) || rest.starts_with(FILE_SIZES))
    }

    /// Lists the settings of a kernel that was built with `kernel/`; none under other kernels.
    #[must_use]
    pub fn largefolio_names(&self) -> Vec<String> {
        let is_there = |name: &&str| self.below_root(&largefolio::setting(name)).is_file();
        let names = largefolio::NAMES.into_iter().filter(is_there).map(str::to_owned);
        let folder = self.below_root(&largefolio::setting(largefolio::FILE_SIZES));
        let sizes = folio_sizes(&folder).into_iter().map(setting::thp::size_name);
        let of_files = sizes.map(|size| format!("{FILE_SIZES}{size}"));
        names.chain(of_files).map(|name| format!("{LARGEFOLIO}{name}")).collect()
    }

    fn below_root(&self, path: &Path) -> PathBuf {
        self.root.join(path.strip_prefix("/").unwrap_or(path))
    }

    /// # Errors
    /// An unknown name, or a kernel without the setting.
    pub fn read(&self, name: &str) -> Result<Choice, TuneError> {
        let path = self.path(name)?;
        let text = read_text(&path, VALUE_BYTES_MAX).map_err(|source| {
            let name = name.to_owned();
            if name.starts_with(LARGEFOLIO) && source.kind() == io::ErrorKind::NotFound {
                return TuneError::NoFeature { name, path };
            }
            TuneError::Read { name, path, source }
        })?;
        Ok(Choice::parse(&text))
    }

    /// Checks the value, then sets it.
    ///
    /// # Errors
    /// A value the setting does not take, or the kernel's refusal.
    pub fn write(&self, name: &str, value: &str) -> Result<(), TuneError> {
        self.read(name)?.check(name, value)?;
        self.restore(name, value)
    }

    /// As [`Self::write`], but accepts a number of any size, because it is an old value.
    ///
    /// # Errors
    /// A value the setting does not take, or the kernel's refusal.
    pub(super) fn restore(&self, name: &str, value: &str) -> Result<(), TuneError> {
        let choice = self.read(name)?;
        choice.check_up_to(name, value, u64::MAX)?;
        let path = self.path(name)?;
        // Writes a copy's file in the kernel's output format.
        let is_copy = self.root != Path::new("/");
        let text = if is_copy { choice.shown_with(value) } else { value.to_owned() };
        fs::write(&path, text).map_err(|source| TuneError::Write {
            name: name.to_owned(),
            value: value.to_owned(),
            remedy: match source.kind() {
                io::ErrorKind::ResourceBusy if name.starts_with(LARGEFOLIO) => ONE_EXEC,
                io::ErrorKind::InvalidInput if name.starts_with(LARGEFOLIO) => VALUES,
                _ => setting::remedy(&source),
            },
            path,
            source,
        })
    }

    pub(crate) fn read_other(&self, path: &str) -> Option<String> {
        let text = read_text(&self.below_root(Path::new(path)), VALUE_BYTES_MAX).ok()?;
        Some(Choice::parse(&text).value)
    }

    /// Returns whether another folio has set a temporary value, as `folio verify --tune` and `folio
    /// run` do.
    #[must_use]
    pub fn is_held(&self, name: &str) -> bool {
        let held = |path: PathBuf| setting::try_lock(&path);
        matches!(self.path(name).map(held), Ok(Err(setting::SettingError::Busy { .. })))
    }

    /// Reads a file of this system; `None` if it cannot be read.
    pub(crate) fn text(&self, path: &Path) -> Option<String> {
        read_text(&self.below_root(path), TEXT_BYTES_MAX).ok()
    }

    /// Whether this is the running system, not a copy of its files.
    pub(crate) fn is_live(&self) -> bool {
        self.root == Path::new("/")
    }

    /// Returns the folio sizes with a setting of their own, in bytes.
    pub(crate) fn sizes(&self) -> BTreeSet<u64> {
        folio_sizes(&self.below_root(Path::new(thp::THP)))
    }

    /// Returns the current values of the settings that decide which folios memory gets, by name.
    #[must_use]
    pub fn folio_settings(&self) -> BTreeMap<String, String> {
        let names =
            Self::names(&self.sizes()).into_iter().filter(|name| Self::decides_folios(name));
        let read = |name: String| Some((name.clone(), self.read(&name).ok()?.value));
        names.filter_map(read).collect()
    }

    /// Returns the free huge pages of each pool, by size in KiB.
    pub(crate) fn pools(&self) -> BTreeMap<u64, u64> {
        let entries = fs::read_dir(self.below_root(Path::new(host::POOLS)));
        let names = entries.into_iter().flatten().flatten().map(|entry| entry.file_name());
        let pool = |name: OsString| {
            let kib = thp::kib_of(name.to_str()?)?;
            let read = |file| self.text(&host::hugetlb(kib, file))?.trim().parse::<u64>().ok();
            let reserved = read("resv_hugepages").unwrap_or(0);
            Some((kib, host::unreserved(read("free_hugepages")?, reserved)))
        };
        names.filter_map(pool).collect()
    }

    /// Returns the disk of `/`, or of any other mounted filesystem if `/` is not on a disk.
    pub(crate) fn usual_disk(&self) -> Option<String> {
        let mountinfo = self.text(Path::new(host::MOUNTS))?;
        let of_root = mounts::of_path(mountinfo.as_bytes(), Path::new("/"))?;
        let is_root = |disk: &&String| self.is_mounted(disk, &[of_root.device]);
        let disks = self.disks();
        disks.iter().find(is_root).or(disks.first()).cloned()
    }

    /// Returns the folder of the mounted btrfs that uses a block device.
    pub(crate) fn btrfs_of(&self, device: &str) -> Option<PathBuf> {
        let entries = fs::read_dir(self.below_root(Path::new(block::BTRFS))).ok()?;
        let names = entries.flatten().map(|entry| Path::new(block::BTRFS).join(entry.file_name()));
        let has = |folder: &PathBuf| self.below_root(folder).join("devices").join(device).exists();
        names.into_iter().find(has)
    }

    /// Returns the disks with a mounted filesystem, by name, ascending. Leaves out disks in memory
    /// (zram, brd), which gain nothing from readahead.
    #[must_use]
    pub fn disks(&self) -> Vec<String> {
        let mounts = system::read(&self.below_root(Path::new(host::MOUNTS))).unwrap_or_default();
        let devices = mounts::devices(&mounts);
        let mut disks = self.all_disks();
        disks.retain(|disk| !is_in_memory(disk) && self.is_mounted(disk, &devices));
        disks
    }

    pub(super) fn hidden_paths(&self, disks: &[String]) -> Vec<String> {
        let mut all = self.all_disks();
        all.retain(|name| path_to(name).is_some_and(|disk| disks.contains(&disk)));
        all
    }

    fn all_disks(&self) -> Vec<String> {
        let Ok(entries) = fs::read_dir(self.below_root(Path::new(block::DISKS))) else {
            return Vec::new();
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut disks: Vec<String> = names.filter(|name| is_disk_name(name)).collect();
        disks.sort_unstable();
        disks
    }

    fn is_mounted(&self, disk: &str, devices: &[(u32, u32)]) -> bool {
        let folder = self.below_root(&block::of_disk(disk, ""));
        let is_listed = |folder: &Path| {
            let number = fs::read_to_string(folder.join("dev")).unwrap_or_default();
            let number = number.trim().split_once(':');
            let number =
                number.and_then(|(major, minor)| Some((major.parse().ok()?, minor.parse().ok()?)));
            number.is_some_and(|number| devices.contains(&number))
        };
        let parts = fs::read_dir(&folder).into_iter().flatten().flatten();
        is_listed(&folder) || parts.map(|part| part.path()).any(|part| is_listed(&part))
    }
}

impl Choice {
    /// Checks that the setting `name` with the current value `now` takes `value`.
    ///
    /// # Errors
    /// [`TuneError::Value`] lists the legal values.
    pub fn check(&self, name: &str, value: &str) -> Result<(), TuneError> {
        self.check_up_to(name, value, NUMBER_MAX)
    }

    fn check_up_to(&self, name: &str, value: &str, max: u64) -> Result<(), TuneError> {
        let number = |text: &str| text.parse::<u64>().ok().filter(|number| *number <= max);
        let is_digits = || value.bytes().all(|byte| byte.is_ascii_digit());
        let takes = if self.choices.is_empty() {
            number(value).is_some() && is_digits()
        } else {
            self.choices.iter().any(|choice| choice == value)
        };
        if takes {
            return Ok(());
        }
        let expected = match self.choices.len() {
            0 => format!("a number of at most {max}"),
            _ => format!("one of {}", self.choices.join(", ")),
        };
        Err(TuneError::Value { name: name.to_owned(), value: value.to_owned(), expected })
    }
}

fn is_in_memory(disk: &str) -> bool {
    let number = disk.strip_prefix("zram").or_else(|| disk.strip_prefix("ram"));
    number.is_some_and(|number| !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit()))
}

/// Returns the disk that a hidden `NVMe` path leads to: `nvme0n1` for `nvme0c1n1`.
fn path_to(name: &str) -> Option<String> {
    let (subsystem, rest) = name.strip_prefix("nvme")?.split_once('c')?;
    let (controller, namespace) = rest.split_once('n')?;
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let parts = [subsystem, controller, namespace];
    parts.into_iter().all(is_number).then(|| format!("nvme{subsystem}n{namespace}"))
}

/// Returns the sizes in bytes that the kernel's names in a folder contain, such as
/// `hugepages-64kB`.
fn folio_sizes(folder: &Path) -> BTreeSet<u64> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let kib = entries.filter_map(|entry| thp::kib_of(entry.file_name().to_str()?));
    kib.filter_map(|kib| kib.checked_mul(1 << 10)).collect()
}

/// Converts `64K` to 64 and `2M` to 2048. Accepts powers of two of at least `kib_min`, as in the
/// kernel's names.
fn kib_of(size: &str, kib_min: u64) -> Option<u64> {
    let (number, unit_kib) = match size.as_bytes().last()? {
        b'K' => (size.strip_suffix('K')?, 1),
        b'M' => (size.strip_suffix('M')?, 1 << 10),
        b'G' => (size.strip_suffix('G')?, 1 << 20),
        _ => return None,
    };
    let kib = number.parse::<u64>().ok()?.checked_mul(unit_kib)?;
    (kib.is_power_of_two() && (kib_min..=SIZES_KIB_MAX).contains(&kib)).then_some(kib)
}

/// Accepts only a single folder below `/sys/block`.
fn is_disk_name(name: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"!_.-".contains(&byte);
    !name.is_empty() && name.len() <= 64 && !name.starts_with('.') && name.bytes().all(is_plain)
}

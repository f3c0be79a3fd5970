//! The machine as a whole: its release, processor, memory and current boot.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use super::{bytes_of_kib, number, value};
use crate::system::System;

pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// A write to it makes the kernel compact all memory; it is not a setting.
pub(crate) const COMPACT_MEMORY: &str = "/proc/sys/vm/compact_memory";
/// Shows whether multi-generational LRU is active: bit 0 of a mask.
pub(crate) const GENERATIONS: &str = "/sys/kernel/mm/lru_gen/enabled";
pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";

/// Returns the current boot's id; `None` if the kernel does not have it.
pub(crate) fn boot_id(system: &dyn System) -> Option<String> {
    let id = system.text(Path::new(BOOT_ID)).ok()?;
    Some(String::from_utf8_lossy(id.trim_ascii()).into_owned()).filter(|id| !id.is_empty())
}

/// The inode of the machine's initial PID namespace (`PROC_PID_INIT_INO`).
const PIDS_OF_MACHINE: u64 = 0xEFFF_FFFC;

/// Whether pids here are the machine's, so this process is not in a PID namespace.
#[must_use]
pub fn has_pids_of_machine() -> bool {
    fs::metadata("/proc/self/ns/pid").map_or(true, |file| file.ino() == PIDS_OF_MACHINE)
}

/// Returns the kernel version without a builder's suffix (`-amd64`, `-custom`); empty if unknown.
pub fn kernel_release(system: &dyn System) -> String {
    let release = system.text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    upstream(&String::from_utf8_lossy(&release)).to_owned()
}

/// Whether the kernel can limit a program's THP to advised memory.
pub fn can_except_advised(system: &dyn System) -> bool {
    let release = kernel_release(system);
    let mut numbers = release.split('.').map_while(|word| word.parse::<u32>().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0)) >= (6, 18)
}

/// Returns `6.18.44` for `6.18.44-custom`.
fn upstream(release: &str) -> &str {
    let release = release.trim();
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    release[..end].trim_end_matches('.')
}

/// Number of NUMA nodes that are online; 1 if the kernel does not say.
#[must_use]
pub fn nr_nodes(system: &dyn System) -> u64 {
    let text = system.text(Path::new(super::kernel::NODES)).unwrap_or_default();
    nr_of_list(String::from_utf8_lossy(&text).trim()).max(1)
}

/// `1`: the kernel moves memory to the nodes of the CPUs that use it. Absent without the feature.
#[must_use]
pub fn numa_balancing() -> &'static Path {
    Path::new("/proc/sys/kernel/numa_balancing")
}

/// Returns the free bytes in blocks of at least `bytes`; 0 if unknown.
pub(crate) fn free_bytes_in(system: &dyn System, bytes: u64) -> u64 {
    let text = system.text(Path::new("/proc/buddyinfo")).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let page_bytes = system.page_bytes();
    // Node 0, zone Normal, and the free blocks per order from 0.
    let counts = |line: &str| -> Vec<u64> {
        line.split_ascii_whitespace().skip(4).map_while(|word| word.parse().ok()).collect()
    };
    let blocks = text.lines().flat_map(|line| counts(line).into_iter().enumerate());
    let sizes = blocks
        .filter_map(|(order, nr)| Some((page_bytes.checked_shl(u32::try_from(order).ok()?)?, nr)));
    let large = sizes.filter(|(size, _)| *size >= bytes);
    large.fold(0, |sum, (size, nr)| sum.saturating_add(size.saturating_mul(nr)))
}

/// Whether `cgroup.memory=nokmem` is on the kernel command line.
pub fn has_no_kmem(system: &dyn System) -> bool {
    let text = system.text(Path::new("/proc/cmdline")).unwrap_or_default();
    let mut words = text.split(u8::is_ascii_whitespace);
    let options = words.find_map(|word| word.strip_prefix(b"cgroup.memory="));
    options.is_some_and(|options| options.split(|&byte| byte == b',').any(|one| one == b"nokmem"))
}

/// Returns how many processors are online; 1 if unknown.
pub fn nr_cpus(system: &dyn System) -> u64 {
    let text = system.text(Path::new("/sys/devices/system/cpu/online")).unwrap_or_default();
    nr_of_list(String::from_utf8_lossy(&text).trim())
}

pub(crate) fn nr_of_list(numbers: &str) -> u64 {
    let of_range = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last): (u64, u64) = (first.parse().ok()?, last.parse().ok()?);
        Some(last.checked_sub(first)? + 1)
    };
    numbers.split(',').filter_map(of_range).sum::<u64>().clamp(1, 1 << 16)
}

#[must_use]
pub fn load(system: &dyn System) -> String {
    let text = system.text(Path::new("/proc/loadavg")).unwrap_or_default();
    String::from_utf8_lossy(&text).split_whitespace().next().unwrap_or_default().to_owned()
}

/// A processor's name is cut to this many characters.
const NAME_LEN_MAX: usize = 100;

/// The first processor's identity, and whether it is virtual.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Processor {
    /// From `/proc/cpuinfo`: vendor, family and model, or implementer and part.
    pub id: Vec<String>,
    /// The name with family and model, because hypervisors use one name for several generations.
    /// For arm64, which has no name there, its numbers; empty if unknown.
    pub name: String,
    /// Whether it runs under a hypervisor; `false` if unknown.
    pub is_virtual: bool,
}

impl Processor {
    pub fn of(system: &dyn System) -> Self {
        let text = system.text(Path::new("/proc/cpuinfo")).unwrap_or_default();
        let all = |keys: &[&str]| {
            let values = keys.iter().map(|key| value(&text, key).map(str::to_owned));
            values.collect::<Option<Vec<_>>>()
        };
        let id = all(&["vendor_id", "cpu family", "model"])
            .or_else(|| all(&["CPU implementer", "CPU part"]));
        let id = id.unwrap_or_default();
        let name = match (value(&text, "model name"), id.as_slice()) {
            (Some(name), [_, family, model]) => format!("{name}, family {family} model {model}"),
            (Some(name), _) => name.to_owned(),
            (None, [implementer, part]) => format!("CPU implementer {implementer}, part {part}"),
            (None, _) => String::new(),
        };
        let name = name.chars().filter(|c| !c.is_control()).take(NAME_LEN_MAX).collect();
        let flags = value(&text, "flags").unwrap_or_default();
        Self { id, name, is_virtual: flags.split(' ').any(|flag| flag == "hypervisor") }
    }
}

pub(crate) fn available_bytes(system: &dyn System) -> Option<u64> {
    bytes_of_kib(value(&system.text(Path::new("/proc/meminfo")).ok()?, "MemAvailable")?)
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HugetlbPool {
    pub(crate) page_bytes: u64,
    /// Pages in it (`vm.nr_hugepages`).
    pub(crate) nr: u64,
    /// Free pages without a reservation.
    pub(crate) nr_free: u64,
}

impl HugetlbPool {
    pub(crate) fn of(system: &dyn System) -> Option<Self> {
        let text = system.text(Path::new("/proc/meminfo")).ok()?;
        let number = |name| value(&text, name)?.parse::<u64>().ok();
        let page_bytes = bytes_of_kib(value(&text, "Hugepagesize")?).filter(|bytes| *bytes > 0)?;
        let nr_free = number("HugePages_Free")?.saturating_sub(number("HugePages_Rsvd")?);
        Some(Self { page_bytes, nr: number("HugePages_Total")?, nr_free })
    }

    pub(crate) const fn nr_for(&self, bytes: u64) -> u64 {
        bytes.div_ceil(self.page_bytes)
    }

    /// Returns the pool size needed for one more mapping of `bytes`.
    pub(crate) const fn nr_with(&self, bytes: u64) -> u64 {
        self.nr.saturating_add(self.nr_for(bytes).saturating_sub(self.nr_free))
    }
}

pub(crate) fn memory_bytes(system: &dyn System) -> Option<u64> {
    bytes_of_kib(value(&system.text(Path::new("/proc/meminfo")).ok()?, "MemTotal")?)
}

pub(crate) const POOLS: &str = "/sys/kernel/mm/hugepages";

#[must_use]
pub fn hugetlb(kib: u64, name: &str) -> PathBuf {
    format!("{POOLS}/hugepages-{kib}kB/{name}").into()
}

pub fn has_generations(system: &dyn System) -> bool {
    let text = system.text(Path::new(GENERATIONS)).unwrap_or_default();
    generations(&String::from_utf8_lossy(&text)).unwrap_or(false)
}

pub(crate) fn generations(text: &str) -> Option<bool> {
    let bits = u32::from_str_radix(text.trim().trim_start_matches("0x"), 16);
    bits.ok().map(|bits| bits & 1 != 0)
}

pub fn nr_free_hugetlb(system: &dyn System, kib: u64) -> u64 {
    let read = |name| number(system, &hugetlb(kib, name)).unwrap_or(0);
    unreserved(read("free_hugepages"), read("resv_hugepages"))
}

/// Reservations can fall below zero; the kernel shows that as a number near 2^64.
pub(crate) fn unreserved(nr_free: u64, nr_reserved: u64) -> u64 {
    let nr = i128::from(nr_free) - i128::from(nr_reserved.cast_signed());
    u64::try_from(nr).unwrap_or(0)
}

/// A core's caches beyond the first level; typical sizes if unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    pub l2_bytes: usize,
    /// All of the last level.
    pub llc_bytes: usize,
    /// Whether the kernel reported the sizes.
    pub is_reported: bool,
}

impl Default for Caches {
    fn default() -> Self {
        Self { l2_bytes: 1 << 20, llc_bytes: 32 << 20, is_reported: false }
    }
}

/// The largest plausible cache in KiB: callers allocate several times its size.
const CACHE_KIB_MAX: usize = 1 << 20;

pub(crate) fn caches(system: &dyn System) -> Caches {
    let dir = Path::new("/sys/devices/system/cpu/cpu0/cache");
    let read = |nr: usize, name: &str| {
        let text = system.text(&dir.join(format!("index{nr}/{name}"))).ok()?;
        Some(String::from_utf8_lossy(&text).trim().to_owned())
    };
    let mut caches = Caches::default();
    let mut last_level = 0;
    for nr in 0..8 {
        let (Some(level), Some(kind), Some(size)) =
            (read(nr, "level"), read(nr, "type"), read(nr, "size"))
        else {
            continue;
        };
        let kib = size.strip_suffix('K').and_then(|kib| kib.parse::<usize>().ok());
        let (Ok(level), Some(kib)) = (level.parse::<u32>(), kib) else { continue };
        if kind == "Instruction" || level < 2 || !(4..=CACHE_KIB_MAX).contains(&kib) {
            continue;
        }
        let bytes = kib << 10;
        caches.is_reported = true;
        if level == 2 {
            caches.l2_bytes = bytes;
        }
        if level > last_level {
            (last_level, caches.llc_bytes) = (level, bytes);
        }
    }
    caches
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn caches_are_read_and_nonsense_is_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert_eq!(caches(&system), Caches::default());
        let index = |nr: usize, level: &str, kind: &str, size: &str| {
            let place = dir.path().join(format!("sys/devices/system/cpu/cpu0/cache/index{nr}"));
            fs::create_dir_all(&place).unwrap();
            for (name, text) in [("level", level), ("type", kind), ("size", size)] {
                fs::write(place.join(name), format!("{text}\n")).unwrap();
            }
        };
        index(0, "1", "Data", "32K");
        index(1, "1", "Instruction", "32K");
        index(2, "2", "Unified", "512K");
        index(3, "3", "Unified", "36864K");
        index(4, "4", "Unified", "99999999999K");
        let caches = caches(&system);
        assert_eq!(caches, Caches { l2_bytes: 512 << 10, llc_bytes: 36 << 20, is_reported: true });
    }

    #[test]
    fn a_builders_suffix_is_left_out() {
        for (release, kept) in [
            ("6.18.44-custom\n", "6.18.44"),
            ("6.12.57+deb13-amd64", "6.12.57"),
            ("7.2.0-rc1", "7.2.0"),
            ("7.2", "7.2"),
            ("", ""),
            ("x", ""),
        ] {
            assert_eq!(upstream(release), kept, "{release}");
        }
    }

    #[test]
    fn a_processor_is_told_by_its_numbers() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert_eq!(Processor::of(&system), Processor::default());
        let put = |text: &str| fs::write(dir.path().join("cpuinfo"), text).unwrap();
        put("vendor_id\t: AuthenticAMD\ncpu family\t: 25\nmodel\t\t: 17\nmodel name\t: AMD EPYC\n\
             flags\t\t: fpu hypervisor lahf_lm\n");
        let caches = Processor::of(&system);
        assert_eq!((caches.id.join(" ").as_str(), caches.is_virtual), ("AuthenticAMD 25 17", true));
        assert_eq!(caches.name, "AMD EPYC, family 25 model 17");
        put("CPU implementer\t: 0x41\nCPU part\t: 0xd0c\n");
        let caches = Processor::of(&system);
        assert_eq!(caches.id, ["0x41", "0xd0c"]);
        assert_eq!(caches.name, "CPU implementer 0x41, part 0xd0c");
    }

    #[test]
    fn a_machine_that_says_nothing_or_nonsense_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert_eq!((available_bytes(&system), nr_free_hugetlb(&system, 2048)), (None, 0));
        assert_eq!(Processor::of(&system).name, "");
        let put = |name: &str, text: &[u8]| fs::write(dir.path().join(name), text).unwrap();
        put("cpuinfo", b"processor\t: 0\nmodel name\t: A: b\nmodel name\t: second\n");
        assert_eq!(Processor::of(&system).name, "A: b");
        for (text, bytes) in [
            (&b"MemTotal: 9 kB\nMemAvailable:   12 kB\n"[..], Some(12 << 10)),
            (b"MemAvailable: 18446744073709551615 kB\n", None),
            (b"MemAvailable: \xff kB\n", None),
            (b"MemAvailable: 12\n", None),
            (b":\n\n::", None),
        ] {
            put("meminfo", text);
            assert_eq!(available_bytes(&system), bytes);
        }
    }

    #[test]
    fn a_pool_grows_by_what_is_not_free_in_it() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert_eq!(HugetlbPool::of(&system), None);
        let text = "HugePages_Total:      20\nHugePages_Free:       12\nHugePages_Rsvd:        2\n\
            HugePages_Surp:        0\nHugepagesize:       2048 kB\n";
        std::fs::write(dir.path().join("meminfo"), text).unwrap();
        let pool = HugetlbPool::of(&system).unwrap();
        assert_eq!((pool.page_bytes, pool.nr, pool.nr_free), (2 << 20, 20, 10));
        assert_eq!((pool.nr_for(1), pool.nr_for(64 << 20)), (1, 32));
        assert_eq!((pool.nr_with(4 << 20), pool.nr_with(64 << 20)), (20, 42));
    }

    #[test]
    fn a_kernel_may_leave_its_own_memory_out_of_groups() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert!(!has_no_kmem(&system));
        for (text, is_out) in [
            ("quiet cgroup.memory=nosocket,nokmem ro\n", true),
            ("cgroup.memory=nosocket nokmem\n", false),
            ("xcgroup.memory=nokmem\n", false),
        ] {
            fs::write(dir.path().join("cmdline"), text).unwrap();
            assert_eq!(has_no_kmem(&system), is_out, "{text}");
        }
    }

    #[test]
    fn processors_are_counted_and_nonsense_is_one() {
        for (list, nr) in [("0", 1), ("0-3", 4), ("0-3,8,10-11", 7), ("", 1), ("7-3", 1)] {
            assert_eq!(nr_of_list(list), nr, "{list}");
        }
        assert_eq!(nr_of_list("0-99999999"), 1 << 16);
    }
}

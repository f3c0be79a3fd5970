//! The machine as a whole: release, processor, memory, this boot.

use std::path::{Path, PathBuf};

use super::{bytes_of_kib, number, value};
use crate::system::System;

/// Tells one boot from another.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The mounts this process sees.
pub(crate) const MOUNTS: &str = "/proc/self/mountinfo";

/// Version of the running kernel, empty when unknown. What a builder appended to it (`-amd64`,
/// `-custom`) names a machine, and no rule goes by it.
pub(crate) fn kernel_release(system: &dyn System) -> String {
    let release = system.text(Path::new("/proc/sys/kernel/osrelease")).unwrap_or_default();
    upstream(&String::from_utf8_lossy(&release)).to_owned()
}

/// `6.18.44` of `6.18.44-custom`.
fn upstream(release: &str) -> &str {
    let release = release.trim();
    let end = release.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(release.len());
    release[..end].trim_end_matches('.')
}

/// Name of the processor: the first of `keys` in `/proc/cpuinfo`; empty where it has none.
pub(crate) fn processor(system: &dyn System, keys: &[&str]) -> String {
    let text = system.text(Path::new("/proc/cpuinfo")).unwrap_or_default();
    keys.iter().find_map(|key| value(&text, key)).unwrap_or_default().to_owned()
}

/// Bytes that can be had without pressing other memory out, where the kernel says.
pub(crate) fn available_bytes(system: &dyn System) -> Option<u64> {
    bytes_of_kib(value(&system.text(Path::new("/proc/meminfo")).ok()?, "MemAvailable")?)
}

/// What the kernel says about the hugetlb pool of one size, or takes for it.
pub(crate) fn hugetlb(kib: u64, name: &str) -> PathBuf {
    format!("/sys/kernel/mm/hugepages/hugepages-{kib}kB/{name}").into()
}

/// hugetlb pages of one size that are free and promised to nobody.
pub(crate) fn nr_free_hugetlb(system: &dyn System, kib: u64) -> u64 {
    let read = |name| number(system, &hugetlb(kib, name)).unwrap_or(0);
    // Reservations can fall below zero, which the kernel shows as a number near 2^64.
    let free = i128::from(read("free_hugepages"));
    let reserved = i128::from(read("resv_hugepages").cast_signed());
    u64::try_from(free - reserved).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::MemSystem;

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
    fn a_machine_that_says_nothing_or_nonsense_is_no_error() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert_eq!((available_bytes(&system), nr_free_hugetlb(&system, 2048)), (None, 0));
        assert_eq!(processor(&system, &["model name"]), "");
        let put = |name: &str, text: &[u8]| fs::write(dir.path().join(name), text).unwrap();
        put("cpuinfo", b"processor\t: 0\nmodel name\t: A: b\nmodel name\t: second\n");
        assert_eq!(processor(&system, &["CPU part", "model name"]), "A: b");
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
}

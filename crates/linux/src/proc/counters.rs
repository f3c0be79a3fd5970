//! The kernel's counters of events since boot, and the time that tasks waited for memory (PSI).

use std::collections::BTreeMap;
use std::io;
use std::path::Path;

use super::thp;
use crate::system::System;

const VMSTAT: &str = "/proc/vmstat";
/// What PSI says about the whole system.
pub const PRESSURE: &str = "/proc/pressure/memory";
/// The same for one control group of version 2, in its directory.
pub(crate) const PRESSURE_OF_GROUP: &str = "memory.pressure";
/// A prefix of per-size files that hold amounts, not counts of events.
const GAUGES: &str = "nr_";

/// Time in which tasks waited for memory, since boot.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Pressure {
    /// At least one task waited.
    pub some_us: u64,
    /// All tasks that had work waited.
    pub full_us: u64,
}

/// Reads the counters of vmstat that `is_wanted` names.
pub(crate) fn vmstat(
    system: &dyn System,
    is_wanted: &dyn Fn(&str) -> bool,
) -> BTreeMap<String, u64> {
    let text = system.text(Path::new(VMSTAT)).unwrap_or_default();
    let lines = text.split(|byte| *byte == b'\n').filter_map(|line| str::from_utf8(line).ok());
    let counters = lines.filter_map(|line| {
        let (name, value) = line.split_once(' ')?;
        is_wanted(name).then_some((name.to_owned(), value.trim().parse().ok()?))
    });
    counters.collect()
}

/// Reads the counters of each folio size, by size in KiB and name.
pub(crate) fn of_sizes(system: &dyn System) -> BTreeMap<(u64, String), u64> {
    let mut counters = BTreeMap::new();
    for kib in thp::sizes_kib(system).unwrap_or_default() {
        let names = system.names(&thp::of_size(kib, "stats")).unwrap_or_default();
        for name in names.iter().filter_map(|name| name.to_str()) {
            if let Some(value) = super::number(system, &thp::of_size(kib, &format!("stats/{name}")))
                && !name.starts_with(GAUGES)
            {
                counters.insert((kib, name.to_owned()), value);
            }
        }
    }
    counters
}

/// Reads one file of PSI.
///
/// # Errors
/// If the kernel does not measure it: it is not built in, or needs `psi=1` at boot.
pub(crate) fn pressure(system: &dyn System, path: &Path) -> io::Result<Pressure> {
    let text = system.text(path)?;
    let text = String::from_utf8_lossy(&text);
    let total = |kind: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(kind))?;
        line.split(' ').find_map(|word| word.strip_prefix("total=")?.parse().ok())
    };
    let some_us = total("some ").ok_or(io::ErrorKind::InvalidData)?;
    Ok(Pressure { some_us, full_us: total("full ").unwrap_or(0) })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn counters_are_read_and_nonsense_is_left_out() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        assert!(vmstat(&system, &|_| true).is_empty() && of_sizes(&system).is_empty());
        let text = b"thp_split_page 7\nnr_free_pages 9\nthp_x -1\nthp_y\nthp_\xff 1\n";
        fs::write(dir.path().join("vmstat"), text).unwrap();
        let found = vmstat(&system, &|name| name.starts_with("thp_"));
        assert_eq!(found, BTreeMap::from([("thp_split_page".to_owned(), 7)]));
        let size = dir.path().join(&thp::THP[1..]).join("hugepages-64kB");
        fs::create_dir_all(size.join("stats")).unwrap();
        for (name, text) in [("enabled", "always"), ("stats/split", "3"), ("stats/nr_anon", "5")] {
            fs::write(size.join(name), format!("{text}\n")).unwrap();
        }
        assert_eq!(of_sizes(&system), BTreeMap::from([((64, "split".to_owned()), 3)]));
    }

    #[test]
    fn pressure_is_read_or_refused() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let path = Path::new(PRESSURE);
        assert!(pressure(&system, path).is_err());
        fs::create_dir(dir.path().join("pressure")).unwrap();
        let put = |text: &str| fs::write(dir.path().join("pressure/memory"), text).unwrap();
        put("some avg10=0.00 avg60=0.00 avg300=0.00 total=1234\n\
             full avg10=0.00 avg60=0.00 avg300=0.00 total=56\n");
        let found = pressure(&system, path).unwrap();
        assert_eq!(found, Pressure { some_us: 1234, full_us: 56 });
        put("some avg10=0.00 total=x\n");
        assert!(pressure(&system, path).is_err());
    }
}

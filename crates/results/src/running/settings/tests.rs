use std::fs;
use std::path::Path;

use tempfile::TempDir;

use super::*;
use crate::running::This;

fn system(files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        set(dir.path(), path, text);
    }
    dir
}

fn set(root: &Path, path: &str, text: &str) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

const ENABLED: &str = "sys/kernel/mm/transparent_hugepage/enabled";
const OF_64K: &str = "sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled";
const SHMEM_OF_64K: &str = "sys/kernel/mm/transparent_hugepage/hugepages-64kB/shmem_enabled";
const GENERATIONS: &str = "sys/kernel/mm/lru_gen/enabled";

/// All columns of a command have the same settings, even if another process changes them meanwhile.
#[test]
fn the_kernels_of_one_command_have_the_settings_of_one_moment() {
    let dir = system(&[
        (ENABLED, "[always] madvise never\n"),
        (OF_64K, "[always] inherit madvise never\n"),
    ]);
    let this = This::below(dir.path());
    let first = this.named("this").unwrap();
    set(dir.path(), ENABLED, "always madvise [never]\n");
    set(dir.path(), OF_64K, "always inherit madvise [never]\n");
    assert_eq!(this.named("this").unwrap(), first);
    let with_io = this.named("this+readahead=512K").unwrap();
    assert_eq!(with_io.rules.anon, first.rules.anon);
    assert!(this.default_names().unwrap()[1..].iter().all(|name| name.contains("+thp=always")));
    let later = This::below(dir.path()).named("this").unwrap();
    assert_ne!(later.rules.anon, first.rules.anon, "the next command reads them again");
}

#[test]
fn everything_with_a_rule_is_an_edit() {
    let disk = "sys/block/vda";
    let dir = system(&[
        (ENABLED, "always [madvise] never\n"),
        (GENERATIONS, "0x0000\n"),
        ("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/vda rw\n"),
        (&format!("{disk}/dev"), "254:0\n"),
        (&format!("{disk}/queue/read_ahead_kb"), "8192\n"),
        (&format!("{disk}/queue/max_sectors_kb"), "1280\n"),
        ("sys/kernel/mm/transparent_hugepage/khugepaged/scan_sleep_millisecs", "100\n"),
        (
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "always within_size [advise] never deny force\n",
        ),
    ]);
    for (name, value) in [("none", 511), ("swap", 64), ("shared", 256)] {
        let path = format!("sys/kernel/mm/transparent_hugepage/khugepaged/max_ptes_{name}");
        set(dir.path(), &path, &format!("{value}\n"));
    }
    let named = This::below(dir.path()).named("this").unwrap();
    assert!(!named.name.contains("max-ptes"), "a default is not an edit: {}", named.name);
    let rules = named.rules;
    let expected =
        Kernel::parse("6.18+thp=madvise+readahead=8192K+io=1280K+lru=lists").unwrap().rules;
    assert_eq!((rules.readahead_bytes, rules.io_bytes), (8 << 20, 1280 << 10));
    assert_eq!(rules.reclaim.lru, expected.reclaim.lru);
    assert_eq!(rules.collapse.scan_sleep_ms, 100);
    set(dir.path(), GENERATIONS, "0x0007\n");
    let rules = This::below(dir.path()).named("this").unwrap().rules;
    assert_ne!(rules.reclaim.lru, expected.reclaim.lru);
}

#[test]
fn reports_unmodelled_settings() {
    let dir = system(&[
        (ENABLED, "always [madvise] never\n"),
        (SHMEM_OF_64K, "[always] inherit within_size advise never\n"),
    ]);
    let this = This::below(dir.path());
    assert!(this.remarks().is_empty(), "nothing was read");
    this.named("6.12").unwrap();
    assert!(this.remarks().is_empty(), "this kernel was not asked for");
    this.named("this").unwrap();
    let remarks = format!("{:?}", this.remarks());
    assert!(remarks.contains("does not know: thp.64K.shmem=always"), "{remarks}");
    assert!(
        remarks.contains("cannot read thp.defrag") && remarks.contains("more here, so `this` uses"),
        "{remarks}"
    );
}

/// A value set temporarily by another folio is not the system's own.
#[test]
fn warns_about_a_setting_that_another_folio_holds() {
    let dir = system(&[(ENABLED, "always [madvise] never\n")]);
    let held = fs::File::open(dir.path().join(ENABLED)).unwrap();
    let remarks = || {
        let this = This::below(dir.path());
        this.named("this").unwrap();
        format!("{:?}", this.remarks())
    };
    assert!(!remarks().contains("another folio"));
    held.lock().unwrap();
    assert!(
        remarks().contains("another folio command (verify, run or bench) has changed thp.enabled"),
        "{}",
        remarks()
    );
}

#[test]
fn blocks_above_a_page_are_the_smallest_folios() {
    let mounted = |sizes: &[u64]| {
        let at = |(nr, bytes): (usize, &u64)| (PathBuf::from(format!("/m{nr}")), *bytes);
        blocks(&sizes.iter().enumerate().map(at).collect::<Vec<_>>(), 4096)
    };
    assert_eq!([mounted(&[]), mounted(&[4096, 1024])], [Ok(None), Ok(None)]);
    assert_eq!(mounted(&[16384; 2]), Ok(Some("min-folio=16K".to_owned())));
    let mixed = mounted(&[4096, 16384]).unwrap_err();
    assert_eq!(mixed, "blocks of 16K in /m1 (this+min-folio=16K)");
}

use std::fs;

use tempfile::TempDir;

use super::*;

fn system(files: &[(&str, &str)]) -> (TempDir, Catalog) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let catalog = Catalog::below(dir.path());
    (dir, catalog)
}

const THP: &str = "sys/kernel/mm/transparent_hugepage";
const MOUNTS: &str = "20 1 254:1 / / rw - ext4 /dev/vda1 rw\n\
    21 20 7:0 / /m rw - xfs /dev/loop0 rw\n\
    22 20 0:40 / /pool rw - btrfs /dev/vdb rw\n\
    23 20 0:23 / /dev/shm rw - tmpfs tmpfs rw,huge=within_size\n\
    24 20 0:24 / /tmp rw - tmpfs tmpfs rw,huge=never\n";

#[test]
fn everything_that_the_kernel_shows_is_read() {
    let (_dir, catalog) = system(&[
        (&format!("{THP}/enabled"), "always [madvise] never\n"),
        (&format!("{THP}/shrink_underused"), "1\n"),
        (&format!("{THP}/khugepaged/pages_to_scan"), "8192\n"),
        (&format!("{THP}/hugepages-64kB/enabled"), "[always] inherit madvise never\n"),
        (&format!("{THP}/hugepages-64kB/shmem_enabled"), "always [never]\n"),
        ("proc/self/mountinfo", MOUNTS),
        ("sys/block/vda/dev", "254:0\n"),
        ("sys/block/vda/vda1/dev", "254:1\n"),
        ("sys/block/vda/queue/read_ahead_kb", "8192\n"),
        ("sys/block/vda/queue/max_sectors_kb", "1280\n"),
        ("sys/block/loop0/dev", "7:0\n"),
        ("sys/block/loop0/queue/read_ahead_kb", "128\n"),
        ("sys/fs/btrfs/1-2/devices/vdb", ""),
        ("sys/fs/btrfs/1-2/bdi/read_ahead_kb", "4096\n"),
        ("sys/kernel/debug/fault_around_bytes", "32768\n"),
        ("sys/kernel/debug/sched/preempt", "none voluntary full (lazy)\n"),
        ("sys/kernel/mm/lru_gen/enabled", "0x0007\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "20\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/resv_hugepages", "4\n"),
        ("sys/devices/system/node/online", "0-1\n"),
        ("proc/sys/vm/swappiness", "10\n"),
        ("proc/swaps", "Filename Type Size Used Priority\n/dev/zram0 partition 1 0 100\n"),
    ]);
    let wanted = ["loop0", "btrfs-vdb", "gone"].map(str::to_owned).into();
    let facts = KernelFacts::read(&catalog, &wanted);
    let value = |name: &str| facts.settings.get(name).map(String::as_str);
    assert_eq!(
        ["thp.enabled", "thp.shrink_underused", "khugepaged.pages_to_scan", "vm.swappiness"]
            .map(value),
        [Some("madvise"), Some("1"), Some("8192"), Some("10")]
    );
    assert_eq!([value("thp.64K"), value("thp.64K.shmem")], [Some("always"), Some("never")]);
    assert_eq!([value("thp.defrag"), value("ksm.run")], [None; 2]);
    let disk = |readahead_kib, io_kib| DiskFacts { readahead_kib, io_kib };
    let disks = [
        ("btrfs-vdb", disk(Some(4096), None)),
        ("gone", disk(None, None)),
        ("loop0", disk(Some(128), None)),
        ("vda", disk(Some(8192), Some(1280))),
    ];
    assert_eq!(facts.disks, disks.map(|(name, disk)| (name.to_owned(), disk)).into());
    assert_eq!(facts.usual_disk.as_deref(), Some("vda"));
    assert_eq!((facts.fault_around_bytes, facts.has_generations), (Some(32768), Some(true)));
    assert_eq!(facts.preemption.as_deref(), Some("lazy"));
    assert_eq!((facts.pools, facts.nr_nodes), ([(2048, 16)].into(), 2));
    assert_eq!(facts.swaps, ["/dev/zram0"]);
    assert_eq!(facts.huge_tmpfs, [("/dev/shm".into(), "within_size".to_owned())]);
}

#[test]
fn a_system_that_shows_nothing_or_nonsense_is_no_error() {
    let (_dir, catalog) = system(&[]);
    let facts = KernelFacts::read(&catalog, &BTreeSet::new());
    assert_eq!((facts.settings.len(), facts.usual_disk, facts.nr_nodes), (0, None, 1));
    let (_dir, catalog) = system(&[
        ("proc/self/mountinfo", "x\n1 2\n20 1 a:b / / rw - ext4\n"),
        ("sys/kernel/debug/fault_around_bytes", "-1\n"),
        ("sys/kernel/debug/sched/preempt", "none )( full\n"),
        ("sys/kernel/mm/hugepages/hugepages-xkB/free_hugepages", "20\n"),
        ("sys/devices/system/node/online", "9-1\n"),
        ("proc/swaps", ""),
    ]);
    let facts = KernelFacts::read(&catalog, &BTreeSet::new());
    assert_eq!((facts.fault_around_bytes, facts.preemption), (None, None));
    assert_eq!((facts.pools.len(), facts.swaps.len(), facts.nr_nodes), (0, 0, 1));
}

/// A container's root is an overlay, on no disk: any disk with a mount is more like it than none.
#[test]
fn without_a_disk_below_the_root_another_mounted_one_is_usual() {
    let mounts = "20 1 0:50 / / rw - overlay overlay rw\n\
                  21 20 254:1 /x /etc/hosts rw - ext4 /dev/vda1 rw\n";
    let (_dir, catalog) = system(&[
        ("proc/self/mountinfo", mounts),
        ("sys/block/vda/vda1/dev", "254:1\n"),
        ("sys/block/vdb/dev", "254:16\n"),
    ]);
    let facts = KernelFacts::read(&catalog, &BTreeSet::new());
    assert_eq!(facts.usual_disk.as_deref(), Some("vda"));
}

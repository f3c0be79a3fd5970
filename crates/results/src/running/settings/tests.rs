use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use largefolio_linux::tune::catalog::Catalog;
use largefolio_trace::{FileInfo, Meta, Writer};
use tempfile::TempDir;

use super::*;
use crate::running::{This, changed_from, known, nearest_rules};

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
const SHMEM: &str = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
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
        (SHMEM, "always within_size [advise] never deny force\n"),
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

fn gaps(named: &Kernel, kind: GapKind) -> Vec<String> {
    let gaps = named.gaps.iter().filter(|gap| gap.kind == kind);
    gaps.map(|gap| format!("{} -> {}", gap.what, gap.instead)).collect()
}

#[test]
fn settings_without_a_rule_and_unread_ones_are_gaps_of_this_kernel() {
    let dir = system(&[
        (ENABLED, "always [madvise] never\n"),
        (SHMEM, "[always] within_size advise never deny force\n"),
        (SHMEM_OF_64K, "[always] inherit within_size advise never\n"),
        (OF_64K, "always inherit madvise [never]\n"),
        (
            "sys/kernel/mm/transparent_hugepage/shmem_enabled",
            "[always] within_size advise never deny force\n",
        ),
        ("proc/sys/vm/swappiness", "10\n"),
        ("proc/sys/vm/page-cluster", "3\n"),
        ("proc/sys/vm/min_free_kbytes", "67584\n"),
        ("sys/devices/system/node/online", "0,2\n"),
        ("proc/self/mountinfo", "9 1 0:1 / /t rw - tmpfs t rw,huge=always\n"),
    ]);
    let this = This::below(dir.path());
    assert_eq!(this.named("6.12").unwrap().gaps, [], "this kernel was not asked for");
    let named = this.named("this").unwrap();
    assert!(named.name.contains("+shmem=always"), "{}", named.name);
    assert!(named.name.contains("+shmem-64K=always"), "{}", named.name);
    assert_eq!(
        gaps(&named, GapKind::Setting),
        [
            "vm.swappiness=10 -> as if 60",
            "huge=always of /t -> never; +tmpfs-huge=always sets it for every tmpfs",
            "2 NUMA nodes -> one node",
        ]
    );
    let unread = gaps(&named, GapKind::Unread);
    assert_eq!(unread.iter().filter(|gap| gap.starts_with("thp.defrag -> madvise")).count(), 1);
    let around = "fault_around_bytes (debugfs, root only) -> 64K".to_owned();
    assert!(unread.contains(&around), "{unread:?}");
    assert!(!unread.iter().any(|gap| gap.starts_with("thp.enabled")), "{unread:?}");
    let given = this.named("this+fault-around=32K+defrag=always").unwrap();
    let left = gaps(&given, GapKind::Unread);
    assert_eq!(
        left.len() + 2,
        unread.len(),
        "a value that the user sets need not be read: {left:?}"
    );
    // The other default kernels have the same settings, and so the same gaps.
    let next = this.default_names().unwrap().pop().unwrap();
    assert_eq!(gaps(&this.named(&next).unwrap(), GapKind::Unread), unread);
}

#[test]
fn each_device_has_its_own_limits_and_an_edit_of_all_replaces_them() {
    let disk = |name: &str, file: &str| format!("sys/block/{name}/queue/{file}_kb");
    let dir = system(&[
        (ENABLED, "always [madvise] never\n"),
        ("proc/self/mountinfo", "20 1 254:0 / / rw - ext4 /dev/vda rw\n"),
        ("sys/block/vda/dev", "254:0\n"),
        (&disk("vda", "read_ahead"), "8192\n"),
        (&disk("vda", "max_sectors"), "1280\n"),
        (&disk("loop0", "read_ahead"), "128\n"),
        (&disk("loop0", "max_sectors"), "1280\n"),
        ("sys/fs/btrfs/1/devices/vdb", ""),
        ("sys/fs/btrfs/1/bdi/read_ahead_kb", "4096\n"),
    ]);
    let mut this = This::below(dir.path());
    // Other names in a trace are no devices, and become neither paths nor edits.
    let names = ["loop0", "btrfs-vdb", "vdz", "", "../../../etc", "vda+readahead=1M"];
    let files = names.map(|disk| FileInfo { disk: disk.to_owned(), ..FileInfo::default() });
    let path = dir.path().join("t.folio");
    let meta = Meta { page_bytes: 4096, files: files.into(), ..Meta::default() };
    Writer::create(&path, meta).unwrap().finish().unwrap();
    this.traces = vec![path];
    let rules = this.named("this").unwrap();
    let pages = |kernel: &Kernel, disk| {
        let device = kernel.rules.device(disk);
        [device.ra_pages, device.io_pages]
    };
    assert_eq!([pages(&rules, ""), pages(&rules, "vda")], [[2048, 320]; 2]);
    assert_eq!(pages(&rules, "loop0"), [32, 320]);
    assert_eq!(pages(&rules, "btrfs-vdb"), [1024, 32], "nothing shows the largest I/O of a btrfs");
    assert_eq!(pages(&rules, "vdz"), [32, 32]);
    let of_disks: Vec<String> = gaps(&rules, GapKind::Unread)
        .into_iter()
        .filter(|gap| gap.contains("read_ahead"))
        .collect();
    assert_eq!(of_disks, ["read_ahead_kb of vdz -> 128K"]);
    let edited = this.named("this+readahead=1M").unwrap();
    assert_eq!(["", "loop0", "vdz"].map(|disk| pages(&edited, disk)[0]), [256; 3]);
    assert_eq!(pages(&edited, "btrfs-vdb"), [256, 32]);
}

#[test]
fn the_rest_of_what_the_kernel_shows_becomes_rules() {
    let dir = system(&[
        (ENABLED, "always [madvise] never\n"),
        ("sys/kernel/mm/transparent_hugepage/shrink_underused", "0\n"),
        ("sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "8192\n"),
        ("sys/kernel/mm/transparent_hugepage/khugepaged/defrag", "0\n"),
        ("sys/kernel/debug/fault_around_bytes", "40000\n"),
        ("sys/kernel/debug/sched/preempt", "(none) voluntary full lazy\n"),
        ("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "16\n"),
        ("proc/sys/vm/dirty_background_ratio", "5\n"),
        ("proc/sys/vm/compaction_proactiveness", "0\n"),
        ("proc/swaps", "Filename\n/dev/vdb1 partition 1 0 -2\n"),
    ]);
    let rules = This::below(dir.path()).named("this").unwrap().rules;
    let expected = "+lru=lists+shrink-underused=off+collapse.ranges_to_scan=16\
        +collapse.defrag=false+fault-around=32K+preemption=none+hugepages.2048=16\
        +reclaim.dirty_background_ratio=5+reclaim.compaction_proactiveness=0\
        +reclaim.swap_device=disk";
    let nearest = known(&nearest_rules().unwrap().name);
    let expected = Kernel::parse(&format!("{nearest}{expected}")).unwrap().rules;
    assert_eq!(rules, expected);
    set(dir.path(), "sys/kernel/mm/transparent_hugepage/khugepaged/pages_to_scan", "100\n");
    let named = This::below(dir.path()).named("this").unwrap();
    assert!(gaps(&named, GapKind::Setting)[0].starts_with("khugepaged.pages_to_scan=100"));
}

/// A value set temporarily by another folio is not the system's own.
#[test]
fn warns_about_a_setting_that_another_folio_holds() {
    let dir = system(&[(ENABLED, "always [madvise] never\n")]);
    let held = fs::File::open(dir.path().join(ENABLED)).unwrap();
    let remarks = || {
        let this = This::below(dir.path());
        this.named("this").unwrap();
        format!("{:?}", this.remark())
    };
    assert!(!remarks().contains("another folio"));
    held.lock().unwrap();
    assert!(
        remarks().contains("another folio command (verify, run or bench) has changed thp.enabled"),
        "{}",
        remarks()
    );
}

const FEATURES: &str = "sys/kernel/mm/largefolio";

/// The edits that the features' settings add, and the gaps that they leave.
fn features(files: &[(&str, &str)]) -> (Vec<String>, Vec<String>) {
    let dir = system(&[(ENABLED, "always [madvise] never\n")]);
    for (file, text) in files {
        set(dir.path(), &format!("{FEATURES}/{file}"), text);
    }
    let facts = KernelFacts::read(&Catalog::below(dir.path()), &BTreeSet::new());
    let plain = Settings::of(&KernelFacts {
        settings: [("thp.enabled".to_owned(), "madvise".to_owned())].into(),
        ..facts.clone()
    });
    let settings = Settings::of(&facts);
    let edits = settings.edits.iter().filter(|edit| !plain.edits.contains(edit));
    let gaps = settings.gaps.iter().filter(|gap| gap.what.starts_with("largefolio."));
    (edits.cloned().collect(), gaps.map(|gap| gap.what.clone()).collect())
}

#[test]
fn features_of_the_kernel_are_the_edits_of_the_same_name() {
    let off = [
        ("exec_order", "[off] block window\n"),
        ("exec_order_bytes", "65536\n"),
        ("exec_miss", "[kernel] counted posted final\n"),
        ("forced", "[kernel] pmd posted final\n"),
        ("forced_gate", "[kernel] off on\n"),
        ("clear", "[off] posted merged\n"),
    ];
    assert_eq!(features(&off), (Vec::new(), Vec::new()));
    // Settings of recorded kernels, and the files with their rules.
    let with = |changes: &[(&'static str, &'static str)]| {
        features(&[&off[..], changes].concat()).0.join("+")
    };
    let window = ("exec_order", "off block [window]\n");
    for (changes, expected, recorded) in [
        (&[window][..], "exec-window=64K", "f_612_4k_exec"),
        (&[("exec_order", "off [block] window\n")], "exec-block=64K", "b_612_4k_s000"),
        (
            &[
                window,
                ("exec_miss", "kernel counted [posted] final\n"),
                ("forced", "kernel pmd [posted] final\n"),
                ("forced_gate", "kernel off [on]\n"),
            ],
            "exec-window=64K+exec-miss=posted+forced=posted+forced-gate=on",
            "d_612_4k_exec_s002",
        ),
    ] {
        assert_eq!(with(changes), expected);
        let edited = Kernel::parse(&format!("6.12+{expected}")).unwrap().rules;
        assert_eq!(edited, recorded_rules(recorded), "{recorded}");
    }
    let bytes = ("exec_order_bytes", "2097152\n");
    assert_eq!(
        with(&[window, bytes, ("clear", "off posted [merged]\n")]),
        "exec-window=2M+clear=merged"
    );
}

fn recorded_rules(name: &str) -> largefolio_mm::rules::Rules {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let path = root.join("kernels/recorded").join(format!("{name}.toml"));
    Kernel::parse(path.to_str().unwrap()).unwrap().rules
}

#[test]
fn features_of_7_3_are_edits_too() {
    let size = |kib: u64| format!("file_sizes/hugepages-{kib}kB");
    let (base, small, large) = (size(4), size(64), size(2048));
    let off = [
        ("owners_max", "0\n"),
        ("pmd_counts", "[one] pages\n"),
        ("mapcount_max", "1073741823\n"),
        ("file_collapse", "[large-folios] absent deny-write exec readers\n"),
        ("copy", "[pages] extents\n"),
        (&base, "never [always] exec always+exec\n"),
        (&small, "never [always] exec always+exec\n"),
        (&large, "never [always] exec always+exec\n"),
    ];
    assert_eq!(features(&off), (vec!["mapcount=folio".to_owned()], Vec::new()));
    let with = |changes: &[(&str, &str)]| {
        let (edits, gaps) = features(&[&off[..], changes].concat());
        (edits.join("+"), gaps)
    };
    let (edits, gaps) = with(&[
        ("owners_max", "40\n"),
        ("pmd_counts", "one [pages]\n"),
        ("mapcount_max", "1000\n"),
        ("file_collapse", "large-folios absent deny-write [exec] readers\n"),
        ("copy", "pages [extents]\n"),
    ]);
    let expected = "mapcount=folio+owners-max=40+pmd-counts=pages+file-collapse=exec+copy=extents";
    assert_eq!((edits.as_str(), gaps), (expected, vec!["largefolio.mapcount_max=1000".to_owned()]));
    assert!(Kernel::parse(&format!("7.3+{expected}")).is_ok());
    for (changes, expected, recorded) in [
        (
            &[(small.as_str(), "never always exec [always+exec]\n")][..],
            "64K:always+exec/others:always",
            None,
        ),
        (
            &[
                (small.as_str(), "never always [exec] always+exec\n"),
                (&size(16), "[never] always exec always+exec\n"),
                (&size(32), "[never] always exec always+exec\n"),
                (&size(128), "[never] always exec always+exec\n"),
            ],
            "64K:exec/2M:always",
            Some("73_sizes_64k_2m"),
        ),
    ] {
        let edits = with(changes).0;
        assert_eq!(edits, format!("mapcount=folio+sizes={expected}"));
        let edited = Kernel::parse(&format!("7.3+{edits}")).unwrap().rules;
        if let Some(recorded) = recorded {
            assert_eq!(edited, recorded_rules(recorded));
        }
    }
}

/// `folio verify --tune` sets one of two settings that make one edit, and can turn one off.
#[test]
fn a_changed_feature_is_predicted_with_the_other_settings() {
    let dir = system(&[(ENABLED, "always [madvise] never\n")]);
    set(dir.path(), &format!("{FEATURES}/exec_order"), "off block [window]\n");
    set(dir.path(), &format!("{FEATURES}/exec_order_bytes"), "65536\n");
    let facts = KernelFacts::read(&Catalog::below(dir.path()), &BTreeSet::new());
    let of = |changes: &[(&str, &str)]| {
        changed_from(Kernel::parse("6.12").unwrap(), facts.clone(), changes)
    };
    let exec = |kernel: &Kernel| kernel.rules.fault.exec;
    let wanted = |edit: &str| Kernel::parse(&format!("6.12{edit}")).unwrap().rules.fault.exec;
    let rules = of(&[("largefolio.exec_order", "off"), ("thp.enabled", "always")]).unwrap();
    assert_eq!(
        [exec(&rules.plain), exec(&rules.changed)],
        [wanted("+exec-window=64K"), wanted("")]
    );
    assert_ne!(rules.plain.rules.anon, rules.changed.rules.anon);
    let rules = of(&[("largefolio.exec_order_bytes", "2097152")]).unwrap();
    assert_eq!(exec(&rules.changed), wanted("+exec-window=2M"));
    let error = of(&[("largefolio.size_advice", "followed")]).unwrap_err().to_string();
    assert!(
        error.contains("the model does not know the setting largefolio.size_advice"),
        "{error}"
    );
}

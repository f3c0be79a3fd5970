//! The recorded set, and the parts of it that a machine can record.
#![expect(clippy::unwrap_used, reason = "an archive that cannot be read fails the test")]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use largefolio_lab::crosscheck::record::workloads::{limited, packaged, with_window};
use largefolio_lab::crosscheck::record::{
    CrosscheckError, Custom, Facts, Filesystem, Limits, Random, Selection, Thp, Workload,
    WorkloadPlan, WorkloadSet,
};

fn facts() -> Facts {
    Facts {
        is_root: true,
        release: "6.18.44-test".to_owned(),
        page_bytes: 4096,
        thp: Thp::Madvise,
        has_generations: false,
        nr_nodes: 1,
        limits: Limits::OfFolios,
        fault_around_bytes: Some(65536),
        formatters: Filesystem::LIVE.map(|one| (one, "/bin/true".into())).to_vec(),
    }
}

fn split_words(text: &str) -> Vec<String> {
    text.split_whitespace().map(str::to_owned).collect()
}

fn recorded(archive: &Path) -> BTreeSet<String> {
    let listed = Command::new("tar").arg("-tJf").arg(archive).output().unwrap();
    let text = String::from_utf8(listed.stdout).unwrap();
    let stem = |line: &str| Some(Path::new(line).file_stem()?.to_str()?.to_owned());
    text.lines().filter(|line| !line.ends_with('/')).filter_map(stem).collect()
}

#[test]
fn every_recording_of_a_packaged_kernel_is_in_the_set() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/packaged");
    let mut nr_archives = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.to_string_lossy();
        let of_page = [("_16k.", 16384), ("_64k.", 65536)];
        let known = of_page.iter().find(|(part, _)| name.contains(part));
        let page = known.map_or(4096, |(_, page)| *page);
        let set: BTreeSet<String> = Filesystem::ALL
            .into_iter()
            .flat_map(|one| packaged(one, page))
            .map(|workload| workload.name)
            .collect();
        let names = recorded(&path);
        assert!(!names.is_empty(), "{} is empty", path.display());
        let unknown: Vec<_> = names.difference(&set).collect();
        assert!(unknown.is_empty(), "{}: {unknown:?}", path.display());
        nr_archives += 1;
    }
    assert!(nr_archives >= 26, "{nr_archives} archives");
}

#[test]
fn names_are_unique_in_every_window() {
    for page in [4096, 16384, 65536] {
        for filesystem in Filesystem::LIVE {
            for window_kb in [0, 64, 128, 512, 2560, 8192] {
                let all = with_window(filesystem, window_kb, page);
                let names: BTreeSet<_> = all.iter().map(|workload| &workload.name).collect();
                assert_eq!(names.len(), all.len(), "{filesystem} {window_kb} {page}");
                assert!(!all.is_empty());
            }
        }
    }
}

#[test]
fn the_default_selection_has_two_hundred_workloads() {
    let plan = WorkloadPlan::new(&Selection::default(), &facts(), "sudo folio").unwrap();
    assert!(plan.nr_workloads() >= 200, "{}", plan.nr_workloads());
    let mut per_window: BTreeMap<u64, usize> = BTreeMap::new();
    for workload in plan.groups.iter().flat_map(|group| &group.workloads) {
        *per_window.entry(workload.window_kb).or_default() += 1;
    }
    assert_eq!(per_window.keys().copied().collect::<Vec<_>>(), [128, 512, 2560, 8192]);
    assert!(plan.warnings.is_empty(), "{:?}", plan.warnings);
    assert!(plan.skipped.iter().all(|one| one.reason.contains("fault_around_bytes")));
}

#[test]
fn without_root_the_command_to_type_is_told() {
    let facts = Facts { is_root: false, ..facts() };
    let error =
        WorkloadPlan::new(&Selection::default(), &facts, "sudo folio-lab crosscheck").unwrap_err();
    assert!(error.to_string().contains("run `sudo folio-lab crosscheck`"), "{error}");
}

#[test]
fn a_missing_formatter_costs_its_filesystem_and_names_the_package() {
    let mut facts = facts();
    facts.formatters.retain(|(one, _)| *one != Filesystem::Xfs);
    let plan = WorkloadPlan::new(&Selection::default(), &facts, "").unwrap();
    assert!(plan.groups.iter().all(|group| group.filesystem == Filesystem::Ext4));
    assert!(plan.warnings[0].contains("apt-get install xfsprogs"), "{:?}", plan.warnings);
    facts.formatters.clear();
    let error = WorkloadPlan::new(&Selection::default(), &facts, "").unwrap_err();
    assert!(matches!(error, CrosscheckError::NoFilesystem(_)), "{error}");
    assert!(error.to_string().contains("apt-get install e2fsprogs"), "{error}");
}

#[test]
fn where_thp_is_off_only_workloads_that_ask_for_it_are_skipped() {
    for thp in [Thp::Never, Thp::Absent] {
        let plan = WorkloadPlan::new(&Selection::default(), &Facts { thp, ..facts() }, "").unwrap();
        let mut all = plan.groups.iter().flat_map(|group| &group.workloads);
        assert!(all.all(|workload| !workload.is_huge()));
        assert!(plan.skipped.iter().any(|one| one.name.contains("huge_stride999")));
        assert!(plan.nr_workloads() > 150, "{}", plan.nr_workloads());
    }
    let plan = WorkloadPlan::new(&Selection::default(), &Facts { thp: Thp::Always, ..facts() }, "")
        .unwrap();
    assert!(plan.skipped.iter().all(|one| !one.reason.contains("transparent")));
}

#[test]
fn fault_around_that_is_off_swaps_what_is_skipped() {
    let facts = Facts { fault_around_bytes: Some(4096), ..facts() };
    let plan = WorkloadPlan::new(&Selection::default(), &facts, "").unwrap();
    assert!(plan.skipped.is_empty(), "{:?}", plan.skipped);
    let unknown = Facts { fault_around_bytes: None, ..facts };
    let plan = WorkloadPlan::new(&Selection::default(), &unknown, "").unwrap();
    assert!(plan.warnings[0].contains("folio assumes the default of 64K"), "{:?}", plan.warnings);
}

#[test]
fn generations_skip_what_was_seen_to_depend_on_lists() {
    let of = |page_bytes, has_generations| {
        let facts = Facts { page_bytes, has_generations, ..facts() };
        let plan = WorkloadPlan::new(&Selection::default(), &facts, "").unwrap();
        plan.skipped.iter().filter(|one| one.reason.contains("lru_gen")).count()
    };
    assert_eq!([of(4096, true), of(16384, false)], [0, 0]);
    assert!(of(16384, true) > 0);
}

#[test]
fn what_is_recorded_with_a_limit_is_in_its_set() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/limited");
    let of = |one| limited(one, 4096).into_iter().map(|workload| workload.name);
    let all: Vec<String> = Filesystem::ALL.into_iter().flat_map(of).collect();
    let set: BTreeSet<String> = all.iter().cloned().collect();
    assert_eq!(set.len(), all.len(), "two have the same name");
    let mut nr_archives = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|end| end != "xz") {
            continue;
        }
        let names = recorded(&path);
        let unknown: Vec<_> = names.difference(&set).collect();
        assert!(!names.is_empty() && unknown.is_empty(), "{}: {unknown:?}", path.display());
        nr_archives += 1;
    }
    assert!(nr_archives >= 2, "{nr_archives} archives");
}

#[test]
fn workloads_with_a_limit_need_groups() {
    let selection = Selection { set: WorkloadSet::Limited, ..Selection::default() };
    let plan = WorkloadPlan::new(&selection, &facts(), "").unwrap();
    assert!(plan.nr_workloads() > 30 && plan.skipped.is_empty());
    let workloads = plan.groups.iter().flat_map(|group| &group.workloads);
    assert!(workloads.clone().all(|one| one.word("limit").is_some() && one.file() == "holes"));
    assert!(facts().check_limits().is_ok());
    let message = Facts { limits: Limits::OfAllMemory, ..facts() }.check_limits().unwrap_err();
    assert!(message.to_string().contains("cgroup.memory=nokmem"), "{message}");
    let facts = Facts { limits: Limits::Absent, ..facts() };
    let error = WorkloadPlan::new(&selection, &facts, "").unwrap_err().to_string();
    assert!(error.contains("needs memory cgroups"), "{error}");
    assert!(WorkloadPlan::new(&Selection::default(), &facts, "").is_ok());
}

#[test]
fn a_selection_without_workloads_says_why() {
    let only = |text: &str| Selection { only: Some(text.to_owned()), ..Selection::default() };
    let error = WorkloadPlan::new(&only("nonsense"), &facts(), "").unwrap_err().to_string();
    assert!(error.contains("folio-lab crosscheck workloads"), "{error}");
    let facts = Facts { thp: Thp::Never, ..facts() };
    let error = WorkloadPlan::new(&only("huge_seq"), &facts, "").unwrap_err().to_string();
    assert!(error.contains("madvise or always"), "{error}");
}

#[test]
fn a_workload_of_the_users_is_named_like_the_others() {
    let custom =
        Custom::parse(&split_words("prot=rx advice=huge pattern=stride7 n=100 file=16M")).unwrap();
    let selection = Selection { windows_kb: vec![256], ..Selection::default() };
    let plan = WorkloadPlan::custom(&custom, &selection, &facts(), "").unwrap();
    let names: Vec<_> = plan.groups.iter().map(|group| &group.workloads[0].name).collect();
    assert_eq!(names, ["ext4_ra256_rx_huge_stride7_s0", "xfs_ra256_rx_huge_stride7_s0"]);
    assert_eq!(plan.groups[0].own_bytes(), 16 << 20);
    assert_eq!(plan.groups[0].workloads[0].word("map"), Some("private"));
    let custom = Custom::parse(&split_words("pattern=read4096 n=9")).unwrap();
    let plan = WorkloadPlan::custom(&custom, &selection, &facts(), "").unwrap();
    assert_eq!(plan.groups[0].workloads[0].name, "ext4_ra256_read_plain_read4096_s0");
}

#[test]
fn words_that_are_wrong_are_named_with_what_would_be_right() {
    for (text, hint) in [
        ("pattern", "key=value"),
        ("prot=q pattern=seq", "prot must be one of r, rx, rxc, rw"),
        ("advice=cold pattern=seq", "advice must be one of"),
        ("n=many pattern=seq", "n must be a number"),
        ("n=100001 pattern=seq", "at most 100000"),
        ("file=9T pattern=seq", "such as 64M"),
        ("file=18446744073709551615G pattern=seq", "such as 64M"),
        ("trace=/etc pattern=seq", "unknown key"),
        ("pattern=../etc;x", "letters, digits"),
        ("prot=r", "needs a pattern"),
    ] {
        let error = Custom::parse(&split_words(text)).unwrap_err().to_string();
        assert!(error.contains(hint), "{text}: {error}");
    }
}

#[test]
fn drawn_workloads_reach_what_the_set_does_not_and_are_words_a_user_may_type() {
    let random = Random { nr: 3000, seed: 1 };
    let drawn = random.workloads(&Filesystem::RANDOM, &[], 4096);
    assert_eq!(drawn.len(), 3000);
    let has = |what: &dyn Fn(&Workload) -> bool| drawn.iter().filter(|one| what(one)).count();
    let ops = |one: &Workload| one.word("ops").unwrap().to_owned();
    for filesystem in Filesystem::RANDOM {
        assert_eq!(has(&|one| one.filesystem == filesystem), 1000);
    }
    assert!(has(&|one| one.own_bytes <= 17 << 12) > 500, "short files");
    assert!(has(&|one| one.own_bytes == (2 << 20) + 1) > 10, "a PMD and a byte");
    assert!(has(&|one| ((2 << 20) - (20 << 12)..2 << 20).contains(&one.own_bytes)) > 50);
    assert!(has(&|one| ops(one).contains('c')) > 300, "changes of length");
    assert!(has(&|one| ops(one).contains(",s")) > 500, "writes");
    assert!(has(&|one| one.word("also").is_some()) > 300, "two mappings");
    assert!(has(&|one| one.window_kb == 4) > 50 && has(&|one| one.window_kb == 4096) > 50);
    let is_called = |one: &Workload| one.word("prot") == Some("rxc");
    let stores = |one: &Workload| ops(one).split(',').any(|op| op.starts_with(['w', 's', 'c']));
    assert!(has(&is_called) > 50 && has(&|one| is_called(one) && stores(one)) == 0);
    for one in &drawn {
        let typed: Vec<String> = split_words(&one.typed().unwrap());
        Custom::parse(&typed).unwrap();
    }
    assert_eq!(drawn, random.workloads(&Filesystem::RANDOM, &[], 4096));
}

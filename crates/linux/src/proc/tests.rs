//! Parses arbitrary text.

use std::fs;
use std::path::Path;

use proptest::prelude::*;

use super::*;
use crate::system::{Live, MemSystem};

fn machine(files: &[(&str, &[u8])]) -> (tempfile::TempDir, MemSystem) {
    let dir = tempfile::tempdir().unwrap();
    for (name, text) in files {
        let path = dir.path().join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let system = MemSystem::from_dir(dir.path());
    (dir, system)
}

#[test]
fn a_task_is_read_and_one_that_ended_answers_with_errors() {
    let (_dir, system) = machine(&[
        ("7/comm", b"a \xff\n"),
        ("7/maps", b"1000-2000 r-xp 0 fe:0 9 /a\n"),
        ("7/status", b"Name:\tTgid: 9\nTgid:\t7\nTHP_enabled:\t0\nTgid:\t8\n"),
        ("7/statm", b"100 9 8 1 0 2 0\n"),
        ("8/statm", b"100\n"),
        ("x9/comm", b""),
    ]);
    assert_eq!(pids(&system).unwrap(), [7, 8]);
    let task = Task::of(&system, 7);
    assert_eq!(task.comm(), "a \u{fffd}");
    assert_eq!(task.maps().unwrap().vmas[0].path, Path::new("/a"));
    assert_eq!(task.status("Tgid").as_deref(), Some("7"));
    assert_eq!((task.status("Seccomp"), task.nr_resident_pages().unwrap()), (None, 9));
    assert_eq!(Task::of(&system, 8).nr_resident_pages().unwrap(), 0);
    let gone = Task::of(&system, 99);
    assert!(task.exists() && !gone.exists());
    assert!(gone.maps().is_err() && gone.smaps().is_err() && gone.pagemap().is_err());
    assert_eq!((gone.comm(), gone.children()), (String::new(), vec![]));
}

#[test]
fn sizes_and_settings_are_those_with_a_file() {
    let thp = thp::THP.trim_start_matches('/');
    let file = |name: &str| format!("{thp}/{name}");
    let (_dir, system) = machine(&[
        (&file("hugepages-64kB/enabled"), b"always [inherit] madvise never\n"),
        (&file("hugepages-64kB/stats/anon_fault_alloc"), b"17\n"),
        (&file("hugepages-16kB/enabled"), b"[always]\n"),
        (&file("hugepages-32kB/other"), b""),
        (&file("hugepages-99999999999999999999kB/enabled"), b""),
        (&file("khugepaged/defrag"), b"1\n"),
    ]);
    assert_eq!(thp::sizes_kib(&system).unwrap(), [16, 64]);
    assert_eq!(thp::chosen(&system, &thp::control(64)).as_deref(), Some("inherit"));
    assert_eq!(thp::chosen(&system, &thp::setting("khugepaged/defrag")), None);
    assert_eq!((thp::nr_given(&system, 64), thp::nr_given(&system, 16)), (17, 0));
}

#[test]
fn this_process_has_text() {
    let own = Task::own(&Live);
    let maps = own.maps().unwrap();
    assert_eq!(maps.nr_bad_lines, 0);
    assert!(maps.vmas.iter().any(|vma| vma.is_exec() && vma.has_file()));
    let smaps = own.smaps().unwrap();
    assert!(smaps.iter().any(|smap| smap.vma.is_exec() && smap.rss_bytes > 0));
}

/// Generates lines of maps and smaps: whole, truncated and nonsense.
fn text() -> impl Strategy<Value = Vec<u8>> {
    let line = prop_oneof![
        4 => "[0-9a-f]{1,5}000-[0-9a-f]{1,5}000 [r-][w-][x-][ps] [0-9a-f]{0,9} [0-9a-f]:0 [0-9]{0,20} {0,3}(/[ -~]{0,9})?( \\(deleted\\))?",
        2 => "(Rss|Anonymous|AnonHugePages|FilePmdMapped|Private_Hugetlb): {1,5}[0-9]{0,21} kB",
        1 => "(VmFlags|THPeligible|Rss): ?[a-z0-9 ]{0,12}",
        1 => "\\PC{0,30}",
    ];
    let lines = prop::collection::vec(line.prop_map(String::into_bytes), 0..40);
    let rubbish = prop::collection::vec(any::<u8>(), 0..40);
    (lines, rubbish, any::<prop::sample::Index>()).prop_map(|(mut lines, rubbish, at)| {
        let at = at.index(lines.len() + 1);
        lines.insert(at, rubbish);
        lines.join(&b'\n')
    })
}

proptest! {
    #[test]
    fn whatever_is_written_mappings_ascend_and_are_not_more_than_lines(text in text()) {
        let nr_lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count();
        let maps = maps::parse(&text, 4096);
        prop_assert_eq!(maps.vmas.len() + maps.nr_bad_lines, nr_lines);
        let smaps = smaps::parse(&text);
        prop_assert!(smaps.len() <= nr_lines);
        let of_smaps = smaps.iter().map(|smap| &smap.vma).collect();
        for vmas in [maps.vmas.iter().collect::<Vec<_>>(), of_smaps] {
            prop_assert!(vmas.iter().all(|vma| !vma.range.is_empty()));
            prop_assert!(vmas.windows(2).all(|pair| pair[0].range.end <= pair[1].range.start));
        }
        for smap in &smaps {
            prop_assert_eq!(smaps::find(&smaps, smap.vma.range.start), Some(smap));
            let _ = (smap.pmd_bytes(), smap.vma.name(), smap.vma.prot());
        }
    }
}

use super::*;

fn file(path: &str, filesystem: &str) -> FileInfo {
    FileInfo { path: path.to_owned(), filesystem: filesystem.to_owned(), ..FileInfo::default() }
}

/// A trace that shows everything.
fn trace(files: &[FileInfo]) -> Meta {
    let recorded = recorded::ALL.iter().map(|(name, _)| (*name).to_owned()).collect();
    Meta { files: files.to_vec(), recorded, ..Meta::default() }
}

fn of(meta: &Meta, filesystem: Option<&str>, use_files: impl Fn(&mut Met)) -> Vec<Gap> {
    let rules = Rules::example();
    let mut met = Met::new(&rules, meta, filesystem);
    use_files(&mut met);
    met.gaps(&rules, meta, filesystem, 1)
}

#[test]
fn files_on_filesystems_with_recordings_are_no_gap() {
    let files = ["ext4", "ext4-journal", "xfs", "btrfs", "tmpfs"].map(|name| file("/a", name));
    let meta = trace(&files);
    let mut met = Met::new(&Rules::example(), &meta, None);
    (0..5).for_each(|nr| met.mapped(nr));
    assert!(!met.counts_references(), "the fast path stays");
    assert_eq!(of(&meta, None, |met| (0..5).for_each(|nr| met.references(nr, 9))), []);
}

#[test]
fn references_are_counted_once_a_file_without_a_rule_is_mapped() {
    let meta = trace(&["ext4", "squashfs"].map(|name| file("/a", name)));
    let mut met = Met::new(&Rules::example(), &meta, None);
    met.mapped(0);
    met.file_call(1);
    assert!(!met.counts_references());
    met.mapped(1);
    assert!(met.counts_references());
}

#[test]
fn files_on_other_filesystems_are_added_up_by_filesystem() {
    let names = ["squashfs", "ext4", "squashfs", "", "overlayfs", "9p"];
    let meta = trace(&names.map(|name| file("/a", name)));
    let gaps = of(&meta, None, |met| {
        for nr in 0..5 {
            met.references(nr, 10 + u64::from(nr));
        }
        met.file_call(0);
        met.file_call(1);
    });
    let found: Vec<_> =
        gaps.iter().map(|gap| (gap.what.as_str(), gap.nr_references, gap.nr_calls)).collect();
    let expected = [
        ("files whose filesystem the trace does not name", Some(13), Some(0)),
        ("overlayfs above a filesystem that the trace does not name", Some(14), Some(0)),
        ("squashfs", Some(22), Some(1)),
    ];
    assert_eq!(found, expected, "nothing used the file on 9p");
    assert!(gaps.iter().all(|gap| gap.kind == GapKind::Filesystem));
    // One filesystem for all files, as with `--fs`, replaces the recorded ones.
    for name in ["xfs", "none"] {
        assert_eq!(of(&meta, Some(name), |met| met.references(0, 1)), [], "{name}");
    }
}

#[test]
fn calls_without_a_rule_are_counted_and_advice_without_effect_is_not() {
    let gaps = of(&trace(&[]), None, |met| {
        for advice in [12, 16, 12, 99, 17] {
            met.advice(advice);
        }
    });
    let found: Vec<_> = gaps.iter().map(|gap| (gap.what.as_str(), gap.nr_calls)).collect();
    assert_eq!(found, [("madvise(99)", Some(1)), ("madvise(MADV_MERGEABLE)", Some(2))]);
}

#[test]
fn an_older_trace_says_what_it_does_not_show() {
    let mut meta = trace(&[]);
    assert_eq!(of(&meta, None, |_| ()), []);
    meta.recorded.retain(|name| name != recorded::SYNC && name != recorded::MLOCK);
    let [gap] = of(&meta, None, |_| ()).try_into().unwrap();
    assert_eq!((gap.kind, gap.what.as_str()), (GapKind::Recording, "msync and fsync, mlock"));
    let warnings = vec!["A file was omitted.".to_owned()];
    let [_, warned] = of(&Meta { warnings, ..meta }, None, |_| ()).try_into().unwrap();
    assert_eq!((warned.what.as_str(), warned.instead.as_str()), ("A file was omitted.", ""));
    let generated = Meta { recorder: "generator server".to_owned(), ..Meta::default() };
    assert_eq!(of(&generated, None, |_| ()), []);
}

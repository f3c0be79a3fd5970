use super::*;

fn changes(before: &str, after: &str) -> Vec<KernelChange> {
    Kernel::parse(before).unwrap().changes_to(&Kernel::parse(after).unwrap()).unwrap()
}

fn origins(before: &str, after: &str) -> Vec<(String, Option<String>, bool)> {
    let of = |change: KernelChange| {
        let version = change.origin.as_ref().map(|origin| origin.version.clone());
        (change.rule(), version, change.origin.is_some_and(|origin| origin.is_undone))
    };
    changes(before, after).into_iter().map(of).collect()
}

#[test]
fn all_changes_make_the_other_kernel() {
    let edited = "7.2+page=64K+exec-block=64K+anon-256K=always+sizes.xfs=2M:exec+hugepages.2048=4";
    let names: Vec<&str> = Kernel::names().chain([edited]).collect();
    for before in &names {
        for after in &names {
            let [one, other] = [before, after].map(|name| Kernel::parse(name).unwrap());
            let changes = one.changes_to(&other).unwrap();
            assert_eq!(one.with_changes(&changes, "x").unwrap().rules, other.rules);
            assert_eq!(changes.is_empty(), one.rules == other.rules, "{before} {after}");
        }
    }
}

#[test]
fn a_rule_came_with_the_first_version_that_has_it() {
    let origins = origins("6.1", "7.3");
    let of = |rule: &str| {
        let origin = origins.iter().find(|(name, _, _)| name == rule);
        origin.unwrap().1.clone().unwrap()
    };
    assert_eq!(of("fault.exec"), "6.17");
    assert_eq!(of("filesystems.ext4"), "6.16");
    // From the files' `[since]`; the list alone would show 6.12 and 6.16.
    assert_eq!((of("anon.sizes"), of("anon.reuse")), ("6.8".to_owned(), "6.15".to_owned()));
    // 6.12 has the value too; 6.16 does not.
    assert_eq!(of("fault.eof_guard"), "6.17");
    let versions: Vec<_> =
        origins.iter().map(|(_, v, _)| super::super::version(v.as_ref().unwrap())).collect();
    assert!(versions.is_sorted(), "{versions:?}");
}

#[test]
fn the_way_back_undoes_the_newest_first() {
    let back = origins("7.3", "6.1");
    assert!(back.iter().all(|(_, _, is_undone)| *is_undone));
    assert_eq!(back[0].1.as_deref(), Some("7.3"));
    assert_eq!(back.len(), origins("6.1", "7.3").len());
}

#[test]
fn an_edit_has_no_version_and_comes_last() {
    let all_origins = origins("6.19", "7.0+exec-block=64K+page=16K");
    let (last, known): (Vec<_>, Vec<_>) =
        all_origins.iter().partition(|(rule, _, _)| rule == "fault.exec" || rule == "page");
    assert!(last.iter().all(|(_, version, _)| version.is_none()), "{last:?}");
    assert!(known.iter().all(|(_, version, _)| version.as_deref() == Some("7.0")));
    assert!(all_origins[all_origins.len() - 2..].iter().all(|one| last.contains(&one)));
    let exec = changes("7.0", "7.0+exec-block=64K").remove(0);
    assert_eq!(
        (exec.from(), exec.to()),
        ("arch-window".to_owned(), "block.bytes=65536".to_owned())
    );
}

#[test]
fn a_commit_is_what_the_file_names() {
    let clear = changes("6.19", "7.0").into_iter().find(|one| one.rule() == "clear.order").unwrap();
    assert_eq!(clear.origin.unwrap().commit.as_deref(), Some("94962b2628e6"));
}

#[test]
fn rules_that_no_kernel_can_have_are_refused() {
    let (old, new) = ("6.1", "6.12+anon-64K=always");
    let size: Vec<KernelChange> = changes(old, new)
        .into_iter()
        .filter(|change| change.rule() == "anon.size_kib.64")
        .collect();
    assert_eq!((size[0].from().as_str(), size.len()), (ABSENT, 1));
    let error = Kernel::parse(old).unwrap().with_changes(&size, "mixed").unwrap_err().to_string();
    assert!(error.contains("mixed") && error.contains("per-size"), "{error}");
}

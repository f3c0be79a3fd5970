use super::*;
use crate::kernel::{EDITS, Kernel};

/// Edits whose values no built-in kernel has.
const OTHERS: [&str; 9] = [
    "shmem=force+shmem-8K=inherit+shmem-64K=advise+shmem-2M=always+tmpfs-huge=advise",
    "page=64K+exec-block=64K+forced=posted+forced-gate=on+defrag=defer-madvise+reuse=small",
    "page=4K+exec-window=2M+start-order=64K+fault-around=contpte+defrag=defer+mapcount=folio",
    "exec-miss=posted+huge-zero=off+pmd-counts=pages+owners-max=3+clear=one-pass+preemption=off",
    "sizes=64K:always+exec/2M:always+sizes.xfs=2M:exec+page=4K",
    "anon-64K=always+anon-2M=madvise+thp=always+shrink-underused=off+truncate-split=uniform",
    "program-thp=off+anon.thp_disable=all+max-ptes-none=0+max-ptes-swap=3+max-ptes-shared=4+khugepaged-scan-sleep=1ms",
    "file-collapse=deny-write+shmem=within-size+collapse-sizes=pmd+readahead=0+io=1M",
    "fault.exec=none+min-folio=16K+page=16K+clear=posted+copy=extents+arm64-bulk=mops",
];

fn kernels() -> Vec<Kernel> {
    let edited = OTHERS.iter().map(|edits| format!("7.3+{edits}"));
    let names = Kernel::names().map(str::to_owned).chain(edited);
    names.map(|name| Kernel::parse(&name).unwrap()).collect()
}

fn leaves(table: &Table) -> Vec<(String, String)> {
    let leaf = |(name, value): (&String, &Value)| match value {
        Value::Table(below) => {
            let below = leaves(below).into_iter();
            below.map(|(path, value)| (format!("{name}.{path}"), value)).collect()
        }
        Value::String(text) => vec![(name.clone(), text.clone())],
        other => vec![(name.clone(), other.to_string())],
    };
    table.iter().flat_map(leaf).collect()
}

fn leaves_of(rules: &Rules) -> Vec<(String, String)> {
    leaves(&Table::try_from(rules).unwrap())
}

#[test]
fn every_rule_of_every_kernel_is_set_by_its_path() {
    let oldest = Kernel::parse("6.1").unwrap();
    let mut nr_set = 0;
    for kernel in kernels() {
        let mut rules = oldest.rules.clone();
        for (path, value) in leaves_of(&kernel.rules) {
            let before = leaves_of(&rules);
            rules = set(&rules, &path, &value).unwrap();
            let after = leaves_of(&rules);
            assert!(after.contains(&(path.clone(), value)), "{}: {path}", kernel.name);
            // A variant of another form replaces the old one; all other rules stay.
            let rule = path.split('.').take(2).collect::<Vec<_>>().join(".");
            let others = |leaves: Vec<(String, String)>| -> Vec<_> {
                leaves.into_iter().filter(|(path, _)| !path.starts_with(&rule)).collect()
            };
            assert_eq!(others(after), others(before), "{path}");
            nr_set += 1;
        }
        assert_eq!(rules, kernel.rules, "{}", kernel.name);
    }
    assert!(nr_set > 28 * 60, "{nr_set} values");
}

#[test]
fn a_whole_kernel_is_edits_of_another() {
    for kernel in kernels() {
        // Settings that depend on another rule come after it.
        let is_last = |path: &str| path.contains(".size_kib");
        let mut leaves = leaves_of(&kernel.rules);
        leaves.sort_by_key(|(path, _)| is_last(path));
        let edits: Vec<String> =
            leaves.iter().map(|(path, value)| format!("{path}={value}")).collect();
        let edited = Kernel::parse(&format!("6.1+{}", edits.join("+"))).unwrap();
        assert_eq!(edited.rules, kernel.rules, "{}", kernel.name);
        assert!(edited.is_page_given, "page is among them");
    }
}

#[test]
fn a_wrong_value_is_answered_with_what_the_rule_takes() {
    let kernel = Kernel::parse("7.3").unwrap();
    let mut nr_words = 0;
    for (path, value) in leaves_of(&kernel.rules) {
        let error = kernel.edited(&format!("{path}=no-such-word")).unwrap_err().to_string();
        let (_, expected) = error.split_once(" takes ").unwrap();
        match value.parse::<u64>() {
            Ok(_) => assert_eq!(expected, "a number", "{path}"),
            Err(_) => assert!(expected.contains(&value), "{path}: {error}"),
        }
        nr_words += usize::from(expected.contains(" or "));
    }
    assert!(nr_words > 40, "{nr_words} rules with words");
    let message = |edit: &str| kernel.edited(edit).unwrap_err().to_string();
    assert_eq!(
        message("fault.exec_miss=final"),
        "'+fault.exec_miss=final': fault.exec_miss takes counted, not-counted or balanced"
    );
    assert!(message("fault.exec=blok").ends_with("takes none, block, arch-window or window"));
    assert!(
        message("fault.exec.blok.bytes=1").ends_with("takes none, block, arch-window or window")
    );
    assert!(message("fault.exec.block.bytes=65K").contains("expected a power of two"));
    assert!(message("anon.use_zero_page=on").ends_with("takes true or false"));
    assert!(message("collapse.scan_sleep_ms=x").ends_with("takes a number"));
    assert!(message("anon.size_kib.65=always").contains("expected a power of two in KiB"));
    assert!(message("reclaim.dirty_background_ratio=101").contains("expected 0 to 100"));
    assert!(message("reclaim.compaction_proactiveness=101").contains("expected 0 to 100"));
    assert!(message("sizes.filesystems.ntfs=64K:exec").contains("did you mean nfs"));
    assert!(message("sizes.machine=64K").contains("is not SIZE:USE"));
}

#[test]
fn a_wrong_name_is_answered_with_those_of_its_table() {
    let kernel = Kernel::parse("7.3").unwrap();
    let message = |edit: &str| kernel.edited(edit).unwrap_err().to_string();
    let clear = "there is no rule 'clear.ordre' in '+clear.ordre=merged'; did you mean order? \
                 clear has arm64_bulk, copy, order, preemption";
    assert_eq!(message("clear.ordre=merged"), clear);
    assert!(message("fault.xyzzy=1").contains("known: around_credit, around_span, around_window"));
    assert!(message("falt.exec=none").contains("did you mean fault"));
    assert!(message("clear.order.x=1").contains("takes converging, posted, merged or one-pass"));
    let table = "fault is a table, with around_credit, around_span, around_window, eof_guard, exec, \
                 exec_miss, finish, forced, forced_gate, hit_credit, minor_retry, nohugepage_pmd or \
                 start_order";
    assert!(message("fault=counted").ends_with(table));
    assert!(message("readahead_byte=1").contains("did you mean readahead_bytes"));
    assert!(message("TABLE.RULE=1").contains("there is no rule"));
}

#[test]
fn a_short_name_and_the_rules_it_stands_for_are_the_same_rules() {
    let pairs = [
        ("exec-block=64K", "fault.exec.block.bytes=64K"),
        ("exec-window=arch", "fault.exec=arch-window"),
        ("exec-miss=posted", "fault.exec_miss=not-counted"),
        ("readahead=1M", "readahead_bytes=1048576"),
        ("sizes=2M:exec", "sizes.machine=2M:exec"),
        ("sizes.xfs=2M:exec", "sizes.filesystems.xfs=2M:exec"),
        ("anon-64K=always", "anon.size_kib.64=always"),
        ("shmem-64K=within_size", "shmem.size_kib.64=within-size"),
        ("shmem-collapse=deny", "shmem.enabled=deny"),
        ("tmpfs-huge=within_size", "shmem.tmpfs=within-size"),
        ("defrag=defer-madvise", "anon.defrag=defer+madvise"),
        ("huge-zero=off", "anon.use_zero_page=false"),
        ("max-ptes-none=7", "anon.max_ptes_none.exactly=7"),
        ("khugepaged-scan-sleep=5", "collapse.scan_sleep_ms=5ms"),
        ("page=64k", "page=64K"),
    ];
    for (short, long) in pairs {
        let [short, long] =
            [short, long].map(|edit| Kernel::parse(&format!("7.3+{edit}")).unwrap());
        assert_ne!(short.name, long.name, "a row has the requested name");
        assert_eq!(Kernel { name: short.name.clone(), ..long }, short);
    }
}

#[test]
fn every_word_in_the_help_of_a_short_name_is_taken() {
    let mut nr_words = 0;
    for edit in EDITS.iter().filter(|edit| !edit.name.contains(|c: char| c.is_uppercase())) {
        let (names, _) = edit.value.split_once(';').unwrap_or((&edit.value, ""));
        let names = names.replace(" or ", ", ").replace('`', "");
        let is_word = |word: &&str| !word.contains(' ') && !word.contains(':');
        for word in names.split(", ").map(str::trim).filter(is_word) {
            let edited = format!("7.3+{}={word}", edit.name);
            let is_unit = ["bytes", "milliseconds", "mappings"].contains(&word);
            assert_eq!(Kernel::parse(&edited).is_ok(), !is_unit, "{edited}");
            nr_words += usize::from(!is_unit);
        }
    }
    assert!(nr_words > 50, "{nr_words} words");
}

use super::*;
use largefolio_mm::rules::anon::{
    AnonRules, DropTables, HugetlbDrop, MovedFolio, Reuse, Sizes, TruncateSplit,
};
use largefolio_mm::rules::clear::{Arm64Bulk, ClearOrder, ClearRules, CopyOrder, Preemption};
use largefolio_mm::rules::collapse::{CollapseRules, FileCollapse, ReadOnlyRange};
use largefolio_mm::rules::readahead::Ramp;
use largefolio_mm::rules::{Arch, Exec};
use largefolio_mm::units::{Order, PageSize};
use largefolio_mm::vma::HugeAdvice;

#[test]
fn every_built_in_kernel_loads() {
    for name in Kernel::names() {
        let kernel = Kernel::parse(name).unwrap();
        assert!(!kernel.description.is_empty(), "{name}");
    }
}

#[test]
fn the_files_read_as_a_history() {
    let ramps = ["6.1", "6.12", "6.16", "6.17", "7.2"]
        .map(|name| Kernel::parse(name).unwrap().rules.readahead.ramp);
    let expected =
        [Ramp::Inherited, Ramp::Inherited, Ramp::Inherited, Ramp::Remembered, Ramp::Remembered];
    assert_eq!(ramps, expected);
}

#[test]
fn exec_orders_are_those_of_0_4() {
    let orders = ["4K", "16K", "64K"].map(|page| {
        let rules = Kernel::parse(&format!("6.18+page={page}")).unwrap().rules;
        rules.exec_window_order(Arch::Arm64).map(Order::get)
    });
    assert_eq!(orders, [Some(4), Some(2), Some(0)]);
    let rules = Kernel::parse("6.18").unwrap().rules;
    assert_eq!(rules.exec_window_order(Arch::X86_64), Some(Order::ZERO));
    assert_eq!(Kernel::parse("6.16").unwrap().rules.exec_window_order(Arch::Arm64), None);
}

#[test]
fn large_folio_orders_are_those_of_a_8() {
    let max =
        |kernel: &str, fs: &str| Kernel::parse(kernel).unwrap().rules.order_range(fs).max.get();
    assert_eq!([max("6.12", "ext4"), max("6.16", "ext4"), max("6.1", "xfs")], [0, 9, 9]);
    assert_eq!([max("7.2+page=16K", "ext4"), max("7.2+page=64K", "ext4")], [9, 7]);
    let btrfs = ["4K", "16K", "64K"].map(|page| max(&format!("7.2+page={page}"), "btrfs"));
    assert_eq!((btrfs, max("7.1", "btrfs")), ([6, 4, 2], 0));
    assert_eq!([max("7.2+page=16K", "xfs"), max("7.2+page=64K", "xfs")], [11, 11]);
}

#[test]
fn anonymous_memory_follows_the_history_too() {
    let anon = |name: &str| Kernel::parse(name).unwrap().rules.anon;
    let reuse = ["6.1", "6.12", "6.16", "7.2"].map(|name| anon(name).reuse);
    assert_eq!(reuse, [Reuse::SmallOnly, Reuse::SmallOnly, Reuse::Tracked, Reuse::Tracked]);
    let splits = ["6.12", "6.16"].map(|name| anon(name).truncate_split);
    assert_eq!(splits, [TruncateSplit::Uniform, TruncateSplit::NonUniform]);
    let sizes = ["6.1", "6.12"].map(|name| anon(name).sizes);
    assert_eq!(sizes, [Sizes::PmdOnly, Sizes::PerSize]);
    assert_eq!(anon("6.18"), AnonRules::stock());
    let drop_tables = DropTables::Freed;
    let moved = MovedFolio::Queued;
    let hugetlb_drop = HugetlbDrop::Unshared;
    let changed = AnonRules { drop_tables, moved, hugetlb_drop, ..AnonRules::stock() };
    assert_eq!(anon("7.2"), changed);
}

#[test]
fn anonymous_sizes_are_edited_one_by_one() {
    let orders = |text: &str, advice| {
        let rules = Kernel::parse(text).unwrap().rules;
        let orders = rules.anon.enabled(rules.page, advice);
        orders.descending().map(Order::get).collect::<Vec<_>>()
    };
    let (plain, advised) = (HugeAdvice::Default, HugeAdvice::Huge);
    assert_eq!(orders("6.18", plain), Vec::<u8>::new());
    assert_eq!(orders("6.18", advised), [9]);
    assert_eq!(orders("6.18+anon-64K=always+thp=always", plain), [9, 4]);
    assert_eq!(orders("6.18+anon-64K=madvise+anon-2M=never", advised), [4]);
    assert_eq!(orders("6.18+anon-64K=always+page=16K", plain), [2]);
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    assert!(message("6.18+anon-64K=yes").contains("always, madvise, inherit or never"));
    assert!(message("6.18+anon-65K=always").contains("anon-65K"));
    assert!(message("6.1+anon-64K=always").contains("from 6.8 on"));
    assert!(message("6.18+anon=always").contains("did you mean"));
}

#[test]
fn folios_are_zeroed_in_extents_from_7_0_and_by_edit() {
    let clear = |text: &str| Kernel::parse(text).unwrap().rules.clear;
    let orders = ["6.1", "6.19", "7.0", "7.2"].map(|name| clear(name).order);
    let (converging, merged) = (ClearOrder::Converging, ClearOrder::Merged);
    assert_eq!(orders, [converging, converging, merged, merged]);
    assert_eq!(clear("6.18"), ClearRules::stock());
    for (value, order) in [
        ("converging", converging),
        ("posted", ClearOrder::Posted),
        ("merged", merged),
        ("one-pass", ClearOrder::OnePass),
    ] {
        let preemption = Preemption::Lazy;
        let edited = clear(&format!("6.18+clear={value}+preemption=on"));
        assert_eq!(edited, ClearRules { order, preemption, ..ClearRules::stock() });
    }
    assert_eq!(clear("7.3").copy, CopyOrder::Pages, "no kernel copies in extents");
    assert_eq!(clear("7.3+copy=extents").copy, CopyOrder::Extents);
    // A file that changes one value of the table keeps the other.
    let preemption =
        ["6.1", "6.12", "6.16", "6.18", "7.0", "7.3"].map(|name| clear(name).preemption);
    let (voluntary, lazy) = (Preemption::Voluntary, Preemption::Lazy);
    let expected = [voluntary, voluntary, lazy, lazy, lazy, lazy];
    assert_eq!(preemption, expected);
    for (value, expected) in [
        ("none", Preemption::None),
        ("voluntary", voluntary),
        ("off", voluntary),
        ("full", Preemption::Full),
        ("lazy", lazy),
        ("on", lazy),
    ] {
        assert_eq!(clear(&format!("7.0+preemption={value}")).preemption, expected);
    }
    assert_eq!(clear("7.0+arm64-bulk=mops").arm64_bulk, Arm64Bulk::Mops);
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    assert!(message("6.18+clear=zigzag").contains("converging, posted, merged or one-pass"));
    assert!(message("6.18+preemption=rt").contains("none, voluntary, full or lazy"));
}

#[test]
fn edits_apply_from_left_to_right() {
    let kernel = Kernel::parse("6.12+page=64K+exec-block=64K+exec-window=2M").unwrap();
    assert_eq!(kernel.rules.page, PageSize::K64);
    assert_eq!(kernel.rules.fault.exec, Exec::Window { bytes: 2 << 20 });
    assert_eq!(kernel.name, "6.12+page=64K+exec-block=64K+exec-window=2M");
}

#[test]
fn mistakes_name_the_cause_and_the_remedy() {
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    assert_eq!(
        message("6.81"),
        "there is no kernel '6.81' (name a kernel file by its path, ending in .toml); did you \
         mean 6.8 or 6.18 or 6.1?"
    );
    assert!(message("6.7").ends_with("; did you mean 6.6 or 6.8?"));
    assert!(message("./x").contains("its path, ending in .toml"));
    assert_eq!(
        message("6.18+exec-blok=64K"),
        "there is no rule 'exec-blok' in '+exec-blok=64K'; did you mean exec-block or exec-window \
         or exec-min?"
    );
    assert_eq!(
        message("6.18+exec-block=65K"),
        "'+exec-block=65K': exec-block takes a power of two, such as 64K"
    );
    assert!(message("6.18+readahead=2T").ends_with("expected at most 1T"));
    assert!(message("6.18+readahead=2P").contains("takes bytes, such as 128K, at most 1T"));
    assert!(message("/nowhere/x.toml").starts_with("cannot read the kernel file /nowhere/x.toml"));
}

#[test]
fn a_mistake_in_a_file_has_its_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("mine.toml");
    let path = path.to_str().unwrap();
    for (rules, line, expected) in [
        (
            "readahead_byte = 5",
            2,
            "there is no rule 'readahead_byte'; did you mean readahead_bytes or readahead?",
        ),
        (
            "[fault]\nexec_mis = 5",
            3,
            "there is no rule 'fault.exec_mis'; did you mean exec_miss or exec?",
        ),
        (
            "\nreadahead_bytes = \"x\"",
            3,
            "readahead_bytes: invalid type: string \"x\", expected u64",
        ),
        ("fault_around_bytes = 3", 2, "fault_around_bytes = 3: expected a power of two"),
    ] {
        std::fs::write(path, format!("based-on = \"7.2\"\n{rules}\n")).unwrap();
        let error = Kernel::parse(path).unwrap_err().to_string();
        assert_eq!(error, format!("{path}:{line}: {expected}"));
    }
}

#[test]
fn a_folio_is_at_most_the_largest_of_the_page_cache() {
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    assert_eq!(
        message("7.2+min-folio=1G+page=4K"),
        "7.2+min-folio=1G+page=4K: min-folio (min_folio_bytes) is 1G, but with 4K base pages a \
         page-cache folio is at most 2M"
    );
    for edit in ["min-folio", "exec-block", "exec-window", "start-order", "exec-min", "mmap-state"]
    {
        let with = |size: &str, page: &str| format!("7.2+{edit}={size}{page}");
        assert!(message(&with("4M", "+page=4K")).contains(&format!("{edit} (")), "{edit}");
        assert!(message(&with("1G", "")).contains("at most 128M"), "{edit}");
        Kernel::parse(&with("2M", "+page=4K")).unwrap();
        Kernel::parse(&with("32M", "+page=16K")).unwrap();
        // The machine chooses the page.
        let kernel = Kernel::parse(&with("32M", "")).unwrap();
        assert!(kernel.check_page(PageSize::K4).is_err(), "{edit}");
        assert!(kernel.check_page(PageSize::K16).is_ok(), "{edit}");
    }
}

#[test]
fn a_file_may_be_based_on_a_preset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    std::fs::write(&path, "based-on = \"6.18\"\ndescription = \"mine\"\npage = \"16K\"\n").unwrap();
    let kernel = Kernel::parse(path.to_str().unwrap()).unwrap();
    assert_eq!(kernel.rules.page, PageSize::K16);
    std::fs::write(&path, "based-on = \"6.18\"\ndescription = \"mine\"\n[fault]\nexecc = 1\n")
        .unwrap();
    let message = Kernel::parse(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(message.contains("execc"), "{message}");
    std::fs::write(&path, format!("based-on = \"{}\"\n", path.display())).unwrap();
    let message = Kernel::parse(path.to_str().unwrap()).unwrap_err().to_string();
    assert!(message.contains("based on a chain of more than"), "{message}");
}

#[test]
fn a_file_keeps_the_rules_of_a_section_that_it_does_not_name() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("mine.toml");
    let base = Kernel::parse("7.3").unwrap();
    let sections = base.to_table().unwrap().into_iter();
    let sections = sections.filter_map(|(name, rules)| Some((name, rules.as_table()?.clone())));
    let mut nr_sections = 0;
    for (section, rules) in sections.filter(|(name, _)| name != "gaps") {
        let Some((rule, value)) = rules.into_iter().find(|(_, value)| !value.is_table()) else {
            continue;
        };
        let text = format!("based-on = \"7.3\"\n[{section}]\n{rule} = {value}\n");
        std::fs::write(&path, text).unwrap();
        let kernel = Kernel::parse(path.to_str().unwrap()).unwrap();
        assert_eq!(kernel.rules, base.rules, "[{section}] {rule} = {value}");
        nr_sections += 1;
    }
    assert!(nr_sections >= 10, "{nr_sections}");
}

#[test]
fn collapse_follows_the_history_and_its_edits() {
    let collapse = |name: &str| Kernel::parse(name).unwrap().rules.collapse;
    assert_eq!(collapse("6.18"), CollapseRules::stock());
    let read_only = ["6.12", "6.18"].map(|name| collapse(name).read_only);
    assert_eq!(read_only, [ReadOnlyRange::Refused, ReadOnlyRange::Collapsed]);
    let files = ["6.1", "7.1", "7.2", "6.1+file-collapse=exec"].map(|name| collapse(name).file);
    let expected =
        [FileCollapse::Absent, FileCollapse::Absent, FileCollapse::LargeFolios, FileCollapse::Exec];
    assert_eq!(files, expected);
    assert_eq!(collapse("6.18+khugepaged-scan-sleep=100ms").scan_sleep_ms, 100);
    assert!(Kernel::parse("6.18+khugepaged-scan-sleep=0").is_err());
    for name in ["scan_sleep_ms", "alloc_sleep_ms"] {
        let of = |ms: u64| Kernel::parse(&format!("6.18+collapse.{name}={ms}"));
        assert!(of(1 << 32).is_ok(), "{name}");
        let message = of(1 << 58).unwrap_err().to_string();
        let expected = format!("collapse.{name} = 288230376151711744: expected at most 4294967296");
        assert!(message.ends_with(&expected), "{message}");
    }
}

#[test]
fn a_kernel_file_of_a_kernel_gives_it_again() {
    let edits =
        ["", "+page=16K", "+exec-block=64K+sizes=64K:always+exec/2M:always+anon-64K=always"];
    for name in Kernel::names() {
        for edit in edits.iter().filter(|edit| edit.len() < 10 || name.starts_with("7.2")) {
            let kernel = Kernel::parse(&format!("{name}{edit}")).unwrap();
            let text = kernel.to_table().unwrap().to_string();
            assert_eq!(Kernel::from_table(&kernel.name, text.parse().unwrap()).unwrap(), kernel);
        }
    }
}

#[test]
fn an_edit_later_is_an_edit() {
    let kernel = Kernel::parse("7.2+page=64K").unwrap();
    let edits = "sizes=64K:always+exec/2M:always+exec-block=64K";
    let whole = Kernel::parse(&format!("7.2+page=64K+{edits}")).unwrap();
    assert_eq!(kernel.edited(edits).unwrap(), whole);
    let message = |edit: &str| kernel.edited(edit).unwrap_err().to_string();
    assert!(message("exec-blok=1").starts_with("there is no rule 'exec-blok'"));
    assert!(message("").starts_with("there is no rule ''"));
    assert!(message("min-folio=1G+page=4K").contains("at most 2M"));
}

#[test]
fn a_size_that_no_private_folio_has_is_refused() {
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    assert_eq!(
        message("6.18+page=64K+anon-16K=always"),
        "6.18+page=64K+anon-16K=always: with 64K base pages, no private folio can be 16K; \
         anon-SIZE takes powers of two from 256K to 512M"
    );
    assert!(message("6.18+page=64K+anon-64K=always").contains("from 256K to 512M"));
    for size in ["4M", "1G"] {
        let text = format!("6.18+anon-{size}=always");
        assert!(message(&format!("{text}+page=4K")).contains("from 16K to 2M"), "{size}");
        let kernel = Kernel::parse(&text).unwrap();
        assert!(kernel.check_page(PageSize::K4).is_err(), "{size}");
    }
    for text in ["6.18+page=4K+anon-16K=always+anon-2M=always", "6.18+page=16K+anon-32M=always"] {
        assert!(Kernel::parse(text).is_ok(), "{text}");
    }
}

#[test]
fn a_path_may_have_a_plus_if_there_is_such_a_file() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("a+b.toml");
    let path = path.to_str().unwrap();
    let message = |text: &str| Kernel::parse(text).unwrap_err().to_string();
    assert!(message(path).contains("a `,` ends a path, and so does a `+`"));
    std::fs::write(path, "based-on = \"6.18\"\npage = \"16K\"\n").unwrap();
    let kernel = Kernel::parse(path).unwrap();
    assert_eq!((kernel.name.as_str(), kernel.rules.page), (path, PageSize::K16));
    let kernel = Kernel::parse(&format!("{path}+page=64K+exec-block=64K")).unwrap();
    assert_eq!(kernel.rules.page, PageSize::K64);
    assert_eq!(kernel.edited("page=4K").unwrap().rules.page, PageSize::K4);
}

#[test]
fn a_policy_takes_the_place_of_the_one_before() {
    let kernel = Kernel::parse("7.2+thp=never+policy=exec-order+sizes=64K:always+exec").unwrap();
    let other = kernel.with_policy(KernelPolicy::named("always-exec").unwrap());
    assert_eq!(other.name, "7.2+thp=never+sizes=64K:always+exec+policy=always-exec");
    let same = Kernel::parse("7.2+policy=exec-order").unwrap();
    let policies = ["exec-order", "always-exec"].map(|name| KernelPolicy::named(name).unwrap());
    let kernels = with_policies(vec![same], &policies).unwrap();
    let machine = crate::machine::Machine::named("altra").unwrap();
    let request = crate::replay::ReplayRequest::new(kernels, vec![machine]);
    let names: Vec<&str> = request.kernels().iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["7.2+policy=exec-order", "7.2+policy=always-exec"]);
}

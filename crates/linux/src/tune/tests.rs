//! A copy of a system's settings, and a process that ends at every step.

mod features;
mod files;

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;

use super::TuneError;
use super::catalog::Catalog;
use super::plan::ChangeSet;
use super::profile::Profile;
use super::record::{Foreign, Store, Undone, file_of};
use crate::setting::Setting;

const THP: &str = "sys/kernel/mm/transparent_hugepage";

struct System {
    folder: tempfile::TempDir,
}

impl System {
    fn new() -> Self {
        let system = Self { folder: tempfile::tempdir().unwrap() };
        let thp = |file: &str| format!("{THP}/{file}");
        for (file, text) in [
            (thp("enabled"), "always madvise [never]\n"),
            (thp("defrag"), "always defer defer+madvise [madvise] never\n"),
            (thp("shmem_enabled"), "always within_size advise [never] deny force\n"),
            (thp("khugepaged/pages_to_scan"), "4096\n"),
            (thp("hugepages-64kB/enabled"), "always inherit madvise [never]\n"),
            ("sys/block/vda/queue/read_ahead_kb".to_owned(), "128\n"),
            ("sys/block/vda/dev".to_owned(), "254:0\n"),
            ("sys/block/vda/vda1/dev".to_owned(), "254:1\n"),
            ("sys/block/vdb/dev".to_owned(), "254:16\n"),
            ("sys/block/vdb/queue/read_ahead_kb".to_owned(), "128\n"),
            ("proc/self/mountinfo".to_owned(), "20 1 254:1 / / rw - ext4 /dev/vda1 rw\n"),
            ("proc/sys/kernel/random/boot_id".to_owned(), "first-boot\n"),
        ] {
            system.write(&file, text);
        }
        system
    }

    fn root(&self) -> &Path {
        self.folder.path()
    }

    fn catalog(&self) -> Catalog {
        Catalog::below(self.root())
    }

    fn store(&self) -> Store {
        Store::open(&self.root().join("state"), self.root()).unwrap()
    }

    fn record(&self) -> String {
        format!("state/{}", file_of(&self.root().canonicalize().unwrap()))
    }

    fn write(&self, file: &str, text: &str) {
        let path = self.root().join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// Numbers keep their format when they are written, so these can be changed back and forth.
    fn plan(&self, readahead: &str, scan: &str) -> ChangeSet {
        let mut plan = ChangeSet::default();
        for (name, value) in [
            ("readahead.vda", readahead),
            ("readahead.vdb", readahead),
            ("khugepaged.pages_to_scan", scan),
        ] {
            plan.set(&self.catalog(), name, value).unwrap();
        }
        plan
    }

    fn values(&self) -> [String; 3] {
        ["readahead.vda", "readahead.vdb", "khugepaged.pages_to_scan"]
            .map(|name| self.catalog().read(name).unwrap().value)
    }
}

fn ends_at(k: usize) -> impl FnMut() -> Result<(), TuneError> {
    let mut step = 0;
    move || {
        step += 1;
        let message = "ended".to_owned();
        if step > k { Err(TuneError::Record { path: "test".into(), message }) } else { Ok(()) }
    }
}

fn never_ends() -> impl FnMut() -> Result<(), TuneError> {
    || Ok(())
}

#[test]
fn a_profile_changes_what_it_must_and_lists_the_rest() {
    let system = System::new();
    let profile = Profile::named("large").unwrap();
    let plan = ChangeSet::of_profile(&system.catalog(), &profile).unwrap();
    let changes: Vec<_> = plan
        .changes
        .iter()
        .map(|change| format!("{} {} {}", change.name, change.now, change.planned))
        .collect();
    assert_eq!(
        changes,
        [
            "thp.enabled never madvise",
            "thp.64K never inherit",
            "thp.shmem_enabled never advise",
            "readahead.vda 128 2048",
        ],
        "vdb has no mounted filesystem"
    );
    assert_eq!(plan.kept.len(), 1, "{:?}", plan.kept);
    assert_eq!(plan.missing.len(), 1, "2M is not there: {:?}", plan.missing);
}

#[test]
fn every_profile_names_settings_and_values_of_a_kernel() {
    let system = System::new();
    system.write(&format!("{THP}/hugepages-2048kB/enabled"), "always inherit madvise [never]");
    system.write(&format!("{THP}/khugepaged/defrag"), "0");
    for name in Profile::names() {
        let plan =
            ChangeSet::of_profile(&system.catalog(), &Profile::named(name).unwrap()).unwrap();
        assert_eq!(plan.missing, [], "{name}");
    }
}

#[test]
fn wherever_applying_ends_undo_brings_the_old_values_back() {
    let system = System::new();
    let before = system.values();
    for k in 0..5 {
        let plan = system.plan("2048", "8192");
        let result = system.store().apply(&system.catalog(), &plan, &mut ends_at(k));
        assert_eq!(result.is_ok(), k == 4, "{k}: three settings and the record are four steps");
        assert_eq!(system.values() == before, k == 0, "{k}: written after the record only");
        system.store().undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
        assert_eq!(system.values(), before, "ended at step {k}");
        assert_eq!(system.store().entries().unwrap(), [], "{k}");
    }
}

#[test]
fn wherever_a_second_plan_ends_the_values_before_the_first_come_back() {
    let system = System::new();
    let before = system.values();
    for k in 0..5 {
        let apply = |plan: &ChangeSet, end: usize| {
            system.store().apply(&system.catalog(), plan, &mut ends_at(end)).is_ok()
        };
        assert!(apply(&system.plan("2048", "8192"), 9));
        apply(&system.plan("512", "16384"), k);
        let undone =
            system.store().undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
        assert_eq!(system.values(), before, "ended at step {k}: {undone:?}");
    }
}

#[test]
fn wherever_undoing_ends_the_next_one_finishes() {
    let system = System::new();
    let before = system.values();
    for k in 0..7 {
        let plan = system.plan("2048", "8192");
        system.store().apply(&system.catalog(), &plan, &mut never_ends()).unwrap();
        let ended = system.store().undo(&system.catalog(), Foreign::Keep, &mut ends_at(k));
        assert_eq!(ended.is_ok(), k == 6, "{k}: three settings of two steps each");
        system.store().undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
        assert_eq!(system.values(), before, "ended at step {k}");
    }
}

#[test]
fn a_setting_that_fails_takes_those_before_it_back() {
    let system = System::new();
    let before = system.values();
    let plan = system.plan("2048", "8192");
    let gone = system.root().join(THP).join("khugepaged/pages_to_scan");
    let mut nr_steps = 0;
    let error = system
        .store()
        .apply(&system.catalog(), &plan, &mut || {
            nr_steps += 1;
            if nr_steps == 2 {
                fs::remove_file(&gone).unwrap();
            }
            Ok(())
        })
        .unwrap_err();
    assert!(error.to_string().contains("khugepaged.pages_to_scan"), "{error}");
    fs::write(&gone, "4096").unwrap();
    assert_eq!(system.values(), before);
    assert_eq!(system.store().entries().unwrap(), []);
}

#[test]
fn a_value_that_somebody_changed_since_is_left_and_stays_recorded() {
    let system = System::new();
    let plan = system.plan("2048", "8192");
    system.store().apply(&system.catalog(), &plan, &mut never_ends()).unwrap();
    system.write("sys/block/vda/queue/read_ahead_kb", "777");
    let undo = |foreign| {
        let store = system.store();
        store.undo(&system.catalog(), foreign, &mut never_ends()).unwrap()
    };
    let kept = undo(Foreign::Keep);
    assert!(matches!(&kept[2], Undone::ChangedSince { now, .. } if now == "777"), "{kept:?}");
    assert_eq!(system.values(), ["777", "128", "4096"]);
    let all = undo(Foreign::Overwrite);
    assert!(matches!(all[..], [Undone::Restored { .. }]), "{all:?}");
    assert_eq!(system.values(), ["128", "128", "4096"]);
}

#[test]
fn a_value_that_the_kernel_rounded_is_ours() {
    let system = System::new();
    let plan = system.plan("129", "8192");
    let store = system.store();
    assert_eq!(store.apply(&system.catalog(), &plan, &mut never_ends()).unwrap(), []);
    // A file keeps the written value. The kernel would store 128 for 129 KiB.
    system.write("sys/block/vda/queue/read_ahead_kb", "124");
    let change = plan.changes.iter().find(|change| change.name == "readahead.vda").unwrap();
    let mut record = store.load().unwrap();
    let rounded = store.rounded(&system.catalog(), change, &mut record).unwrap().unwrap();
    assert_eq!((rounded.planned.as_str(), rounded.now.as_str()), ("129", "124"));
    let all = store.undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
    assert!(all.iter().all(|one| matches!(one, Undone::Restored { .. })), "{all:?}");
    assert_eq!(system.values(), ["128", "128", "4096"]);
}

#[test]
fn what_another_folio_changed_for_a_while_is_not_recorded_as_the_systems_value() {
    let system = System::new();
    let disk = system.root().join("sys/block/vda/queue/read_ahead_kb");
    let plan = system.plan("2048", "8192");
    let refused = |plan: &ChangeSet| {
        let applied = system.store().apply(&system.catalog(), plan, &mut never_ends());
        applied.unwrap_err().to_string()
    };
    let held = Setting::change(&disk, "777").unwrap();
    let error = refused(&plan);
    assert!(error.contains("readahead.vda") && error.contains("another folio"), "{error}");
    drop(held);
    fs::write(&disk, "512").unwrap();
    let error = refused(&plan);
    assert!(error.contains("it was 128 and is now 512; plan again"), "{error}");
    assert_eq!(system.values(), ["512", "128", "4096"]);
    assert_eq!(system.store().entries().unwrap(), []);
}

#[test]
fn what_another_folio_changed_for_a_while_is_not_put_back_under_its_feet() {
    let system = System::new();
    let plan = system.plan("2048", "8192");
    system.store().apply(&system.catalog(), &plan, &mut never_ends()).unwrap();
    let held =
        Setting::change(&system.root().join("sys/block/vda/queue/read_ahead_kb"), "128").unwrap();
    let undo = || system.store().undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
    let all = undo();
    let is_busy = |one: &&Undone| matches!(one, Undone::Refused { reason, .. } if reason.contains("another folio"));
    assert_eq!(all.iter().filter(is_busy).count(), 1, "{all:?}");
    drop(held);
    assert!(matches!(undo()[..], [Undone::Restored { .. }]));
    assert_eq!(system.values(), ["128", "128", "4096"]);
}

#[test]
fn an_old_value_of_any_size_comes_back() {
    let system = System::new();
    system.write(&format!("{THP}/khugepaged/pages_to_scan"), "4294967295");
    let plan = system.plan("2048", "8192");
    system.store().apply(&system.catalog(), &plan, &mut never_ends()).unwrap();
    system.store().undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
    assert_eq!(system.values(), ["128", "128", "4294967295"]);
    let refused =
        ChangeSet::default().set(&system.catalog(), "khugepaged.pages_to_scan", "4294967294");
    assert!(refused.is_err(), "a slip of the finger");
}

#[test]
fn systems_below_different_roots_have_records_of_their_own() {
    let (one, two) = (System::new(), System::new());
    two.write("proc/sys/kernel/random/boot_id", "another-boot");
    let folder = one.root().join("state");
    let apply = |system: &System| {
        let store = Store::open(&folder, system.root()).unwrap();
        store.apply(&system.catalog(), &system.plan("2048", "8192"), &mut never_ends()).unwrap();
    };
    apply(&one);
    two.write("sys/block/vda/queue/read_ahead_kb", "64");
    apply(&two);
    for (system, readahead) in [(&one, "128"), (&two, "64")] {
        let store = Store::open(&folder, system.root()).unwrap();
        assert_eq!(
            store.undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap().len(),
            3
        );
        assert_eq!(system.values(), [readahead, "128", "4096"]);
    }
}

#[test]
fn no_two_roots_have_the_same_record() {
    let of = |root: &str| file_of(Path::new(root));
    assert_eq!(of("/"), "tune.json");
    assert_eq!(of("/srv/a_b.1"), "tune-srv-a_b.1.json");
    assert_eq!(of("/srv-a b"), "tune-srv%2da%20b.json");
}

#[test]
fn after_a_reboot_there_is_nothing_to_undo() {
    let system = System::new();
    let plan = system.plan("2048", "8192");
    system.store().apply(&system.catalog(), &plan, &mut never_ends()).unwrap();
    system.write("proc/sys/kernel/random/boot_id", "second-boot");
    assert_eq!(system.store().entries().unwrap(), []);
}

#[test]
fn a_record_of_somebody_else_cannot_reach_other_files() {
    let system = System::new();
    system.write("victim", "untouched");
    let entry = |name: &str, old: &str| {
        format!(r#"{{"name": "{name}", "old": "{old}", "given": ["128", "4096"]}}"#)
    };
    let entries = [
        entry("readahead.../../../../victim", "1"),
        entry("khugepaged.../../../../../../victim", "1"),
        entry("readahead.vda", "1; rm"),
        entry("khugepaged.pages_to_scan", "99999999999999999999"),
    ];
    drop(system.store());
    let record = format!(
        r#"{{"schema_version": 1, "boot_id": "first-boot", "changes": [{}]}}"#,
        entries.join(",")
    );
    system.write(&system.record(), &record);
    let undone =
        system.store().undo(&system.catalog(), Foreign::Overwrite, &mut never_ends()).unwrap();
    assert!(undone.iter().all(|one| matches!(one, Undone::Refused { .. })), "{undone:?}");
    assert_eq!(system.values(), ["128", "128", "4096"]);
    assert_eq!(fs::read_to_string(system.root().join("victim")).unwrap(), "untouched");
}

#[test]
fn a_damaged_record_and_a_link_in_its_place_are_refused() {
    let system = System::new();
    drop(system.store());
    let record = system.root().join(system.record());
    for text in ["", "{", "[]", r#"{"schema_version": 9, "boot_id": "x", "changes": []}"#] {
        fs::write(&record, text).unwrap();
        let error = system.store().entries().unwrap_err().to_string();
        assert!(error.contains("state/tune-"), "{text}: {error}");
    }
    fs::remove_file(&record).unwrap();
    symlink(system.root().join("proc/sys/kernel/random/boot_id"), &record).unwrap();
    assert!(system.store().entries().is_err());
}

#[test]
fn a_state_directory_of_others_is_refused_and_one_process_works_at_a_time() {
    use std::os::unix::fs::PermissionsExt as _;
    let system = System::new();
    let _first = system.store();
    let open = |folder: &Path| Store::open(folder, system.root()).map(|_| ());
    let error = open(&system.root().join("state")).unwrap_err().to_string();
    assert!(error.contains("another folio tune"), "{error}");
    let shared = system.root().join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    let error = open(&shared).unwrap_err().to_string();
    assert!(error.contains("no one else can write"), "{error}");
    let link = system.root().join("link");
    symlink(system.root().join("state"), &link).unwrap();
    assert!(open(&link).is_err(), "a link in the place of the directory");
}

#[test]
fn names_and_values_are_checked() {
    let system = System::new();
    let mut plan = ChangeSet::default();
    let catalog = system.catalog();
    for name in
        ["thp", "thp.", "thp.3K", "thp.4K", "thp.64", "readahead.a/b", "readahead...", "x.y"]
    {
        let error = plan.set(&catalog, name, "1").unwrap_err();
        assert!(matches!(error, TuneError::Name { .. }), "{name}: {error}");
    }
    for (name, value) in [
        ("thp.enabled", "sometimes"),
        ("readahead.vda", "-1"),
        ("readahead.vda", "+1"),
        ("readahead.vda", "1M"),
        ("readahead.vda", ""),
    ] {
        let error = plan.set(&catalog, name, value).unwrap_err();
        assert!(matches!(error, TuneError::Value { .. }), "{name}={value}: {error}");
    }
    let error = plan.set(&catalog, "thp.128K", "always").unwrap_err().to_string();
    assert!(error.contains("does this kernel have"), "{error}");
    assert_eq!(plan, ChangeSet::default());
}

#[test]
fn profiles_that_are_none_are_told_with_the_line() {
    for (text, expected) in [
        ("description = 1", "line 1"),
        ("description = \"x\"\n[[setting]]\nname = \"thp.enabled\"", "why"),
        ("description = \"x\"\n[[setting]]\nname = \"a\"\nwhy = \"\"", "either value"),
        (
            "description = \"x\"\n[[setting]]\nname = \"a\"\nwhy = \"\"\nvalue = \"1\"\nat-least = 2",
            "either value",
        ),
        ("description = \"x\"\nsetting = []\ncolour = 1", "colour"),
    ] {
        let error = Profile::parse("mine.toml", text).unwrap_err().to_string();
        assert!(error.contains("mine.toml") && error.contains(expected), "{text}: {error}");
    }
    assert!(Profile::named("larg").unwrap_err().to_string().contains("large-always"));
}

#[test]
fn an_unusually_large_readahead_is_named_with_its_hidden_path_and_memory_is_no_disk() {
    let system = System::new();
    let disks = ["nvme0n1", "nvme0c0n1", "nvme1c0n1", "dm-3", "md126", "zram0", "ram0", "ramdisk"];
    let sizes = ["65536", "65536", "65536", "32768", "4096", "128", "128", "128"];
    let mut mounts = String::new();
    for (nr, (disk, kib)) in disks.iter().zip(sizes).enumerate() {
        system.write(&format!("sys/block/{disk}/queue/read_ahead_kb"), &format!("{kib}\n"));
        // A hidden path has no device number, and nothing is mounted from it.
        if !disk.contains("c0") {
            system.write(&format!("sys/block/{disk}/dev"), &format!("250:{nr}\n"));
            writeln!(mounts, "{nr} 1 250:{nr} / /m{nr} rw - ext4 /dev/{disk} rw").unwrap();
        }
    }
    system.write("proc/self/mountinfo", &mounts);
    let profile = Profile::named("large").unwrap();
    let plan = ChangeSet::of_profile(&system.catalog(), &profile).unwrap();
    let named: Vec<_> =
        plan.warnings.iter().map(|one| (one.name.as_str(), one.now.as_str())).collect();
    let expected = [
        ("readahead.dm-3", "32768"),
        ("readahead.nvme0n1", "65536"),
        ("readahead.nvme0c0n1", "65536"),
    ];
    assert_eq!(named, expected);
    assert!(plan.warnings[1].command.contains("--set readahead.nvme0n1=4096 --yes"));
    let raised =
        |disk: &str| plan.changes.iter().any(|one| one.name == format!("readahead.{disk}"));
    assert!(!raised("zram0") && !raised("ram0") && raised("ramdisk"), "{:?}", plan.changes);
}

#[test]
fn settings_at_red_hats_place_are_named_if_there_are_no_others() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("sys/kernel/mm/redhat_transparent_hugepage");
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join("enabled"), "[always] madvise never\n").unwrap();
    let catalog = Catalog::below(place.path());
    let plan = ChangeSet::of_profile(&catalog, &Profile::named("large").unwrap()).unwrap();
    assert!(plan.has_none());
    let warning = &plan.warnings[0];
    assert!(warning.name.contains("redhat_transparent_hugepage"), "{warning:?}");
    assert_eq!((warning.now.as_str(), warning.command.as_str()), ("always", ""));
}

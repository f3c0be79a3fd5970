//! System files: a process that ends at every step, and files that are in the way.

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;
use crate::persist::boot::Lasting;
use crate::persist::place::ServiceName;
use crate::persist::unit::{self, Variable};
use crate::persist::warm::{self, Libraries};
use crate::persist::{FilePiece, FilePlace, State, boot};
use crate::tune::catalog::Catalog;
use crate::tune::files::{self, Removal, Taken};

fn pieces(readahead: &str, arenas: &str) -> Vec<FilePiece> {
    let mut all = boot::of_settings(&settings(readahead)).unwrap();
    let service = ServiceName::try_from("job.service".to_owned()).unwrap();
    let variable = Variable::parse(&format!("MALLOC_ARENA_MAX={arenas}")).unwrap();
    all.push(unit::drop_in(&service, &[variable]));
    let (folio, file) = (Path::new("/bin/sh"), Path::new("/usr/bin/job"));
    all.extend(warm::of_file(folio, file, Libraries::No).unwrap());
    all
}

fn settings(readahead: &str) -> Vec<Lasting> {
    let setting = |name: &str, value: &str| Lasting {
        name: name.to_owned(),
        path: Catalog::below(Path::new("/")).path(name).unwrap(),
        value: value.to_owned(),
    };
    vec![setting("readahead.vda", readahead), setting("khugepaged.pages_to_scan", "8192")]
}

impl System {
    fn persist(&self, pieces: &[FilePiece], end: usize) -> Result<(), TuneError> {
        let made = self.store().persist(pieces, &settings("2048"), &mut ends_at(end));
        made.map(|_| ())
    }

    fn take_back(&self, foreign: Foreign) -> Vec<Taken> {
        self.store().take_back(foreign, &mut never_ends()).unwrap()
    }

    fn etc(&self) -> Vec<(PathBuf, String)> {
        let (mut folders, mut all) = (vec![self.root().join("etc")], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_symlink() {
                    let target = fs::read_link(&path).unwrap();
                    all.push((path, target.display().to_string()));
                } else if path.is_dir() {
                    all.push((path.clone(), String::new()));
                    folders.push(path);
                } else {
                    let text = fs::read_to_string(&path).unwrap();
                    all.push((path, text));
                }
            }
        }
        all.sort();
        all
    }
}

#[test]
fn wherever_writing_ends_undo_removes_every_file_and_directory() {
    let system = System::new();
    let pieces = pieces("2048", "2");
    assert_eq!(pieces.len(), 7, "two of settings, a drop-in, two units and their links");
    for k in 0..9 {
        let result = system.persist(&pieces, k);
        assert_eq!(result.is_ok(), k == 8, "{k}: seven files and the record are eight steps");
        assert_eq!(system.etc().is_empty(), k == 0, "{k}: written after the record only");
        let taken = system.take_back(Foreign::Keep);
        let is_gone = |one: &Taken| matches!(one.outcome, Removal::Removed | Removal::WasGone);
        assert!(taken.iter().all(is_gone), "{k}: {taken:?}");
        assert_eq!((system.etc(), taken.len()), (Vec::new(), 7), "ended at step {k}");
        assert_eq!(system.store().files().unwrap(), [], "{k}");
    }
}

#[test]
fn wherever_a_second_call_ends_undo_removes_what_both_wrote() {
    let system = System::new();
    for k in 0..9 {
        system.persist(&pieces("2048", "2"), 9).unwrap();
        let _ = system.persist(&pieces("512", "4"), k);
        let listed = files::listed(system.root(), &system.store().files().unwrap());
        assert!(listed.iter().all(|file| file.state == State::Persisted), "{k}: {listed:?}");
        // A second call can continue from there, too.
        if k % 2 == 0 {
            system.persist(&pieces("1024", "8"), 9).unwrap();
        }
        system.take_back(Foreign::Keep);
        assert_eq!(system.etc(), [], "ended at step {k}");
    }
}

#[test]
fn wherever_taking_back_ends_the_next_one_finishes() {
    let system = System::new();
    for k in 0..15 {
        system.persist(&pieces("2048", "2"), 9).unwrap();
        let ended = system.store().take_back(Foreign::Keep, &mut ends_at(k));
        assert_eq!(ended.is_ok(), k == 14, "{k}: seven files of two steps each");
        system.take_back(Foreign::Keep);
        assert_eq!(system.etc(), [], "ended at step {k}");
        assert_eq!(system.store().files().unwrap(), [], "{k}");
    }
}

#[test]
fn a_file_that_cannot_be_written_takes_those_before_it_back() {
    let system = System::new();
    let first = &pieces("2048", "2")[..1];
    system.persist(first, 9).unwrap();
    let before = (system.etc(), system.store().files().unwrap());
    // Something appears between the check and the write.
    let way = system.root().join("etc/systemd/system/largefolio-warm-usr-bin-job.path");
    let mut nr_steps = 0;
    let made = system.store().persist(&pieces("512", "4"), &settings("512"), &mut || {
        nr_steps += 1;
        if nr_steps == 1 {
            fs::create_dir_all(way.join("x")).unwrap();
        }
        Ok(())
    });
    let error = made.unwrap_err().to_string();
    assert!(error.contains("usr-bin-job.path") && error.contains("a directory"), "{error}");
    fs::remove_dir_all(system.root().join("etc/systemd")).unwrap();
    assert_eq!((system.etc(), system.store().files().unwrap()), before);
}

#[test]
fn a_file_that_somebody_changed_since_is_left_and_goes_with_force() {
    let system = System::new();
    system.persist(&pieces("2048", "2"), 9).unwrap();
    let file = FilePlace::Tmpfiles.path(system.root());
    fs::write(&file, "w /sys/x - - - - 1\n").unwrap();
    let wanted = system.root().join("etc/systemd/system/multi-user.target.wants");
    let link = wanted.join("largefolio-warm-usr-bin-job.path");
    fs::remove_file(&link).unwrap();
    symlink("/dev/null", &link).unwrap();
    let error = system.persist(&pieces("512", "2"), 9).unwrap_err().to_string();
    assert!(
        error.contains("it was changed after folio wrote it") && error.contains("--force"),
        "{error}"
    );
    let taken = system.take_back(Foreign::Keep);
    let left: Vec<_> = taken
        .iter()
        .filter(|one| one.outcome == Removal::ChangedSince)
        .map(|one| &one.path)
        .collect();
    assert_eq!(left, [&link, &file]);
    assert!(file.exists() && link.is_symlink());
    let taken = system.take_back(Foreign::Overwrite);
    assert!(
        taken.len() == 2 && taken.iter().all(|one| one.outcome == Removal::Removed),
        "{taken:?}"
    );
    assert_eq!(system.etc(), []);
}

#[test]
fn files_of_others_are_not_replaced_and_their_directories_stay() {
    let system = System::new();
    system.write("etc/tmpfiles.d/largefolio.conf", "of the administrator");
    let error = system.persist(&pieces("2048", "2"), 9).unwrap_err().to_string();
    assert!(error.contains("it exists") && error.contains("mv "), "{error}");
    assert_eq!(system.store().files().unwrap(), [], "nothing is recorded");
    let listed = files::listed(system.root(), &[]);
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, State::Unrecorded);
    fs::remove_file(FilePlace::Tmpfiles.path(system.root())).unwrap();
    system.write("etc/systemd/system/job.service.d/override.conf", "");
    let before = system.etc();
    system.persist(&pieces("2048", "2"), 9).unwrap();
    system.take_back(Foreign::Keep);
    assert_eq!(system.etc(), before);
}

#[test]
fn links_and_open_directories_on_the_way_are_refused() {
    let elsewhere = tempfile::tempdir().unwrap();
    for folder in ["etc", "etc/tmpfiles.d"] {
        let system = System::new();
        let at = system.root().join(folder);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        symlink(elsewhere.path(), &at).unwrap();
        let error = system.persist(&pieces("2048", "2"), 9).unwrap_err().to_string();
        assert!(error.contains("symbolic link"), "{folder}: {error}");
        fs::remove_file(&at).unwrap();
        fs::create_dir(&at).unwrap();
        fs::set_permissions(&at, fs::Permissions::from_mode(0o777)).unwrap();
        let error = system.persist(&pieces("2048", "2"), 9).unwrap_err().to_string();
        assert!(error.contains("not be writable by everyone"), "{folder}: {error}");
        fs::set_permissions(&at, fs::Permissions::from_mode(0o755)).unwrap();
        system.persist(&pieces("2048", "2"), 9).unwrap();
        let moved = system.root().join("moved");
        fs::rename(&at, &moved).unwrap();
        symlink(&moved, &at).unwrap();
        let taken = system.take_back(Foreign::Overwrite);
        assert!(taken.iter().any(|one| matches!(one.outcome, Removal::Refused(_))), "{taken:?}");
        assert!(!system.store().files().unwrap().is_empty(), "they stay recorded");
    }
    let system = System::new();
    let file = FilePlace::Tmpfiles.path(system.root());
    fs::create_dir_all(file.parent().unwrap()).unwrap();
    symlink(system.root().join("victim"), &file).unwrap();
    let error = system.persist(&pieces("2048", "2"), 9).unwrap_err().to_string();
    assert!(error.contains("a symbolic link, not a regular file"), "{error}");
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn a_setting_that_a_file_makes_again_is_put_back_after_a_reboot_too() {
    let system = System::new();
    let before = system.values();
    let plan = system.plan("2048", "8192");
    let store = system.store();
    store.apply(&system.catalog(), &plan, &mut never_ends()).unwrap();
    let lasting = plan.lasting(&[]).unwrap();
    let disk = lasting.iter().filter(|one| one.name == "readahead.vda").cloned();
    let disk: Vec<Lasting> = disk.collect();
    store.persist(&boot::of_settings(&disk).unwrap(), &disk, &mut never_ends()).unwrap();
    drop(store);
    system.write("proc/sys/kernel/random/boot_id", "second-boot");
    // udev has set it again, but nothing has set the others.
    system.write("sys/block/vdb/queue/read_ahead_kb", "128");
    system.write(&format!("{THP}/khugepaged/pages_to_scan"), "4096");
    let names: Vec<_> = system.store().entries().unwrap().into_iter().map(|e| e.name).collect();
    assert_eq!(names, ["readahead.vda"]);
    system.take_back(Foreign::Keep);
    system.store().undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
    assert_eq!(system.values(), before);
    assert_eq!((system.etc(), system.store().entries().unwrap()), (Vec::new(), Vec::new()));
}

#[test]
fn a_setting_that_is_right_already_lasts_if_it_was_asked_for_or_is_ours() {
    let system = System::new();
    let profile = Profile::named("large").unwrap();
    let of_profile = || ChangeSet::of_profile(&system.catalog(), &profile).unwrap();
    let names = |plan: &ChangeSet| {
        let recorded = system.store().entries().unwrap();
        plan.lasting(&recorded).unwrap().into_iter().map(|one| one.name).collect::<Vec<_>>()
    };
    let mut plan = of_profile();
    let changed: Vec<_> = plan.changes.iter().map(|change| change.name.clone()).collect();
    assert_eq!(names(&plan), changed, "thp.defrag is as the system has it");
    plan.set(&system.catalog(), "thp.defrag", "madvise").unwrap();
    assert!(names(&plan).contains(&"thp.defrag".to_owned()));
    system.store().apply(&system.catalog(), &of_profile(), &mut never_ends()).unwrap();
    // As the kernel now shows them.
    let chosen = "always [madvise] never\n";
    system.write(&format!("{THP}/enabled"), chosen);
    assert!(names(&of_profile()).contains(&"thp.enabled".to_owned()));
}

#[test]
fn a_record_of_the_version_before_and_places_of_somebody_else() {
    let system = System::new();
    drop(system.store());
    let record = |version: u32, files: &str| {
        format!(
            r#"{{"schema_version": {version}, "boot_id": "first-boot", {files} "changes":
            [{{"name": "readahead.vda", "old": "64", "given": ["128"]}}]}}"#
        )
    };
    system.write(&system.record(), &record(1, ""));
    let store = system.store();
    store.undo(&system.catalog(), Foreign::Keep, &mut never_ends()).unwrap();
    assert_eq!(system.values()[0], "64");
    drop(store);
    for place in [
        r#"{"drop-in": "../../../victim.service"}"#,
        r#"{"unit": "ssh.service"}"#,
        r#"{"wanted": "largefolio-warm-../x.path"}"#,
        r#""passwd""#,
    ] {
        let files = format!(r#""files": [{{"place": {place}, "texts": [], "nr_folders": 0}}],"#);
        system.write(&system.record(), &record(2, &files));
        let error = system.store().take_back(Foreign::Overwrite, &mut never_ends()).unwrap_err();
        assert!(error.to_string().contains("state/tune-"), "{place}: {error}");
    }
    // Removes directories only while they are empty, even if the record counts more.
    system.write("etc/tmpfiles.d/largefolio.conf", "x");
    system.write("etc/hosts", "");
    let files = r#""files": [{"place": "tmpfiles", "texts": ["x"], "nr_folders": 99}],"#;
    system.write(&system.record(), &record(2, files));
    system.take_back(Foreign::Keep);
    assert_eq!(system.etc().len(), 1, "{:?}", system.etc());
}

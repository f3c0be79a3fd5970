//! Settings of a kernel built with `kernel/`: the folder in a copy of a system.

use super::*;
use crate::persist::boot;

const FOLDER: &str = "sys/kernel/mm/largefolio";
const FILES: [(&str, &str); 6] = [
    ("exec_order", "[off] block window\n"),
    ("exec_order_bytes", "65536\n"),
    ("copied_extents", "0\n"),
    ("file_sizes/all", ""),
    ("file_sizes/hugepages-4kB", "never [always] exec always+exec\n"),
    ("file_sizes/hugepages-2048kB", "never [always] exec always+exec\n"),
];

fn built() -> System {
    let system = System::new();
    for (file, text) in FILES {
        system.write(&format!("{FOLDER}/{file}"), text);
    }
    system
}

impl System {
    fn feature(&self, file: &str) -> String {
        fs::read_to_string(self.root().join(FOLDER).join(file)).unwrap()
    }

    fn set(&self, assignments: &[(&str, &str)]) -> Result<ChangeSet, TuneError> {
        let (mut plan, catalog) = (ChangeSet::default(), self.catalog());
        for (name, value) in assignments {
            plan.set(&catalog, name, value)?;
        }
        self.store().apply(&catalog, &plan, &mut never_ends())?;
        Ok(plan)
    }

    fn undo(&self) -> Vec<Undone> {
        self.store().undo(&self.catalog(), Foreign::Keep, &mut never_ends()).unwrap()
    }
}

/// A feature with a new setting must also get a name here.
#[test]
fn every_setting_in_the_kernels_documents_has_a_name() {
    let kernel = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernel");
    let mut nr = 0;
    for entry in fs::read_dir(kernel).unwrap().flatten() {
        let Ok(text) = fs::read_to_string(entry.path().join("ABI")) else { continue };
        for part in text.split("What:").skip(1) {
            let (path, rest) = part.split_once('\n').unwrap();
            let Some(file) = path.trim().strip_prefix(&format!("/{FOLDER}/")) else { continue };
            if rest.contains("Read only") || rest.contains("Write only") {
                continue;
            }
            let name = file.replace("file_sizes/hugepages-<size>kB", "file_sizes.64K");
            let path = Catalog::below(Path::new("/")).path(&format!("largefolio.{name}")).unwrap();
            let expected = file.replace("<size>", "64");
            assert_eq!(path, Path::new("/").join(FOLDER).join(expected));
            nr += 1;
        }
    }
    assert_eq!(nr, 14);
}

#[test]
fn they_are_listed_set_and_undone_like_others() {
    let system = built();
    let profile = Profile::named("large").unwrap();
    let plan = ChangeSet::of_profile(&system.catalog(), &profile).unwrap();
    let kept = |plan: &ChangeSet| {
        let kept = plan.kept.iter().filter(|kept| kept.name.starts_with("largefolio."));
        kept.map(|kept| format!("{}={}", kept.name, kept.now)).collect::<Vec<_>>()
    };
    let expected = [
        "largefolio.exec_order=off",
        "largefolio.exec_order_bytes=65536",
        "largefolio.file_sizes.4K=always",
        "largefolio.file_sizes.2M=always",
    ];
    assert_eq!(kept(&plan), expected, "only those that are there and can be written");
    let of_others = ChangeSet::of_profile(&System::new().catalog(), &profile).unwrap();
    assert_eq!(kept(&of_others), [""; 0]);
    assert!(of_others.missing.iter().all(|one| !one.name.starts_with("largefolio.")));

    let wanted = [
        ("largefolio.exec_order_bytes", "2097152"),
        ("largefolio.exec_order", "window"),
        ("largefolio.file_sizes.2M", "always+exec"),
    ];
    let plan = system.set(&wanted).unwrap();
    assert_eq!(system.feature("exec_order"), "off block [window]");
    assert_eq!(system.feature("exec_order_bytes"), "2097152");
    assert_eq!(system.feature("file_sizes/hugepages-2048kB"), "never always exec [always+exec]");
    let files = boot::of_settings(&plan.lasting(&[]).unwrap()).unwrap();
    let text = files[0].text(None);
    for line in [
        "w /sys/kernel/mm/largefolio/exec_order - - - - window\n",
        "w /sys/kernel/mm/largefolio/file_sizes/hugepages-2048kB - - - - always+exec\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert_eq!(files.len(), 1);
    assert!(system.undo().iter().all(|one| matches!(one, Undone::Restored { .. })));
    for (file, text) in FILES {
        assert_eq!(system.feature(file).trim_end(), text.trim_end(), "{file}");
    }
}

#[test]
fn another_kernel_has_them_not_and_the_error_says_how_to_get_one() {
    let system = System::new();
    for name in ["largefolio.exec_order", "largefolio.file_sizes.64K"] {
        let error = system.set(&[(name, "window")]).unwrap_err().to_string();
        assert!(error.starts_with(&format!("{name}: this kernel does not have the setting")));
        assert!(error.contains("`make kernel`") && error.contains("docs/guide/kernel.md"));
    }
    let error = built().set(&[("largefolio.forced", "pmd")]).unwrap_err().to_string();
    assert!(error.contains("this kernel does not have"), "{error}");
}

#[test]
fn names_that_are_no_settings_and_wrong_values_are_refused() {
    let system = built();
    for name in ["copied_extents", "file_sizes.all", "file_sizes.2K", "file_sizes", "../x", ""] {
        let error = system.set(&[(&format!("largefolio.{name}"), "1")]).unwrap_err();
        assert!(matches!(error, TuneError::Name { .. }), "{name}: {error}");
    }
    for (name, value) in [("exec_order", "on"), ("exec_order_bytes", "64K")] {
        let error = system.set(&[(&format!("largefolio.{name}"), value)]).unwrap_err();
        assert!(matches!(error, TuneError::Value { .. }), "{name}={value}: {error}");
    }
}

/// After a boot into a kernel without the features, nothing is left to undo.
#[test]
fn undo_is_complete_under_a_kernel_without_them() {
    let system = built();
    system.set(&[("largefolio.exec_order", "window")]).unwrap();
    fs::remove_dir_all(system.root().join(FOLDER)).unwrap();
    assert!(matches!(system.undo()[..], [Undone::WasBack { .. }]));
    assert_eq!(system.store().entries().unwrap(), []);
}

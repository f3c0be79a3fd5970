//! The texts, and systemd's checks of them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use proptest::prelude::*;

use super::boot::Lasting;
use super::place::{OwnUnit, ServiceName};
use super::unit::Variable;
use super::warm::Libraries;
use super::*;
use crate::tune::catalog::Catalog;

fn lasting(name: &str, value: &str) -> Lasting {
    Lasting {
        name: name.to_owned(),
        path: Catalog::below(Path::new("/")).path(name).unwrap(),
        value: value.to_owned(),
    }
}

/// Runs a systemd tool. If it is not installed, prints that and returns `None`.
fn tool(arguments: &[&str]) -> Option<std::process::Output> {
    match Command::new(arguments[0]).args(&arguments[1..]).output() {
        Ok(output) => Some(output),
        Err(error) => {
            largefolio_testkit::skipped!("cannot run {}: {error}", arguments[0]);
            None
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn write(root: &Path, pieces: &[FilePiece]) -> Vec<PathBuf> {
    let put = |piece: &FilePiece| {
        let path = piece.place.path(root);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        if piece.place.is_link() {
            symlink(piece.text(None), &path).unwrap();
        } else {
            fs::write(&path, piece.text(None)).unwrap();
        }
        path
    };
    pieces.iter().map(put).collect()
}

#[test]
fn settings_of_the_system_and_of_disks_have_a_file_each() {
    let settings = [
        lasting("thp.64K", "always"),
        lasting("readahead.vda", "512"),
        lasting("thp.defrag", "defer+madvise"),
        lasting("readahead.cciss!c0d0", "128"),
    ];
    let pieces = boot::of_settings(&settings).unwrap();
    assert_eq!([&pieces[0].place, &pieces[1].place], [&FilePlace::Tmpfiles, &FilePlace::Udev]);
    let thp = "/sys/kernel/mm/transparent_hugepage";
    let lines = format!(
        "w {thp}/hugepages-64kB/enabled - - - - always\nw {thp}/defrag - - - - defer+madvise\n"
    );
    assert_eq!(pieces[0].text(None), format!("{HEADER}{lines}"));
    let rule = |disk: &str, kib: u32| {
        format!(
            "ACTION==\"add|change\", SUBSYSTEM==\"block\", KERNEL==\"{disk}\", \
             ATTR{{queue/read_ahead_kb}}=\"{kib}\"\n"
        )
    };
    let rules = format!("{}{}", rule("vda", 512), rule("cciss/c0d0", 128));
    assert_eq!(pieces[1].text(None), format!("{HEADER}{rules}"));
    for value in ["", "1\nx", "a b", "%", "\""] {
        assert!(boot::of_settings(&[lasting("thp.64K", value)]).is_err(), "{value:?}");
    }
}

#[test]
fn a_line_of_an_earlier_call_stays_and_one_of_the_same_setting_is_replaced() {
    let of = |settings: &[Lasting]| boot::of_settings(settings).unwrap().remove(0);
    let first = of(&[lasting("thp.64K", "always"), lasting("thp.32K", "never")]).text(None);
    let second = of(&[lasting("thp.enabled", "madvise"), lasting("thp.64K", "inherit")]);
    let joined = second.text(Some(&first));
    let values: Vec<_> =
        joined.lines().skip(1).map(|line| line.rsplit(' ').next().unwrap()).collect();
    assert_eq!(values, ["inherit", "never", "madvise"]);
    assert_eq!(second.text(Some(&joined)), joined);
}

#[test]
fn systemd_tmpfiles_understands_the_file() {
    let root = tempfile::tempdir().unwrap();
    let path = root.path().join("sys/kernel/mm/transparent_hugepage/hugepages-64kB/enabled");
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(&path, "never").unwrap();
    let settings = [lasting("thp.64K", "always"), lasting("thp.32K", "always")];
    let files = write(root.path(), &boot::of_settings(&settings).unwrap());
    let rooted = format!("--root={}", root.path().display());
    let arguments = ["systemd-tmpfiles", "--create", &rooted, files[0].to_str().unwrap()];
    let Some(output) = tool(&arguments) else { return };
    assert!(output.status.success() && output.stderr.is_empty(), "{}", text(&output.stderr));
    assert_eq!(fs::read_to_string(&path).unwrap().trim_end(), "always");
    assert!(
        !path.with_file_name("../hugepages-32kB").exists(),
        "a kernel without it is not an error"
    );
}

#[test]
fn udev_understands_the_rules() {
    let root = tempfile::tempdir().unwrap();
    let files = write(root.path(), &boot::of_settings(&[lasting("readahead.vda", "512")]).unwrap());
    let Some(output) = tool(&["udevadm", "verify", files[0].to_str().unwrap()]) else { return };
    let message = text(&output.stdout) + &text(&output.stderr);
    if message.contains("Unknown command verb") {
        largefolio_testkit::skipped!("udevadm verify came with systemd 254");
        return;
    }
    assert!(output.status.success(), "{message}");
}

fn verified(root: &Path, unit: &str) -> Option<String> {
    let rooted = format!("--root={}", root.display());
    let output = tool(&["systemd-analyze", "verify", "--man=no", &rooted, unit])?;
    Some(format!("{}{}", text(&output.stdout), text(&output.stderr)))
}

fn root_with_targets() -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    let units = root.path().join("usr/lib/systemd/system");
    fs::create_dir_all(&units).unwrap();
    for target in ["sysinit", "basic", "shutdown", "multi-user", "paths", "local-fs"] {
        fs::write(units.join(format!("{target}.target")), "[Unit]\nDescription=x\n").unwrap();
    }
    fs::write(units.join("-.slice"), "[Unit]\nDescription=x\n").unwrap();
    fs::write(units.join("system.slice"), "[Unit]\nDescription=x\n").unwrap();
    fs::create_dir_all(root.path().join("usr/bin")).unwrap();
    root
}

fn program(path: &Path) {
    use std::os::unix::fs::PermissionsExt as _;
    fs::write(path, "").unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn systemd_understands_the_units_of_warm_with_any_name_it_can_hold() {
    for name in ["node", "a b", "100%x", "$HOME", "it's", "q\"q", "back\\slash", ".dot-é"] {
        let root = root_with_targets();
        let folio = root.path().join("usr/bin/folio");
        program(&folio);
        let file = Path::new("/usr/lib").join(name);
        let pieces = warm::of_file(&folio, &file, Libraries::Linked).unwrap();
        let files = write(root.path(), &pieces);
        let service = fs::read_to_string(&files[0]).unwrap();
        assert!(service.contains(" warm --libs -- \"/usr/lib/"), "{service}");
        // It looks for the program below the root, too.
        let inner = service.replace(folio.to_str().unwrap(), "/usr/bin/folio");
        fs::write(&files[0], inner).unwrap();
        for file in &files[..2] {
            let unit = file.file_name().unwrap().to_str().unwrap();
            let Some(message) = verified(root.path(), unit) else { return };
            assert!(!message.contains("largefolio"), "{name}: {message}");
        }
        assert_eq!(
            fs::read_link(&files[3]).unwrap(),
            Path::new("/").join(files[1].strip_prefix(root.path()).unwrap())
        );
    }
}

/// Control for the tests above and below: systemd reports a mistake.
#[test]
fn systemd_tells_mistakes_in_units() {
    let root = root_with_targets();
    let unit = root.path().join("etc/systemd/system/largefolio-warm-x.path");
    fs::create_dir_all(unit.parent().unwrap()).unwrap();
    fs::write(&unit, "[Path]\nPathChanged=relative\n").unwrap();
    let Some(message) = verified(root.path(), "largefolio-warm-x.path") else { return };
    assert!(message.contains("largefolio-warm-x.path"), "{message}");
}

#[test]
fn names_are_escaped_as_systemd_does() {
    for path in ["/usr/bin/node", "/a b/c-d", "/.x/%y", "/opt//é/@1", "/x:y_z.so"] {
        let piece = &warm::of_file(Path::new("/bin/sh"), Path::new(path), Libraries::No);
        let Ok(pieces) = piece else { panic!("{path}: {piece:?}") };
        let FilePlace::Unit(unit) = &pieces[0].place else { panic!("{pieces:?}") };
        let Some(output) = tool(&["systemd-escape", "--path", path]) else { return };
        let escaped = text(&output.stdout);
        assert_eq!(unit.name(), format!("largefolio-warm-{}.service", escaped.trim()));
    }
}

#[test]
fn files_and_programs_that_a_unit_cannot_have_are_refused() {
    let refused = |folio: &Path, file: &Path| {
        warm::of_file(folio, file, Libraries::No).unwrap_err().to_string()
    };
    let sh = Path::new("/bin/sh");
    let long = format!("/{}", "x".repeat(300));
    for file in ["relative", "/a/../b", "/a\nExecStart=/bin/evil", "/end ", "/end\\", "/", &long] {
        let message = refused(sh, Path::new(file));
        assert!(message.contains("file ") && !message.contains('\n'), "{file:?}: {message}");
    }
    let folder = tempfile::tempdir().unwrap();
    let open = folder.path().join("folio");
    program(&open);
    let mode = |mode| {
        use std::os::unix::fs::PermissionsExt as _;
        fs::set_permissions(&open, fs::Permissions::from_mode(mode)).unwrap();
    };
    mode(0o777);
    let message = refused(&open, Path::new("/usr/bin/node"));
    assert!(
        message.contains("everyone can write to") && message.contains("/usr/local/bin"),
        "{message}"
    );
    mode(0o755);
    let quoted = folder.path().join("fo lio");
    program(&quoted);
    assert!(refused(&quoted, Path::new("/usr/bin/node")).contains("must be quoted"));
}

#[test]
fn names_of_units_lead_nowhere_else() {
    for name in [
        "",
        ".service",
        "..service",
        "a/b.service",
        "../x.service",
        "a b.service",
        "x.socket",
        "a\nb.service",
        "é.service",
    ] {
        assert!(ServiceName::try_from(name.to_owned()).is_err(), "{name:?}");
    }
    for name in ["x.service", "largefolio-warm-.service", "largefolio-warm-a/b.path", "x.path"] {
        assert!(OwnUnit::try_from(name.to_owned()).is_err(), "{name:?}");
    }
    let root = root_with_targets();
    let units = root.path().join("usr/lib/systemd/system");
    for unit in ["php8.2-fpm.service", "getty@.service"] {
        fs::write(units.join(unit), "").unwrap();
    }
    let of = |name: &str| ServiceName::of_service(name, root.path());
    assert_eq!(of("php8.2-fpm").unwrap(), of("php8.2-fpm.service").unwrap());
    assert!(of("getty@tty1").is_ok());
    symlink("getty@.service", units.join("autovt@.service")).unwrap();
    symlink("/usr/lib/systemd/system/php8.2-fpm.service", units.join("php.service")).unwrap();
    assert!(of("php").unwrap_err().to_string().contains("use --unit php8.2-fpm.service"));
    assert!(of("autovt@tty1").unwrap_err().to_string().contains("use --unit getty@.service"));
    assert!(of("getty@tty2").is_ok());
    assert!(of("redis").unwrap_err().to_string().contains("list-unit-files"));
}

#[test]
fn a_drop_in_joins_variables_and_refuses_what_is_none() {
    let unit = ServiceName::try_from("redis-server.service".to_owned()).unwrap();
    let of = |all: &[&str]| {
        let all: Vec<_> = all.iter().map(|one| Variable::parse(one).unwrap()).collect();
        unit::drop_in(&unit, &all)
    };
    let first = of(&["GLIBC_TUNABLES=glibc.malloc.hugetlb=1", "A=\"100% \\x\""]).text(None);
    let second = of(&["A=2", "AB=3"]).text(Some(&first));
    assert_eq!(
        second,
        format!(
            "{HEADER}[Service]\nEnvironment=\"GLIBC_TUNABLES=glibc.malloc.hugetlb=1\"\n\
             Environment=\"A=2\"\nEnvironment=\"AB=3\"\n"
        )
    );
    assert!(first.contains(r#"Environment="A=\"100%% \\x\"""#), "{first}");
    for one in ["", "A", "=1", "1A=1", "A-B=1", "A B=1", "A=1\n[Unit]", "A=\u{1b}", "A=\0"] {
        assert!(Variable::parse(one).is_err(), "{one:?}");
    }
    assert!(Variable::parse(&format!("A={}", "x".repeat(5000))).is_err());
}

#[test]
fn systemd_understands_the_drop_in() {
    let root = root_with_targets();
    program(&root.path().join("usr/bin/true"));
    let service = root.path().join("usr/lib/systemd/system/job.service");
    fs::write(&service, "[Service]\nType=oneshot\nExecStart=/usr/bin/true\n").unwrap();
    let unit = ServiceName::of_service("job", root.path()).unwrap();
    let variable = Variable::parse("A=a\"b\\c %n $x 'y' ;#").unwrap();
    write(root.path(), &[unit::drop_in(&unit, &[variable])]);
    let Some(message) = verified(root.path(), "job.service") else { return };
    assert!(!message.contains("largefolio") && !message.contains("job.service"), "{message}");
}

/// Reads a double-quoted word as systemd does: escapes, then specifiers.
fn read_by_systemd(word: &str) -> Option<String> {
    let inner = word.strip_prefix('"')?.strip_suffix('"')?;
    let mut value = String::new();
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => return None,
            '\\' | '%' => match (c, chars.next()?) {
                ('\\', next @ ('\\' | '"')) => value.push(next),
                ('%', '%') => value.push('%'),
                _ => return None,
            },
            c => value.push(c),
        }
    }
    Some(value)
}

proptest! {
    #[test]
    fn every_value_is_read_as_it_was_meant(value in "[^\\p{Cc}]{0,40}") {
        let variable = Variable::parse(&format!("A={value}")).unwrap();
        let unit = ServiceName::try_from("x.service".to_owned()).unwrap();
        let text = unit::drop_in(&unit, &[variable]).text(None);
        let line = text.lines().last().unwrap();
        prop_assert_eq!(text.lines().count(), 3);
        let read = read_by_systemd(line.strip_prefix("Environment=").unwrap());
        prop_assert_eq!(read, Some(format!("A={value}")));
    }
}

//! The THP that one service may use.
//!
//! ```text
//!   systemd 260 and later    MemoryTHP=disable                            systemd calls prctl(2)
//!   before                   ExecStart=                                   folio calls it, and the
//!                            ExecStart=FOLIO run --quiet --thp off -- ..  program replaces folio
//! ```
//!
//! Owns both forms. Invariant E1: a command is repeated as the unit has it, and only if folio in
//! front of it changes nothing else; otherwise the result is an error that says why.

use std::path::Path;

use super::place::ServiceName;
use super::service::Setting;
use super::{Body, FileLine, FilePiece, FilePlace, PersistError, service};
use crate::proc::kernel::SELINUX;
use crate::run::ThpLimit;
use crate::trust;

/// The first systemd with `MemoryTHP=` (its pull request 39085).
const MEMORY_THP_SINCE: u32 = 260;
/// Where a sandboxed service sees programs. Many services see no home directory and no `/tmp`.
const PROGRAM_FOLDERS: [&str; 4] = ["/usr", "/opt", "/bin", "/sbin"];
/// Settings under which a command with folio in front may not start, or may start differently.
const OBSTACLES: [&str; 7] = [
    "RootDirectory",
    "RootImage",
    "NoExecPaths",
    "AppArmorProfile",
    "SELinuxContext",
    "SmackProcessLabel",
    "SystemCallFilter",
];
/// Settings that hide paths from the service.
const HIDING: [&str; 2] = ["TemporaryFileSystem", "InaccessiblePaths"];

/// The facts that a drop-in depends on, in addition to the unit.
#[derive(Clone, Copy, Debug)]
pub struct ServiceManager<'a> {
    pub root: &'a Path,
    /// systemd's version; `None` if unknown.
    pub version: Option<u32>,
    /// The path of this program.
    pub folio: &'a Path,
    /// Whether the kernel can limit THP to advised memory (Linux 6.18); true if unknown.
    pub can_advise: bool,
}

/// Returns the drop-in that limits `unit`'s THP; without a limit, systemd's own applies.
///
/// # Errors
/// If this systemd has no setting, and the command cannot be changed safely: the reason and what
/// to do by hand.
pub fn drop_in(
    unit: &ServiceName,
    limit: Option<ThpLimit>,
    manager: &ServiceManager<'_>,
) -> Result<FilePiece, PersistError> {
    if limit == Some(ThpLimit::Advised) && !manager.can_advise {
        return Err(PersistError::Given {
            what: format!("unit {:?}", String::from(unit.clone())),
            message: "a program's THP can be limited to advised memory since Linux 6.18, so the \
                      service would not start on this kernel; --thp off disables all of it"
                .to_owned(),
        });
    }
    let has_setting = manager.version.is_some_and(|version| version >= MEMORY_THP_SINCE);
    let key = if has_setting { "MemoryTHP" } else { "ExecStart" };
    let settings = service::settings(unit, manager.root);
    if let Some(later) = settings.iter().find(|one| one.is_later && one.key == key) {
        return Err(service::overruled(later, unit, &format!("{key}=")));
    }
    let lines = if has_setting {
        let value = match limit {
            Some(ThpLimit::None) => "disable",
            Some(ThpLimit::Advised) => "madvise",
            None => "inherit",
        };
        vec![FileLine { key: "MemoryTHP=".to_owned(), rest: value.to_owned() }]
    } else {
        let command =
            wrapped(&settings, limit, manager).map_err(|why| refusal(unit, manager, &why))?;
        ["ExecStart=".to_owned(), format!("ExecStart={command}")]
            .map(|key| FileLine { key, rest: String::new() })
            .into()
    };
    let replaced = vec!["MemoryTHP=", "ExecStart="];
    let body = Body::Lines { section: "[Service]\n", replaced, lines };
    Ok(FilePiece { place: FilePlace::drop_in(unit.clone()), body })
}

fn refusal(unit: &ServiceName, manager: &ServiceManager<'_>, why: &str) -> PersistError {
    let version = match manager.version {
        Some(version) => format!("systemd {version} has no MemoryTHP= (260 and later have it)"),
        None => "folio cannot tell whether this systemd has MemoryTHP= (260 and later have it; \
                 systemctl --version)"
            .to_owned(),
    };
    PersistError::Given {
        what: format!("unit {:?}", String::from(unit.clone())),
        message: format!(
            "{version}, and folio does not put itself in front of the command: {why}. To do it by \
             hand: systemctl edit {}, and either MemoryTHP= or an empty ExecStart= followed by \
             ExecStart={} run --quiet --thp off -- COMMAND",
            String::from(unit.clone()),
            manager.folio.display()
        ),
    }
}

/// Returns the unit's command with folio in front.
fn wrapped(
    settings: &[Setting],
    limit: Option<ThpLimit>,
    manager: &ServiceManager<'_>,
) -> Result<String, String> {
    let limit = match limit {
        Some(ThpLimit::None) => "off",
        Some(ThpLimit::Advised) => "advised",
        None => return Err("without folio, the service inherits already".to_owned()),
    };
    if manager.version.is_none() {
        return Err("a newer systemd needs no such change".to_owned());
    }
    let folio = program(manager)?;
    let mut commands: Vec<&str> = Vec::new();
    for Setting { key, value, .. } in settings {
        match (key.as_str(), value.as_str()) {
            ("ExecStart", "") => commands.clear(),
            ("ExecStart", value) => commands.push(value),
            (key, value)
                if OBSTACLES.contains(&key) && !value.is_empty()
                    || HIDING.contains(&key) && hides(value, manager.folio) =>
            {
                return Err(format!("the unit has {key}={value}"));
            }
            _ => {}
        }
    }
    if manager.root.join(SELINUX).exists() {
        return Err("SELinux chooses a service's domain by its first program".to_owned());
    }
    let [command] = commands.as_slice() else {
        return Err(format!("the unit has {} commands in ExecStart=", commands.len()));
    };
    let plain = command.trim_start_matches(['-', ':', '+', '!']);
    let flags = &command[..command.len() - plain.len()];
    if !plain.starts_with('/') {
        return Err(format!("its command does not start with a path: {command}"));
    }
    // An instance repeats the command that its template's drop-in has with folio in front.
    let plain = without_folio(plain, folio);
    if plain.split_ascii_whitespace().any(|word| word == ";") {
        return Err("its ExecStart= has several commands".to_owned());
    }
    Ok(format!("{flags}{folio} run --quiet --thp {limit} -- {plain}"))
}

fn without_folio<'a>(command: &'a str, folio: &str) -> &'a str {
    let rest = ["off", "advised"]
        .into_iter()
        .find_map(|limit| command.strip_prefix(&format!("{folio} run --quiet --thp {limit} -- ")));
    rest.unwrap_or(command)
}

/// Whether a list of paths such as `/usr:ro -/opt` has `folio` or a folder above it.
fn hides(paths: &str, folio: &Path) -> bool {
    let mut words = paths.split_ascii_whitespace().map(|word| word.trim_matches(['"', '\'']));
    words.any(|word| {
        let path = word.trim_start_matches(['-', '+']);
        folio.starts_with(path.split(':').next().unwrap_or(path))
    })
}

fn program<'a>(manager: &ServiceManager<'a>) -> Result<&'a str, String> {
    let folio = manager.folio;
    let inside = manager.root.join(folio.strip_prefix("/").unwrap_or(folio));
    let is_plain = |text: &&str| {
        text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"/._-".contains(&byte))
    };
    let is_seen = PROGRAM_FOLDERS.iter().any(|folder| folio.starts_with(folder));
    let seen = folio.to_str().filter(is_plain).filter(|_| is_seen && inside.is_file());
    let seen = seen.ok_or_else(|| {
        format!(
            "the service may not see {}; install folio in /usr/local/bin first",
            folio.display()
        )
    })?;
    let user = rustix::process::geteuid().as_raw();
    match trust::distrust(&inside, &[0, user]) {
        None => Ok(seen),
        Some(reason) => Err(format!(
            "the service would run it, but {reason}; install folio where only root can write, such \
             as /usr/local/bin"
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const FOLIO: &str = "/usr/local/bin/folio";

    fn text(unit: &str, version: Option<u32>, limit: Option<ThpLimit>) -> Result<String, String> {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in [("usr/lib/systemd/system/job.service", unit), (&FOLIO[1..], "")] {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let name = ServiceName::of_service("job", root.path()).unwrap();
        let folio = Path::new(FOLIO);
        let manager = ServiceManager { root: root.path(), version, folio, can_advise: true };
        let piece = drop_in(&name, limit, &manager).map_err(|error| error.to_string())?;
        Ok(piece.text(None).lines().skip(2).collect::<Vec<_>>().join("\n"))
    }

    const OFF: Option<ThpLimit> = Some(ThpLimit::None);

    #[test]
    fn a_new_systemd_has_a_setting() {
        for (limit, value) in
            [(OFF, "disable"), (Some(ThpLimit::Advised), "madvise"), (None, "inherit")]
        {
            assert_eq!(text("", Some(260), limit), Ok(format!("MemoryTHP={value}")));
        }
    }

    #[test]
    fn an_old_one_gets_folio_in_front_of_the_command() {
        let of = |command: &str| {
            text(
                &format!("[Service]\nExecStart=/old\nExecStart=\nExecStart={command}\n"),
                Some(252),
                OFF,
            )
        };
        let front = "ExecStart=\nExecStart=";
        let run = "/usr/local/bin/folio run --quiet --thp off --";
        assert_eq!(
            of("/bin/db 'a  b' $ARGS %i"),
            Ok(format!("{front}{run} /bin/db 'a  b' $ARGS %i"))
        );
        assert_eq!(of("-/bin/db"), Ok(format!("{front}-{run} /bin/db")));
        for (command, why) in [
            ("db", "does not start with a path"),
            ("@/bin/db db", "does not start with a path"),
            ("/bin/a ; /bin/b", "several commands"),
        ] {
            let error = of(command).unwrap_err();
            assert!(error.contains(why) && error.contains("systemctl edit job.service"), "{error}");
        }
    }

    #[test]
    fn what_folio_in_front_would_change_is_refused() {
        let unit = "[Service]\nExecStart=/bin/a\n";
        for (unit, version, limit, why) in [
            (format!("{unit}ExecStart=/bin/b\n"), Some(252), OFF, "2 commands"),
            (format!("{unit}RootDirectory=/srv\n"), Some(252), OFF, "RootDirectory=/srv"),
            (unit.to_owned(), None, OFF, "cannot tell"),
            (unit.to_owned(), Some(252), None, "inherits already"),
            (String::new(), Some(252), OFF, "0 commands"),
            (format!("{unit}TemporaryFileSystem=/usr:ro\n"), Some(252), OFF, "TemporaryFileSystem"),
            (format!("{unit}InaccessiblePaths=/x -/usr/local\n"), Some(252), OFF, "Inaccessible"),
        ] {
            let error = text(&unit, version, limit).unwrap_err();
            assert!(error.contains(why), "{error}");
        }
    }

    #[test]
    fn paths_elsewhere_hide_nothing() {
        let unit = "[Service]\nExecStart=/bin/a\nInaccessiblePaths=/usr/lib /home\n";
        assert!(text(unit, Some(252), OFF).is_ok());
    }

    #[test]
    fn a_command_keeps_all_lines_and_gets_folio_once() {
        let run = "/usr/local/bin/folio run --quiet --thp";
        for command in [
            "/bin/db \\\n  # the port\n  --port 80",
            &format!("{run} advised -- /bin/db  --port 80"),
        ] {
            let unit = format!("[Service]\nExecStart={command}\n");
            let expected = format!("ExecStart=\nExecStart={run} off -- /bin/db  --port 80");
            assert_eq!(text(&unit, Some(252), OFF), Ok(expected));
        }
    }

    #[test]
    fn a_later_command_or_an_open_folio_or_an_old_kernel_is_refused() {
        use std::os::unix::fs::PermissionsExt as _;
        let root = tempfile::tempdir().unwrap();
        let folio = root.path().join(&FOLIO[1..]);
        let write = |file: &str, text: &str| {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write(&FOLIO[1..], "");
        write("usr/lib/systemd/system/job.service", "[Service]\nExecStart=/bin/a\n");
        let name = ServiceName::of_service("job", root.path()).unwrap();
        let of = |limit, can_advise| {
            let folio = Path::new(FOLIO);
            let manager =
                ServiceManager { root: root.path(), version: Some(252), folio, can_advise };
            drop_in(&name, Some(limit), &manager).map(|_| ()).map_err(|error| error.to_string())
        };
        let refused = |limit, can_advise, why: &str| {
            let error = of(limit, can_advise).unwrap_err();
            assert!(error.contains(why), "{error}");
        };
        assert_eq!(of(ThpLimit::None, false), Ok(()));
        refused(ThpLimit::Advised, false, "since Linux 6.18");
        fs::set_permissions(&folio, fs::Permissions::from_mode(0o777)).unwrap();
        refused(ThpLimit::None, true, "everyone can write to");
        fs::set_permissions(&folio, fs::Permissions::from_mode(0o755)).unwrap();
        write("etc/systemd/system/job.service.d/override.conf", "[Service]\nExecStart=\n");
        refused(ThpLimit::None, true, "override.conf: it sets ExecStart=");
    }

    #[test]
    fn one_form_replaces_the_other_and_variables_stay() {
        let lines = vec![FileLine { key: "MemoryTHP=".to_owned(), rest: "disable".to_owned() }];
        let replaced = vec!["MemoryTHP=", "ExecStart="];
        let body = Body::Lines { section: "[Service]\n", replaced, lines };
        let name = ServiceName::try_from("job.service".to_owned()).unwrap();
        let piece = FilePiece { place: FilePlace::DropIn(name), body };
        let old = "[Service]\nEnvironment=\"A=1\"\nExecStart=\nExecStart=/usr/bin/folio run\n";
        let new = piece.text(Some(old));
        assert!(new.ends_with("[Service]\nEnvironment=\"A=1\"\nMemoryTHP=disable\n"), "{new}");
    }
}

//! Units that run `folio warm` at boot, and when a file is replaced, for example by an upgrade.
//!
//! The path unit watches the given name, for example the link `/usr/bin/python3` and not its
//! current target. systemd does not count `folio warm`'s own actions (open for reading, fsync) as
//! changes, so the units do not trigger each other.

use std::fmt::Write as _;
use std::path::{Component, Path};

use super::PersistError;
use super::place::{OwnUnit, WARM};
use super::unit::escaped;
use super::{Body, FilePiece, FilePlace, HEADER};
use crate::shell::{as_root, quoted};
use crate::trust;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Libraries {
    No,
    Linked,
}

/// Returns the files that warm `file`, with the folio at `folio`.
///
/// # Errors
/// A path that a unit cannot hold, or a folio that another user could replace: root would run it.
pub fn of_file(
    folio: &Path,
    file: &Path,
    libraries: Libraries,
) -> Result<Vec<FilePiece>, PersistError> {
    let folio = checked_folio(folio)?;
    let file = checked_file(file)?;
    let unit = |ending: &str| {
        OwnUnit::try_from(format!("{WARM}{}.{ending}", escape_path(file)))
            .map_err(|message| PersistError::Given { what: format!("file {file:?}"), message })
    };
    let (service, path) = (unit("service")?, unit("path")?);
    let whole = |place: FilePlace, text: String| FilePiece { place, body: Body::Whole(text) };
    Ok(vec![
        whole(FilePlace::Unit(service.clone()), service_text(folio, file, libraries)),
        whole(FilePlace::Unit(path.clone()), path_text(file)),
        whole(FilePlace::Wanted(service.clone()), service.target()),
        whole(FilePlace::Wanted(path.clone()), path.target()),
    ])
}

/// `folio warm` exits with 1 if it can enlarge nothing, which counts as success here. A few writes
/// in a row must not make systemd give up. Without any limit, a user who may write the file could
/// keep root's service busy forever.
fn service_text(folio: &str, file: &str, libraries: Libraries) -> String {
    let option = if libraries == Libraries::Linked { " --libs" } else { "" };
    let (shown, word) = (percent(file), escaped(file).replace('$', "$$"));
    format!(
        "{HEADER}[Unit]\n\
         Description=Refill the page cache of {shown} with large folios\n\
         StartLimitIntervalSec=1h\n\
         StartLimitBurst=60\n\
         \n\
         [Service]\n\
         Type=oneshot\n\
         ExecStart={folio} warm{option} -- \"{word}\"\n\
         SuccessExitStatus=1\n\
         Nice=19\n\
         IOSchedulingClass=idle\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

fn path_text(file: &str) -> String {
    let path = percent(file);
    format!(
        "{HEADER}[Unit]\n\
         Description=Watch {path} for a new version\n\
         \n\
         [Path]\n\
         PathChanged={path}\n\
         \n\
         [Install]\n\
         WantedBy=multi-user.target\n"
    )
}

fn percent(text: &str) -> String {
    text.replace('%', "%%")
}

fn checked_file(file: &Path) -> Result<&str, PersistError> {
    let error = |message: &str| PersistError::Given {
        what: format!("file {}", quoted(file)),
        message: message.to_owned(),
    };
    let text = file.to_str().ok_or_else(|| error("systemd accepts only UTF-8 names"))?;
    if text.chars().any(char::is_control) || text.ends_with(['\\', ' ', '\t']) || text == "/" {
        return Err(error(
            "systemd cannot watch a name that contains control characters or ends with a space or \
             \\",
        ));
    }
    let is_plain = |part: Component<'_>| matches!(part, Component::RootDir | Component::Normal(_));
    if !file.is_absolute() || !file.components().all(is_plain) {
        return Err(error("systemd watches absolute paths without `..`"));
    }
    Ok(text)
}

fn checked_folio(folio: &Path) -> Result<&str, PersistError> {
    let error = |message: String| PersistError::Given {
        what: format!("the program {}", quoted(folio)),
        message: format!(
            "{message}; install it where only root can write, for example: {}",
            as_root(&format!("install -m 755 {} /usr/local/bin/folio", quoted(folio)))
        ),
    };
    let user = rustix::process::geteuid().as_raw();
    if let Some(reason) = trust::distrust(folio, &[0, user]) {
        return Err(error(format!("root would run it at boot, but {reason}")));
    }
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    let text = folio.to_str().filter(|text| text.starts_with('/') && text.bytes().all(is_plain));
    text.ok_or_else(|| error("its path has characters that must be quoted in a unit".to_owned()))
}

/// As `systemd-escape --path`.
fn escape_path(path: &str) -> String {
    let parts: Vec<&str> =
        path.split('/').filter(|part| !part.is_empty() && *part != ".").collect();
    let path = parts.join("/");
    let mut text = String::new();
    for (at, byte) in path.bytes().enumerate() {
        match byte {
            b'/' => text.push('-'),
            b'.' if at == 0 => text.push_str("\\x2e"),
            b':' | b'_' | b'.' => text.push(char::from(byte)),
            byte if byte.is_ascii_alphanumeric() => text.push(char::from(byte)),
            byte => {
                // Writing to a String cannot fail.
                let _ = write!(text, "\\x{byte:02x}");
            }
        }
    }
    text
}

//! Quoting for a shell: the commands that folio tells users to type.

use std::env;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::iter;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use std::sync::{LazyLock, OnceLock};

use largefolio_trace::shown::is_printable;

use crate::environment::{Host, find_in_path, find_on};
use crate::proc::host::COMPACT_MEMORY;

/// Quotes a path or an argument for pasting. Bytes that would control the terminal or are not UTF-8
/// become `$'\x1b'`, which bash, zsh and ksh read.
///
/// ```
/// use largefolio_linux::shell::quoted;
/// assert_eq!(quoted("/usr/lib/libc.so.6"), "/usr/lib/libc.so.6");
/// assert_eq!(quoted("/a b's"), r"'/a b'\''s'");
/// ```
#[must_use]
pub fn quoted<T: AsRef<OsStr> + ?Sized>(word: &T) -> String {
    let word = word.as_ref();
    let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"/._-+:@%=,".contains(byte);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.as_bytes().iter().all(is_plain) => text.to_owned(),
        Some(text) if text.chars().all(is_printable) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => escaped(word.as_bytes()),
    }
}

const FOLIO: &str = "folio";
/// sudo's search path, regardless of `PATH`: the `secure_path` of distributions.
const SECURE_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin:/snap/bin";

static NEEDS_SUDO: LazyLock<bool> = LazyLock::new(|| {
    !rustix::process::geteuid().is_root() || find_in_path(&Host, OsStr::new("sudo")).is_some()
});

/// Returns `command` as the user types it: with folio's full path if its name alone would not find
/// this program.
///
/// ```
/// use largefolio_linux::shell::as_typed;
/// assert!(as_typed("folio warm FILE").ends_with("folio warm FILE"));
/// assert_eq!(as_typed("python3 x.py"), "python3 x.py");
/// ```
#[must_use]
pub fn as_typed(command: &str) -> String {
    static TYPED: LazyLock<String> =
        LazyLock::new(|| name_where(find_in_path(&Host, OsStr::new(FOLIO)).as_deref()));
    with_name(&TYPED, command)
}

/// Returns `command` as the user types it to run it as root. It has `sudo`, unless folio runs as
/// root without sudo installed, as in most containers. It has folio's full path if sudo would not
/// find this program by name, as after `cargo install` or in a Python environment.
///
/// ```
/// use largefolio_linux::shell::as_root;
/// assert!(as_root("folio tune --undo").ends_with("folio tune --undo"));
/// ```
#[must_use]
pub fn as_root(command: &str) -> String {
    static TYPED: LazyLock<String> = LazyLock::new(|| {
        name_where(find_on(&Host, OsStr::new(SECURE_PATH), OsStr::new(FOLIO)).as_deref())
    });
    if *NEEDS_SUDO { format!("sudo {}", with_name(&TYPED, command)) } else { as_typed(command) }
}

/// Returns folio's own command line, program first, as the user types it to run it as root.
///
/// ```
/// use largefolio_linux::shell::{again_as_root, as_root};
/// let words = ["folio", "crosscheck", "--only", "*it's*"].map(str::to_owned);
/// assert_eq!(again_as_root(&words), as_root(r"folio crosscheck --only '*it'\''s*'"));
/// ```
#[must_use]
pub fn again_as_root(command_line: &[String]) -> String {
    let arguments = command_line.iter().skip(1).map(|word| format!(" {}", quoted(word)));
    as_root(&iter::once(FOLIO.to_owned()).chain(arguments).collect::<String>())
}

static PROGRAM: OnceLock<PathBuf> = OnceLock::new();

/// Sets the path of folio if another program loaded this library. Call it before any command is
/// printed. Only the first call counts.
pub fn set_program(path: PathBuf) {
    let _ = PROGRAM.set(path);
}

fn own() -> Option<PathBuf> {
    let running = || env::current_exe().ok();
    let path = PROGRAM.get().cloned().or_else(running)?;
    (path.file_name() == Some(OsStr::new(FOLIO)) && path.is_file()).then_some(path)
}

fn with_name(name: &str, command: &str) -> String {
    match command.strip_prefix(FOLIO) {
        Some(rest) if rest.starts_with(' ') => format!("{name}{rest}"),
        _ => command.to_owned(),
    }
}

/// Returns the command for this folio, if its name in `PATH` resolves to `in_path`.
fn name_where(in_path: Option<&Path>) -> String {
    let own = own().or_else(|| find_in_path(&Host, OsStr::new(FOLIO)));
    typed(own.as_deref(), in_path)
}

/// Returns the command for the program `own`: its name, if that finds no other program.
fn typed(own: Option<&Path>, in_path: Option<&Path>) -> String {
    let starts = |own: &Path| {
        in_path.is_some_and(|in_path| same_file(in_path, own) || is_script(in_path, own))
    };
    own.filter(|own| !starts(own)).map_or_else(|| FOLIO.to_owned(), quoted)
}

fn same_file(one: &Path, other: &Path) -> bool {
    one.canonicalize().is_ok_and(|one| other.canonicalize().is_ok_and(|other| one == other))
}

/// Returns whether `in_path` is the script by which a Python package starts its folio, `own`.
fn is_script(in_path: &Path, own: &Path) -> bool {
    let Some(Ok(bin)) = in_path.parent().map(Path::canonicalize) else { return false };
    let is_below =
        |prefix: &Path| own.canonicalize().is_ok_and(|own| own.starts_with(prefix.join("lib")));
    own.ends_with("largefolio/_folio/bin/folio") && bin.parent().is_some_and(is_below)
}

#[must_use]
pub fn compact_memory() -> String {
    format!("echo 1 | {}", as_root(&format!("tee {COMPACT_MEMORY}")))
}

fn escaped(bytes: &[u8]) -> String {
    let mut text = "$'".to_owned();
    for &byte in bytes {
        if (b' '..=b'~').contains(&byte) && !b"'\\".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a String cannot fail.
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text + "'"
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn root_types_the_path_where_the_name_finds_another_program_or_none() {
        let place = tempfile::tempdir().unwrap();
        let [own, other, link] =
            ["own folio", "other", "folio"].map(|name| place.path().join(name));
        for path in [&own, &other] {
            std::fs::write(path, "").unwrap();
        }
        std::os::unix::fs::symlink(&own, &link).unwrap();
        let path = quoted(&own);
        assert!(path.starts_with("'/"), "{path}");
        assert_eq!(typed(Some(&own), None), path);
        assert_eq!(typed(Some(&own), Some(&other)), path);
        assert_eq!(typed(Some(&own), Some(&place.path().join("gone"))), path);
        assert_eq!(typed(Some(&own), Some(&link)), "folio");
        assert_eq!(typed(None, None), "folio", "nothing better is known");
    }

    #[test]
    fn the_script_of_a_python_package_is_its_folio() {
        let place = tempfile::tempdir().unwrap();
        let made = |path: &str| {
            let path = place.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, "").unwrap();
            path
        };
        let [script, other] = ["venv/bin/folio", "other/bin/folio"].map(made);
        let packages = "venv/lib/python3.11/site-packages";
        let own = made(&format!("{packages}/largefolio/_folio/bin/folio"));
        let elsewhere = made(&format!("{packages}/another/bin/folio"));
        assert_eq!(typed(Some(&own), Some(&script)), "folio");
        assert_eq!(typed(Some(&own), Some(&other)), quoted(&own));
        assert_eq!(typed(Some(&elsewhere), Some(&script)), quoted(&elsewhere));
    }

    #[test]
    fn words_can_be_pasted() {
        assert_eq!(quoted("-a=b:c,%@+"), "-a=b:c,%@+");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("/a\nb"), r"$'/a\x0ab'");
        assert_eq!(quoted(OsStr::from_bytes(b"\xff'\\1")), r"$'\xff\x27\x5c1'");
        assert_eq!(quoted("\u{202e}x"), r"$'\xe2\x80\xaex'");
    }

    #[test]
    fn a_shell_reads_the_word_that_was_meant() {
        for word in [&b"a b's $x`y`"[..], b"", b"*?~", b"\x1b]0;x\x07\xff12\n'\\"] {
            let line = format!("printf %s {}", quoted(OsStr::from_bytes(word)));
            let output = Command::new("bash").args(["-c", &line]).output().unwrap();
            assert_eq!(output.stdout, word, "{line}");
        }
    }
}

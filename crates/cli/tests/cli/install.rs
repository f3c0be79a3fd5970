//! `make install` into a temporary directory, use of the installed files, and `make uninstall`.
//!
//! The programs are from this build; `make deb` checks that Debian packages are built from the same
//! list of files.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use tempfile::TempDir;

use crate::support::text;

const LIBRARIES: [&str; 5] = [
    "liblargefolio_recorder.so",
    "liblargefolio_preload.so",
    "liblargefolio_regions.so",
    "liblargefolio.so",
    "liblargefolio.a",
];

struct Installed {
    place: TempDir,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// Returns cargo's directory of this build's programs, which must have the libraries too.
fn build_directory() -> PathBuf {
    let directory = assert_cmd::cargo::cargo_bin!("folio").parent().unwrap().to_owned();
    for library in LIBRARIES {
        let path = directory.join(library);
        assert!(path.exists(), "{} is missing. Run: cargo build --workspace", path.display());
    }
    directory
}

impl Installed {
    fn new() -> Self {
        let installed = Self { place: tempfile::tempdir().unwrap() };
        installed.make("install");
        installed
    }

    /// Creates a directory with links to the programs, so that a test can remove one.
    fn build(&self) -> PathBuf {
        let links = self.place.path().join("build");
        if !links.exists() {
            fs::create_dir(&links).unwrap();
            for name in LIBRARIES.into_iter().chain(["folio"]) {
                std::os::unix::fs::symlink(build_directory().join(name), links.join(name)).unwrap();
            }
        }
        links
    }

    fn dist(&self) -> PathBuf {
        self.place.path().join("dist")
    }

    fn prefix(&self) -> PathBuf {
        self.place.path().join("prefix")
    }

    /// Returns `make` with a target, or the script with another command.
    fn command(&self, word: &str) -> Command {
        let mut command = if word.ends_with("install") {
            Command::new("make")
        } else {
            Command::new(root().join("scripts/install.sh"))
        };
        command.arg(word).current_dir(root());
        command.env("BUILD", self.build()).env("PREFIX", self.prefix()).env("DIST", self.dist());
        command.env_remove("DESTDIR").env_remove("MAKEFLAGS").env_remove("MAKELEVEL");
        command
    }

    fn attempt(&self, word: &str) -> Output {
        self.command(word).output().unwrap()
    }

    fn make(&self, word: &str) -> String {
        let output = self.attempt(word);
        assert!(output.status.success(), "{word}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Runs `folio` as a shell finds it, in a temporary directory and without this test's
    /// variables.
    fn folio(&self, args: &str) -> Output {
        let work = self.place.path().join("work");
        fs::create_dir_all(&work).unwrap();
        let path = format!("{}:/usr/bin:/bin", self.prefix().join("bin").display());
        let mut shell = Command::new("/usr/bin/env");
        shell.arg("-i").arg(format!("PATH={path}")).arg("HOME=/nonexistent").arg("folio");
        shell.args(args.split_whitespace()).current_dir(work).output().unwrap()
    }

    fn done(&self, args: &str) -> (String, String) {
        let output = self.folio(args);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{args}: {stderr}");
        (text(&output.stdout), stderr)
    }

    fn files(&self) -> BTreeSet<String> {
        let mut folders = vec![self.prefix()];
        let mut files = BTreeSet::new();
        while let Some(folder) = folders.pop() {
            for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
                if path.is_dir() {
                    folders.push(path);
                } else {
                    let below = path.strip_prefix(self.prefix()).unwrap();
                    files.insert(below.to_str().unwrap().to_owned());
                }
            }
        }
        files
    }
}

#[test]
fn an_installed_folio_works_from_any_directory_and_leaves_nothing() {
    let installed = Installed::new();
    let (version, _) = installed.done("--version --verbose");
    let library = installed.prefix().join("lib/largefolio/liblargefolio_preload.so");
    assert!(version.contains(&format!("preload library {}", library.display())), "{version}");

    let recorded = installed.folio("record --with qemu -o true.folio -- true");
    if recorded.status.code() == Some(0) {
        installed.done("predict true.folio --kernel 6.12,7.2");
    } else {
        let stderr = text(&recorded.stderr);
        let script = installed.prefix().join("lib/largefolio/qemu.sh");
        assert!(stderr.contains(&format!("`{}`", script.display())), "{stderr}");
        largefolio_testkit::skipped!("recording: {stderr}");
    }
    // folio itself has enough text. The asserted message comes from the library in that process.
    let (_, stderr) = installed.done("run --text remap --summary -- folio --version");
    if stderr.contains("/dev/shm") {
        largefolio_testkit::skipped!("moving text: {stderr}");
    } else {
        assert!(
            stderr.contains("under PMD entries") || stderr.contains("in every process"),
            "{stderr}"
        );
    }

    let pages = installed.prefix().join("share/man");
    let shown =
        Command::new("man").arg("-M").arg(pages).args(["-P", "cat", "folio-predict"]).output();
    match shown {
        Ok(shown) => assert!(text(&shown.stdout).contains("EXIT STATUS"), "{shown:?}"),
        Err(_) => largefolio_testkit::skipped!("reading a page: no man: apt-get install man-db"),
    }
    let script = installed.prefix().join("share/bash-completion/completions/folio");
    let complete = format!("source {}; complete -p folio", script.display());
    assert!(Command::new("bash").args(["-c", &complete]).status().unwrap().success());

    installed.make("install");
    installed.make("uninstall");
    assert!(!installed.prefix().exists(), "left: {:?}", installed.files());
    let again = installed.attempt("uninstall");
    assert!(text(&again.stderr).contains("folio is not installed"), "{again:?}");
}

#[test]
fn c_programs_find_the_installed_library_through_pkg_config() {
    if Command::new("pkg-config").arg("--version").output().is_err() {
        return largefolio_testkit::skipped!("no pkg-config: apt-get install pkg-config");
    }
    let installed = Installed::new();
    let (prefix, place) = (installed.prefix(), installed.place.path());
    let script = "gcc \"$1/share/doc/largefolio/examples/cache.c\" -o cache \
        $(pkg-config --cflags --libs largefolio) && pkg-config --modversion largefolio && ./cache";
    let mut shell = Command::new("sh");
    shell.args(["-c", script, "sh"]).arg(&prefix).current_dir(place);
    shell.env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
    shell.env("LD_LIBRARY_PATH", prefix.join("lib"));
    let output = shell.output().unwrap();
    let stdout = text(&output.stdout);
    assert!(output.status.success(), "{stdout}{}", text(&output.stderr));
    assert!(stdout.starts_with(env!("CARGO_PKG_VERSION")), "{stdout}");
    assert!(stdout.contains("\nfilled: 32768 KiB used"), "{stdout}");
}

#[test]
fn files_of_others_stay() {
    let installed = Installed::new();
    let own = installed.prefix().join("share/man/man1/other.1");
    fs::write(&own, "other").unwrap();
    // A file of an earlier version, and two from a damaged installation's list.
    let old = installed.prefix().join("share/largefolio/kernels/5.0.toml");
    fs::write(&old, "").unwrap();
    let outside = installed.place.path().join("outside");
    fs::write(&outside, "").unwrap();
    let record = installed.prefix().join("lib/largefolio/installed");
    let listed = fs::read_to_string(&record).unwrap();
    let above = installed.prefix().join("../outside");
    let more = [old.as_path(), outside.as_path(), above.as_path()];
    let more = more.map(|path| format!("f {}\n", path.display())).concat();
    fs::write(&record, listed + &more).unwrap();
    installed.make("install");
    assert!(!old.exists(), "a file that this version does not have");
    installed.make("uninstall");
    assert!(outside.exists());
    assert_eq!(installed.files(), BTreeSet::from(["share/man/man1/other.1".to_owned()]));
}

#[test]
fn installs_the_files_of_the_package_world_readable() {
    let installed = Installed::new();
    let listed = installed.make("list");
    let target = |line: &str| {
        let path = line.split('\t').nth(2).unwrap();
        Path::new(path).strip_prefix(installed.prefix()).unwrap().to_str().unwrap().to_owned()
    };
    let mut expected: BTreeSet<String> = listed.lines().map(target).collect();
    assert_eq!(package_files(&installed), expected, "the list as the packager reads it");
    expected.insert("lib/largefolio/installed".to_owned());
    assert_eq!(installed.files(), expected);
    for file in &expected {
        let mode = fs::metadata(installed.prefix().join(file)).unwrap().permissions().mode();
        let is_program = ["bin/folio", "lib/largefolio/qemu.sh"].contains(&file.as_str());
        assert_eq!(mode & 0o777, if is_program { 0o755 } else { 0o644 }, "{file}");
    }
    for shipped in ["kernels", "machines", "schemas", "tunings", "traces"] {
        let inside =
            expected.iter().filter(|f| f.contains(&format!("largefolio/{shipped}/"))).count();
        let all = fs::read_dir(root().join(shipped)).unwrap();
        let files = all.filter(|entry| entry.as_ref().unwrap().path().is_file()).count();
        assert_eq!(inside, files, "{shipped}");
    }
}

/// Reads `[package.metadata.deb]` as TOML, with paths relative to `usr`, as `make install` places
/// files.
fn package_files(installed: &Installed) -> BTreeSet<String> {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
    let manifest: BTreeMap<String, toml::Value> =
        toml::from_str(&fs::read_to_string(manifest).unwrap()).unwrap();
    let assets = manifest["package"]["metadata"]["deb"]["assets"].as_array().unwrap().clone();
    let mut files = BTreeSet::new();
    for asset in assets {
        let part = |nr: usize| asset[nr].as_str().unwrap().to_owned();
        let source = part(0);
        let source = if let Some(built) = source.strip_prefix("target/release/") {
            installed.build().join(built)
        } else if let Some(made) = source.strip_prefix("../../target/dist/") {
            installed.dist().join(made)
        } else {
            root().join(source.strip_prefix("../../").unwrap())
        };
        let target = part(1).replace("vendor-completions", "site-functions");
        let matches = matching(&source);
        assert!(!matches.is_empty(), "{} is missing", source.display());
        let target = target.strip_prefix("usr/").unwrap().to_owned();
        files.extend(matches.into_iter().map(|name| format!("{target}{name}")));
    }
    files
}

fn matching(pattern: &Path) -> Vec<String> {
    let last = pattern.file_name().unwrap().to_str().unwrap();
    let (start, end) = last.split_once('*').unwrap_or((last, ""));
    let is_pattern = last.contains('*');
    let is_match =
        |name: &str| name == last || is_pattern && name.starts_with(start) && name.ends_with(end);
    let entries = fs::read_dir(pattern.parent().unwrap()).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.filter(|name| is_match(name)).collect()
}

#[test]
fn a_package_is_staged_below_destdir() {
    let installed = Installed { place: tempfile::tempdir().unwrap() };
    let staging = installed.place.path().join("staging");
    let run = |word: &str| {
        let mut command = installed.command(word);
        command.env("PREFIX", "/usr").env("DESTDIR", &staging).status().unwrap().success()
    };
    assert!(run("install"));
    assert!(staging.join("usr/share/zsh/vendor-completions/_folio").exists(), "as Debian has it");
    let listed = fs::read_to_string(staging.join("usr/lib/largefolio/installed")).unwrap();
    assert!(listed.contains("f /usr/bin/folio\n"), "paths are those after unpacking");
    assert!(run("uninstall"));
    assert_eq!(fs::read_dir(&staging).unwrap().count(), 0);
}

#[test]
fn nothing_is_installed_where_something_is_missing() {
    let installed = Installed { place: tempfile::tempdir().unwrap() };
    fs::remove_file(installed.build().join("liblargefolio_preload.so")).unwrap();
    let refused = installed.attempt("install");
    let stderr = text(&refused.stderr);
    assert!(stderr.contains("liblargefolio_preload.so is missing. Run: make build"), "{stderr}");
    assert_eq!(refused.status.code(), Some(2));
    assert!(!installed.prefix().exists());
}

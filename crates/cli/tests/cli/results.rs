//! Result files are written whole or not at all, whatever is in the way.
//!
//! The table [`writers`] has every option that writes a file, and each test goes through all of
//! them.

use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _, symlink};
use std::path::Path;
use std::process::Command;

use crate::run::compile;
use crate::support::{Place, hold_settings, is_able, text};

const BEFORE: &str = "the old content";

struct Writer {
    /// `DIR` is replaced with the test's directory.
    args: String,
    file: &'static str,
}

/// Every option that names an output file. Options that this machine cannot use are skipped loudly;
/// `calibrate`, which takes 15 seconds, is left to `make test-all`.
fn writers(place: &Place) -> Vec<Writer> {
    let mut writers = Vec::new();
    let mut add = |args: &str, file: &'static str| {
        writers.push(Writer { args: args.to_owned(), file });
    };
    let predict = "predict mix.folio --machine zen4 --kernel 6.18";
    add(&format!("{predict} -o DIR/out"), "out");
    add(&format!("{predict} --json -o DIR/out"), "out");
    add(&format!("{predict} --csv -o DIR/out"), "out");
    add(&format!("{predict} --parquet -o DIR/out"), "out");
    add(&format!("{predict} --report DIR/out.html"), "out.html");
    add("trace gen zipf --files 1 --file-size 1M --anon-size 1M --runs 500 -o DIR/out", "out");
    add("man -o DIR", "folio.1");
    if largefolio_testkit::is_whole() {
        add("calibrate --quick --dir . -o DIR/out", "out");
    }
    if is_able(&place.run("record -o probe.folio -- true")) {
        add("record -o DIR/out -- true", "out");
    }
    if compile(place, "-pie -fPIE -Wl,-z,max-page-size=4096") {
        add("align p -o DIR/out", "out");
    }
    let maps = format!("maps {} --report", std::process::id());
    if place.run(&format!("{maps} try.html")).status.code() == Some(0) {
        add(&format!("{maps} DIR/out.html"), "out.html");
    }
    writers
}

impl Writer {
    fn args(&self, dir: &str) -> String {
        self.args.replace("DIR", dir)
    }
}

#[test]
fn a_full_disk_leaves_only_the_old_file() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let writers = writers(&place);
    let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
    let mut script = "mkdir full; mount -t tmpfs -o size=64k tmpfs full || exit 77\n".to_owned();
    for (nr, writer) in writers.iter().enumerate() {
        let (args, file) = (writer.args("full"), writer.file);
        let _ = write!(
            script,
            "printf %s '{BEFORE}' >full/{file}; dd if=/dev/zero of=full/fill 2>/dev/null\n\
             {folio} {args} >output.{nr} 2>&1; echo $? >code.{nr}\n\
             cat full/{file} >kept.{nr}; ls -A full >names.{nr}; rm -rf full/* full/.[!.]*\n"
        );
    }
    if place.on_a_small_disk(&script).is_none() {
        return;
    }
    for (nr, Writer { args, file }) in writers.iter().enumerate() {
        let read = |what: &str| fs::read_to_string(place.path(&format!("{what}.{nr}"))).unwrap();
        let output = read("output");
        assert_eq!(read("code"), "2\n", "{args}: {output}");
        assert!(output.contains("No space left on device"), "{args}: {output}");
        assert_eq!(read("kept"), BEFORE, "{args}: {output}");
        let mut names = ["fill", file];
        names.sort_unstable();
        assert_eq!(read("names").split_whitespace().collect::<Vec<_>>(), names, "{args}");
    }
}

#[test]
fn a_planted_link_is_replaced_and_not_followed() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    for (nr, writer) in writers(&place).into_iter().enumerate() {
        let dir = place.path(&format!("dir{nr}"));
        fs::create_dir(&dir).unwrap();
        let [victim, link] = [place.path("victim"), dir.join(writer.file)];
        fs::write(&victim, BEFORE).unwrap();
        symlink(&victim, &link).unwrap();
        let args = writer.args(&format!("dir{nr}"));
        let output = place.run(&args);
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
        assert_eq!(fs::read_to_string(&victim).unwrap(), BEFORE, "{args}");
        let metadata = fs::symlink_metadata(&link).unwrap();
        assert!(metadata.is_file() && metadata.len() > 0, "{args}: {metadata:?}");
        assert!(!names(&dir).iter().any(|name| name.starts_with('.')), "{args}");
    }
}

fn names(dir: &Path) -> Vec<String> {
    let names = fs::read_dir(dir).unwrap();
    names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn new_files_have_the_default_mode_and_old_ones_keep_theirs() {
    let _settings = hold_settings();
    let place = Place::with_trace();
    let mode = |name: &str| fs::metadata(place.path(name)).unwrap().permissions().mode() & 0o7777;
    let predict = "predict mix.folio --machine zen4 --kernel 6.18";
    for args in [format!("{predict} -o out"), "trace gen zipf --runs 9 -o out".to_owned()] {
        let folio = assert_cmd::cargo::cargo_bin!("folio").display().to_string();
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask 027; {folio} {args}")]);
        assert!(shell.current_dir(place.0.path()).output().unwrap().status.success());
        assert_eq!(mode("out"), 0o640, "{args}");
        fs::set_permissions(place.path("out"), fs::Permissions::from_mode(0o604)).unwrap();
        place.done(&args);
        assert_eq!(mode("out"), 0o604, "{args}");
        fs::remove_file(place.path("out")).unwrap();
    }
}

#[test]
fn streams_can_be_outputs_and_are_not_replaced() {
    let place = Place::with_trace();
    let predict = "predict mix.folio --machine zen4 --kernel 6.18 --csv";
    let expected = place.done(predict);
    for stdout in ["-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"] {
        assert_eq!(place.done(&format!("{predict} -o {stdout}")), expected, "{stdout}");
    }
    assert!(fs::symlink_metadata("/dev/stdout").unwrap().is_symlink());
    assert!(!place.path("-").exists());
    assert_eq!(place.done(&format!("{predict} -o /dev/null")), "");
    place.done("trace gen zipf --runs 9 -o /dev/null");
    assert!(fs::metadata("/dev/null").unwrap().file_type().is_char_device());
    let trace = fs::read(place.path("mix.folio")).unwrap();
    assert!(Command::new("mkfifo").arg(place.path("pipe")).status().unwrap().success());
    let args = "trace gen zipf --files 2 --file-size 4M --anon-size 2M --runs 20000 -o pipe";
    let mut writing = place.command(args).spawn().unwrap();
    let read = fs::read(place.path("pipe")).unwrap();
    assert!(writing.wait().unwrap().success());
    assert!(read == trace, "a trace through a FIFO is the trace");
    let stderr = place.fails("align mix.folio -o /dev/null");
    assert!(stderr.contains("not an ELF file") || stderr.contains("character device"), "{stderr}");
}

#[test]
fn a_killed_command_leaves_nothing() {
    let place = Place::new();
    let dir = place.path("dir");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("out"), BEFORE).unwrap();
    // A process started by nohup(1) continues after SIGHUP.
    let mask = fs::read_to_string("/proc/self/status").unwrap();
    let mask = mask.lines().find_map(|line| line.strip_prefix("SigIgn:")).unwrap();
    let ignores_hup = u64::from_str_radix(mask.trim(), 16).unwrap() & 1 == 1;
    for signal in ["-INT", "-TERM", "-HUP", "-KILL"] {
        if signal == "-HUP" && ignores_hup {
            largefolio_testkit::skipped!("a_killed_command_leaves_nothing: SIGHUP is ignored here");
            continue;
        }
        // Gigabytes of rows: it does not end before the signal.
        let args = "trace gen zipf --runs 2000000000 -o dir/out";
        let mut writing = place.command(args).spawn().unwrap();
        let file = |name: &str| fs::read_link(format!("/proc/{}/fd/{name}", writing.id()));
        let has_begun =
            || (3..9).any(|fd| file(&fd.to_string()).is_ok_and(|to| to.starts_with(&dir)));
        for _ in 0..1000 {
            if has_begun() {
                break;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        assert!(has_begun(), "it did not begin to write");
        let kill = Command::new("kill").args([signal, &writing.id().to_string()]).status();
        assert!(kill.unwrap().success());
        assert!(!writing.wait().unwrap().success());
        assert_eq!(names(&dir), ["out"], "{signal}");
        assert_eq!(fs::read_to_string(dir.join("out")).unwrap(), BEFORE, "{signal}");
    }
}

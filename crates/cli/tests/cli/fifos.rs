//! If a FIFO is in place of a file, folio reports an error instead of waiting for a writer.

use std::fs;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use crate::support::{Place, hold_settings, text};

/// No command here takes this long, even on a busy machine.
const PATIENCE: Duration = Duration::from_mins(1);

const PART: &str = "part-0123456789abcdef0123456789abcdef.parquet";

fn run_with_timeout(mut command: Command, args: &str) -> Output {
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).stdin(Stdio::null());
    let mut child = command.spawn().unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().unwrap();
            panic!("{args}: waits for ever");
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().unwrap()
}

fn make(place: &Place, name: &str) {
    let path = place.path(name);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    let mut mkfifo = Command::new("mkfifo");
    assert!(mkfifo.args(["-m", "755"]).arg(&path).status().unwrap().success());
}

#[test]
fn fifos_named_by_users_are_refused() {
    // Another test's change of a setting would be refused first.
    let _settings = hold_settings();
    let place = Place::with_trace();
    for name in ["f.folio", "f.toml", "f.txt", "f.tar.xz", "recordings/f.txt"] {
        make(&place, name);
    }
    for args in [
        "predict f.folio",
        "predict mix.folio --kernel ./f.toml",
        "predict mix.folio --machine ./f.toml",
        "trace info f.folio",
        "trace cat f.folio",
        "verify --tune thp.32K=never --trace f.folio -- true",
        "verify --tune thp.32K=never --trace mix.folio --machine ./f.toml -- true",
        "calibrate --check --machine ./f.toml",
        "tune --profile f.toml",
        "align f.folio -o copy",
        "maps --elf f.folio",
        "maps --file f.folio",
        "warm f.folio",
        "record -- ./f.folio",
    ] {
        let output = run_with_timeout(place.command(args), args);
        let printed = text(&output.stderr) + &text(&output.stdout);
        assert_ne!(output.status.code(), Some(0), "{args}: {printed}");
        let is_named = ["FIFO", "not a regular file", "needs root"];
        assert!(is_named.iter().any(|name| printed.contains(name)), "{args}: {printed}");
    }
}

#[test]
fn does_not_wait_for_a_program_that_is_a_fifo() {
    let place = Place::new();
    make(&place, "f");
    for args in ["run --text large -- ./f", "run --text remap -- ./f", "verify --text large -- ./f"]
    {
        let output = run_with_timeout(place.command(args), args);
        assert_ne!(output.status.code(), Some(0), "{args}");
        assert!(!output.stderr.is_empty(), "{args}");
    }
}

#[test]
fn a_data_set_renames_damaged_files_and_refuses_an_invalid_lock() {
    let place = Place::with_trace();
    make(&place, "f.folio");
    let sweep = "predict --machine zen4 --kernel 6.18 --sweep set mix.folio";
    for name in ["set/_manifest.json".to_owned(), format!("set/{PART}")] {
        make(&place, &name);
        let output = run_with_timeout(place.command(sweep), sweep);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{name}: {stderr}");
        assert!(
            stderr.contains("it is a FIFO, not a regular file; renamed to _"),
            "{name}: {stderr}"
        );
        fs::remove_dir_all(place.path("set")).unwrap();
    }
    make(&place, "set/.lock");
    let stderr = text(&run_with_timeout(place.command(sweep), sweep).stderr);
    assert!(stderr.contains(".lock: it is a FIFO, not a regular file"), "{stderr}");
    fs::remove_dir_all(place.path("set")).unwrap();
    let args = sweep.replace("mix.folio", "f.folio");
    let output = run_with_timeout(place.command(&args), &args);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("it is a FIFO"), "{}", text(&output.stderr));
}

#[test]
fn inputs_of_tune_that_are_fifos_are_refused() {
    let setting = "root/sys/kernel/mm/transparent_hugepage/enabled";
    let boot = "root/proc/sys/kernel/random/boot_id";
    for name in ["record", "state/largefolio/tune.lock", setting, boot] {
        let place = Place::new();
        let root = place.path("root").to_str().unwrap().replace('/', "-");
        let record = format!("state/largefolio/tune{root}.json");
        let name = if name == "record" { &record } else { name };
        for (file, value) in [(setting, "always madvise [never]"), (boot, "one")] {
            fs::create_dir_all(place.path(file).parent().unwrap()).unwrap();
            if file != name {
                fs::write(place.path(file), value).unwrap();
            }
        }
        make(&place, name);
        let args = "tune --root root --set thp.enabled=madvise --yes";
        let mut command = place.command(args);
        command.env("XDG_STATE_HOME", place.path("state"));
        let output = run_with_timeout(command, name);
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{name}: {stderr}");
        assert!(stderr.contains("it is a FIFO, not a regular file"), "{name}: {stderr}");
    }
}

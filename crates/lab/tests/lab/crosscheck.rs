//! `folio-lab crosscheck`: messages and exit codes. The recorder has its own tests.

use std::fs;

use crate::support::{Place, hold_settings, is_able, text};

/// Two touches of a file of eight pages, with the answer of 6.18: a read-around of the window (32
/// pages, eight of them in the file), then a page that fault-around has mapped.
const SMALL: &str = "\
# kernel=6.18.44-test arch=x86-64 variant=small fs=ext4 read_ahead_kb=128 max_sectors_kb=512 \
fault_around_bytes=65536 prot=r map=shared advice=plain pattern=seq page=4096 file_pages=8 \
file_bytes=32768 n=2 seed=0 opens=1 skew=0 settle=1500 resid_before=0 minflt=1 majflt=1 \
ra_pages=32 events=1 lost=0
N 0 open=0 first=0 pages=8 prot=r map=shared advice=plain addr=0x400000000000
T 0
A 0 ORDER x8
T 1
E 0
P 0..7
";

pub(crate) fn small(order: &str) -> String {
    SMALL.replace("ORDER", order)
}

#[test]
fn a_replay_that_agrees_is_zero_and_one_that_differs_is_one() {
    let place = Place::new();
    fs::write(place.path("equal.txt"), small("0")).unwrap();
    fs::write(place.path("other.txt"), small("0").replace("x8", "x7")).unwrap();
    let agreed = place.done("crosscheck replay equal.txt");
    assert!(agreed.starts_with("kernel and model agree in all 1 recording\n"), "{agreed}");
    let output = place.run("crosscheck replay other.txt");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let message = text(&output.stdout);
    for part in ["other.txt", "step 1 (touch page 0)", "kernel  [", "model   [", "state   start"] {
        assert!(message.contains(part), "{part}: {message}");
    }
    assert!(message.starts_with("kernel and model differ in 1 of 1 recording\n"), "{message}");
}

#[test]
fn a_replay_as_json_and_csv() {
    let place = Place::new();
    fs::write(place.path("other.txt"), small("0").replace("x8", "x7")).unwrap();
    let output = place.run("crosscheck replay other.txt --json");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let json = text(&output.stdout).replace(env!("CARGO_PKG_VERSION"), "VERSION");
    insta::assert_snapshot!("crosscheck_replay_json", json);
    let output = place.run("crosscheck replay other.txt --csv");
    insta::assert_snapshot!("crosscheck_replay_csv", text(&output.stdout));
}

#[test]
fn other_rules_are_used_when_they_are_named() {
    let place = Place::new();
    fs::write(place.path("equal.txt"), small("0")).unwrap();
    let json = place.done("crosscheck replay equal.txt --kernel 6.17 --json");
    assert!(json.contains("\"rules\": \"6.17"), "{json}");
    let message = place.fails("crosscheck replay equal.txt --kernel 6.18+page=64K");
    assert!(message.contains("equal.txt") && message.contains("4096"), "{message}");
}

/// The newest rules apply to a recording of an even newer kernel; a warning and the JSON say so
/// once.
#[test]
fn rules_of_a_newer_kernel_are_the_newest_and_are_named() {
    const NOTE: &str =
        "Linux 7.4 is newer than the kernels this version knows; using the rules of 7.3";
    let place = Place::new();
    let newer = small("0").replace("6.18.44-test", "7.4.1-test");
    for name in ["one.txt", "two.txt"] {
        fs::write(place.path(name), &newer).unwrap();
    }
    let output = place.run("crosscheck replay one.txt two.txt --json");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), format!("folio-lab: warning: {NOTE}\n"));
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["rows"][1]["rules"], "7.3+page=4K");
    assert_eq!(json["rows"][1]["rules_note"], NOTE);
    let known = place.run("crosscheck replay one.txt --kernel 7.2");
    assert_eq!(text(&known.stderr), "");
}

#[test]
fn each_recording_is_replayed_under_its_own_base_page() {
    let place = Place::new();
    fs::create_dir(place.path("both")).unwrap();
    let large = small("0")
        .replace("page=4096", "page=16384")
        .replace("file_bytes=32768", "file_bytes=131072")
        .replace("ra_pages=32", "ra_pages=8")
        // Fault-around covers 64 KiB.
        .replace("P 0..7", "P 0..3");
    fs::write(place.path("both/4k.txt"), small("0")).unwrap();
    fs::write(place.path("both/16k.txt"), large).unwrap();
    let json = place.done("crosscheck replay both --kernel 6.18 --json");
    for rules in ["\"rules\": \"6.18+page=16K\"", "\"rules\": \"6.18\""] {
        assert!(json.contains(rules), "{rules}: {json}");
    }
    let message = place.fails("crosscheck replay both --kernel 6.18+page=4K");
    assert!(message.contains("16k.txt") && message.contains("16384"), "{message}");
}

/// A program of one process that writes a page; STATE is the page's state afterwards.
const PROCESSES: &str = "\
# cow page=4096 arch=x86-64 release=6.18.44
program 7 pages=128 sizes=-
> 0 map 0 16 h
> 0 write 0
0 0 STATE
end
";

/// A folder with recordings of files and, in any subfolder, of processes.
#[test]
fn recordings_of_both_kinds_are_replayed_together() {
    let place = Place::new();
    fs::create_dir_all(place.path("mixed/cow")).unwrap();
    fs::write(place.path("mixed/files.txt"), small("0")).unwrap();
    let state = |text: &str| PROCESSES.replace("STATE", text);
    fs::write(place.path("mixed/cow/processes.txt"), state("1 x =8193")).unwrap();
    let agreed = place.done("crosscheck replay mixed");
    assert!(agreed.starts_with("kernel and model agree in all 2 recordings\n"), "{agreed}");
    fs::write(place.path("mixed/other.txt"), state("-")).unwrap();
    let output = place.run("crosscheck replay mixed");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    let message = text(&output.stdout);
    assert!(message.starts_with("kernel and model differ in 1 of 3 recordings\n"), "{message}");
    assert!(message.contains("other.txt: program 7"), "{message}");
    // A program that did not end proves nothing.
    fs::write(place.path("mixed/other.txt"), state("-").replace("end\n", "")).unwrap();
    let output = place.run("crosscheck replay mixed");
    let message = text(&output.stdout);
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("the program did not end"), "{message}");
}

/// If a program uses a file in ways that no rule covers, that is reported, but is not a difference.
#[test]
fn what_no_rule_covers_is_told_beside_the_result() {
    let place = Place::new();
    let text = "# kernel=6.18.44 variant=live arch=x86-64 fs=ext4 page=4096 ra_pages=32 \
                max_sectors_kb=124 events=511 lost=0 settle=0 io=within program=true\n\
                I 0 3700 /a\nI 1 3700 /b\nO 1 0\nO 2 1\n~ 0 mlock\n~ 0 mlock\n\
                B 0 0 8192 1\nB 0 0 8192 2\n@1 S sync 0 2 0 0 0 32 0 -1\n\
                @1 S order 0 0 4 2 32\n@1 A 0 0\nE 0\n";
    fs::write(place.path("locked.txt"), text).unwrap();
    let message = place.done("crosscheck replay locked.txt");
    let expected = "not comparable because of mlock, which occurred 2 times: 1 file from that point on \
                (locked.txt)";
    assert!(message.contains(expected), "{message}");
    assert!(message.starts_with("kernel and model agree in all 1 recording\n"), "{message}");
}

/// A program agrees whatever its name is: lines of the kernel's trace begin with names. Standard
/// output has only the result, whatever the program prints.
#[test]
fn a_real_program_agrees_and_its_output_is_not_mixed_with_the_result() {
    let place = Place::new();
    for name in ["cat", "[x] LOST EVENTS", "line\nend] x"] {
        let program = place.path(name);
        fs::copy("/bin/cat", &program).unwrap();
        let mut command = place.command("crosscheck program --fs ext4 --window 128K --json --");
        let output = command.arg(&program).arg("/etc/passwd").output().unwrap();
        if !is_able(&output) {
            return;
        }
        let (message, json) = (text(&output.stderr), text(&output.stdout));
        let result: serde_json::Value = serde_json::from_str(&json).unwrap();
        let rows = result["rows"].as_array().unwrap();
        let outcomes: Vec<_> = rows.iter().map(|row| row["outcome"].as_str()).collect();
        assert_eq!(outcomes, [Some("equal")], "{name}: {json}");
        assert!(message.contains("root:"), "{message}");
    }
}

#[test]
fn what_cannot_be_replayed_is_an_error() {
    let place = Place::new();
    fs::create_dir(place.path("empty")).unwrap();
    fs::write(place.path("text.txt"), "hello\n").unwrap();
    fs::write(place.path("trace.folio"), b"PAR1\xff").unwrap();
    fs::write(place.path("damaged.tar.xz"), "hello\n").unwrap();
    fs::write(place.path("old.txt"), small("0").replace("kernel=6.18.44", "kernel=5.10.1"))
        .unwrap();
    for (command, expected) in [
        ("crosscheck replay", "PATH"),
        ("crosscheck replay missing", "No such file"),
        ("crosscheck replay empty", "no recordings"),
        ("crosscheck replay text.txt", "text.txt:1: this is not a recording"),
        ("crosscheck replay trace.folio", "trace.folio:1: this is not a recording: it is not text"),
        ("crosscheck replay damaged.tar.xz", "damaged.tar.xz: truncated or damaged"),
        ("crosscheck replay old.txt", "the oldest known kernel is 6.1"),
        ("crosscheck replay old.txt --kernel 6.13", "6.12"),
        ("crosscheck --fs zfs", "ext4, xfs, ext4-encrypt"),
        ("crosscheck --window 1000", "multiple of 1K"),
        ("crosscheck workloads --page 5K", "4K, 16K or 64K"),
        ("crosscheck record", "--output"),
    ] {
        let message = place.fails(command);
        assert!(message.contains(expected), "{command}: {message}");
    }
}

#[test]
fn the_set_is_listed_with_its_words() {
    let place = Place::new();
    let list = place.done("crosscheck workloads --fs xfs");
    let expected = "xfs_ra128_r_plain_stride7_s0 prot=r map=shared advice=plain pattern=stride7 \
                    n=150 seed=0\n";
    assert!(list.contains(expected), "{list}");
    let json = place.done("crosscheck workloads --page 16K --json");
    assert!(json.contains("\"ext4-slow\"") && json.contains("\"is_sparse\": true"), "{json}");
}

#[test]
fn a_recording_in_which_nothing_was_traced_is_no_difference() {
    let place = Place::new();
    fs::write(place.path("empty.txt"), small("0").replace("A 0 0 x8\n", "")).unwrap();
    let message = place.fails("crosscheck replay empty.txt");
    assert!(message.contains("nothing was traced") && message.contains("empty.txt"), "{message}");
}

#[test]
fn drawn_workloads_are_those_of_their_seed_and_printed_as_commands() {
    let place = Place::new();
    let ten = place.done("crosscheck workloads --random 10 --seed 5");
    assert_eq!(ten.lines().count(), 10);
    let begins = "folio-lab crosscheck record -o here --fs ";
    assert!(
        ten.lines().all(|line| line.starts_with(begins) && line.contains(" -- file=")),
        "{ten}"
    );
    assert_eq!(ten, place.done("crosscheck workloads --random 10 --seed 5"));
    let one = place.done("crosscheck workloads --random 1 --seed 9 --fs xfs");
    let settings_of =
        |line: &str| line.split_once(" -- ").map(|(_, settings_of)| settings_of.to_owned());
    let same = ten.lines().find(|line| line.contains(" seed=9 ")).and_then(settings_of);
    assert_eq!(settings_of(one.trim_end()), same, "the filesystem does not change the words");
}

#[test]
fn without_root_the_exact_command_is_told() {
    let place = Place::new();
    for command in ["crosscheck --only *x*", "crosscheck record -o here -- pattern=seq"] {
        let output = match place.command_of_nobody(command).output() {
            Ok(output) => output,
            Err(error) => {
                largefolio_testkit::skipped!("without_root_the_exact_command_is_told: {error}");
                return;
            }
        };
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains("needs root; run `sudo /"), "{message}");
        assert!(message.contains("folio-lab crosscheck "), "{message}");
        assert_eq!(text(&output.stdout), "");
    }
}

#[test]
fn a_container_with_processes_of_its_own_is_told() {
    let place = Place::new();
    let folio = place.command("crosscheck --only *mid1001_s0");
    let mut inside = std::process::Command::new("unshare");
    inside.args(["--pid", "--fork", "--mount-proc"]).arg(folio.get_program());
    let output = inside.args(folio.get_args()).current_dir(place.path(".")).output().unwrap();
    let message = text(&output.stderr);
    if message.starts_with("unshare:") {
        largefolio_testkit::skipped!("a_container_with_processes_of_its_own_is_told: {message}");
        return;
    }
    assert_eq!(output.status.code(), Some(2), "{message}");
    assert!(message.contains("PID namespace") && message.contains("--pid=host"), "{message}");
}

/// Checks a small set on this kernel, as a user would. Says loudly why it skips.
#[test]
fn the_running_kernel_agrees() {
    let place = Place::new();
    let command = "crosscheck --window 128K --only *mid1001_s0 --keep kept --json";
    let output = place.run(command);
    if !is_able(&output) {
        return;
    }
    let message = text(&output.stderr);
    let json = text(&output.stdout);
    assert!(output.status.success(), "{}: {message}{json}", output.status);
    let result: serde_json::Value = serde_json::from_str(&json).unwrap();
    let is_recorded = |row: &&serde_json::Value| row["outcome"] != "skipped";
    let rows: Vec<_> = result["rows"].as_array().unwrap().iter().filter(is_recorded).collect();
    assert!(rows.len() >= 4, "{json}");
    assert!(rows.iter().all(|row| row["outcome"] == "equal"), "{json}");
    // The kept recordings agree without root too.
    let again = place.done("crosscheck replay kept");
    assert!(again.contains(&format!("agree in all {} recordings", rows.len())), "{again}");
}

/// Runs random programs of each kind, as a user would. Says loudly why it skips.
#[test]
fn random_programs_agree_with_the_running_kernel() {
    let _held = hold_settings();
    let place = Place::new();
    for kind in ["cow", "cow --hugetlb", "collapse", "collapse --khugepaged"] {
        let output = place.run(&format!("crosscheck {kind} --programs 3"));
        if is_able(&output) {
            let message = text(&output.stdout);
            assert!(
                message.starts_with("kernel and model agree in all 3 programs\n"),
                "{kind}: {message}"
            );
        }
    }
}

/// A file from version 0.1.
#[test]
fn an_earlier_recording_is_read() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/fixtures/0.1/recording.txt");
    let message = Place::new().done(&format!("crosscheck replay {file}"));
    assert!(message.starts_with("kernel and model agree in all 1 recording\n"), "{message}");
}

/// A FIFO, and the kernel's log, whose reads wait for future messages.
#[test]
fn a_file_that_would_never_end_is_refused() {
    let place = Place::new();
    let mkfifo = std::process::Command::new("mkfifo").arg(place.path("f.txt")).status();
    assert!(mkfifo.unwrap().success());
    for command in ["replay f.txt", "replay /proc/kmsg", "cow --from f.txt"] {
        place.fails(&format!("crosscheck {command}"));
    }
}

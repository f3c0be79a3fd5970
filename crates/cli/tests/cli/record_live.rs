//! `folio record --live`: programs of this machine at their own speed. Needs root and tracefs, and
//! says so when it skips.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Output, Stdio};
use std::thread::sleep;
use std::time::Duration;

use serde_json::Value;

use crate::support::{Place, is_able, text};

const NR_PAGES: u64 = 8192;
/// Maps memory, writes every page, and says so.
const TOUCHES: &str = "import mmap, time
m = mmap.mmap(-1, 8192 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
for page in range(8192): m[page * 4096] = 1
print('touched', flush=True)
";
/// The interpreter itself, not a script that looks for one.
const PYTHON: &str = "/usr/bin/python3";

/// Returns whether the kernel can be traced; says loudly if not.
fn can_record(place: &Place) -> bool {
    is_able(&place.run("record --live -o probe.folio -- /bin/true"))
}

struct RunningProgram(Child);

impl RunningProgram {
    fn start(place: &Place) -> Self {
        let script = place.path("wait.py");
        fs::write(&script, format!("{TOUCHES}time.sleep(600)\n")).unwrap();
        let mut child = Command::new(PYTHON).arg(script).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = [0; 7];
        child.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
        Self(child)
    }

    fn is_alive(&mut self) -> bool {
        self.0.try_wait().unwrap().is_none()
    }
}

impl Drop for RunningProgram {
    fn drop(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

fn instances() -> Vec<String> {
    let script = "mount -t tracefs tracefs /mnt && ls /mnt/instances";
    let output = Command::new("unshare").args(["--mount", "sh", "-c", script]).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let names = text(&output.stdout);
    names.lines().filter(|name| name.starts_with("folio-record-")).map(str::to_owned).collect()
}

fn predicted(place: &Place, trace: &str) -> Value {
    let json = place.done(&format!("predict --json --kernel 6.18 --machine altra {trace}"));
    serde_json::from_str(&json).unwrap()
}

fn number(value: &Value, at: &str) -> u64 {
    value.pointer(at).and_then(Value::as_u64).unwrap_or_else(|| panic!("no {at}"))
}

fn interrupt(folio: Child) -> Output {
    sleep(Duration::from_millis(1500));
    let id = folio.id().to_string();
    assert!(Command::new("kill").args(["-INT", &id]).status().unwrap().success());
    folio.wait_with_output().unwrap()
}

#[test]
fn unrecordable_live_programs_are_errors() {
    let place = Place::new();
    for (args, expected) in [
        ("record --live", "<CMD>"),
        ("record -p 1", "--live"),
        ("record --for 5s -- true", "--live"),
        ("record --hot 5s -- true", "--live"),
        ("record --live --runs 3 -- true", "omit --runs"),
        ("record --live --with qemu -- true", "--live uses none"),
        ("record --live -p 4194305", "no process 4194305 is running"),
        ("record --live --cgroup /nonexistent", "is it a control group directory?"),
        ("record --live --max-size 0 -- true", "a size such as 1G"),
        ("record --live -- no-such-program", "not found in PATH"),
    ] {
        let stderr = place.fails(args);
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
}

#[test]
fn names_the_sudo_command_without_root() {
    let place = Place::new();
    let output = match place.command_of_nobody("record --live -- /bin/true").output() {
        Ok(output) => output,
        Err(error) => {
            largefolio_testkit::skipped!("the user nobody cannot run folio: {error}");
            return;
        }
    };
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(
        stderr.contains("run `sudo ") && stderr.contains("record --live -- /bin/true"),
        "{stderr}"
    );
}

#[test]
fn predicts_memory_and_keeps_the_commands_output() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    fs::write(place.path("t.py"), format!("{TOUCHES}__import__('os')._exit(7)\n")).unwrap();
    let output = place.run(&format!("record --live -o t.folio -- {PYTHON} t.py"));
    let stderr = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(7), "touched\n"));
    assert!(stderr.contains("page faults in") && stderr.contains("ended with exit 7"), "{stderr}");
    let info = place.done("trace info t.folio");
    for expected in ["live, folio", "exit 7", "threads   1\n", "libc.so"] {
        assert!(info.contains(expected), "no {expected}: {info}");
    }
    let result = predicted(&place, "t.folio");
    // This program advises nothing: each page of private memory is a fault that the kernel counted.
    let recorded = number(&result, "/trace/nr_references");
    let faults = number(&result, "/rows/0/faults/total");
    assert!(
        recorded > NR_PAGES && recorded.abs_diff(faults) * 20 < recorded,
        "{recorded} {faults}"
    );
    assert!(number(&result, "/rows/0/folios/anon/mapped_bytes") >= NR_PAGES * 4096);
    assert_eq!(number(&result, "/rows/0/strays/unmapped"), 0);
}

#[test]
fn a_trace_of_faults_has_no_tlb_results() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let result = predicted(&place, "probe.folio");
    assert!(result.pointer("/rows/0/tlb").is_none(), "{result}");
    assert_eq!(result.pointer("/rows/0/estimate/run/source").unwrap(), "not_known");
    let table = place.done("predict --kernel 6.18,7.2 --machine altra --full probe.folio");
    assert!(
        table.contains("The trace contains only page faults") && !table.contains("walks, data")
    );
    assert!(table.contains("Which is best for time is not known"), "{table}");
    let csv = place.done("predict --kernel 6.18 --machine altra --csv probe.folio");
    assert!(csv.contains("faults_total") && !csv.contains("tlb_"), "{csv}");
    let page = place.path("page.html");
    place.done(&format!("predict --kernel 6.18 --report {} probe.folio", page.display()));
    let page = fs::read_to_string(page).unwrap();
    assert!(page.contains("contains only page faults") && !page.contains("TLB misses</h2>"));
    assert!(place.fails("advise probe.folio").contains("--goal memory"));
}

#[test]
fn a_running_process_continues_after_ctrl_c() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let mut running = RunningProgram::start(&place);
    let pid = running.0.id();
    let args = format!("record --live -o r.folio -p {pid}");
    let folio = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
    let name = format!("folio-record-{}", folio.id());
    let output = interrupt(folio);
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("stopped by signal 2"), "{stderr}");
    assert!(running.is_alive());
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    let resident: u64 = line.trim_end_matches("kB").trim().parse().unwrap();
    let result = predicted(&place, "r.folio");
    let mapped = number(&result, "/rows/0/folios/anon/mapped_bytes") >> 10;
    assert!(mapped.abs_diff(resident) * 50 < resident, "{mapped} KiB, resident {resident} KiB");
    let text_bytes = number(&result, "/rows/0/folios/text/mapped_bytes");
    assert!(text_bytes > 1 << 20, "{text_bytes}");
    assert!(!instances().contains(&name));
}

/// Touches 500 more pages for each line of input.
const MORE: &str = "import sys
more = [mmap.mmap(-1, 500 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) for _ in range(9)]
for one in more: one.madvise(mmap.MADV_NOHUGEPAGE)
for one in more:
    sys.stdin.readline()
    for page in range(500): one[page * 4096] = 1
    print('done', flush=True)
";

fn faults_of(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    [7, 9].iter().map(|&nr: &usize| fields[nr].parse::<u64>().unwrap()).sum()
}

/// Earlier pages are memory; only faults that the kernel counted since then are faults.
#[test]
fn earlier_pages_are_no_faults() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    fs::write(place.path("more.py"), format!("{TOUCHES}{MORE}")).unwrap();
    let mut child = Command::new(PYTHON);
    child.arg(place.path("more.py")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut running = RunningProgram(child.spawn().unwrap());
    let mut lines = BufReader::new(running.0.stdout.take().unwrap()).lines();
    let mut stdin = running.0.stdin.take().unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "touched");
    // The interpreter itself may touch new pages the first time.
    stdin.write_all(b"\n").unwrap();
    assert_eq!(lines.next().unwrap().unwrap(), "done");
    let pid = running.0.id();
    let record = |trace: &str, touch: &mut dyn FnMut()| {
        let before = faults_of(pid);
        let args = format!("record --live --for 3s -o {trace} -p {pid}");
        let folio = place.command(&args).stderr(Stdio::piped()).spawn().unwrap();
        sleep(Duration::from_millis(1500));
        touch();
        let output = folio.wait_with_output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "{stderr}");
        let faults = faults_of(pid) - before;
        let expected = match faults {
            1 => "1 page fault in".to_owned(),
            faults => format!("{faults} page faults in"),
        };
        assert!(stderr.contains(&expected), "{expected}: {stderr}");
        assert!(stderr.contains(" pages were present before"), "{stderr}");
        faults
    };
    assert_eq!(record("idle.folio", &mut || {}), 0);
    let touched = record("some.folio", &mut || {
        stdin.write_all(b"\n").unwrap();
        assert_eq!(lines.next().unwrap().unwrap(), "done");
    });
    assert!((500..520).contains(&touched), "{touched}");
    let kernels = "predict --kernel 6.18,6.18+thp=always,7.2 --machine altra";
    let json = place.done(&format!("{kernels} --json idle.folio"));
    let idle: Value = serde_json::from_str(&json).unwrap();
    assert!(number(&idle, "/trace/attached/nr_pages") > NR_PAGES);
    for row in 0..3 {
        assert_eq!(number(&idle, &format!("/rows/{row}/faults/total")), 0);
        assert_eq!(number(&idle, &format!("/rows/{row}/estimate/total_ns")), 0);
        assert!(number(&idle, &format!("/rows/{row}/folios/anon/mapped_bytes")) > NR_PAGES * 4096);
    }
    let table = place.done(&format!("{kernels} idle.folio"));
    assert!(table.contains("0 page faults in") && table.contains("take the same time"), "{table}");
    // Each page is a fault in the model too, because no larger folio is allowed there.
    let predicted = number(&predicted(&place, "some.folio"), "/rows/0/faults/total");
    assert!(predicted.abs_diff(touched) <= 20, "{predicted} {touched}");
}

#[test]
fn a_recording_ends_at_its_limits_but_the_command_does_not() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let running = RunningProgram::start(&place);
    let run_stderr = |args: &str| {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(0), "{args}: {}", text(&output.stderr));
        text(&output.stderr)
    };
    let pid = running.0.id();
    let time = run_stderr(&format!("record --live --for 1s -o a.folio -p {pid}"));
    assert!(time.contains("stopped after the time given by --for"), "{time}");
    let size = run_stderr(&format!("record --live --max-size 1K -o b.folio -p {pid}"));
    assert!(size.contains("stopped at the size given by --max-size"), "{size}");
    fs::write(place.path("s.sh"), "sleep 2\nexit 5\n").unwrap();
    let output = place.run("record --live --for 1s -o c.folio -- sh s.sh");
    assert_eq!(output.status.code(), Some(5), "{}", text(&output.stderr));
}

/// A program that repeatedly writes the same pages. Needs a kernel with soft-dirty bits.
#[test]
fn reports_pages_that_are_written_again() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let script = "import mmap, time
m = mmap.mmap(-1, 64 * 4096, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
until = time.monotonic() + 4
while time.monotonic() < until:
    for page in range(64): m[page * 4096] = 1
";
    fs::write(place.path("again.py"), script).unwrap();
    let hot = place.run(&format!("record --live --hot 1s -o hot.folio -- {PYTHON} again.py"));
    let stderr = text(&hot.stderr);
    if stderr.contains("CONFIG_MEM_SOFT_DIRTY") {
        largefolio_testkit::skipped!("reports_pages_that_are_written_again: {stderr}");
        assert_eq!(hot.status.code(), Some(2));
        return;
    }
    assert_eq!(hot.status.code(), Some(0), "{stderr}");
    assert!(stderr.contains("which pages were written again"), "{stderr}");
    place.done(&format!("record --live -o cold.folio -- {PYTHON} again.py"));
    let writes = |trace: &str| {
        let rows = place.done(&format!("trace cat {trace}"));
        rows.lines().filter(|row| row.contains(" write ")).count()
    };
    // Each of about three rounds finds the 64 pages.
    let (hot, cold) = (writes("hot.folio"), writes("cold.folio"));
    assert!(hot > cold + 64, "{hot} {cold}");
}

#[test]
fn a_killed_recorder_leaves_nothing_after_the_next_recording() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let mut running = RunningProgram::start(&place);
    let args = format!("record --live -o k.folio -p {}", running.0.id());
    let mut folio = place.command(&args).stderr(Stdio::null()).spawn().unwrap();
    let name = format!("folio-record-{}", folio.id());
    sleep(Duration::from_millis(1500));
    folio.kill().unwrap();
    folio.wait().unwrap();
    assert!(instances().contains(&name), "the kernel keeps it");
    place.run("record --live -o next.folio -- /bin/true");
    assert!(!instances().contains(&name));
    assert!(running.is_alive());
    assert!(!fs::exists(place.path("k.folio")).unwrap(), "a trace appears whole or not at all");
}

#[test]
fn children_are_followed_with_their_programs() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    // A program's mappings are read while it lives; on a busy machine, that takes a while.
    fs::write(place.path("s.sh"), "/bin/sleep 0.5\n/usr/bin/timeout 9 /bin/sleep 0.5\n").unwrap();
    let output = place.run("record --live -o s.folio -- sh s.sh");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let rows = place.done("trace cat s.folio");
    for program in ["/sleep", "/timeout"] {
        let is_exec = |row: &str| row.contains(" execve ") && row.contains(program);
        assert!(rows.lines().any(is_exec), "no {program}: {rows}");
    }
    assert!(place.done("trace info s.folio").contains("threads   4 in 4 processes"));
    // The kernel touches the new memory before the program does.
    assert_eq!(number(&predicted(&place, "s.folio"), "/rows/0/strays/unmapped"), 0);
}

const CALLS: &str = "import ctypes, mmap, os, time
kernel = ctypes.CDLL(None)
memory = mmap.mmap(-1, 65536)
memory[:] = b'x' * 65536
address = ctypes.addressof(ctypes.c_char.from_buffer(memory))
data = os.open('data', os.O_RDWR | os.O_CREAT | os.O_DIRECT)
os.write(data, memory)
os.preadv(data, [memory], 0)
os.posix_fallocate(data, 0, 131072)
kernel.fallocate(data, 3, ctypes.c_long(0), ctypes.c_long(4096))
kernel.mlock(ctypes.c_void_p(address), 8192)
kernel.munlockall()
kernel.prctl(41, 1, 0, 0, 0)
os.sync()
time.sleep(0.3)
";

#[test]
fn calls_that_cause_no_fault_are_in_the_trace() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let kind = Command::new("stat").args(["-f", "-c", "%T"]).arg(place.path(".")).output().unwrap();
    if text(&kind.stdout).trim() != "ext2/ext3" {
        largefolio_testkit::skipped!("the directory is not on ext4, whose calls are recorded");
        return;
    }
    fs::write(place.path("calls.py"), CALLS).unwrap();
    let record = format!("record --live -o c.folio -- {PYTHON} calls.py");
    // Another program that maps a lot at this moment can fill the buffers, but not every time.
    let is_recorded = |_| place.run(&record).status.code() == Some(0);
    assert!((0..3).any(is_recorded), "{}", text(&place.run(&record).stderr));
    let rows = place.done("trace cat c.folio");
    let mut rows = rows.lines();
    for (operation, detail) in [
        (" pwrite ", "64 KiB direct"),
        (" pread ", "64 KiB direct"),
        (" fallocate ", "128 KiB"),
        (" fallocate ", "4 KiB hole"),
        (" mlock ", "8 KiB"),
        (" mlock ", "all memory unlocked"),
        (" thp_disable ", "all"),
        (" sync ", "all files"),
    ] {
        let is_it = |row: &str| row.contains(operation) && row.ends_with(detail);
        assert!(rows.any(is_it), "no{operation}{detail}");
    }
}

/// After the time of `--for`, the trace is complete and nothing is traced, however long the command
/// runs.
#[test]
fn a_command_continues_without_its_recorder() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    // Another program that maps a lot at this moment can fill the buffers, but not every time.
    let is_lossless = |_| !record_a_part(&place).contains("records of mapped files were lost");
    assert!((0..3).any(is_lossless), "records are lost even though nothing is traced");
}

/// Records two seconds of a command, lets it end and returns the messages.
fn record_a_part(place: &Place) -> String {
    let _ = fs::remove_file(place.path("t.folio"));
    let script = "sleep 1; echo started; read line; exit 5";
    let mut folio = place.command("record --live -o t.folio --for 2s -- sh -c");
    folio.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut folio = folio.spawn().unwrap();
    let name = format!("folio-record-{}", folio.id());
    let mut line = [0; 8];
    folio.stdout.as_mut().unwrap().read_exact(&mut line).unwrap();
    for _ in 0..600 {
        if place.path("t.folio").exists() && !instances().contains(&name) {
            break;
        }
        sleep(Duration::from_millis(100));
    }
    assert!(place.path("t.folio").exists() && !instances().contains(&name));
    assert!(folio.try_wait().unwrap().is_none(), "it waits for the command");
    drop(folio.stdin.take());
    let output = folio.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(5));
    let stderr = text(&output.stderr);
    assert!(stderr.contains("stopped after the time given by --for"), "{stderr}");
    stderr
}

fn processes_with(word: &str) -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    let lines = lines.map(|line| String::from_utf8_lossy(&line).replace('\0', " "));
    lines.filter(|line| line.contains(word)).collect()
}

/// Returns the names of a recorder's tracefs instances; `None` if tracefs cannot be mounted.
fn instances_of(place: &Place, pid: u32) -> Option<Vec<String>> {
    let script = "mount -t tracefs none /mnt 2>&1 >&2 || exit 77; ls /mnt/instances";
    let stdout = text(&place.on_a_small_disk(script)?.stdout);
    let ending = format!("-{pid}");
    Some(stdout.lines().filter(|name| name.ends_with(&ending)).map(str::to_owned).collect())
}

/// Includes everything it has started: the waiting child, the keeper, the instance.
#[test]
fn a_recorder_killed_while_it_starts_leaves_nothing() {
    let place = Place::new();
    if !can_record(&place) {
        return;
    }
    let nr_trials = if largefolio_testkit::is_whole() { 100 } else { 12 };
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for nr in 0..nr_trials {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        let name = format!("killed-{}-{nr}.folio", std::process::id());
        let mut command = place.command(&format!("record --live -o {name} -- /bin/true"));
        let mut folio = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        sleep(Duration::from_millis(random % 350));
        folio.kill().unwrap();
        folio.wait().unwrap();
        let keeper = format!("folio-record-{}", folio.id());
        let begin = std::time::Instant::now();
        loop {
            let left = [processes_with(&name), processes_with(&keeper)].concat();
            if left.is_empty() {
                break;
            }
            assert!(begin.elapsed() < Duration::from_secs(30), "trial {nr}: {left:?}");
            sleep(Duration::from_millis(20));
        }
        let left = instances_of(&place, folio.id()).unwrap_or_default();
        assert_eq!(left, [""; 0], "trial {nr}");
    }
}

//! `folio maps` of a host: processes by name and group, changes, metrics, the full screen.

use std::fs;
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use crate::support::{Place, text};

/// A process with a unique name, killed and reaped on drop.
struct NamedProcess(Child);

impl NamedProcess {
    fn start(place: &Place, name: &str) -> Self {
        let path = place.path(name);
        // A separate process copies the file: otherwise a process started by another test could
        // inherit the open file, which could then not be run.
        assert!(Command::new("cp").arg("/bin/sleep").arg(&path).status().unwrap().success());
        Self(Command::new(path).arg("1000").spawn().unwrap())
    }
}

impl Drop for NamedProcess {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn own_name(test: &str) -> String {
    format!("{test}{}", std::process::id())
}

#[test]
fn processes_are_found_by_name() {
    let place = Place::new();
    let name = own_name("a-name-longer-than-comm");
    let process = NamedProcess::start(&place, &name);
    let shown = place.done(&format!("maps --name {name}"));
    assert!(shown.starts_with(&format!("process {} (", process.0.id())), "{shown}");
    let output = place.run(&format!("maps --name {name} --name nobody-has-this"));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no process is called nobody-has-this"));
    assert!(text(&output.stdout).starts_with("process "), "the other one is shown");
    assert!(place.fails("maps --name nobody-has-this").contains("give the whole name"));
}

#[test]
fn units_and_containers_are_control_groups() {
    let place = Place::new();
    assert!(place.fails("maps --unit no-such-unit").contains("systemctl list-units"));
    assert!(place.fails("maps --container 0123456789ab").contains("show IDs, not names"));
    assert!(place.fails("maps --unit a --container b").contains("cannot be used with"));
    let mounts = ["/sys/fs/cgroup/unified", "/sys/fs/cgroup"];
    let unit = own_name("folio-test");
    let group = mounts.iter().map(|root| format!("{root}/{unit}.service"));
    let Some(group) = group.into_iter().find(|group| fs::create_dir(group).is_ok()) else {
        largefolio_testkit::skipped!("cannot make a control group; needs root");
        return;
    };
    let process = NamedProcess::start(&place, &own_name("in-a-unit"));
    let is_moved = fs::write(format!("{group}/cgroup.procs"), process.0.id().to_string()).is_ok();
    let shown = is_moved.then(|| {
        let unit_table = place.run(&format!("maps --unit {unit}"));
        let metrics = place.run(&format!("maps --unit {unit}.service --openmetrics -"));
        (text(&unit_table.stdout), text(&metrics.stdout))
    });
    let pid = process.0.id();
    drop(process);
    fs::remove_dir(group).unwrap();
    let Some((unit_table, metrics)) = shown else {
        largefolio_testkit::skipped!("cannot move a process into a control group");
        return;
    };
    assert!(unit_table.starts_with(&format!("process {pid} (")), "{unit_table}");
    let labels = format!("cgroup=\"/{unit}.service\",unit=\"{unit}.service\",container=\"\"");
    assert!(metrics.contains(&labels), "{metrics}");
}

#[test]
fn compares_a_saved_reading_with_now_and_with_another() {
    let place = Place::new();
    let name = own_name("diff");
    let first = NamedProcess::start(&place, &name);
    let old = first.0.id();
    fs::write(place.path("old.json"), place.done(&format!("maps {old} --json"))).unwrap();
    let same = place.done(&format!("maps {old} --diff old.json"));
    assert!(same.contains("1 the same, 0 replaced"), "{same}");
    drop(first);
    let second = NamedProcess::start(&place, &name);
    let json = place.done(&format!("maps --name {name} --diff old.json --json"));
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(
        (&json["schema_version"], &json["nr_processes"]["replaced"]),
        (&1.into(), &1.into())
    );
    assert_eq!(json["processes"][0]["old_pid"], old);
    let now = second.0.id();
    fs::write(place.path("new.json"), place.done(&format!("maps {now} --json"))).unwrap();
    let text = place.done("maps --diff old.json new.json");
    assert!(text.contains(&format!("replaced {old}")), "{text}");
    let csv = place.done("maps --diff old.json new.json --csv");
    assert!(
        csv.starts_with("pid,process,fate,path,permissions,kind,folio_bytes,old_bytes"),
        "{csv}"
    );
}

#[test]
fn what_cannot_be_compared_is_refused() {
    let place = Place::new();
    fs::write(place.path("x.json"), "{\"schema_version\": 2}").unwrap();
    let stderr = place.fails("maps 1 --diff x.json");
    assert!(
        stderr
            .contains("x.json has schema version 2, but this version of folio uses 3; folio maps"),
        "{stderr}"
    );
    fs::write(place.path("x.json"), "[1").unwrap();
    assert!(place.fails("maps 1 --diff x.json").contains("not a result of folio maps"));
    assert!(place.fails("maps --diff none.json y.json").contains("cannot read none.json"));
    assert!(place.fails("maps --diff x.json").contains("specify what to compare with"));
    assert!(place.fails("maps --diff x.json 4242").contains("name processes before --diff"));
    assert!(place.fails("maps --all --diff x.json y.json").contains("is a second file to compare"));
}

#[test]
fn the_metrics_file_is_replaced_atomically() {
    let place = Place::new();
    let name = own_name("metric");
    let _process = NamedProcess::start(&place, &name);
    place.done(&format!("maps --name {name} --openmetrics m.prom"));
    let metrics = fs::read_to_string(place.path("m.prom")).unwrap();
    assert!(metrics.contains("folio_processes{state=\"counted\"} 1\n"), "{metrics}");
    assert!(metrics.ends_with("# EOF\n"), "{metrics}");
    assert_eq!(fs::read_dir(place.0.path()).unwrap().count(), 2, "the file and the program");
    assert!(place.fails("maps 1 --openmetrics no/such/m.prom").contains("cannot write no/such"));
    assert!(place.fails("maps 1 --openmetrics m.prom --json").contains("cannot be used with"));
}

/// Runs a command on a terminal: `STEPS COMMAND..`. A step is a text of keys, a size or a signal;
/// the first step waits for the screen, and `gone` removes the terminal. Prints the exit status,
/// whether the terminal's settings were restored, and the output.
const TERMINAL: &str = r#"
import fcntl, json, os, pty, select, signal, struct, sys, termios, time
steps, command = json.loads(sys.argv[1]), sys.argv[2:]
pid, terminal = pty.fork()
if pid == 0:
    os.environ["TERM"] = "xterm"
    signal.signal(signal.SIGHUP, signal.SIG_IGN if "nohup" in steps else signal.SIG_DFL)
    os.execv(command[0], command)
size = lambda rows, columns: fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
size(24, 100)
before, written = termios.tcgetattr(terminal), b""
def read(until, seconds):
    global written
    end, start = time.monotonic() + seconds, len(written)
    while time.monotonic() < end and not (until and until in written[start:]):
        if select.select([terminal], [], [], 0.05)[0]:
            try:
                written += os.read(terminal, 65536)
            except OSError:
                return
read(b"Tab next view", 60)
for step in steps:
    if isinstance(step, list):
        size(*step); os.kill(pid, signal.SIGWINCH)
    elif step == "nohup":
        pass
    elif step == "gone":
        os.close(terminal)
        ended = [0]
        end = time.monotonic() + 30
        while not ended[0] and time.monotonic() < end:
            time.sleep(0.1)
            ended = os.waitpid(pid, os.WNOHANG)
        if not ended[0]: os.kill(pid, signal.SIGKILL)
        print(json.dumps([os.waitstatus_to_exitcode(ended[1]) if ended[0] else -1, True, ""]))
        sys.exit()
    elif step.startswith("SIG"):
        os.kill(pid, getattr(signal, step))
    else:
        os.write(terminal, step.encode())
    read(None, 0.4)
read(b"\x1b[?1049l", 30)
after = termios.tcgetattr(terminal)
read(None, 0.3)
status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
print(json.dumps([status, before == after, written.decode(errors="replace")]))
"#;

/// Returns the exit status of a watch on a terminal, whether the terminal was restored, and the
/// output.
fn on_a_terminal(place: &Place, args: &str, steps: &str) -> (i64, bool, String) {
    let folio = place.command(args);
    let mut python = Command::new("python3");
    python.args(["-c", TERMINAL, steps]).arg(folio.get_program()).args(folio.get_args());
    let output = python.stdin(Stdio::null()).current_dir(place.0.path()).output().unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    let result: Value = serde_json::from_slice(&output.stdout).unwrap();
    let written = result[2].as_str().unwrap().to_owned();
    (result[0].as_i64().unwrap(), result[1].as_bool().unwrap(), written)
}

#[test]
fn the_full_screen_view_restores_the_terminal() {
    let place = Place::new();
    let (one, other) = (own_name("one"), own_name("other"));
    let _processes = [NamedProcess::start(&place, &one), NamedProcess::start(&place, &other)];
    let args = format!("maps --name {one} --name {other} --watch=1");
    for steps in ["[\"q\"]", "[\"\\u0003\"]", "[\"SIGTERM\"]", "[\"SIGINT\"]", "[\"SIGHUP\"]"] {
        let (status, is_as_before, written) = on_a_terminal(&place, &args, steps);
        assert_eq!((status, is_as_before), (0, true), "{steps}");
        assert!(written.contains("\u{1b}[?1049h") && written.contains("\u{1b}[?1049l"), "{steps}");
        assert!(written.contains("\u{1b}[?25h"), "{steps}: the cursor is back");
        assert!(written.contains("2 processes, kernel"), "{steps}: {written:?}");
    }
}

#[test]
fn the_full_screen_view_ends_with_its_terminal() {
    let place = Place::new();
    let name = own_name("gone");
    let _process = NamedProcess::start(&place, &name);
    let args = format!("maps --name {name} --watch=1");
    // One process gets a signal; the other loses its terminal without one.
    for steps in ["[\"gone\"]", "[\"nohup\", \"gone\"]"] {
        assert_eq!(on_a_terminal(&place, &args, steps).0, 0, "{steps}");
    }
}

#[test]
fn keys_move_through_a_full_screen() {
    let place = Place::new();
    let (one, other) = (own_name("key"), own_name("keys"));
    let _processes = [NamedProcess::start(&place, &one), NamedProcess::start(&place, &other)];
    let args = format!("maps --name {one} --name {other} --watch=1");
    let steps = "[\"j\", \"\\r\", \"c\", \"\\t\", [3, 9], [1, 1], [40, 120], \"?\", \"q\"]";
    let (status, is_as_before, written) = on_a_terminal(&place, &args, steps);
    assert_eq!((status, is_as_before), (0, true), "{written:?}");
    for part in ["mappings of", "control groups", "look now"] {
        assert!(written.contains(part), "{part}: {written:?}");
    }
}

#[test]
fn watching_nothing_opens_no_screen() {
    let place = Place::new();
    let mut script = Command::new("script");
    let folio = place.command("maps --name nobody-has-this --watch");
    let args: Vec<_> = folio.get_args().map(|word| word.to_str().unwrap()).collect();
    let program = folio.get_program().to_str().unwrap();
    script.args(["-qec", &format!("{program} {}", args.join(" ")), "/dev/null"]);
    let Ok(output) = script.stdin(Stdio::null()).output() else {
        largefolio_testkit::skipped!("script is not installed (bsdutils)");
        return;
    };
    let shown = text(&output.stdout);
    assert!(shown.contains("no process is called") && !shown.contains("\u{1b}[?1049h"), "{shown}");
    assert_eq!(output.status.code(), Some(2));
}

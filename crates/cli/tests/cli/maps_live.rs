//! `folio maps` of processes and the page cache: formats, errors, users, signals.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::process::{Child, Command, Output, Stdio};

use serde_json::Value;

use crate::schemas;
use crate::support::{Place, hold_settings, text};

struct Sleeper(Child);

impl Sleeper {
    fn start() -> Self {
        Self(Command::new("sleep").arg("1000").spawn().unwrap())
    }

    fn pid(&self) -> u32 {
        self.0.id()
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns whether PFNs are visible; says why not.
fn is_root() -> bool {
    let is_root = fs::File::open("/proc/kpageflags").is_ok();
    if !is_root {
        largefolio_testkit::skipped!("PFNs need root");
    }
    is_root
}

#[test]
fn a_process_is_shown_in_every_form() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let pid = sleeper.pid();
    let shown = place.done(&format!("maps {pid}"));
    assert!(shown.starts_with(&format!("process {pid} (")), "{shown}");
    assert!(shown.contains("libc.so.6") && shown.contains("shares by folio size"), "{shown}");
    let headline = shown.lines().nth(2).unwrap();
    assert!(headline.contains(" of the mapped memory; "), "the answer comes first: {shown}");
    let json: Value = serde_json::from_str(&place.done(&format!("maps {pid} --json"))).unwrap();
    assert_eq!((&json["schema_version"], &json["page_bytes"]), (&3.into(), &4096.into()));
    assert_eq!(
        json["command_line"],
        serde_json::json!(["folio", "maps", pid.to_string(), "--json"])
    );
    let mappings = json["processes"][0]["mappings"].as_array().unwrap();
    let folios = mappings.iter().flat_map(|mapping| mapping["folios"].as_array().unwrap());
    let json_bytes: u64 = folios.map(|cell| cell["mapped_bytes"].as_u64().unwrap()).sum();
    let csv = place.done(&format!("maps {pid} --csv"));
    assert!(csv.starts_with("pid,process,start,end,permissions,offset,path,kind,folio_bytes,"));
    let rows = csv.lines().skip(1).map(|row| row.split(',').collect::<Vec<_>>());
    let csv_bytes: u64 = rows.map(|row| row[9].parse::<u64>().unwrap()).sum();
    assert!(json_bytes > 0 && json_bytes == csv_bytes, "{json_bytes} {csv_bytes}");
}

#[test]
fn reasons_come_with_remedies() {
    if !is_root() {
        return;
    }
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let json: Value =
        serde_json::from_str(&place.done(&format!("maps {} --json", sleeper.pid()))).unwrap();
    let mappings = json["processes"][0]["mappings"].as_array().unwrap();
    let reasons: Vec<&Value> = mappings
        .iter()
        .filter_map(|mapping| mapping["target"]["reasons"].as_array())
        .flatten()
        .collect();
    assert!(!reasons.is_empty(), "a small program has small folios somewhere");
    assert!(reasons.iter().all(|reason| reason["refusal"].is_string()), "{reasons:?}");
    let remedies = mappings.iter().filter_map(|mapping| mapping["target"]["remedies"].as_array());
    let remedies: Vec<&Value> = remedies.flatten().collect();
    assert!(!remedies.is_empty());
    for remedy in remedies {
        let has = |name: &str| remedy[name].as_str().is_some_and(|text| !text.is_empty());
        if remedy["action"] == "nothing" {
            assert!(has("cost") && remedy["gain_bytes"] == 0, "why nothing works: {remedy}");
        } else {
            let what = has("command") || has("start") || remedy["action"] == "restart";
            assert!(what && has("restart") && remedy["gain_bytes"].as_u64() > Some(0), "{remedy}");
        }
    }
}

/// Eight 2M blocks with `MADV_HUGEPAGE`; in each, three of 512 pages are written to.
const SPARSE: &str = "
import mmap, time
memory = mmap.mmap(-1, 18 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
memory.madvise(mmap.MADV_HUGEPAGE)
for at in range(0, 18 << 20, 2 << 20):
    for page in (1, 2, 300):
        memory[at + page * 4096] = 1
print('ready', flush=True)
time.sleep(1000)
";

#[test]
fn pages_of_zeroes_in_large_folios_are_waste() {
    if !is_root() {
        let stderr = Place::new().fails("maps 1 --waste");
        assert!(stderr.contains("--waste needs") || stderr.contains("does not show"), "{stderr}");
        return;
    }
    let _settings = hold_settings();
    let enabled = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
    if !enabled.is_ok_and(|text| !text.contains("[never]")) {
        largefolio_testkit::skipped!("large folios are turned off");
        return;
    }
    let (place, mut child) = (Place::new(), Command::new("python3"));
    let mut child = child.args(["-c", SPARSE]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let sparse = Sleeper(child);
    let args = format!("maps {} --waste", sparse.pid());
    let json = place.done(&format!("{args} --json"));
    schemas::check(&format!("{args} --json"), json.as_bytes());
    let json: Value = serde_json::from_str(&json).unwrap();
    let mappings = json["processes"][0]["mappings"].as_array().unwrap();
    let huge = 2 << 20;
    let nr =
        |mapping: &Value| mapping["sizes"][huge.to_string()]["bytes"].as_u64().unwrap_or(0) / huge;
    let mapping = mappings.iter().max_by_key(|mapping| nr(mapping)).unwrap();
    let nr = nr(mapping);
    assert!(nr >= 1, "no 2M folio was free: {json}");
    let of = |size: u64| mapping["kept_bytes"][size.to_string()].as_u64().unwrap();
    assert_eq!(mapping["sizes"][huge.to_string()]["zero_bytes"], nr * (512 - 3) * 4096);
    assert_eq!(
        [of(4 << 10), of(64 << 10), of(1 << 20), of(huge)],
        [nr * 3 * 4096, nr * (128 << 10), nr * huge, nr * huge,]
    );
    let shown = place.done(&args);
    assert!(shown.contains("holds only zeroes") && shown.contains("What gives it back"), "{shown}");
    assert!(place.done(&format!("{args} --csv")).contains(&format!(",{huge},")), "{shown}");
    let refused = place.fails(&format!("{args} --watch"));
    assert!(refused.contains("works only for metrics"), "{refused}");
    let metrics = place.done(&format!("{args} --openmetrics -"));
    let zeroes = metrics.lines().find(|line| line.starts_with("folio_process_zero_bytes{"));
    assert!(zeroes.is_some_and(|line| line.contains("size=\"2M\"")), "{metrics}");
}

#[test]
fn otlp_is_one_line_per_reading() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let line = place.done(&format!("maps {} --otlp", sleeper.pid()));
    assert_eq!(line.matches('\n').count(), 1, "{line}");
    let request: Value = serde_json::from_str(&line).unwrap();
    let metrics = &request["resourceMetrics"][0]["scopeMetrics"][0]["metrics"];
    let all = metrics.as_array().unwrap();
    let processes = all.iter().find(|metric| metric["name"] == "folio_processes").unwrap();
    let points = processes["sum"]["dataPoints"].as_array().unwrap();
    assert_eq!((points.len(), &points[0]["asInt"]), (4, &"1".into()), "{processes}");
    let refused = place.fails("maps 1 --otlp --json");
    assert!(refused.contains("cannot be used with"), "{refused}");
}

/// 40 MiB in base pages and 40 MiB with `MADV_HUGEPAGE`; reads the first 4 MiB of each, over and over.
const PARTLY_USED: &str = "
import mmap
def memory(huge):
    memory = mmap.mmap(-1, 40 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_HUGEPAGE if huge else mmap.MADV_NOHUGEPAGE)
    for at in range(0, 40 << 20, 4096):
        memory[at] = 1
    return memory
both = [memory(False), memory(True)]
print('ready', flush=True)
while True:
    for one in both:
        for at in range(0, 4 << 20, 4096):
            one[at]
";

#[test]
fn only_used_memory_counts_as_used() {
    let (place, mut child) = (Place::new(), Command::new("python3"));
    let mut child = child.args(["-c", PARTLY_USED]).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let user = Sleeper(child);
    let args = format!("maps {} --hot --for 2s", user.pid());
    if !is_root() {
        let stderr = place.fails(&args);
        assert!(stderr.contains("--hot needs to see page frames; run: "), "{stderr}");
        return;
    }
    let json = place.done(&format!("{args} --json"));
    schemas::check(&format!("{args} --json"), json.as_bytes());
    let json: Value = serde_json::from_str(&json).unwrap();
    let mib = |value: &Value| value.as_u64().unwrap() >> 20;
    let mappings = json["processes"][0]["mappings"].as_array().unwrap();
    // The two may be neighbours, but have different advice, so they are two mappings.
    let arrays: Vec<&Value> =
        mappings.iter().filter(|one| mib(&one["resident_bytes"]) >= 38).collect();
    assert_eq!(arrays.len(), 2, "{json}");
    for array in arrays {
        // A PMD entry counts whole, so parts of 2M at both ends may count too.
        assert!((4..=8).contains(&mib(&array["used_bytes"])), "{array}");
        for part in array["sizes"].as_object().unwrap().values() {
            assert!(part["used_bytes_min"].as_u64() <= part["used_bytes_max"].as_u64(), "{array}");
        }
    }
    let base = &json["sizes"]["4096"];
    assert!(mib(&base["used_bytes_max"]) >= 4, "{base}");
    let shown = place.done(&args);
    assert!(shown.starts_with("python3") && shown.contains(" were used; "), "{shown}");
    assert!(place.done(&format!("{args} --csv")).contains(",[anonymous],4096,"), "{shown}");
}

#[test]
fn memory_in_use_is_found_only_for_selected_processes() {
    let place = Place::new();
    for args in ["maps --hot", "maps --all --hot"] {
        let stderr = place.fails(args);
        assert!(stderr.contains("select processes, such as folio maps 4242 --hot"), "{stderr}");
    }
    assert!(place.fails("maps 1 --hot --stalls").contains("cannot be used with"));
    let stderr = place.command_of_nobody("maps 1 --hot").output().unwrap().stderr;
    let stderr = text(&stderr);
    assert!(stderr.contains("--hot needs to see page frames; run: "), "{stderr}");
    if !is_root() {
        return;
    }
    let stderr = place.fails("maps 4194304 --hot --for 1s");
    assert!(stderr.contains("process 4194304 does not exist"), "{stderr}");
    // A zombie has no memory.
    let mut child = Command::new("true").spawn().unwrap();
    std::thread::sleep(std::time::Duration::from_millis(500));
    let output = place.run(&format!("maps {} --hot --for 1s", child.id()));
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("has no memory of its own"));
    child.wait().unwrap();
    // A process that ends meanwhile is no longer there.
    let mut child = Command::new("sleep").arg("1").spawn().unwrap();
    let waited = place.command(&format!("maps {} --hot --for 4s", child.id())).spawn().unwrap();
    child.wait().unwrap();
    let output = waited.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_requirement_decides_the_exit_status() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let run = |requirement: &str| {
        let output = place.run(&format!("maps {} --require {requirement}", sleeper.pid()));
        (output.status.code(), text(&output.stdout), text(&output.stderr))
    };
    if !is_root() {
        let (status, _, stderr) = run("4K:1%");
        assert_eq!(status, Some(2), "{stderr}");
        assert!(stderr.contains("shows them only to root"), "{stderr}");
        return;
    }
    for met in ["4K:1%", "anon:4K:100%", "text:4K:100%", "512M:0%"] {
        let (status, shown, stderr) = run(met);
        assert_eq!((status, stderr.as_str()), (Some(0), ""), "{met}");
        assert!(shown.contains("shares by folio size"), "{shown}");
    }
    let (status, shown, stderr) = run("anon:512M:95%");
    assert_eq!(status, Some(1), "{stderr}");
    assert!(shown.contains("shares by folio size"), "{shown}");
    assert!(
        stderr.contains(
            "only 0.0% of the anon memory is in folios of 512M or more, and --require asks for 95%"
        ),
        "{stderr}"
    );
    let (status, _, stderr) = run("hugetlb:2M:1%");
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("the processes map no hugetlb"), "{stderr}");
    let (status, _, stderr) = run("heap:2M:1%");
    assert_eq!(status, Some(2), "{stderr}");
    assert!(stderr.contains("such as anon:2M:95%"), "{stderr}");
}

#[test]
fn a_missing_process_is_an_error_but_the_others_are_shown() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let output = place.run(&format!("maps {} 4194304", sleeper.pid()));
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no process 4194304"), "{}", text(&output.stderr));
    assert!(text(&output.stdout).starts_with(&format!("process {}", sleeper.pid())));
}

#[test]
fn senseless_requests_are_refused() {
    let place = Place::new();
    assert!(place.fails("maps").contains("folio maps 4242, --name postgres"));
    assert!(place.fails("maps 1 --all").contains("cannot be used with"));
    assert!(place.fails("maps --elf x --all").contains("cannot be used with"));
    assert!(place.fails("maps --all --watch=1 --csv").contains("CSV would repeat its header"));
    assert!(place.fails("maps --cgroup nowhere").contains("nowhere/cgroup.procs"));
    let name = place.fails("maps postgres");
    assert!(name.contains("invalid value 'postgres'") && name.contains("pgrep -d,"), "{name}");
    let kernel = place.fails("maps 1 --kernel 6.12");
    assert!(kernel.contains("--kernel 6.12 works only for programs on disk"), "{kernel}");
}

#[test]
fn accepts_lists_of_processes_with_missing_ones() {
    let (place, one, other) = (Place::new(), Sleeper::start(), Sleeper::start());
    let shown = place.done(&format!("maps {},{}", one.pid(), other.pid()));
    assert!(shown.starts_with("2 processes"), "{shown}");
    let output = place.run("maps 4194304");
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(2), ""));
    let json = place.run("maps 4194304 --json");
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(json["skipped"]["gone"][0], 4_194_304);
}

#[test]
fn reports_a_process_without_memory_and_exits_1_if_alone() {
    let place = Place::new();
    // A process that has ended and was not reaped: a zombie.
    let mut zombie = Command::new("true").spawn().unwrap();
    let pid = zombie.id();
    let stat = || fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    while !stat().contains(") Z ") {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let message = format!("process {pid} has no memory (a kernel thread or a zombie)");
    let output = place.run(&format!("maps {pid}"));
    assert_eq!((output.status.code(), text(&output.stdout).as_str()), (Some(1), ""));
    assert!(text(&output.stderr).contains(&message), "{}", text(&output.stderr));
    let json = place.run(&format!("maps {pid} --json"));
    assert_eq!(json.status.code(), Some(1));
    let json: Value = serde_json::from_slice(&json.stdout).unwrap();
    assert_eq!(
        (&json["skipped"]["empty"][0], &json["skipped"]["nr_empty"]),
        (&pid.into(), &1.into())
    );
    let sleeper = Sleeper::start();
    let both = place.run(&format!("maps {pid},{}", sleeper.pid()));
    assert_eq!(both.status.code(), Some(0));
    assert!(text(&both.stderr).contains(&message), "{}", text(&both.stderr));
    let gone = place.run(&format!("maps {pid} 4194304"));
    assert_eq!(gone.status.code(), Some(2), "one that is not there is an error");
    zombie.wait().unwrap();
}

#[test]
fn warns_if_watch_seconds_look_like_a_pid() {
    let place = Place::new();
    let output = place.run("maps --watch 4194304 4194303");
    let stderr = text(&output.stderr);
    assert!(stderr.contains("4194304 is interpreted as a PID"), "{stderr}");
    let one = place.run("maps --watch 4194304");
    assert!(!text(&one.stderr).contains("is interpreted as"), "that is what --watch PID means");
}

#[test]
fn a_control_group_selects_its_processes() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    fs::write(place.path("cgroup.procs"), format!("{}\n", sleeper.pid())).unwrap();
    let shown = place.done("maps --cgroup .");
    assert!(shown.starts_with(&format!("process {}", sleeper.pid())), "{shown}");
}

#[test]
fn the_page_cache_is_shown_for_files_and_directories() {
    if !is_root() {
        return;
    }
    let place = Place::new();
    fs::create_dir(place.path("d")).unwrap();
    fs::write(place.path("d/one"), vec![1; 1 << 20]).unwrap();
    fs::write(place.path("d/none"), "").unwrap();
    let output = place.run("maps --file nothing");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "an error, and no table");
    let shown = place.done("maps --file d/one");
    assert!(shown.contains("d/one") && shown.contains("1 MiB   100%"), "{shown}");
    let shown = place.done("maps --page-cache d");
    assert!(shown.contains("and 1 file without cached pages"), "{shown}");
    fs::create_dir(place.path("d/deep")).unwrap();
    fs::write(place.path("d/deep/two"), vec![1; 2 << 20]).unwrap();
    let json = place.done("maps --page-cache d/deep --page-cache d --json");
    let json: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["files"].as_array().unwrap().len(), 2, "each file once: {json}");
    let output = place.run("maps --file d/one d nothing --json");
    assert_eq!(output.status.code(), Some(2));
    let json: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
    assert_eq!(json["files"][0]["cached_bytes"], 1 << 20);
    assert_eq!(json["failed"].as_array().unwrap().len(), 2);
    assert!(text(&output.stderr).contains("for a directory use --page-cache"));
    assert!(place.fails("maps --page-cache d/one").contains("folio maps --file d/one"));
}

/// Runs as the user nobody; `None` if that is impossible.
fn as_nobody(place: &Place, args: &str) -> Option<Output> {
    let folio = place.command(args);
    let output = Command::new("setpriv")
        .args(["--reuid=65534", "--regid=65534", "--clear-groups"])
        .arg(folio.get_program())
        .args(folio.get_args())
        .output();
    let is_started = |output: &Output| !matches!(output.status.code(), Some(126 | 127) | None);
    let output = output.ok().filter(is_started);
    if output.is_none() || !is_root() {
        largefolio_testkit::skipped!(
            "cannot run as another user (setpriv, root, a binary all may run)"
        );
        return None;
    }
    output
}

#[test]
fn refuses_another_users_process_and_names_the_command() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let args = format!("maps {}", sleeper.pid());
    let Some(output) = as_nobody(&place, &args) else { return };
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains(&format!("run: {} {args}", Place::as_root())));
    // A process of the user `nobody`, because folio does not show itself.
    let mut own = Command::new("setpriv");
    own.args(["--reuid=65534", "--regid=65534", "--clear-groups", "sleep", "1000"]);
    let mut own = own.spawn().unwrap();
    let comm = format!("/proc/{}/comm", own.id());
    while own.try_wait().unwrap().is_none()
        && fs::read_to_string(&comm).is_ok_and(|name| name != "sleep\n")
    {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let output = as_nobody(&place, "maps --all");
    own.kill().unwrap();
    own.wait().unwrap();
    let Some(output) = output else { return };
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let (shown, stderr) = (text(&output.stdout), text(&output.stderr));
    assert!(shown.contains("folios of unknown size"), "{shown}");
    assert!(stderr.contains(&format!("{} maps --all", Place::as_root())), "{stderr}");
    let Some(output) = as_nobody(&place, "maps --file /bin/sh") else { return };
    assert!(
        text(&output.stderr).contains(&format!("run: {} maps --file /bin/sh", Place::as_root()))
    );
}

fn watch(place: &Place, pid: u32) -> (Child, BufReader<std::process::ChildStdout>) {
    let mut command = place.command(&format!("maps {pid} --watch=1"));
    let mut folio = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output = BufReader::new(folio.stdout.take().unwrap());
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    assert!(line.starts_with(&format!("process {pid}")), "{line}");
    (folio, output)
}

#[test]
fn watching_ends_with_the_process() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let (mut folio, mut output) = watch(&place, sleeper.pid());
    drop(sleeper);
    let mut rest = String::new();
    output.read_to_string(&mut rest).unwrap();
    assert_eq!(folio.wait().unwrap().code(), Some(0));
    assert!(rest.contains("0 processes"), "{rest}");
}

#[test]
fn watching_ends_with_an_interrupt() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let (mut folio, mut output) = watch(&place, sleeper.pid());
    let pid = folio.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().unwrap().success());
    output.read_to_string(&mut String::new()).unwrap();
    assert_eq!(folio.wait().unwrap().code(), Some(0));
}

#[test]
fn a_closed_pipe_is_no_error() {
    let (place, sleeper) = (Place::new(), Sleeper::start());
    let (mut folio, output) = watch(&place, sleeper.pid());
    drop(output);
    assert_eq!(folio.wait().unwrap().code(), Some(0));
}

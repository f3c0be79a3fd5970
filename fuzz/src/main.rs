//! Every parser of outside files, and the replay of a trace, as libFuzzer targets.
//!
//! `FOLIO_FUZZ=NAME` selects the target; one program has all of them, so only one build is needed.
//! A target reads its input as `folio` reads such a file: through a path if the parser takes one.
//! It must return a result or an error. A panic, an overflow, an endless loop (`-timeout`) or
//! unbounded memory (`-rss_limit_mb`) is a finding.

#![no_main]

mod program;

use std::collections::BTreeMap;
use std::fs;
use std::ops::ControlFlow;
use std::panic;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};

use largefolio_lab::crosscheck::files::FileSteps;
use largefolio_lab::crosscheck::{Recording, read_all};
use largefolio_lab::study::Study;
use largefolio_linux::census;
use largefolio_linux::elf::ElfFile;
use largefolio_linux::elf::dynamic::{Dynamic, Symbols};
use largefolio_linux::proc::smaps;
use largefolio_linux::record::recorded_from;
use largefolio_linux::system::MemSystem;
use largefolio_linux::tune::profile::Profile;
use largefolio_mm::policy::{Context, Point};
use largefolio_results::Forms;
use largefolio_results::maps::{DiffResult, ElfResult, Show, Sort, State};
use largefolio_results::predict::sweep::{Manifest, NEVER, Sweep, SweepRequest, Task, TaskResult};
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::policy::KernelPolicy;
use largefolio_sim::replay;
use largefolio_trace::{Batch, Info, Reader};
use libfuzzer_sys::fuzz_target;
use tempfile::TempDir;

/// Processes `data`; it may use the directory `place`.
type Target = fn(data: &[u8], place: &Path);

const TARGETS: &[(&str, Target)] = &[
    ("trace", trace),
    ("archive", archive),
    ("recording", recording),
    ("elf", elf),
    ("kernel", kernel),
    ("policy", policy),
    ("machine", machine),
    ("study", study),
    ("tuning", tuning),
    ("maps", maps),
    ("smaps", smaps),
    ("look", look),
    ("manifest", manifest),
    ("part", part),
    ("messages", messages),
    ("program", program),
];

struct Chosen {
    target: Target,
    place: TempDir,
}

fn chosen() -> &'static Chosen {
    static CHOSEN: OnceLock<Chosen> = OnceLock::new();
    CHOSEN.get_or_init(|| {
        let name = std::env::var("FOLIO_FUZZ").unwrap_or_default();
        let found = TARGETS.iter().find(|(known, _)| *known == name);
        let Some(&(_, target)) = found else {
            let names: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
            panic!("FOLIO_FUZZ={name}: choose one of {}", names.join(" "));
        };
        // Count only panics that reach libFuzzer. `folio` itself catches some, for example from the
        // Parquet decoder.
        panic::set_hook(Box::new(|panic| {
            *LAST_PANIC.lock().expect("held for a moment") = panic.to_string()
        }));
        let place = tempfile::tempdir().expect("a directory");
        Chosen { target, place }
    })
}

static LAST_PANIC: Mutex<String> = Mutex::new(String::new());

fuzz_target!(|data: &[u8]| {
    let Chosen { target, place } = chosen();
    if let Err(panic) = panic::catch_unwind(|| target(data, place.path())) {
        eprintln!("{}", LAST_PANIC.lock().expect("held for a moment"));
        panic::resume_unwind(panic);
    }
});

fn file(data: &[u8], place: &Path, name: &str) -> PathBuf {
    let path = place.join(name);
    fs::write(&path, data).expect("a file");
    path
}

fn write(result: &impl Forms) {
    std::hint::black_box((result.text(), result.csv(), result.json()).0);
}

/// Skips the checksum, because the author of a hostile file can compute it.
fn trace(data: &[u8], place: &Path) {
    let path = file(data, place, "trace.folio");
    let Ok(mut reader) = Reader::open_unverified(&path) else { return };
    let _ = Info::read(&path, &mut reader, &mut |_| ControlFlow::Continue(()));
    let mut reader = Reader::open_unverified(&path).expect("it was opened before");
    let mut batch = Batch::default();
    while reader.next_batch(&mut batch).unwrap_or(false) {
        for event in batch.events() {
            std::hint::black_box(event);
        }
    }
}

fn archive(data: &[u8], place: &Path) {
    let path = file(data, place, "recordings.tar.xz");
    let _ = read_all::<FileSteps>(&path, &mut |_| {});
}

fn recording(data: &[u8], _: &Path) {
    let _ = Recording::<FileSteps>::parse("fuzz", &String::from_utf8_lossy(data));
}

fn elf(data: &[u8], place: &Path) {
    if let Ok(elf) = ElfFile::parse(place, data) {
        let _ = elf.check(place);
    }
    let _ = Dynamic::parse(place, Symbols::Scan, data);
    static KERNEL: OnceLock<Kernel> = OnceLock::new();
    let kernel = KERNEL.get_or_init(|| Kernel::parse("7.2").expect("a kernel"));
    write(&ElfResult::of(kernel, &[file(data, place, "program")], Vec::new()));
}

fn kernel(data: &[u8], _: &Path) {
    let Ok(table) = String::from_utf8_lossy(data).parse() else { return };
    // Not `from_path`: a base file would be read from anywhere.
    let _ = Kernel::from_table("fuzz", table);
}

/// An accepted policy runs to its end, with the same result each time.
fn policy(data: &[u8], _: &Path) {
    let Ok(policy) = KernelPolicy::from_object("fuzz", data) else { return };
    let (Ok(mut one), Ok(mut other)) = (policy.0.start(), policy.0.start()) else { return };
    for page in 0..3 {
        let context = Context { page, ra_pages: 32, nr_pages: 1 << 20, ..Context::default() };
        for point in Point::ALL {
            if !one.handles(point) {
                continue;
            }
            let answer = one.answer(point, &context).expect("an accepted program does not fail");
            assert_eq!(answer, other.answer(point, &context).expect("the second neither"));
        }
    }
}

fn machine(data: &[u8], _: &Path) {
    let _ = Machine::from_toml(&String::from_utf8_lossy(data), "fuzz");
}

fn study(data: &[u8], _: &Path) {
    let _ = Study::from_toml(&String::from_utf8_lossy(data), "fuzz");
}

fn tuning(data: &[u8], _: &Path) {
    let _ = Profile::parse("fuzz", &String::from_utf8_lossy(data));
}

/// `/proc/PID/maps` of a process with hostile file names.
fn maps(data: &[u8], place: &Path) {
    let process = place.join("7");
    let _ = fs::create_dir(&process);
    file(data, &process, "maps");
    let _ = census::take(&MemSystem::from_dir(place), &[7]);
}

fn smaps(data: &[u8], _: &Path) {
    let _ = smaps::parse(data);
}

/// Two states separated by a zero byte, or one compared with itself.
fn look(data: &[u8], place: &Path) {
    let between = data.iter().position(|&byte| byte == 0);
    let (old, new) = between.map_or((data, data), |at| (&data[..at], &data[at + 1..]));
    let Ok(old) = State::read(&file(old, place, "old.json")) else { return };
    let Ok(new) = State::read(&file(new, place, "new.json")) else { return };
    let show = Show { nr_rows: 10, sort: Sort::Size, width: 100, prose: None, is_full: false };
    if let Ok(diff) = DiffResult::of(&old, &new, show, Vec::new()) {
        write(&diff);
    }
}

fn manifest(data: &[u8], _: &Path) {
    let _ = serde_json::from_slice::<Manifest>(data);
}

/// Rows of a sweep, as a worker submits them.
fn part(data: &[u8], place: &Path) {
    static SWEPT: OnceLock<Mutex<(Sweep, Task)>> = OnceLock::new();
    let swept = SWEPT.get_or_init(|| Mutex::new(swept(&place.join("sweep"))));
    let mut swept = swept.lock().expect("of one thread");
    let (sweep, task) = &mut *swept;
    let _ = sweep.add(task, TaskResult { part: data.to_vec(), failed: BTreeMap::new() }, NEVER);
}

/// A sweep of one trace, and its only task.
fn swept(dir: &Path) -> (Sweep, Task) {
    let trace = Path::new(env!("CARGO_MANIFEST_DIR")).join("../traces/demo.folio");
    let kernels = vec![Kernel::parse("6.12").expect("a kernel")];
    let machines = vec![Machine::named("altra").expect("a machine")];
    let request = SweepRequest {
        command_line: Vec::new(),
        traces: vec![trace],
        copies: BTreeMap::new(),
        cells: replay::ReplayRequest::new(kernels, machines),
    };
    let sweep = Sweep::open(dir, &request, NEVER).expect("a sweep");
    let task = sweep.missing(1).pop().expect("nothing is done yet");
    (sweep, task)
}

/// Whatever recorded programs send, the trace is complete and readable.
fn messages(data: &[u8], place: &Path) {
    recorded_from(data, &place.join("recorded.folio")).expect("a whole trace");
}

fn program(data: &[u8], place: &Path) {
    program::predict(data, &place.join("program.folio"));
}

//! Questions from public threads, each answered by one command. `docs/index.md` lists the same
//! commands.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};

use crate::support::{Place, hold_settings, text};

/// Uses a quarter of 64 MiB with `MADV_HUGEPAGE`, and 16 MiB without.
const SERVICE: &str = "
import mmap, time
def memory(size, advice, step):
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(advice)
    for at in range(0, size, step):
        memory[at] = 1
    return memory
large = memory(64 << 20, mmap.MADV_HUGEPAGE, 2 << 20)
small = memory(16 << 20, mmap.MADV_NOHUGEPAGE, 4096)
print('ready', flush=True)
while True:
    for at in range(0, 16 << 20, 4096):
        small[at]
    time.sleep(0.05)
";

/// A question, the thread that asks it, the command, and texts of the answer. `PID` is the service,
/// `FOLIO` this program.
struct Question {
    asks: &'static str,
    thread: &'static str,
    command: &'static str,
    answers: &'static [&'static str],
    needs_root: bool,
}

const fn of_trace(
    asks: &'static str,
    thread: &'static str,
    command: &'static str,
    answers: &'static [&'static str],
) -> Question {
    Question { asks, thread, command, answers, needs_root: false }
}

const fn of_service(
    asks: &'static str,
    thread: &'static str,
    command: &'static str,
    answers: &'static [&'static str],
) -> Question {
    Question { asks, thread, command, answers, needs_root: true }
}

const QUESTIONS: [Question; 14] = [
    of_service(
        "Does my process have huge pages, and why not more?",
        "jemalloc#2099",
        "maps PID",
        &["of the mapped memory", "MADV_NOHUGEPAGE"],
    ),
    of_service(
        "How much memory do huge pages waste?",
        "golang/go#64332",
        "maps PID --waste",
        &["holds only zeroes", "What gives it back"],
    ),
    of_service("Who waits for compaction?", "mimalloc#1323", "maps --stalls --for 1s", &["waited"]),
    of_service(
        "Which memory does it use, and in which pages?",
        "golang/go#61718",
        "maps PID --hot --for 1s",
        &["MiB were used", "4K"],
    ),
    of_service(
        "Can a health check fail if it lost its huge pages?",
        "redpanda#14136",
        "maps PID --require anon:2M:1%",
        &["of the mapped memory"],
    ),
    of_service(
        "How do I get that into my monitoring?",
        "otel-contrib#44125, netdata#3461",
        "maps PID --openmetrics -",
        &["# TYPE folio_", "# EOF"],
    ),
    of_trace(
        "How do I disable THP for one process?",
        "389-ds-base#5955",
        "run --thp off -- grep THP_enabled /proc/self/status",
        &["THP_enabled:\t0"],
    ),
    of_trace(
        "In how little memory does it run?",
        "bottlerocket#893",
        "predict mix.folio --fit --kernel 6.18 --machine zen4",
        &["runs from", "calm from"],
    ),
    of_trace(
        "What does the new malloc cost in a small container?",
        "elasticsearch#142894",
        "predict mix.folio --fit --advise malloc --kernel 6.18+thp=madvise --machine graviton3",
        &["runs from"],
    ),
    of_trace(
        "How long can a page fault take?",
        "scylladb#8828",
        "predict mix.folio --latency --kernel 6.18+thp=always --machine zen4",
        &["The longest takes"],
    ),
    of_trace(
        "Which part of my memory gains?",
        "bpf_thp, linux-mm",
        "predict mix.folio --where --kernel 6.18+thp=never,6.18+thp=always --machine zen4",
        &["three quarters of the page walks", "Page walks by address"],
    ),
    of_trace(
        "Should I turn it on?",
        "redis#2844",
        "advise mix.folio",
        &["run time", "to prove it"],
    ),
    of_trace(
        "What does a kernel with 64K pages cost?",
        "jemalloc#467",
        "predict mix.folio --kernel 6.18,6.18+page=64K --machine altra",
        &["memory"],
    ),
    of_trace(
        "Can huge pages map my program's text?",
        "nodejs/node#16198",
        "maps --elf FOLIO",
        &["2M"],
    ),
];

struct Service(Child);

impl Service {
    fn start() -> Self {
        let mut command = Command::new("python3");
        let mut child = command.args(["-c", SERVICE]).stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        Self(child)
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn one_command_answers_each_question() {
    let _settings = hold_settings();
    let (place, service) = (Place::with_trace(), Service::start());
    let is_root = fs::File::open("/proc/kpageflags").is_ok();
    let (pid, folio) = (service.0.id().to_string(), crate::program().display().to_string());
    for Question { asks, thread, command, answers, needs_root } in QUESTIONS {
        if needs_root && !is_root {
            largefolio_testkit::skipped!("{asks}: needs root");
            continue;
        }
        let args = command.replace("PID", &pid).replace("FOLIO", &folio);
        let output = place.run(&args);
        let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
        if needs_root && stderr.contains("tracefs") {
            largefolio_testkit::skipped!("{asks}: {stderr}");
            continue;
        }
        let is_answer = matches!(output.status.code(), Some(0 | 1));
        assert!(is_answer, "{asks} ({thread}): folio {args}: {stderr}");
        for answer in answers {
            let flat = stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            let has = stdout.contains(answer) || flat.contains(answer);
            assert!(has, "{asks} ({thread}): folio {args}: no '{answer}' in {stdout}");
        }
    }
}

#[test]
fn the_documents_have_the_same_commands() {
    let index = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/index.md");
    let index = fs::read_to_string(index).unwrap();
    for Question { asks, command, .. } in QUESTIONS {
        let verb = command.split(" --kernel").next().unwrap();
        let verb = verb.replace("mix.folio", "job.folio").replace(" --for 1s", "");
        let verb = verb.split(" -- ").next().unwrap().replace("FOLIO", "PROGRAM");
        assert!(index.contains(asks), "docs/index.md lacks: {asks}");
        assert!(index.contains(&verb), "docs/index.md lacks: folio {verb}");
    }
}

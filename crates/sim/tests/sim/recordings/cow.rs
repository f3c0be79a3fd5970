//! Random programs of a few processes that real kernels ran, replayed and compared page by page
//! after each step (`recordings/README.md`, "Copy-on-write").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use largefolio_mm::units::{Order, PageSize};
use largefolio_sim::crosscheck::processes::{
    ProcessProgram, ProgramOptions, ProgramRow, ProgramRun, Programs, Topic, generate,
};
use largefolio_sim::crosscheck::{CheckError, Recording};
use largefolio_sim::kernel::{Kernel, version};

use super::{recordings, rows};

/// Far fewer mean that archives were not found.
const NR_PROGRAMS_MIN: usize = 2_060;
const NR_KERNELS_MIN: usize = 9;

#[test]
fn model_equals_the_recorded_kernels() {
    let all = recordings("cow");
    let (mut nr_programs, mut different) = (0, Vec::new());
    for recording in &all {
        let found = rows(recording, None);
        nr_programs += found.len();
        assert!(recording.body.runs.iter().all(|run| run.is_complete), "{}", recording.name);
        let differs = |verdict: &ProgramRow| !verdict.is_equal();
        let text = |verdict: &ProgramRow| format!("{}: {verdict}", recording.name);
        different.extend(found.iter().filter(|v| differs(v)).map(text));
    }
    let shown = &different[..different.len().min(10)];
    assert!(different.is_empty(), "{} differ\n{}", different.len(), shown.join("\n"));
    assert!(nr_programs >= NR_PROGRAMS_MIN, "{nr_programs} programs");
    let mut kernels: Vec<_> =
        all.iter().map(|r| (version(&r.header.release), r.header.page_bytes)).collect();
    kernels.sort_unstable();
    kernels.dedup();
    assert!(kernels.len() >= NR_KERNELS_MIN, "{kernels:?}");
}

/// The comparison can fail: a kernel without owner tracking does not pass for one with it.
#[test]
fn rules_of_another_kernel_are_told_apart() {
    let all = recordings("cow");
    let of = |wanted| {
        all.iter().filter(move |r| {
            version(&r.header.release) == Some(wanted) && r.header.page_bytes == 4096
        })
    };
    for (recorded, rules) in [((6, 12), "6.16"), ((6, 16), "6.12"), ((7, 2), "6.12")] {
        let kernel = Kernel::parse(&format!("{rules}+page=4K")).unwrap();
        let nr_different: usize = of(recorded)
            .map(|r| rows(r, Some(&kernel)).iter().filter(|v| !v.is_equal()).count())
            .sum();
        assert!(nr_different > 20, "{recorded:?} under {rules}: {nr_different}");
    }
}

#[test]
fn programs_are_read_back_as_written() {
    for seed in 0..50 {
        let orders = vec![Order::new(2), Order::new(4)];
        let options =
            ProgramOptions { topic: Topic::Cow, page: PageSize::K4, orders, nr_steps: 60 };
        let program = generate(seed, &options);
        assert_eq!(ProcessProgram::all_of("test", &program.to_string()).unwrap(), [program]);
    }
}

/// A recording is outside data: damaged lines are refused, and what still reads does no harm.
#[test]
fn damaged_recordings_do_no_harm() {
    let all = recordings("cow");
    let run = &all[0].body.runs[0];
    let text = format!("# cow page=4096 arch=x86-64 release=6.12.0\n{}", as_text(run));
    let kernel = Kernel::parse("6.12+page=4K").unwrap();
    let replacements = ["0", "9", "8191", "99999999999999999999", "-", ":", "+", "~", ""];
    let (mut nr_read, mut nr_refused) = (0, 0);
    for (at, _) in text.char_indices().step_by(7) {
        let with = replacements[at % replacements.len()];
        let damaged = format!("{}{with}{}", &text[..at], &text[at + 1..]);
        match Recording::<Programs>::parse("damaged", &damaged) {
            Err(_) => nr_refused += 1,
            Ok(recording) => {
                nr_read += 1;
                let checked = recording.check(Some(&kernel));
                assert!(matches!(checked, Ok(_) | Err(CheckError::Page { .. })));
            }
        }
    }
    assert!(nr_read > 0 && nr_refused > 0, "{nr_read} read, {nr_refused} refused");
}

/// A run as the kernel's side writes it, without what changed.
fn as_text(run: &ProgramRun) -> String {
    let program = run.program.to_string();
    let mut lines = program.lines();
    let mut text = format!("{}\n", lines.next().unwrap());
    for line in lines {
        text.extend(["> ", line, "\n0 1+2 1:2.1 x\n"]);
    }
    text + "end\n"
}

//! Random programs of a few processes that real kernels ran, replayed and compared page by page
//! after each step (`recordings/README.md`, "Copy-on-write").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use largefolio_sim::crosscheck::processes::{ProgramRun, Programs, Topic};
use largefolio_sim::crosscheck::{CheckError, Recording};
use largefolio_sim::kernel::Kernel;

use super::{assert_equal, assert_read_back, assert_told_apart, recordings};

#[test]
fn model_equals_the_recorded_kernels() {
    let (nr_programs, nr_kernels) = assert_equal("cow", &|_, _| false);
    // Far fewer mean that archives were not found.
    assert!(nr_programs >= 2_060 && nr_kernels >= 9, "{nr_programs} of {nr_kernels} kernels");
}

/// A kernel without owner tracking does not pass for one with it.
#[test]
fn rules_of_another_kernel_are_told_apart() {
    assert_told_apart("cow", [((6, 12), "6.16"), ((6, 16), "6.12"), ((7, 2), "6.12")], 20);
}

#[test]
fn programs_are_read_back_as_written() {
    assert_read_back(Topic::Cow, &[2, 4]);
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

//! Random programs of a few processes that real kernels ran, replayed and compared page by page
//! after each step (`recordings/README.md`, "Copy-on-write").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use largefolio_sim::crosscheck::processes::{ProcessProgram, ProgramRun, Programs, Topic};
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

#[test]
fn a_wrong_line_is_named() {
    let of = |lines: &str| {
        let text = format!("# cow page=4096 arch=x86-64 release=6.12.0\n{lines}");
        Recording::<Programs>::parse("here", &text).unwrap_err().to_string()
    };
    let program = "program 1 pages=8 sizes=-\n";
    for (lines, what) in [
        (format!("{program}> 0 map 0 8 -\n0 9 z\n"), "here:4: the window ends at page 8;"),
        (format!("{program}> 0 map 0 8 -\n0 1 z =x\n"), "here:4: \"x\" is not a number;"),
        (format!("{program}> 4 exit\n"), "here:3: 4 is more than 3;"),
        (format!("{program}0 1 z\n"), "here:3: an answer before any step;"),
        ("> 0 exit\n".to_owned(), "here:2: a line before the first program;"),
    ] {
        assert!(of(&lines).starts_with(what), "{}", of(&lines));
    }
    let error = Recording::<Programs>::parse("here", program).unwrap_err();
    assert_eq!(error.line, 1, "no header");
    let error = ProcessProgram::all_of("mine", &format!("{program}0 jump 1\n")).unwrap_err();
    assert!(error.to_string().starts_with("mine:2: \"jump\" is no operation;"), "{error}");
}

/// Programs of a kernel with other base pages than the rules have are not judged.
#[test]
fn another_base_page_is_refused() {
    let text = "# cow page=16384 arch=arm64 release=6.12.0\nprogram 1 pages=8 sizes=-\n";
    let recording = Recording::<Programs>::parse("here", text).unwrap();
    let kernel = Kernel::parse("6.12+page=4K").unwrap();
    let refused = recording.check(Some(&kernel));
    assert!(matches!(refused, Err(CheckError::Page { recorded: 16_384, rules: 4096 })));
    assert_eq!(recording.check(None).unwrap().len(), 1);
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

//! Random programs of a few processes, run by real kernels, replayed and compared page by page
//! after each step (`recordings/README.md`, "Copy-on-write").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use largefolio_lab::crosscheck::processes::{ProcessProgram, ProgramRow, ProgramRun, Programs};
use largefolio_lab::crosscheck::{Aspect, CheckError, Recording};
use largefolio_sim::kernel::Kernel;

use super::{assert_told_apart, recordings, rows};

/// Programs of `built_73_pmd_counts*` in which the kernel split PMD folios on its own: paging out
/// gave the zero page to pages without data.
pub(crate) fn is_disturbed(recording: &Recording<Programs>, row: &ProgramRow) -> bool {
    let was_split = row.disturbances.iter().any(|event| event.starts_with("thp_split_page"));
    recording.name.starts_with("built_73_pmd_counts") && was_split && !row.is_equal()
}

/// In a guest, the machine's counts come only from the programs. Without per-page mapcounts they
/// differ (docs/behaviour F.5.2, F.5.7).
#[test]
fn counts_of_the_machine_are_judged() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let all = recordings("cow");
    for (name, with_mapcounts) in
        [("amd64/s64.", "7.2+page=4K"), ("arm64_64k/s256", "7.2+page=64K")]
    {
        let name = format!("built_7.2-no-page-mapcount_{name}");
        let one = all.iter().find(|one| one.name.contains(&name)).unwrap();
        let own = one.check(None).unwrap();
        let nr_compared: u64 = own.iter().map(|each| each.nr_compared(Aspect::Machine)).sum();
        assert!(nr_compared > 4_000, "{name}: {nr_compared} counts");
        let kernel = Kernel::parse(with_mapcounts).unwrap();
        let differ =
            |row: &&ProgramRow| row.differences.iter().any(|d| d.aspect == Aspect::Machine);
        let nr_different = rows(one, Some(&kernel)).iter().filter(differ).count();
        assert!(nr_different > 20, "{name}: {nr_different} programs are distinguished");
    }
}

#[test]
fn rules_of_another_kernel_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    assert_told_apart("cow", [((6, 12), "6.16"), ((6, 16), "6.12"), ((7, 2), "6.12")], 20);
}

/// Faults are counted in these programs: mprotect and back, shared memory, System V segments,
/// `MADV_PAGEOUT` (docs/behaviour E.5.1, B.6.6, B.5.1, P.4.4).
#[test]
fn faults_of_programs_are_judged() {
    let all = recordings("entries");
    let (mut nr_programs, mut nr_faults) = (0, 0);
    for recording in &all {
        let verdicts = recording.check(None).unwrap();
        let differing = verdicts.iter().find(|one| !one.is_equal());
        assert!(differing.is_none(), "{}: {:?}", recording.name, differing.unwrap().differences);
        nr_programs += verdicts.len();
        nr_faults += verdicts.iter().map(|one| one.nr_compared(Aspect::NrFaults)).sum::<u64>();
    }
    assert!(nr_programs >= 360 && nr_faults > 10_000, "{nr_programs} programs, {nr_faults} faults");
    let differ = |release: &str, rules: &str| -> usize {
        let kernel = Kernel::parse(rules).unwrap();
        let of_release = all.iter().filter(|one| one.header.release.starts_with(release));
        let rows = of_release.flat_map(|one| rows(one, Some(&kernel)));
        rows.filter(|row| !row.is_equal()).count()
    };
    for (release, rules, nr_min) in [
        ("6.1.", "6.1+page=4K+anon.regain=never", 3),
        ("6.1.", "6.1+page=4K+anon.regain=exclusive", 1),
        ("6.12.", "6.12+page=4K+anon.regain=never", 4),
        ("7.3.", "7.3+page=4K+anon.regain=never", 4),
    ] {
        let nr_different = differ(release, rules);
        assert!(nr_different >= nr_min, "{release} under {rules}: {nr_different}");
    }
}

/// Counts the compared `smaps` areas and the differing programs under a kernel's rules.
fn statistics(rules: Option<&str>) -> (u64, usize) {
    let kernel = rules.map(|name| Kernel::parse(name).unwrap());
    let all = recordings("cow");
    let live = all.iter().filter(|one| one.header.release == "6.18.44");
    let rows: Vec<ProgramRow> = live.flat_map(|one| rows(one, kernel.as_ref())).collect();
    let differ = |row: &&ProgramRow| row.differences.iter().any(|one| one.aspect == Aspect::Smaps);
    (rows.iter().map(|row| row.nr_areas).sum(), rows.iter().filter(differ).count())
}

/// For a kernel with per-page mapcounts, the model's areas agree; under the rules without them,
/// they differ (docs/behaviour F.5.8).
#[test]
fn statistics_of_areas_are_judged() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let (nr_areas, nr_different) = statistics(None);
    assert!(nr_areas > 10_000 && nr_different == 0, "{nr_different} of {nr_areas} areas");
    let (_, nr_different) = statistics(Some("6.18+page=4K+mapcount=folio"));
    assert!(nr_different > 20, "{nr_different} programs are distinguished");
}

/// A program that unmaps part of a 64K folio, on a kernel without per-page mapcounts: `k` has the
/// folio's average, `m` the whole folio.
const FOLIO_MODE: &str = "\
# cow page=4096 arch=x86-64 release=6.18.44 statistics=machine
program 1 pages=128 sizes=64
M 1000 500 2048 0 0
> 0 map 0 16 h
s 0
a 0 16 0 0 0 0 0 0 0 0 0 0 0 1
M 1000 500 2048 0 0
> 0 write 0
n 0 0+16 1
s 0
a 0 16 64 64 64 0 0 0 64 64 0 0 0 1
M 1064 500 2048 0 0
0 0 1:4 x =8193
0 1+15 1.1 x =0
> 0 unmap 4 12
s 0
a 0 4 16 16 16 0 0 0 16 16 0 0 0 1
M 1064 500 2048 0 0
0 4+12 -
> 0 fork 1
s 0
a 0 4 16 16 16 0 16 0 0 16 0 0 0 1
s 1
a 0 4 16 16 16 0 16 0 0 16 0 0 0 1
n 1 0+4 1
M 1064 500 2048 0 0
0 0 1 =8193
0 1+3 1.1 =0
1 0 1 =8193
1 1+3 1.1 =0
end
";

/// A folio of 16 pages with 8 mappings has an average of 1, so PSS equals RSS, although two
/// processes map every page (F.5.5). meminfo still counts 16 pages (F.5.2).
#[test]
fn a_kernel_without_page_map_counts_is_judged_too() {
    let differences = |text: &str, rules: &str| -> Vec<Aspect> {
        let kernel = Kernel::parse(rules).unwrap();
        let recording = Recording::<Programs>::parse("here", text).unwrap();
        let verdicts = recording.check(Some(&kernel)).unwrap();
        verdicts[0].differences.iter().map(|one| one.aspect).collect()
    };
    let folio = "6.18+page=4K+mapcount=folio";
    assert_eq!(differences(FOLIO_MODE, folio), []);
    assert_eq!(differences(FOLIO_MODE, "6.18+page=4K"), [Aspect::Machine]);
    for (from, to, aspect) in [
        ("M 1064", "M 1032", Aspect::Machine),
        ("n 1 0+4 1", "n 1 0+4 2", Aspect::Mapcount),
        ("a 0 4 16 16 16 0 16", "a 0 4 16 8 16 0 16", Aspect::Smaps),
    ] {
        let wrong = FOLIO_MODE.replacen(from, to, 1);
        assert!(differences(&wrong, folio).contains(&aspect), "{aspect:?}");
    }
}

/// Recorded on 6.18.44: `MADV_FREE` cleans the PTEs of pages that a child also maps.
const LAZYFREE: &str = "\
# cow page=4096 arch=x86-64 release=6.18.44 statistics=processes
program 1 pages=128 sizes=-
> 0 map 0 4 -
> 0 write 0 4
n 0 0+4 1
s 0
a 0 4 16 16 16 0 0 0 16 16 0 0 0 1
0 0 1:0 x =8193
0 1 2:0 x =8194
0 2 3:0 x =8195
0 3 4:0 x =8196
> 0 fork 1
n 0 0+4 2
s 0
a 0 4 16 8 8 0 16 0 0 16 0 0 0 2
n 1 0+4 2
s 1
a 0 4 16 8 8 0 16 0 0 16 0 0 0 2
0 0 1 =8193
0 1 2 =8194
0 2 3 =8195
0 3 4 =8196
1 0 1 =8193
1 1 2 =8194
1 2 3 =8195
1 3 4 =8196
> 0 free 0 2
s 0
a 0 4 16 8 4 8 8 0 0 16 0 0 0 2
end
";

/// Covers docs/behaviour F.5.9.
#[test]
fn statistics_of_pages_freed_lazily_by_one_of_two_processes() {
    let recording = Recording::<Programs>::parse("here", LAZYFREE).unwrap();
    let verdict = recording.check(None).unwrap().remove(0);
    assert_eq!(verdict.differences, []);
    assert_eq!(verdict.nr_compared(Aspect::Smaps), 5);
}

#[test]
fn damaged_recordings_do_no_harm() {
    let all = recordings("cow");
    let run = &all[0].body.runs[0];
    let text = format!("# cow page=4096 arch=x86-64 release=6.12.0\n{}", as_text(run)) + "\n";
    let text = text + FOLIO_MODE.split_once('\n').unwrap().1;
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
        (format!("{program}> 0 exit\nn 0 8 1\n"), "here:4: the window ends at page 8;"),
        (format!("{program}> 0 exit\na 0 8 1\n"), "here:4: an area of no process;"),
        (format!("{program}> 0 exit\ns 0\na 0 8 1\n"), "here:5: an area has 12 numbers, not 1;"),
        (format!("{program}M 1 2\n"), "here:3: the machine has 5 counts, not 2;"),
    ] {
        assert!(of(&lines).starts_with(what), "{}", of(&lines));
    }
    let error = Recording::<Programs>::parse("here", program).unwrap_err();
    assert_eq!(error.line, 1, "no header");
    let error = ProcessProgram::all_of("mine", &format!("{program}0 jump 1\n")).unwrap_err();
    assert!(error.to_string().starts_with("mine:2: \"jump\" is not an operation;"), "{error}");
}

#[test]
fn another_base_page_is_refused() {
    let text = "# cow page=16384 arch=arm64 release=6.12.0\nprogram 1 pages=8 sizes=-\n";
    let recording = Recording::<Programs>::parse("here", text).unwrap();
    let kernel = Kernel::parse("6.12+page=4K").unwrap();
    let refused = recording.check(Some(&kernel));
    assert!(matches!(refused, Err(CheckError::Page { recorded: 16_384, rules: 4096 })));
    assert_eq!(recording.check(None).unwrap().len(), 1);
}

/// Formats a run as the kernel's side writes it, without changes.
fn as_text(run: &ProgramRun) -> String {
    let program = run.program.to_string();
    let mut lines = program.lines();
    let mut text = format!("{}\n", lines.next().unwrap());
    for line in lines {
        text.extend(["> ", line, "\n0 1+2 1:2.1 x\n"]);
    }
    text + "end\n"
}

use std::cell::RefCell;

use super::*;

/// A program with the answer of a kernel, and one with an impossible answer.
const EQUAL: &str = "0 78 1:0 x =16385";
const OTHER: &str = "0 78 1:4 x =16385";

const PROGRAM: &str =
    "program 1 pages=128 sizes=-\n0 map 0 128 h\n0 protect 59 -\n0 write 78\n0 unmap 15\n";

fn recorded(lines: &str) -> CowRun {
    let text = format!(
        "# cow page=4096 arch=x86-64 release=6.18.44\nprogram 1 pages=128 sizes=-\n\
         > 0 map 0 128 h\n> 0 protect 59 -\n> 0 write 78\n{lines}\n> 0 unmap 15\nend\n"
    );
    CowRun { text, changes: Vec::new() }
}

fn disturbed(lines: &str) -> CowRun {
    let setting = "/sys/kernel/mm/transparent_hugepage/shmem_enabled".to_owned();
    let change = SettingChange { setting, from: "never".to_owned(), to: "advise".to_owned() };
    CowRun { changes: vec![change], ..recorded(lines) }
}

fn checked(runs: &[CowRun]) -> CowResult {
    let left = RefCell::new(runs.iter());
    let record = |_: &str, _: &ProcessProgram| Ok(left.borrow_mut().next().unwrap().clone());
    let (kernel, patience) = (None, Duration::ZERO);
    let check = CowCheck { record: &record, kernel, keep: None, patience };
    let programs = ProcessProgram::all_of("test", PROGRAM).unwrap();
    let mut report = CowResult { nr_programs: programs.len(), ..CowResult::default() };
    check.group(&programs, &mut report).unwrap();
    assert_eq!(left.borrow().len(), 0, "runs were left over");
    report
}

#[test]
fn what_differs_once_and_agrees_when_repeated_does_not_differ() {
    let report = checked(&[recorded(OTHER), recorded(EQUAL)]);
    assert_eq!((report.nr_equal, report.repeated_equal.len()), (0, 1));
    assert!(report.nr_different() == 0);
    let text = text(&report);
    assert!(text.contains("1 differed at first, but agreed when repeated"), "{text}");
    assert!(text.starts_with("kernel and model agree in all 1 program\n"), "{text}");
}

#[test]
fn what_differs_every_time_differs() {
    let report = checked(&[recorded(OTHER), recorded(OTHER), recorded(OTHER)]);
    assert_eq!((report.nr_equal, report.repeated_equal.len(), report.different.len()), (0, 0, 1));
    assert_eq!(report.nr_different(), 1);
}

#[test]
fn a_run_during_which_a_setting_changed_is_repeated() {
    let report = checked(&[disturbed(OTHER), recorded(EQUAL)]);
    assert_eq!((report.nr_equal, report.nr_not_judged), (1, 0));
    let text = text(&report);
    let expected = "another program changed a setting during the run \
                (/sys/kernel/mm/transparent_hugepage/shmem_enabled changed from never to advise): \
                1 programs repeated";
    assert!(text.contains(expected), "{text}");
}

#[test]
fn programs_are_not_judged_while_a_setting_keeps_changing() {
    let report = checked(&[disturbed(OTHER), disturbed(OTHER), disturbed(OTHER)]);
    assert_eq!((report.nr_equal, report.nr_not_judged, report.different.len()), (0, 1, 0));
    assert!(report.is_nothing_judged());
    let text = text(&report);
    assert!(text.contains("2 programs repeated, 1 programs not judged"), "{text}");
    assert!(
        text.starts_with(
            "kernel and model agree in 0 of 1 program; the others were not compared\n"
        ),
        "{text}"
    );
}

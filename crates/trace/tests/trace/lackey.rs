//! Tests the lackey parser on output of valgrind 3.19 and on other text.

use largefolio_trace::import::lackey::{
    Access, AccessKind, Line, NotLackey, Outcome, Syscall, parse_line,
};
use proptest::prelude::*;

fn syscall(line: &str) -> Syscall<'_> {
    match parse_line(line) {
        Ok(Line::Syscall(call)) => call,
        other => panic!("{line:?} is a system call, not {other:?}"),
    }
}

fn numbers(line: &str) -> Vec<Option<u64>> {
    syscall(line).args().map(|arg| arg.number).collect()
}

#[test]
fn accesses_are_read() {
    let cases = [
        ("I  0401ab70,3", AccessKind::Fetch, 0x0401_ab70, 3),
        (" L 1fff0005a8,8", AccessKind::Load, 0x1f_ff00_05a8, 8),
        (" S 1fff000638,16", AccessKind::Store, 0x1f_ff00_0638, 16),
        (" M 04033e06,1", AccessKind::Modify, 0x0403_3e06, 1),
    ];
    for (line, kind, addr, bytes) in cases {
        assert_eq!(parse_line(line), Ok(Line::Access(Access { kind, addr, bytes })));
    }
}

#[test]
fn accesses_that_cannot_be_are_refused() {
    for line in [
        "I  ,3",
        "I  0401ab70,",
        "I  0401ab70",
        "I  0401ab7g,3",
        "I  0401ab70,0",
        "I  0401ab70,x",
        " L ffffffffffffffff,8",
        " L 11112222333344445,8",
        " S 10,4097",
        " S 10,99999999999999999999",
        " X 10,4",
        "I 10,4",
        " L 10,-4",
        " L 10,4 ",
    ] {
        assert_eq!(parse_line(line), Err(NotLackey), "{line:?}");
    }
}

#[test]
fn an_access_over_a_page_end_counts_for_both_pages() {
    let access = Access { kind: AccessKind::Load, addr: 0x1ff9, bytes: 8 };
    let pages = |access: Access| access.references(2).map(|row| row.addr).collect::<Vec<_>>();
    assert_eq!(pages(access), [0x1000, 0x2000]);
    assert_eq!(pages(Access { addr: 0x1ff8, ..access }), [0x1000]);
    assert_eq!(pages(Access { addr: u64::MAX - 7, bytes: 7, ..access }), [!4095]);
}

#[test]
fn system_calls_are_read() {
    let line = "SYSCALL[11408,1](9) sys_mmap ( 0x0, 8192, 3, 34, 4294967295, 0 ) --> \
        [pre-success] Success(0x4835000) ";
    let call = syscall(line);
    assert_eq!((call.pid, call.thread, call.number), (11408, 1, 9));
    assert_eq!(call.outcome, Some(Outcome::Success(0x483_5000)));
    assert!(!call.is_resumed());
    let expected = [0, 8192, 3, 34, 0xffff_ffff, 0].map(Some);
    assert_eq!(numbers(line), expected);
}

#[test]
fn a_system_call_may_be_told_in_two_lines() {
    let line = "SYSCALL[9,1](257) sys_openat ( 42, 0x402(/etc/ld.so.preload), 4 ) --> [async] ... ";
    assert_eq!(syscall(line).outcome, None);
    assert_eq!(syscall(line).args().nth(1).unwrap().string, Some("/etc/ld.so.preload"));
    let end = syscall("SYSCALL[9,1](257) ... [async] --> Failure(0x2) ");
    assert!(end.is_resumed());
    assert_eq!((end.outcome, end.args().count()), (Some(Outcome::Failure(2)), 0));
    let rest = parse_line(" --> [pre-success] Success(0x2d23) ");
    assert_eq!(rest, Ok(Line::Result(Outcome::Success(0x2d23))));
}

#[test]
fn other_spellings_of_system_calls_are_read() {
    let sync = "SYSCALL[1,2](10) sys_mprotect ( 0x4a14000, 16384, 1 )[sync] --> Success(0x0) ";
    assert_eq!(syscall(sync).outcome, Some(Outcome::Success(0)));
    assert_eq!(numbers(sync), [0x4a1_4000, 16384, 1].map(Some));
    let exit = "SYSCALL[1,1](231) exit_group( 3 ) --> [pre-success] Success(0x0) ";
    assert_eq!(numbers(exit), [Some(3)]);
    let clone =
        "SYSCALL[1,1](56) sys_clone ( 3d0f00, 0x5229f70, 0x0 ) --> [pre-success] Success(0x2) ";
    assert_eq!(numbers(clone)[0], Some(0x3d_0f00));
    let unknown = "SYSCALL[1,1](334) unimplemented (by the kernel) syscall: 334! (ni_syscall)";
    assert_eq!((syscall(unknown).number, syscall(unknown).outcome), (334, None));
}

#[test]
fn valgrinds_own_text_and_empty_lines_are_notes() {
    for line in ["==11408== Command: /bin/true", "--11408-- warning", "**11408** x", ""] {
        assert_eq!(parse_line(line), Ok(Line::Note(line)));
    }
}

proptest! {
    #[test]
    fn no_line_panics(line in "\\PC{0,60}") {
        let _ = parse_line(&line);
    }

    #[test]
    fn no_near_miss_panics(
        head in prop_oneof![Just("I  "), Just(" M "), Just("SYSCALL["), Just(" --> ")],
        tail in "[0-9a-f,x()\\[\\] .>S-]{0,40}",
    ) {
        let line = format!("{head}{tail}");
        match parse_line(&line) {
            Ok(Line::Access(access)) => assert!((1..=4).contains(&access.references(0).count())),
            Ok(Line::Syscall(call)) => drop(call.args().count()),
            _ => {}
        }
    }

    #[test]
    fn every_access_is_read_back(
        kind in 0..4_usize,
        addr in 0..u64::MAX - 4096,
        bytes in 1..4096_u32,
    ) {
        let kinds = [AccessKind::Fetch, AccessKind::Load, AccessKind::Store, AccessKind::Modify];
        let line = format!("{} {addr:08x},{bytes}", ["I ", " L", " S", " M"][kind]);
        let expected = Access { kind: kinds[kind], addr, bytes };
        prop_assert_eq!(parse_line(&line), Ok(Line::Access(expected)));
    }
}

use super::*;
use crate::crosscheck::{Aspect, Recording};

const HEADER: &str = "# kernel=6.18.44 variant=live_6.18_amd64 arch=x86-64 fs=ext4 page=4096 \
     ra_pages=32 max_sectors_kb=124 events=511 lost=0 settle=0 io=within program=true\n";

fn parsed(lines: &str) -> Recording<FileSteps> {
    Recording::parse("test", &format!("{HEADER}{lines}")).unwrap()
}

fn actions(lines: &str) -> Vec<Action> {
    parsed(lines).body.steps.into_iter().map(|step| step.action).collect()
}

#[test]
fn lines_of_programs_are_read() {
    let io = |pos, len_bytes| FileIo { pos, len_bytes, open: 2 };
    let span = |addr, len_bytes| ByteSpan { addr, len_bytes };
    let lines = "H 3\nH 3 4\nU 7f00 4096\nQ 7f00 8192 rw\nV random 7f00 4096\nL willneed 2 5 9\n\
        J 6 1000 4096 9000 8192\nT 4 1 x\nB 1 7 100 2\n";
    let expected = [
        Action::Switch(3),
        Action::Fork(3, 4),
        Action::Unmap(0x7f00, 4096),
        Action::Protect(0x7f00, 8192, "rw".to_owned()),
        Action::AdviseBytes("random".to_owned(), 0x7f00, 4096),
        Action::AdviseFile("willneed".to_owned(), io(5, 9)),
        Action::Remap { area: 6, from: span(0x1000, 4096), to: span(0x9000, 8192) },
        Action::Touch { index: 4, area: 1, access: Touch::Exec },
        Action::Read(io(4096 + 7, 100)),
    ];
    assert_eq!(actions(lines), expected);
}

#[test]
fn only_a_device_that_reads_later_has_io_in_flight() {
    assert!(!parsed("").body.takes_io_in_flight());
    let later = HEADER.replace("io=within", "io=later");
    let later = Recording::<FileSteps>::parse("test", &later).unwrap();
    assert!(later.body.takes_io_in_flight());
}

#[test]
fn damaged_lines_are_named() {
    for line in [
        "J 6 1000 4096",
        "H x",
        "L willneed 2 5",
        "V random zz 1",
        "U 10",
        "T 1 0 y",
        "~ x",
        "~ 0 \x1b[31m",
    ] {
        let error =
            Recording::<FileSteps>::parse("test", &format!("{HEADER}{line}\n")).unwrap_err();
        assert_eq!(error.line, 2, "{line}: {error}");
    }
}

/// A line of few bytes can describe many folios; the limit applies to the sum over all lines.
#[test]
fn folios_of_all_lines_are_bounded_together() {
    let of = |lines: &str| Recording::<FileSteps>::parse("test", &format!("{HEADER}{lines}"));
    let error = of("A 0 0 x30\nB 0 0 1 0\nA 0 0 x3000000000\nA 0 0\n").unwrap_err();
    assert_eq!(error.line, 4, "{error}");
    let error = of("A 0 0 x4000\nD 0 0 x4190305\n").unwrap_err();
    assert_eq!(error.line, 3, "{error}");
    assert!(
        error
            .what
            .starts_with("4190305 folios after 4000: a recording can contain at most 4194304")
    );
    assert_eq!(of("A 0 0 x4000\nD 0 0 x4000\n").unwrap().body.nr_folios, 8000);
}

/// A read of 8 KiB from a 3,700-byte file: the kernel requests two pages.
const SHORT_FILE: &str = "I 0 3700 /short\nO 1 0\nB 0 0 8192 1\nS sync 0 2 0 0 0 32 0 -1\n\
    S order 0 0 4 2 32\nA 0 0\nG 0 2\n";

#[test]
fn a_read_asks_for_what_lies_past_the_end_of_the_file() {
    let verdict = parsed(SHORT_FILE).check(None).unwrap();
    assert!(verdict.is_equal(), "{:?}", verdict.differences);
    assert_eq!(verdict.compared[&Aspect::Entries], 1);
    let clipped = SHORT_FILE.replace("S sync 0 2", "S sync 0 1");
    assert!(!parsed(&clipped).check(None).unwrap().is_equal());
}

/// Reading a truncated, empty file inserts no folio; reading a file with pages does.
#[test]
fn a_recording_is_empty_if_a_file_with_pages_is_read_and_none_comes_in() {
    let probe = HEADER.replace(" program=true", " file_pages=5 file_bytes=19183");
    let of = |lines: &str| {
        let recording = Recording::<FileSteps>::parse("test", &format!("{probe}{lines}"));
        recording.unwrap().body
    };
    assert!(of("B 0 0 4096 0\n").is_empty());
    assert!(!of("B 0 0 4096 0\nA 0 0\n").is_empty());
    assert!(!of("c 0 0\nB 0 0 4096 0\n").is_empty());
}

/// Two pages of a mapping that is moved, then copied by fork.
const MOVED: &str = "I 0 65536 /file\nO 1 0\nB 0 0 65536 1\nS sync 0 16 0 0 0 32 0 -1\n\
    S order 0 0 32 16 32\nA 0 0 x16\nG 0 16\n\
    N 0 open=1 first=4 pages=8 prot=r map=private advice=plain addr=0x100000\n\
    T 5 0\nW 4 11\nJ 1 101000 4096 200000 8192\nH 0 1\nH 1\nT 6 1\nW 5 6\n";

#[test]
fn a_touch_finds_its_page_after_mremap_and_fork() {
    let verdict = parsed(MOVED).check(None).unwrap();
    let of = |aspect| verdict.differences.iter().filter(|one| one.aspect == aspect).count();
    assert_eq!(of(Aspect::Faults), 0, "{:?}", verdict.differences);
    assert_eq!(verdict.nr_steps, parsed(MOVED).body.steps.len());
}

#[test]
fn a_touch_of_a_page_the_model_has_mapped_is_a_difference() {
    let twice = MOVED.replace("W 5 6", "W 5 6\nT 6 1");
    let verdict = parsed(&twice).check(None).unwrap();
    assert_eq!(verdict.differences.len(), 1);
    assert_eq!(verdict.differences[0].aspect, Aspect::Faults);
}

#[test]
fn hostile_actions_are_differences_and_no_panic() {
    for line in [
        "U ffffffffffffffff 18446744073709551615",
        "J 1 ffffffffffff000 4096 0 4096",
        "V populate ffff000000000000 4096",
        "L willneed 9 0 0",
        "B 9 0 1 77",
        "N 5 open=0 first=0 pages=70368744177663 prot=r map=private advice=plain addr=0xfffffffff000",
    ] {
        let verdict = parsed(&format!("I 0 4096 /f\nO 0 0\n{line}\n")).check(None).unwrap();
        assert_eq!(verdict.differences.len(), 1, "{line}");
    }
}

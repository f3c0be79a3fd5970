use super::super::FileSteps;
use super::*;
use crate::crosscheck::{Aspect, Recording, Verdict};

const HEADER: &str = "# kernel=6.18.44 variant=live_6.18_amd64 arch=x86-64 fs=ext4 page=4096 \
     ra_pages=32 max_sectors_kb=124 events=511 lost=0 settle=0 io=within program=true\n";

const FILES: &str = "I 0 3700 /a\nI 1 3700 /b\nO 1 0\nO 2 1\n";
/// A read of the second file, with the response of 6.18.
const READ_B: &str = "B 0 0 8192 2\n@1 S sync 0 2 0 0 0 32 0 -1\n@1 S order 0 0 4 2 32\n@1 A 0 0\n";
const NOT_READ_A: &str = "B 0 0 8192 1\n";

fn checked(lines: &str) -> Verdict {
    let text = format!("{HEADER}{FILES}{lines}");
    let recording = Recording::<FileSteps>::parse("test", &text).unwrap();
    recording.check(None).unwrap()
}

#[test]
fn a_file_that_no_rule_covers_is_left_out_and_the_others_are_compared() {
    assert!(!checked(&format!("{NOT_READ_A}{READ_B}")).is_equal());
    let recording = format!("~ 0 mlock\n{NOT_READ_A}{READ_B}~ 0 mlock\n");
    let verdict = checked(&recording);
    assert!(verdict.is_equal(), "{:?}", verdict.differences);
    let expected = NotCompared { nr_calls: 2, files: [0].into() };
    assert_eq!(verdict.not_compared, BTreeMap::from([("mlock".to_owned(), expected)]));
    assert_eq!(verdict.compared[&Aspect::Insertions], 1);
    let broken = recording.replace("@1 A 0 0", "@1 A 0 1");
    assert!(!checked(&broken).is_equal());
}

#[test]
fn what_the_model_cannot_do_to_a_file_left_out_is_no_difference() {
    let touch = "N 0 open=1 first=0 pages=1 prot=r map=shared advice=plain addr=0x1000\nT 7 0\n";
    assert!(!checked(touch).is_equal());
    assert!(checked(&format!("~ 0 mlock\n{touch}")).is_equal());
}

#[test]
fn threads_that_met_on_a_file_excuse_that_file_alone_and_only_where_it_differs() {
    let verdict = checked(&format!("~ 0\n{NOT_READ_A}{READ_B}"));
    assert!(verdict.is_equal(), "{:?}", verdict.differences);
    assert_eq!(verdict.not_compared[MET].files, [0].into());
    assert!(!checked(&format!("~ 1\n{NOT_READ_A}{READ_B}")).is_equal());
    let read_a = READ_B.replace("@1 ", "").replace("8192 2", "8192 1");
    let verdict = checked(&format!("~ 0\n{read_a}{READ_B}"));
    assert!(verdict.is_equal() && verdict.not_compared.is_empty());
}

/// `sendfile` of 100,000 bytes at 5,000 to a device, twice, on 6.18.44.
const SENT: &str = "I 2 8388608 /data\nO 3 2\ns 1 904 100000 3\n@2 S sync 1 17 0 0 0 32 0 -1\n\
     @2 S unbounded 1 17 0\n@2 A 1 0 x17\n@2 G 1 17\n@2 G 17 25\n\
     @2 S sync 18 8 0 0 0 32 0 73728\n@2 S order 18 0 16 8 32\n@2 A 18 0 x16\n@2 G 18 25\n\
     s 25 2600 100000 3\n@2 S async 26 16 0 16 8 32 0 105000\n@2 S order 34 2 30 30 32\n\
     @2 A 34 1\n@2 A 36 2 x7\n@2 G 25 41\n@2 S async 34 8 2 30 30 32 0 110592\n\
     @2 S order 64 4 32 32 32\n@2 A 64 4 x2\n@2 G 27 41\n@2 G 36 41\n@2 G 41 50\n";

#[test]
fn sendfile_reads_a_pipe_at_a_time() {
    let verdict = checked(SENT);
    assert!(verdict.is_equal(), "{:?}", verdict.differences);
    assert_eq!((verdict.nr_steps, verdict.compared[&Aspect::Entries]), (5, 4));
}

#[test]
fn folios_dropped_by_advice_are_compared() {
    let read =
        "I 2 40960 /data\nO 3 2\nL willneed 3 0 40960\n@2 S unbounded 0 10 0\n@2 A 0 0 x10\n";
    let dropped = "L dontneed 3 4095 8194\n@2 D 1 0 x2\n";
    let verdict = checked(&format!("{read}{dropped}"));
    assert!(verdict.is_equal(), "{:?}", verdict.differences);
    assert_eq!(verdict.compared[&Aspect::Removals], 2);
    assert!(!checked(&format!("{read}{}", dropped.replace("D 1", "D 0"))).is_equal());
    assert!(!checked(&format!("{read}{}", dropped.replace(" x2", ""))).is_equal());
}

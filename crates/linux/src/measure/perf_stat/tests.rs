use proptest::prelude::*;

use super::*;

/// Of `perf stat -r 3` on a Skylake server.
const TEXT: &str = "
 Performance counter stats for './server' (3 runs):

     3,200,000,000      cycles:u                  #    3.200 GHz        ( +-  0.12% )  (66.70%)
     1,600,000,000      instructions:u            #    0.50  insn per cycle
         9,000,000      dTLB-load-misses
        10,000,000      dtlb_load_misses.walk_completed
         2,000,000      dtlb_store_misses.walk_completed
   <not supported>      iTLB-load-misses
       640,000,000      dtlb_load_misses.walk_active:u
        40,000,000      dtlb_store_misses.walk_active:u
        20,000,000      itlb_misses.walk_active:u
            12,345      page-faults
                45      major-faults

            1.0100 +- 0.0012 seconds time elapsed  ( +-  0.12% )
       0.980000000 seconds user
       0.020000000 seconds sys
";

fn run(text: &str) -> PlainRun {
    parse(text).unwrap().run
}

fn counters(text: &str) -> HardwareCounters {
    run(text).counters.unwrap()
}

#[test]
fn text_becomes_a_run_and_the_cpus_own_events_win() {
    let PerfStat { run, incomplete } = parse(TEXT).unwrap();
    let counters = HardwareCounters {
        cycles: Some(3_200_000_000),
        instructions: Some(1_600_000_000),
        itlb_misses: None,
        dtlb_misses: Some(12_000_000),
        walk_cycles: Some(700_000_000),
    };
    let times = [run.wall_ns, run.user_ns, run.system_ns];
    assert_eq!(times, [1_010_000_000, 980_000_000, 20_000_000]);
    assert_eq!((run.minor_faults, run.major_faults), (12_300, 45));
    assert_eq!((run.counters, incomplete), (Some(counters), vec![]));
}

#[test]
fn every_format_says_the_same() {
    let csv = "# started on Mon Nov 30\n\n3200000000,,cycles:u,4000,66.70,3.2,GHz\n\
               1600000000,,instructions:u,0.12%,4000,100.00,,\n<not counted>,,iTLB-load-misses,0,,,\n\
               1010000000,ns,duration_time,,,,\n";
    let semicolons = csv.replace(',', ";");
    let json = "{\"counter-value\" : \"3200000000.000000\", \"unit\" : \"\", \"event\" : \
                \"cycles:u\", \"event-runtime\" : 4000}\n{\"counter-value\" : \"1600000000\", \
                \"event\" : \"instructions:u\"}\n{\"counter-value\" : \"1010000000\", \"unit\" : \
                \"ns\", \"event\" : \"duration_time\"}\n{\"counter-value\" : \"<not counted>\", \
                \"event\" : \"branches\"}\n";
    let german = "  3.200.000.000  cycles:u\n 1.600.000.000  instructions:u\n\n   1,010000000 \
                  seconds time elapsed\n";
    for text in [csv, &semicolons, json, german] {
        let HardwareCounters { cycles, instructions, itlb_misses, .. } = counters(text);
        assert_eq!((cycles, instructions), (Some(3_200_000_000), Some(1_600_000_000)), "{text}");
        assert_eq!((itlb_misses, run(text).wall_ns), (None, 1_010_000_000), "{text}");
    }
}

#[test]
fn an_event_has_many_spellings() {
    let misses = |event: &str| counters(&format!("7 {event}\n")).dtlb_misses;
    for event in [
        "ls_l1_d_tlb_miss.all_l2_miss",
        "LS_L1_D_TLB_MISS.ALL_L2_MISS:u",
        "cpu/ls_l1_d_tlb_miss.all_l2_miss/u",
        "r43F045",
        "rf045:u",
        "armv8_pmuv3_0/dtlb_walk/",
        "dTLB-load-misses",
    ] {
        assert_eq!(misses(event), Some(7), "{event}");
    }
    // Both kinds of cores of a hybrid CPU.
    let hybrid = "5 cpu_atom/cycles/u\n7 cpu_core/cycles/u\n1 instructions:u\n";
    assert_eq!(counters(hybrid).cycles, Some(12));
}

#[test]
fn what_does_not_belong_together_is_named() {
    let half = "5 cycles\n7 dtlb_load_misses.walk_active\n";
    let PerfStat { run, incomplete } = parse(half).unwrap();
    assert_eq!(run.counters.unwrap().walk_cycles, None);
    assert_eq!(
        incomplete,
        ["walk cycles also need the events dtlb_store_misses.walk_active, itlb_misses.walk_active"]
    );
    let error = parse("5 cycles:u\n7 instructions\n").unwrap_err().to_string();
    assert!(error.starts_with("cycles:u and instructions count in different modes"), "{error}");
    for text in ["", "no such file", "-1 cycles", "1e999 cycles", "{}", "7 unknown-event"] {
        assert_eq!(parse(text), Err(PerfStatError::Empty), "{text}");
    }
}

proptest! {
    #[test]
    fn any_text_is_read_or_refused(text in "\\PC{0,200}", number in "[0-9.,' ]{0,12}") {
        let _ = parse(&text);
        let _ = parse(&format!("{number} cycles\n{number},,{text},{number}\n{{\"event\":{text}"));
    }
}

//! Every format of one handmade result.

use std::collections::{BTreeMap, BTreeSet};

use largefolio_results::Forms as _;
use largefolio_results::predict::text::text;
use largefolio_results::predict::{Depth, Options, PredictResult, Settings, TextStyle, TraceInfo};
use largefolio_sim::cost::{BaseTime, Estimate, Events, Latency, ReadEvents, SizeLatency, Walks};
use largefolio_sim::machine::{Costs, Quantity, Unit};
use largefolio_sim::replay::outcome::{
    AnonSize, Collapses, Entries, Faults, Mapcounts, Reads, Strays, Writers,
};
use largefolio_sim::replay::requested::Requested;
use largefolio_sim::replay::sizes::{FolioSizes, SizeRow, SizeTable};
use largefolio_sim::replay::statistics::Statistics;
use largefolio_sim::replay::{Changed, Outcome};
use largefolio_sim::tlb::{Counters, KindCounters, Lines, SideCounters, WalkCounters};
use largefolio_trace::meta::PlainRun;
use largefolio_trace::{HardwareCounters, Meta};

const K: u64 = 1 << 10;

/// Takes (size, aligned, unaligned) in KiB, then partly mapped (of 64K folios), contpte-mapped and
/// PMD-mapped KiB.
fn census(sizes: &[(u64, u64, u64)], others: [u64; 3]) -> SizeTable {
    let row =
        |aligned, unaligned| SizeRow { aligned_bytes: aligned * K, unaligned_bytes: unaligned * K };
    let by_size: BTreeMap<_, _> = sizes.iter().map(|&(size, a, u)| (size * K, row(a, u))).collect();
    let in_sizes: u64 = sizes.iter().map(|&(_, a, u)| a + u).sum();
    SizeTable {
        mapped_bytes: (in_sizes + others[0]) * K,
        by_size,
        partial_bytes: others[0] * K,
        partial_by_size: others[..1]
            .iter()
            .filter(|&&part| part > 0)
            .map(|part| (64 * K, part * K))
            .collect(),
        contpte_bytes: others[1] * K,
        pmd_bytes: others[2] * K,
    }
}

fn side(references: u64, l1_misses: u64, l2_misses: u64) -> SideCounters {
    SideCounters { references, l1_misses, l2_misses, permission_misses: 0 }
}

/// Four file folios were requested, and three were free.
const ASKED: Requested = Requested { file_asked: 4, file_got: 3, anon_asked: 0, anon_got: 0 };

fn changed() -> Changed {
    Changed {
        at: "50%".to_owned(),
        edits: "thp=always".to_owned(),
        row: 61_250,
        references: 100_918_401,
        has_effect: false,
    }
}

fn before() -> Outcome {
    Outcome {
        kernel: "6.12".to_owned(),
        is_judged: true,
        gaps: Vec::new(),
        machine: "altra".to_owned(),
        page_bytes: 4 * K,
        seed: 1,
        cache: "cold".to_owned(),
        memory_bytes: 16 << 30,
        swap_bytes: 0,
        linked: Vec::new(),
        policy: None,
        statistics: Statistics::default(),
        folios: FolioSizes {
            text: census(&[(4, 3000, 0), (16, 900, 48), (64, 192, 0)], [8, 128, 0]),
            data: census(&[(4, 600, 0)], [0, 0, 0]),
            shmem: SizeTable::default(),
            anon: census(&[(4, 5000, 0)], [0, 0, 0]),
        },
        cached_bytes: BTreeMap::from([(4 * K, 9_000 * K), (16 * K, 1_600 * K), (64 * K, 256 * K)]),
        faults: Faults { total: 1981, major: 72, around: 218, anon: 1374, cow: 389, ..EMPTY },
        reads: Reads {
            bytes: 10_856 * K,
            used_bytes: 7_408 * K,
            amplification: Some(10_856.0 / 7_408.0),
            windows: 205,
            async_windows: 74,
            gated: 0,
            large_folio_fallback: 0,
        },
        nr_cpus: 80,
        processes: None,
        tlb: Counters {
            instruction: side(139_354_249, 279_742, 3_478),
            data: side(62_482_553, 761_660, 16_184),
            walks_pte: 19_662,
            walks_contpte: 230,
            walks_pmd: 0,
            walk_refs_pgd: 19_662,
            walk_refs_pud: 19_662,
            walk_refs_pmd: 19_662,
            walk_refs_pte: 19_662,
            chained_hits: 0,
            walk_kinds: walk_kinds(),
        },
        anon_sizes: BTreeMap::new(),
        asked: BTreeMap::from([(64 * K, ASKED)]),
        asked_tenths: BTreeMap::from([(10, BTreeMap::from([(64 * K, ASKED)]))]),
        cgroups: Vec::new(),
        changes: vec![changed()],
        aged: BTreeMap::new(),
        unusable_at_start: BTreeMap::from([(64 * K, 310)]),
        pmd_refused: BTreeMap::from([("misaligned", 0), ("vma_too_small", 0)]),
        writers: Writers::default(),
        collapse: Collapses::default(),
        pressure: BTreeMap::new(),
        memory_stat: BTreeMap::from([("anon_thp", 4 << 20), ("pgfault", 7)]),
        zeroed_pages: 1_384,
        copied_pages: 369,
        entries: Entries { set_by_faults: 5_100, ptes_cleared: 5_090, ..Entries::default() },
        mapcounts: Mapcounts { pages: 10_190, folios: 17, owner_words: 23 },
        cleared_bytes: BTreeMap::from([(4 * K, 1_384 * 4 * K)]),
        copied_bytes: BTreeMap::from([(4 * K, 369 * 4 * K)]),
        latency: latency(),
        waits: ReadEvents { sync_requests: 131, late_waits: Some(9), ..ReadEvents::default() },
        estimate: estimate(1_981, &costs()),
        strays: Strays::default(),
        ..Outcome::default()
    }
}

fn latency() -> Latency {
    let page = SizeLatency { stretches: 1_752, max_bytes: 4 * K };
    let folio = SizeLatency { stretches: 1, max_bytes: 2048 * K };
    Latency {
        preemption: "lazy",
        stretches: 1_753,
        max_bytes: 2048 * K,
        p99_bytes: 4 * K,
        max_ns: None,
        p99_ns: None,
        sizes: BTreeMap::from([(4 * K, page), (2048 * K, folio)]),
        not_known: BTreeSet::from(["costs.clear of 2M".to_owned()]),
    }
}

fn costs() -> Costs {
    let cost = |value, unit, assumed| {
        Some(Quantity { value, unit, source: "a document".to_owned(), assumed, range: None })
    };
    let (clock, l2_hit) = (cost(3.0, Unit::GHz, false), cost(3.0, Unit::Cycles, true));
    Costs { clock, l2_hit, fault: cost(0.9, Unit::Us, true), ..Costs::default() }
}

fn estimate(faults: u64, costs: &Costs) -> Estimate {
    let events = Events { faults, l2_hits: [1_021_740, 0], ..Events::default() };
    Estimate::new(&events, costs, Walks::Native)
}

const EMPTY: Faults = Faults {
    total: 0,
    major: 0,
    around: 0,
    finish: 0,
    anon: 0,
    zero_page: 0,
    cow: 0,
    wp_reuse: 0,
    swap_in: 0,
    hugetlb: 0,
    retries: 0,
};

fn exec_folios() -> Outcome {
    let mut outcome = before();
    outcome.kernel = String::from("6.12+exec-block=64K+exec-miss=final");
    outcome.folios.text = census(&[(4, 308, 0), (64, 3840, 0)], [0, 3840, 0]);
    outcome.faults.total = 1702;
    outcome.estimate = estimate(1702, &costs());
    outcome.faults.around = 61;
    outcome.tlb.instruction = side(139_354_249, 7_987, 676);
    outcome.tlb.walks_pte = 12_190;
    outcome.tlb.walks_contpte = 0;
    outcome
}

fn large_pages() -> Outcome {
    let mut outcome = before();
    (outcome.kernel, outcome.machine) = ("7.2".to_owned(), "grace-64k".to_owned());
    outcome.page_bytes = 64 * K;
    outcome.folios = FolioSizes {
        text: census(&[(64, 2944, 0), (2048, 2048, 0)], [0, 0, 0]),
        data: census(&[(64, 1024, 0)], [0, 0, 0]),
        shmem: census(&[(64, 128, 0)], [0, 0, 0]),
        anon: census(&[(64, 640, 0), (2048, 4096, 0)], [1152, 4096, 0]),
    };
    outcome.cached_bytes = BTreeMap::from([(64 * K, 12_000 * K), (2048 * K, 2048 * K)]);
    let size = AnonSize { anon_fault_alloc: 3, split_deferred: 1, ..AnonSize::default() };
    outcome.anon_sizes = BTreeMap::from([(2048 * K, size)]);
    outcome.pmd_refused.insert("vma_too_small", 3);
    outcome.zeroed_pages = 101;
    outcome.estimate = estimate(1981, &Costs { fault: None, ..costs() });
    outcome.strays = Strays { unmapped: 12_000, protected: 0, beyond_file: 3 };
    outcome.is_replaced = true;
    outcome
}

fn report(rows: Vec<Outcome>) -> PredictResult {
    let arguments = |text: &str| text.split(' ').map(str::to_owned).collect();
    let trace = TraceInfo {
        path: "py.folio".to_owned(),
        digest: None,
        command: arguments("python3 -c pass"),
        recorder: "qemu".to_owned(),
        kernel: "6.18.44".to_owned(),
        machine: "AMD EPYC".to_owned(),
        ended: "exit 0".to_owned(),
        nr_references: 201_836_802,
        nr_rows: 26_730_000,
        warnings: vec!["A thread was \u{1b}[31mnot seen.".to_owned()],
        faults_only: false,
        attached: None,
        counted: None,
    };
    let settings = Settings {
        rules_notes: Vec::new(),
        memory_bytes: 16 << 30,
        swap_bytes: 0,
        unusable_permille: 125,
        unusable_bytes: 0,
        aged_rounds: 0,
        filesystem: None,
        annotations: Vec::new(),
        changes: vec!["50%:thp=always".to_owned()],
        allocator: None,
        numa: None,
        reference_ns: 5,
    };
    let command = arguments("folio predict py.folio");
    let mut report = PredictResult::new(command, trace, settings, rows, Options::default());
    report.tool_version = String::from("1.2.3");
    report
}

fn three() -> PredictResult {
    report(vec![before(), exec_folios(), large_pages()])
}

fn table(report: &PredictResult, width: usize) -> String {
    text(report, TextStyle { width, is_styled: false, depth: Depth::Full })
}

#[test]
fn the_table_compares_every_column_with_the_first() {
    insta::assert_snapshot!(table(&three(), 120));
}

#[test]
fn the_verdict_and_ten_lines_come_first() {
    insta::assert_snapshot!(text(
        &three(),
        TextStyle { width: 120, is_styled: false, depth: Depth::Brief }
    ));
}

#[test]
fn a_narrow_table_continues_in_blocks_that_repeat_the_reference() {
    let text = table(&three(), 90);
    insta::assert_snapshot!(text);
    assert!(text.lines().all(|line| line.chars().count() <= 90), "a line is too long");
}

#[test]
fn a_single_column_has_no_changes() {
    let text = table(&report(vec![before()]), 120);
    assert!(!text.contains("  change"), "{text}");
    insta::assert_snapshot!(text);
}

#[test]
fn time_is_a_section_with_what_it_rests_on_below() {
    let text = text(&three(), TextStyle { width: 120, is_styled: false, depth: Depth::Time });
    let (_, time) = text.split_once("Estimated time").unwrap();
    insta::assert_snapshot!(time);
}

#[test]
fn a_time_is_compared_with_that_of_the_first_row() {
    let report = three();
    let of = |row: usize| report.rows[row].estimate.difference_ns;
    assert_eq!((of(0), of(1), of(2)), (Some(0), Some(-279 * 900), None));
}

#[test]
fn several_seeds_are_told_apart_in_the_header() {
    let mut other = before();
    other.seed = 2;
    let text = table(&report(vec![before(), other]), 120);
    assert!(text.contains("seed 1") && text.contains("seed 2"), "{text}");
}

#[test]
fn a_result_without_rows_is_still_a_text() {
    let text = table(&report(Vec::new()), 120);
    assert!(text.starts_with("py.folio: python3 -c pass\n"), "{text}");
}

#[test]
fn only_a_styled_table_has_escapes_and_none_come_from_the_trace() {
    let plain = table(&three(), 120);
    assert!(!plain.contains('\u{1b}'));
    let styled = text(&three(), TextStyle { width: 120, is_styled: true, depth: Depth::Brief });
    assert!(styled.contains("\u{1b}[1m"));
    assert!(!styled.contains("\u{1b}[31m"));
}

#[test]
fn json_has_the_documented_keys_in_order() {
    insta::assert_snapshot!(report(vec![large_pages()]).json().unwrap());
}

#[test]
fn csv_has_a_row_for_each_number() {
    insta::assert_snapshot!(report(vec![exec_folios(), large_pages()]).csv().unwrap());
}

fn walk_kinds() -> WalkCounters {
    let kind = |walks, l2, llc, memory| KindCounters {
        walks,
        pmd_walks: walks / 10,
        lines: Lines { l2, llc, memory },
        host_lines: Lines { l2: 2 * l2, llc: 2 * llc, memory: 2 * memory },
    };
    WalkCounters {
        chained: kind(1_000, 3_000, 700, 300),
        overlapped: kind(9_000, 30_000, 5_000, 1_000),
        alone: kind(6_184, 20_000, 4_000, 700),
        fetch: kind(3_478, 12_000, 1_600, 300),
    }
}

#[test]
fn counters_of_plain_runs_are_compared_with_the_model() {
    let run = |dtlb_misses| PlainRun {
        wall_ns: 1_000_000,
        user_ns: 900_000,
        counters: Some(HardwareCounters {
            cycles: Some(3_000),
            instructions: Some(2_000),
            dtlb_misses,
            itlb_misses: None,
            walk_cycles: Some(600),
        }),
        ..PlainRun::default()
    };
    let of = |runs: Vec<PlainRun>| {
        let mut row = before();
        row.tlb.data.l2_misses = 1_100;
        row.estimate.run = BaseTime::measured(&runs).unwrap();
        let trace = TraceInfo::new("t.folio", &Meta { runs, ..Meta::default() });
        let report = PredictResult { trace, ..report(vec![row]) };
        (table(&report, 400), serde_json::to_value(&report).unwrap())
    };
    let (text, json) = of(vec![run(Some(1_000)), run(Some(900)), run(Some(1_200))]);
    let note = "- counted by the CPU in 3 plain runs, against 6.12: data TLB misses 1,000 (900 \
                to 1,200), the model 1,100 (+10%); 180.0 us with a walk in progress; cycles per \
                instruction 1.50.";
    assert!(text.contains(note), "{text}");
    assert_eq!(json["trace"]["counted"]["dtlb_misses"]["high"], 1_200.0);
    let (text, json) = of(vec![run(None), run(Some(900))]);
    assert!(text.contains("cycles per instruction 1.50") && !text.contains("TLB misses 9"));
    assert!(json["trace"]["counted"]["dtlb_misses"].is_null());
    let (text, _) = of(vec![PlainRun { wall_ns: 1, ..PlainRun::default() }]);
    assert!(!text.contains("counted by the CPU"), "{text}");
}

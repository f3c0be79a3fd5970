//! Random programs about `MADV_COLLAPSE` that real kernels ran, and programs about files on disks,
//! replayed and compared page by page after each step (`recordings/README.md`, "Collapse").

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use largefolio_mm::units::{Order, PageSize};
use largefolio_sim::crosscheck::Recording;
use largefolio_sim::crosscheck::processes::{
    ProcessProgram, ProgramOptions, ProgramRow, Programs, Topic, generate,
};
use largefolio_sim::kernel::{Kernel, version};

use super::{recordings, rows};

/// Far fewer mean that archives were not found.
const NR_PROGRAMS_MIN: usize = 1_448;
const NR_KERNELS_MIN: usize = 10;

/// Up to 6.17 a process without any page near the block is refused the PMD entry of a file's block
/// that it has just collapsed; the model gives it one (docs/differences.md, "no table of blocks").
const WITHOUT_TABLE: [(u64, &[(u32, u32)]); 2] =
    [(1011, &[(6, 12), (6, 16), (6, 17)]), (3013, &[(6, 12), (6, 16), (6, 17)])];

fn is_known(recording: &Recording<Programs>, verdict: &ProgramRow) -> bool {
    let version = version(&recording.header.release);
    let of_kernel = |(seed, kernels): &(u64, &[(u32, u32)])| {
        *seed == verdict.seed && kernels.iter().any(|kernel| Some(*kernel) == version)
    };
    WITHOUT_TABLE.iter().any(of_kernel)
}

#[test]
fn model_equals_the_recorded_kernels() {
    let all = recordings("collapse");
    let (mut nr_programs, mut different, mut kernels) = (0, Vec::new(), Vec::new());
    for recording in &all {
        let found = rows(recording, None);
        nr_programs += found.len();
        kernels.push(version(&recording.header.release));
        assert!(recording.body.runs.iter().all(|run| run.is_complete), "{}", recording.name);
        let first = |verdict: &ProgramRow| {
            let text = verdict.to_string();
            text.lines().take(2).collect::<Vec<_>>().join("")
        };
        let text = |verdict: &ProgramRow| format!("{}: {}", recording.name, first(verdict));
        for verdict in &found {
            // What is known to differ must still do so.
            if verdict.is_equal() == is_known(recording, verdict) {
                different.push(text(verdict));
            }
        }
    }
    let shown = &different[..different.len().min(40)];
    assert!(different.is_empty(), "{} differ\n{}", different.len(), shown.join("\n"));
    assert!(nr_programs >= NR_PROGRAMS_MIN, "{nr_programs} programs");
    kernels.sort_unstable();
    kernels.dedup();
    assert!(kernels.len() >= NR_KERNELS_MIN, "{kernels:?}");
}

/// The comparison can fail: a kernel does not pass for one with other rules of collapse.
#[test]
fn rules_of_another_kernel_are_told_apart() {
    for (recorded, rules) in [((7, 2), "7.1"), ((7, 1), "7.2"), ((6, 12), "6.18")] {
        let kernel = Kernel::parse(&format!("{rules}+page=4K")).unwrap();
        let nr_different: usize = recordings("collapse")
            .iter()
            .filter(|recording| version(&recording.header.release) == Some(recorded))
            .map(|r| rows(r, Some(&kernel)).iter().filter(|verdict| !verdict.is_equal()).count())
            .sum();
        assert!(nr_different > 5, "{recorded:?} under {rules}: {nr_different}");
    }
}

#[test]
fn programs_are_read_back_as_written() {
    for seed in 0..50 {
        let orders = vec![Order::new(4), Order::new(9)];
        let topic = Topic::Collapse;
        let program =
            generate(seed, &ProgramOptions { topic, page: PageSize::K4, orders, nr_steps: 60 });
        assert_eq!(ProcessProgram::all_of("test", &program.to_string()).unwrap(), [program]);
    }
}

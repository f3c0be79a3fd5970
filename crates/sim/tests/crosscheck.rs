//! Replays what real kernels did, step by step, and compares (`recordings/README.md`).
//!
//! `LARGEFOLIO_RECORDINGS=DIR` replays the recordings of another folder instead of the project's.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be replayed fails the test")]

use std::path::{Path, PathBuf};

use largefolio_sim::crosscheck::{Aspect, Recording, Summary, Verdict, check, read_all};
use rayon::prelude::*;

/// The project has 1,583 of self-built kernels, 3,609 of 13 packaged ones and 18 of real programs;
/// far fewer mean that archives were not found.
const NR_RECORDINGS_MIN: usize = 5_210;
const NR_KERNELS_MIN: usize = 24;
/// Recordings whose page map may lack pages that were still being read, and that had to wait.
const NR_IN_FLIGHT_MAX: u64 = 40;
/// Buffered writes of 1 MiB on XFS: from the fourth MiB on, the kernel makes smaller folios than
/// the length of the write asks for (docs/differences.md, "writes on XFS").
const UNEXPLAINED: [&str; 2] = ["writ", "xfs"];

fn recordings(dir: &Path) -> Vec<Recording> {
    let mut all = Vec::new();
    read_all(dir, &mut |recording| all.push(recording)).unwrap();
    all
}

fn is_unexplained(verdict: &Verdict) -> bool {
    UNEXPLAINED.iter().all(|part| verdict.name.contains(part))
        && verdict.differences.iter().all(|found| found.aspect == Aspect::Insertions)
}

#[test]
fn model_equals_the_recorded_kernels() {
    let own = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings");
    let given = std::env::var_os("LARGEFOLIO_RECORDINGS").map(PathBuf::from);
    let is_own = given.is_none();
    let all = recordings(&given.unwrap_or(own));
    let check = |one: &Recording| (one.header.variant.clone(), check(one, None).unwrap());
    let verdicts: Vec<_> = all.par_iter().map(check).collect();
    let mut summary = Summary::default();
    for (kernel, verdict) in verdicts {
        summary.add(&kernel, verdict);
    }
    for (kernel, row) in &summary.kernels {
        let (equal, different) = (row.nr_equal, row.nr_different);
        let in_flight = row.nr_in_flight;
        println!("{kernel:24} {equal:4} equal {different:3} different {in_flight:3} in flight");
    }
    let different: Vec<String> = summary
        .different
        .iter()
        .filter(|verdict| !is_unexplained(verdict))
        .map(|verdict| format!("{}: {}", verdict.name, verdict.differences[0]))
        .collect();
    let shown = &different[..different.len().min(25)];
    assert!(different.is_empty(), "{} differ\n{}", different.len(), shown.join("\n"));
    if is_own {
        assert!(all.len() >= NR_RECORDINGS_MIN, "{} recordings", all.len());
        assert!(summary.kernels.len() >= NR_KERNELS_MIN, "{} kernels", summary.kernels.len());
        let nr_in_flight: u64 = summary.kernels.values().map(|row| row.nr_in_flight).sum();
        assert!(nr_in_flight <= NR_IN_FLIGHT_MAX, "{nr_in_flight} with reads in flight");
    }
}

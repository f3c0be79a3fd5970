//! How much a test run covers. The Makefile describes the lanes.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::process::Command;
use std::sync::LazyLock;

const NR_CASES_FAST: u32 = 64;

/// Cases: `nr_all` with `LARGEFOLIO_LANE=all`, otherwise at most 64. `PROPTEST_CASES` overrides
/// it.
#[must_use]
pub fn cases(nr_all: u32) -> u32 {
    let given = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    given.unwrap_or(if is_whole() { nr_all } else { nr_all.min(NR_CASES_FAST) })
}

#[must_use]
pub fn is_whole() -> bool {
    std::env::var_os("LARGEFOLIO_LANE").is_some_and(|lane| lane == "all")
}

/// One recording in this many is replayed per commit.
const NR_PER_SAMPLE: u64 = 10;

/// Returns whether this run replays the recording: one in ten, others for each commit. With
/// `LARGEFOLIO_LANE=all`, it replays all.
#[must_use]
pub fn is_in_sample(recording: &str) -> bool {
    static COMMIT: LazyLock<Vec<u8>> = LazyLock::new(|| {
        let head = Command::new("git").args(["rev-parse", "HEAD"]).output();
        head.map(|output| output.stdout).unwrap_or_default()
    });
    let mut hasher = DefaultHasher::new();
    (&*COMMIT, recording).hash(&mut hasher);
    is_whole() || hasher.finish().is_multiple_of(NR_PER_SAMPLE)
}

//! How many cases a random test tries. The head of the Makefile says what each lane is for.

/// Cases of a property in the fast lane, at most; what proptest itself tries.
const NR_CASES_FAST: u32 = 256;

/// Cases of a property that deserves `nr_all` of them: all with `LARGEFOLIO_LANE=all`, as `make
/// test-all` has it, otherwise at most 256. `PROPTEST_CASES` sets another number.
#[must_use]
pub fn cases(nr_all: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if is_whole() { nr_all } else { nr_all.min(NR_CASES_FAST) })
}

/// Whether all is tried (`LARGEFOLIO_LANE=all`).
#[must_use]
pub fn is_whole() -> bool {
    std::env::var_os("LARGEFOLIO_LANE").is_some_and(|lane| lane == "all")
}

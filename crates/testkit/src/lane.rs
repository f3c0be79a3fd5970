//! Number of cases in random tests. The Makefile describes the lanes.

const NR_CASES_FAST: u32 = 256;

/// Cases: `nr_all` with `LARGEFOLIO_LANE=all`, otherwise at most 256. `PROPTEST_CASES` overrides
/// it.
#[must_use]
pub fn cases(nr_all: u32) -> u32 {
    let asked = std::env::var("PROPTEST_CASES").ok().and_then(|text| text.parse().ok());
    asked.unwrap_or(if is_whole() { nr_all } else { nr_all.min(NR_CASES_FAST) })
}

#[must_use]
pub fn is_whole() -> bool {
    std::env::var_os("LARGEFOLIO_LANE").is_some_and(|lane| lane == "all")
}

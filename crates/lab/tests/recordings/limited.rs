//! Evictions from a memory cgroup with a limit, in kernels and in the model.
//!
//! Not all are equal: the table of `docs/design/tables/fidelity.txt` lists the differing ones, and
//! this test fails when it changes. A kernel does not repeat some workloads exactly
//! (`varying.toml`); they are compared only up to the first variation. `LARGEFOLIO_LIMITED=DIR`
//! tests another folder's recordings and prints each one's first difference.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use largefolio_lab::crosscheck::files::FileSteps;
use largefolio_lab::crosscheck::{Aspect, Location, Recording, Verdict, read_all};
use largefolio_sim::kernel::Kernel;
use rayon::prelude::*;

use super::document;

/// Two LRU kinds of five packaged kernels; fewer mean that the test did not find the archives.
const NR_KINDS_MIN: usize = 10;
/// Minimal percentage of a kernel's workloads, per LRU kind, that have the kernel's sequence of
/// evictions, completely or up to the first variation.
const EQUAL_PERCENT_MIN: usize = 80;
const EQUAL_PERCENT_MIN_OF_GENERATIONS: usize = 90;

fn recordings(dir: &Path) -> Vec<Recording<FileSteps>> {
    let mut all = Vec::new();
    read_all(dir, &mut |recording| all.push(recording)).unwrap();
    all
}

fn own() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings/limited")
}

/// `deb_7.2_amd64, generations`.
fn kind_of(one: &Recording<FileSteps>) -> (String, String) {
    (one.header.variant.clone(), one.lists_under_limit().unwrap_or_default().to_owned())
}

/// By kernel and LRU kind, then by workload: the first step at which a repetition differs.
type Varying = BTreeMap<String, BTreeMap<String, usize>>;

fn varying() -> Varying {
    let text = std::fs::read_to_string(own().join("varying.toml")).unwrap();
    toml::from_str(&text).unwrap()
}

#[derive(Default)]
struct Row {
    nr: usize,
    nr_same_sequence: usize,
    nr_same_so_far: Option<usize>,
    nr_same_counts: usize,
    nr_evictions: u64,
    different: Vec<String>,
}

impl Row {
    fn add(&mut self, verdict: &Verdict, varying: &Varying) {
        let is_whole = verdict.differences.iter().all(|one| one.aspect == Aspect::Group);
        let (kind, workload) = verdict.name.rsplit_once('/').unwrap_or_default();
        let varies_at = varying.get(kind).and_then(|of| of.get(workload.trim_end_matches(".txt")));
        let is_same_so_far =
            !is_whole && first_step(verdict).zip(varies_at).is_some_and(|(step, at)| step >= *at);
        let is_same = is_whole || is_same_so_far;
        self.nr += 1;
        self.nr_same_sequence += usize::from(is_whole);
        if varying.contains_key(kind) {
            *self.nr_same_so_far.get_or_insert_default() += usize::from(is_same_so_far);
        }
        self.nr_same_counts += usize::from(verdict.is_equal());
        self.nr_evictions += verdict.nr_compared(Aspect::Evictions);
        if !is_same {
            self.different.push(short(&verdict.name));
        }
    }
}

fn first_step(verdict: &Verdict) -> Option<usize> {
    match verdict.differences.first()?.place {
        Location::Step { step, .. } => Some(step),
        Location::Page { .. } => None,
    }
}

/// Returns whether a workload writes to its file; then only the first request is compared.
fn is_dirty(one: &Recording<FileSteps>) -> bool {
    ["limit-dirty", "limit-written"].iter().any(|word| one.name.contains(word))
}

/// Shortens `FOLDER/ext4_ra128_r_plain_limit-hot_s3.txt` to `ext4 r hot`.
fn short(name: &str) -> String {
    let file = name.rsplit('/').next().unwrap_or(name).trim_end_matches(".txt");
    let parts: Vec<&str> = file.split('_').collect();
    match parts[..] {
        [fs, _, prot, advice, pattern, _] => {
            let advice = if advice == "plain" { "" } else { advice };
            let words = [fs, prot, advice, pattern.trim_start_matches("limit-")];
            words.into_iter().filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
        }
        _ => file.to_owned(),
    }
}

fn table(rows: &BTreeMap<(String, String), Row>) -> String {
    let mut text = "| recordings of | lists | workloads | same sequence \
                    | as far as the kernel repeats itself | same counts too | evicted folios \
                    | sequence differs in |\n|---|---|---|---|---|---|---|---|"
        .to_owned();
    for ((variant, lists), row) in rows {
        let Row { nr, nr_same_sequence, nr_same_so_far, nr_same_counts, nr_evictions, .. } = row;
        let so_far = nr_same_so_far.map_or_else(|| "-".to_owned(), |nr| nr.to_string());
        let different =
            if row.different.is_empty() { "-".to_owned() } else { row.different.join(", ") };
        write!(
            text,
            "\n| {variant} | {lists} | {nr} | {nr_same_sequence} | {so_far} \
             | {nr_same_counts} | {nr_evictions} | {different} |"
        )
        .unwrap();
    }
    text
}

fn dirty_table(all: &[Recording<FileSteps>]) -> String {
    let mut rows: BTreeMap<_, [usize; 2]> = BTreeMap::new();
    for one in all.iter().filter(|one| is_dirty(one)) {
        let verdict = one.check(None).unwrap();
        let row = rows.entry(kind_of(one)).or_default();
        row[0] += 1;
        row[1] += usize::from(verdict.is_equal());
        assert!(!verdict.is_equal() || !verdict.not_compared.is_empty(), "{}", verdict.name);
    }
    let mut text =
        "| recordings of | lists | workloads | same first request |\n|---|---|---|---|".to_owned();
    for ((variant, lists), [nr, same]) in &rows {
        write!(text, "\n| {variant} | {lists} | {nr} | {same} |").unwrap();
    }
    text
}

#[test]
fn reclaim_leaves_the_dirty_folios_that_the_recorded_kernels_left() {
    let all = recordings(&own());
    let table = dirty_table(&all);
    println!("{table}");
    assert_eq!(table.lines().count(), 2 + NR_KINDS_MIN);
    document("limited.rs, dirty", &table);
}

#[test]
fn reclaim_takes_what_the_recorded_kernels_took() {
    let given = std::env::var_os("LARGEFOLIO_LIMITED").map(PathBuf::from);
    let mut all = recordings(given.as_deref().unwrap_or(&own()));
    all.retain(|one| given.is_some() || !is_dirty(one));
    let check = |one: &Recording<FileSteps>| (kind_of(one), one.check(None).unwrap());
    let verdicts: Vec<_> = all.par_iter().map(check).collect();
    let varying = varying();
    let mut rows: BTreeMap<_, Row> = BTreeMap::new();
    for (kind, verdict) in verdicts {
        if let Some(first) = verdict.differences.first() {
            println!("{}: {first}", verdict.name);
        }
        rows.entry(kind).or_default().add(&verdict, &varying);
    }
    let table = table(&rows);
    println!("{table}");
    if given.is_some() {
        return;
    }
    assert!(rows.len() >= NR_KINDS_MIN, "{} kinds", rows.len());
    for (kind, row) in &rows {
        let percent =
            (row.nr_same_sequence + row.nr_same_so_far.unwrap_or_default()) * 100 / row.nr;
        let is_new = kind.1 == "generations";
        let min = if is_new { EQUAL_PERCENT_MIN_OF_GENERATIONS } else { EQUAL_PERCENT_MIN };
        assert!(percent >= min, "{kind:?}: {percent}%");
        assert!(row.nr_evictions > 5_000, "{kind:?}: {} evictions", row.nr_evictions);
    }
    document("limited.rs", &table);
}

#[test]
fn kernels_are_told_apart() {
    largefolio_testkit::only_in_test_all!("replays these recordings");
    let of = ("deb_7.2_amd64".to_owned(), "generations".to_owned());
    let all: Vec<_> = recordings(&own()).into_iter().filter(|one| kind_of(one) == of).collect();
    let nr_different = |kernel: Option<&Kernel>| {
        all.iter().filter(|one| !one.check(kernel).unwrap().is_equal()).count()
    };
    let nr_own = nr_different(None);
    let nr = nr_different(Some(&Kernel::parse("6.1").unwrap()));
    assert!(nr >= nr_own + 40, "{nr} differ; under its own rules, {nr_own}");
}

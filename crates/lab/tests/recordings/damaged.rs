//! Damaged recordings: parser and replay return a result or an error, and terminate.

#![expect(clippy::unwrap_used, reason = "a recording that cannot be read fails the test")]

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use largefolio_lab::crosscheck::files::FileSteps;
use largefolio_lab::crosscheck::{Recording, read_all};
use largefolio_trace::generate::Rng;

/// Damaged texts to replay; `LARGEFOLIO_FUZZ_ROUNDS` sets another number.
const ROUNDS: u64 = 400;
/// A damaged recording may use a larger file, but must not run for hours.
const REPLAY_MAX: Duration = Duration::from_secs(20);

/// Numbers that could overflow, and words of the format.
const WORDS: [&str; 24] = [
    "0",
    "1",
    "-1",
    "4095",
    "65536",
    "4294967296",
    "70368744177663",
    "18446744073709551615",
    "99999999999999999999",
    "x16777216",
    "0x7ffffffff000",
    "0..18446744073709551615",
    "9..3",
    "page=4096",
    "page=65536",
    "file_bytes=18446744073709551615",
    "ra_pages=1099511627776",
    "ra_pages=0",
    "max_sectors_kb=0",
    "fault_around_bytes=0",
    "opens=65536",
    "head",
    "@7",
    "?",
];

fn texts() -> Vec<String> {
    let dir = tempfile::tempdir().unwrap();
    let archives = ["packaged/deb_6.18_amd64.tar.xz", "g_72_64k_stock.tar.xz"];
    let mut all = Vec::new();
    for archive in archives {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../recordings").join(archive);
        let mut unpack = Command::new("tar");
        unpack.arg("-xJf").arg(path).arg("-C").arg(dir.path());
        assert!(unpack.status().unwrap().success());
    }
    for folder in fs::read_dir(dir.path()).unwrap() {
        let mut paths: Vec<_> = fs::read_dir(folder.unwrap().path())
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        paths.sort();
        // Every ninth recording: they include each pattern, and none is long.
        let some = paths.iter().step_by(9).map(|path| fs::read_to_string(path).unwrap());
        all.extend(some.filter(|text| text.len() < 40_000));
    }
    all
}

fn pick<'a, T>(rng: &mut Rng, from: &'a [T]) -> &'a T {
    &from[usize::try_from(rng.below(from.len() as u64)).unwrap()]
}

/// One change: a word replaced, a line moved, doubled or dropped, a byte flipped, the end cut off.
fn damage(rng: &mut Rng, text: &str) -> String {
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let nr = usize::try_from(rng.below(lines.len().max(1) as u64)).unwrap();
    let Some(line) = lines.get(nr).cloned() else { return text.to_owned() };
    match rng.below(6) {
        0 => lines.swap(0, nr),
        1 => lines.insert(nr, line),
        2 => drop(lines.remove(nr)),
        3 => lines.truncate(nr),
        4 => {
            let mut bytes = line.into_bytes();
            if !bytes.is_empty() {
                let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
                bytes[at] = u8::try_from(rng.below(256)).unwrap();
            }
            lines[nr] = String::from_utf8_lossy(&bytes).into_owned();
        }
        _ => {
            // The header is only one of many lines, so choose it more often.
            let nr = if rng.below(3) == 0 { 0 } else { nr };
            let mut fields: Vec<&str> = lines[nr].split(' ').collect();
            let at = usize::try_from(rng.below(fields.len() as u64)).unwrap();
            let word: &&str = pick(rng, &WORDS);
            fields[at] = word;
            lines[nr] = fields.join(" ");
        }
    }
    lines.join("\n")
}

#[test]
fn a_damaged_recording_is_replayed_or_refused() {
    let texts = texts();
    assert!(texts.len() > 20, "{} texts", texts.len());
    let rounds = std::env::var("LARGEFOLIO_FUZZ_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let mut text = pick(&mut rng, &texts).clone();
        for _ in 0..=rng.below(4) {
            text = damage(&mut rng, &text);
        }
        let started = Instant::now();
        let result = Recording::<FileSteps>::parse("damaged", &text)
            .map_err(|error| error.to_string())
            .and_then(|recording| recording.check(None).map_err(|error| error.to_string()));
        assert!(started.elapsed() < REPLAY_MAX, "seed {seed}: {:?}", started.elapsed());
        match result {
            Ok(_) => answered += 1,
            Err(error) => {
                refused += 1;
                assert!(error.len() > 10, "seed {seed}: {error}");
            }
        }
    }
    println!("{answered} answered, {refused} refused");
    assert!(answered > 0 && refused > 0, "both happen: {answered} answered, {refused} refused");
}

#[test]
fn a_damaged_archive_is_refused() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../recordings/packaged/deb_6.18_amd64.tar.xz");
    let whole = fs::read(path).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let damaged = dir.path().join("damaged.tar.xz");
    let mut rng = Rng::new(7);
    for round in 0..12 {
        let at = usize::try_from(rng.below(whole.len() as u64)).unwrap();
        let mut bytes = whole.clone();
        if round % 2 == 0 {
            bytes.truncate(at);
        } else {
            bytes[at] ^= 0x40;
        }
        fs::write(&damaged, bytes).unwrap();
        assert!(read_all::<FileSteps>(&damaged, &mut |_| {}).is_err(), "{round} at {at}");
    }
}

#[test]
fn a_wait_that_repeats_without_progress_is_a_difference() {
    // The kernel enters its handler for a page that the model has mapped: no wait explains that.
    let text = "# kernel=6.18.44 arch=x86-64 variant=none fs=ext4 read_ahead_kb=128 max_sectors_kb=512 \
        prot=rw map=shared advice=plain pattern=ops page=4096 file_pages=1024 file_bytes=4194304 n=2 seed=0 \
        opens=1 skew=0 settle=1500 resid_before=0 minflt=0 majflt=1 ra_pages=32 events=511 lost=0\n\
        N 0 open=0 first=0 pages=1024 prot=rw map=shared advice=plain addr=0x400000000000\n\
        T 200 0 w\nF 200\nS order 184 0 32 8 32\nA 184 0 x32\nF 200\nT 200 0 w\nF 200\nE 0\nP 200..200\n";
    let recording = Recording::<FileSteps>::parse("again", text).unwrap();
    let verdict = recording.check(None).unwrap();
    let difference = verdict.differences[0].to_string();
    assert!(difference.starts_with("step 2 (touch page 200): Handler differ"), "{difference}");
}

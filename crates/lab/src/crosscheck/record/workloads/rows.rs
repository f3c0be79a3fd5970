//! The rows of the set: protections, advices and patterns, and the purpose of each row.

use std::fmt::Display;

use super::{Filesystem, files};

mod limited;

pub(super) use limited::limited;

/// Touches per row with short windows; with a long window, one read covers many.
const NR_SHORT: u64 = 150;
const NR_LONG: u64 = 40;
/// The longest short window, in KiB.
const SHORT_KB: u64 = 128;

/// A workload without its filesystem and window.
#[derive(Clone, Debug)]
pub(super) struct Row {
    prot: String,
    advice: String,
    pattern: String,
    seed: u64,
    pub(super) settings: Vec<(&'static str, String)>,
}

impl Row {
    fn new(prot: &str, advice: &str, pattern: &str) -> Self {
        let (prot, advice, pattern) = (prot.to_owned(), advice.to_owned(), pattern.to_owned());
        Self { prot, advice, pattern, seed: 0, settings: Vec::new() }
    }

    /// Touches through a mapping: shared if only read, else private.
    fn touches(prot: &str, advice: &str, pattern: &str, n: u64) -> Self {
        let share = if prot == "r" { "shared" } else { "private" };
        Self::new(prot, advice, pattern)
            .with("prot", prot)
            .with("map", share)
            .with("advice", advice)
            .with("pattern", pattern)
            .with("n", n)
            .seed(0)
    }

    fn reads(pattern: &str, n: u64) -> Self {
        let row = Self::new("read", "plain", pattern).with("map", "none");
        row.with("pattern", pattern).with("n", n).seed(0)
    }

    /// An explicit list of actions; shared unless executed.
    fn actions(name: &str, prot: &str, advice: &str, ops: &str) -> Self {
        let share = if matches!(prot, "rx" | "rxc") { "private" } else { "shared" };
        Self::new(prot, advice, name)
            .with("prot", prot)
            .with("map", share)
            .with("advice", advice)
            .with("pattern", "ops")
            .with("ops", ops)
    }

    fn with(mut self, key: &'static str, value: impl Display) -> Self {
        self.settings.retain(|(known, _)| *known != key);
        self.settings.push((key, value.to_string()));
        self
    }

    fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self.with("seed", seed)
    }

    fn named(mut self, pattern: &str) -> Self {
        pattern.clone_into(&mut self.pattern);
        self
    }

    /// Sets fault-around to one page.
    fn around_off(mut self, page: u64) -> Self {
        self.advice = self.advice.replace("plain", "around").replace("huge", "aroundhuge");
        self.with("around", page)
    }

    /// Returns `PROT_ADVICE_PATTERN_sSEED`.
    pub(super) fn label(&self) -> String {
        format!("{}_{}_{}_s{}", self.prot, self.advice, self.pattern, self.seed)
    }
}

/// The grid of protections, advices and patterns; shorter for long windows.
pub(super) fn mapped(window_kb: u64) -> Vec<Row> {
    let is_short = window_kb <= SHORT_KB;
    let n = if is_short { NR_SHORT } else { NR_LONG };
    let mut rows = Vec::new();
    for prot in ["r", "rx"] {
        for pattern in ["seq", "mid1001", "stride7", "back"] {
            rows.push(Row::touches(prot, "plain", pattern, n));
        }
        let nr_random = if is_short { 40 } else { 15 };
        rows.push(Row::touches(prot, "plain", "rand", nr_random).seed(1));
        rows.push(Row::touches(prot, "plain", "rand", n).seed(11).with("file", "holes"));
        rows.push(Row::touches(prot, "huge", "stride999", 12));
        rows.push(Row::touches(prot, "huge", "seq", 60));
        rows.push(Row::touches(prot, "random", "rand", 40).seed(2));
        rows.push(Row::touches(prot, "seq", "mid1001", 60));
        rows.push(Row::touches(prot, "seq", "rand", 30).seed(3));
    }
    rows
}

/// Pages inside and at the edge of the range cached by eight 1 MiB writes.
fn written(page: u64) -> String {
    let [inner, edge] = match page {
        4096 => [300, 900],
        16384 => [300, 500],
        _ => [75, 125],
    };
    format!("s0.0+1048576x8,t{inner},p,t{},t{edge},p", inner + 1)
}

/// Written, not dropped: inner folios of large order, no markers.
fn written_row(prot: &str, file: &str, page: u64) -> Row {
    let name = if prot == "r" { "written" } else { "written-rx" };
    Row::actions(name, prot, "plain", &written(page))
        .with("file", file)
        .with("settle", 20_000)
        .with("pages", 2048)
}

/// Recorded with the 128 KiB window only.
pub(super) fn special(page: u64) -> Vec<Row> {
    let plain = |prot, pattern, n| Row::touches(prot, "plain", pattern, n);
    let mut private = plain("rw", "stride7", 60).with("map", "private");
    "rwp".clone_into(&mut private.prot);
    let mut rows = vec![
        plain("rxc", "stride7", 60),
        plain("r", "two", 120),
        plain("r", "two3", 80),
        plain("r", "hot", 150).seed(4),
        plain("rx", "hot", 150).seed(4),
        plain("r", "stride64", 160),
        plain("rx", "stride64", 160),
        Row::touches("r", "huge", "stride64", 160),
        Row::touches("r", "hugerandom", "stride999", 12),
        Row::touches("rx", "hugeseq", "stride999", 12),
        Row::touches("r", "nohuge", "stride7", 60),
        plain("rw", "stride7", 60),
        private,
    ];
    rows.extend(["r", "rx"].into_iter().flat_map(parts));
    rows.extend(scripts(page));
    rows
}

/// Unaligned parts of the file, and ends of files.
fn parts(prot: &str) -> Vec<Row> {
    let plain = |pattern, n| Row::touches(prot, "plain", pattern, n);
    let huge = |pattern, n| Row::touches(prot, "huge", pattern, n);
    let part = |row: Row, first: u64, pages: u64| row.with("first", first).with("pages", pages);
    let mut rows = vec![
        part(plain("seq", 120).named("part"), 10, 64),
        part(plain("stride7", 100).named("part7"), 333, 601).with("skew", 3),
        part(huge("stride999", 12).named("parthuge").with("file", "holes"), 700, 3000),
    ];
    for file in ["odd", "tail"] {
        for pattern in ["seq", "back", "stride7"] {
            let row = plain(pattern, 120).named(&format!("{file}-{pattern}"));
            rows.push(row.with("file", file));
        }
        let row = huge("stride7", 60).named(&format!("{file}-stride7"));
        rows.push(row.with("file", file));
    }
    rows
}

fn scripts(page: u64) -> Vec<Row> {
    let script = |name, ops: &str| Row::actions(name, "r", "plain", ops);
    let lastpmd_read = "b0.0+1048576x4,b0.0+4096x4/1,t0,t600,p";
    let small = "s0.0+5000x20,s40.100+70000x5,s200.0+16384x4,s333.0+12288x3,t3,t50,t205,p";
    let mut rows = ends_in_a_folio().to_vec();
    rows.extend([
        Row::actions("lastpmd", "r", "huge", "t0,t600,p").with("file", "exact"),
        script("lastpmd-read", lastpmd_read).with("file", "exact").with("opens", 2),
        written_row("r", "made0", page),
        written_row("rx", "made1", page),
        script("writes", small).with("file", "made2").with("pages", 512),
        script("willneed", "a:willneed/0,t5,t90,t3000,p").with("pages", 4000),
        script("opens", "b0.0+4096x12,b12.0+4096/1,b16.0+4096x3/1,b12.0+4096x4").with("opens", 2),
        Row::touches("r", "plain", "seq", 100)
            .named("maps")
            .with("opens", 2)
            .with("also", "rx,private,plain,1,0,4000"),
        Row::touches("r", "plain", "rand", 100)
            .seed(5)
            .named("mapsone")
            .with("also", "rx,private,plain,0,0,9000"),
        script("advised", "t0,a:random/0,t100,t101,a:seq/0,t200x4,a:normal/0,t300x40"),
        script("readmap", "b0.0+4096x20,t0x80,b100.0+65536x3,t120x30"),
    ]);
    rows
}

fn ends_in_a_folio() -> [Row; 2] {
    [("eof12", "p12"), ("eof13", "p13")].map(|(name, file)| {
        Row::actions(name, "r", "plain", "b0.0+4096,b1.0+4096,t4,p,t11").with("file", file)
    })
}

pub(super) fn around_off(page: u64) -> Vec<Row> {
    let rows = [
        Row::touches("r", "plain", "stride64", 160),
        Row::touches("rx", "plain", "stride64", 160),
        Row::touches("r", "plain", "seq", 100),
        Row::touches("rx", "plain", "mid1001", 100),
        Row::touches("r", "huge", "stride999", 12),
        Row::actions("lastpmd", "r", "huge", "t0,t600,p").with("file", "exact"),
        written_row("r", "made3", page),
        written_row("rx", "made4", page),
        Row::touches("r", "plain", "stride7", 60),
    ];
    rows.into_iter().map(|row| row.around_off(4096)).collect()
}

/// More than a hundred cold forced windows, on a file of holes.
pub(super) fn gates() -> Vec<Row> {
    let of = |prot| {
        [
            Row::touches(prot, "hugerandom", "stride512", 120).with("file", "sparse"),
            Row::touches(prot, "huge", "stride1024", 79).with("file", "sparse"),
        ]
    };
    ["r", "rx"].into_iter().flat_map(of).collect()
}

/// On a filesystem without large folios.
pub(super) fn without_large_folios(page: u64) -> Vec<Row> {
    let of = |prot| {
        [
            Row::touches(prot, "plain", "mid1001", 100),
            Row::touches(prot, "plain", "seq", 100),
            Row::touches(prot, "plain", "rand", 60).seed(8),
            Row::touches(prot, "huge", "stride999", 12),
            Row::touches(prot, "huge", "mid1001", 60),
            Row::touches(prot, "seq", "mid1001", 60),
        ]
    };
    let mut rows: Vec<Row> = ["r", "rx"].into_iter().flat_map(of).collect();
    rows.extend(ends_in_a_folio());
    rows.extend([Row::reads("read4096", 100), Row::reads("read1048576", 6)]);
    if page == 4096 {
        rows.push(refault(page));
    }
    rows
}

/// Sixty misses, four fault-arounds over refaulted pages, sixty misses (docs/behaviour B.5.8).
///
/// 256 KiB and then 16 MiB are read twice, so these pages are active. The older ones are reclaimed
/// and read again by exact reads, which leave no marker.
fn refault(page: u64) -> Row {
    let of_64k = 65536 / page;
    let (first, other, big) = (63 * of_64k, 320 * of_64k, 512 * of_64k);
    let twice = [
        format!("b{first}.0+131072"),
        format!("b{other}.0+{page}"),
        format!("b{}.0+131072", first + 2 * of_64k),
        format!("b{}.0+{page}", other + 40),
    ];
    let actives = format!("b{big}.0+65536x256");
    let miss = |nr: u64| format!("w{}", 12 * big / 8 + 3 * of_64k + 2 * of_64k * nr);
    let mut ops = [twice.clone(), twice.clone()].concat();
    ops.extend([actives.clone(), actives, "z".to_owned(), "m1048576".to_owned()]);
    ops.extend(twice);
    ops.push("z".to_owned());
    ops.extend((0..60).map(miss));
    ops.extend((0..4).map(|nr| format!("t{}/1", first + of_64k * nr)));
    ops.extend((60..120).map(miss));
    Row::actions("refault", "rw", "plain", &joined(ops))
        .with("also", format!("r,shared,plain,0,{first},{}", 4 * of_64k))
        .with("cgroup", "/cg/a")
}

/// The folio sizes that btrfs uses (docs/behaviour A.8).
pub(super) fn on_btrfs(window_kb: u64) -> Vec<Row> {
    if window_kb != SHORT_KB {
        return vec![Row::reads("read1048576", 8), Row::touches("r", "plain", "seq", 40)];
    }
    let of = |prot| {
        [
            Row::touches(prot, "plain", "seq", 100),
            Row::touches(prot, "plain", "stride7", 100),
            Row::touches(prot, "huge", "stride999", 12),
        ]
    };
    let rows = ["r", "rx"].into_iter().flat_map(of);
    rows.chain([Row::reads("read4096", 100), Row::reads("read1048576", 8)]).collect()
}

/// read(2): forwards, backwards, random, two streams on one descriptor and on two.
pub(super) fn reads(window_kb: u64) -> Vec<Row> {
    let mut rows = vec![
        Row::reads("read4096", 120),
        Row::reads("read65536", 40),
        Row::reads("read1048576", 6),
    ];
    if window_kb == SHORT_KB {
        rows.extend([
            Row::reads("readback4096", 60),
            Row::reads("readrand4096", 60).seed(6),
            Row::reads("readrand65536", 30).seed(7),
            Row::reads("readtwo4096", 120),
            Row::reads("readopens4096", 120).with("opens", 2),
            Row::reads("read6000", 80),
            Row::reads("read4096", 80).seed(9).with("file", "odd"),
            Row::reads("read65536", 60).seed(9).with("file", "tail"),
        ]);
    }
    rows
}

/// With a window of 8 MiB a few calls read the whole file.
pub(super) fn long_window() -> Vec<Row> {
    vec![
        Row::touches("r", "plain", "seq", 20),
        Row::touches("rx", "plain", "rand", 5).seed(1),
        Row::reads("read4096", 60),
        Row::reads("read1048576", 8),
    ]
}

pub(super) fn no_window() -> Vec<Row> {
    vec![Row::touches("rx", "plain", "stride7", 12)]
}

/// Windows of two pages (docs/behaviour A.5.1).
pub(super) fn short_windows() -> Vec<Row> {
    vec![
        Row::touches("r", "plain", "seq", 40),
        Row::touches("r", "plain", "mid1001", 40),
        Row::touches("rx", "plain", "seq", 40),
        Row::reads("read4096", 60),
    ]
}

/// Each one distinguishes two rules that no other workload does.
pub(super) fn decisive(page: u64) -> Vec<Row> {
    let window = 128 * 1024 / page;
    // A.4.6: a read of M - 1 pages after M cached ones: random, or the start of a stream.
    let reads_at = [(10 * window, window), (99 * window, 1), (11 * window, window - 1)];
    let backfull = joined(reads_at.iter().map(|(at, nr)| format!("b{at}.0+{}", nr * page)));
    let backfull = Row::new("read", "plain", "backfull")
        .with("map", "none")
        .with("pattern", "ops")
        .with("ops", backfull);
    // B.6.3: a PMD folio through a mapping without advice.
    let pmd = page / 8;
    let nohugepmd = Row::actions("nohugepmd", "r", "huge", "t0,t5/1,p/1")
        .with("also", format!("r,shared,nohuge,0,0,{}", 2 * pmd));
    let mut rows = vec![backfull, nohugepmd, markers(page)];
    // A PMD folio of 64K pages is larger than the file.
    rows.extend((page <= 16384).then(|| eof_guard(page)));
    rows
}

/// Repeatedly touches cached pages. The miss counter follows the documented rule only with classic
/// LRU lists, not with multi-generational LRU and 16K pages (docs/differences.md).
pub(in crate::crosscheck::record) const OF_LISTS: &str = "eofguard";

/// B.5.6: sixty misses, the last PMD folio of the file mapped seventy times, sixty misses. If
/// fault-around leaves that folio to the handler, the counter drops by the first misses.
fn eof_guard(page: u64) -> Row {
    let (window, pmd) = (128 * 1024 / page, page / 8);
    let data = files(Filesystem::Ext4, page).first().map_or(0, |file| file.bytes);
    let last = data / page - pmd;
    let misses = |range: std::ops::Range<u64>| {
        range.map(|nr| format!("w{}", window / 2 + 2 * window * nr)).collect::<Vec<_>>()
    };
    let touch = format!("t{}/1", last + 300);
    let again = (0..70).flat_map(|_| ["a:dontneed/1".to_owned(), touch.clone()]);
    let ops = misses(0..60).into_iter().chain([touch.clone()]).chain(again);
    Row::actions(OF_LISTS, "rw", "plain", &joined(ops.chain(misses(60..120))))
        .with("also", format!("r,shared,huge,0,{last},{pmd}"))
}

/// B.3.1.1: two misses and one marker hit per round, without fault-around. A retried marker hit
/// takes both misses back.
fn markers(page: u64) -> Row {
    let window = 128 * 1024 / page;
    let round =
        |nr: u64| [window / 2, 3 * window / 4, 5 * window / 2].map(|at| 3 * window * nr + at);
    let touches = (0..110).flat_map(round).map(|at| format!("t{at}"));
    Row::actions("markers", "r", "plain", &joined(touches)).around_off(4096)
}

/// Two misses and one hit on a page in flight per round, without fault-around (B.3).
///
/// The window contains a page that was read before, so it takes two requests, and the miss waits
/// only for the first. The ten initial misses use up the burst that the slow disk allows.
pub(super) fn in_flight(page: u64) -> Row {
    let window = 256 * 1024 / page;
    let middle = |nr: u64| window * nr + window / 2;
    let mut ops: Vec<String> = (0..10).map(|nr| format!("t{}", middle(nr))).collect();
    for nr in (10..230).step_by(2) {
        let at = middle(nr);
        ops.push(format!("b{}.0+{page}", at + 5 * window / 16));
        ops.push(format!("t{at}"));
        ops.push(format!("t{}", at + window / 2 - 1));
        ops.push(format!("t{}", middle(nr + 1)));
    }
    Row::actions("inflight", "r", "plain", &joined(ops)).around_off(4096).with("settle", 0)
}

fn joined(ops: impl IntoIterator<Item = String>) -> String {
    ops.into_iter().collect::<Vec<_>>().join(",")
}

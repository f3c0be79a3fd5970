//! Workloads that use more memory than their cgroup's limit.
//!
//! The file is a hole, so no page ever has to be waited for: a folio in flight is locked, and
//! timing would decide whether reclaim skips it.

use super::super::{Filesystem, MIB};
use super::Row;

/// The usual limit: 512 base pages. Reclaim takes 32 at a time.
const SMALL: u64 = 2 * MIB;
const LARGE: u64 = 4 * MIB;

pub(in super::super) fn limited(filesystem: Filesystem) -> Vec<(u64, Row)> {
    let mut rows = by_calls();
    rows.extend(by_touches());
    if filesystem != Filesystem::Ext4Encrypt {
        let huge = Row::touches("r", "huge", "stride300", 40).named("huge");
        rows.push((128, limit(huge, 8 * MIB)));
    }
    rows.into_iter().map(|(window_kb, row)| (window_kb, on_holes(row))).collect()
}

/// read(2): once, repeatedly, hot pages mixed with scans, and with writes.
fn by_calls() -> Vec<(u64, Row)> {
    let small = |row| (128, limit(row, SMALL));
    let large = |row| (128, limit(row, LARGE));
    let single = |pattern, span: u64| {
        Row::reads(pattern, 1500).with("fadvise", "random").with("span", span).seed(1)
    };
    let (hot, fits) = (read(0, 14), read(0, 28));
    let fit = [&fits, &fits, &read(1024, 40), &fits, &fits, &read(2048, 40), &fits];
    let scan = [&hot, &hot, &read(512, 50), &hot, &read(2048, 50), &hot, &read(4096, 50), &hot];
    let twice = (0..50).flat_map(|k| [read(32 * k % 1024, 2), read(32 * k % 1024, 2)]);
    let often = (0..60).flat_map(|k| (0..=k % 4).map(move |_| read(16 * k % 800, 1)));
    // Write to every other folio of 64 KiB: too little to start the flusher.
    let written = (0..8).flat_map(|k| [format!("s{}.0+8192", 32 * k), read(16 * k, 1)]);
    let written = written.chain([read(1024, 30), read(0, 16), read(2048, 30), read(0, 16)]);
    vec![
        large(Row::reads("read16384", 600).named("seq").with("span", 4096)),
        large(Row::reads("readcycle65536", 160).named("cycle").with("span", 1536)),
        small(listed("fit", fit.into_iter().cloned())),
        small(single("readrand4096", 800).named("rand")),
        small(single("readhot4096", 4096).named("hot").with("hot", 350)),
        small(listed("scan", scan.into_iter().cloned())),
        small(listed("twice", twice)),
        small(listed("often", often)),
        small(listed("written", written)),
        (2048, limit(Row::reads("readcycle262144", 100).named("window").with("span", 3072), LARGE)),
        (
            512,
            limit(Row::reads("readcycle262144", 300).named("big").with("span", 12_288), 8 * LARGE),
        ),
    ]
}

/// Mapped pages: executable or not, single pages and fault-around, stores to private pages (without
/// swap) and to the file.
fn by_touches() -> Vec<(u64, Row)> {
    let around = |row| (128, limit(row, SMALL));
    // Without a window, a fault reads only its own page.
    let alone = |row| (0, limit(row, SMALL));
    let touches =
        |prot, pattern, n, span: u64| Row::touches(prot, "plain", pattern, n).with("span", span);
    let hot = |prot| touches(prot, "hot", 1500, 4096).with("hot", 350).seed(3);
    let scan = "t0x200,t0x200,b1024.0+65536x50,t0x200,b3072.0+65536x50,t0x200";
    let stores = "w0x100,t1000x450,t1000x450,w0x100,t2000x200";
    // Dirty file pages between clean ones: too few to start the flusher.
    let dirty = (0..24).map(|k| format!("w{},t{}x9", 10 * k, 10 * k + 1)).collect::<Vec<_>>();
    let dirty = dirty.join(",") + ",t1000x450,t0x240,t2000x450,w5x3,t3000x300";
    vec![
        around(touches("r", "cycle", 1500, 700)),
        around(touches("rx", "cycle", 1500, 700)),
        around(Row::touches("r", "random", "rand", 1300).with("span", 800).seed(2)),
        alone(touches("r", "rand", 1300, 800).seed(4)),
        (128, limit(touches("r", "rand", 400, 2048).seed(3).named("around"), LARGE)),
        alone(hot("r")),
        alone(hot("rx")),
        alone(Row::actions("scan", "rx", "plain", scan)),
        (2048, limit(touches("r", "cycle", 600, 3072).named("window"), LARGE)),
        around(Row::actions("cow", "rw", "random", stores).with("map", "private")),
        alone(Row::actions("dirty", "rw", "random", &dirty)),
    ]
}

/// Reads 64 KiB `nr` times, starting at this page.
fn read(page: u64, nr: u64) -> String {
    format!("b{page}.0+65536x{nr}")
}

fn listed(name: &str, reads: impl Iterator<Item = String>) -> Row {
    let ops = reads.collect::<Vec<_>>().join(",");
    Row::new("read", "plain", name).with("map", "none").with("pattern", "ops").with("ops", ops)
}

fn limit(row: Row, bytes: u64) -> Row {
    row.with("limit", bytes)
}

fn on_holes(mut row: Row) -> Row {
    row.pattern = format!("limit-{}", row.pattern);
    row.with("file", "holes").with("io", "within").with("settle", 100)
}

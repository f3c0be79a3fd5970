//! Tests the generators: their events, that these are the same everywhere, and which options are
//! rejected.

use std::collections::BTreeSet;

use super::common::read;
use largefolio_trace::event::{map_of, prot_of};
use largefolio_trace::generate::{
    Advice, BASE, GenerateError, RandomReads, ReadWay, RetStubs, SequentialReads, Server,
    Snapshots, SweepOrder, Workload, ZipfMix,
};
use largefolio_trace::{Event, Op, Reader};

fn fingerprint(workload: &impl Workload) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for event in workload.events().unwrap() {
        let file = u64::from(event.file.map_or(u32::MAX, |file| file));
        let first = [u64::from(event.thread), event.op as u64, event.addr, event.len];
        for number in first.into_iter().chain([event.pos, event.aux, event.flags.into(), file]) {
            for byte in number.to_le_bytes() {
                hash = (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3);
            }
        }
    }
    hash
}

fn stubs() -> RetStubs {
    RetStubs { nr_pages: 64, nr_calls: 100, ..RetStubs::default() }
}

fn mix() -> ZipfMix {
    ZipfMix { nr_runs: 5000, ..ZipfMix::default() }
}

fn random_reads() -> RandomReads {
    RandomReads { file_bytes: 1 << 20, nr_reads: 200, ..RandomReads::default() }
}

fn snapshots() -> Snapshots {
    Snapshots { anon_bytes: 1 << 20, ..Snapshots::default() }
}

fn server() -> Server {
    Server {
        heap_bytes: 1 << 20,
        nr_requests: 300,
        nr_requests_per_worker: 20,
        ..Server::default()
    }
}

fn database() -> Server {
    Server { shared_bytes: 1 << 20, ..server() }
}

#[test]
fn every_process_is_forked_before_it_does_something_and_ends_once() {
    let pairs = [
        (snapshots().events().unwrap(), 3),
        (server().events().unwrap(), 8 + 300 / 20 - 4),
        (database().events().unwrap(), 8 + 300 / 20 - 4),
    ];
    for (events, nr_min) in pairs {
        let mut alive = BTreeSet::from([0]);
        let mut nr_forked = 0;
        for event in &events {
            assert!(alive.contains(&event.thread), "{event:?}");
            match event.op {
                Op::Fork => {
                    nr_forked += 1;
                    assert!(alive.insert(event.aux as u32), "{event:?}");
                }
                Op::Exit => assert!(alive.remove(&event.thread), "{event:?}"),
                _ => {}
            }
        }
        assert!(nr_forked >= nr_min && alive.is_empty(), "{nr_forked} {alive:?}");
    }
}

#[test]
fn a_snapshot_reads_every_page_and_the_parent_writes_its_share() {
    let events = snapshots().events().unwrap();
    let nr = |op, of: fn(u32) -> bool| events.iter().filter(|e| e.op == op && of(e.thread)).count();
    assert_eq!(nr(Op::Read, |thread| thread > 0), 3 * 256);
    assert_eq!(nr(Op::Write, |thread| thread == 0), 256 + 3 * 2 * 51);
}

fn sweep(stubs: &RetStubs) -> Vec<u64> {
    let calls = stubs.events().unwrap().into_iter().filter(|event| event.op == Op::Exec);
    calls.map(|call| (call.addr - BASE) / stubs.stub_bytes).take(stubs.nr_pages as usize).collect()
}

#[test]
fn the_same_seed_gives_the_same_events_as_ever() {
    let found = [
        fingerprint(&stubs()),
        fingerprint(&RetStubs { advice: Advice::HugePage, seed: 2, ..stubs() }),
        fingerprint(&random_reads()),
        fingerprint(&SequentialReads::default()),
        fingerprint(&mix()),
        fingerprint(&snapshots()),
        fingerprint(&server()),
    ];
    let expected = [
        0x4f15_d251_9373_58cd,
        0x0a62_f3fe_421e_a07f,
        0x0831_a732_2c63_857e,
        0x81e9_fcac_3a79_e622,
        0xc133_1641_0de7_54c5,
        0x2089_3ea8_4717_2669,
        0x7ee9_9167_6107_4ef8,
    ];
    assert_eq!(found, expected, "old seeds must reproduce old results");
}

#[test]
fn another_seed_gives_other_events() {
    assert_ne!(fingerprint(&stubs()), fingerprint(&RetStubs { seed: 2, ..stubs() }));
    assert_ne!(fingerprint(&mix()), fingerprint(&ZipfMix { seed: 2, ..mix() }));
}

#[test]
fn every_workload_is_a_trace() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t.folio");
    let all: [Box<dyn Workload>; 6] = [
        Box::new(snapshots()),
        Box::new(server()),
        Box::new(stubs()),
        Box::new(mix()),
        Box::new(random_reads()),
        Box::new(SequentialReads { way: ReadWay::Mapped, ..SequentialReads::default() }),
    ];
    for workload in all {
        let summary = workload.write(&path).unwrap();
        let events = workload.events().unwrap();
        assert_eq!(summary.nr_rows, events.len() as u64);
        assert!(read(&path).unwrap() == events);
        let meta = Reader::open(&path).unwrap().meta().clone();
        assert!(meta.recorder.starts_with("generator "));
        assert_eq!(meta.command[..3], ["folio", "trace", "gen"]);
        assert!(meta.seed.is_some() && meta.files.iter().all(|file| file.filesystem == "ext4"));
    }
}

#[test]
fn the_command_is_the_line_that_generates_the_trace() {
    let line = |workload: &dyn Workload| workload.meta().command.join(" ");
    assert_eq!(
        line(&RetStubs { advice: Advice::HugePage, ..stubs() }),
        "folio trace gen ret-stubs --pages 64 --stub-size 4096 --order random --calls 100 \
         --advice hugepage --seed 1"
    );
    let reads = SequentialReads { way: ReadWay::Mapped, ..SequentialReads::default() };
    assert_eq!(
        line(&SequentialReads { filesystem: "xfs".to_owned(), ..reads }),
        "folio trace gen sequential --file-size 268435456 --read-size 131072 --mapped --fs xfs"
    );
    assert_eq!(
        line(&random_reads()),
        "folio trace gen random --file-size 1048576 --read-size 4096 --reads 200 --seed 1"
    );
    assert_eq!(
        line(&mix()),
        "folio trace gen zipf --files 4 --file-size 33554432 --anon-size 67108864 --runs 5000 \
         --run-max 20 --exec-percent 50 --write-percent 33 --anon-percent 80 --seed 1"
    );
}

#[test]
fn a_sweep_calls_every_stub_once_in_its_order() {
    let forward: Vec<_> = (0..64).collect();
    assert_eq!(sweep(&RetStubs { order: SweepOrder::Sequential, ..stubs() }), forward);
    let backward = sweep(&RetStubs { order: SweepOrder::Backward, ..stubs() });
    assert!(backward.iter().rev().eq(&forward));
    let random = sweep(&stubs());
    assert_ne!(random, forward);
    assert_eq!(random.iter().collect::<BTreeSet<_>>().len(), 64);
}

#[test]
fn stubs_are_mapped_as_text_at_512_mib() {
    let stubs = RetStubs { stub_bytes: 65536, advice: Advice::HugePage, ..stubs() };
    let events = stubs.events().unwrap();
    let [open, mmap, advice, first, ..] = events[..] else { panic!("a setup and a call") };
    assert_eq!((open.op, open.file), (Op::Open, Some(0)));
    assert_eq!((mmap.op, mmap.len, mmap.file), (Op::Mmap, 64 << 16, Some(0)));
    assert_eq!((prot_of(mmap.flags), map_of(mmap.flags)), (5, 2));
    assert!(mmap.addr.is_multiple_of(512 << 20));
    assert_eq!((advice.op, advice.addr, advice.len, advice.aux), (Op::Madvise, BASE, 64 << 16, 14));
    assert!(first.addr.is_multiple_of(65536) && first.len == 1);
    assert_eq!(stubs.meta().files[0].size_bytes, 64 << 16);
}

#[test]
fn sequential_reads_cover_the_file_once() {
    let reads = SequentialReads { file_bytes: 40960, read_bytes: 12000, ..Default::default() };
    let is_read = |event: &Event| event.op == Op::Pread;
    let pieces: Vec<_> = reads.events().unwrap().into_iter().filter(is_read).collect();
    let ranges: Vec<_> = pieces.iter().map(|piece| (piece.pos, piece.len)).collect();
    assert_eq!(ranges, [(0, 12000), (12000, 12000), (24000, 12000), (36000, 4960)]);
    let mapped = SequentialReads { way: ReadWay::Mapped, read_bytes: 8192, ..reads };
    let pages = mapped.events().unwrap().into_iter().filter(|event| event.op == Op::Read);
    assert!(pages.map(|page| (page.addr - BASE) / 4096).eq(0..10));
}

#[test]
fn a_mix_is_hot_at_few_pages_and_keeps_its_shares() {
    let events = ZipfMix { nr_runs: 100_000, ..ZipfMix::default() }.events().unwrap();
    let count = |op| events.iter().filter(|event| event.op == op).count();
    assert!((49_000..51_000).contains(&count(Op::Exec)));
    assert!((15_500..17_500).contains(&count(Op::Write)));
    let text: Vec<_> = events.iter().filter(|event| event.op == Op::Exec).collect();
    let distinct = text.iter().map(|event| event.addr).collect::<BTreeSet<_>>().len();
    assert!(distinct < 8192 && distinct > 2000, "{distinct} of 8192 pages of text are touched");
    let mean = text.iter().map(|event| event.len).sum::<u64>() as f64 / text.len() as f64;
    assert!((10.0..11.0).contains(&mean), "runs of 1 to 20 are 10.5 long, not {mean}");
}

#[test]
fn options_out_of_range_are_named() {
    let option_of = |workload: &dyn Workload| match workload.events() {
        Err(GenerateError::Option { option, .. }) => option,
        other => panic!("refused, not {:?}", other.map(|events| events.len())),
    };
    assert_eq!(option_of(&RetStubs { nr_pages: 0, ..stubs() }), "nr_pages");
    assert_eq!(option_of(&RetStubs { nr_pages: u64::MAX, ..stubs() }), "nr_pages");
    assert_eq!(option_of(&RetStubs { stub_bytes: 5000, ..stubs() }), "stub_bytes");
    assert_eq!(option_of(&RetStubs { stub_bytes: 1 << 63, ..stubs() }), "stub_bytes");
    assert_eq!(option_of(&RandomReads { file_bytes: 5000, ..random_reads() }), "file_bytes");
    assert_eq!(option_of(&RandomReads { read_bytes: 0, ..random_reads() }), "read_bytes");
    let large = RandomReads { read_bytes: 3 << 30, file_bytes: 8 << 30, ..random_reads() };
    assert_eq!(option_of(&large), "read_bytes");
    assert_eq!(option_of(&SequentialReads { file_bytes: 0, ..Default::default() }), "file_bytes");
    assert_eq!(option_of(&ZipfMix { nr_files: 65, ..mix() }), "nr_files");
    assert_eq!(option_of(&ZipfMix { run_max: 0, ..mix() }), "run_max");
    assert_eq!(option_of(&ZipfMix { exec_percent: 101, ..mix() }), "exec_percent");
    let error = RetStubs { nr_pages: 0, ..stubs() }.validate().unwrap_err();
    assert_eq!(error.to_string(), "nr_pages is 0: it must be from 1 to 67108864");
}

//! Valid files with absurd programs: a replay returns a result or an error, and terminates.

#![expect(clippy::unwrap_used, reason = "a trace that cannot be made fails the test")]

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, ReplayError, replay};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::generate::Rng;
use largefolio_trace::{
    Event, Execution, FileInfo, Image, LayoutEntry, LayoutKind, Meta, Op, Writer,
};

/// Rounds of the test; `LARGEFOLIO_FUZZ_ROUNDS` sets another number.
const ROUNDS: u64 = 150;

fn pick<T: Copy>(rng: &mut Rng, from: &[T]) -> T {
    from[usize::try_from(rng.below(from.len() as u64)).unwrap()]
}

fn number(rng: &mut Rng) -> u64 {
    const EDGES: [u64; 12] = [
        0,
        1,
        4095,
        4096,
        0x1_0000,
        0x20_0000,
        0x40_0000_0000,
        0x7fff_ffff_f000,
        1 << 47,
        1 << 48,
        1 << 62,
        u64::MAX - 4095,
    ];
    let edge = pick(rng, &EDGES);
    match rng.below(4) {
        0 => edge,
        1 => edge.wrapping_add(rng.below(0x10_0000)),
        2 => rng.below(0x100) << 12,
        _ => 0x40_0000_0000 + (rng.below(0x4000) << 12),
    }
}

fn event(rng: &mut Rng, nr_files: u32) -> Event {
    let mut event = Event::new(0, pick(rng, &Op::ALL));
    let odd = if rng.below(500) == 0 { u32::MAX } else { 1 };
    event.thread = pick(rng, &[0, 0, 0, 1, 2, odd]);
    (event.addr, event.len) = (number(rng), number(rng));
    (event.pos, event.aux) = (number(rng), pick(rng, &[0, 1, 2, 4, 14, 22, 0x1000, u64::MAX]));
    event.flags = match event.op {
        Op::Mmap => {
            mmap_flags(u32::try_from(rng.below(8)).unwrap(), pick(rng, &[1, 2, 0x12, 0x32]))
        }
        _ => pick(rng, &[0, 1, 2, 3]),
    };
    if event.op == Op::Execve {
        event.aux = rng.below(2);
    }
    let file = u32::try_from(rng.below(u64::from(nr_files))).unwrap();
    event.file = (rng.below(3) > 0).then_some(file);
    if event.op.is_reference() {
        event.addr &= !4095;
        event.len = 1 + rng.below(1000);
    }
    event
}

fn meta(rng: &mut Rng) -> Meta {
    let sizes = [0, 1, 4095, 1 << 20, 1 << 40, u64::MAX];
    let filesystems = ["xfs", "ext4", "tmpfs", ""];
    let mut ranges = || (0..rng.below(3)).map(|_| (number(rng), number(rng))).collect();
    let file = |size: &u64| FileInfo {
        path: "f".into(),
        size_bytes: *size,
        build_id: if size.is_multiple_of(2) { "ab".into() } else { String::new() },
        filesystem: filesystems[(size % 4) as usize].into(),
        holes: ranges(),
        exec_reads: ranges(),
        ..FileInfo::default()
    };
    let files: Vec<FileInfo> = sizes.iter().map(file).collect();
    let images: Vec<Image> =
        (0..2).map(|_| Image { layout: layout(rng), brk: number(rng) }).collect();
    let execs = (0..2).map(|image| Execution { command: Vec::new(), image }).collect();
    let (layout, brk) = (layout(rng), number(rng));
    Meta { links: true, files, layout, brk, images, execs, ..Meta::default() }
}

fn layout(rng: &mut Rng) -> Vec<LayoutEntry> {
    let mut layout = Vec::new();
    let mut addr = 0x40_0000_0000;
    for _ in 0..rng.below(8) {
        let len = pick(rng, &[1, 0x1000, 0x2345, 1 << 30, 1 << 50]);
        let file = (rng.below(2) > 0).then_some(pick(rng, &[0, 2, 3, 5]));
        let pos = pick(rng, &[0, 0x1000, 0x1234]);
        let prot = u32::try_from(rng.below(8)).unwrap();
        layout.push(LayoutEntry { addr, len, prot, file, pos, kind: pick(rng, &LayoutKind::ALL) });
        addr += len + 0x1000;
    }
    layout
}

fn specs() -> Vec<CellSpec> {
    [("6.1", "cascadelake"), ("6.18", "altra"), ("7.2+page=64K", "altra")]
        .into_iter()
        .map(|(kernel, machine)| {
            let kernel = Kernel::parse(kernel).unwrap();
            let mut spec = CellSpec::new(kernel, Machine::named(machine).unwrap());
            spec.ram_bytes = 64 << 20;
            spec
        })
        .collect()
}

#[test]
fn an_absurd_program_is_answered_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let rounds = std::env::var("LARGEFOLIO_FUZZ_ROUNDS").map_or(ROUNDS, |n| n.parse().unwrap());
    let (mut answered, mut refused) = (0, 0);
    for seed in 0..rounds {
        let mut rng = Rng::new(seed);
        let path = dir.path().join("absurd.folio");
        let meta = meta(&mut rng);
        let mut writer = Writer::create(&path, meta).unwrap();
        // Unannounced threads are refused; a few rows use one.
        for child in 1..=2 {
            let flags = u32::try_from(child % 2).unwrap();
            writer.push(Event { aux: child, flags, ..Event::new(0, Op::Fork) }).unwrap();
        }
        for _ in 0..rng.below(300) {
            let event = event(&mut rng, 6);
            if event.validate().is_ok() {
                writer.push(event).unwrap();
            }
        }
        writer.finish().unwrap();
        for spec in specs() {
            match replay(&path, &[spec], &mut |_| {}) {
                Ok(_) => answered += 1,
                Err(ReplayError::Trace(error)) => panic!("seed {seed}: not a trace: {error}"),
                Err(error) => {
                    refused += 1;
                    println!("seed {seed}: {error}");
                }
            }
        }
    }
    println!("{answered} answered, {refused} refused");
    assert!(answered > 0 && refused > 0, "both happen: {answered} answered, {refused} refused");
}

#[test]
fn kernels_and_machines_of_random_text_are_refused_with_a_word() {
    let mut rng = Rng::new(3);
    for _ in 0..3000 {
        let known = pick(&mut rng, &["6.12", "7.2+page=64K", "6.18+exec-window=2M", "altra"]);
        let mut bytes = known.as_bytes().to_vec();
        for _ in 0..=rng.below(3) {
            let at = usize::try_from(rng.below(bytes.len() as u64)).unwrap();
            bytes[at] = u8::try_from(rng.below(256)).unwrap();
        }
        let text = String::from_utf8_lossy(&bytes);
        if let Err(error) = Kernel::parse(&text) {
            assert!(error.to_string().len() > 10);
        }
        if let Err(error) = Machine::load(&text) {
            assert!(error.to_string().len() > 10);
        }
    }
}

/// 2^64 - `bytes`: byte 2^64 does not exist.
const fn below_end(bytes: u64) -> u64 {
    u64::MAX - bytes + 1
}

fn text(addr: u64, pos: u64) -> LayoutEntry {
    let kind = LayoutKind::Program;
    LayoutEntry { addr, len: 0x1000, prot: 5, file: Some(0), pos, kind }
}

/// Programs with a segment near the end of the address space, which the model places higher.
fn layouts_near_the_end() -> Vec<Vec<LayoutEntry>> {
    let bss = |bytes| LayoutEntry { file: None, prot: 3, ..text(below_end(bytes), 0) };
    vec![
        vec![text(1 << 32, 0), text(below_end(0x3000), 0x1000)],
        vec![text(1 << 32, 0), bss(0x3000)],
        vec![text(0x40_0000, 0), text(below_end(0x2000), 0x1000)],
        vec![text(0x40_0000, 0), bss(0x2000)],
    ]
}

/// Libraries whose segments end near the end of the address space, or whose file is read there.
fn libraries_near_the_end() -> Vec<Vec<Event>> {
    let map = |addr, len, pos, (prot, map)| {
        let flags = mmap_flags(prot, map);
        Event { addr, len, pos, flags, file: Some(1), ..Event::new(0, Op::Mmap) }
    };
    let base = 0x7000_0000_0000;
    let pos = below_end(0x2000);
    let read = Event { pos, len: 0x1000, file: Some(1), ..Event::new(0, Op::Pread) };
    vec![
        vec![
            map(base, 0x3000, 0, (1, 2)),
            map(base + 0x1000, 0x1000, 0x1000, (5, 0x12)),
            map(base + 0x2000, 0x1000, 0x2000, (1, 0x12)),
            read,
        ],
        vec![
            map(below_end(0x8000), 0x3000, 0, (1, 2)),
            map(below_end(0x1000), 0xfff, 0x1000, (5, 0x12)),
        ],
        vec![
            map(below_end(0x2000), 0x1fff, 0, (5, 2)),
            Event { addr: below_end(0x1000), len: 0xfff, ..Event::new(0, Op::Munmap) },
        ],
    ]
}

#[test]
fn what_passes_the_end_of_the_address_space_is_refused() {
    let plain = vec![text(0x40_0000, 0)];
    let of_layouts = layouts_near_the_end().into_iter().map(|layout| (layout, Vec::new()));
    let of_libraries = libraries_near_the_end().into_iter().map(|events| (plain.clone(), events));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("end.folio");
    for (layout, mut events) in of_layouts.chain(of_libraries) {
        events.push(Event::references(0, Op::Read, layout[0].addr, 1));
        let file = |path: &str| FileInfo {
            path: path.into(),
            size_bytes: 1 << 20,
            build_id: "ab".into(),
            filesystem: "xfs".into(),
            ..FileInfo::default()
        };
        let files = vec![file("/p"), file("/lib.so")];
        let mut writer = Writer::create(&path, Meta { files, layout, ..Meta::default() }).unwrap();
        writer.push_rows(&events).unwrap();
        writer.finish().unwrap();
        for linked in [None, Some("2M")] {
            let linked: Vec<_> = linked.iter().map(|text| text.parse().unwrap()).collect();
            for spec in specs() {
                let spec = CellSpec { linked: linked.clone(), ..spec };
                let (_, outcomes) = replay(&path, &[spec], &mut |_| {}).unwrap();
                assert_eq!(outcomes[0].faults.total, 1, "what fits is there: {events:?}");
            }
        }
    }
}

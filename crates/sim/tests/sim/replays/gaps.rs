//! Gaps, and files on several devices and filesystems.

use largefolio_mm::memory::{Config, Memory};
use largefolio_mm::rules::{Arch, OrderRange, Store};
use largefolio_mm::units::Order;
use largefolio_sim::gaps::GapKind;
use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::abi::{MAP_PRIVATE, PROT_READ};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Meta, Op, recorded};

use super::{ADDR, program_of};

const NR_PAGES: u64 = 256;

fn file(path: &str, filesystem: &str, disk: &str) -> FileInfo {
    FileInfo {
        path: path.into(),
        size_bytes: if path == "/bin/p" { 0x1000 } else { NR_PAGES * 4096 },
        filesystem: filesystem.into(),
        disk: disk.into(),
        ..FileInfo::default()
    }
}

/// Maps file `nr` (from 1) at an address of its own.
fn mapped(nr: u32) -> Event {
    let (addr, len) = (ADDR + (u64::from(nr) << 30), NR_PAGES * 4096);
    let flags = mmap_flags(PROT_READ, MAP_PRIVATE);
    Event { addr, len, flags, file: Some(nr), ..Event::new(0, Op::Mmap) }
}

fn load(nr: u32, page: u64, count: u64) -> Event {
    Event::references(0, Op::Read, ADDR + (u64::from(nr) << 30) + page * 4096, count)
}

fn outcome(
    kernel: &str,
    files: &[FileInfo],
    filesystem: Option<&str>,
    events: &[Event],
) -> Outcome {
    let names = recorded::ALL.iter().map(|(name, _)| (*name).to_owned());
    let (files, recorded) = (files.to_vec(), names.collect());
    let (_dir, path) = program_of(Meta { files, recorded, ..Meta::default() }, events);
    let kernel = Kernel::parse(kernel).unwrap();
    let mut spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
    spec.filesystem = filesystem.map(str::to_owned);
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

#[test]
fn references_to_a_filesystem_without_recordings_are_counted_and_change_nothing_else() {
    let files = [file("/bin/p", "ext4", ""), file("/q", "squashfs", ""), file("/r", "ext4", "")];
    let mut events = vec![mapped(1), mapped(2)];
    for round in 0..4 {
        events.push(Event::references(0, Op::Exec, 0x40_0000, 100));
        events.extend((0..3).map(|page| load(1, page, 7)));
        events.extend((0..3).map(|page| load(2, page + round, 5)));
    }
    events.push(Event { len: 4096, pos: 8192, file: Some(1), ..Event::new(0, Op::Pread) });
    events.push(Event { addr: ADDR, len: 4096, aux: 12, ..Event::new(0, Op::Madvise) });
    let counted = outcome("6.18", &files, None, &events);
    let found: Vec<_> = counted
        .gaps
        .iter()
        .map(|gap| (gap.kind, gap.what.as_str(), gap.nr_references, gap.nr_calls))
        .collect();
    let expected = [
        (GapKind::Filesystem, "squashfs", Some(4 * 3 * 7), Some(1)),
        (GapKind::Call, "madvise(MADV_MERGEABLE)", None, Some(1)),
    ];
    assert_eq!(found, expected);
    assert!(!counted.is_judged);
    // The same files without counting, on a filesystem with the same rules.
    let [uncounted, on_squashfs] =
        ["none", "squashfs"].map(|name| outcome("6.18", &files, Some(name), &events));
    assert_eq!((&uncounted.faults, &uncounted.tlb), (&on_squashfs.faults, &on_squashfs.tlb));
    assert_eq!(uncounted.reads.bytes, on_squashfs.reads.bytes);
    assert_eq!(uncounted.gaps.len(), 1);
    let covered = outcome("6.18", &files[..1], None, &[]);
    assert!(covered.is_judged && covered.gaps.is_empty(), "{:?}", covered.gaps);
}

#[test]
fn an_edited_kernel_keeps_the_gaps_of_an_unrecorded_one() {
    let row = outcome("6.6+thp=always", &[file("/bin/p", "ext4", "")], None, &[]);
    assert_eq!(row.gaps.len(), 1);
    assert_eq!((row.gaps[0].kind, row.gaps[0].what.as_str()), (GapKind::Kernel, "6.6"));
}

#[test]
fn each_file_has_the_window_of_its_device() {
    let files = [
        file("/bin/p", "ext4", "a"),
        file("/q", "ext4", "a"),
        file("/r", "ext4", "b"),
        file("/s", "ext4", "c"),
    ];
    let events =
        [mapped(1), mapped(2), mapped(3), load(1, 100, 1), load(2, 100, 1), load(3, 100, 1)];
    // Without the page that execve reads of the program.
    let read_kib = |kernel: &str| (outcome(kernel, &files, None, &events).reads.bytes >> 10) - 4;
    assert_eq!(read_kib("6.18+readahead=64K"), 3 * 64);
    assert_eq!(read_kib("6.18+readahead=64K+readahead-b=256K"), 64 + 256 + 64);
    assert_eq!(read_kib("6.18+readahead-b=256K+readahead=64K"), 3 * 64, "an edit of all devices");
    // A read call takes at most the device's largest I/O.
    let read = |file| Event { len: 1 << 20, file: Some(file), ..Event::new(0, Op::Pread) };
    let folios = |kernel: &str| {
        let row = outcome(kernel, &files, None, &[read(1), read(2)]);
        row.cached_bytes
            .iter()
            .filter(|(size, _)| **size == 4096)
            .map(|(_, bytes)| bytes)
            .sum::<u64>()
    };
    assert_ne!(folios("6.18"), folios("6.18+io-b=1M"));
    assert_eq!(folios("6.18"), folios("6.18+io-z=1M"));
}

#[test]
fn blocks_bound_the_orders_of_a_file() {
    let rules = Kernel::parse("6.18").unwrap().rules;
    let orders = |filesystem, block_bytes| {
        rules.order_range_of(Store { block_bytes, ..Store::of(filesystem) })
    };
    let range = |min, max| OrderRange { min: Order::new(min), max: Order::new(max) };
    assert_eq!(orders("xfs", 0), range(0, 9));
    assert_eq!(orders("xfs", 1024), range(0, 9));
    assert_eq!([orders("xfs", 16384), orders("xfs", 65536)], [range(2, 9), range(4, 9)]);
    assert_eq!([orders("ext4", 1024), orders("ext4", 4096)], [range(0, 9); 2]);
    assert_eq!([orders("erofs-compressed", 4096), orders("erofs", 4096)], [range(0, 9); 2]);
    for base in ["ext4-journal", "btrfs-compressed", "squashfs", "overlayfs", ""] {
        assert_eq!(orders(base, 4096), OrderRange::BASE, "{base}");
    }
    let with_64k = Kernel::parse("6.18+page=64K").unwrap().rules;
    let of_1k = with_64k.order_range_of(Store { block_bytes: 1024, ..Store::of("ext4") });
    assert_eq!(of_1k.max, Order::new(5), "11 + block bits - page bits");
}

/// An overlay maps the lower filesystem's file, but places it like any other mapping.
#[test]
fn a_file_below_an_overlay_has_its_filesystems_folios_but_no_alignment() {
    let rules = Kernel::parse("6.18").unwrap().rules;
    let mut memory = Memory::new(rules, &Config::new(Arch::X86_64)).unwrap();
    let plain = memory.add_stored_file(4 << 20, Store::of("ext4"));
    let below = Store { is_stacked: true, ..Store::of("ext4") };
    let below = memory.add_stored_file(4 << 20, below);
    let [plain, below] = [plain, below].map(|file| memory.core().mapping(file));
    assert_eq!(plain.orders, below.orders);
    assert!(plain.disk.places_aligned && !below.disk.places_aligned);
    assert_eq!(plain.disk.keeps_whole, below.disk.keeps_whole);
}

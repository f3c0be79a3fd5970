//! Every fault has exactly one kind, for all kinds of memory.

use largefolio_sim::kernel::Kernel;
use largefolio_sim::machine::Machine;
use largefolio_sim::replay::outcome::Faults;
use largefolio_sim::replay::{CellSpec, Outcome, replay};
use largefolio_trace::event::ExitKind;
use largefolio_trace::event::abi::{
    MAP_ANONYMOUS, MAP_HUGETLB, MAP_PRIVATE, PROT_READ, PROT_WRITE,
};
use largefolio_trace::event::mmap_flags;
use largefolio_trace::{Event, FileInfo, Op};

use super::{ADDR, HUGE, program, store};

const NR_PAGES: u64 = 2 * HUGE / 4096;

fn load(thread: u32, page: u64) -> Event {
    Event { op: Op::Read, ..store(thread, page) }
}

/// Loads and stores of private memory (file-backed and anonymous) and of huge pages, by a process
/// and its child.
fn events() -> Vec<Event> {
    let huge = ADDR + (1 << 30);
    let private = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS);
    let of_file = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE);
    let of_pool = mmap_flags(PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB);
    let file = ADDR + (1 << 31);
    let map = |addr, flags, file| {
        let len = 2 * HUGE;
        Event { addr, len, flags, file, ..Event::new(0, Op::Mmap) }
    };
    let at = |thread, op, addr| Event::references(thread, op, addr, 1);
    let mut events =
        vec![map(ADDR, private, None), map(file, of_file, Some(1)), map(huge, of_pool, None)];
    events.extend((0..NR_PAGES / 4).map(|page| load(0, page)));
    events.extend((0..NR_PAGES).map(|page| store(0, page)));
    events.extend((0..NR_PAGES).map(|page| at(0, Op::Read, file + page * 4096)));
    events.extend((0..NR_PAGES / 8).map(|page| at(0, Op::Write, file + page * 4096)));
    events.push(at(0, Op::Write, huge));
    events.push(Event { aux: 1, ..Event::new(0, Op::Fork) });
    events.extend((0..NR_PAGES).map(|page| store(1, page)));
    events.extend((0..NR_PAGES).map(|page| load(0, page)));
    events.push(at(1, Op::Write, huge));
    events.push(Event { flags: ExitKind::Process as u32, ..Event::new(1, Op::Exit) });
    events.extend((0..NR_PAGES).map(|page| store(0, page)));
    events.push(at(0, Op::Write, huge));
    events
}

fn outcome(kernel: &str, cgroups: &[&str]) -> Outcome {
    let file = |path: &str, size_bytes| FileInfo {
        path: path.into(),
        size_bytes,
        filesystem: "xfs".into(),
        ..FileInfo::default()
    };
    let (_dir, path) = program(vec![file("/bin/p", 0x1000), file("/data", 2 * HUGE)], &events());
    let kernel = Kernel::parse(&format!("{kernel}+hugepages.2048=8")).unwrap();
    let mut spec = CellSpec::new(kernel, Machine::named("cascadelake").unwrap());
    spec.cgroups = cgroups.iter().map(|text| text.parse().unwrap()).collect();
    spec.swap_bytes = 1 << 30;
    replay(&path, &[spec], &mut |_| {}).unwrap().1.remove(0)
}

#[test]
fn the_kinds_add_up_to_all_faults() {
    for kernel in
        ["6.1", "6.12", "6.18+reclaim.swap_device=zram", "7.2", "7.2+thp=always", "7.2+lru=lists"]
    {
        for cgroups in [&[][..], &["1M"]] {
            let faults = outcome(kernel, cgroups).faults;
            let Faults { total, major, around, finish, anon, zero_page, cow, .. } = faults;
            let Faults { wp_reuse, swap_in, hugetlb, .. } = faults;
            let of_files = around + finish;
            let kinds = [of_files, anon, zero_page, cow, wp_reuse, swap_in, hugetlb];
            assert_eq!(kinds.iter().sum::<u64>(), total, "{kernel} {cgroups:?}: {faults:?}");
            assert_eq!(swap_in > 0, !cgroups.is_empty(), "{kernel}: {faults:?}");
            assert!(major > 0 && cow > 0 && hugetlb == 3, "{kernel}: {faults:?}");
        }
    }
}

//! Tests random process lives against a naive model: live processes, and the pages of each space.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::sync::Arc;

use largefolio_trace::{Batch, Execution, ExitKind, FileInfo, Image, LayoutEntry, LayoutKind, Op};
use proptest::prelude::*;

use super::*;
use crate::kernel::Kernel;
use crate::machine::Machine;
use crate::replay::observers::programs::ProgramOutcome;
use crate::replay::program::images::Images;
use crate::replay::request::spec::CellSpec;

const TEXT: u64 = 0x40_0000;
const DATA: u64 = 0x80_0000;
const PAGE: u64 = 4096;
const NR_PAGES: u64 = 8;
const NR_PROGRAMS: u32 = 3;

#[derive(Clone, Copy, Debug)]
enum Step {
    Store(u64),
    Fetch(u64),
    Fork(u32),
    Execve(u32),
    Exit,
    /// A row of an ended thread is a stray.
    StoreOfEnded(u64),
}

fn steps() -> impl Strategy<Value = Vec<(usize, Step)>> {
    let page = 0..NR_PAGES;
    let step = prop_oneof![
        8 => page.clone().prop_map(Step::Store),
        4 => page.clone().prop_map(Step::Fetch),
        3 => prop_oneof![Just(0), Just(SHARES_MEMORY), Just(BORROWS_MEMORY)].prop_map(Step::Fork),
        2 => (0..NR_PROGRAMS).prop_map(Step::Execve),
        2 => Just(Step::Exit),
        1 => page.prop_map(Step::StoreOfEnded),
    ];
    proptest::collection::vec((any::<usize>(), step), 1..60)
}

/// Processes by thread, spaces by process, stored pages by space: sets, copied at a fork.
#[derive(Default)]
struct Naive {
    process_of: BTreeMap<u32, usize>,
    space_of: BTreeMap<usize, usize>,
    stored: BTreeMap<usize, BTreeSet<u64>>,
    ended: Vec<u32>,
    nr_threads: u32,
    nr_processes: usize,
    nr_spaces: usize,
    nr_alive_max: usize,
}

impl Naive {
    fn new() -> Self {
        let mut naive = Self::default();
        naive.begin(BTreeSet::new());
        naive
    }

    fn thread(&mut self, process: usize) -> u32 {
        self.nr_threads += 1;
        self.process_of.insert(self.nr_threads - 1, process);
        self.nr_threads - 1
    }

    fn process(&mut self, space: usize) -> u32 {
        self.nr_processes += 1;
        self.space_of.insert(self.nr_processes - 1, space);
        self.nr_alive_max = self.nr_alive_max.max(self.space_of.len());
        self.thread(self.nr_processes - 1)
    }

    fn space(&mut self, stored: BTreeSet<u64>) -> usize {
        self.nr_spaces += 1;
        self.stored.insert(self.nr_spaces - 1, stored);
        self.nr_spaces - 1
    }

    fn begin(&mut self, stored: BTreeSet<u64>) -> u32 {
        let space = self.space(stored);
        self.process(space)
    }

    fn leave_space(&mut self, process: usize) {
        let Some(space) = self.space_of.remove(&process) else { return };
        if !self.space_of.values().any(|&used| used == space) {
            self.stored.remove(&space);
        }
    }

    fn end_threads(&mut self, process: usize) {
        let of_process = self.process_of.extract_if(.., |_, of| *of == process);
        self.ended.extend(of_process.map(|(thread, _)| thread));
    }

    fn event(&mut self, pick: usize, step: Step) -> Option<Event> {
        let nr = pick.checked_rem(self.process_of.len())?;
        let (&thread, &process) = self.process_of.iter().nth(nr)?;
        let space = self.space_of[&process];
        Some(match step {
            Step::Store(page) => {
                self.stored.get_mut(&space)?.insert(page);
                Event::references(thread, Op::Write, DATA + page * PAGE, 3)
            }
            Step::Fetch(page) => Event::references(thread, Op::Exec, TEXT + page * PAGE, 5),
            Step::Fork(flags) => {
                let child = match flags {
                    SHARES_MEMORY => self.thread(process),
                    BORROWS_MEMORY => self.process(space),
                    _ => self.begin(self.stored[&space].clone()),
                };
                Event { aux: child.into(), flags, ..Event::new(thread, Op::Fork) }
            }
            Step::Execve(program) => {
                self.end_threads(process);
                self.ended.retain(|&ended| ended != thread);
                self.leave_space(process);
                let space = self.space(BTreeSet::new());
                self.space_of.insert(process, space);
                self.process_of.insert(thread, process);
                Event { aux: program.into(), ..Event::new(thread, Op::Execve) }
            }
            Step::Exit => {
                self.end_threads(process);
                self.leave_space(process);
                Event { flags: ExitKind::Process as u32, ..Event::new(thread, Op::Exit) }
            }
            Step::StoreOfEnded(page) => {
                let thread = *self.ended.get(pick.checked_rem(self.ended.len())?)?;
                Event::references(thread, Op::Write, DATA + page * PAGE, 3)
            }
        })
    }
}

fn layout(file: u32) -> Vec<LayoutEntry> {
    let (len, pos) = (NR_PAGES * PAGE, 0);
    let text =
        LayoutEntry { addr: TEXT, len, prot: 5, file: Some(file), pos, kind: LayoutKind::Program };
    let data = LayoutEntry { addr: DATA, prot: 3, file: None, kind: LayoutKind::Other, ..text };
    vec![text, data]
}

fn meta() -> Meta {
    let file = |nr: u32| FileInfo {
        path: format!("/bin/{nr}"),
        size_bytes: NR_PAGES * PAGE,
        filesystem: "xfs".into(),
        ..FileInfo::default()
    };
    Meta {
        files: (0..NR_PROGRAMS).map(file).collect(),
        layout: layout(0),
        images: (0..NR_PROGRAMS).map(|file| Image { layout: layout(file), brk: 0 }).collect(),
        execs: (0..NR_PROGRAMS).map(|image| Execution { command: Vec::new(), image }).collect(),
        ..Meta::default()
    }
}

fn mapped(cell: &Cell) -> Vec<u64> {
    let spaces = cell.program.spaces.iter().map(|(_, space)| {
        let mut sizes = FolioSizes::default();
        sizes.add_process(&cell.memory, space.mm);
        sizes.anon.mapped_bytes / PAGE
    });
    let mut pages: Vec<_> = spaces.collect();
    pages.sort_unstable();
    pages
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(5_000)))]

    #[test]
    fn lives_are_those_of_a_naive_model(
        steps in steps(),
        nr_cpus in 1..5_u32,
        is_arm in any::<bool>(),
    ) {
        let meta = Arc::new(meta());
        let (kernel, machine) = if is_arm { ("6.18", "altra") } else { ("6.12", "cascadelake") };
        let mut spec =
            CellSpec::new(Kernel::parse(kernel).unwrap(), Machine::named(machine).unwrap());
        spec.nr_cpus = Some(nr_cpus);
        let should_stop = &mut || ControlFlow::Continue(());
        let mut cell = Cell::new(&spec, &meta, &Images::default(), should_stop).unwrap();
        let mut naive = Naive::new();
        let mut batch = Batch::default();
        let (mut nr_references, mut nr_strays) = (0, 0);
        for (pick, step) in steps {
            let Some(event) = naive.event(pick, step) else { continue };
            match step {
                Step::Store(_) | Step::Fetch(_) => nr_references += event.len,
                Step::StoreOfEnded(_) => nr_strays += event.len,
                _ => {}
            }
            batch.clear();
            batch.push(&event);
            cell.replay(&batch).unwrap();
            cell.memory.validate().unwrap();
            let mut stored: Vec<_> =
                naive.stored.values().map(|pages| pages.len() as u64).collect();
            stored.sort_unstable();
            prop_assert_eq!(mapped(&cell), stored);
        }
        let nr_alive = cell.program.processes.iter().count();
        prop_assert_eq!(nr_alive, naive.space_of.len());
        cell.end_processes();
        cell.memory.validate().unwrap();
        let folios = cell.memory.core().folios.iter();
        prop_assert_eq!(folios.filter(|(_, folio)| folio.is_anon()).count(), 0);
        let outcome = cell.finish();
        prop_assert_eq!(outcome.strays.unmapped, nr_strays);
        let Some(processes) = outcome.processes else { return Ok(()) };
        prop_assert_eq!(processes.nr_started, naive.nr_processes as u64);
        prop_assert_eq!(processes.nr_alive_max, naive.nr_alive_max as u64);
        let sum =
            |of: fn(&ProgramOutcome) -> u64| processes.programs.iter().map(of).sum::<u64>();
        prop_assert_eq!(sum(|program| program.references), nr_references);
        prop_assert_eq!(sum(|program| program.faults), outcome.faults.total);
        let tlb = &outcome.tlb;
        prop_assert_eq!(sum(|program| program.instruction_walks), tlb.instruction.l2_misses);
        prop_assert_eq!(sum(|program| program.data_walks), tlb.data.l2_misses);
    }
}

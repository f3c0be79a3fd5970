//! Runs every interleaving of openers and collapsers with the model checker loom. The same
//! scenarios must also catch mutants of the protocol.
//!
//! The tested code is the one that ships: [`Gate`] over loom's atomics. A mutant replaces a fence
//! or reorders one side's steps.
//!
//! A file has two blocks. A collapser holds its block's lock from before C1 until the huge folio is
//! in the cache. An opener that must drop takes the locks one after the other. So nothing after O3
//! adds order between O1 and C3.

use std::marker::PhantomData;

use loom::sync::Mutex;
use loom::sync::atomic::fence;

use super::*;
use crate::tests::explore::{Count, explore, failure};

trait Mutation: Sized + Send + Sync + 'static {
    fn full_fence(_: Side) {
        fence(SeqCst);
    }
    fn open_for_write(gate: &Gate<Loom<Self>>) -> Result<MustDrop, TextBusy> {
        gate.open_for_write()
    }
    fn try_add_thp(gate: &Gate<Loom<Self>>) -> Result<(), OpenForWrite> {
        gate.try_add_thp()
    }
}

/// loom's atomics, changed by `M`. The words are not used.
struct Loom<M>(PhantomData<M>);

impl<M: Mutation> Atomics for Loom<M> {
    type Wide = <Native as Atomics>::Wide;
    type Narrow = <Native as Atomics>::Narrow;
    type Count = Count;
}

impl<M: Mutation> FullFence for Loom<M> {
    fn full_fence(side: Side) {
        M::full_fence(side);
    }
}

struct Sound;
impl Mutation for Sound {}

struct NoOpenFence;
impl Mutation for NoOpenFence {
    fn full_fence(side: Side) {
        if side == Side::Collapse {
            fence(SeqCst);
        }
    }
}

struct NoCollapseFence;
impl Mutation for NoCollapseFence {
    fn full_fence(side: Side) {
        if side == Side::Open {
            fence(SeqCst);
        }
    }
}

struct AcquireRelease;
impl Mutation for AcquireRelease {
    fn full_fence(_: Side) {
        fence(std::sync::atomic::Ordering::AcqRel);
    }
}

struct Unfenced;
impl Mutation for Unfenced {
    fn full_fence(_: Side) {}
}

/// C3 before C1.
struct CollapserChecksFirst;
impl Mutation for CollapserChecksFirst {
    fn try_add_thp(gate: &Gate<Loom<Self>>) -> Result<(), OpenForWrite> {
        if gate.is_open_for_write() {
            return Err(OpenForWrite);
        }
        Self::full_fence(Side::Collapse);
        gate.nr_thps.fetch_add(1);
        Ok(())
    }
}

/// O3 before O1.
struct OpenerReadsFirst;
impl Mutation for OpenerReadsFirst {
    fn open_for_write(gate: &Gate<Loom<Self>>) -> Result<MustDrop, TextBusy> {
        let must_drop = if gate.nr_thps() > 0 { MustDrop::Yes } else { MustDrop::No };
        Self::full_fence(Side::Open);
        change(&gate.writecount, |count| count >= 0, 1).map_err(|_| TextBusy)?;
        Ok(must_drop)
    }
}

struct NoRollback;
impl Mutation for NoRollback {
    fn try_add_thp(gate: &Gate<Loom<Self>>) -> Result<(), OpenForWrite> {
        gate.nr_thps.fetch_add(1);
        Self::full_fence(Side::Collapse);
        if gate.is_open_for_write() { Err(OpenForWrite) } else { Ok(()) }
    }
}

struct IgnoresDeny;
impl Mutation for IgnoresDeny {
    fn open_for_write(gate: &Gate<Loom<Self>>) -> Result<MustDrop, TextBusy> {
        gate.writecount.fetch_add(1);
        Self::full_fence(Side::Open);
        Ok(if gate.nr_thps() > 0 { MustDrop::Yes } else { MustDrop::No })
    }
}

/// The failure of a broken gate.
const BESIDE: &str = "a huge folio in a file with a writer";
const MISCOUNTED: &str = "nr_thps is not the number of huge folios";
const BUSY: &str = "a writer while the program runs";

fn fails_by(what: &str, scenario: fn()) {
    let said = failure(what, scenario);
    assert!(said.contains(what), "{said}");
}

/// A block in the page cache, under the locks of its folios.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Block {
    Small,
    Huge,
    Absent,
}

struct File<M: Mutation, const N: usize> {
    gate: Gate<Loom<M>>,
    blocks: [Mutex<Block>; N],
}

impl<M: Mutation, const N: usize> File<M, N> {
    fn new() -> Self {
        let blocks = std::array::from_fn(|_| Mutex::new(Block::Small));
        Self { gate: Gate::new(), blocks }
    }

    /// H.3.2: one step of khugepaged on one block.
    fn collapse(&self, block: usize) {
        let mut cached = self.blocks[block].lock().unwrap();
        if *cached == Block::Small && M::try_add_thp(&self.gate).is_ok() {
            *cached = Block::Huge;
        }
    }

    fn open(&self) -> Result<(), TextBusy> {
        if M::open_for_write(&self.gate)? == MustDrop::Yes {
            for block in &self.blocks {
                let mut cached = block.lock().unwrap();
                if *cached == Block::Huge {
                    self.gate.remove_thp();
                }
                *cached = Block::Absent;
            }
        }
        Ok(())
    }

    fn write(&self) {
        self.open().unwrap();
        self.has_no_huge_folio();
        self.gate.close_write();
    }

    fn has_no_huge_folio(&self) {
        assert_eq!(self.nr_huge(), 0, "{BESIDE}");
    }

    fn nr_huge(&self) -> u32 {
        let is_huge = |block: &&Mutex<Block>| *block.lock().unwrap() == Block::Huge;
        u32::try_from(self.blocks.iter().filter(is_huge).count()).unwrap()
    }

    /// Checks the state after all threads are done, with `writers` still open.
    fn check(&self, writers: i32) {
        assert_eq!(self.gate.writecount(), writers);
        assert_eq!(self.gate.nr_thps(), self.nr_huge(), "{MISCOUNTED}");
        if writers > 0 {
            self.has_no_huge_folio();
        }
    }
}

fn one_opener_and_one_collapser<M: Mutation>() {
    explore(
        File::<M, 1>::new,
        [|file: &File<M, 1>| file.open().unwrap(), |file| file.collapse(0)],
        |file| file.check(1),
    );
}

fn two_openers_and_one_collapser<M: Mutation>() {
    explore(
        File::<M, 1>::new,
        [
            |file: &File<M, 1>| file.open().unwrap(),
            |file| file.open().unwrap(),
            |file| file.collapse(0),
        ],
        |file| file.check(2),
    );
}

fn one_opener_and_two_collapsers<M: Mutation>() {
    explore(
        File::<M, 2>::new,
        [
            |file: &File<M, 2>| file.open().unwrap(),
            |file| file.collapse(0),
            |file| file.collapse(1),
        ],
        |file| file.check(1),
    );
}

/// The huge folio can come before the writer or after it, but not while it is there.
fn an_opener_that_closes_again<M: Mutation>() {
    explore(File::<M, 1>::new, [File::write, |file: &File<M, 1>| file.collapse(0)], |file| {
        file.check(0);
    });
}

/// A second writer opens while the first is dropping: it also finds no huge folio.
fn an_opener_beside_one_that_drops<M: Mutation>() {
    explore(
        || {
            let file = File::<M, 1>::new();
            file.collapse(0);
            file
        },
        [File::write, |file: &File<M, 1>| file.write()],
        |file| file.check(0),
    );
}

/// Either a process runs the file or a writer has it open, never both.
fn a_deny_write_holder<M: Mutation>() {
    explore(
        File::<M, 1>::new,
        [
            |file: &File<M, 1>| {
                if file.open().is_ok() {
                    assert!(file.gate.writecount() > 0, "{BUSY}");
                    file.has_no_huge_folio();
                    file.gate.close_write();
                }
            },
            |file| {
                if file.gate.deny_write().is_ok() {
                    assert!(file.gate.writecount() < 0, "{BUSY}");
                    file.gate.allow_write();
                }
            },
            |file| file.collapse(0),
        ],
        |file| file.check(0),
    );
}

#[test]
fn one_of_two_sees_the_other() {
    one_opener_and_one_collapser::<Sound>();
}

#[test]
fn two_openers_leave_no_huge_folio() {
    two_openers_and_one_collapser::<Sound>();
}

#[test]
fn two_collapsers_leave_no_huge_folio() {
    largefolio_testkit::only_in_test_all!("explores two collapsers");
    one_opener_and_two_collapsers::<Sound>();
}

#[test]
fn a_writer_sees_no_huge_folio_while_it_is_there() {
    an_opener_that_closes_again::<Sound>();
    an_opener_beside_one_that_drops::<Sound>();
}

#[test]
fn a_running_program_has_no_writer() {
    a_deny_write_holder::<Sound>();
}

#[test]
fn missing_fences_are_caught() {
    fails_by(BESIDE, one_opener_and_one_collapser::<NoOpenFence>);
    fails_by(BESIDE, one_opener_and_one_collapser::<NoCollapseFence>);
    fails_by(BESIDE, one_opener_and_one_collapser::<Unfenced>);
    fails_by(BESIDE, an_opener_that_closes_again::<Unfenced>);
}

#[test]
fn weak_fences_are_caught() {
    fails_by(BESIDE, one_opener_and_one_collapser::<AcquireRelease>);
    fails_by(BESIDE, two_openers_and_one_collapser::<AcquireRelease>);
}

#[test]
fn steps_in_the_wrong_order_are_caught() {
    fails_by(BESIDE, one_opener_and_one_collapser::<CollapserChecksFirst>);
    fails_by(BESIDE, one_opener_and_one_collapser::<OpenerReadsFirst>);
}

#[test]
fn a_missing_rollback_is_caught() {
    fails_by(MISCOUNTED, one_opener_and_one_collapser::<NoRollback>);
}

#[test]
fn a_writer_that_ignores_deny_write_is_caught() {
    fails_by(BUSY, a_deny_write_holder::<IgnoresDeny>);
}

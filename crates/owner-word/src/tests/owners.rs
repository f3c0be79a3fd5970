//! Runs every interleaving of the lock protocol in both layouts with the model checker loom. The
//! same scenarios must also catch mutants of the protocol.
//!
//! The tested code is the one that ships: [`Owners`] over loom's atomics. A mutant is a family of
//! atomics, or a caller, that breaks one promise.
//!
//! Two things are not modelled: load buffering (a load that sees a later store of its own past),
//! which the lock's Acquire forbids here, and the spin loop of a thread that loses the lock
//! ([`set_bits`], [`Word`]).

use std::marker::PhantomData;
use std::sync::atomic::Ordering::{self, Acquire, Relaxed, Release};
use std::sync::{Arc, Mutex};

use loom::sync::atomic::{AtomicU32, AtomicU64};
use loom::thread;

use super::explore::{Count, DEADLOCK, explore, failure, is_caught};
use super::{A, B, C};
use crate::atomics::{Atomics, WordCell};
use crate::{Layout, MmOwnerId, Narrow, Owners, Wide};

/// Sets `bits` in the newest word; writes nothing if they are set. This is a successful load plus
/// compare-and-exchange. The plain load, which can be stale and then takes no lock, is left out:
/// plain loads make loom miss interleavings of other threads.
fn set_bits(word: &AtomicU64, bits: u64, order: Ordering) -> u64 {
    // This word never occurs (one mm in both slots), so the exchange reads the newest value.
    let mut expected = 5 << 32 | 5;
    loop {
        match word.compare_exchange(expected, expected | bits, order, Relaxed) {
            Err(now) if now & bits == 0 => expected = now,
            Ok(old) | Err(old) => return old,
        }
    }
}

trait Mutation {
    fn fetch_or(word: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        set_bits(word, bits, order)
    }
    fn store(word: &AtomicU64, value: u64, order: Ordering) {
        word.store(value, order);
    }
}

struct Loom<M>(PhantomData<M>);

/// A word of either width, and the threads that wait for its lock. The narrow layout uses the low
/// half.
///
/// A waiter sleeps until the next store instead of spinning, because loom would explore every
/// number of spins. Waking adds only the order that the lock gives anyway: the store before the
/// next lock.
struct Word<M> {
    cell: AtomicU64,
    waiting: Mutex<Vec<thread::Thread>>,
    mutation: PhantomData<M>,
}

impl<M: Mutation> WordCell for Word<M> {
    fn new(value: u64) -> Self {
        let waiting = Mutex::default();
        Self { cell: AtomicU64::new(value), waiting, mutation: PhantomData }
    }
    fn load(&self, order: Ordering) -> u64 {
        self.cell.load(order)
    }
    fn store(&self, value: u64, order: Ordering) {
        M::store(&self.cell, value, order);
        let waiting = std::mem::take(&mut *self.waiting.lock().unwrap());
        waiting.iter().for_each(thread::Thread::unpark);
    }
    fn try_lock(&self, bits: u64) -> Option<u64> {
        let old = M::fetch_or(&self.cell, bits, Acquire);
        if old & bits == 0 {
            return Some(old);
        }
        // No other thread runs since the load: loom switches only at its own operations.
        self.waiting.lock().unwrap().push(thread::current());
        None
    }
    fn wait(&self, _: u32) {
        thread::park();
    }
}

impl<M: Mutation> Atomics for Loom<M> {
    type Wide = Word<M>;
    type Narrow = Word<M>;
    type Count = Count;
}

struct Sound;
impl Mutation for Sound {}

struct NoLock;
impl Mutation for NoLock {
    fn fetch_or(word: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        word.load(order) & !bits
    }
}

struct LockInTwoSteps;
impl Mutation for LockInTwoSteps {
    fn fetch_or(word: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        let old = word.load(order);
        word.store(old | bits, Relaxed);
        old
    }
}

struct RelaxedUnlock;
impl Mutation for RelaxedUnlock {
    fn store(word: &AtomicU64, value: u64, _: Ordering) {
        word.store(value, Relaxed);
    }
}

struct RelaxedLock;
impl Mutation for RelaxedLock {
    fn fetch_or(word: &AtomicU64, bits: u64, _: Ordering) -> u64 {
        set_bits(word, bits, Relaxed)
    }
}

/// Reads slot 1's half before it has the lock, and slot 0's half under it.
struct TornRead;
impl Mutation for TornRead {
    fn fetch_or(word: &AtomicU64, bits: u64, order: Ordering) -> u64 {
        let low = 2 * bits - 1;
        let early = word.load(order);
        (early & !low) | (set_bits(word, bits, order) & low)
    }
}

/// Never clears S again.
struct StickyShared<L>(PhantomData<L>);
impl<L: Layout> Mutation for StickyShared<L> {
    fn store(word: &AtomicU64, value: u64, order: Ordering) {
        word.store(value | word.load(Relaxed) & L::SHARED, order);
    }
}

struct NeverUnlocks;
impl Mutation for NeverUnlocks {
    fn store(_: &AtomicU64, _: u64, _: Ordering) {}
}

/// A folio and its references, in the order of E.3.7.
struct Folio<L: Layout, M: Mutation> {
    owners: Owners<L, Loom<M>>,
    refs: AtomicU32,
}

impl<L: Layout, M: Mutation> Folio<L, M> {
    /// A maps the folio `nr` times; `pins` references exceed the mappings.
    fn new(nr: u32, pins: u32, stop_above: Option<u32>) -> Self {
        let owners = Owners::new(stop_above);
        owners.add(A, nr).unwrap();
        Self { owners, refs: AtomicU32::new(nr + pins) }
    }

    fn map(&self, mm: MmOwnerId, nr: u32) {
        self.refs.fetch_add(nr, Relaxed);
        self.owners.add(mm, nr).unwrap();
    }

    fn unmap(&self, mm: MmOwnerId, nr: u32) {
        self.owners.remove(mm, nr);
        self.refs.fetch_sub(nr, Release);
    }

    fn unmap_references_first(&self, mm: MmOwnerId, nr: u32) {
        self.refs.fetch_sub(nr, Release);
        self.owners.remove(mm, nr);
    }

    fn references(&self) -> u64 {
        self.refs.load(Acquire).into()
    }

    fn is_exclusive(&self, mm: MmOwnerId) -> bool {
        self.owners.try_exclusive(mm, || self.references()).is_ok()
    }

    /// Skips the second half of E.3.3: no lock, no second check.
    fn is_exclusive_at_a_glance(&self) -> bool {
        !self.owners.maybe_mapped_shared() && u64::from(self.owners.mapcount()) == self.references()
    }

    /// Checks the state after all threads are done, when A, B and C have `truth` mappings.
    fn check(&self, truth: [u32; 3]) {
        let state = self.owners.snapshot();
        state.validate().unwrap();
        assert_eq!(state.mapcount(), truth.iter().sum::<u32>());
        for slot in state.slots {
            let Some(owner) = slot.owner else { continue };
            let nr = truth[owner.get() as usize - 1];
            assert!(slot.mapcount.cast_unsigned() < nr, "over-counted: {state:?}");
        }
    }
}

/// Three mms map and unmap; the final counts and owners are correct.
fn three_mms_come_and_go<L: Layout, M: Mutation>()
where
    Folio<L, M>: Send + Sync + 'static,
{
    explore(
        || Folio::<L, M>::new(2, 0, None),
        [
            |folio: &Folio<L, M>| {
                folio.owners.remove(A, 1);
            },
            |folio| {
                folio.owners.add(B, 2).unwrap();
            },
            |folio| {
                folio.owners.add(C, 1).unwrap();
            },
        ],
        |folio| {
            folio.check([1, 2, 1]);
            assert!(folio.owners.maybe_mapped_shared());
        },
    );
}

fn two_mms_come<L: Layout, M: Mutation>()
where
    Folio<L, M>: Send + Sync + 'static,
{
    explore(
        || Folio::<L, M>::new(1, 0, None),
        [|folio: &Folio<L, M>| folio.map(B, 1), |folio| folio.map(C, 1)],
        |folio| {
            folio.check([1, 1, 1]);
            assert!(folio.owners.maybe_mapped_shared());
        },
    );
}

fn the_survivor_of_two_is_exclusive<L: Layout, M: Mutation>()
where
    Folio<L, M>: Send + Sync + 'static,
{
    explore(
        || Folio::<L, M>::new(1, 0, None),
        [
            |folio: &Folio<L, M>| folio.map(A, 1),
            |folio| {
                folio.map(B, 1);
                folio.unmap(B, 1);
            },
        ],
        |folio| {
            folio.check([2, 0, 0]);
            assert!(!folio.owners.maybe_mapped_shared());
            assert!(folio.is_exclusive(A));
        },
    );
}

/// B always holds a reference and turns it into a mapping, so A is never the only user.
fn a_reference_turned_mapping<L: Layout, M: Mutation>(is_exclusive: fn(&Folio<L, M>) -> bool)
where
    Folio<L, M>: Send + Sync + 'static,
{
    let query = move |folio: &Folio<L, M>| assert!(!is_exclusive(folio), "false exclusive");
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    builder.check(move || {
        let folio = Arc::new(Folio::<L, M>::new(2, 1, None));
        let beside = Arc::clone(&folio);
        let b = thread::spawn(move || {
            beside.owners.add(B, 1).unwrap();
        });
        query(&folio);
        b.join().unwrap();
        query(&folio);
        folio.check([2, 1, 0]);
    });
}

/// Another thread of A unmaps a pinned folio: the pin is never mistaken for a mapping.
fn a_pin_is_no_mapping<M: Mutation>(unmap: fn(&Folio<Wide, M>, MmOwnerId, u32))
where
    Folio<Wide, M>: Send + Sync + 'static,
{
    loom::model(move || {
        let folio = Arc::new(Folio::<Wide, M>::new(3, 1, None));
        let beside = Arc::clone(&folio);
        let other = thread::spawn(move || unmap(&beside, A, 1));
        assert!(!folio.is_exclusive(A), "false exclusive");
        other.join().unwrap();
        folio.check([2, 0, 0]);
    });
}

/// A queries while B unmaps and C maps: at every moment, B or C has a mapping or a reference.
fn three_with_a_query<L: Layout, M: Mutation>()
where
    Folio<L, M>: Send + Sync + 'static,
{
    explore(
        || {
            let folio = Folio::<L, M>::new(2, 0, None);
            folio.map(B, 1);
            folio.refs.fetch_add(1, Relaxed);
            folio
        },
        [
            |folio: &Folio<L, M>| assert!(!folio.is_exclusive(A), "false exclusive"),
            |folio| folio.unmap(B, 1),
            |folio| {
                folio.owners.add(C, 1).unwrap();
            },
        ],
        |folio| {
            folio.check([2, 0, 1]);
            assert!(folio.owners.maybe_mapped_shared());
        },
    );
}

/// Tracking stops in the middle: no mapping is lost between lock and compare-and-exchange.
fn tracking_stops_beside_others<L: Layout, M: Mutation>()
where
    Folio<L, M>: Send + Sync + 'static,
{
    explore(
        || Folio::<L, M>::new(2, 0, Some(2)),
        [
            |folio: &Folio<L, M>| {
                folio.owners.remove(A, 1);
            },
            |folio| {
                folio.owners.add(B, 2).unwrap();
            },
        ],
        |folio| {
            folio.check([1, 2, 0]);
            assert!(folio.owners.snapshot().is_stopped);
        },
    );
    explore(
        || Folio::<L, M>::new(2, 0, Some(2)),
        [
            |folio: &Folio<L, M>| {
                folio.owners.add(B, 1).unwrap();
            },
            |folio| {
                folio.owners.add(C, 2).unwrap();
                folio.owners.remove(C, 1);
            },
        ],
        |folio| {
            folio.check([2, 1, 1]);
            assert!(folio.owners.maybe_mapped_shared());
        },
    );
}

#[test]
fn three_mms_keep_the_counts_wide() {
    largefolio_testkit::only_in_test_all!("explores three mms with wide counts");
    three_mms_come_and_go::<Wide, Sound>();
}

#[test]
fn three_mms_keep_the_counts_narrow() {
    three_mms_come_and_go::<Narrow, Sound>();
}

#[test]
fn two_mms_are_exact() {
    two_mms_come::<Wide, Sound>();
    two_mms_come::<Narrow, Sound>();
    the_survivor_of_two_is_exclusive::<Wide, Sound>();
    the_survivor_of_two_is_exclusive::<Narrow, Sound>();
}

#[test]
fn no_query_gives_a_false_exclusive() {
    a_reference_turned_mapping::<Wide, Sound>(|folio| folio.is_exclusive(A));
    a_reference_turned_mapping::<Narrow, Sound>(|folio| folio.is_exclusive(A));
    a_pin_is_no_mapping::<Sound>(Folio::unmap);
}

#[test]
fn a_query_beside_two_others_gives_no_false_exclusive_wide() {
    three_with_a_query::<Wide, Sound>();
}

#[test]
fn a_query_beside_two_others_gives_no_false_exclusive_narrow() {
    three_with_a_query::<Narrow, Sound>();
}

#[test]
fn stopping_loses_no_mapping() {
    tracking_stops_beside_others::<Wide, Sound>();
    tracking_stops_beside_others::<Narrow, Sound>();
}

#[test]
fn mutants_of_the_lock_are_caught() {
    is_caught("missing lock", three_mms_come_and_go::<Wide, NoLock>);
    is_caught("lock in two steps", three_mms_come_and_go::<Wide, LockInTwoSteps>);
    assert!(failure("no unlock", three_mms_come_and_go::<Wide, NeverUnlocks>).contains(DEADLOCK));
    is_caught("missing lock, narrow", three_mms_come_and_go::<Narrow, NoLock>);
}

#[test]
fn mutants_of_the_memory_order_are_caught() {
    is_caught("relaxed unlock", three_mms_come_and_go::<Wide, RelaxedUnlock>);
    is_caught("relaxed lock", three_mms_come_and_go::<Wide, RelaxedLock>);
    is_caught("relaxed lock, narrow", three_mms_come_and_go::<Narrow, RelaxedLock>);
}

#[test]
fn a_torn_read_is_caught() {
    is_caught("torn read", two_mms_come::<Wide, TornRead>);
    is_caught("torn read, narrow", two_mms_come::<Narrow, TornRead>);
}

#[test]
fn a_dropped_re_evaluation_is_caught() {
    is_caught("sticky shared", the_survivor_of_two_is_exclusive::<Wide, StickyShared<Wide>>);
    is_caught(
        "sticky shared, narrow",
        the_survivor_of_two_is_exclusive::<Narrow, StickyShared<Narrow>>,
    );
    is_caught("no second look", || {
        a_reference_turned_mapping::<Wide, Sound>(Folio::is_exclusive_at_a_glance);
    });
}

#[test]
fn references_dropped_before_the_mapping_are_caught() {
    is_caught("references first", || {
        a_pin_is_no_mapping::<Sound>(Folio::unmap_references_first);
    });
}

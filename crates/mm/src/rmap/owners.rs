//! Who maps a large folio: the large mapcount and two owners under one lock bit (docs/behaviour
//! F.4, Linux 6.15).
//!
//! Answers to: `folio_set_large_mapcount`, `folio_add_return_large_mapcount`,
//! `folio_sub_return_large_mapcount`.
//!
//! Owns the protocol. The transitions are pure functions on the words (`words.rs`), the words a
//! [`Layout`], [`State`] is what they say; the reference count belongs to the folio.
//!
//! # What it answers
//!
//! A copy-on-write fault wants to know whether one mm has *all* mappings of a folio. A count of
//! mappings does not say, and a set of owners does not fit into a folio. So two owners are
//! remembered, each with the number of its mappings. If a slot records as many mappings as the
//! folio has, its owner has them all. A third mm goes unrecorded, so the answer may be a false
//! "shared"; it is never a false "exclusive".
//!
//! # Memory
//!
//! ```text
//!                      word (ids)                    counts            large_mapcount
//!          +-+--------------+-+--------------+  +--------+--------+   +-------------+
//!          |S| id of slot 1 |L| id of slot 0 |  |   c1   |   c0   |   |      T      |
//!          +-+--------------+-+--------------+  +--------+--------+   +-------------+
//!  Wide     63 62 ........32 31 30 ........ 0    63 .. 32 31 ..  0     31 .........0
//!  Narrow   31 30 ........16 15 14 ........ 0    31 .. 16 15 ..  0     31 .........0
//!          L: locked    S: maybe shared    counts and T are minus one, -1 = none
//! ```
//!
//! # Protocol
//!
//! ```text
//!   look      word.load(Relaxed) until L is clear               waiters write nothing
//!   lock      word.compare_exchange(word, word | L, Acquire)    the only read-modify-write
//!   change    T, counts: plain loads and stores (Relaxed)       by the holder alone
//!   unlock    word.store(new ids and S, L clear, Release)       the ids change here
//! ```
//!
//! The three cells are 24 bytes that belong together: who shares an [`Owners`] between threads puts
//! it into one cache line, as a folio is. A change moves that line once.
//!
//! - P1: `word` changes only from L clear to L set, and from there by the holder's store. Nobody
//!   else writes while L is set, so the holder's store loses nothing.
//! - P2: `T` and `counts` are written only by the holder of L, until tracking stops.
//! - P3: a holder sees everything that earlier holders wrote: a word with L clear was written by
//!   the unlocking store (Release) of the previous holder, and the `compare_exchange` (Acquire)
//!   that gets the lock reads it. So between lock and unlock `(word, counts, T)` is one consistent
//!   state, and plain accesses suffice. The word is the one that was compared: a look that was
//!   stale gets no lock.
//! - P4: no one waits while holding L, and a holder runs a bounded number of steps: no deadlock.
//! - P5: [`Owners::mapcount`] and [`Owners::maybe_mapped_shared`] take no lock. A change that
//!   happens before the query is seen by it (both are single cells, and cells never go back). A
//!   change that runs beside it may be seen or not. The two cells need not be read together: "at
//!   most one mapping" and "S clear" each mean *not shared* alone, at the moment of that one read.
//!   "Shared" needs both and may be stale, which is the harmless side.
//! - P6: [`Owners::try_exclusive`] compares three things - S, T and the references - so reading
//!   them one after the other is not enough: S may be read before and T after another mm turned
//!   its reference into a mapping. The check repeats under the lock, where S and T cannot move.
//!   References can: but each mapping counted in T took its reference before it took the lock, and
//!   gives it back after its removal took the lock. With L held, the references of all T + 1
//!   mappings are there to be seen, so `references == T + 1` leaves none for anyone else (E.3.7).
//! - P7: stopping is a change under L like any other, and the last one: the word is
//!   [`Layout::STOPPED`] from then on. A thread that reads it (Acquire) sees every plain store to
//!   T, none follow, and from here T changes by compare-and-exchange alone. No lock bit is touched
//!   any more, which is what stopping is for.
//!
//! # Beyond Linux 7.2
//!
//! Differs: `stop_above` (K.5.2, announced by the series, built here). When a folio has more than
//! that many mappings it forgets its owners and counts as shared until it is freed. Safe, because
//! a stopped folio answers "exclusive" only with at most one mapping, and never to
//! [`Owners::try_exclusive`]. A limit below `2^order` would stop the folio of a single mm:
//! a useful limit is a multiple of `2^order`.
//!
//! # Example
//!
//! ```
//! use largefolio_mm::rmap::owners::{MmOwnerId, Owners};
//! let [a, b, c] = [1, 2, 3].map(|id| MmOwnerId::new(id).unwrap());
//! let folio: Owners = Owners::new_anon(a, 4, None)?;
//! folio.add(b, 4)?;
//! folio.add(c, 4)?; // a third: counted, not recorded
//! folio.remove(b, 4);
//! assert!(folio.maybe_mapped_shared());
//! folio.remove(c, 4);
//! assert!(!folio.maybe_mapped_shared()); // the recorded survivor is recognised
//! assert_eq!(folio.try_exclusive(a, || 4), Ok(()));
//! # Ok::<(), largefolio_mm::rmap::owners::MapcountOverflow>(())
//! ```

pub mod atomics;
mod by_layout;
mod ids;
mod layout;
mod state;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use self::atomics::{Atomics, Native};
use self::atomics::{CountCell, WordCell};
pub(crate) use self::by_layout::LayoutOwners;
pub use self::by_layout::OwnerLayout;
pub use self::ids::{IdsExhausted, OwnerIds};
pub use self::layout::{Layout, Narrow, Wide};
pub use self::state::{MmOwnerId, Slot, State, Violation};
use self::words::{Words, sum};

/// A folio cannot count that many mappings; nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{nr} more mappings would overflow a mapcount of {large_mapcount} (minus one)")]
pub struct MapcountOverflow {
    /// The count, minus one.
    pub large_mapcount: i32,
    /// Mappings that were to be added.
    pub nr: u32,
}

/// Why a folio may not be written in place (E.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExclusive {
    /// Step 1: at most one page of it is still mapped; copying that page frees the folio (L.9).
    #[error("at most one mapping is left: better to copy and free the folio")]
    LastMapping,
    /// Steps 2 and 5: other processes may map it.
    #[error("other processes may map the folio")]
    Shared,
    /// Steps 4 and 5: references beside the mappings.
    #[error("the folio has references besides its mappings")]
    Referenced,
    /// Kernels before 6.15, folios without owner tracking.
    #[error("owners of the folio are not tracked")]
    Untracked,
}

/// Large mapcount and owners of one large folio: a type to share between threads.
///
/// The `&self` operations follow the protocol of the module. The `_mut` ones make the same
/// transitions without the lock, for a holder who is alone: the memory manager of the model.
pub struct Owners<L: Layout = Wide, A: Atomics = Native> {
    /// Ids of both slots, L and S; [`Layout::STOPPED`] once tracking has stopped.
    word: L::Cell<A>,
    /// Counts of both slots, minus one; all ones = both free.
    counts: L::Cell<A>,
    /// `T`, minus one.
    large_mapcount: A::Count,
    /// Tracking stops above this many mappings; `u32::MAX` = never. Does not change.
    stop_above: u32,
}

impl<L: Layout, A: Atomics> Owners<L, A> {
    /// A folio that no process maps. Tracking stops above `stop_above` mappings, if at all.
    #[must_use]
    pub fn new(stop_above: Option<u32>) -> Self {
        Self::from_words(&Words::unmapped::<L>(), stop_above.unwrap_or(u32::MAX))
    }

    /// A new anonymous folio with `nr` mappings by `mm` (F.4 Set).
    ///
    /// # Errors
    /// When `nr` mappings cannot be counted.
    pub fn new_anon(
        mm: MmOwnerId,
        nr: u32,
        stop_above: Option<u32>,
    ) -> Result<Self, MapcountOverflow> {
        let mut owners = Self::new(stop_above);
        owners.add_mut(mm, nr)?;
        Ok(owners)
    }

    /// A folio that no process maps and whose owners are never tracked: a counter.
    #[must_use]
    pub fn untracked() -> Self {
        Self::from_words(&Words::stopped::<L>(-1), 0)
    }

    fn from_words(words: &Words, stop_above: u32) -> Self {
        Self {
            word: L::Cell::<A>::new(words.word),
            counts: L::Cell::<A>::new(words.counts),
            large_mapcount: A::Count::new(words.large_mapcount),
            stop_above,
        }
    }

    /// Adds `nr` mappings by `mm`, which has taken their references; the mappings there are now.
    ///
    /// # Errors
    /// When they cannot be counted; nothing has changed.
    ///
    /// # Panics
    /// When `mm` has an id of a wider layout.
    pub fn add(&self, mm: MmOwnerId, nr: u32) -> Result<u32, MapcountOverflow> {
        check_id::<L>(mm);
        let Some(word) = self.lock_tracked() else { return self.count_up(nr) };
        match self.words(word).add::<L>(mm, nr, self.stop_above) {
            Ok(new) => {
                self.store_and_unlock(&new);
                Ok(new.mapcount())
            }
            Err(overflow) => {
                self.unlock(word);
                Err(overflow)
            }
        }
    }

    /// Removes `nr` mappings by `mm`, which gives their references back afterwards; the mappings
    /// that are left.
    ///
    /// # Panics
    /// When the folio has fewer mappings, or `mm` has an id of a wider layout.
    pub fn remove(&self, mm: MmOwnerId, nr: u32) -> u32 {
        check_id::<L>(mm);
        let Some(word) = self.lock_tracked() else { return self.count_down(nr) };
        let old = self.words(word);
        if nr > old.mapcount() {
            self.unlock(word);
            refuse(nr, old.mapcount());
        }
        let new = old.remove::<L>(mm, nr);
        self.store_and_unlock(&new);
        new.mapcount()
    }

    /// [`Owners::add`] by the only holder.
    ///
    /// # Errors
    /// When the mappings cannot be counted; nothing has changed.
    ///
    /// # Panics
    /// When `mm` has an id of a wider layout.
    pub fn add_mut(&mut self, mm: MmOwnerId, nr: u32) -> Result<u32, MapcountOverflow> {
        check_id::<L>(mm);
        let new = self.words(self.word.load(Relaxed)).add::<L>(mm, nr, self.stop_above)?;
        self.store_mut(&new);
        Ok(new.mapcount())
    }

    /// [`Owners::remove`] by the only holder.
    ///
    /// # Panics
    /// When the folio has fewer mappings, or `mm` has an id of a wider layout.
    pub fn remove_mut(&mut self, mm: MmOwnerId, nr: u32) -> u32 {
        check_id::<L>(mm);
        let old = self.words(self.word.load(Relaxed));
        if nr > old.mapcount() {
            refuse(nr, old.mapcount());
        }
        let new = old.remove::<L>(mm, nr);
        self.store_mut(&new);
        new.mapcount()
    }

    /// Whether a change takes the lock; a folio whose owners are not tracked is a plain counter.
    #[must_use]
    pub fn is_tracking(&self) -> bool {
        self.word.load(Relaxed) & !L::LOCK != L::STOPPED
    }

    /// Mappings of the folio (F.2.1).
    #[must_use]
    pub fn mapcount(&self) -> u32 {
        State::stopped(self.large_mapcount()).mapcount()
    }

    /// Whether more than one mm may map the folio (F.2.2): never a false "no"; a false "yes" only
    /// after a third mm mapped it, a count overflowed, or tracking stopped.
    #[must_use]
    pub fn maybe_mapped_shared(&self) -> bool {
        self.mapcount() > 1 && self.word.load(Relaxed) & L::SHARED != 0
    }

    /// Whether `mm`, which maps the folio, is the only one to use it: steps 1, 2, 4 and 5 of
    /// E.3.3. `references` reads the folio's references, the page cache's and the swap cache's
    /// included; it is called twice, the second time under the lock (P6).
    ///
    /// # Errors
    /// Why not; the first step that says no.
    pub fn try_exclusive(
        &self,
        mm: MmOwnerId,
        references: impl Fn() -> u64,
    ) -> Result<(), NotExclusive> {
        let mapcount = self.mapcount();
        if mapcount <= 1 {
            return Err(NotExclusive::LastMapping);
        }
        if self.word.load(Relaxed) & L::SHARED != 0 {
            return Err(NotExclusive::Shared);
        }
        if u64::from(mapcount) != references() {
            return Err(NotExclusive::Referenced);
        }
        let Some(word) = self.lock_tracked() else { return Err(NotExclusive::Shared) };
        let state = self.words(word).state::<L>();
        let is_referenced = u64::from(state.mapcount()) != references();
        self.unlock(word);
        // I3 of `State`: with S clear the one who maps the folio holds a slot.
        if state.is_shared || state.slot_of(Some(mm)).is_none() {
            return Err(NotExclusive::Shared);
        }
        if is_referenced { Err(NotExclusive::Referenced) } else { Ok(()) }
    }

    /// All of it at one moment.
    #[must_use]
    pub fn snapshot(&self) -> State {
        self.all().state::<L>()
    }

    /// The words at one moment.
    fn all(&self) -> Words {
        let Some(word) = self.lock_tracked() else {
            return Words::stopped::<L>(self.large_mapcount());
        };
        let words = self.words(word);
        self.unlock(word);
        words
    }

    /// Checks the invariants of [`State`].
    ///
    /// # Errors
    /// The first broken one.
    pub fn validate(&self) -> Result<(), Violation> {
        self.snapshot().validate()
    }

    /// Takes L and returns the word before it; `None` when tracking has stopped (P7).
    fn lock_tracked(&self) -> Option<u64> {
        // A plain look first: a stopped folio is not locked any more.
        let may_stop = self.stop_above != u32::MAX;
        if may_stop && self.word.load(Acquire) & !L::LOCK == L::STOPPED {
            return None;
        }
        let word = self.lock();
        if word != L::STOPPED {
            return Some(word);
        }
        self.word.store(word, Release);
        None
    }

    fn lock(&self) -> u64 {
        let mut turn = 0_u32;
        loop {
            if let Some(word) = self.word.try_lock(L::LOCK) {
                return word;
            }
            self.word.wait(turn);
            turn = turn.saturating_add(1);
        }
    }

    /// P3: what the holder of L sees, or who is alone.
    fn words(&self, word: u64) -> Words {
        let (counts, large_mapcount) = (self.counts.load(Relaxed), self.large_mapcount());
        Words { word, counts, large_mapcount }
    }

    /// Gives L back; nothing has changed.
    fn unlock(&self, word: u64) {
        self.word.store(word, Release);
    }

    /// Stores a change and gives L back.
    fn store_and_unlock(&self, new: &Words) {
        self.counts.store(new.counts, Relaxed);
        self.large_mapcount.store(new.large_mapcount, Relaxed);
        self.word.store(new.word, Release);
    }

    /// Stores a change by the only holder.
    fn store_mut(&mut self, new: &Words) {
        self.counts.store(new.counts, Relaxed);
        self.large_mapcount.store(new.large_mapcount, Relaxed);
        self.word.store(new.word, Relaxed);
    }

    fn large_mapcount(&self) -> i32 {
        self.large_mapcount.load(Relaxed)
    }

    /// P7: adds to a stopped folio.
    fn count_up(&self, nr: u32) -> Result<u32, MapcountOverflow> {
        let mut old = self.large_mapcount();
        loop {
            let new = sum(old, nr)?;
            match self.large_mapcount.compare_exchange(old, new) {
                Ok(_) => return Ok(State::stopped(new).mapcount()),
                Err(now) => old = now,
            }
        }
    }

    /// P7: removes from a stopped folio.
    fn count_down(&self, nr: u32) -> u32 {
        let mut old = self.large_mapcount();
        loop {
            let mapcount = State::stopped(old).mapcount();
            if nr > mapcount {
                refuse(nr, mapcount);
            }
            let new = old.wrapping_sub_unsigned(nr);
            match self.large_mapcount.compare_exchange(old, new) {
                Ok(_) => return State::stopped(new).mapcount(),
                Err(now) => old = now,
            }
        }
    }
}

/// The id of a change must fit into a slot: a longer one would set L.
fn check_id<L: Layout>(mm: MmOwnerId) {
    assert!(mm.get() <= L::ID_MAX, "owner id {} does not fit the layout", mm.get());
}

/// The caller's error: more is removed than there is.
#[cold]
fn refuse(nr: u32, mapcount: u32) -> ! {
    panic!("{nr} mappings are removed of {mapcount}")
}

impl<L: Layout, A: Atomics> Clone for Owners<L, A> {
    fn clone(&self) -> Self {
        Self::from_words(&self.all(), self.stop_above)
    }
}

impl<L: Layout, A: Atomics> PartialEq for Owners<L, A> {
    fn eq(&self, other: &Self) -> bool {
        self.snapshot() == other.snapshot() && self.stop_above == other.stop_above
    }
}

impl<L: Layout, A: Atomics> Eq for Owners<L, A> {}

impl<L: Layout, A: Atomics> fmt::Debug for Owners<L, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owners").field(&self.snapshot()).finish()
    }
}

//! The large mapcount and two owners under one lock bit (docs/behaviour F.4, Linux 6.15).
//!
//! Corresponds to: `folio_set_large_mapcount`, `folio_add_return_large_mapcount`,
//! `folio_sub_return_large_mapcount`.
//!
//! Owns the protocol. [`words`] contains the transitions as pure functions, [`Layout`] the bit
//! layout, and [`State`] the decoded form. The folio owns its reference count. [`gate`] is a second
//! protocol: a file's writers and its huge folios.
//!
//! # Purpose
//!
//! A copy-on-write fault needs to know whether one mm has *all* mappings of a folio. A mapcount
//! does not show this, and a folio has no room for a set of owners. So the folio remembers two
//! owners and the number of mappings that each has. If a slot has recorded as many mappings as the
//! folio has, its owner has them all. A third mm is not recorded, which can cause a false "shared"
//! but never a false "exclusive".
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
//! The three cells take 24 bytes. Put an [`Owners`] that threads share into a single cache line, as
//! a folio is, so that a change moves only that line.
//!
//! - P1: `word` changes only from L clear to L set, and back by the holder's store. No one else
//!   writes while L is set, so the store loses nothing.
//! - P2: only the holder of L writes `T` and `counts`, until tracking stops.
//! - P3: a holder sees all writes of earlier holders. The previous holder unlocks with a Release
//!   store, and the `compare_exchange` (Acquire) that takes the lock reads that store. Between lock
//!   and unlock, `(word, counts, T)` is therefore one consistent state, and plain accesses suffice.
//!   After a stale load, the `compare_exchange` fails and no lock is taken.
//! - P4: a holder never waits and runs a bounded number of steps, so there is no deadlock.
//! - P5: [`Owners::mapcount`] and [`Owners::maybe_mapped_shared`] take no lock. They see every
//!   change that happens before the query, and possibly a concurrent one. The two cells need not be
//!   read together: "at most one mapping" or "S clear" each proves *not shared* at the moment of
//!   its own read. "Shared" needs both and can be stale, which is harmless.
//! - P6: [`Owners::try_exclusive`] compares S, T and the references. Reading one after the other is
//!   not enough: between the reads of S and T, another mm can turn its reference into a mapping. So
//!   the function repeats the check under the lock, where S and T cannot change. References can
//!   change, but every mapping counted in T took its reference before the lock, and drops it only
//!   after its removal has taken the lock. With L held, the references of all T + 1 mappings are
//!   therefore visible. So `references == T + 1` proves that there are no others (E.3.7).
//! - P7: stopping is the last change made under L. From then on, the word is [`Layout::STOPPED`]. A
//!   thread that reads it (Acquire) sees every plain store to T; after that, T changes only by
//!   compare-and-exchange. No thread takes the lock bit again.
//!
//! # Beyond Linux 7.2
//!
//! Differs: `stop_above` (K.5.2), announced by the series. A folio with more mappings than this
//! forgets its owners and counts as shared until it is freed. That is safe: a stopped folio reports
//! "exclusive" only with at most one mapping, and never to [`Owners::try_exclusive`]. Use a
//! multiple of `2^order`: a lower limit would stop tracking for a folio of a single mm.
//!
//! # Example
//!
//! ```
//! use largefolio_owner_word::{MmOwnerId, Owners};
//! let [a, b, c] = [1, 2, 3].map(|id| MmOwnerId::new(id).unwrap());
//! let folio: Owners = Owners::new(None);
//! folio.add(a, 4)?;
//! folio.add(b, 4)?;
//! folio.add(c, 4)?; // a third: counted, not recorded
//! folio.remove(b, 4);
//! assert!(folio.maybe_mapped_shared());
//! folio.remove(c, 4);
//! assert!(!folio.maybe_mapped_shared()); // the recorded survivor is recognised
//! assert_eq!(folio.try_exclusive(a, || 4), Ok(()));
//! # Ok::<(), largefolio_owner_word::MapcountOverflow>(())
//! ```

#![forbid(unsafe_code)]
#![expect(
    clippy::cast_possible_truncation,
    reason = "fields of a word are as narrow as their layout says"
)]

pub mod atomics;
pub mod gate;
mod ids;
mod layout;
mod state;
#[cfg(test)]
mod tests;
pub mod words;

use std::fmt;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

pub use self::atomics::{Atomics, Native};
use self::atomics::{CountCell, WordCell};
pub use self::ids::{IdsExhausted, OwnerIds};
pub use self::layout::{Layout, Narrow, Wide};
pub use self::state::{MmOwnerId, Slot, State, Violation};
use self::words::{Words, sum};

/// A folio cannot count this many mappings. Nothing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{nr} more mappings would overflow a mapcount of {large_mapcount} + 1")]
pub struct MapcountOverflow {
    /// The count, minus one.
    pub large_mapcount: i32,
    /// Mappings to add.
    pub nr: u32,
}

/// Why a process may not write a folio in place (E.3.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotExclusive {
    /// Step 1: at most one page is still mapped, and copying it frees the folio (L.9).
    #[error("at most one mapping is left: it is better to copy and free the folio")]
    LastMapping,
    /// Steps 2 and 5: other processes may map it.
    #[error("other processes may map the folio")]
    Shared,
    /// Steps 4 and 5: it has more references than mappings.
    #[error("the folio has more references than mappings")]
    Referenced,
    /// Its owners are not tracked, as in kernels before 6.15.
    #[error("owners of the folio are not tracked")]
    Untracked,
}

/// Large mapcount and owners of one large folio. Threads can share it.
pub struct Owners<L: Layout = Wide, A: Atomics = Native> {
    /// Ids of both slots, L and S; [`Layout::STOPPED`] once tracking has stopped.
    word: L::Cell<A>,
    /// Counts of both slots, minus one; all ones = both free.
    counts: L::Cell<A>,
    large_mapcount: A::Count,
    /// Tracking stops above this many mappings; `u32::MAX` = never. Constant.
    stop_above: u32,
}

impl<L: Layout, A: Atomics> Owners<L, A> {
    /// An unmapped folio. Tracking stops above `stop_above` mappings; `None` = never.
    #[must_use]
    pub fn new(stop_above: Option<u32>) -> Self {
        let free = Words::unmapped::<L>();
        Self {
            word: L::Cell::<A>::new(free.word),
            counts: L::Cell::<A>::new(free.counts),
            large_mapcount: A::Count::new(free.large_mapcount),
            stop_above: stop_above.unwrap_or(u32::MAX),
        }
    }

    /// Adds `nr` mappings by `mm`, which already has their references. Returns the mapcount.
    ///
    /// # Errors
    /// If they cannot be counted. Nothing changes.
    ///
    /// # Panics
    /// If the id of `mm` does not fit the layout.
    pub fn add(&self, mm: MmOwnerId, nr: u32) -> Result<u32, MapcountOverflow> {
        words::check_id::<L>(mm);
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

    /// Removes `nr` mappings by `mm`, which then drops their references. Returns the mapcount.
    ///
    /// # Panics
    /// If the folio has fewer mappings, or the id of `mm` does not fit the layout.
    pub fn remove(&self, mm: MmOwnerId, nr: u32) -> u32 {
        words::check_id::<L>(mm);
        let Some(word) = self.lock_tracked() else { return self.count_down(nr) };
        let old = self.words(word);
        if nr > old.mapcount() {
            self.unlock(word);
            words::refuse(nr, old.mapcount());
        }
        let new = old.remove::<L>(mm, nr);
        self.store_and_unlock(&new);
        new.mapcount()
    }

    /// Mappings of the folio (F.2.1).
    #[must_use]
    pub fn mapcount(&self) -> u32 {
        State::stopped(self.large_mapcount()).mapcount()
    }

    /// Whether more than one mm may map the folio (F.2.2). Never a false "no". A false "yes" only
    /// after a third mm mapped it, a count overflowed or tracking stopped.
    #[must_use]
    pub fn maybe_mapped_shared(&self) -> bool {
        self.mapcount() > 1 && self.word.load(Relaxed) & L::SHARED != 0
    }

    /// Whether `mm`, which maps the folio, is its only user: steps 1, 2, 4 and 5 of E.3.3.
    /// `references` returns the folio's references, including those of the page cache and the swap
    /// cache. It is called twice, the second time under the lock (P6).
    ///
    /// # Errors
    /// The reason from the first step that fails.
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
        // I3 of `State`: with S clear, the mm that maps the folio has a slot.
        if state.is_shared || state.slot_of(Some(mm)).is_none() {
            return Err(NotExclusive::Shared);
        }
        if is_referenced { Err(NotExclusive::Referenced) } else { Ok(()) }
    }

    /// A consistent copy of the state.
    #[must_use]
    pub fn snapshot(&self) -> State {
        let Some(word) = self.lock_tracked() else { return State::stopped(self.large_mapcount()) };
        let words = self.words(word);
        self.unlock(word);
        words.state::<L>()
    }

    /// Checks the invariants of [`State`].
    ///
    /// # Errors
    /// The first broken invariant.
    pub fn validate(&self) -> Result<(), Violation> {
        self.snapshot().validate()
    }

    /// Takes L and returns the word before it; `None` if tracking has stopped (P7).
    fn lock_tracked(&self) -> Option<u64> {
        // Load first: a stopped folio must not be locked.
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

    fn words(&self, word: u64) -> Words {
        let (counts, large_mapcount) = (self.counts.load(Relaxed), self.large_mapcount());
        Words { word, counts, large_mapcount }
    }

    fn unlock(&self, word: u64) {
        self.word.store(word, Release);
    }

    fn store_and_unlock(&self, new: &Words) {
        self.counts.store(new.counts, Relaxed);
        self.large_mapcount.store(new.large_mapcount, Relaxed);
        self.word.store(new.word, Release);
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
                words::refuse(nr, mapcount);
            }
            let new = old.wrapping_sub_unsigned(nr);
            match self.large_mapcount.compare_exchange(old, new) {
                Ok(_) => return State::stopped(new).mapcount(),
                Err(now) => old = now,
            }
        }
    }
}

impl<L: Layout, A: Atomics> fmt::Debug for Owners<L, A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Owners").field(&self.snapshot()).finish()
    }
}

//! Shared helpers for the loom tests, which explore every interleaving of a few threads.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering::{self, Relaxed};

use loom::sync::atomic::AtomicI32;
use loom::thread;

use crate::atomics::CountCell;

pub(crate) struct Count(AtomicI32);

impl CountCell for Count {
    fn new(value: i32) -> Self {
        Self(AtomicI32::new(value))
    }
    fn load(&self, order: Ordering) -> i32 {
        self.0.load(order)
    }
    fn store(&self, value: i32, order: Ordering) {
        self.0.store(value, order);
    }
    fn compare_exchange(&self, current: i32, new: i32) -> Result<i32, i32> {
        self.0.compare_exchange(current, new, Relaxed, Relaxed)
    }
    fn fetch_add(&self, by: i32) -> i32 {
        self.0.fetch_add(by, Relaxed)
    }
}

pub(crate) fn explore<F: Send + Sync + 'static, const N: usize>(
    start: fn() -> F,
    threads: [fn(&F); N],
    end: fn(&F),
) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    builder.check(move || {
        let folio = Arc::new(start());
        let [first, others @ ..] = threads.as_slice() else { unreachable!("a thread") };
        let spawn = |run: &fn(&F)| {
            let (folio, run) = (Arc::clone(&folio), *run);
            thread::spawn(move || run(&folio))
        };
        let others: Vec<_> = others.iter().map(spawn).collect();
        first(&folio);
        for other in others {
            other.join().unwrap();
        }
        end(&folio);
    });
}

pub(crate) const DEADLOCK: &str = "deadlock";
const ENDLESS: &str = "Model exceeded maximum number of branches";

pub(crate) fn is_caught(what: &str, scenario: fn()) {
    let said = failure(what, scenario);
    assert!(!said.contains(DEADLOCK) && !said.contains(ENDLESS), "{what}: {said}");
}

pub(crate) fn failure(what: &str, scenario: fn()) -> String {
    let Err(said) = catch_unwind(AssertUnwindSafe(scenario)) else {
        panic!("the mutant {what} is not caught")
    };
    let text = said.downcast_ref::<&str>().map(ToString::to_string);
    said.downcast_ref::<String>().cloned().or(text).unwrap_or_default()
}

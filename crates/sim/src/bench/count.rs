//! Counts the operations that series 004 times.

use serde::Deserialize;

use super::{AnonBench, AnonBenchError};
use crate::cost::Events;

/// An operation on a region. Before all but [`Touch`], every page is stored to.
///
/// [`Touch`]: AnonOperation::Touch
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AnonOperation {
    Touch,
    Fork,
    Munmap,
    /// A store to every page while a child shares them.
    StoreChildAlive,
    /// A store to every page after the child has exited.
    StoreChildGone,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counted {
    pub events: Events,
    pub copied_pages: u64,
    pub reused_pages: u64,
}

impl AnonBench {
    /// Performs `operation` and counts it, without its preparation.
    ///
    /// # Errors
    /// Memory is exhausted.
    pub fn count(&mut self, operation: AnonOperation) -> Result<Counted, AnonBenchError> {
        if operation != AnonOperation::Touch {
            self.store_all()?;
        }
        match operation {
            AnonOperation::StoreChildAlive => {
                self.fork()?;
            }
            AnonOperation::StoreChildGone => {
                let child = self.fork()?;
                self.exit(child);
            }
            _ => {}
        }
        let before = self.mark();
        match operation {
            AnonOperation::Fork => {
                self.fork()?;
            }
            AnonOperation::Munmap => self.munmap()?,
            _ => self.store_all()?,
        }
        let after = self.mark();
        let (then, now) = (&before.counters, &after.counters);
        Ok(Counted {
            copied_pages: now.nr_cow - then.nr_cow,
            reused_pages: now.nr_wp_reuse - then.nr_wp_reuse,
            events: after.since(&before, self.memory.rules().page.bytes()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::Kernel;

    fn counted(kernel: &str, operation: AnonOperation) -> Counted {
        let kernel = Kernel::parse(&format!("{kernel}+page=4K")).unwrap();
        AnonBench::new(&kernel, 64 << 10, 4 << 20).unwrap().count(operation).unwrap()
    }

    #[test]
    fn a_child_that_is_gone_leaves_pages_to_reuse_where_owners_are_tracked_e_3_3() {
        let gone = AnonOperation::StoreChildGone;
        let before = counted("6.12", gone);
        assert_eq!((before.copied_pages, before.reused_pages), (1024, 0));
        assert_eq!(before.events.copied[&4096], 4 << 20);
        let after = counted("6.18", gone);
        assert_eq!((after.copied_pages, after.reused_pages), (0, 1024));
        assert!(after.events.copied.is_empty());
        assert_eq!(counted("6.18", AnonOperation::StoreChildAlive).copied_pages, 1024);
    }

    #[test]
    fn a_folio_is_one_batch() {
        let stock = counted("6.18", AnonOperation::Munmap);
        assert_eq!((stock.events.batches_unmapped, stock.events.ptes_unmapped), (64, 1024));
        let fork = counted("6.18", AnonOperation::Fork);
        assert_eq!((fork.events.entries_forked, fork.events.faults), (1024, 0));
    }

    #[test]
    fn a_first_touch_clears_every_byte() {
        let touch = counted("6.18", AnonOperation::Touch);
        assert_eq!(touch.events.cleared.values().sum::<u64>(), 4 << 20);
        assert_eq!(touch.events.faults, 64);
    }
}

//! Faults that were handled twice: first under the VMA lock, then under the mmap lock.
//!
//! Owns the choice of the `handle_mm_fault` call that represents the fault: the one with effects.
//! The event `page_fault_user` of x86-64 comes only once and needs no change.

use std::collections::BTreeMap;

use super::super::line::{Event, TracerLine};
use largefolio_linux::fault_probe::LOCKED;

pub(super) fn without(lines: Vec<TracerLine>, page: u64) -> Vec<TracerLine> {
    let mut kept: Vec<Option<TracerLine>> = Vec::with_capacity(lines.len());
    // Per thread: a first try, and whether the thread did anything since.
    let mut tries: BTreeMap<i32, (usize, u64, bool)> = BTreeMap::new();
    for line in lines {
        match line.event {
            Event::Fault { address, code } => {
                let index = address / page;
                let before = tries.remove(&line.tid);
                if code & LOCKED != 0 {
                    tries.insert(line.tid, (kept.len(), index, false));
                } else if let Some((at, _, has_done)) =
                    before.filter(|(_, first, _)| *first == index)
                {
                    if has_done {
                        continue;
                    }
                    kept[at] = None;
                }
            }
            Event::Mark(_) => {}
            _ => {
                if let Some((.., has_done)) = tries.get_mut(&line.tid) {
                    *has_done = true;
                }
            }
        }
        kept.push(Some(line));
    }
    kept.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(tid: i32, address: u64, code: u64) -> TracerLine {
        TracerLine { tid, event: Event::Fault { address, code } }
    }

    fn handler(tid: i32) -> TracerLine {
        TracerLine { tid, event: Event::Handler { inode: 1, index: 0 } }
    }

    #[test]
    fn of_two_tries_the_one_stays_that_did_something() {
        let late = vec![fault(7, 0x8123, LOCKED), fault(7, 0x8000, 0), handler(7)];
        assert_eq!(without(late.clone(), 0x4000), late[1..]);
        let early = vec![fault(7, 0x8123, LOCKED), handler(7), fault(7, 0x8123, 0)];
        assert_eq!(without(early.clone(), 0x4000), early[..2]);
    }

    #[test]
    fn other_pages_threads_and_first_tries_stay() {
        let lines = vec![
            fault(7, 0x8000, LOCKED),
            fault(8, 0x8000, 0),
            fault(7, 0xc000, 0),
            fault(7, 0xc000, 0),
        ];
        assert_eq!(without(lines.clone(), 0x4000), lines);
    }
}

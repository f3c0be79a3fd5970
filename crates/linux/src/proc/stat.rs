//! `/proc/PID/stat`: a process's parent, group, CPU time and faults.
//!
//! Owns the parser. The process chooses its name, so fields are counted after the last `)`.

use std::collections::BTreeSet;

use super::Task;
use crate::system::System;

const NR_PROCESSES_MAX: usize = 256;

/// Faults that a process has completed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskFaults {
    pub nr_minor: u64,
    /// Faults that waited for a read.
    pub nr_major: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Stat {
    /// `Z` for a zombie.
    pub(crate) state: u8,
    pub(crate) parent: u32,
    pub(crate) group: i32,
    /// Its own faults, without its children's: minor and major.
    pub(crate) own_faults: TaskFaults,
    /// Like all fields below, includes the children it has waited for.
    pub(crate) nr_minor_faults: u64,
    /// Faults that waited for a read.
    pub(crate) nr_major_faults: u64,
    pub(crate) user_ticks: u64,
    pub(crate) system_ticks: u64,
    /// The children's part of all ticks.
    pub(crate) children_ticks: u64,
}

impl Stat {
    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
        // proc_pid_stat(5): state is field 3, the first here.
        let fields: Vec<&str> = rest.split_ascii_whitespace().take(15).collect();
        let number = |field: usize| fields.get(field - 3)?.parse::<u64>().ok();
        let id = |field: usize| fields.get(field - 3)?.parse::<i32>().ok();
        Some(Self {
            state: *fields.first()?.as_bytes().first()?,
            parent: u32::try_from(id(4)?).unwrap_or(0),
            group: id(5)?,
            own_faults: TaskFaults { nr_minor: number(10)?, nr_major: number(12)? },
            nr_minor_faults: number(10)?.saturating_add(number(11)?),
            nr_major_faults: number(12)?.saturating_add(number(13)?),
            user_ticks: number(14)?.saturating_add(number(16)?),
            system_ticks: number(15)?.saturating_add(number(17)?),
            children_ticks: number(16)?.saturating_add(number(17)?),
        })
    }

    pub(crate) const fn is_alive(&self) -> bool {
        !matches!(self.state, b'Z' | b'X')
    }
}

/// What changes when a process's memory changes: if two are equal, it has the same pages.
///
/// It had no fault, and neither its address space nor its resident memory has another size. This
/// does not see memory that was moved with mremap(2), or replaced by as much populated memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct MemoryState {
    name: Vec<u8>,
    faults: TaskFaults,
    start_ticks: u64,
    virtual_bytes: u64,
    resident_pages: u64,
}

impl MemoryState {
    /// Returns when the process started, which differs for a later process with the same PID.
    pub(crate) const fn start_ticks(&self) -> u64 {
        self.start_ticks
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Self> {
        let start = text.iter().position(|byte| *byte == b'(')?;
        let end = text.iter().rposition(|byte| *byte == b')')?;
        let rest = std::str::from_utf8(&text[end + 1..]).ok()?;
        // proc_pid_stat(5): state is field 3, the first here.
        let number = |field: usize| rest.split_ascii_whitespace().nth(field - 3)?.parse().ok();
        Some(Self {
            name: text.get(start..end)?.to_vec(),
            faults: TaskFaults { nr_minor: number(10)?, nr_major: number(12)? },
            start_ticks: number(22)?,
            virtual_bytes: number(23)?,
            resident_pages: number(24)?,
        })
    }
}

/// Returns a process and its descendants, as far as their parents are alive.
pub(crate) fn tree(system: &dyn System, pid: u32) -> BTreeSet<u32> {
    let (mut pids, mut queue) = (BTreeSet::from([pid]), vec![pid]);
    while let Some(pid) = queue.pop() {
        for child in Task::of(system, pid).children() {
            if pids.len() < NR_PROCESSES_MAX && pids.insert(child) {
                queue.push(child);
            }
        }
    }
    pids
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_does_not_move_the_fields() {
        let line = b"7 (a) Z 9 9 9 (b) S 1 70 71 0 -1 4194304 100 20 3 4 5 6 7 8 20 0 1 0 9";
        let stat = Stat::parse(line).unwrap();
        assert_eq!((stat.state, stat.group), (b'S', 70));
        assert_eq!((stat.nr_minor_faults, stat.user_ticks, stat.system_ticks), (120, 12, 14));
        assert_eq!(stat.own_faults, TaskFaults { nr_minor: 100, nr_major: 3 });
        assert!(stat.is_alive());
        let memory = MemoryState::parse(b"7 (a) S 1 7 7 0 -1 0 100 20 3 4 5 6 7 8 20 0 1 0 9 8 7");
        let expected = MemoryState {
            name: b"(a".to_vec(),
            faults: stat.own_faults,
            start_ticks: 9,
            virtual_bytes: 8,
            resident_pages: 7,
        };
        assert_eq!(memory, Some(expected));
        for broken in [&b")("[..], b"7 (x) S 1 2", line] {
            assert_eq!(MemoryState::parse(broken), None, "no size");
        }
        for broken in [&b""[..], b"7 (x", b"7 (x)", b"7 (x) S 1 2", b"7 (x) S \xff", b")"] {
            assert_eq!(Stat::parse(broken), None);
        }
    }
}

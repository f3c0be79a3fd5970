//! Groups the lines of a trace: each action of a thread with the kernel's response.
//!
//! Threads take turns, even within a call or a fault. An event belongs to the last action of its
//! own thread. An action is ordered by its first event, because its mark may be much older.
//!
//! ```text
//!   trace     read 7 | read 8 | 8: inserted | 7: inserted | ret 8 | ret 7
//!   units     [read 8, inserted] [read 7, inserted]
//! ```
//!
//! Invariant U1: every event of a known file is in exactly one unit.

use std::collections::{BTreeMap, BTreeSet};

use super::super::line::{Event, Mark, TracerLine};

#[derive(Debug)]
pub(super) struct Unit {
    pub(super) tid: i32,
    space: Option<u32>,
    pub(super) what: UnitKind,
    /// The kernel's actions on known files in this unit, by this thread.
    pub(super) events: Vec<Event>,
    /// Files on which another thread acted during this unit.
    pub(super) met: BTreeSet<u64>,
    /// Positions of its start, its first and last event, and its thread's next action.
    began: usize,
    first: Option<usize>,
    last: usize,
    until: usize,
    /// The enclosing call: the unit follows that call's own effects.
    inside: Option<usize>,
}

#[derive(Debug)]
pub(super) enum UnitKind {
    Alone(Mark),
    /// A system call by number, and its file marks.
    Call(i64, Vec<Mark>),
    Fault {
        address: u64,
        code: u64,
    },
    /// By a thread outside the program.
    Foreign,
}

#[derive(Debug, Default)]
struct Doing {
    call: Option<usize>,
    /// Files that the call reads or writes.
    own: BTreeSet<u64>,
    fault: Option<usize>,
    /// The unit that ends when the thread continues.
    latest: Option<usize>,
}

#[derive(Default)]
struct Gatherer {
    units: Vec<Unit>,
    threads: BTreeMap<i32, Doing>,
    spaces: BTreeMap<i32, u32>,
    opens: BTreeMap<u32, u64>,
    known: BTreeSet<u64>,
    /// The thread that marks currently belong to.
    marking: i32,
}

/// Returns all units, in the order of their effects.
pub(super) fn gather(lines: Vec<TracerLine>) -> Vec<Unit> {
    let mut gatherer = Gatherer::default();
    gatherer.known.extend(lines.iter().filter_map(|line| match line.event {
        Event::Mark(Mark::Open { inode, .. } | Mark::KernelMap { inode, .. }) => Some(inode),
        _ => None,
    }));
    let end = lines.len();
    for (at, line) in lines.into_iter().enumerate() {
        gatherer.line(at, line);
    }
    gatherer.finish(end)
}

impl Gatherer {
    fn line(&mut self, at: usize, line: TracerLine) {
        match line.event {
            Event::Mark(mark) => self.mark(at, mark),
            Event::Fault { address, code } if self.spaces.contains_key(&line.tid) => {
                self.fault(at, line.tid, address, code);
            }
            Event::Fault { .. } => {}
            event => self.event(at, line.tid, event),
        }
    }

    fn fault(&mut self, at: usize, tid: i32, address: u64, code: u64) {
        let call = self.threads.get(&tid).and_then(|doing| doing.call);
        if let Some(call) = call.map(|nr| &mut self.units[nr])
            && call.is_execve()
        {
            call.events.push(Event::Fault { address, code });
            return;
        }
        let nr = self.begin(at, tid, UnitKind::Fault { address, code });
        let doing = self.threads.entry(tid).or_default();
        self.units[nr].inside = doing.call.filter(|_| !doing.own.is_empty());
        doing.fault = Some(nr);
    }

    fn mark(&mut self, at: usize, mark: Mark) {
        match mark {
            Mark::Call { tid, nr } => {
                self.marking = tid;
                let unit = self.begin(at, tid, UnitKind::Call(nr, Vec::new()));
                let doing = self.threads.entry(tid).or_default();
                (doing.call, doing.fault) = (Some(unit), None);
                doing.own.clear();
            }
            Mark::Return { tid, result } => {
                self.marking = tid;
                let doing = self.threads.entry(tid).or_default();
                doing.fault = None;
                if let Some(unit) = doing.call.take() {
                    doing.latest = Some(unit);
                    self.units[unit].returns(at, result);
                }
            }
            Mark::Thread { tid, space } => {
                self.marking = tid;
                self.spaces.insert(tid, space);
                self.alone(at, mark);
            }
            Mark::Open { id, inode } => {
                self.opens.insert(id, inode);
                self.alone(at, mark);
            }
            Mark::Fork { .. } => self.alone(at, mark),
            _ => self.of_call(at, mark),
        }
    }

    fn alone(&mut self, at: usize, mark: Mark) {
        self.add(at, self.marking, UnitKind::Alone(mark));
    }

    fn of_call(&mut self, at: usize, mark: Mark) {
        let doing = self.threads.entry(self.marking).or_default();
        match mark {
            Mark::Io { open, .. } | Mark::Fadvise { open, .. } | Mark::Send { open, .. } => {
                doing.own.extend(self.opens.get(&open));
            }
            Mark::Aside { inode, .. } => {
                doing.own.insert(inode);
            }
            _ => {}
        }
        let unit = doing.call.or(doing.latest).map(|nr| &mut self.units[nr].what);
        match unit {
            Some(UnitKind::Call(_, marks)) => marks.push(mark),
            _ => self.alone(at, mark),
        }
    }

    fn add(&mut self, at: usize, tid: i32, what: UnitKind) -> usize {
        let (events, met, space) = (Vec::new(), BTreeSet::new(), self.spaces.get(&tid).copied());
        let (began, last, first, until, inside) = (at, at, None, 0, None);
        let unit = Unit { tid, space, what, events, met, began, first, last, until, inside };
        self.units.push(unit);
        self.units.len() - 1
    }

    /// Starts a new unit of a thread, which ends the one before it.
    fn begin(&mut self, at: usize, tid: i32, what: UnitKind) -> usize {
        let nr = self.add(at, tid, what);
        let doing = self.threads.entry(tid).or_default();
        if let Some(before) = doing.latest.replace(nr) {
            self.units[before].until = at;
        }
        nr
    }

    fn event(&mut self, at: usize, tid: i32, event: Event) {
        let Some(inode) = event.inode().filter(|inode| self.known.contains(inode)) else { return };
        let nr = match self.threads.get(&tid).filter(|_| self.spaces.contains_key(&tid)) {
            // The call reads its own file, and meanwhile faults on others.
            Some(doing) if doing.own.contains(&inode) => doing.call.or(doing.fault),
            Some(doing) => doing.fault.or(doing.call),
            None => None,
        };
        let nr = nr.unwrap_or_else(|| self.add(at, tid, UnitKind::Foreign));
        let unit = &mut self.units[nr];
        unit.first.get_or_insert(at);
        unit.last = at;
        unit.events.push(event);
    }

    fn finish(mut self, end: usize) -> Vec<Unit> {
        for unit in &mut self.units {
            if unit.until == 0 {
                unit.until = end;
            }
        }
        self.drop_late_faults();
        let keys: Vec<_> = self.units.iter().map(|unit| self.key(unit)).collect();
        let mut units: Vec<_> = keys.into_iter().zip(self.units).collect();
        units.sort_by_key(|(key, _)| *key);
        let mut units: Vec<Unit> = units.into_iter().map(|(_, unit)| unit).collect();
        find_meetings(&mut units);
        units
    }

    /// Returns the position of the unit's effect, and whether it follows its enclosing call.
    fn key(&self, unit: &Unit) -> (usize, bool) {
        let own = unit.at();
        match unit.inside.map(|call| self.units[call].at()) {
            Some(call) if call >= own => (call, true),
            _ => (own, false),
        }
    }

    /// Drops faults without events if another thread mapped the page before the faulting thread
    /// continued.
    fn drop_late_faults(&mut self) {
        let mut mapped: BTreeMap<u32, BTreeMap<usize, i32>> = BTreeMap::new();
        for unit in &self.units {
            if let (UnitKind::Fault { .. }, Some(_), Some(space)) =
                (&unit.what, unit.first, unit.space)
            {
                mapped.entry(space).or_default().insert(unit.last, unit.tid);
            }
        }
        let is_late = |unit: &Unit| {
            let others = unit.space.and_then(|space| mapped.get(&space));
            matches!(unit.what, UnitKind::Fault { .. })
                && unit.first.is_none()
                && others.is_some_and(|others| {
                    let mut others = others.range(unit.began..unit.until);
                    others.any(|(_, tid)| *tid != unit.tid)
                })
        };
        let late: Vec<bool> = self.units.iter().map(is_late).collect();
        for (unit, _) in self.units.iter_mut().zip(late).filter(|(_, is_late)| *is_late) {
            unit.what = UnitKind::Foreign;
        }
    }
}

impl Unit {
    fn returns(&mut self, at: usize, result: i64) {
        self.began = at;
        if let UnitKind::Call(_, marks) = &mut self.what
            && result < 0
            && self.events.is_empty()
        {
            let is_done = |mark: &Mark| {
                !matches!(mark, Mark::Io { .. } | Mark::Send { .. } | Mark::Aside { .. })
            };
            marks.retain(is_done);
        }
    }

    fn is_execve(&self) -> bool {
        matches!(self.what, UnitKind::Call(libc::SYS_execve | libc::SYS_execveat, _))
    }

    fn at(&self) -> usize {
        self.first.unwrap_or(self.began)
    }
}

/// Records units of two threads that used the same file at the same time.
fn find_meetings(units: &mut [Unit]) {
    let mut latest: BTreeMap<u64, usize> = BTreeMap::new();
    for nr in 0..units.len() {
        let inodes: BTreeSet<u64> = units[nr].events.iter().filter_map(Event::inode).collect();
        for inode in inodes {
            let Some(&before) = latest.get(&inode) else {
                latest.insert(inode, nr);
                continue;
            };
            if units[before].last > units[nr].at() && units[before].tid != units[nr].tid {
                units[before].met.insert(inode);
                units[nr].met.insert(inode);
            }
            if units[nr].last > units[before].last {
                latest.insert(inode, nr);
            }
        }
    }
}

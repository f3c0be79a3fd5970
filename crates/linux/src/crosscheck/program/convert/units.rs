//! The lines of a trace put together: what each thread did, with what the kernel did for it.
//!
//! Threads run in turns, also within a call or a fault. An event belongs to the last thing that its
//! own thread did, and a thing stands where its first event stands: its mark may be much older.
//!
//! ```text
//!   trace     read 7 | read 8 | 8: inserted | 7: inserted | ret 8 | ret 7
//!   units     [read 8, inserted] [read 7, inserted]
//! ```
//!
//! Invariant U1: every event of a known file is in exactly one unit.

use std::collections::{BTreeMap, BTreeSet};

use super::super::line::{Event, Line, Mark};

/// One thing that a thread did.
#[derive(Debug)]
pub(super) struct Unit {
    /// Thread, and its address space.
    pub(super) tid: i32,
    space: Option<u32>,
    pub(super) what: What,
    /// What the kernel did to known files meanwhile, by this thread.
    pub(super) events: Vec<Event>,
    /// Files for which another thread did something while this was being done.
    pub(super) met: BTreeSet<u64>,
    /// Where it began, where its first and its last event stand, and where its thread went on.
    began: usize,
    first: Option<usize>,
    last: usize,
    until: usize,
    /// The call it happened in: it follows what that did.
    inside: Option<usize>,
}

/// What a unit is.
#[derive(Debug)]
pub(super) enum What {
    /// A mark that stands for itself.
    Alone(Mark),
    /// A system call by its number, and what it means for files.
    Call(i64, Vec<Mark>),
    /// A page fault.
    Fault { address: u64, code: u64 },
    /// Done by a thread that is none of the program's.
    Foreign,
}

/// What a thread is doing.
#[derive(Debug, Default)]
struct Doing {
    call: Option<usize>,
    /// Files that the call reads or writes.
    own: BTreeSet<u64>,
    fault: Option<usize>,
    /// The unit that waits for the thread to go on.
    latest: Option<usize>,
}

#[derive(Default)]
struct Gatherer {
    units: Vec<Unit>,
    threads: BTreeMap<i32, Doing>,
    spaces: BTreeMap<i32, u32>,
    opens: BTreeMap<u32, u64>,
    /// Files of the program.
    known: BTreeSet<u64>,
    /// Thread whose marks are being written.
    marking: i32,
}

/// All units, in the order in which they took effect.
pub(super) fn gather(lines: Vec<Line>) -> Vec<Unit> {
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
    fn line(&mut self, at: usize, line: Line) {
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
        let nr = self.begin(at, tid, What::Fault { address, code });
        let doing = self.threads.entry(tid).or_default();
        self.units[nr].inside = doing.call.filter(|_| !doing.own.is_empty());
        doing.fault = Some(nr);
    }

    fn mark(&mut self, at: usize, mark: Mark) {
        match mark {
            Mark::Call { tid, nr } => {
                self.marking = tid;
                let unit = self.begin(at, tid, What::Call(nr, Vec::new()));
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
        self.add(at, self.marking, What::Alone(mark));
    }

    /// A mark of the call whose thread stands still.
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
            Some(What::Call(_, marks)) => marks.push(mark),
            _ => self.alone(at, mark),
        }
    }

    fn add(&mut self, at: usize, tid: i32, what: What) -> usize {
        let (events, met, space) = (Vec::new(), BTreeSet::new(), self.spaces.get(&tid).copied());
        let (began, last, first, until, inside) = (at, at, None, 0, None);
        let unit = Unit { tid, space, what, events, met, began, first, last, until, inside };
        self.units.push(unit);
        self.units.len() - 1
    }

    /// A new unit of a thread; the one before it has ended.
    fn begin(&mut self, at: usize, tid: i32, what: What) -> usize {
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
            // The program's call reads its own file, and faults on others meanwhile.
            Some(doing) if doing.own.contains(&inode) => doing.call.or(doing.fault),
            Some(doing) => doing.fault.or(doing.call),
            None => None,
        };
        let nr = nr.unwrap_or_else(|| self.add(at, tid, What::Foreign));
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

    /// Where a unit took effect, and whether it follows the call it happened in.
    fn key(&self, unit: &Unit) -> (usize, bool) {
        let own = unit.at();
        match unit.inside.map(|call| self.units[call].at()) {
            Some(call) if call >= own => (call, true),
            _ => (own, false),
        }
    }

    /// A fault without any event found its page mapped where another thread of the same address
    /// space mapped pages between the fault and what the thread did next: it did nothing.
    fn drop_late_faults(&mut self) {
        let mut mapped: BTreeMap<u32, BTreeMap<usize, i32>> = BTreeMap::new();
        for unit in &self.units {
            if let (What::Fault { .. }, Some(_), Some(space)) = (&unit.what, unit.first, unit.space)
            {
                mapped.entry(space).or_default().insert(unit.last, unit.tid);
            }
        }
        let is_late = |unit: &Unit| {
            let others = unit.space.and_then(|space| mapped.get(&space));
            matches!(unit.what, What::Fault { .. })
                && unit.first.is_none()
                && others.is_some_and(|others| {
                    let mut others = others.range(unit.began..unit.until);
                    others.any(|(_, tid)| *tid != unit.tid)
                })
        };
        let late: Vec<bool> = self.units.iter().map(is_late).collect();
        for (unit, _) in self.units.iter_mut().zip(late).filter(|(_, is_late)| *is_late) {
            unit.what = What::Foreign;
        }
    }
}

impl Unit {
    /// A call that failed before it did anything to a file has read and written nothing.
    fn returns(&mut self, at: usize, result: i64) {
        self.began = at;
        if let What::Call(_, marks) = &mut self.what
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
        matches!(self.what, What::Call(libc::SYS_execve | libc::SYS_execveat, _))
    }

    fn at(&self) -> usize {
        self.first.unwrap_or(self.began)
    }
}

/// Notes where units of two threads worked on the same file at the same time.
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

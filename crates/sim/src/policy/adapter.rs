//! Runs a policy for an interface that was posted upstream at the model's points.
//!
//! ```text
//!   anon_order, collapse, swapin_order, shmem_order    thp_get_order, mthp_choose
//!   interval                                           the program in iter/cgroup
//!   added, accessed, removed                           folio_added, folio_accessed, folio_evicted
//!   evict                                              evict_folios -> one folio per question
//!   admit                                              admit_folio
//! ```
//!
//! Owns the translation of questions and answers. The programs, their maps and their checks are the
//! same as for `folio_policy.h`.

use std::collections::BTreeSet;
use std::sync::Arc;

use largefolio_mm::policy::{Answer, Context, Point, Policy, PolicyError, admit, folio};

use super::Running;
use super::cached::{Cached, CachedFolio, NR_PROPOSED_MAX};
use super::object::Parsed;
use super::posted::{Entry, Hook};
use super::things::Kind;

/// `enum tva_type` of the header.
mod tva {
    pub(super) const PAGEFAULT: u64 = 1;
    pub(super) const KHUGEPAGED: u64 = 2;
    pub(super) const SWAP_PAGEFAULT: u64 = 4;
}

#[derive(Debug)]
pub(super) struct Adapter {
    running: Running,
    /// Cgroups for which `init` has run.
    ready: BTreeSet<u64>,
}

impl Adapter {
    pub(super) fn new(parsed: Arc<Parsed>) -> Self {
        Self { running: Running::new(parsed), ready: BTreeSet::new() }
    }

    fn cached(&mut self) -> &mut Cached {
        &mut self.running.state.cached
    }

    /// Runs a hook with its arguments; 0 if the policy does not have it.
    fn run(&mut self, hook: Hook, arguments: &[u64], context: &Context) -> Result<u64, String> {
        let input: Vec<u8> = arguments.iter().flat_map(|word| word.to_le_bytes()).collect();
        let ran = self.running.run(Entry::Hook(hook), &input, context)?;
        Ok(ran.map_or(0, |ran| ran.value))
    }

    fn ask(&mut self, point: Point, context: &Context) -> Result<Answer, String> {
        match point {
            Point::AnonOrder | Point::Collapse | Point::SwapinOrder | Point::ShmemOrder => {
                self.orders(point, context)
            }
            Point::Interval => {
                let cgroup = Kind::Cgroup.address(context.group);
                self.run(Hook::MthpScan, &[0, cgroup], context)?;
                Ok(Answer::Own)
            }
            Point::Added | Point::Accessed | Point::Removed => {
                self.init(context)?;
                self.event(point, context)
            }
            Point::Evict => {
                self.init(context)?;
                self.next_victim(context)
            }
            Point::Admit => {
                self.init(context)?;
                let request = Kind::Admission.address(context.file);
                // A bool: one byte.
                let bypasses = self.run(Hook::CacheAdmit, &[request], context)? & 0xff != 0;
                Ok(Answer::Value(if bypasses { admit::BYPASS } else { admit::CACHE }))
            }
            Point::Window | Point::Around | Point::Write | Point::Victim => Ok(Answer::Own),
        }
    }

    fn orders(&mut self, point: Point, context: &Context) -> Result<Answer, String> {
        let Context { process, group, orders, .. } = *context;
        if self.running.has(Entry::Hook(Hook::MthpChoose)) {
            let cgroup = Kind::Cgroup.address(group);
            let chosen = self.run(Hook::MthpChoose, &[cgroup, orders], context)?;
            return Ok(Answer::Value(chosen & orders));
        }
        let why = match point {
            Point::Collapse => tva::KHUGEPAGED,
            Point::SwapinOrder => tva::SWAP_PAGEFAULT,
            _ => tva::PAGEFAULT,
        };
        let area = Kind::Area.address(process);
        let order = self.run(Hook::ThpOrder, &[area, why, orders], context)?;
        // An int. Orders that do not exist, such as -1, leave base pages.
        let bit = 1_u64.checked_shl(order as u32).unwrap_or(0);
        Ok(Answer::Value(bit & (orders | 1)))
    }

    fn init(&mut self, context: &Context) -> Result<(), String> {
        if !self.ready.insert(context.group) {
            return Ok(());
        }
        let memcg = Kind::MemCgroup.address(context.group);
        match self.run(Hook::CacheInit, &[memcg], context)? as i32 {
            0 => Ok(()),
            error => Err(format!("init() of cgroup {} returned {error}", context.group)),
        }
    }

    fn event(&mut self, point: Point, context: &Context) -> Result<Answer, String> {
        let Context { folio: number, file, index, order, folio_flags, .. } = *context;
        if number == 0 {
            return Ok(Answer::Own);
        }
        let is_dirty = folio_flags & folio::DIRTY > 0;
        self.cached().learn(number, CachedFolio::new(file, index, order, is_dirty));
        let hook = match point {
            Point::Added => Hook::CacheAdded,
            Point::Accessed => Hook::CacheAccessed,
            _ => Hook::CacheRemoved,
        };
        self.run(hook, &[Kind::Folio.address(number)], context)?;
        if point == Point::Removed {
            self.cached().forget(number);
        }
        Ok(Answer::Own)
    }

    /// The next of the folios that `evict_folios` proposed; it is called when none are left.
    fn next_victim(&mut self, context: &Context) -> Result<Answer, String> {
        if let Some(number) = self.cached().next_answer() {
            return Ok(Answer::Value(number));
        }
        self.cached().request(context.wanted.min(NR_PROPOSED_MAX));
        let arguments =
            [Kind::Eviction.address(context.group), Kind::MemCgroup.address(context.group)];
        self.run(Hook::CacheEvict, &arguments, context)?;
        self.cached().end_request();
        Ok(self.cached().next_answer().map_or(Answer::Own, Answer::Value))
    }
}

impl Policy for Adapter {
    fn handles(&self, point: Point) -> bool {
        self.running.parsed.programs.keys().any(|entry| match entry {
            Entry::Hook(hook) => hook.points().contains(&point),
            Entry::Point(_) => false,
        })
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        self.running.nr_insns = 0;
        self.ask(point, context).map_err(|message| PolicyError { point, message })
    }

    fn nr_steps(&self) -> u64 {
        self.running.nr_steps()
    }

    fn state_bytes(&self) -> u64 {
        self.running.state_bytes()
    }

    fn interval_ns(&self) -> u64 {
        self.running.interval_ns()
    }
}

//! Remedies for private memory that need a restart of the program.
//!
//! Chooses between a runtime's option and a setting, or gives the reason if neither works.
//!
//! Invariants:
//! - P1: an option is not recommended if it is in effect, if the loader ignores it, or if it
//!   belongs to an allocator not in use.
//! - P2: no setting is recommended for a process with THP disabled.

use std::rc::Rc;

use super::allocated::Allocated;
use super::case::Case;
use super::heap;
use super::judge::Judge;
use super::reason::CensusQuestion;
use crate::census::settings::{Allows, InForce};
use crate::proc::Task;
use crate::proc::choice::Choice;
use crate::proc::smaps::Smap;
use crate::program::start::{Ancestor, Disabled};
use crate::remedies::runtime::{Memory, Runtime, Started, Traits, Wanted};
use crate::remedies::{Action, Remedy, Restart};
use crate::shell::as_typed;

pub(super) const SYSTEM_WIDE: &str =
    "it applies to all programs: those that use memory sparsely will use more of it";

pub(super) const EXCEPT_ADVISED: &str = "THP is disabled for the process except for advised memory (PR_THP_DISABLE_EXCEPT_ADVISED; systemd's \
     MemoryTHP=madvise), so no setting helps: start the program without this flag";

const MAYBE_IN_PIECES: &str = "the gain is smaller if the allocator mapped the memory \
    in pieces: a block that spans two pieces stays small";

const ONLY_IF_MADVISE: &str =
    "its allocator calls madvise only if thp.enabled is madvise when the program starts";

const UNSEEN: &str = "there is no gain if THP is disabled for the process except for advised \
                      memory; folio can detect this only if thp.enabled is always";

impl Judge<'_> {
    pub(super) fn anon_next_start(&mut self, case: &Case<'_>, smap: &Smap) -> Option<Remedy> {
        let row = self.runtime(case, Memory::Anon);
        let option = self.option(case, row);
        if let Some(disabled) = self.facts.disabled(case).cloned() {
            let of_row = option.remedy().filter(|_| row.is_some_and(|row| row.disabled));
            return Some(of_row.unwrap_or_else(|| Remedy::nothing(disabled.way_out())));
        }
        if smap.is_no_huge {
            return Some(Remedy::nothing(
                "the program forbids it (MADV_NOHUGEPAGE), or it is a thread's stack, which the \
                 kernel keeps small (MAP_STACK); folio knows of no option that prevents this",
            ));
        }
        let Some(set) = self.settings.anon(case.target_bytes) else {
            return Some(Remedy::nothing("this kernel has no folios of this size for this memory"));
        };
        let is_advised = smap.is_huge;
        if !is_advised && self.is_excepted(case) == Some(true) {
            let option = option.remedy().filter(|_| !case.is_short);
            let option = option.map(|option| self.with_setting(row, &set, option, "madvise"));
            return Some(option.unwrap_or_else(|| Remedy::nothing(EXCEPT_ADVISED)));
        }
        // It was touched before the setting, or no block was free: collapse helps.
        if set.allows == Allows::All || set.allows == Allows::Advised && is_advised {
            return None;
        }
        let is_sought = !case.is_short && !is_advised;
        match option {
            OwnOption::Start(option) if is_sought => {
                return Some(self.with_setting(row, &set, option, "madvise"));
            }
            OwnOption::Already(ref what) if is_sought && is_for_madvise(row) => {
                let started = Remedy {
                    action: Action::Restart,
                    restart: Restart::After,
                    ..Remedy::nothing(format!(
                        "{what} is in effect, but works only if the program starts under this \
                         setting"
                    ))
                };
                return Some(self.with_setting(row, &set, started, "madvise"));
            }
            _ => {}
        }
        // Advised memory is already as large as it gets.
        if !is_advised && case.grows && (case.is_short || case.mapping.vma.is_heap()) {
            return Some(Remedy::nothing(
                "it grows in small steps, and no folio of this size fits at the end of a step: a \
                 setting would help only in part",
            ));
        }
        if let Some(row) = row.filter(|row| row.in_pieces && is_sought) {
            return Some(Remedy::nothing(row.cost.clone()));
        }
        let value = if is_advised { "madvise" } else { "always" };
        let more = option.note().or_else(|| row.map(|row| row.cost.clone())).filter(|_| is_sought);
        Some(self.of_all_programs(case, &set, value, more))
    }

    pub(super) fn of_all_programs(
        &mut self,
        case: &Case<'_>,
        set: &InForce,
        value: &str,
        more: Option<String>,
    ) -> Remedy {
        let is_advised_heap = |smap: &&Smap| smap.is_huge && smap.vma.is_heap();
        let heap: u64 = self
            .facts
            .smaps(case.process.pid)
            .iter()
            .filter(is_advised_heap)
            .map(Smap::pmd_bytes)
            .sum();
        // Advised memory that one call mapped is also large under always.
        if value == "always" && set.allows == Allows::Advised && heap > 0 {
            return Remedy::nothing(format!(
                "under always, glibc no longer calls madvise on its heap, and {} MiB of it would \
                 get small folios again",
                heap >> 20
            ));
        }
        // The kernel aligns a mapping of whole blocks (Linux 6.7). Others may consist of pieces.
        let is_odd = [case.mapping.vma.range.start, case.mapping.vma.range.end]
            .iter()
            .any(|address| !address.is_multiple_of(case.target_bytes));
        let in_pieces = (is_odd && self.traits(case).has_foreign_allocator())
            .then(|| MAYBE_IN_PIECES.to_owned());
        let costs = [SYSTEM_WIDE.to_owned()].into_iter().chain(more).chain(in_pieces);
        let cost = costs.collect::<Vec<_>>().join("; ");
        let tuned = self.tuned(set, value).costing_if_some(cost);
        let smap = self.facts.smap(case);
        self.unless_excepted(case, tuned, &smap)
    }

    /// Adds the limit of the promise to a remedy for all memory.
    pub(super) fn unless_excepted(
        &mut self,
        case: &Case<'_>,
        remedy: Remedy,
        smap: &Smap,
    ) -> Remedy {
        let may_be = self.facts.may_except_advised && self.is_excepted(case).is_none();
        if smap.is_huge || !remedy.is_some() || !may_be {
            return remedy;
        }
        let cost = format!("{}; {UNSEEN}", remedy.cost);
        remedy.costing(cost)
    }

    /// Recommends the row's option, unless it is in effect or the program would ignore it.
    pub(super) fn option(&mut self, case: &Case<'_>, row: Option<&'static Runtime>) -> OwnOption {
        let Some(row) = row.filter(|row| row.has_option()) else { return OwnOption::None };
        match row.start(self.traits(case)) {
            Started::As { line, notes } => {
                let pmd_bytes = self.census.geometry.pmd_bytes();
                let has_code = row.own_heap && heap::is_largest(case);
                let extra_bytes = if has_code {
                    heap::code(case.process, pmd_bytes)
                } else if row.malloc && case.mapping.vma.is_heap() {
                    // The mapping then ends with a whole block; on average half of it is new.
                    pmd_bytes / 2
                } else {
                    0
                };
                let cost = [row.cost.clone()].into_iter().chain(notes).collect::<Vec<_>>();
                OwnOption::Start(Remedy {
                    action: Action::Option,
                    start: line,
                    restart: Restart::After,
                    undo: "start it as before".to_owned(),
                    extra_bytes,
                    ..Remedy::nothing(cost.join("; "))
                })
            }
            Started::Already(what) => OwnOption::Already(what),
            Started::Ignored => OwnOption::Without(
                "the program runs with other privileges (set-id or capabilities), so its loader \
                 ignores the allocator's environment variables"
                    .to_owned(),
            ),
        }
    }

    pub(super) fn runtime(&mut self, case: &Case<'_>, memory: Memory) -> Option<&'static Runtime> {
        // A program's option does not lift a ban set by its parent.
        let disabled = self.facts.disabled(case).cloned();
        if disabled.as_ref().is_some_and(|disabled| disabled.ancestor.is_some()) {
            return None;
        }
        let vma = &case.mapping.vma;
        let allocated = self.allocated(case);
        let wanted = Wanted {
            memory,
            range: vma.range.clone(),
            is_heap: vma.is_heap(),
            pmd_bytes: self.census.geometry.pmd_bytes(),
            is_disabled: disabled.is_some(),
            longest_chunk: allocated.pieces.longest_chunk(),
            is_arena: allocated.is_arena,
            is_object_arena: allocated.is_object_arena,
            is_own_heap: heap::is_part(case),
        };
        Runtime::of(self.traits(case), &wanted)
    }

    pub(super) fn allocated(&mut self, case: &Case<'_>) -> Rc<Allocated> {
        let vma = &case.mapping.vma;
        let key = (case.process.pid, vma.range.start);
        if let Some(known) = self.allocated.get(&key) {
            return Rc::clone(known);
        }
        let may_be_glibcs = !self.traits(case).has_foreign_allocator();
        let task = Task::of(self.question.system, case.process.pid);
        let page_bytes = self.census.geometry.page_bytes;
        let allocated = Rc::new(Allocated::of(&task, vma, page_bytes, may_be_glibcs));
        self.allocated.insert(key, Rc::clone(&allocated));
        allocated
    }

    /// Recommends a setting if `folio tune` accepts the value.
    pub(super) fn tuned(&self, set: &InForce, value: &str) -> Remedy {
        let text = self.question.system.text(&set.path).unwrap_or_default();
        let choice = Choice::parse(&String::from_utf8_lossy(&text));
        match choice.check(&set.name, value) {
            Ok(()) => Remedy::tune(&set.name, value),
            Err(error) => Remedy::nothing(error.to_string()),
        }
    }

    pub(super) fn with_setting(
        &self,
        row: Option<&Runtime>,
        set: &InForce,
        option: Remedy,
        value: &str,
    ) -> Remedy {
        let global = self.settings.global("enabled").filter(|_| is_for_madvise(row));
        let is_always = |set: &InForce| set.allows == Allows::All;
        if global.as_ref().is_some_and(is_always) {
            return Remedy::nothing(ONLY_IF_MADVISE);
        }
        let other = global.as_ref().filter(|global| global.name != set.name);
        let off: Vec<_> = [Some(set), other]
            .into_iter()
            .flatten()
            .filter(|set| set.allows == Allows::None)
            .collect();
        let set = match off[..] {
            [] => return option,
            [set] => set,
            _ => return Remedy::nothing(ONLY_IF_MADVISE),
        };
        let tuned = self.tuned(set, value);
        if !tuned.is_some() {
            return tuned;
        }
        let undo = [option.undo, tuned.undo].into_iter().filter(|undo| !undo.is_empty());
        let undo = undo.collect::<Vec<_>>().join("; ");
        let action = if option.start.is_empty() { tuned.action } else { option.action };
        Remedy { action, scope: tuned.scope, command: tuned.command, undo, ..option }
    }

    pub(super) fn traits(&mut self, case: &Case<'_>) -> &Traits {
        let CensusQuestion { system, verbs, .. } = *self.question;
        let of = || Traits::of(system, verbs, case.process);
        self.traits.entry(case.process.pid).or_insert_with(of)
    }
}

fn is_for_madvise(row: Option<&Runtime>) -> bool {
    row.is_some_and(|row| row.only_if_madvise)
}

impl Remedy {
    pub(super) fn costing_if_some(self, cost: String) -> Self {
        if self.is_some() { self.costing(cost) } else { self }
    }
}

pub(super) enum OwnOption {
    Start(Remedy),
    /// Already in effect, with the option's name.
    Already(String),
    /// Not possible, with the reason.
    Without(String),
    None,
}

impl OwnOption {
    fn remedy(&self) -> Option<Remedy> {
        if let Self::Start(remedy) = self { Some(remedy.clone()) } else { None }
    }

    pub(super) fn note(&self) -> Option<String> {
        match self {
            Self::Already(what) => {
                Some(format!("{what} is in effect but does not reach this memory"))
            }
            Self::Without(why) => Some(why.clone()),
            Self::Start(_) | Self::None => None,
        }
    }
}

impl Disabled {
    pub(super) fn way_out(&self) -> String {
        let run = as_typed("folio run -- PROGRAM");
        match &self.ancestor {
            None => format!(
                "THP is disabled for the process (PR_SET_THP_DISABLE): the program itself did that, or \
                 the wrapper that started it; if it was a wrapper, start the program with {run}, which \
                 clears the flag"
            ),
            Some(Ancestor { pid, name }) => format!(
                "THP is disabled (PR_SET_THP_DISABLE) for the process and its parents up to process \
                 {pid} ({name}), which passed the flag on: start the program from elsewhere, or \
                 with {run}, which clears it"
            ),
        }
    }
}

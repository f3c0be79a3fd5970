//! Chooses what would make a mapping's folios larger, and checks it with the verb that would do it.
//!
//! ```text
//!   private memory   now: collapse            next start: the runtime's option, else the setting
//!   shared memory    now: collapse            next start: the setting, else the mount's
//!   files            program stopped: warm    next start: run --text remap, or the kernel's setting
//! ```
//!
//! The gain counts whole blocks that have at least one page now, because an untouched block stays
//! empty. Invariant A1: a verb that would refuse is never recommended; the remedy gives the reason
//! instead.

use super::case::Case;
use super::gain::Gain;
use super::gains::{Gains, nothing_to_gain};
use super::judge::{FilePlan, Judge};
use super::reason::{Finding, Refusal};
use super::restart::{EXCEPT_ADVISED, OwnOption};
use super::tmpfs::{Home, TmpfsMount};
use crate::alignment::{Obstacle, Placed};
use crate::census::block::{self, Backing};
use crate::census::process::{Mapping, Process};
use crate::census::settings::{Allows, InForce};
use crate::proc::host::HugetlbPool;
use crate::proc::smaps::Smap;
use crate::remedies::runtime::Memory;
use crate::remedies::{self, Action, Remedy, Restart, Scope};
use crate::setting::thp::size_name;
use crate::shell::{as_typed, quoted};
use crate::system::mounts;
use crate::warm::{WarmRefusal, Warmed};

const SHARED_WIDE: &str = "it applies to shared memory in all programs, but only to whole blocks; \
    with always instead of within_size, even the smallest object would take 2M";
const IN_PIECES: &str = "malloc mapped each request separately, and no mapping contains a whole \
    block: no setting will change this, even after a restart";
/// The program that can move its shared memory to hugetlb pages if there are enough.
const POSTGRESQL: &str = "PostgreSQL";

impl Judge<'_> {
    pub(super) fn remedies(&mut self, finding: &Finding) -> Vec<Remedy> {
        if finding.reasons.iter().all(|reason| reason.refusal.has_no_remedy()) {
            return Vec::new();
        }
        let case = Case::new(self.census, finding);
        let gains = self.gains(&case);
        if gains.now.bytes == 0 && gains.next.bytes == 0 {
            return vec![Remedy::nothing(nothing_to_gain(
                finding,
                &gains,
                &self.facts.smap(&case),
            ))];
        }
        let remedies = match gains.area.backing {
            Backing::Anon => self.anon(&case, &gains),
            Backing::Shmem => self.shared(&case, &gains),
            Backing::File => {
                let mut remedies = vec![self.of_file(&case, finding)];
                remedies.extend(self.read_larger(&case, finding));
                or_nothing(remedies)
            }
        };
        let pmd_bytes = self.census.geometry.pmd_bytes();
        // The option moves CPython's objects to malloc.
        let is_of_malloc = gains.area.backing == Backing::Anon
            && self.runtime(&case, Memory::Anon).is_some_and(|row| row.malloc && !row.object_arena);
        let with_gain = |remedy: Remedy| {
            let of_file = Gain { new_bytes: 0, copied_bytes: 0, ..gains.next };
            let (gain, folio_bytes) = match remedy.action {
                Action::Nothing => return remedy,
                // The page cache always holds whole folios.
                Action::Warm => (of_file, case.target_bytes),
                Action::Tune if gains.area.backing == Backing::File => (of_file, case.target_bytes),
                // MADV_COLLAPSE makes only PMD folios, and a copy of the text moves too.
                Action::Run => (Gain { copied_bytes: of_file.bytes, ..of_file }, pmd_bytes),
                Action::Collapse => (gains.now, pmd_bytes),
                Action::Option if is_of_malloc => (gains.of_malloc, case.target_bytes),
                _ => (gains.next, case.target_bytes),
            };
            let extra = gain.extra_bytes().saturating_add(remedy.extra_bytes);
            let swapped = gain.swapped_bytes;
            remedy.gaining(gain.bytes, extra).reading(swapped).in_folios_of(folio_bytes)
        };
        let remedies: Vec<_> = remedies.into_iter().map(with_gain).collect();
        self.promise(&case, gains, &remedies);
        let gains_some = |remedy: &Remedy| !remedy.is_some() || remedy.gain_bytes > 0;
        let mut remedies: Vec<Remedy> = remedies.into_iter().filter(gains_some).collect();
        remedies.sort_by_key(|remedy| remedy.scope);
        or_nothing(remedies)
    }

    fn anon(&mut self, case: &Case<'_>, gains: &Gains) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        let smap = self.facts.smap(case);
        if self.is_collapsible(case, &smap, gains) {
            remedies.push(remedies::collapse(case.process.pid));
        }
        if gains.has_borders && gains.next.bytes == 0 {
            remedies.push(Remedy::nothing(IN_PIECES));
        } else {
            let next = self.anon_next_start(case, &smap);
            // The option reaches only part of the mapping.
            let is_option = next.as_ref().is_some_and(|remedy| remedy.action == Action::Option);
            let is_part =
                is_option && gains.has_borders && gains.of_malloc.bytes < gains.next.bytes;
            remedies.extend(next);
            if let Some(set) = self.settings.anon(case.target_bytes).filter(|_| is_part) {
                remedies.push(self.of_all_programs(case, &set, "always", None));
            }
        }
        or_nothing(remedies)
    }

    fn is_collapsible(&self, case: &Case<'_>, smap: &Smap, gains: &Gains) -> bool {
        let pmd_bytes = self.census.geometry.pmd_bytes();
        !case.is_short
            && gains.now.bytes > 0
            && block::refusal(smap, gains.area.backing, pmd_bytes).is_none()
    }

    fn shared(&mut self, case: &Case<'_>, gains: &Gains) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        let smap = self.facts.smap(case);
        let refusal = block::refusal(&smap, Backing::Shmem, case.target_bytes);
        let (home, setting) = (self.facts.home(case), self.settings.shmem(case.target_bytes));
        let is_denied = self.settings.is_shmem_denied();
        if self.is_collapsible(case, &smap, gains) && !is_denied {
            remedies.push(remedies::collapse(case.process.pid));
        }
        if let Some(disabled) = self.facts.disabled(case) {
            return vec![Remedy::nothing(disabled.way_out())];
        }
        if smap.is_no_huge {
            return vec![Remedy::nothing("the program forbids it (MADV_NOHUGEPAGE)")];
        }
        let row = self.runtime(case, Memory::Shmem);
        if row.is_some_and(|row| row.name == POSTGRESQL) {
            remedies.extend(self.reserved(case));
        }
        let option = self.option(case, row);
        if !smap.is_huge
            && self.is_excepted(case) == Some(true)
            && !matches!(option, OwnOption::Start(_))
        {
            remedies.push(Remedy::nothing(EXCEPT_ADVISED));
            return or_nothing(remedies);
        }
        let cost = option.note().or_else(|| row.map(|row| row.cost.clone()));
        let cost = cost.map_or(SHARED_WIDE.to_owned(), |cost| format!("{SHARED_WIDE}; {cost}"));
        remedies.extend(match (&home, setting) {
            (Home::Mount(mount), _) => {
                let remounted = self.mounted(mount, &smap);
                Some(self.unless_excepted(case, remounted, &smap))
            }
            (Home::Unseen, _) => Some(Remedy::nothing(
                "its tmpfs mount determines this, but neither folio nor the process can see the \
                 mount: it is in another mount namespace or was unmounted",
            )),
            (_, None) => {
                Some(Remedy::nothing("this kernel has no folios of this size for shared memory"))
            }
            (_, Some(InForce { allows: Allows::All, .. })) => refusal.is_some().then(|| Remedy {
                action: Action::Restart,
                restart: Restart::After,
                ..Remedy::nothing("the settings allow it, but not for memory mapped earlier")
            }),
            (_, Some(set)) => Some(match option {
                OwnOption::Start(option) if !smap.is_huge => {
                    self.with_setting(row, &set, option, "advise")
                }
                OwnOption::Already(_) if set.allows == Allows::Advised => Remedy {
                    action: Action::Restart,
                    restart: Restart::After,
                    ..Remedy::nothing("its option is in effect, and the setting allows it now")
                },
                // The option has no effect until the setting changes.
                OwnOption::Already(what) => self
                    .tuned(&set, "advise")
                    .costing_if_some(format!("{what} is in effect, but needs this setting")),
                _ => {
                    let value = if smap.is_huge { "advise" } else { "within_size" };
                    let tuned = self.tuned(&set, value).costing_if_some(cost);
                    self.unless_excepted(case, tuned, &smap)
                }
            }),
        });
        or_nothing(remedies)
    }

    /// `PostgreSQL` has its own option: hugetlb pages, reserved for the mapping.
    fn reserved(&self, case: &Case<'_>) -> Option<Remedy> {
        let pool = HugetlbPool::of(self.question.system)?;
        let bytes = case.mapping.vma.len_bytes();
        let remedy = remedies::hugetlb(&pool, bytes, "postgres -c huge_pages=on ..".to_owned());
        let is_view = |other: &&Mapping| {
            (other.vma.device, other.vma.inode) == (case.mapping.vma.device, case.mapping.vma.inode)
        };
        let maps_it = |process: &&Process| process.mappings.iter().any(|one| is_view(&one));
        let processes = self.census.processes.iter().filter(maps_it);
        let tables: u64 = processes.map(|process| process.held.page_table_bytes).sum();
        Some(remedy.costing(format!(
            "it reserves {} of {} each, which other programs then cannot use; its page tables, \
             now {} KiB, shrink",
            pool.nr_for(bytes),
            size_name(pool.page_bytes),
            tables >> 10
        )))
    }

    fn mounted(&self, mount: &TmpfsMount, smap: &Smap) -> Remedy {
        match self.settings.tmpfs(&mount.huge) {
            None => Remedy::nothing("this kernel has no folios of this size for shared memory"),
            Some(allows) if allows == Allows::All || allows == Allows::Advised && smap.is_huge => {
                Remedy::nothing(
                    "its mount already allows it; files written from now on get larger folios",
                )
            }
            Some(_) if self.settings.is_shmem_denied() => {
                Remedy::nothing("thp.shmem_enabled is deny, which overrules every mount")
            }
            Some(_) => Remedy {
                action: Action::Remount,
                scope: Scope::System,
                command: mount.remount("within_size"),
                restart: Restart::After,
                undo: mount.remount(&mount.huge),
                ..Remedy::nothing(mount.cost())
            },
        }
    }

    fn of_file(&mut self, case: &Case<'_>, finding: &Finding) -> Remedy {
        let filesystem = self.facts.filesystem(case);
        let vma = &case.mapping.vma;
        let has = |refusal| finding.reasons.iter().any(|reason| reason.refusal == refusal);
        if has(Refusal::OpenForWrite) {
            let pids: Vec<_> = self.facts.writers(case).iter().map(ToString::to_string).collect();
            let holders = if pids.is_empty() { "some process".to_owned() } else { pids.join(", ") };
            return Remedy::nothing(format!(
                "{holders} has the file open for writing; close it first"
            ));
        }
        if vma.is_deleted && filesystem.is_empty() {
            return Remedy::nothing("it is the kernel's own memory and belongs to no filesystem");
        }
        if vma.is_deleted {
            return Remedy::nothing(
                "the file was deleted or replaced; restart the program and run folio again",
            );
        }
        if has(Refusal::Filesystem) {
            return Remedy::nothing(format!(
                "{filesystem} has no folios of this size under this kernel; copy the file to ext4 \
                 or XFS"
            ));
        }
        let path = &vma.path;
        if !mounts::is_local(filesystem) || !self.question.verbs.is_here(path, vma.inode) {
            return Remedy::nothing("the file is not accessible from here");
        }
        let plan = self.file_plan(case);
        if case.is_short {
            return short(case, plan);
        }
        let is_program = *path == self.traits(case).program;
        match plan.placed {
            Some(Placed::Unmappable(obstacle)) if is_program && self.has_moving_block(case) => {
                self.moved(case, obstacle)
            }
            Some(Placed::Unmappable(obstacle)) => {
                let remedy = obstacle.remedy(path);
                let remedy = remedy.map(|remedy| format!("; {remedy}; use that copy"));
                Remedy::nothing(format!("{obstacle}{}", remedy.unwrap_or_default()))
            }
            None if !vma.is_congruent(case.target_bytes) => {
                let size = size_name(case.target_bytes);
                Remedy::nothing(format!(
                    "the program chose an address that does not fit a {size} entry"
                ))
            }
            _ => warmed(case, plan.warm),
        }
    }

    /// Returns the setting that makes the kernel read this text in larger folios, if it has one.
    /// Other programs that map the file keep it in the page cache as it is.
    fn read_larger(&mut self, case: &Case<'_>, finding: &Finding) -> Option<Remedy> {
        let vma = &case.mapping.vma;
        let set = self.settings.text(case.target_bytes).filter(|_| vma.is_exec())?;
        let has = |refusal| finding.reasons.iter().any(|reason| reason.refusal == refusal);
        let is_local = mounts::is_local(self.facts.filesystem(case));
        let is_here = is_local && self.question.verbs.is_here(&vma.path, vma.inode);
        if has(Refusal::OpenForWrite) || has(Refusal::Filesystem) || vma.is_deleted || !is_here {
            return None;
        }
        let plan = self.file_plan(case);
        let is_placed = matches!(plan.placed, Some(Placed::Mappable { .. }));
        let is_alone = match plan.warm?.refusal {
            Some(WarmRefusal::InUse { pids, .. }) => {
                pids.iter().all(|pid| *pid == case.process.pid)
            }
            refusal => refusal.is_none(),
        };
        let is_reached = is_placed && is_alone && vma.is_congruent(case.target_bytes);
        is_reached.then(|| remedies::read_text(&set, &vma.path))
    }

    /// Returns whether it contains a PMD block, the size that `MADV_COLLAPSE` makes.
    fn has_moving_block(&self, case: &Case<'_>) -> bool {
        case.mapping.vma.nr_whole_blocks(self.census.geometry.pmd_bytes()) > 0
    }

    fn moved(&self, case: &Case<'_>, obstacle: Obstacle) -> Remedy {
        if !case.mapping.vma.is_exec() {
            return Remedy::nothing("only text can be moved, and this is not executable");
        }
        let path = &case.mapping.vma.path;
        if let Some(refusal) = self.question.verbs.remap_refusal(path) {
            return Remedy::nothing(format!("its text cannot be moved: {refusal}"));
        }
        Remedy {
            action: Action::Run,
            start: as_typed(&format!("folio run --text remap -- {} ..", quoted(path))),
            restart: Restart::After,
            undo: "start it without folio run".to_owned(),
            ..Remedy::nothing(match obstacle {
                // Each process would need its own copy.
                Obstacle::Random(_) => {
                    "each time the program starts, it gets its own copy of the text at its own \
                     address, which takes memory; forked processes share that copy"
                }
                _ => "it takes memory for one copy of the text, which all its processes share",
            })
        }
    }

    fn file_plan(&mut self, case: &Case<'_>) -> FilePlan {
        let vma = &case.mapping.vma;
        let verbs = self.question.verbs;
        let block_bytes = case.target_bytes;
        let new = || FilePlan {
            placed: verbs.placed(&vma.path, block_bytes),
            warm: verbs.warm(&vma.path),
        };
        self.files.entry((vma.device, vma.inode, block_bytes)).or_insert_with(new).clone()
    }
}

fn warmed(case: &Case<'_>, warm: Option<Warmed>) -> Remedy {
    let path = &case.mapping.vma.path;
    match warm.map(|warm| warm.refusal) {
        None => Remedy::nothing("folio warm cannot read the file"),
        Some(None) => remedies::warm(path, false),
        Some(Some(WarmRefusal::InUse { pids, .. })) => {
            remedies::warm(path, pids.iter().any(|pid| *pid != case.process.pid))
        }
        Some(Some(refusal)) => Remedy::nothing(format!("{refusal}; {}", refusal.remedy(path))),
    }
}

/// Handles a mapping without a PMD block. The next start maps the file at a multiple of the file's
/// own alignment.
fn short(case: &Case<'_>, plan: FilePlan) -> Remedy {
    let vma = &case.mapping.vma;
    let (path, size) = (quoted(&vma.path), size_name(case.target_bytes));
    let is_warmed = plan.warm.as_ref().is_some_and(|warm| match &warm.refusal {
        Some(WarmRefusal::InUse { pids, .. }) => pids.iter().all(|pid| *pid == case.process.pid),
        refusal => refusal.is_none() && !warm.is_complete(),
    });
    let at_any_address = if is_warmed {
        let warm = as_typed(&format!("folio warm {path}"));
        format!("; while it is stopped, {warm} makes its faults cheaper at any address")
    } else {
        String::new()
    };
    match plan.placed {
        _ if vma.prot() & libc::PROT_WRITE as u32 != 0 && !vma.is_shared() => {
            Remedy::nothing("pages that the program writes to become private, one by one")
        }
        Some(Placed::Mappable { .. }) if vma.is_congruent(case.target_bytes) => {
            warmed(case, plan.warm)
        }
        Some(Placed::Mappable { .. }) => Remedy::nothing(format!(
            "its address and file offset differ modulo {size}{at_any_address}"
        )),
        Some(Placed::Unmappable(Obstacle::Random(step))) => Remedy::nothing(format!(
            "its alignment is {}, so its load address is a random multiple of that; {} makes an \
             aligned copy to use instead{at_any_address}",
            size_name(step),
            as_typed(&format!("folio align --align {size} {path} -o COPY"))
        )),
        Some(Placed::Unmappable(Obstacle::Incongruent(_) | Obstacle::TooSmall(_))) => {
            Remedy::nothing(format!("no whole block of {size} of its text fits{at_any_address}"))
        }
        None => Remedy::nothing(format!(
            "the kernel chooses a new address each time it starts{at_any_address}"
        )),
    }
}

/// Returns the remedies that work; if none does, the reasons.
fn or_nothing(mut remedies: Vec<Remedy>) -> Vec<Remedy> {
    if remedies.iter().any(Remedy::is_some) {
        remedies.retain(Remedy::is_some);
    }
    if remedies.is_empty() {
        remedies.push(Remedy::nothing(
            "the settings already allow it; memory mapped from now on gets larger folios",
        ));
    }
    remedies
}

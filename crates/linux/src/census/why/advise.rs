//! What would make the folios of a mapping larger: checked with the verb that would do it.
//!
//! ```text
//!   private memory   now: collapse            next start: option of the runtime, else the setting
//!   shared memory    now: collapse            next start: the setting, else the mount's
//!   files            program stopped: warm    next start: run --text remap
//! ```
//!
//! Owns the choice. The gain counts whole blocks that have a page now: a block that nobody touches
//! stays empty. Invariant A1: a verb that would refuse is not named; why is said instead.

use super::judge::{Case, FilePlan, Judge, is_shared_memory};
use super::reason::{Finding, Refusal};
use super::restart::{OwnOption, SYSTEM_WIDE};
use super::tmpfs::{Home, TmpfsMount};
use crate::census::folios::{Cell, Kind};
use crate::census::process::Blocks;
use crate::census::remedy::runtime::Memory;
use crate::census::remedy::{self, Action, Remedy, Restart};
use crate::census::settings::{Allows, InForce};
use crate::collapse::{CollapseKind, blocks_of};
use crate::proc::smaps::Smap;
use crate::run::{Obstacle, Placed};
use crate::setting::thp::size_name;
use crate::shell::{as_typed, quoted};
use crate::system::mounts;
use crate::warm::{WarmRefusal, Warmed};

impl Judge<'_> {
    /// The remedies of a finding whose reasons are known.
    pub(super) fn remedies(&mut self, finding: &Finding) -> Vec<Remedy> {
        let is_aside = |refusal| matches!(refusal, Refusal::NotTouched | Refusal::TooSmall);
        if finding.reasons.iter().all(|reason| is_aside(reason.refusal)) {
            return Vec::new();
        }
        let case = Case::new(self.census, finding);
        let pmd_bytes = self.census.geometry.pmd_bytes();
        let gain = gain(&case, pmd_bytes);
        if gain.bytes == 0 {
            return vec![Remedy::nothing("no whole block of it is touched")];
        }
        let filesystem = self.facts(&case).map(|facts| facts.filesystem).unwrap_or_default();
        let vma = &case.mapping.vma;
        let remedies = if !vma.has_file() {
            self.anon(&case)
        } else if is_shared_memory(vma, &filesystem)
            || case.mapping.tally.of(Kind::Shmem) != Cell::default()
        {
            self.shared(&case)
        } else {
            vec![self.of_file(&case, finding, &filesystem)]
        };
        let extra = gain.bytes.saturating_sub(gain.present_bytes);
        let bytes = gain.bytes.saturating_sub(case.large_bytes);
        let with_gain = |remedy: Remedy| match remedy.action {
            Action::Nothing => remedy,
            // The page cache holds whole folios in any case.
            Action::Warm => remedy.gaining(bytes, 0).in_folios_of(case.target_bytes),
            // MADV_COLLAPSE makes PMD folios only; text is moved with it too.
            Action::Run => remedy.gaining(bytes, 0).in_folios_of(pmd_bytes),
            Action::Collapse => {
                let is_pmd = case.target_bytes == pmd_bytes;
                let pmd = if is_pmd { gain } else { case.mapping.touched.unwrap_or_default().pmd };
                // What a fork left shared is copied; pages of files and shared memory stay so.
                let copied = if case.mapping.vma.has_file() { 0 } else { pmd.shared_bytes };
                let extra = pmd.bytes.saturating_sub(pmd.present_bytes).saturating_add(copied);
                remedy.gaining(pmd.bytes.min(bytes), extra).in_folios_of(pmd_bytes)
            }
            _ => {
                let extra = extra.saturating_add(remedy.extra_bytes);
                remedy.gaining(bytes, extra).in_folios_of(case.target_bytes)
            }
        };
        remedies.into_iter().map(with_gain).collect()
    }

    fn anon(&mut self, case: &Case<'_>) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        let smap = self.smap(case);
        if self.is_collapsible(case, &smap, CollapseKind::Anon) {
            remedies.push(remedy::collapse(case.process.pid));
        }
        remedies.extend(self.anon_next_start(case, &smap));
        or_nothing(remedies)
    }

    /// Whether `folio collapse` would try some of it.
    fn is_collapsible(&self, case: &Case<'_>, smap: &Smap, kind: CollapseKind) -> bool {
        let pmd_bytes = self.census.geometry.pmd_bytes();
        let is_touched = case.mapping.touched.is_none_or(|touched| touched.pmd.bytes > 0);
        !case.is_short && is_touched && blocks_of(smap, kind, 0, pmd_bytes).is_ok()
    }

    fn shared(&mut self, case: &Case<'_>) -> Vec<Remedy> {
        let mut remedies = Vec::new();
        let smap = self.smap(case);
        let blocks = blocks_of(&smap, CollapseKind::Shmem, 0, case.target_bytes);
        let (home, setting) = (self.home(case), self.settings.shmem(case.target_bytes));
        let is_denied = self.settings.is_shmem_denied();
        if self.is_collapsible(case, &smap, CollapseKind::Shmem) && !is_denied {
            remedies.push(remedy::collapse(case.process.pid));
        }
        if let Some(disabled) = self.disabled(case) {
            return vec![Remedy::nothing(disabled.way_out())];
        }
        if smap.is_no_huge {
            return vec![Remedy::nothing("the program forbids it (MADV_NOHUGEPAGE)")];
        }
        let row = self.runtime(case, Memory::Shmem);
        let option = self.option(case, row);
        let cost = option.note().or_else(|| row.map(|row| row.cost.clone()));
        let cost = cost.map_or(SYSTEM_WIDE.to_owned(), |cost| format!("{SYSTEM_WIDE}; {cost}"));
        remedies.extend(match (&home, setting) {
            (Home::Mount(mount), _) => Some(self.mounted(mount, &smap)),
            (Home::Unseen, _) => Some(Remedy::nothing(
                "the mount of its tmpfs decides, and neither folio nor the process sees it: it is in \
                 another mount namespace, or was unmounted",
            )),
            (_, None) => Some(Remedy::nothing("this kernel has no such folios for shared memory")),
            (_, Some(InForce { allows: Allows::All, .. })) => blocks.is_err().then(|| Remedy {
                action: Action::Restart,
                restart: Restart::After,
                ..Remedy::nothing("the settings allow it, but not for what was mapped before")
            }),
            (_, Some(set)) => Some(match option {
                OwnOption::Start(option) if !smap.is_huge => {
                    self.with_setting(&set, option, "advise")
                }
                OwnOption::Already(_) if set.allows == Allows::Advised => Remedy {
                    action: Action::Restart,
                    restart: Restart::After,
                    ..Remedy::nothing("its option is in effect, and the setting allows it by now")
                },
                // The option waits for the setting.
                OwnOption::Already(what) => self
                    .tuned(&set, "advise")
                    .costing_if_some(format!("{what} is in effect, and acts once the setting is")),
                _ => {
                    let value = if smap.is_huge { "advise" } else { "always" };
                    self.tuned(&set, value).costing_if_some(cost)
                }
            }),
        });
        or_nothing(remedies)
    }

    /// Of files on tmpfs the mount decides.
    fn mounted(&self, mount: &TmpfsMount, smap: &Smap) -> Remedy {
        match self.settings.tmpfs(&mount.huge) {
            None => Remedy::nothing("this kernel has no such folios for shared memory"),
            Some(allows) if allows == Allows::All || allows == Allows::Advised && smap.is_huge => {
                Remedy::nothing(
                    "its mount allows it already; files that are written from now on have larger \
                     folios",
                )
            }
            Some(_) if self.settings.is_shmem_denied() => {
                Remedy::nothing("thp.shmem_enabled is deny, which overrules every mount")
            }
            Some(_) => Remedy {
                action: Action::Remount,
                command: mount.remount("always"),
                restart: Restart::After,
                undo: mount.remount(&mount.huge),
                ..Remedy::nothing(mount.cost())
            },
        }
    }

    fn of_file(&mut self, case: &Case<'_>, finding: &Finding, filesystem: &str) -> Remedy {
        let vma = &case.mapping.vma;
        let has = |refusal| finding.reasons.iter().any(|reason| reason.refusal == refusal);
        if has(Refusal::OpenForWrite) {
            let pids: Vec<_> = self.writers(case).iter().map(ToString::to_string).collect();
            let whom = if pids.is_empty() { "some process".to_owned() } else { pids.join(", ") };
            return Remedy::nothing(format!(
                "{whom} has the file open for writing; close it first"
            ));
        }
        if vma.is_deleted {
            return Remedy {
                action: Action::Restart,
                restart: Restart::After,
                ..Remedy::nothing("the file was replaced; the new one is judged when it is mapped")
            };
        }
        if has(Refusal::Filesystem) {
            return Remedy::nothing(format!(
                "{filesystem} has no such folios under this kernel; a copy on ext4 or XFS could have"
            ));
        }
        let path = &vma.path;
        if !mounts::is_local(filesystem) || !self.question.verbs.is_here(path, vma.inode) {
            return Remedy::nothing("the file cannot be reached from here");
        }
        let plan = self.file_plan(case);
        if case.is_short {
            return short(case, plan);
        }
        let is_program = *path == self.traits(case).program;
        match plan.placed {
            Some(Placed::Badly(obstacle)) if is_program && self.has_moving_block(case) => {
                self.moved(case, obstacle)
            }
            Some(Placed::Badly(obstacle)) => {
                let remedy = obstacle.remedy(path);
                let remedy = remedy.map(|remedy| format!("; {remedy}, to be used instead"));
                Remedy::nothing(format!("{obstacle}{}", remedy.unwrap_or_default()))
            }
            None if !vma.is_congruent(case.target_bytes) => {
                let size = size_name(case.target_bytes);
                Remedy::nothing(format!("the program chose an address that no {size} entry fits"))
            }
            _ => warmed(case, plan.warm),
        }
    }

    /// Whether some of it fits the folios of shared memory that `MADV_COLLAPSE` makes.
    fn has_moving_block(&self, case: &Case<'_>) -> bool {
        case.mapping.vma.nr_whole_blocks(self.census.geometry.pmd_bytes()) > 0
    }

    /// The program's text in shared memory.
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
                // Each process would need another copy.
                Obstacle::Random(_) => {
                    "one copy of the text in memory for each start, as each has it at another address; \
                     processes that it forks share the copy"
                }
                _ => "one copy of the text in shared memory, for all processes of the file",
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

/// Whole blocks of the target with a page; without PFNs as many as the resident memory can fill.
fn gain(case: &Case<'_>, pmd_bytes: u64) -> Blocks {
    let all = case.mapping.tally.all().mapped_bytes();
    match case.mapping.touched {
        Some(touched) if case.target_bytes == pmd_bytes => touched.pmd,
        Some(touched) => touched.contpte,
        None => {
            let whole = case.mapping.vma.nr_whole_blocks(case.target_bytes);
            let bytes = whole.saturating_mul(case.target_bytes);
            let bytes = bytes.min(all / case.target_bytes * case.target_bytes);
            Blocks { bytes, present_bytes: bytes, shared_bytes: 0 }
        }
    }
}

/// `folio warm`, if it says that it would do something.
fn warmed(case: &Case<'_>, warm: Option<Warmed>) -> Remedy {
    let path = &case.mapping.vma.path;
    match warm.map(|warm| warm.refusal) {
        None => Remedy::nothing("folio warm cannot read the file"),
        Some(None) => remedy::warm(path, false),
        Some(Some(WarmRefusal::InUse { pids, .. })) => {
            remedy::warm(path, pids.iter().any(|pid| *pid != case.process.pid))
        }
        Some(Some(refusal)) => Remedy::nothing(format!("{refusal}; {}", refusal.remedy(path))),
    }
}

/// A mapping without a PMD block. What counts is where the next start maps it: at a multiple of the
/// file's own alignment.
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
            Remedy::nothing("what the program writes of it becomes private, page by page")
        }
        Some(Placed::Well { .. }) if vma.is_congruent(case.target_bytes) => warmed(case, plan.warm),
        Some(Placed::Well { .. }) => Remedy::nothing(format!(
            "its address and file offset differ modulo {size}{at_any_address}"
        )),
        Some(Placed::Badly(Obstacle::Random(step))) => Remedy::nothing(format!(
            "its alignment is {}, so it is loaded at a random multiple of that; {} makes a copy that is placed \
             well, to be used instead{at_any_address}",
            size_name(step),
            as_typed(&format!("folio align --align {size} {path} -o COPY"))
        )),
        Some(Placed::Badly(Obstacle::Incongruent(_) | Obstacle::TooSmall(_))) => {
            Remedy::nothing(format!("no whole block of {size} of its text fits{at_any_address}"))
        }
        None => Remedy::nothing(format!(
            "the kernel chooses its address anew at each start{at_any_address}"
        )),
    }
}

/// What works, and why the rest does not only where nothing does.
fn or_nothing(mut remedies: Vec<Remedy>) -> Vec<Remedy> {
    if remedies.iter().any(Remedy::is_some) {
        remedies.retain(Remedy::is_some);
    }
    if remedies.is_empty() {
        remedies.push(Remedy::nothing(
            "the settings allow it already; what is mapped from now on has larger folios",
        ));
    }
    remedies
}

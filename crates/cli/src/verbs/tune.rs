//! `folio tune`: settings of the running system and of services that affect large folios.

mod canary;
mod service;

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_linux::census::selection::Selection;
use largefolio_linux::census::{self, Access};
use largefolio_linux::persist::boot::{self, Lasting};
use largefolio_linux::persist::{FilePiece, FilePlace, Planned};
use largefolio_linux::shell;
use largefolio_linux::system::Live;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::tune::entry::{Entry, FileEntry};
use largefolio_linux::tune::files::{self, Removal, Taken};
use largefolio_linux::tune::plan::ChangeSet;
use largefolio_linux::tune::profile::Profile;
use largefolio_linux::tune::record::{Foreign, Rounded, Store, Undone};
use largefolio_results::Form;
use largefolio_results::tune::{self, TuneResult};
use largefolio_trace::disk;
use largefolio_trace::shown;

use self::canary::Canary;
use self::service::{ServiceArgs, Wish};
use super::lasting::{self, state_folder};
use super::values::FormArgs;
use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Plan, apply and undo the system's settings for large folios
///
/// Prints what would change and why; --yes makes the changes. folio saves the old values to disk
/// before it changes the first setting, so --undo can restore them even after a crash. A reboot
/// also restores them, unless --persist writes files that apply the settings at every boot. --unit
/// changes one service and no setting: --env sets environment variables, and --thp limits its large
/// folios. With --canary, a share of a template's instances is changed first and checked. --undo
/// reverts all of this.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio tune
  sudo folio tune --yes
  sudo folio tune --set thp.64K=madvise --set readahead.vda=4096 --yes
  sudo folio tune --set thp.64K=always --set readahead.vda=512 --yes --persist
  sudo folio tune --unit redis-server --env GLIBC_TUNABLES=glibc.malloc.hugetlb=1 --yes
  sudo folio tune --unit redis-server --thp off --yes      this service, not the system
  sudo folio tune --unit worker@ --thp off --canary 10% --restart --for 10m \\
      --check 'curl -fs http://localhost:80$INSTANCE/health' --yes
  sudo folio tune --undo

Without --yes, --persist and --unit show the files that would be written. These files are below
/etc: tmpfiles.d/largefolio.conf, udev/rules.d/60-largefolio.rules and
systemd/system/UNIT.d/50-largefolio.conf. folio reloads systemd but does not restart services,
except with --restart.

Settings: thp.enabled thp.defrag thp.shmem_enabled thp.use_zero_page thp.SIZE thp.SIZE.shmem
khugepaged.NAME readahead.DISK (KiB); in kernels built with largefolio's features (make kernel) also
largefolio.NAME, such as largefolio.exec_order=window. The old values are stored in the home
directory of the user who ran folio: $XDG_STATE_HOME/largefolio/tune.json (tune-DIR.json with
--root DIR). Exit status: 1 if none of the settings exists, or if --undo skipped a setting or file
because it was changed later.")]
#[expect(clippy::struct_excessive_bools, reason = "options of a command line")]
pub(crate) struct TuneArgs {
    /// Profile to plan: large, large-always, or a TOML file [default: large, unless --set is given]
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "undo")]
    profile: Option<String>,
    /// Set one setting to this value; overrides the profile
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "undo")]
    set: Vec<String>,
    /// Also apply the settings at every boot, with files for systemd-tmpfiles and udev
    #[arg(long, conflicts_with = "undo")]
    persist: bool,
    #[command(flatten)]
    service: ServiceArgs,
    /// Change the settings and write the files
    #[arg(long, conflicts_with = "undo")]
    yes: bool,
    /// Restore every setting that --yes changed, and remove every file that folio wrote
    #[arg(long)]
    undo: bool,
    /// With --undo, also undo settings and files that someone else has changed since
    #[arg(long, requires = "undo")]
    force: bool,
    /// Use DIR/sys, DIR/proc and DIR/etc instead of /sys, /proc and /etc, for example to try the
    /// command on a copy
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    #[command(flatten)]
    form: FormArgs,
}

/// A profile has a few lines; a longer file is not a profile.
const PROFILE_BYTES_MAX: u64 = 256 << 10;

enum Action {
    Show(ChangeSet),
    Apply(ChangeSet),
    Undo(Foreign),
}

pub(crate) struct TunePlan {
    action: Action,
    is_lasting: bool,
    drop_in: Option<FilePiece>,
    canary: Option<Canary>,
    catalog: Catalog,
    root: PathBuf,
    form: Form,
    command_line: Vec<String>,
}

impl VerbArgs for TuneArgs {
    type Plan = TunePlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let command_line = invocation.line();
        let catalog = Catalog::below(&self.root);
        let action = if self.undo {
            Action::Undo(if self.force { Foreign::Overwrite } else { Foreign::Keep })
        } else {
            // For a service alone, no setting changes without a requested profile.
            let is_wanted = !self.service.is_some() || self.persist || self.profile.is_some();
            let plan = if is_wanted || !self.set.is_empty() {
                plan_changes(&catalog, self.profile.as_deref(), &self.set)?
            } else {
                ChangeSet::default()
            };
            if self.yes { Action::Apply(plan) } else { Action::Show(plan) }
        };
        let (drop_in, canary) = match self.service.wish(&self.root)? {
            Wish::Nothing => (None, None),
            Wish::Service(piece) => (Some(piece), None),
            Wish::Canary(canary) => (None, Some(canary)),
        };
        let (root, form) = (self.root, self.form.form());
        Ok(TunePlan {
            action,
            is_lasting: self.persist,
            drop_in,
            canary,
            catalog,
            root,
            form,
            command_line,
        })
    }
}

impl VerbPlan for TunePlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        match (&self.action, &self.canary) {
            (Action::Show(_), Some(canary)) => {
                self.show_canary(canary, console).map(|()| Exit::Done)
            }
            (Action::Apply(_), Some(canary)) => self.apply_canary(canary, console),
            (Action::Show(plan), None) => self.show(plan, console),
            (Action::Apply(plan), None) => self.apply(plan, console),
            (Action::Undo(foreign), _) => self.undo(*foreign, console),
        }
    }
}

impl TunePlan {
    fn show(&self, plan: &ChangeSet, console: &mut Console) -> Result<Exit> {
        let (recorded, written) = self.recorded()?;
        let (_, pieces) = self.pieces(plan, &recorded)?;
        let planned = files::planned(&self.root, &written, &pieces)?;
        let superseded = files::superseded(&self.root, &written, &pieces)?;
        let mut listed = files::listed(&self.root, &written);
        listed.retain(|file| planned.iter().all(|planned| planned.path != file.path));
        let again = format!("{} --yes", shell::again_as_root(&self.command_line));
        let back = self.undo_command();
        let result = tune::planned(plan, &recorded, &planned, &again, &back).lists(&listed, &back);
        self.deliver(&self.with_affected(result, plan), console)?;
        self.remark(plan, &planned);
        for place in superseded {
            console::say(&format!(
                "folio: --yes also removes {}, because the template gets its settings",
                shown(&place.path(&self.root))
            ));
        }
        Ok(Exit::Done)
    }

    /// Adds the running programs that the plan affects.
    fn with_affected(&self, result: TuneResult, plan: &ChangeSet) -> TuneResult {
        let settings = self.catalog.folio_settings();
        if self.root != Path::new("/") || !tune::needs_census(plan, &settings) {
            return result;
        }
        let census = Selection::All.chosen(&Live).and_then(|all| census::take(&Live, &all.pids));
        match census {
            Ok(census) => {
                if census.access != Access::Full {
                    console::warn(
                        "only root sees which programs the change affects; here, only this user's \
                         programs are shown",
                    );
                }
                result.affects(plan, &settings, &census)
            }
            Err(error) => {
                console::warn(&format!("cannot tell which programs the change affects: {error}"));
                result
            }
        }
    }

    /// Returns earlier changes and files. Does not create a state directory if it is missing.
    fn recorded(&self) -> Result<(Vec<Entry>, Vec<FileEntry>)> {
        let folder = state_folder()?;
        if !folder.exists() {
            return Ok((Vec::new(), Vec::new()));
        }
        let store = Store::open(&folder, &self.root)?;
        Ok((store.entries()?, store.files()?))
    }

    fn pieces(
        &self,
        plan: &ChangeSet,
        recorded: &[Entry],
    ) -> Result<(Vec<Lasting>, Vec<FilePiece>)> {
        let settings = if self.is_lasting { plan.lasting(recorded)? } else { Vec::new() };
        let mut pieces = boot::of_settings(&settings)?;
        pieces.extend(self.drop_in.clone());
        Ok((settings, pieces))
    }

    fn apply(&self, plan: &ChangeSet, console: &mut Console) -> Result<Exit> {
        if plan.changes.is_empty() && !self.is_lasting && self.drop_in.is_none() {
            self.deliver(&tune::planned(plan, &[], &[], "", ""), console)?;
            return Ok(done(plan));
        }
        self.check_root()?;
        let store = Store::open(&state_folder()?, &self.root)?;
        let recorded = store.entries()?;
        let (settings, pieces) = self.pieces(plan, &recorded)?;
        // Checks the files before a setting changes.
        let earlier = store.files()?;
        files::check(&files::planned(&self.root, &earlier, &pieces)?)?;
        let superseded = files::superseded(&self.root, &earlier, &pieces)?;
        let rounded = store.apply(&self.catalog, plan, &mut || Ok(()))?;
        for Rounded { name, planned, now } in rounded {
            console::warn(&format!("{name}: the kernel turned {planned} into {now}"));
        }
        if !self.is_lasting {
            warn_of_files(plan, &recorded);
        }
        let written = store.persist(&pieces, &settings, &mut || Ok(()));
        let written = if plan.changes.is_empty() {
            written?
        } else {
            written.context("the settings were changed, but will not survive a reboot")?
        };
        let taken = supersede(&store, &superseded)?;
        // Before the output, which may fail.
        lasting::activate(&self.root, &written);
        self.deliver(&tune::applied(plan).wrote(&written).took(&taken), console)?;
        self.remark(plan, &written);
        if !plan.changes.is_empty() || !written.is_empty() {
            console::say(&format!(
                "folio: the changes are recorded; to undo them: {}",
                self.undo_command()
            ));
        }
        Ok(done(plan))
    }

    /// Checked before looking for a home, which service users do not have.
    fn check_root(&self) -> Result<()> {
        if self.root == Path::new("/") && !rustix::process::geteuid().is_root() {
            bail!(
                "only root can change system settings: run `{}`",
                shell::again_as_root(&self.command_line)
            );
        }
        Ok(())
    }

    fn undo_command(&self) -> String {
        let root = &self.root;
        let root_option = if root == Path::new("/") {
            String::new()
        } else {
            format!("--root {} ", shell::quoted(root))
        };
        shell::as_root(&format!("folio tune {root_option}--undo"))
    }

    /// Explains why no file is written for settings that were not requested and that folio did not
    /// change.
    fn remark(&self, plan: &ChangeSet, files: &[Planned]) {
        if self.is_lasting && files.is_empty() && !plan.kept.is_empty() {
            console::say(
                "folio: no file is needed because the system already has these values. To write \
                 one anyway, name the setting: --set NAME=VALUE",
            );
        }
    }

    fn undo(&self, foreign: Foreign, console: &mut Console) -> Result<Exit> {
        let store = Store::open(&state_folder()?, &self.root)?;
        let written = store.files()?;
        lasting::stop(&self.root, written.iter().map(|file| &file.place));
        // Files first: if this is interrupted, a reboot does the rest.
        let taken = store.take_back(foreign, &mut || Ok(()))?;
        let all = store.undo(&self.catalog, foreign, &mut || Ok(()))?;
        // Before the output, which may fail.
        let gone = taken.iter().filter(|file| file.is_gone());
        lasting::forget(&self.root, gone.map(|file| &file.place));
        self.deliver(&tune::undone(&all).took(&taken), console)?;
        let is_refused = |one: &Undone| matches!(one, Undone::Refused { .. });
        if all.iter().any(is_refused)
            || taken.iter().any(|t| matches!(t.outcome, Removal::Refused(_)))
        {
            bail!("not everything could be undone; the rest stays on record for another --undo");
        }
        let is_left = |one: &Undone| matches!(one, Undone::ChangedSince { .. });
        let is_kept = taken.iter().any(|file| file.outcome == Removal::ChangedSince);
        Ok(if is_kept || all.iter().any(is_left) { Exit::No } else { Exit::Done })
    }

    fn deliver(&self, result: &TuneResult, console: &mut Console) -> Result<()> {
        let text = match self.form {
            Form::Text => result.text(),
            Form::Csv => result.csv()?,
            Form::Json => result.json(&self.command_line)?,
        };
        console.deliver(text.as_bytes(), None)
    }
}

/// Removes an instance's drop-in if its template now has the same settings.
fn supersede(store: &Store, places: &[FilePlace]) -> Result<Vec<Taken>> {
    let is_one = |place: &FilePlace| places.contains(place);
    let taken = store.take_back_some(Foreign::Keep, &is_one, &mut || Ok(()))?;
    for file in taken.iter().filter(|file| !file.is_gone()) {
        console::warn(&format!(
            "{} is still there, and overrides the template's settings for its instance",
            shown(&file.path)
        ));
    }
    Ok(taken)
}

/// Returns the exit status: "no" if none of the settings exists.
fn done(plan: &ChangeSet) -> Exit {
    if plan.has_none() { Exit::No } else { Exit::Done }
}

/// Warns if a file will set a changed setting to its earlier value again.
fn warn_of_files(plan: &ChangeSet, recorded: &[Entry]) {
    let is_persisted = |name: &str| recorded.iter().any(|e| e.is_persisted && e.name == name);
    for change in plan.changes.iter().filter(|change| is_persisted(&change.name)) {
        console::warn(&format!(
            "{}: a file written by an earlier --persist restores the old value at the next boot; \
             to keep {}, add --persist",
            change.name, change.planned
        ));
    }
}

fn plan_changes(catalog: &Catalog, profile: Option<&str>, set: &[String]) -> Result<ChangeSet> {
    let mut plan = match profile {
        Some(name) => ChangeSet::of_profile(catalog, &profile_of(name)?)?,
        None if set.is_empty() => ChangeSet::of_profile(catalog, &Profile::named("large")?)?,
        None => ChangeSet::default(),
    };
    for assignment in set {
        let Some((name, value)) = assignment.split_once('=') else {
            bail!("--set {assignment}: expected NAME=VALUE, such as thp.64K=madvise");
        };
        plan.set(catalog, name, value)?;
    }
    Ok(plan)
}

fn profile_of(name: &str) -> Result<Profile> {
    let path = Path::new(name);
    if path.extension().is_none_or(|extension| extension != "toml") {
        return Ok(Profile::named(name)?);
    }
    let text = disk::read_text(path, PROFILE_BYTES_MAX)
        .with_context(|| format!("cannot read {}", shown(name)))?;
    Ok(Profile::parse(name, &text)?)
}

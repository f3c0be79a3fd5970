//! `folio tune`: settings of the running system that decide about large folios.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use clap::Args;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::tune::plan::ChangeSet;
use largefolio_linux::tune::profile::Profile;
use largefolio_linux::tune::record::{Entry, Foreign, Rounded, Store, Undone};
use largefolio_results::Form;
use largefolio_results::tune::{self, TuneResult};
use largefolio_trace::disk;
use largefolio_trace::shown;

use super::values::FormArgs;
use crate::console::{self, Console};
use crate::errors::Exit;

/// Plan, apply and undo the system's settings for large folios
///
/// Prints what would change and why; --yes changes it. The old values are on disk before the first
/// setting changes, so --undo brings them back even after a crash. A reboot does too: no change is
/// permanent.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio tune
  sudo folio tune --yes
  sudo folio tune --set thp.64K=madvise --set readahead.vda=4096 --yes
  sudo folio tune --undo

Settings: thp.enabled thp.defrag thp.shmem_enabled thp.use_zero_page thp.SIZE thp.SIZE.shmem
khugepaged.NAME readahead.DISK (KiB). Old values: $XDG_STATE_HOME/largefolio/tune.json, of the user
who changed them. Exit status of --undo: 1 if somebody else has changed a setting since and it was
left alone.")]
pub(crate) struct TuneArgs {
    /// Profile to plan: large, large-always, or a TOML file [default: large, without --set]
    #[arg(long, value_name = "NAME|FILE", conflicts_with = "undo")]
    profile: Option<String>,
    /// One setting and its value; overrides the profile
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "undo")]
    set: Vec<String>,
    /// Change the settings
    #[arg(long, conflicts_with = "undo")]
    yes: bool,
    /// Put back every setting that --yes changed
    #[arg(long)]
    undo: bool,
    /// With --undo: also put back settings that somebody else has changed since
    #[arg(long, requires = "undo")]
    force: bool,
    /// Use the settings below DIR/sys instead of /sys, for example a copy to try things on
    #[arg(long, value_name = "DIR", default_value = "/", hide_default_value = true)]
    root: PathBuf,
    #[command(flatten)]
    form: FormArgs,
}

/// A profile is some lines; more is none.
const PROFILE_BYTES_MAX: u64 = 256 << 10;

/// What is to be done.
enum Deed {
    Show(ChangeSet),
    Apply(ChangeSet),
    Undo(Foreign),
}

/// A checked command.
pub(crate) struct TunePlan {
    deed: Deed,
    catalog: Catalog,
    root: PathBuf,
    form: Form,
    command_line: Vec<String>,
}

impl TuneArgs {
    /// Reads the settings and makes the plan; changes nothing.
    pub(crate) fn plan(self, command_line: Vec<String>) -> Result<TunePlan> {
        let catalog = Catalog::below(&self.root);
        let deed = if self.undo {
            Deed::Undo(if self.force { Foreign::Overwrite } else { Foreign::Keep })
        } else {
            let plan = planned(&catalog, self.profile.as_deref(), &self.set)?;
            if self.yes { Deed::Apply(plan) } else { Deed::Show(plan) }
        };
        Ok(TunePlan { deed, catalog, root: self.root, form: self.form.form(), command_line })
    }
}

impl TunePlan {
    /// Shows, applies or undoes.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        match &self.deed {
            Deed::Show(plan) => {
                self.deliver(&tune::planned(plan, &self.recorded()?), console)?;
                Ok(Exit::Done)
            }
            Deed::Apply(plan) => self.apply(plan, console),
            Deed::Undo(foreign) => self.undo(*foreign, console),
        }
    }

    /// What was changed earlier; without a state directory nothing was, and none is made.
    fn recorded(&self) -> Result<Vec<Entry>> {
        let folder = state_folder()?;
        if !folder.exists() {
            return Ok(Vec::new());
        }
        Ok(Store::open(&folder, &self.root)?.entries()?)
    }

    fn apply(&self, plan: &ChangeSet, console: &mut Console) -> Result<Exit> {
        if plan.changes.is_empty() {
            self.deliver(&tune::planned(plan, &[]), console)?;
            return Ok(Exit::Done);
        }
        let store = Store::open(&state_folder()?, &self.root)?;
        let rounded = store.apply(&self.catalog, plan, &mut || Ok(()))?;
        for Rounded { name, planned, now } in rounded {
            console::warn(&format!("{name}: the kernel made {now} of {planned}"));
        }
        self.deliver(&tune::applied(plan), console)?;
        console::say("folio: old values are recorded; to put them back: folio tune --undo");
        Ok(Exit::Done)
    }

    fn undo(&self, foreign: Foreign, console: &mut Console) -> Result<Exit> {
        let store = Store::open(&state_folder()?, &self.root)?;
        let all = store.undo(&self.catalog, foreign, &mut || Ok(()))?;
        self.deliver(&tune::undone(&all), console)?;
        let is_left = |one: &Undone| matches!(one, Undone::ChangedSince { .. });
        if all.iter().any(|one| matches!(one, Undone::Refused { .. })) {
            bail!("not every setting could be put back; they stay recorded for another --undo");
        }
        Ok(if all.iter().any(is_left) { Exit::No } else { Exit::Done })
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

/// The profile, with the single settings over it.
fn planned(catalog: &Catalog, profile: Option<&str>, set: &[String]) -> Result<ChangeSet> {
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

/// `$XDG_STATE_HOME/largefolio`, else `~/.local/state/largefolio`.
fn state_folder() -> Result<PathBuf> {
    let variable = |name| std::env::var_os(name).map(PathBuf::from).filter(|p| p.is_absolute());
    let state = variable("XDG_STATE_HOME")
        .or_else(|| Some(variable("HOME")?.join(".local/state")))
        .context(
            "neither XDG_STATE_HOME nor HOME is set; set one, because the old values are kept \
                  there",
        )?;
    Ok(state.join("largefolio"))
}

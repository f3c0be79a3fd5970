//! The changes that a profile or a list of values would make to this system.

use std::path::Path;

use serde::Serialize;

use super::TuneError;
use super::catalog::Catalog;
use super::entry::Entry;
use super::profile::Profile;
use super::warnings::{self, Warning};
use crate::persist::boot::Lasting;

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct ChangeSet {
    pub changes: Vec<TuneChange>,
    pub kept: Vec<Kept>,
    pub missing: Vec<Missing>,
    pub warnings: Vec<Warning>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TuneChange {
    pub name: String,
    pub now: String,
    pub planned: String,
    pub why: String,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Kept {
    pub name: String,
    pub now: String,
    pub is_asked: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Missing {
    pub name: String,
    pub reason: String,
}

impl ChangeSet {
    #[must_use]
    pub fn has_none(&self) -> bool {
        self.changes.is_empty() && self.kept.is_empty() && !self.missing.is_empty()
    }

    /// Returns the changes that `profile` would make. Settings that the kernel lacks are listed as
    /// missing.
    ///
    /// # Errors
    /// An unknown name, or a value the setting does not take.
    pub fn of_profile(catalog: &Catalog, profile: &Profile) -> Result<Self, TuneError> {
        let mut plan = Self::default();
        for wish in &profile.wishes {
            let names = if wish.name == "readahead" {
                catalog.disks().iter().map(|disk| format!("readahead.{disk}")).collect()
            } else {
                vec![wish.name.clone()]
            };
            for name in names {
                let current = match catalog.read(&name) {
                    Ok(current) => current,
                    Err(error @ (TuneError::Read { .. } | TuneError::NoFeature { .. })) => {
                        plan.missing.push(Missing { name, reason: error.to_string() });
                        continue;
                    }
                    Err(error) => return Err(error),
                };
                match wish.of(&current.value) {
                    Some(planned) => {
                        current.check(&name, &planned)?;
                        plan.add(name, current.value, planned, wish.why.clone());
                    }
                    None => {
                        plan.kept.push(Kept { name, now: current.value, is_asked: false });
                    }
                }
            }
        }
        if profile.wishes.iter().any(|wish| wish.name == "readahead") {
            plan.warnings = warnings::of_readahead(catalog);
        }
        plan.list_features(catalog);
        if plan.has_none() {
            plan.warnings.extend(warnings::of_other_names(catalog));
        }
        Ok(plan)
    }

    /// Lists the other settings of a kernel built with `kernel/`. Profiles have none of
    /// these, because they are off at boot.
    fn list_features(&mut self, catalog: &Catalog) {
        for name in catalog.largefolio_names() {
            let is_listed = self.changes.iter().any(|change| change.name == name)
                || self.kept.iter().any(|kept| kept.name == name);
            if let Ok(current) = catalog.read(&name)
                && !is_listed
            {
                self.kept.push(Kept { name, now: current.value, is_asked: false });
            }
        }
    }

    /// Adds a setting requested by name and value, which overrides a profile.
    ///
    /// # Errors
    /// An unknown name, a kernel without the setting, or a value it does not take.
    pub fn set(&mut self, catalog: &Catalog, name: &str, value: &str) -> Result<(), TuneError> {
        let current = catalog.read(name)?;
        current.check(name, value)?;
        self.changes.retain(|change| change.name != name);
        self.kept.retain(|kept| kept.name != name);
        if current.value == value {
            let (name, now) = (name.to_owned(), current.value);
            self.kept.push(Kept { name, now, is_asked: true });
        } else {
            self.add(name.to_owned(), current.value, value.to_owned(), "asked for".to_owned());
        }
        Ok(())
    }

    /// Returns the settings to make at every boot: those that change, and those with the right
    /// value that were requested or changed by an earlier plan.
    ///
    /// # Errors
    /// An unknown name.
    pub fn lasting(&self, recorded: &[Entry]) -> Result<Vec<Lasting>, TuneError> {
        let booted = Catalog::below(Path::new("/"));
        let is_ours = |kept: &&Kept| {
            let given = |entry: &Entry| entry.name == kept.name && entry.given.contains(&kept.now);
            kept.is_asked || recorded.iter().any(given)
        };
        let changes = self.changes.iter().map(|change| (&change.name, &change.planned));
        let kept = self.kept.iter().filter(is_ours).map(|kept| (&kept.name, &kept.now));
        let all = changes.chain(kept);
        all.map(|(name, value)| {
            let path = booted.path(name)?;
            Ok(Lasting { name: name.clone(), path, value: value.clone() })
        })
        .collect()
    }

    fn add(&mut self, name: String, now: String, planned: String, why: String) {
        self.changes.push(TuneChange { name, now, planned, why });
    }
}

//! Checks that each cgroup in a request has programs, so its limit has an effect.

use std::collections::BTreeSet;
use std::iter;

use largefolio_trace::Meta;

use super::{ReplayRequest, RequestError};
use crate::replay::request::cgroup::{Cgroup, NR_CGROUPS_MAX};
use crate::replay::request::pattern::name_of;

impl ReplayRequest {
    /// Checks everything that does not depend on a trace: no two cgroups name the same programs.
    pub(super) fn check_cgroups(&self) -> Result<(), RequestError> {
        if self.cgroups.len() > NR_CGROUPS_MAX {
            return Err(RequestError::Cgroups(self.cgroups.len()));
        }
        for (nr, group) in self.cgroups.iter().enumerate() {
            let later = &self.cgroups[nr + 1..];
            if let Some(by) = later.iter().find(|other| other.is_for_same(group)) {
                return Err(overridden(group, by));
            }
        }
        Ok(())
    }

    /// Checks that each cgroup for named programs contains a program that runs and that no later
    /// cgroup matches. A cgroup for all programs can be empty, because it takes only the rest. In a
    /// sweep, one of the traces is enough.
    ///
    /// # Errors
    /// [`RequestError::IdleCgroup`], [`RequestError::OverriddenCgroup`].
    pub fn check_cgroups_of(&self, metas: &[&Meta]) -> Result<(), RequestError> {
        let of_trace = |meta: &&'_ Meta| -> Vec<String> {
            let first = meta.program_of(&meta.layout);
            let executed = meta.images.iter().map(|image| meta.program_of(&image.layout));
            iter::once(first).chain(executed).flatten().map(str::to_owned).collect()
        };
        let groups: Vec<String> = metas.iter().flat_map(of_trace).collect();
        let programs: BTreeSet<&str> = groups.iter().map(String::as_str).collect();
        for group in self.cgroups.iter().filter(|group| !group.is_for_all()) {
            let mut of = programs.iter().filter(|path| group.fits(path)).peekable();
            if of.peek().is_none() {
                return Err(idle(group, &programs));
            }
            let taken = of.map(|path| self.other_than(group, path));
            if let Some(by) = taken.collect::<Option<Vec<_>>>().as_deref().and_then(<[_]>::first) {
                return Err(overridden(group, by));
            }
        }
        Ok(())
    }

    /// Returns the cgroup that the program at `path` belongs to, unless it is `group`.
    fn other_than(&self, group: &Cgroup, path: &str) -> Option<&Cgroup> {
        self.cgroups.iter().rfind(|other| other.fits(path)).filter(|other| *other != group)
    }
}

fn idle(group: &Cgroup, programs: &BTreeSet<&str>) -> RequestError {
    let names: BTreeSet<&str> = programs.iter().map(|path| name_of(path)).collect();
    let hint = if names.is_empty() {
        "it does not record which programs ran".to_owned()
    } else {
        format!("known: {}", names.into_iter().collect::<Vec<_>>().join(", "))
    };
    RequestError::IdleCgroup { group: group.to_string(), hint }
}

fn overridden(group: &Cgroup, by: &Cgroup) -> RequestError {
    RequestError::OverriddenCgroup { group: group.to_string(), by: by.to_string() }
}

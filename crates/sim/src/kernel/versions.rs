//! The built-in versions, and the version that introduced a rule's value.
//!
//! By default, that is the first of consecutive built-in versions that have the value. If the
//! change happened between the versions of two files, a file's `[since]` table states when
//! ([`super::since`]).

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::builtin::KERNELS;
use super::leaves::{Path, leaves};
use super::since::{Sinces, take};
use super::{Kernel, KernelError, edit, load, version};
use crate::datafile::parse;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Origin {
    pub version: String,
    /// The commit, if a kernel file names it.
    pub commit: Option<String>,
    pub is_undone: bool,
}

struct Version {
    name: &'static str,
    rules: BTreeMap<Path, Value>,
    since: Sinces,
}

pub(super) struct Versions(Vec<Version>);

impl Versions {
    pub(super) fn all() -> Result<Self, KernelError> {
        let of = |name: &'static str| {
            let bad = |message| KernelError::BadFile { origin: name.to_owned(), message };
            let kernel = load::by_name(name)?;
            let rules = leaves(&kernel.rules).map_err(|error| bad(error.to_string()))?;
            let mut table: Table = parse(KERNELS.text(name).unwrap_or_default(), name)?;
            Ok(Version { name, rules, since: take(name, &mut table)? })
        };
        let names = Kernel::names().filter(|name| version(name).is_some());
        names.map(of).collect::<Result<_, _>>().map(Self)
    }

    /// Returns how many versions to consider: up to the kernel `name`, or all for other files.
    pub(super) fn below(&self, name: &str) -> usize {
        let base = edit::parts(name).0;
        self.0.iter().position(|known| known.name == base).map_or(self.0.len(), |nr| nr + 1)
    }

    /// Returns the first version of the latest run, among the first `below`, with the value.
    pub(super) fn since(
        &self,
        below: usize,
        path: &[String],
        value: Option<&Value>,
    ) -> Option<usize> {
        let has_it = |known: &Version| known.rules.get(path) == value;
        let last = self.0[..below].iter().rposition(has_it)?;
        Some(self.0[..last].iter().rposition(|known| !has_it(known)).map_or(0, |nr| nr + 1))
    }

    pub(super) fn origin(&self, old: usize, new: usize, path: &[String]) -> Origin {
        let known = &self.0[old.max(new)];
        let since = known.since.get(&path.join("."));
        Origin {
            version: since.map_or(known.name, |since| &since.version).to_owned(),
            commit: since.and_then(|since| since.commit.clone()),
            is_undone: old > new,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_says_lies_between_it_and_the_file_before() {
        let versions = Versions::all().unwrap().0;
        let mut nr_dated = 0;
        for pair in versions.windows(2) {
            let [before, after] = pair else { unreachable!() };
            for (rule, since) in &after.since {
                let path: Vec<String> = rule.split('.').map(str::to_owned).collect();
                assert_ne!(
                    before.rules.get(&path),
                    after.rules.get(&path),
                    "{}: {rule}",
                    after.name
                );
                let since_version = version(&since.version);
                assert!(
                    version(before.name) < since_version && since_version <= version(after.name),
                    "{rule}"
                );
                nr_dated += 1;
            }
        }
        assert!(nr_dated > 5, "{nr_dated}");
        assert!(versions[0].since.is_empty(), "the oldest file changes nothing");
    }

    #[test]
    fn a_version_that_is_none_is_refused() {
        let table = |text: &str| text.parse::<Table>().unwrap();
        let message = |text: &str| take("x", &mut table(text)).unwrap_err().to_string();
        assert!(message("since.page.version = 'soon'").contains("'soon' is not a version"));
        assert!(message("since.page.when = '6.8'").contains("when"));
    }
}

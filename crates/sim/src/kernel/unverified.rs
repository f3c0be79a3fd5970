//! Kernels that no recording verifies: the `[not-judged]` table of a kernel file.
//!
//! An edited kernel and a kernel based on one inherit the table, because their rules are not
//! verified either.

use largefolio_trace::shown;
use serde::{Deserialize, Serialize};
use toml::{Table, Value};

use super::{KernelError, table};

const KEY: &str = "not-judged";

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unverified {
    /// The basis of the rules, as part of a sentence.
    pub reason: String,
    /// Names of rules that may be wrong: no document says which version changed them.
    #[serde(default)]
    pub unplaced: Vec<String>,
}

impl Unverified {
    /// Returns a sentence about the kernel `name`, without the final period.
    pub(super) fn sentence(&self, name: &str) -> String {
        let mut text =
            format!("no recording checks the rules of {}: {}", shown(name), shown(&self.reason));
        if !self.unplaced.is_empty() {
            let rules: Vec<String> =
                self.unplaced.iter().map(|rule| shown(rule).to_string()).collect();
            text =
                format!("{text}; the version that changed them is not known: {}", rules.join(", "));
        }
        text
    }
}

pub(super) fn take(origin: &str, table: &mut Table) -> Result<Option<Unverified>, KernelError> {
    table::take(origin, table, KEY)
}

pub(super) fn put(unverified: &Unverified, table: &mut Table) -> Result<(), toml::ser::Error> {
    table.insert(KEY.to_owned(), Value::try_from(unverified)?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::kernel::{Kernel, version};

    fn versions() -> Vec<(Kernel, BTreeSet<String>)> {
        let with_placed = |name: &str| {
            let text = super::super::builtin::KERNELS.text(name).unwrap();
            let mut table: Table = text.parse().unwrap();
            let placed = super::super::since::take(name, &mut table).unwrap();
            (Kernel::parse(name).unwrap(), placed.into_keys().collect())
        };
        Kernel::names().filter(|name| version(name).is_some()).map(with_placed).collect()
    }

    /// Each rule that differs between the recorded kernels around an unrecorded one is in either
    /// `[since]` or `unplaced`.
    #[test]
    fn every_rule_between_recorded_kernels_is_placed_or_said_not_to_be() {
        let versions = versions();
        let is_judged = |(kernel, _): &&(Kernel, BTreeSet<String>)| kernel.unverified.is_none();
        let mut nr_checked = 0;
        for (nr, (kernel, _)) in versions.iter().enumerate() {
            let Some(unverified) = &kernel.unverified else { continue };
            let Some((before, _)) = versions[..nr].iter().rfind(is_judged) else { continue };
            let from = versions.iter().position(|(known, _)| known == before).unwrap() + 1;
            let to = nr + versions[nr..].iter().position(|known| is_judged(&known)).unwrap();
            let placed: BTreeSet<&String> =
                versions[from..=to].iter().flat_map(|(_, placed)| placed).collect();
            let unplaced: BTreeSet<&String> = unverified.unplaced.iter().collect();
            let changes = before.changes_to(&versions[to].0).unwrap();
            let differing: BTreeSet<String> =
                changes.iter().map(super::super::KernelChange::rule).collect();
            for rule in &differing {
                let is_either = placed.contains(rule) != unplaced.contains(rule);
                assert!(is_either, "{}: {rule}", kernel.name);
                nr_checked += 1;
            }
            for rule in unplaced {
                assert!(differing.contains(rule), "{}: there is no rule {rule}", kernel.name);
            }
        }
        assert!(nr_checked > 20, "{nr_checked}");
    }

    #[test]
    fn what_is_not_judged_says_so_wherever_it_is_named() {
        let names: Vec<String> = versions()
            .into_iter()
            .filter(|(kernel, _)| kernel.unverified.is_some())
            .map(|(kernel, _)| kernel.name)
            .collect();
        assert_eq!(names, ["5.14", "5.15", "6.6", "6.8"]);
        for (kernel, _) in versions() {
            let is_unverified = kernel.unverified.is_some();
            assert_eq!(
                kernel.description.contains("not checked"),
                is_unverified,
                "{}",
                kernel.name
            );
            let start = format!("no recording checks the rules of {}: ", kernel.name);
            assert_eq!(kernel.note.is_some_and(|note| note.starts_with(&start)), is_unverified);
        }
    }

    #[test]
    fn who_is_based_on_it_or_edits_it_or_gets_its_rules_inherits_it() {
        let edited = Kernel::parse("6.6+page=64K").unwrap();
        assert_eq!(edited.note, Kernel::parse("6.6").unwrap().note);
        let table = "based-on = '6.6'\ndescription = 'mine'".parse().unwrap();
        let mine = Kernel::from_table("mine", table).unwrap();
        assert!(mine.note.unwrap().starts_with("no recording checks the rules of mine: "));
        let near = Kernel::of_release("6.7.4", 4096).unwrap().unwrap().note.unwrap();
        assert!(near.starts_with(
            "Linux 6.7 is not among the kernels this version knows; using the rules of 6.6"
        ));
        assert!(near.contains("; no recording checks the rules of 6.6: "), "{near}");
        assert_eq!(Kernel::parse("6.12").unwrap().unverified, None);
    }

    #[test]
    fn a_file_that_says_it_wrongly_is_refused() {
        let message = |text: &str| {
            let table = format!("based-on = '6.6'\ndescription = 'x'\n{text}").parse().unwrap();
            Kernel::from_table("x", table).unwrap_err().to_string()
        };
        assert!(message("not-judged = true").contains("not-judged"));
        assert!(message("[not-judged]\nwhy = 'x'").contains("why"));
    }
}

//! The differences between two kernels' rules, and kernels between the two.
//!
//! Defines what counts as one rule in a kernel file, and finds the version that introduced a
//! change. Does not interpret rules: it compares the tables of kernel files.
//!
//! Invariants:
//! - C1: a kernel with all of its changes to another has the other's rules.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use largefolio_mm::rules::Rules;
use toml::{Table, Value};

use super::check::check;
use super::leaves::{Path, leaves, put};
use super::versions::{Origin, Versions};
use super::{Kernel, KernelError};
use crate::policy::KernelPolicy;

const POLICY: &str = "policy";
const ABSENT: &str = "absent";

#[derive(Clone, Debug, PartialEq)]
pub struct KernelChange {
    path: Path,
    from: Option<Value>,
    to: Option<Value>,
    policy: Option<KernelPolicy>,
    /// The version of the newer value; `None` if no built-in kernel has one of the two.
    pub origin: Option<Origin>,
}

type SortKey = (u8, Reverse<(u32, u32)>, (u32, u32));

impl KernelChange {
    #[must_use]
    pub fn rule(&self) -> String {
        self.path.join(".")
    }

    #[must_use]
    pub fn from(&self) -> String {
        shown(self.from.as_ref())
    }

    #[must_use]
    pub fn to(&self) -> String {
        shown(self.to.as_ref())
    }

    fn is_policy(&self) -> bool {
        matches!(self.path.as_slice(), [name] if name == POLICY)
    }

    /// Undone changes come first, newest to oldest; then new ones, oldest to newest; then edits.
    fn place(&self) -> SortKey {
        let none = (0, 0);
        let Some(origin) = &self.origin else { return (2, Reverse(none), none) };
        let version = super::version(&origin.version).unwrap_or(none);
        if origin.is_undone { (0, Reverse(version), none) } else { (1, Reverse(none), version) }
    }
}

/// Formats a value as in an edit: `arch-window`, `block.bytes=65536`.
fn shown(value: Option<&Value>) -> String {
    match value {
        None => ABSENT.to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(Value::Table(table)) => {
            let one = |(name, value): (&String, &Value)| match value {
                Value::Table(_) => format!("{name}.{}", shown(Some(value))),
                _ => format!("{name}={}", shown(Some(value))),
            };
            table.iter().map(one).collect::<Vec<_>>().join(" ")
        }
        Some(other) => other.to_string(),
    }
}

impl Kernel {
    /// Returns the rules that differ in `other`, in the order in which Linux changed them.
    ///
    /// ```
    /// use largefolio_sim::kernel::Kernel;
    /// let changes = Kernel::parse("6.18")?.changes_to(&Kernel::parse("6.19")?)?;
    /// let told: Vec<_> = changes.iter().map(|c| format!("{} {}", c.rule(), c.to())).collect();
    /// assert_eq!(told[..2], ["collapse.empty_block stepped-over", "fault.forced_gate gated"]);
    /// assert_eq!(told[2..], ["numa.huge_marks as-ptes"]);
    /// assert_eq!(changes[0].origin.as_ref().unwrap().version, "6.19");
    /// # Ok::<(), largefolio_sim::kernel::KernelError>(())
    /// ```
    ///
    /// # Errors
    /// Numbers above TOML's maximum, 2^63.
    pub fn changes_to(&self, other: &Self) -> Result<Vec<KernelChange>, KernelError> {
        let (mut before, mut after) = (self.leaves()?, other.leaves()?);
        let mut paths: Vec<Path> = before.keys().chain(after.keys()).cloned().collect();
        paths.sort_unstable();
        paths.dedup();
        let versions = Versions::all()?;
        let (first, second) = (versions.below(&self.name), versions.below(&other.name));
        let mut changes = Vec::new();
        for path in paths {
            let (from, to) = (before.remove(&path), after.remove(&path));
            if from == to {
                continue;
            }
            let since = |known: usize, value| versions.since(known, &path, value);
            let origin = match (since(first, from.as_ref()), since(second, to.as_ref())) {
                (Some(old), Some(new)) => Some(versions.origin(old, new, &path)),
                _ => None,
            };
            changes.push(KernelChange { path, from, to, policy: None, origin });
        }
        changes.extend(self.change_of_policy(other));
        changes.sort_by_key(KernelChange::place);
        Ok(changes)
    }

    /// Returns this kernel as `name` with some of its changes to another.
    ///
    /// # Errors
    /// Rules that no kernel can have.
    pub fn with_changes<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a KernelChange>,
        name: &str,
    ) -> Result<Self, KernelError> {
        let bad = |message: String| KernelError::BadFile { origin: name.to_owned(), message };
        let mut table = Table::try_from(&self.rules).map_err(|error| bad(error.to_string()))?;
        let mut policy = self.policy.clone();
        for change in changes {
            if change.is_policy() {
                policy.clone_from(&change.policy);
                continue;
            }
            put(&mut table, &change.path, change.to.as_ref());
        }
        let rules: Rules = table
            .try_into()
            .map_err(|error: toml::de::Error| bad(error.message().trim().to_owned()))?;
        check(&rules).map_err(bad)?;
        Ok(Self { name: name.to_owned(), rules, policy, ..self.clone() })
    }

    fn change_of_policy(&self, other: &Self) -> Option<KernelChange> {
        let name = |kernel: &Self| {
            kernel.policy.as_ref().map(|policy| Value::String(policy.name().to_owned()))
        };
        (self.policy != other.policy).then(|| KernelChange {
            path: vec![POLICY.to_owned()],
            from: name(self),
            to: name(other),
            policy: other.policy.clone(),
            origin: None,
        })
    }

    pub(super) fn leaves(&self) -> Result<BTreeMap<Path, Value>, KernelError> {
        leaves(&self.rules).map_err(|error| KernelError::BadFile {
            origin: self.name.clone(),
            message: error.to_string(),
        })
    }
}

#[cfg(test)]
mod tests;

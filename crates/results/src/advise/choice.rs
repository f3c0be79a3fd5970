//! What can be set: the choices of `choices.toml` that this system takes.

use std::path::Path;

use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::tune::plan::ChangeSet;
use largefolio_sim::kernel::Kernel;
use serde::{Deserialize, Serialize};

use crate::Error;

/// Whose memory a choice changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// The program's.
    Program,
    /// That of all programs.
    System,
}

/// Something that can be set.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choice {
    /// Choices of one lever exclude each other.
    pub lever: String,
    /// What people call it.
    pub name: String,
    /// Edits of the kernel that the model replays; empty for none.
    #[serde(default)]
    pub edits: String,
    /// Folio size that the loader asks for: `pmd`.
    #[serde(default)]
    pub annotate: Option<String>,
    /// Settings of `folio tune`.
    #[serde(default)]
    pub set: Vec<String>,
    /// Options of `folio run`, which `folio verify` takes as well.
    #[serde(default)]
    pub start: Vec<String>,
    /// What `start` is for a service: a variable of its environment.
    #[serde(default)]
    pub env: Option<String>,
    /// Settings that the variable needs.
    #[serde(default)]
    pub env_set: Vec<String>,
    /// Options of `folio verify` besides.
    #[serde(default)]
    pub verify: Vec<String>,
    /// Whether `folio warm` fills the page cache.
    #[serde(default)]
    pub warm: bool,
    /// Whose memory changes.
    pub scope: Scope,
    /// What the model leaves out.
    #[serde(default)]
    pub limits: String,
}

/// A choice that this system does not take.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LeftOut {
    /// Its name.
    pub choice: String,
    /// Why.
    pub why: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    choice: Vec<Choice>,
}

/// The choices that `kernel`, which is the running one, and its settings have, in the order of the
/// file; and those that they do not have. `has_text`: there are files for `folio warm`.
///
/// # Errors
/// A file of choices that is none.
pub(super) fn of_system(
    kernel: &Kernel,
    has_text: bool,
) -> Result<(Vec<Choice>, Vec<LeftOut>), Error> {
    let catalog = Catalog::below(Path::new("/"));
    let file: File = toml::from_str(include_str!("choices.toml"))
        .map_err(|error| Error::asked(format!("choices.toml: {error}")))?;
    let (mut taken, mut left_out) = (Vec::new(), Vec::new());
    for choice in file.choice {
        let choice = Choice { set: on_disks(&catalog, choice.set), ..choice };
        let no_text = "no program or library of the recording is on disk as it was";
        let why = if choice.warm && !has_text {
            Some(no_text.to_owned())
        } else {
            refusal(&catalog, kernel, &choice)
        };
        match why {
            None => taken.push(choice),
            Some(why) => left_out.push(LeftOut { choice: choice.name, why }),
        }
    }
    Ok((taken, left_out))
}

/// Why this system does not take a choice; what it has already is no refusal, but no change either.
fn refusal(catalog: &Catalog, kernel: &Kernel, choice: &Choice) -> Option<String> {
    if !choice.edits.is_empty() {
        match Kernel::parse(&format!("{}+{}", kernel.name, choice.edits)) {
            Err(error) => return Some(error.to_string()),
            Ok(edited) if edited.rules == kernel.rules => return Some("is so already".to_owned()),
            Ok(_) => {}
        }
    }
    let mut changes = ChangeSet::default();
    for assignment in &choice.set {
        let Some((name, value)) = assignment.split_once('=') else { continue };
        if let Err(error) = changes.set(catalog, name, value) {
            return Some(error.to_string());
        }
    }
    (!choice.set.is_empty() && changes.changes.is_empty()).then(|| "is so already".to_owned())
}

/// `readahead=512` for each disk.
fn on_disks(catalog: &Catalog, set: Vec<String>) -> Vec<String> {
    let of = |assignment: String| match assignment.strip_prefix("readahead=") {
        Some(value) => {
            catalog.disks().iter().map(|disk| format!("readahead.{disk}={value}")).collect()
        }
        None => vec![assignment],
    };
    set.into_iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_choice_of_the_file_can_be_replayed_or_is_told_why_not() {
        let kernel = Kernel::parse("6.18").unwrap();
        let (taken, left_out) = of_system(&kernel, true).unwrap();
        assert!(taken.len() + left_out.len() > 10);
        for choice in &taken {
            assert!(!choice.edits.is_empty() || choice.annotate.is_some(), "{choice:?}");
            assert!(
                !choice.set.is_empty() || !choice.start.is_empty() || choice.warm,
                "{choice:?}"
            );
        }
        assert!(left_out.iter().all(|one| !one.why.is_empty()));
        // 6.1 has no sizes of private memory but the PMD's.
        let (taken, left_out) = of_system(&Kernel::parse("6.1").unwrap(), false).unwrap();
        assert!(taken.iter().all(|choice| !choice.edits.contains("anon-64K")), "{left_out:?}");
    }
}

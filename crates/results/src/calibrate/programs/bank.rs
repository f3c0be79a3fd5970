//! The bank's programs, as data (`programs/bank.toml`).

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use largefolio_linux::environment::{Host, find_in_path};
use largefolio_trace::shown;
use serde::Deserialize;

use crate::Error;

const BANK: &str = include_str!("../../../programs/bank.toml");

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Bank {
    /// Files that every program's directory has, by name.
    files: BTreeMap<String, String>,
    #[serde(rename = "program")]
    programs: Vec<Program>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Program {
    pub(super) name: String,
    pub(super) class: String,
    /// Programs on PATH.
    needs: Vec<String>,
    /// Shell text that makes its input.
    prepare: Option<String>,
    #[serde(default)]
    files: BTreeMap<String, String>,
    /// Shell text that runs it.
    pub(super) run: String,
}

impl Bank {
    pub(super) fn load() -> Self {
        toml::from_str(BANK).unwrap_or_else(|error| unreachable!("programs/bank.toml: {error}"))
    }

    /// Returns the programs with these names; all, if `names` is empty.
    pub(super) fn chosen(&self, names: &[String]) -> Result<Vec<Program>, Error> {
        if names.is_empty() {
            return Ok(self.programs.clone());
        }
        let of = |name: &String| {
            let program = self.programs.iter().find(|program| program.name == *name);
            program.cloned().ok_or_else(|| {
                let all: Vec<&str> = self.programs.iter().map(|one| one.name.as_str()).collect();
                Error::request(format!(
                    "the bank has no program {}; it has {}",
                    shown(name),
                    all.join(", ")
                ))
            })
        };
        names.iter().map(of).collect()
    }

    /// Returns the class of a program, also of one that an earlier version had.
    pub(super) fn class(&self, name: &str) -> &str {
        let program = self.programs.iter().find(|program| program.name == name);
        program.map_or("other", |program| &program.class)
    }

    /// Makes a program's files and input in an empty directory.
    pub(super) fn prepare(&self, program: &Program, dir: &Path) -> Result<(), String> {
        if let Some(missing) =
            program.needs.iter().find(|name| find_in_path(&Host, OsStr::new(name)).is_none())
        {
            return Err(format!("this machine has no {missing}"));
        }
        for (name, text) in self.files.iter().chain(&program.files) {
            fs::write(dir.join(name), text.trim_start_matches('\n'))
                .map_err(|error| format!("cannot write {name}: {error}"))?;
        }
        let Some(text) = &program.prepare else { return Ok(()) };
        let mut command = Command::new("sh");
        command.args(["-ec", text]).current_dir(dir).stdin(Stdio::null()).stdout(Stdio::null());
        let output = command.output().map_err(|error| format!("cannot start sh: {error}"))?;
        if output.status.success() {
            return Ok(());
        }
        let error = String::from_utf8_lossy(&output.stderr);
        let last = error.lines().rfind(|line| !line.trim().is_empty()).unwrap_or("no message");
        Err(format!("its input could not be made: {last}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bank_has_forty_programs_with_names_of_their_own() {
        let bank = Bank::load();
        let mut names: Vec<&str> = bank.programs.iter().map(|one| one.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        assert!(names.len() >= 40 && names.len() == bank.programs.len(), "{names:?}");
    }

    #[test]
    fn a_program_that_cannot_be_prepared_says_why() {
        let bank = Bank::load();
        let dir = tempfile::tempdir().unwrap();
        let of = |needs: &[&str], prepare: &str| {
            let program = Program {
                name: "x".to_owned(),
                class: "x".to_owned(),
                needs: needs.iter().map(ToString::to_string).collect(),
                prepare: Some(prepare.to_owned()),
                files: BTreeMap::new(),
                run: "true".to_owned(),
            };
            bank.prepare(&program, dir.path())
        };
        assert_eq!(
            of(&["no-such-program"], "true").unwrap_err(),
            "this machine has no no-such-program"
        );
        assert_eq!(
            of(&["sh"], "echo gone >&2; exit 3").unwrap_err(),
            "its input could not be made: gone"
        );
        of(&["sh"], "test -s words.awk").unwrap();
    }
}

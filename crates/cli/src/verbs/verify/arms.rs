//! The command as it is, and with a change.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use largefolio_linux::setting::Setting;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::verify::rounds::{Arm, ArmError};

/// Where the command's output goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Discarded,
    Shown,
}

/// The command as it is.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    words: Vec<OsString>,
    output: Output,
}

impl Plain {
    /// `words` is the program and its arguments, and not empty.
    pub(super) fn new(words: Vec<OsString>, output: Output) -> Self {
        Self { words, output }
    }
}

impl Arm for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn prepare(&mut self) -> Result<(), ArmError> {
        Ok(())
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        if matches!(self.output, Output::Discarded) {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
        command
    }
}

/// The command while settings are changed.
#[derive(Debug)]
pub(super) struct Changed {
    plain: Plain,
    /// Name, file and value.
    settings: Vec<(String, PathBuf, String)>,
    /// Changed now.
    held: Vec<Setting>,
}

impl Changed {
    /// Checks names and values of `NAME=VALUE`.
    pub(super) fn new(plain: Plain, tune: &[String]) -> Result<Self> {
        let catalog = Catalog::below(Path::new("/"));
        let mut settings: Vec<(String, PathBuf, String)> = Vec::new();
        for assignment in tune {
            let Some((name, value)) = assignment.split_once('=') else {
                bail!("--tune {assignment}: expected NAME=VALUE, such as thp.64K=always");
            };
            catalog.read(name)?.check(name, value)?;
            if settings.iter().any(|(known, ..)| known == name) {
                bail!("--tune {name} is given twice");
            }
            settings.push((name.to_owned(), catalog.path(name)?, value.to_owned()));
        }
        Ok(Self { plain, settings, held: Vec::new() })
    }

    /// Names and values of the settings.
    pub(super) fn settings(&self) -> Vec<(&str, &str)> {
        self.settings.iter().map(|(name, _, value)| (name.as_str(), value.as_str())).collect()
    }

    /// What is changed, for people.
    pub(super) fn description(&self) -> String {
        let words: Vec<_> =
            self.settings.iter().map(|(name, _, value)| format!("{name}={value}")).collect();
        words.join(" ")
    }
}

impl Arm for Changed {
    fn name(&self) -> &'static str {
        "changed"
    }

    fn prepare(&mut self) -> Result<(), ArmError> {
        for (_, path, value) in &self.settings {
            self.held.push(Setting::change(path, value)?);
        }
        Ok(())
    }

    fn command(&self) -> Command {
        self.plain.command()
    }

    fn finish(&mut self) {
        self.held.clear();
    }
}

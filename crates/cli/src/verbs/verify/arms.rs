//! The command as it is, and with a change.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use largefolio_linux::remap::Voice;
use largefolio_linux::run::{self, Request};
use largefolio_linux::setting::Setting;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::verify::rounds::{Arm, ArmError};
use largefolio_linux::warm;
use largefolio_report::figures;
use largefolio_trace::shown;

use crate::verbs::run::large_folios;

/// Where the command's output goes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Output {
    Discarded,
    Shown,
}

impl Output {
    fn of(self, command: &mut Command) {
        if matches!(self, Self::Discarded) {
            command.stdout(Stdio::null()).stderr(Stdio::null());
        }
    }
}

/// The command as it is.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    words: Vec<OsString>,
    output: Output,
    /// Files whose cache the other arm fills.
    cooled: Vec<PathBuf>,
}

impl Plain {
    /// `words` is the program and its arguments, and not empty.
    pub(super) fn new(words: Vec<OsString>, output: Output) -> Self {
        Self { words, output, cooled: Vec::new() }
    }
}

impl Plain {
    /// The other arm fills the cache of `files`: empty it before each run.
    pub(super) fn cools(&mut self, files: Vec<PathBuf>) {
        self.cooled = files;
    }
}

impl Arm for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn prepare(&mut self) -> Result<(), ArmError> {
        cool(&self.cooled)
    }

    fn command(&self) -> Command {
        let mut command = Command::new(&self.words[0]);
        command.args(&self.words[1..]);
        self.output.of(&mut command);
        command
    }

    fn is_rehearsed(&self) -> bool {
        !self.cooled.is_empty()
    }
}

/// Takes `files` out of the page cache, as far as no process maps them.
fn cool(files: &[PathBuf]) -> Result<(), ArmError> {
    for file in files {
        warm::cool(file).map_err(|error| format!("{}: {error}", shown(file)))?;
    }
    Ok(())
}

/// The command while settings are changed, started as `folio run` does.
#[derive(Debug)]
pub(super) struct Changed {
    plain: Plain,
    request: Option<Request>,
    /// Files whose cache is emptied before the command is started.
    cooled: Vec<PathBuf>,
    /// Prepared now.
    started: Option<run::Launch>,
    effects: Vec<String>,
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
        let (request, started, effects) = (None, None, Vec::new());
        let (cooled, held) = (Vec::new(), Vec::new());
        Ok(Self { plain, request, cooled, started, effects, settings, held })
    }

    /// Names and values of the settings.
    pub(super) fn settings(&self) -> Vec<(&str, &str)> {
        self.settings.iter().map(|(name, _, value)| (name.as_str(), value.as_str())).collect()
    }

    /// What is changed, for people.
    pub(super) fn description(&self) -> String {
        let mut words = Vec::new();
        if let Some(request) = &self.request {
            if request.text != run::Text::Off {
                words.push(format!("text {:?}", request.text).to_lowercase());
            }
            words.extend(request.heap_bytes.map(|bytes| format!("heap {}", figures::size(bytes))));
        }
        words.extend(self.settings.iter().map(|(name, _, value)| format!("{name}={value}")));
        words.join(", ")
    }

    /// Starts the command as `folio run` would; the answer are the files whose cache that fills.
    ///
    /// A start that would change nothing is an error here: both arms would be the same.
    pub(super) fn starts(
        &mut self,
        text: run::Text,
        heap_bytes: Option<u64>,
    ) -> Result<Vec<PathBuf>> {
        let command = self.plain.words.clone();
        let request = Request { text, heap_bytes, voice: Voice::Silent, command };
        let plan = run::Launch::new(&request)?;
        let is_changed = !plan.warmed.is_empty() || plan.moved.is_some() || plan.heap.is_some();
        let why = plan.fallbacks.first().map(ToString::to_string);
        if !is_changed && self.settings.is_empty() {
            bail!(
                "the changed run would be the same as the plain one: {}",
                why.unwrap_or_else(|| "nothing of it can be larger".to_owned())
            );
        }
        self.effects.extend(why);
        for file in &plan.warmed {
            let large = figures::bytes(file.after_bytes.unwrap_or(0));
            self.effects.push(format!(
                "{}: {large} in {} in the page cache",
                shown(&file.path),
                large_folios(file)
            ));
        }
        self.request = Some(request);
        if plan.moved.is_none() {
            return Ok(plan.warmed.iter().map(|file| file.path.clone()).collect());
        }
        // Text that the page cache maps large already is not moved: it must be as the kernel has it.
        self.cooled.clone_from(&plan.files);
        Ok(plan.files)
    }

    /// What the start did, for people.
    pub(super) fn effects(&self) -> Vec<String> {
        self.effects.clone()
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
        cool(&self.cooled)?;
        self.started = self.request.as_ref().map(run::Launch::new).transpose()?;
        Ok(())
    }

    fn command(&self) -> Command {
        let Some(started) = &self.started else { return self.plain.command() };
        let mut command = started.command();
        self.plain.output.of(&mut command);
        command
    }

    fn is_rehearsed(&self) -> bool {
        self.request.is_some()
    }

    fn finish(&mut self) {
        let moved = self.started.take().and_then(|started| started.moved?.summary().ok());
        if let Some(moved) = moved.filter(|moved| !moved.texts.is_empty()) {
            self.effects = moved.to_string().lines().map(str::to_owned).collect();
        }
        self.held.clear();
    }
}

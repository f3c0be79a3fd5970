//! The command without and with a change. With a server, the change applies to the server.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, bail};
use largefolio_linux::remap::Voice;
use largefolio_linux::run::{self, ProgramRequest};
use largefolio_linux::setting::Setting;
use largefolio_linux::timed_run::output::Output;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_linux::verify::proof::Trace;
use largefolio_linux::verify::rounds::{Arm, ArmError};
use largefolio_linux::warm;
use largefolio_results::figures;
use largefolio_results::verify::{Change, SettingRow};
use largefolio_trace::shown;

use crate::verbs::run::large_folios;

/// A setting that differs in the changed runs.
#[derive(Clone, Debug)]
struct Tuned {
    name: String,
    path: PathBuf,
    /// The value before the rounds.
    old: String,
    new: String,
}

impl Tuned {
    fn read(&self) -> String {
        Setting::read(&self.path).unwrap_or_else(|error| error.to_string())
    }
}

/// The plain command.
#[derive(Clone, Debug)]
pub(super) struct Plain {
    command_args: Vec<OsString>,
    server: Option<Vec<OsString>>,
    output: Output,
    /// Files whose cache the other arm fills.
    cooled: Vec<PathBuf>,
    settings: Vec<Tuned>,
    disturbance: Option<String>,
}

impl Plain {
    /// `command_args` has the program and its arguments. Neither it nor `server` may be empty.
    pub(super) fn new(
        command_args: Vec<OsString>,
        server: Option<Vec<OsString>>,
        output: Output,
    ) -> Self {
        let (cooled, settings, disturbance) = (Vec::new(), Vec::new(), None);
        Self { command_args, server, output, cooled, settings, disturbance }
    }

    /// Evicts `files` before each run, because the other arm fills their cache.
    pub(super) fn cools(&mut self, files: Vec<PathBuf>) {
        self.cooled = files;
    }

    /// Returns the changed program: the server or the command.
    fn subject(&self) -> &[OsString] {
        self.server.as_ref().unwrap_or(&self.command_args)
    }

    fn started(&self, command_args: &[OsString]) -> Command {
        let mut command = Command::new(&command_args[0]);
        command.args(&command_args[1..]);
        self.quiet(&mut command);
        command
    }

    fn quiet(&self, command: &mut Command) {
        match self.output {
            Output::Discarded => command.stdout(Stdio::null()).stderr(Stdio::null()),
            // Standard output is for the result.
            Output::Shown => command.stdout(io::stderr()),
        };
    }

    fn check(&mut self) {
        let mut settings = self.settings.iter();
        let current = settings.find_map(|one| disturbed(one, &one.old));
        self.disturbance = self.disturbance.take().or(current);
    }
}

/// Says how `setting` differs from its expected value.
fn disturbed(setting: &Tuned, expected: &str) -> Option<String> {
    let now = setting.read();
    (now != expected)
        .then(|| format!("another program set {} to {now}, not {expected}", setting.name))
}

impl Arm for Plain {
    fn name(&self) -> &'static str {
        "plain"
    }

    fn prepare(&mut self) -> Result<(), ArmError> {
        self.check();
        cool(&self.cooled)
    }

    fn command(&self) -> Command {
        self.started(&self.command_args)
    }

    fn server(&self) -> Option<Command> {
        self.server.as_ref().map(|command_args| self.started(command_args))
    }

    fn is_rehearsed(&self) -> bool {
        !self.cooled.is_empty()
    }

    fn disturbance(&mut self) -> Option<String> {
        self.check();
        self.disturbance.take()
    }
}

/// Evicts `files` from the page cache, unless a process maps them.
fn cool(files: &[PathBuf]) -> Result<(), ArmError> {
    for file in files {
        warm::cool(file).map_err(|error| format!("{}: {error}", shown(file)))?;
    }
    Ok(())
}

/// The command with changed settings, started as by `folio run`.
#[derive(Debug)]
pub(super) struct Changed {
    plain: Plain,
    environment: Vec<(String, String)>,
    request: Option<ProgramRequest>,
    /// Files to evict before the command starts.
    cooled: Vec<PathBuf>,
    /// Whether the two arms differ in cached files.
    has_files: bool,
    /// The prepared start, if any.
    started: Option<run::Launch>,
    effects: Vec<String>,
    /// Settings that are currently changed.
    held: Vec<Setting>,
}

impl Changed {
    pub(super) fn new(plain: &mut Plain, tune: &[String], env: &[String]) -> Result<Self> {
        let catalog = Catalog::below(Path::new("/"));
        let mut settings: Vec<Tuned> = Vec::new();
        for assignment in tune {
            let Some((name, value)) = assignment.split_once('=') else {
                bail!("--tune {assignment}: expected NAME=VALUE, such as thp.64K=always");
            };
            let now = catalog.read(name)?;
            now.check(name, value)?;
            if settings.iter().any(|known| known.name == name) {
                bail!("--tune {name} is given twice");
            }
            let (name, new, path) = (name.to_owned(), value.to_owned(), catalog.path(name)?);
            // A value set temporarily by another folio is not the system's own.
            settings.push(Tuned { old: Setting::read_at_rest(&path)?, path, name, new });
        }
        let mut environment: Vec<(String, String)> = Vec::new();
        for assignment in env {
            let parts = assignment.split_once('=').filter(|(name, _)| !name.is_empty());
            let Some((name, value)) = parts else {
                bail!("--env {}: expected NAME=VALUE", shown(assignment));
            };
            if environment.iter().any(|(known, _)| known == name) {
                bail!("--env {} is given twice", shown(name));
            }
            environment.push((name.to_owned(), value.to_owned()));
        }
        plain.settings.clone_from(&settings);
        let (request, started, effects) = (None, None, Vec::new());
        let (cooled, has_files, held) = (Vec::new(), false, Vec::new());
        let plain = plain.clone();
        Ok(Self { plain, environment, request, cooled, has_files, started, effects, held })
    }

    pub(super) fn settings(&self) -> Vec<(&str, &str)> {
        let settings = self.plain.settings.iter();
        settings.map(|one| (one.name.as_str(), one.new.as_str())).collect()
    }

    /// # Errors
    /// If the change is already in effect, which would make both arms the same.
    pub(super) fn refuse_none(&self) -> Result<()> {
        for one in &self.plain.settings {
            if one.old == one.new {
                bail!(
                    "--tune {}={}: it is already {:?}, so both runs would be the same",
                    one.name,
                    one.new,
                    one.old
                );
            }
        }
        for (name, value) in &self.environment {
            if std::env::var_os(name).is_some_and(|now| now == **value) {
                bail!(
                    "--env {}: the environment already has this value, so both runs would be the \
                     same",
                    shown(&format!("{name}={value}"))
                );
            }
        }
        Ok(())
    }

    pub(super) fn trace(&self) -> Trace {
        let has_heap = self.request.as_ref().is_some_and(|request| request.heap_bytes.is_some());
        let decides = |one: &Tuned| Catalog::decides_folios(&one.name);
        if has_heap || self.plain.settings.iter().any(decides) {
            Trace::Required
        } else {
            Trace::Possible
        }
    }

    /// Returns the program and its libraries if a setting decides how they are read. Both arms must
    /// read them again, because cached pages keep their folios.
    pub(super) fn reads(&mut self) -> Vec<PathBuf> {
        if !self.plain.settings.iter().any(|one| Catalog::decides_reads(&one.name)) {
            return Vec::new();
        }
        let files = run::files(&self.plain.subject()[0]);
        self.has_files |= !files.is_empty();
        self.cooled.extend(files.iter().cloned());
        files
    }

    pub(super) fn change(&self) -> Change {
        let mut command_args = Vec::new();
        if let Some(request) = &self.request {
            if request.text != run::Text::Off {
                command_args.push(format!("text {:?}", request.text).to_lowercase());
            }
            command_args
                .extend(request.heap_bytes.map(|bytes| format!("heap {}", figures::size(bytes))));
        }
        let pair = |(name, value): &(String, String)| format!("{name}={value}");
        let environment: Vec<String> = self.environment.iter().map(pair).collect();
        let settings = self.plain.settings.iter();
        command_args.extend(settings.clone().map(|one| format!("{}={}", one.name, one.new)));
        command_args.extend(environment.iter().cloned());
        let row = |one: &Tuned| SettingRow {
            name: one.name.clone(),
            plain: one.old.clone(),
            changed: one.new.clone(),
        };
        let (settings, effects) = (settings.map(row).collect(), self.effects.clone());
        Change { change: command_args.join(", "), settings, environment, effects }
    }

    /// Starts the command as `folio run` would, and returns the files whose cache that fills.
    ///
    /// A start that changes nothing is an error, because both arms would be the same.
    pub(super) fn starts(
        &mut self,
        text: run::Text,
        heap_bytes: Option<u64>,
    ) -> Result<Vec<PathBuf>> {
        let command = self.plain.subject().to_vec();
        let voice = Voice::Silent;
        let request = ProgramRequest { text, heap_bytes, regions: None, voice, command };
        let plan = run::Launch::new(&request)?;
        let is_changed = !plan.warmed.is_empty() || plan.moved.is_some() || plan.heap.is_some();
        let why = plan.fallbacks.first().map(ToString::to_string);
        if !is_changed && self.plain.settings.is_empty() && self.environment.is_empty() {
            bail!(
                "the changed run would be the same as the plain one: {}",
                why.unwrap_or_else(|| "no folio in it can be larger".to_owned())
            );
        }
        let command = plan.command();
        for (name, _) in &self.environment {
            if command.get_envs().any(|(set, _)| set == name.as_str()) {
                bail!(
                    "--env {}: --heap or --text sets this variable too; give only one of them",
                    shown(name)
                );
            }
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
        let files = if plan.moved.is_none() {
            plan.warmed.iter().map(|file| file.path.clone()).collect()
        } else {
            // Text that is already mapped large from the page cache would not be moved, so it is
            // evicted first.
            self.cooled.clone_from(&plan.files);
            plan.files
        };
        self.has_files |= !files.is_empty();
        Ok(files)
    }

    fn changed(&self) -> Command {
        let mut command = match &self.started {
            Some(started) => started.command(),
            None => self.plain.started(self.plain.subject()),
        };
        self.plain.quiet(&mut command);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command
    }
}

impl Arm for Changed {
    fn name(&self) -> &'static str {
        "changed"
    }

    fn prepare(&mut self) -> Result<(), ArmError> {
        self.plain.check();
        for one in &mut self.plain.settings {
            self.held.push(Setting::change(&one.path, &one.new)?);
            // The kernel may round a number; the rounded value must stay.
            one.new = one.read();
            if one.new == one.old {
                return Err(format!("the kernel keeps {} at {}", one.name, one.old).into());
            }
        }
        cool(&self.cooled)?;
        self.started = self.request.as_ref().map(run::Launch::new).transpose()?;
        Ok(())
    }

    fn command(&self) -> Command {
        if self.plain.server.is_some() { self.plain.command() } else { self.changed() }
    }

    fn server(&self) -> Option<Command> {
        self.plain.server.as_ref().map(|_| self.changed())
    }

    fn is_rehearsed(&self) -> bool {
        self.has_files
    }

    fn disturbance(&mut self) -> Option<String> {
        let before = self.plain.disturbance.take();
        let mut settings = self.plain.settings.iter();
        before.or_else(|| settings.find_map(|one| disturbed(one, &one.new)))
    }

    fn finish(&mut self) {
        let moved = self.started.take().and_then(|started| started.moved?.summary().ok());
        if let Some(moved) = moved.filter(|moved| !moved.texts.is_empty()) {
            self.effects = moved.to_string().lines().map(str::to_owned).collect();
        }
        self.held.clear();
    }
}

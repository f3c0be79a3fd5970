//! Chooses the measures for a program and applies them.

use std::cell::OnceCell;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use largefolio_trace::disk::open_regular;
use largefolio_trace::shown;

use super::child::{self, ChildEnd, ChildError};
use super::fallback::Fallback;
use super::heap::Heap;
use super::inherited;
use super::program::{Program, Unknown};
use super::regions::{RegionRules, Regions};
use super::remap;
use super::sample::{Samples, Sampling};
use crate::alignment::{self, Ground, Obstacle, Placed};
use crate::elf::ElfFile;
use crate::filesystem;
use crate::geometry::Geometry;
use crate::remap::{Remap, Voice};
use crate::signals;
use crate::system::Live;
use crate::warm::{Part, Users, Warm, WarmRefusal, Warmed, libraries};

/// Filesystems that place large mappings at addresses congruent to their offset.
const PLACING: [&str; 3] = ["ext4", "xfs", "btrfs"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Text {
    Off,
    Auto,
    Large,
    Remap,
}

#[derive(Clone, Debug)]
pub struct ProgramRequest {
    pub text: Text,
    pub heap_bytes: Option<u64>,
    pub regions: Option<RegionRules>,
    pub voice: Voice,
    pub command: Vec<OsString>,
}

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error("{}: not found; check the name, or give its path", shown(.0))]
    NotFound(PathBuf),
    #[error(
        "{path}: not executable; run `chmod +x {path}`",
        path = shown(.0)
    )]
    NotExecutable(PathBuf),
    #[error(
        "cannot create a process for {}: {source}; a seccomp filter or a limit (ulimit -u) can \
         cause this",
        shown(program)
    )]
    NoProcess { program: PathBuf, source: io::Error },
    #[error("cannot start {}: {source}", shown(program))]
    Start { program: PathBuf, source: io::Error },
}

#[derive(Debug)]
pub struct Launch {
    command: Vec<OsString>,
    variables: Vec<(OsString, OsString)>,
    pub files: Vec<PathBuf>,
    pub warmed: Vec<Warmed>,
    /// Bytes of text in these files that large entries can map.
    pub text_bytes: u64,
    pub elapsed: Duration,
    pub fallbacks: Vec<Fallback>,
    pub notes: Vec<String>,
    pub heap: Option<Heap>,
    /// Moves text and collects the reports.
    pub moved: Option<Remap>,
    pub regions: Option<Regions>,
    pub enabled: Option<String>,
}

#[derive(Debug)]
pub struct Watched {
    pub ended: ChildEnd,
    pub samples: Samples,
    pub elapsed: Duration,
}

#[derive(Clone, Copy)]
struct Own<'a> {
    path: &'a Path,
    elf: &'a ElfFile,
}

impl Own<'_> {
    /// Returns whether its text can fill a PMD folio, the only size that `MADV_COLLAPSE` makes.
    fn has_moving_block(&self) -> bool {
        alignment::has_text_of(self.elf, Geometry::running().pmd_bytes())
    }
}

impl Launch {
    /// Prepares a program's start.
    ///
    /// # Errors
    /// If there is no such program. Any other failure is a [`Fallback`].
    pub fn new(request: &ProgramRequest) -> Result<Self, RunError> {
        let started = Instant::now();
        let name = request.command.first().cloned().unwrap_or_default();
        let program = Program::of(&name).map_err(|unknown| match unknown {
            Unknown::NotFound => RunError::NotFound(PathBuf::from(&name)),
            Unknown::NotExecutable => RunError::NotExecutable(PathBuf::from(&name)),
        })?;
        let mut plan = Self {
            command: request.command.clone(),
            variables: Vec::new(),
            files: Vec::new(),
            warmed: Vec::new(),
            text_bytes: 0,
            elapsed: Duration::ZERO,
            fallbacks: Vec::new(),
            notes: Vec::new(),
            heap: None,
            moved: None,
            regions: None,
            enabled: None,
        };
        plan.prepare(request, &program);
        plan.elapsed = started.elapsed();
        Ok(plan)
    }

    fn prepare(&mut self, request: &ProgramRequest, program: &Program) {
        let is_requested =
            request.text != Text::Off || request.heap_bytes.is_some() || request.regions.is_some();
        let Some((file, elf)) = program.elf.as_ref().filter(|_| is_requested) else {
            if is_requested {
                let what =
                    format!("{} is not an ELF program that folio can read", shown(&program.path));
                self.fallbacks.push(Fallback::Unreadable(what));
            }
            return;
        };
        if *file != program.path {
            self.notes.push(format!("{} runs {}", shown(&program.path), shown(file)));
        }
        if program.has_rights {
            self.fallbacks.push(Fallback::OtherRights(file.clone()));
            return;
        }
        if program.dynamic.is_sanitized {
            self.fallbacks.push(Fallback::Sanitizer(file.clone()));
            return;
        }
        self.enabled = inherited::enable();
        let libraries = libraries::of(file).unwrap_or_default();
        self.files.push(file.clone());
        self.files.extend(libraries.iter().cloned());
        // A failure of an explicit request is reported first.
        if let Some(bytes) = request.heap_bytes {
            match Heap::new(bytes, program, &libraries) {
                Ok(heap) => {
                    self.variables.push(heap.variable.clone());
                    self.heap = Some(heap);
                }
                Err(fallback) => self.fallbacks.push(fallback),
            }
        }
        if let Some(rules) = &request.regions {
            self.fallbacks.extend(Regions::idle(rules));
            match Regions::new(rules, program) {
                Ok(regions) => self.regions = Some(regions),
                Err(fallback) => self.fallbacks.push(fallback),
            }
        }
        self.text(request, program, Own { path: file, elf }, &libraries);
        // Beside the library of moved text, if there is one.
        if let Some(regions) = &self.regions {
            self.variables = regions.added_to(std::mem::take(&mut self.variables));
        }
    }

    fn text(
        &mut self,
        request: &ProgramRequest,
        program: &Program,
        own: Own<'_>,
        more: &[PathBuf],
    ) {
        match request.text {
            Text::Off => {}
            Text::Large => self.large(own, more),
            Text::Remap => self.remap(program, request.voice),
            Text::Auto => {
                self.large(own, more);
                let is_lost = |fallback: &Fallback| {
                    matches!(fallback,
                        Fallback::Placement { file, .. }
                        | Fallback::Cache { file, refusal: WarmRefusal::NoFolios { .. } | WarmRefusal::NotCached { .. } }
                        if file == own.path)
                };
                if self.fallbacks.iter().any(is_lost) && own.has_moving_block() {
                    self.remap(program, request.voice);
                }
                if self.moved.is_some() {
                    self.fallbacks.retain(|fallback| !is_lost(fallback));
                }
            }
        }
    }

    fn remap(&mut self, program: &Program, voice: Voice) {
        match remap::prepare(program, voice) {
            Ok(moved) => {
                self.variables.extend(moved.environment());
                self.moved = Some(moved);
            }
            Err(fallback) => self.fallbacks.push(fallback),
        }
    }

    /// Fills the cache of the program and its libraries, if their text can be mapped large.
    fn large(&mut self, own: Own<'_>, libraries: &[PathBuf]) {
        let users = OnceCell::new();
        let users = || users.get_or_init(|| Users::read(&Live));
        let mut has_blocks = self.file(own.path, own.elf, &users);
        for library in libraries {
            if let Ok(elf) = ElfFile::read(library)
                && elf.check(library).is_ok()
            {
                has_blocks |= self.file(library, &elf, &users);
            }
        }
        if !has_blocks && self.fallbacks.is_empty() {
            self.fallbacks.push(Fallback::TinyText(own.path.to_owned()));
        }
    }

    /// Fills the cache of a file. Returns whether its text contains a whole block that one TLB
    /// entry can map.
    fn file<'u>(&mut self, path: &Path, elf: &ElfFile, users: &dyn Fn() -> &'u Users) -> bool {
        let file = path.to_owned();
        let placed = placed(path, elf, Geometry::running().text_block_bytes());
        let has_blocks = matches!(placed, Placed::Mappable { .. });
        match placed {
            Placed::Unmappable(Obstacle::TooSmall(_)) => self.short(path, users),
            Placed::Mappable { .. } if is_short(path) => self.short(path, users),
            Placed::Unmappable(obstacle) => {
                self.fallbacks.push(Fallback::Placement { file, obstacle });
            }
            Placed::Mappable { text_bytes, file: bytes } => {
                match Warm::new(path, Part::Bytes(bytes)).and_then(|warm| warm.run()) {
                    Ok(warmed) => {
                        let refusal = warmed.refusal.clone();
                        let refused = refusal.map(|refusal| Fallback::Cache { file, refusal });
                        self.fallbacks.extend(refused);
                        if warmed.after_bytes.is_some_and(|bytes| bytes > 0) {
                            self.text_bytes += text_bytes;
                            self.warmed.push(warmed);
                        }
                    }
                    Err(error) => self.fallbacks.push(Fallback::Unreadable(error.to_string())),
                }
            }
        }
        has_blocks
    }

    /// Fills the cache of a file shorter than the folios that are worthwhile. Skips a file in use,
    /// and one whose folios are not visible, because it would be refilled at each start.
    fn short<'u>(&mut self, path: &Path, users: &dyn Fn() -> &'u Users) {
        let block_bytes = Geometry::running().block_bytes();
        let small = format!("{}: {}", shown(path), Obstacle::TooSmall(block_bytes));
        let warmed = Warm::new(path, Part::Whole).and_then(|warm| {
            let result = warm.is_short().then(|| warm.check_among(users)).transpose()?;
            let is_done = |result: &Warmed| result.refusal.is_some() || result.is_complete();
            if result.as_ref().is_none_or(is_done) { Ok(result) } else { warm.run().map(Some) }
        });
        self.notes.push(match warmed {
            Ok(Some(result)) if result.is_complete() => return self.warmed.push(result),
            Ok(Some(Warmed { refusal: Some(refusal), .. })) => format!("{small}; {refusal}"),
            Ok(_) => small,
            Err(error) => format!("{small}; {error}"),
        });
    }

    #[must_use]
    pub fn holds_settings(&self) -> bool {
        self.heap.is_some() || self.moved.is_some()
    }

    /// Returns the command to start. Its preparations last as long as this value.
    #[must_use]
    pub fn command(&self) -> Command {
        let mut arguments = self.command.iter();
        let mut command = Command::new(arguments.next().cloned().unwrap_or_default());
        command.args(arguments).envs(self.variables.iter().cloned());
        signals::hand_on(&mut command);
        command
    }

    fn program(&self) -> PathBuf {
        PathBuf::from(self.command.first().cloned().unwrap_or_default())
    }

    fn failed(&self, source: io::Error) -> RunError {
        let program = self.program();
        match source.raw_os_error() {
            Some(libc::ENOENT) => RunError::NotFound(program),
            Some(libc::EACCES) => RunError::NotExecutable(program),
            _ => RunError::Start { program, source },
        }
    }

    /// Replaces this process with the program. Settings are restored: see
    /// [`Launch::holds_settings`].
    #[must_use]
    pub fn exec(self) -> RunError {
        let mut command = self.command();
        if self.regions.is_some() {
            Regions::forget_report(&mut command);
        }
        self.failed(command.exec())
    }

    /// Runs the program as a child to its end. `sampling` selects whether its areas are sampled.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn watch(&self, sampling: Sampling) -> Result<Watched, RunError> {
        let started = Instant::now();
        let ran = child::run(&mut self.command(), sampling);
        let (ended, samples) = ran.map_err(|error| match error {
            ChildError::Process(source) => RunError::NoProcess { program: self.program(), source },
            ChildError::Program(source) => self.failed(source),
            ChildError::Wait(source) => RunError::Start { program: self.program(), source },
        })?;
        Ok(Watched { ended, samples, elapsed: started.elapsed() })
    }
}

fn is_short(path: &Path) -> bool {
    Warm::new(path, Part::Whole).is_ok_and(|warm| warm.is_short())
}

/// Returns whether entries of `block_bytes` (the PMD size, or a contpte block) could map the file's
/// text once it is in large folios. `elf` has the file's headers.
#[must_use]
pub fn placed(path: &Path, elf: &ElfFile, block_bytes: u64) -> Placed {
    let filesystem = open_regular(path).and_then(filesystem::of).ok();
    let sizes = Geometry::running();
    let ground = Ground {
        page_bytes: sizes.page_bytes,
        pmd_bytes: sizes.pmd_bytes(),
        // The caller finds out which folios the page cache gets.
        folio_bytes_max: u64::MAX,
        places_aligned: filesystem
            .is_some_and(|filesystem| PLACING.contains(&filesystem.name.as_str())),
    };
    alignment::judge(elf, block_bytes, ground)
}

/// Returns the program that a command runs and its libraries; empty if folio cannot read it.
#[must_use]
pub fn files(command: &OsStr) -> Vec<PathBuf> {
    let program = Program::of(command).ok().and_then(|program| program.elf);
    let Some((file, _)) = program else { return Vec::new() };
    let libraries = libraries::of(&file).unwrap_or_default();
    std::iter::once(file).chain(libraries).collect()
}

/// Returns why the text of the program at `path` cannot be moved, `None` if it can.
#[must_use]
pub fn remap_refusal(path: &Path) -> Option<String> {
    remap::check(path).err().map(|refused| refused.to_string())
}

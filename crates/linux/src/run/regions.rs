//! Advice by region: `folio run --regions FILE`.
//!
//! This is the launcher's side: it checks the file and the program, and reads the counters. The
//! preloaded library (`crates/regions`) gives the advice in each process.
//!
//! The counters are in memory without a name, so they disappear with this process.

use std::env;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use largefolio_ranges::rules::{
    NR_COUNTERS, NR_RULES_MAX, REPORT_BYTES, REPORT_MAGIC, REPORT_NAME, REPORT_VARIABLE,
    RULES_BYTES_MAX, RULES_VARIABLE, RegionAdvice, Rule, RuleError, What,
};
use largefolio_ranges::{Reason, Settings};
use largefolio_trace::disk::read_whole;
use largefolio_trace::shown;
use rustix::fs::MemfdFlags;

use super::fallback::Fallback;
use super::program::Program;
use crate::environment::Host;
use crate::library::{Library, REGIONS};
use crate::proc::fd;
use crate::remap::{PRELOAD, Remap, SANITIZER, preload_list, with_option};

#[derive(Debug, thiserror::Error)]
pub enum RegionsError {
    #[error("{}: {source}", shown(path))]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{}, line {line}: {}", shown(path), error.text())]
    Line { path: PathBuf, line: usize, error: RuleError },
    #[error("{}: no rule; write one per line, such as `heap huge`", shown(.0))]
    Empty(PathBuf),
    #[error("{}: more than {NR_RULES_MAX} rules, or a line with a zero byte", shown(.0))]
    TooMany(PathBuf),
}

/// A file's rules, each checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionRules(Vec<Vec<u8>>);

impl RegionRules {
    /// Reads a file of rules.
    ///
    /// # Errors
    /// If it cannot be read, or a line is not a rule.
    pub fn read(path: &Path) -> Result<Self, RegionsError> {
        let unreadable = |source| RegionsError::Unreadable { path: path.to_owned(), source };
        Self::parse(path, &read_whole(path, RULES_BYTES_MAX as u64).map_err(unreadable)?)
    }

    fn parse(path: &Path, text: &[u8]) -> Result<Self, RegionsError> {
        let mut rules = Vec::new();
        for (nr, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let wrong = |error| RegionsError::Line { path: path.to_owned(), line: nr + 1, error };
            if Rule::parse(line).map_err(wrong)?.is_some() {
                rules.push(line.trim_ascii().to_owned());
            }
        }
        if rules.is_empty() {
            return Err(RegionsError::Empty(path.to_owned()));
        }
        if rules.len() > NR_RULES_MAX || text.contains(&0) {
            return Err(RegionsError::TooMany(path.to_owned()));
        }
        Ok(Self(rules))
    }

    /// Whether every folio that the rules ask for depends on the settings of private memory. A
    /// collapse does not, and files have settings of their own.
    fn needs_settings(&self) -> bool {
        let rules = self.0.iter().filter_map(|line| Rule::parse(line).ok().flatten());
        let mut asking = rules.filter(|rule| rule.advice != RegionAdvice::NoHuge).peekable();
        asking.peek().is_some()
            && asking.all(|rule| {
                rule.advice == RegionAdvice::Huge && !matches!(rule.what, What::File(_))
            })
    }
}

/// A rule's effect, in all processes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RegionSum {
    pub rule: String,
    pub nr_regions: u64,
    pub bytes: u64,
    pub nr_refused: u64,
    /// The last refusal's number.
    pub errno: i32,
}

/// The library, its rules, and their counters.
#[derive(Debug)]
pub struct Regions {
    library: PathBuf,
    rules: RegionRules,
    report: File,
}

impl Regions {
    pub(super) fn new(rules: &RegionRules, program: &Program) -> Result<Self, Fallback> {
        let refused = |why: String| Fallback::NoRegions(why);
        if let Some((file, _)) = &program.elf {
            Remap::check(file).map_err(|why| refused(why.to_string()))?;
        }
        if let Some(why) = program.why_not_glibc() {
            return Err(refused(format!("{}: {why}", shown(&program.path))));
        }
        let library = find().map_err(refused)?;
        let report = report().map_err(|error| refused(error.to_string()))?;
        Ok(Self { library, rules: rules.clone(), report })
    }

    /// Returns why the kernel gives no folios, although the rules ask for some.
    pub(super) fn idle(rules: &RegionRules) -> Option<Fallback> {
        let settings = Settings::read().ok()?;
        // Hidden settings may allow folios.
        let is_known = settings.is_visible || !settings.has_thp;
        let is_idle = rules.needs_settings() && is_known && settings.advised == 0;
        is_idle.then(|| {
            let why = if settings.has_thp { Reason::SettingOff } else { Reason::NoThp };
            Fallback::RegionsIdle(why.text().to_owned())
        })
    }

    /// Adds the library to the variables of a start.
    pub(super) fn added_to(
        &self,
        mut variables: Vec<(OsString, OsString)>,
    ) -> Vec<(OsString, OsString)> {
        let mut add = |name: &str, with: &dyn Fn(Option<OsString>) -> OsString| {
            let found = variables.iter().position(|(known, _)| known == name);
            let earlier = found.map(|at| variables.swap_remove(at).1);
            variables.push((name.into(), with(earlier.or_else(|| env::var_os(name)))));
        };
        add(PRELOAD, &|earlier| preload_list(&self.library, earlier));
        add(SANITIZER.0, &|earlier| with_option(earlier, SANITIZER.1));
        let own = |name: &CStr| OsStr::from_bytes(name.to_bytes()).to_owned();
        let rules = self.rules.0.join(&b'\n');
        variables.push((own(RULES_VARIABLE), OsStr::from_bytes(&rules).to_owned()));
        let report = fd::link(std::process::id(), self.report.as_raw_fd());
        variables.push((own(REPORT_VARIABLE), report.into()));
        variables
    }

    /// Removes the path of the counters, for a command that replaces this process: its own
    /// descriptors would have this path.
    pub(super) fn forget_report(command: &mut Command) {
        command.env_remove(OsStr::from_bytes(REPORT_VARIABLE.to_bytes()));
    }

    /// Returns each rule's effect so far.
    ///
    /// # Errors
    /// If the counters cannot be read.
    pub fn sums(&self) -> io::Result<Vec<RegionSum>> {
        let mut bytes = [0; REPORT_BYTES];
        self.report.read_exact_at(&mut bytes, 0)?;
        let (numbers, _) = bytes.as_chunks::<8>();
        let rules = self.rules.0.iter().zip(numbers[1..].as_chunks::<NR_COUNTERS>().0);
        let sum = |(rule, counters): (&Vec<u8>, &[[u8; 8]; NR_COUNTERS])| {
            let [nr_regions, bytes, nr_refused, errno] = counters.map(u64::from_ne_bytes);
            let errno = i32::try_from(errno).unwrap_or(0);
            let rule = String::from_utf8_lossy(rule).into_owned();
            RegionSum { rule, nr_regions, bytes, nr_refused, errno }
        };
        Ok(rules.map(sum).collect())
    }
}

/// Finds the library that programs preload.
fn find() -> Result<PathBuf, String> {
    let Library { name, variable } = REGIONS;
    let library = REGIONS.find(&Host).map_err(|missing| match missing.distrusted {
        Some(reason) => format!(
            "other users can change the library, so it is not loaded: {reason}; name it in \
             {variable}"
        ),
        None => format!("{name} was not found in {}; name it in {variable}", missing.places),
    })?;
    let path = library.canonicalize().unwrap_or(library);
    if path.as_os_str().as_bytes().iter().any(|byte| b" :\t\n".contains(byte)) {
        return Err(format!(
            "{}: the path contains a space or a colon, which separate the entries of LD_PRELOAD",
            shown(&path)
        ));
    }
    Ok(path)
}

fn report() -> io::Result<File> {
    let file = File::from(rustix::fs::memfd_create(REPORT_NAME, MemfdFlags::CLOEXEC)?);
    file.set_len(REPORT_BYTES as u64)?;
    file.write_all_at(&REPORT_MAGIC.to_le_bytes(), 0)?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use largefolio_ranges::rules::REPORT_LINK;

    use super::*;

    fn parse(text: &str) -> Result<RegionRules, String> {
        RegionRules::parse(Path::new("r"), text.as_bytes()).map_err(|error| error.to_string())
    }

    #[test]
    fn comments_are_left_out_and_lines_are_numbered() {
        let rules = parse("# mine\n\n heap huge \nmemory>=64M nohuge\n").unwrap();
        assert_eq!(rules.0, [b"heap huge".to_vec(), b"memory>=64M nohuge".to_vec()]);
        let error = parse("heap huge\n\nheap at 0x55 huge").unwrap_err();
        assert!(error.starts_with("r, line 3: addresses differ"), "{error}");
    }

    #[test]
    fn a_collapse_and_files_do_not_need_the_settings_of_private_memory() {
        let needs = |text| parse(text).unwrap().needs_settings();
        assert!(needs("heap huge") && needs("memory>=64M huge\nstack nohuge"));
        assert!(!needs("stack nohuge"));
        assert!(!needs("heap huge\nmemory collapse"));
        assert!(!needs("heap huge\nfile:libc.so.6 huge"));
        assert!(needs("heap huge\nfile:libc.so.6 nohuge"));
    }

    #[test]
    fn files_without_a_rule_or_with_too_many_are_refused() {
        assert!(parse("# nothing").unwrap_err().contains("no rule"));
        assert!(parse(&"heap huge\n".repeat(65)).unwrap_err().contains("more than 64"));
        assert!(parse("file:a\0b huge").unwrap_err().contains("zero byte"));
    }

    #[test]
    fn the_library_joins_what_is_preloaded_already() {
        let rules = parse("heap huge").unwrap();
        let regions = Regions { library: "/r.so".into(), rules, report: report().unwrap() };
        let variables = regions.added_to(vec![(PRELOAD.into(), "/text.so".into())]);
        let of = |name: &str| {
            let mut found = variables.iter().filter(|(known, _)| known == name);
            let value = found.next().unwrap().1.clone().into_string().unwrap();
            assert_eq!(found.count(), 0);
            value
        };
        assert_eq!(of(PRELOAD), "/r.so:/text.so");
        assert_eq!(of("LARGEFOLIO_REGIONS"), "heap huge");
        // Another process opens it by this path.
        let link = std::fs::read_link(of("LARGEFOLIO_REGIONS_REPORT")).unwrap();
        assert!(link.as_os_str().as_bytes().starts_with(REPORT_LINK), "{}", link.display());
        assert_eq!(
            File::open(of("LARGEFOLIO_REGIONS_REPORT")).unwrap().metadata().unwrap().len(),
            REPORT_BYTES as u64
        );
    }

    #[test]
    fn counters_are_read_by_rule() {
        let rules = parse("heap huge\nstack nohuge").unwrap();
        let regions = Regions { library: "/r.so".into(), rules, report: report().unwrap() };
        for (at, number) in [(1, 3_u64), (2, 4096), (7, 1), (8, 12)] {
            regions.report.write_all_at(&number.to_ne_bytes(), at * 8).unwrap();
        }
        let [heap, stack] = &regions.sums().unwrap()[..] else { panic!() };
        assert_eq!((heap.nr_regions, heap.bytes, heap.nr_refused), (3, 4096, 0));
        assert_eq!((&*stack.rule, stack.nr_refused, stack.errno), ("stack nohuge", 1, 12));
    }
}

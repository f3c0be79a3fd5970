//! The running kernel and its machine in terms of the model.

mod features;
mod settings;

use std::cell::OnceCell;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use crate::figures;
use largefolio_linux::geometry::Geometry;
use largefolio_linux::kernel_facts::KernelFacts;
use largefolio_linux::proc::{Processor, block};
use largefolio_linux::shell::as_root;
use largefolio_linux::system::Live;
use largefolio_linux::tune::catalog::Catalog;
use largefolio_mm::units::PageSize;
use largefolio_sim::cost::Walks;
use largefolio_sim::kernel::{Kernel, parts, version};
use largefolio_sim::machine::{self, CpuId, Machine, MachineError};
use largefolio_trace::OpenTrace;

pub(crate) use self::features::edits_of_features;
pub use self::settings::{Settings, edit};
use crate::{Error, Remark};

#[must_use]
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// Returns the rules closest to this kernel, however old it is.
///
/// # Errors
/// If the release is not a version.
pub fn nearest_rules() -> Result<Kernel, Error> {
    let release = release();
    let page_bytes = rustix::param::page_size() as u64;
    let nearest = Kernel::nearest_to_release(&release, page_bytes)
        .ok_or_else(|| Error::request(format!("{release:?} is not a kernel version")))?;
    Ok(nearest?)
}

pub(crate) fn page() -> PageSize {
    match Geometry::running().page_bytes {
        0x4000 => PageSize::K16,
        0x1_0000 => PageSize::K64,
        _ => PageSize::K4,
    }
}

/// Returns the edit that gives a kernel this machine's base page, for comparison with local
/// timings.
#[must_use]
pub fn page_edit() -> String {
    let [page, _] = size_names();
    format!("+page={page}")
}

pub(crate) fn size_names() -> [String; 2] {
    let sizes = Geometry::running();
    [sizes.page_bytes, sizes.pmd_bytes()].map(figures::size)
}

/// Returns the rules for kernel `release` with base pages of `page_bytes`.
///
/// # Errors
/// If the kernel is older than all rules, or `release` is not a version.
pub fn rules(release: &str, page_bytes: u64) -> Result<Kernel, Error> {
    Ok(Kernel::rules_of_release(release, page_bytes)?)
}

/// The error if nothing can be predicted.
const NO_RULES: &str = "the model has no rules for the running kernel; verify without --trace";

/// The name that users give for the running kernel with its settings.
pub const THIS: &str = "this";

/// The running kernel before and after a change of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct ChangedRules {
    pub plain: Kernel,
    pub changed: Kernel,
}

/// Returns this kernel's rules with its current settings, and with `changes` (name and value).
///
/// # Errors
/// As [`rules`], or a setting that the model does not have.
pub fn changed_rules(changes: &[(&str, &str)]) -> Result<ChangedRules, Error> {
    let kernel = rules(&release(), rustix::param::page_size() as u64)
        .map_err(|error| Error::about(NO_RULES, error))?;
    let facts = KernelFacts::read(&Catalog::below(Path::new("/")), &BTreeSet::new());
    changed_from(kernel, facts, changes)
}

fn changed_from(
    kernel: Kernel,
    mut facts: KernelFacts,
    changes: &[(&str, &str)],
) -> Result<ChangedRules, Error> {
    let plain = Settings::of(&facts).on(&kernel.name)?;
    let mut edits = String::new();
    for (setting, value) in changes {
        if features::has_rule(setting) {
            // One edit can need several settings.
            facts.settings.insert((*setting).to_owned(), (*value).to_owned());
        } else if let Some(edit) = edit(setting, value) {
            edits = format!("{edits}+{edit}");
        } else {
            return Err(Error::request(format!(
                "the model does not know the setting {setting}, so its effect cannot be \
                 predicted; verify without --trace"
            )));
        }
    }
    let name = format!("{}{edits}", Settings::of(&facts).with(&kernel.name));
    Ok(ChangedRules { plain: with_notes(plain, kernel), changed: Kernel::parse(&name)? })
}

/// Returns the kernel called `name`, as [`This::named`] does, but reads the settings for this call
/// alone.
///
/// # Errors
/// If no such kernel exists.
pub fn named(name: &str) -> Result<Kernel, Error> {
    This::new().named(name)
}

/// More devices than a program's files are on.
const NR_DISKS_MAX: usize = 256;

/// The running kernel. Its settings are read once, so all columns of a comparison have the same
/// ones.
#[derive(Debug)]
pub struct This {
    catalog: Catalog,
    /// They name the devices whose settings apply.
    traces: Vec<PathBuf>,
    settings: OnceCell<Settings>,
}

/// Returns the devices that traces name. A name comes from outside: it becomes a path, and an edit
/// of a kernel.
fn disks_of(traces: &[PathBuf]) -> BTreeSet<String> {
    let is_file = |path: &&PathBuf| path.metadata().is_ok_and(|metadata| metadata.is_file());
    let footers = traces.iter().filter(is_file).filter_map(|path| OpenTrace::open(path).ok());
    let names = footers.flat_map(|trace| {
        let names = trace.meta().files.iter().map(|file| &file.disk);
        names.filter(|name| block::is_name(name)).cloned().collect::<BTreeSet<_>>()
    });
    names.take(NR_DISKS_MAX).collect()
}

impl Default for This {
    fn default() -> Self {
        Self::new()
    }
}

impl This {
    /// Reads nothing until a kernel needs this system's settings.
    #[must_use]
    pub fn new() -> Self {
        Self::below(Path::new("/"))
    }

    /// As [`Self::new`], but reads the settings of the devices that the traces name. A trace that
    /// cannot be read names none; the replay says why.
    #[must_use]
    pub fn of_traces(traces: &[PathBuf]) -> Self {
        Self { traces: traces.to_vec(), ..Self::new() }
    }

    fn below(root: &Path) -> Self {
        let catalog = Catalog::below(root);
        Self { catalog, traces: Vec::new(), settings: OnceCell::new() }
    }

    fn settings(&self) -> &Settings {
        self.settings.get_or_init(|| {
            Settings::of(&KernelFacts::read(&self.catalog, &disks_of(&self.traces)))
        })
    }

    /// Returns the kernel called `name`: [`THIS`], with or without edits, or one that the model
    /// knows.
    ///
    /// # Errors
    /// If no such kernel exists.
    pub fn named(&self, name: &str) -> Result<Kernel, Error> {
        let (base, edits) = name.split_at(name.find('+').unwrap_or(name.len()));
        if base != THIS {
            let kernel = Kernel::parse(name)?;
            // A default kernel has these settings, and so their gaps.
            let has_them = |settings: &&Settings| settings.is_in(name);
            let gaps = self.settings.get().filter(has_them).map(Settings::gaps);
            let gaps = kernel.gaps.iter().chain(gaps.unwrap_or_default()).cloned().collect();
            return Ok(Kernel { gaps, ..kernel });
        }
        let nearest = nearest_rules()?;
        let kernel = self.settings().on(&known(&nearest.name))?;
        let mut kernel = if edits.is_empty() { kernel } else { kernel.edited(&edits[1..])? };
        let (_, given) = parts(edits);
        kernel.gaps.retain(|gap| !settings::is_given(gap, &given));
        Ok(with_notes(kernel, nearest))
    }

    /// Returns the kernels to compare by default: the running one, the next version and the newest,
    /// all with this system's settings.
    ///
    /// # Errors
    /// If the release is not a version.
    pub fn default_names(&self) -> Result<Vec<String>, Error> {
        let nearest = known(&nearest_rules()?.name);
        let running = version(&nearest);
        let mut later: Vec<_> = Kernel::names()
            .filter_map(|name| Some((version(name)?, name)))
            .filter(|(version, _)| Some(*version) > running)
            .collect();
        later.sort_unstable();
        let next = later.first().into_iter().chain(later.last().filter(|_| later.len() > 1));
        let next = next.map(|(_, name)| self.settings().with(name));
        Ok(std::iter::once(THIS.to_owned()).chain(next).collect())
    }

    #[must_use]
    pub fn remark(&self) -> Option<&Remark> {
        self.settings.get()?.remark()
    }
}

/// Returns `kernel` with the notes and gaps of the rules that it is based on.
fn with_notes(kernel: Kernel, rules: Kernel) -> Kernel {
    let gaps = rules.gaps.into_iter().chain(kernel.gaps).collect();
    Kernel { note: rules.note.or(kernel.note), gaps, ..kernel }
}

#[derive(Clone, Debug, PartialEq)]
pub struct Host {
    /// The machine measured by `folio calibrate`, or else the closest known one.
    pub machine: Machine,
    pub walks: Walks,
    pub remark: Option<Remark>,
}

/// Returns the machine this program runs on.
///
/// # Errors
/// If the calibration cannot be read.
pub fn machine() -> Result<Host, Error> {
    let processor = Processor::of(&Live);
    let calibrated = match Machine::of_user(machine::THIS) {
        Ok(machine) if machine.cpu.as_deref() == Some(&processor.name) => {
            return Ok(Host { machine, walks: Walks::Native, remark: None });
        }
        Ok(other) => Some(other.cpu.unwrap_or_else(|| "a CPU without a name".to_owned())),
        Err(MachineError::NotCalibrated { .. } | MachineError::NoPlace) => None,
        Err(error) => return Err(error.into()),
    };
    let nearest = CpuId::new(processor.id.iter().map(String::as_str)).nearest()?;
    let reason = match calibrated {
        Some(cpu) => Some(format!("the calibration was made on {cpu}, not on this CPU")),
        None => (!nearest.is_listed).then(|| "this CPU is not a known machine".to_owned()),
    };
    let remark = reason.map(|reason| {
        Remark::Warning(format!(
            "{reason} ({}): using {} instead; {} measures this one",
            processor.name,
            nearest.machine.name,
            as_root("folio calibrate")
        ))
    });
    let walks = if processor.is_virtual { Walks::Nested } else { Walks::Native };
    let cpu = Some(processor.name).filter(|name| !name.is_empty());
    let machine = Machine { cpu, ..nearest.machine };
    Ok(Host { machine, walks, remark })
}

/// Returns a kernel's name without the base page, unless the base page is unusual: the machine
/// implies it.
fn known(name: &str) -> String {
    name.strip_suffix("+page=4K").unwrap_or(name).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modelled_settings_are_valid_edits() {
        for (setting, value) in [
            ("thp.enabled", "always"),
            ("thp.defrag", "defer+madvise"),
            ("thp.64K", "inherit"),
            ("thp.use_zero_page", "0"),
            ("khugepaged.max_ptes_none", "0"),
            ("khugepaged.scan_sleep_millisecs", "100"),
            ("khugepaged.alloc_sleep_millisecs", "0"),
            ("khugepaged.scan_sleep_millisecs", "4294967295"),
            ("thp.shmem_enabled", "within_size"),
            ("thp.shmem_enabled", "force"),
            ("thp.64K.shmem", "within_size"),
            ("readahead.vda", "8192"),
        ] {
            let edit = edit(setting, value).unwrap();
            assert!(Kernel::parse(&format!("6.18+{edit}")).is_ok(), "{setting}: {edit}");
        }
        for setting in ["thp.64K.stats", "khugepaged.pages_to_scan", "vm.swappiness"] {
            assert_eq!(edit(setting, "always"), None, "{setting}");
        }
    }

    #[test]
    fn a_release_has_the_rules_of_its_version() {
        let kernel = rules("6.18.44-local", 4096).unwrap();
        assert_eq!((kernel.name.as_str(), kernel.note), ("6.18+page=4K", None));
        let newer = rules("8.1.0-1-amd64", 4096).unwrap();
        assert_eq!(newer.name, "7.3+page=4K");
        assert!(newer.note.unwrap().starts_with("Linux 8.1 is newer than the kernels"));
    }

    #[test]
    fn the_running_kernel_accepts_edits() {
        let this = named("this").unwrap();
        assert_eq!(this.rules.page, named("this+io=64K").unwrap().rules.page);
        assert_ne!(this.rules, named("this+io=64K").unwrap().rules);
        assert!(named("this+nothing=1").is_err());
        assert_eq!(named("6.12+page=64K").unwrap().name, "6.12+page=64K");
    }

    #[test]
    fn the_running_kernel_comes_first_and_later_ones_have_its_settings() {
        let names = This::new().default_names().unwrap();
        assert_eq!(names[0], "this");
        let versions: Vec<_> = names[1..].iter().map(|name| version(name).unwrap()).collect();
        assert!(versions.is_sorted() && versions.len() <= 2);
        let running = version(&nearest_rules().unwrap().name).unwrap();
        assert!(versions.iter().all(|&version| version > running));
    }

    #[test]
    fn this_kernel_has_nearest_rules() {
        let page = rustix::param::page_size() >> 10;
        assert!(nearest_rules().unwrap().name.ends_with(&format!("+page={page}K")));
    }
}

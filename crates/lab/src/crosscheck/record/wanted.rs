//! Settings of transparent huge pages that a run asks for, restored however it ends.
//!
//! [`HeldSettings`] also keeps the settings that the program itself changes: each run finds the
//! first values again.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::error::CrosscheckError;
use largefolio_linux::proc::thp;
use largefolio_linux::setting::Setting;
use largefolio_mm::units::parse_bytes;

/// `always`, `64K=madvise`, `shmem=advise`, `tmpfs=always`, or several with commas. `tmpfs` is the
/// option `huge=` of the filesystem at `/dev/shm` during the runs.
///
/// ```
/// use largefolio_lab::crosscheck::record::WantedSettings;
/// let settings: WantedSettings = "always,64K=inherit,shmem=never,tmpfs=advise".parse()?;
/// assert_eq!(settings.to_string(), "always,64K=inherit,shmem=never,tmpfs=advise");
/// assert_eq!(settings.tmpfs(), Some("advise"));
/// for wrong in ["sometimes", "always,never", "é=always", "=always", "tmpfs=deny"] {
///     assert!(wrong.parse::<WantedSettings>().is_err());
/// }
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedSettings {
    text: String,
    /// Path and value.
    settings: Vec<(PathBuf, String)>,
    tmpfs: Option<String>,
}

const VALUES: [&str; 9] = [
    "always",
    "madvise",
    "never",
    "inherit",
    "advise",
    "within_size",
    "defer",
    "defer+madvise",
    "deny",
];
/// The option `huge=` of a tmpfs.
const TMPFS_VALUES: [&str; 4] = ["never", "advise", "within_size", "always"];

impl FromStr for WantedSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings: Vec<(PathBuf, String)> = Vec::new();
        let mut tmpfs = None;
        for part in text.split(',') {
            if let Some(value) = part.strip_prefix("tmpfs=") {
                if tmpfs.is_some() || !TMPFS_VALUES.contains(&value) {
                    return Err(format!("{part:?}: expected tmpfs={}", TMPFS_VALUES.join("|")));
                }
                tmpfs = Some(value.to_owned());
                continue;
            }
            let (path, value) = one(part)?;
            if settings.iter().any(|(other, _)| *other == path) {
                return Err(format!("{text:?}: {part} sets a setting for the second time"));
            }
            settings.push((path, value));
        }
        Ok(Self { text: text.to_owned(), settings, tmpfs })
    }
}

impl fmt::Display for WantedSettings {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

fn one(text: &str) -> Result<(PathBuf, String), String> {
    let wrong = || {
        format!(
            "{text:?}: expected always, madvise or never, a size such as 64K=always, or \
             shmem=VALUE, 64K.shmem=VALUE, tmpfs=VALUE or defrag=VALUE"
        )
    };
    let (name, value) = text.split_once('=').unwrap_or(("enabled", text));
    if !VALUES.contains(&value) {
        return Err(wrong());
    }
    let path = match name {
        "enabled" | "defrag" => thp::setting(name),
        "shmem" => thp::setting("shmem_enabled"),
        name => {
            let (size, file) = match name.strip_suffix(".shmem") {
                Some(size) => (size, "shmem_enabled"),
                None => (name, "enabled"),
            };
            let bytes = parse_bytes(size).filter(|bytes| bytes.is_multiple_of(1 << 10));
            thp::control(bytes.ok_or_else(wrong)? >> 10).with_file_name(file)
        }
    };
    Ok((path, value.to_owned()))
}

impl WantedSettings {
    /// The option `huge=` of `/dev/shm`; `None` leaves that filesystem as it is.
    #[must_use]
    pub fn tmpfs(&self) -> Option<&str> {
        self.tmpfs.as_deref()
    }
}

/// Settings during the runs of a program. Dropping this restores all of them.
#[derive(Debug, Default)]
pub(super) struct HeldSettings(Vec<HeldSetting>);

#[derive(Debug)]
struct HeldSetting {
    setting: Setting,
    /// At the start of each run.
    first: String,
}

impl HeldSettings {
    /// Sets the wanted values. The program may change the settings in `changed`.
    ///
    /// # Errors
    /// A setting that cannot be changed; those before it are restored.
    pub(super) fn new(
        wanted: &WantedSettings,
        changed: &[PathBuf],
    ) -> Result<Self, CrosscheckError> {
        let mut held = Self::default();
        for (path, value) in &wanted.settings {
            held.add(path, Some(value))?;
        }
        for path in changed {
            if !held.0.iter().any(|one| one.path() == path) {
                held.add(path, None)?;
            }
        }
        held.reset()?;
        Ok(held)
    }

    fn add(&mut self, path: &Path, value: Option<&String>) -> Result<(), CrosscheckError> {
        let setting = Setting::hold(path)?;
        let first = value.map_or_else(|| setting.old().to_owned(), Clone::clone);
        self.0.push(HeldSetting { setting, first });
        Ok(())
    }

    /// Gives each setting its first value.
    ///
    /// # Errors
    /// A value that the kernel refuses.
    pub(super) fn reset(&mut self) -> Result<(), CrosscheckError> {
        for one in &mut self.0 {
            one.setting.set(&one.first)?;
        }
        Ok(())
    }
}

impl HeldSetting {
    fn path(&self) -> &Path {
        self.setting.path()
    }
}

impl Drop for HeldSettings {
    fn drop(&mut self) {
        // The program's values are not another program's.
        let _ = self.reset();
    }
}

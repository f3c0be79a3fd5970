//! Settings of transparent huge pages that a run asks for, restored however it ends.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::CrosscheckError;
use largefolio_linux::proc::thp;
use largefolio_linux::setting::Setting;
use largefolio_mm::units::parse_bytes;

/// `always`, `64K=madvise`, `shmem=advise`, or several with commas.
///
/// ```
/// use largefolio_lab::crosscheck::record::WantedSettings;
/// let settings: WantedSettings = "always,64K=inherit,shmem=never".parse()?;
/// assert_eq!(settings.to_string(), "always,64K=inherit,shmem=never");
/// for wrong in ["sometimes", "always,never", "é=always", "=always"] {
///     assert!(wrong.parse::<WantedSettings>().is_err());
/// }
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedSettings {
    text: String,
    /// Path and value.
    settings: Vec<(PathBuf, String)>,
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

impl FromStr for WantedSettings {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut settings: Vec<(PathBuf, String)> = Vec::new();
        for part in text.split(',') {
            let (path, value) = one(part)?;
            if settings.iter().any(|(other, _)| *other == path) {
                return Err(format!("{text:?}: {part} sets a setting for the second time"));
            }
            settings.push((path, value));
        }
        Ok(Self { text: text.to_owned(), settings })
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
             shmem=VALUE, 64K.shmem=VALUE or defrag=VALUE"
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
    /// Changes the settings until the result is dropped.
    ///
    /// # Errors
    /// A setting that cannot be changed; those before it are restored.
    pub fn set(&self) -> Result<Vec<Setting>, CrosscheckError> {
        let change = |(path, value): &(PathBuf, String)| Setting::change(path, value);
        Ok(self.settings.iter().map(change).collect::<Result<_, _>>()?)
    }
}

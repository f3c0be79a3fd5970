//! Settings of transparent huge pages that a run asks for, restored however it ends.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use super::error::CrosscheckError;
use largefolio_linux::proc::thp;
use largefolio_linux::setting::Setting;

/// `always`, `64K=madvise`, `shmem=advise`, or several with commas.
///
/// ```
/// use largefolio_lab::crosscheck::record::WantedSettings;
/// let settings: WantedSettings = "always,64K=inherit,shmem=never".parse()?;
/// assert_eq!(settings.to_string(), "always,64K=inherit,shmem=never");
/// assert!("sometimes".parse::<WantedSettings>().is_err());
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
        let settings = text.split(',').map(one).collect::<Result<_, _>>()?;
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
            let kib = kib(size).ok_or_else(wrong)?;
            thp::control(kib).with_file_name(file)
        }
    };
    Ok((path, value.to_owned()))
}

fn kib(size: &str) -> Option<u64> {
    let (digits, unit) = size.split_at(size.len().checked_sub(1)?);
    let nr: u64 = digits.parse().ok()?;
    match unit {
        "K" => Some(nr),
        "M" => nr.checked_mul(1 << 10),
        _ => None,
    }
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

//! The places where files go, given by names that cannot lead elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PersistError;

const UNITS: &str = "etc/systemd/system";
/// Our drop-in's name. `override.conf` from `systemctl edit` sorts later and wins.
pub(super) const DROP_IN: &str = "50-largefolio.conf";
const WANTED: &str = "multi-user.target.wants";
pub(crate) const WARM: &str = "largefolio-warm-";
pub(super) const UNIT_FOLDERS: [&str; 8] = [
    "etc/systemd/system",
    "run/systemd/system",
    "run/systemd/generator",
    "run/systemd/generator.late",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/transient",
];
/// systemd's limit is 255. A file name with `.d` has the same limit.
const NAME_BYTES_MAX: usize = 250;
/// Names that are read in the unit directory. More than a few hundred are rare.
const NAMES_MAX: usize = 1 << 16;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilePlace {
    /// Settings that systemd-tmpfiles writes at boot.
    Tmpfiles,
    Udev,
    DropIn(ServiceName),
    Unit(OwnUnit),
    Wanted(OwnUnit),
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ServiceName(String);

/// Name of our unit, `largefolio-warm-NAME.service` or `.path`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OwnUnit(String);

impl FilePlace {
    #[must_use]
    pub fn path(&self, root: &Path) -> PathBuf {
        let units = root.join(UNITS);
        match self {
            Self::Tmpfiles => root.join("etc/tmpfiles.d/largefolio.conf"),
            Self::Udev => root.join("etc/udev/rules.d/60-largefolio.rules"),
            Self::DropIn(unit) => units.join(format!("{}.d", unit.0)).join(DROP_IN),
            Self::Unit(unit) => units.join(&unit.0),
            Self::Wanted(unit) => units.join(WANTED).join(&unit.0),
        }
    }

    pub(crate) fn is_link(&self) -> bool {
        matches!(self, Self::Wanted(_))
    }

    #[must_use]
    pub fn is_of_systemd(&self) -> bool {
        !matches!(self, Self::Tmpfiles | Self::Udev)
    }

    /// Returns the places that have a file below `root`, by name, without links.
    #[must_use]
    pub fn all_used(root: &Path) -> Vec<Self> {
        let mut places = vec![Self::Tmpfiles, Self::Udev];
        let entries = fs::read_dir(root.join(UNITS)).into_iter().flatten().take(NAMES_MAX);
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let mut names: Vec<String> = names.collect();
        names.sort_unstable();
        places.extend(names.into_iter().filter_map(|name| {
            let service =
                name.strip_suffix(".d").map(|unit| ServiceName::try_from(unit.to_owned()));
            match service {
                Some(Ok(unit)) => Some(Self::DropIn(unit)),
                _ => OwnUnit::try_from(name).ok().map(Self::Unit),
            }
        }));
        places.retain(|place| place.path(root).symlink_metadata().is_ok());
        places
    }
}

impl ServiceName {
    /// Accepts `redis-server` or `redis-server.service`.
    ///
    /// # Errors
    /// An invalid service name, or one that no unit directory below `root` has.
    pub fn of_service(name: &str, root: &Path) -> Result<Self, PersistError> {
        let full = if name.strip_suffix(".service").is_some() {
            name.to_owned()
        } else {
            format!("{name}.service")
        };
        let unit = Self::try_from(full)
            .map_err(|message| PersistError::Given { what: format!("unit {name:?}"), message })?;
        let is_there =
            |name: String| UNIT_FOLDERS.iter().any(|folder| root.join(folder).join(&name).exists());
        if unit.names().any(is_there) {
            return Ok(unit);
        }
        Err(PersistError::Given {
            what: format!("unit {name:?}"),
            message: "there is no such service; systemctl list-unit-files --type=service lists \
                      all services"
                .to_owned(),
        })
    }

    /// Returns the part after the `@`; empty if it is not an instance.
    #[must_use]
    pub fn instance(&self) -> &str {
        let stem = self.0.strip_suffix(".service").unwrap_or(&self.0);
        stem.split_once('@').map_or("", |(_, instance)| instance)
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let template = self.0.split_once('@').map(|(stem, _)| format!("{stem}@.service"));
        [self.0.clone()].into_iter().chain(template)
    }
}

impl OwnUnit {
    #[must_use]
    pub fn name(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn is_path(&self) -> bool {
        self.0.strip_suffix(".path").is_some()
    }

    /// Returns its path on a running system, regardless of the root: a link's target.
    pub(crate) fn target(&self) -> String {
        format!("/{UNITS}/{}", self.0)
    }
}

impl TryFrom<String> for ServiceName {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let stem = name.strip_suffix(".service").ok_or("expected a service name")?;
        check(stem, &name)?;
        Ok(Self(name))
    }
}

impl TryFrom<String> for OwnUnit {
    type Error = String;

    fn try_from(name: String) -> Result<Self, String> {
        let stem = name.strip_suffix(".service").or_else(|| name.strip_suffix(".path"));
        let stem = stem.and_then(|stem| stem.strip_prefix(WARM));
        check(stem.ok_or("expected the name of a unit that folio wrote")?, &name)?;
        Ok(Self(name))
    }
}

impl From<ServiceName> for String {
    fn from(unit: ServiceName) -> Self {
        unit.0
    }
}

impl From<OwnUnit> for String {
    fn from(unit: OwnUnit) -> Self {
        unit.0
    }
}

/// Applies systemd's own rules for names, and refuses hidden ones.
fn check(stem: &str, name: &str) -> Result<(), String> {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b":_.\\@-".contains(&byte);
    if stem.is_empty() || stem.starts_with('.') || !name.bytes().all(is_plain) {
        return Err("a unit name can contain only letters, digits and : _ . \\ @ -".to_owned());
    }
    if name.len() > NAME_BYTES_MAX {
        return Err(format!("the unit name is longer than {NAME_BYTES_MAX} bytes"));
    }
    Ok(())
}

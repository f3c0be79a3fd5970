//! The places where files go, given by names that cannot lead elsewhere.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::PersistError;

const UNITS: &str = "etc/systemd/system";
/// Our drop-in's name. `override.conf` from `systemctl edit` sorts later and wins.
const DROP_IN: &str = "50-largefolio.conf";
/// Our drop-in's name for one instance: it must not hide the template's, and must come after it.
const INSTANCE_DROP_IN: &str = "51-largefolio.conf";
const WANTED: &str = "multi-user.target.wants";
pub(crate) const WARM: &str = "largefolio-warm-";
/// In systemd's order; `system.control` is where `systemctl set-property` writes.
pub(super) const UNIT_FOLDERS: [&str; 13] = [
    "etc/systemd/system.control",
    "run/systemd/system.control",
    "run/systemd/transient",
    "run/systemd/generator.early",
    "etc/systemd/system",
    "etc/systemd/system.attached",
    "run/systemd/system",
    "run/systemd/system.attached",
    "run/systemd/generator",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "run/systemd/generator.late",
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
    /// The drop-in of one instance of a template.
    InstanceDropIn(ServiceName),
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
    pub fn drop_in(unit: ServiceName) -> Self {
        if unit.instance().is_empty() { Self::DropIn(unit) } else { Self::InstanceDropIn(unit) }
    }

    /// Returns the drop-in's service.
    #[must_use]
    pub fn service(&self) -> Option<&ServiceName> {
        match self {
            Self::DropIn(unit) | Self::InstanceDropIn(unit) => Some(unit),
            _ => None,
        }
    }

    #[must_use]
    pub fn path(&self, root: &Path) -> PathBuf {
        let units = root.join(UNITS);
        match self {
            Self::Tmpfiles => root.join("etc/tmpfiles.d/largefolio.conf"),
            Self::Udev => root.join("etc/udev/rules.d/60-largefolio.rules"),
            Self::DropIn(unit) => units.join(format!("{}.d", unit.0)).join(DROP_IN),
            Self::InstanceDropIn(unit) => {
                units.join(format!("{}.d", unit.0)).join(INSTANCE_DROP_IN)
            }
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
        places.extend(names.into_iter().flat_map(|name| {
            let service =
                name.strip_suffix(".d").map(|unit| ServiceName::try_from(unit.to_owned()));
            match service {
                Some(Ok(unit)) => vec![Self::DropIn(unit.clone()), Self::InstanceDropIn(unit)],
                _ => OwnUnit::try_from(name).ok().map(Self::Unit).into_iter().collect(),
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
    /// An invalid service name, an alias, or a name that no unit directory below `root` has.
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
        if let Some(target) = unit.alias_of(root) {
            return Err(PersistError::Given {
                what: format!("unit {name:?}"),
                message: format!("it is another name of {target}; use --unit {target}"),
            });
        }
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

    /// Returns the template of an instance; `None` if it is not an instance.
    #[must_use]
    pub fn template(&self) -> Option<Self> {
        let (stem, _) = self.0.split_once('@').filter(|_| !self.instance().is_empty())?;
        Some(Self(format!("{stem}@.service")))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = String> {
        let template = self.template().map(|template| template.0);
        [self.0.clone()].into_iter().chain(template)
    }

    /// Returns the names with drop-ins that apply, the nearest first: `a-b@x`, `a-b@` and `a-`.
    pub(super) fn drop_in_names(&self) -> Vec<String> {
        let mut names: Vec<String> = self.names().collect();
        let stem = self.0.strip_suffix(".service").unwrap_or(&self.0);
        let mut prefix = stem.split('@').next().unwrap_or(stem).trim_end_matches('-');
        while let Some((shorter, _)) = prefix.rsplit_once('-') {
            names.push(format!("{shorter}-.service"));
            prefix = shorter.trim_end_matches('-');
        }
        names
    }

    /// Returns the unit's real name if this is an alias: a link to another name in a unit directory.
    fn alias_of(&self, root: &Path) -> Option<String> {
        let folders = || UNIT_FOLDERS.iter().map(|folder| root.join(folder));
        let places = self.names().flat_map(|name| folders().map(move |folder| folder.join(&name)));
        let file = places.into_iter().find(|file| file.symlink_metadata().is_ok())?;
        let target = fs::read_link(file).ok()?;
        let parent = target.parent().filter(|parent| !parent.as_os_str().is_empty());
        let is_unit =
            parent.is_none_or(|parent| UNIT_FOLDERS.iter().any(|folder| parent.ends_with(folder)));
        let name = target.file_name()?.to_str().filter(|_| is_unit)?;
        let target = Self::try_from(name.to_owned()).ok()?;
        let is_other = self.names().all(|own| own != target.0);
        is_other.then_some(target.0)
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

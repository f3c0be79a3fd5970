//! Reading and checking a machine file.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use largefolio_mm::rules::Arch;
use largefolio_mm::units::PageSize;
use serde::Deserialize;

use crate::tlb::TlbConfig;

use super::Machine;
use super::builtin::{MACHINES, names};
use super::costs::{Costs, Elision};
use super::error::MachineError;
use crate::names::nearest;

/// Largest machine file, a hundred times the built-in ones: a wrong path, such as a device, must
/// not fill the memory.
pub const MAX_FILE_BYTES: u64 = 256 << 10;

/// The file as written.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    name: String,
    description: String,
    arch: Arch,
    page_sizes: Vec<PageSize>,
    default_page_size: PageSize,
    tlb: TlbConfig,
    #[serde(default)]
    costs: Costs,
}

impl Machine {
    /// A built-in machine, or a machine file if `spec` ends in `.toml` or contains a `/`.
    ///
    /// # Errors
    /// As [`Machine::named`] and [`Machine::from_path`].
    pub fn load(spec: &str) -> Result<Self, MachineError> {
        let path = Path::new(spec);
        if spec.contains('/') || path.extension().is_some_and(|extension| extension == "toml") {
            return Self::from_path(path);
        }
        Self::named(spec)
    }

    /// A built-in machine.
    ///
    /// # Errors
    /// [`MachineError::Unknown`], with the nearest names and all names.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        let Some((_, text)) = MACHINES.iter().find(|(known, _)| *known == name) else {
            let hint = nearest(&name.to_ascii_lowercase(), names());
            return Err(MachineError::Unknown { name: name.to_owned(), hint });
        };
        Self::from_toml(text, &format!("machines/{name}.toml"))
    }

    /// The machine a file describes.
    ///
    /// # Errors
    /// When the file cannot be read, is too large, or is no machine file.
    pub fn from_path(path: &Path) -> Result<Self, MachineError> {
        let origin = path.display().to_string();
        let mut text = String::new();
        let read = |text: &mut String| -> io::Result<usize> {
            File::open(path)?.take(MAX_FILE_BYTES + 1).read_to_string(text)
        };
        let nr_bytes =
            read(&mut text).map_err(|error| MachineError::Read { path: origin.clone(), error })?;
        if nr_bytes as u64 > MAX_FILE_BYTES {
            return Err(MachineError::TooLarge { path: origin });
        }
        Self::from_toml(&text, &origin)
    }

    /// The machine a text describes; `origin` names it in errors.
    ///
    /// # Errors
    /// [`MachineError::Toml`] with the line for a text that is no machine file, else the first
    /// contradiction.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, MachineError> {
        let file: MachineFile =
            toml::from_str(text).map_err(|error| syntax_error(&error, text, origin))?;
        let machine = Self {
            name: file.name,
            description: file.description,
            arch: file.arch,
            page_sizes: file.page_sizes,
            page_size: file.default_page_size,
            tlb: file.tlb,
            costs: file.costs,
        };
        machine.check(origin)?;
        Ok(machine)
    }

    /// Checks I1 to I3.
    fn check(&self, origin: &str) -> Result<(), MachineError> {
        let origin = || origin.to_owned();
        if self.page_sizes.is_empty() {
            return Err(MachineError::NoPageSize { origin: origin() });
        }
        if !self.page_sizes.contains(&self.page_size) {
            return Err(MachineError::DefaultPageSize {
                origin: origin(),
                page: self.page_size,
                supported: self.page_sizes.clone().into(),
            });
        }
        self.tlb
            .check(&self.page_sizes)
            .map_err(|error| MachineError::Tlb { origin: origin(), error })?;
        for (cost, quantity) in self.costs.known() {
            let value = quantity.value;
            if !value.is_finite() || value < 0.0 {
                return Err(MachineError::Cost { origin: origin(), cost, value });
            }
            if quantity.source.trim().is_empty() {
                return Err(MachineError::NoSource { origin: origin(), cost });
            }
        }
        self.check_rates(&origin())
    }

    /// I3 and I4 of what goes by size.
    fn check_rates(&self, origin: &str) -> Result<(), MachineError> {
        let origin = || origin.to_owned();
        for (cost, rates) in self.costs.rates() {
            for rate in rates {
                let value = rate.gb_per_s;
                if !value.is_finite() || value <= 0.0 {
                    return Err(MachineError::Cost { origin: origin(), cost, value });
                }
                if rate.source.trim().is_empty() {
                    return Err(MachineError::NoSource { origin: origin(), cost });
                }
            }
            if !rates.is_sorted_by(|a, b| a.size < b.size) {
                return Err(MachineError::RateOrder { origin: origin(), cost });
            }
        }
        let has_source = |elision: &Elision| !elision.source.trim().is_empty();
        if !self.costs.elision.as_ref().is_none_or(has_source) {
            return Err(MachineError::NoSource { origin: origin(), cost: "elision" });
        }
        Ok(())
    }
}

fn syntax_error(error: &toml::de::Error, text: &str, origin: &str) -> MachineError {
    let before = error.span().and_then(|span| text.get(..span.start)).unwrap_or_default();
    let line = before.bytes().filter(|&byte| byte == b'\n').count() + 1;
    MachineError::Toml {
        origin: origin.to_owned(),
        line,
        message: error.message().replace('\n', "; "),
    }
}

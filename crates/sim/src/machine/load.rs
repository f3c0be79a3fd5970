//! Reads and checks a machine file.

use std::path::Path;

use largefolio_mm::rules::Arch;
use largefolio_mm::units::PageSize;
use serde::{Deserialize, Serialize};

use crate::tlb::TlbConfig;

use super::builtin::MACHINES;
use super::costs::{Costs, Quantity, Unit};
use super::error::{Contradiction, MachineError};
use super::{Calibrated, CpuCount, Machine, MachineNode, NR_CPUS_MAX, TimeErrors};
use crate::datafile::{DataFileError, line_of, parse};

/// The file's syntax. A file based on another machine may omit that machine's values.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct MachineFile {
    name: String,
    description: String,
    /// Other names of its core, in lower case; errors suggest this machine for them.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "the names are looked up in the text of every built-in file")]
    also: Vec<String>,
    /// Its CPUs, as [`super::CpuId`] spells them.
    #[serde(default, skip_serializing)]
    #[expect(dead_code, reason = "looked up in the text of every built-in file")]
    cpus: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    cpu: Option<String>,
    /// A built-in machine that supplies all missing values, each cost separately.
    #[serde(rename = "based-on")]
    based_on: Option<String>,
    arch: Option<Arch>,
    page_sizes: Option<Vec<PageSize>>,
    default_page_size: Option<PageSize>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nr_cpus: Option<CpuCount>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    nodes: Vec<MachineNode>,
    tlb: Option<TlbConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    calibrated: Option<Calibrated>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    errors: Option<TimeErrors>,
    #[serde(default)]
    costs: Costs,
}

impl Machine {
    /// Loads a built-in machine, or a machine file if `spec` ends in `.toml` or contains a `/`.
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

    /// Loads a built-in machine.
    ///
    /// # Errors
    /// [`MachineError::File`], with the nearest names and all names.
    pub fn named(name: &str) -> Result<Self, MachineError> {
        Self::from_toml(MACHINES.named(name)?, &format!("machines/{name}.toml"))
    }

    /// Loads a machine file.
    ///
    /// # Errors
    /// The file cannot be read, is too large, or is not a machine file.
    pub fn from_path(path: &Path) -> Result<Self, MachineError> {
        let (text, origin) = MACHINES.read(path)?;
        Self::from_toml(&text, &origin)
    }

    /// Parses a machine; `origin` names it in errors.
    ///
    /// # Errors
    /// [`MachineError::File`] for text that is not a machine file, [`MachineError::Contradiction`]
    /// for the first error in one; both with the line.
    pub fn from_toml(text: &str, origin: &str) -> Result<Self, MachineError> {
        let file: MachineFile = parse(text, origin)?;
        file.machine().map_err(|error| {
            let line = line_of(text, &error.place());
            MachineError::Contradiction { origin: origin.to_owned(), line, error: Box::new(error) }
        })
    }
}

impl Machine {
    /// Formats this machine as a machine file, with `comment` line by line at its head.
    ///
    /// # Errors
    /// As [`Machine::from_toml`]: the text is parsed again, so an invalid machine is never written.
    pub fn to_toml(&self, comment: &str) -> Result<String, MachineError> {
        let file = MachineFile {
            name: self.name.clone(),
            description: self.description.clone(),
            also: Vec::new(),
            cpus: Vec::new(),
            cpu: self.cpu.clone(),
            based_on: None,
            arch: Some(self.arch),
            page_sizes: Some(self.page_sizes.clone()),
            default_page_size: Some(self.page_size),
            nr_cpus: self.nr_cpus.clone(),
            nodes: self.nodes.clone(),
            tlb: Some(self.tlb.clone()),
            calibrated: self.calibrated.clone(),
            errors: self.errors.clone(),
            costs: self.costs.clone(),
        };
        let origin = format!("the machine file of {}", self.name);
        let body = toml::to_string(&file).map_err(|error| DataFileError::Syntax {
            origin: origin.clone(),
            line: 1,
            message: error.to_string(),
        })?;
        let comment = comment.lines().map(|line| match line.trim_end() {
            "" => "#\n".to_owned(),
            // Remove control characters from the comment.
            line => format!("# {}\n", line.replace(char::is_control, " ")),
        });
        let text = format!("{}\n{body}", comment.collect::<String>());
        Self::from_toml(&text, &origin)?;
        Ok(text)
    }
}

impl MachineFile {
    fn machine(self) -> Result<Machine, Contradiction> {
        let base = self.based_on.as_deref().map(base).transpose()?;
        let base = base.as_ref();
        let missing = |key| Contradiction::Missing { key };
        let costs = match base {
            Some(base) => self.costs.or(base.costs.clone()),
            None => self.costs,
        };
        let machine = Machine {
            name: self.name,
            description: self.description,
            cpu: self.cpu,
            arch: self.arch.or(base.map(|base| base.arch)).ok_or(missing("arch"))?,
            page_sizes: self
                .page_sizes
                .or_else(|| Some(base?.page_sizes.clone()))
                .ok_or(missing("page_sizes"))?,
            page_size: self
                .default_page_size
                .or(base.map(|base| base.page_size))
                .ok_or(missing("default_page_size"))?,
            nr_cpus: self.nr_cpus.or_else(|| base?.nr_cpus.clone()),
            nodes: match base {
                Some(base) if self.nodes.is_empty() => base.nodes.clone(),
                _ => self.nodes,
            },
            tlb: self.tlb.or_else(|| Some(base?.tlb.clone())).ok_or(missing("tlb"))?,
            calibrated: self.calibrated,
            costs,
            errors: self.errors,
        };
        machine.check()?;
        Ok(machine)
    }
}

fn base(name: &str) -> Result<Machine, Contradiction> {
    Machine::named(name).map_err(|error| match error {
        MachineError::File(DataFileError::Unknown { name, hint, .. }) => {
            Contradiction::NoBase { name, hint }
        }
        other => unreachable!("a built-in machine loads: {other}"),
    })
}

impl Machine {
    /// Checks I1 to I5.
    fn check(&self) -> Result<(), Contradiction> {
        if self.page_sizes.is_empty() {
            return Err(Contradiction::NoPageSize);
        }
        let is_twice = |nr: usize| self.page_sizes[..nr].contains(&self.page_sizes[nr]);
        if let Some(nr) = (1..self.page_sizes.len()).find(|&nr| is_twice(nr)) {
            return Err(Contradiction::PageSizeTwice { page: self.page_sizes[nr] });
        }
        if !self.page_sizes.contains(&self.page_size) {
            let supported = self.page_sizes.as_slice().into();
            return Err(Contradiction::DefaultPageSize { page: self.page_size, supported });
        }
        if let Some(cpus) = &self.nr_cpus {
            cpus.check()?;
        }
        MachineNode::check_all(&self.nodes)?;
        self.tlb.check(&self.page_sizes)?;
        if self.errors.as_ref().is_some_and(|errors| !errors.check()) {
            return Err(Contradiction::Errors);
        }
        self.costs.check()
    }
}

impl CpuCount {
    fn check(&self) -> Result<(), Contradiction> {
        if self.value == 0 || self.value > NR_CPUS_MAX {
            return Err(Contradiction::NrCpus { value: self.value });
        }
        if self.source.trim().is_empty() {
            return Err(Contradiction::NoSource { place: "nr_cpus".to_owned() });
        }
        Ok(())
    }
}

impl Costs {
    /// Checks I3 and I4.
    fn check(&self) -> Result<(), Contradiction> {
        for (name, kind, known) in self.quantities() {
            let Some(Quantity { value, unit, source, range, .. }) = known else { continue };
            let place = format!("costs.{name}");
            if !kind.units().contains(unit) {
                let (unit, expected) = (*unit, kind.units().into());
                return Err(Contradiction::CostUnit { place, unit, expected });
            }
            check_number(&place, *value, *unit, source)?;
            check_range(&place, *value, *unit, *range)?;
        }
        for (name, rates) in self.rates() {
            for (nr, rate) in rates.iter().enumerate() {
                let place = format!("costs.{name}[{nr}]");
                check_number(&place, rate.gb_per_s, Unit::GbPerS, &rate.source)?;
                check_range(&place, rate.gb_per_s, Unit::GbPerS, rate.range)?;
                if nr > 0 && rates[nr - 1].size >= rate.size {
                    return Err(Contradiction::RateOrder { place });
                }
            }
        }
        match &self.elision {
            Some(elision) if elision.source.trim().is_empty() => {
                Err(Contradiction::NoSource { place: "costs.elision".to_owned() })
            }
            _ => Ok(()),
        }
    }
}

fn check_range(
    place: &str,
    value: f64,
    unit: Unit,
    range: Option<[f64; 2]>,
) -> Result<(), Contradiction> {
    let Some([low, high]) = range else { return Ok(()) };
    if !(low > 0.0 && low <= value && value <= high && high.is_finite()) {
        return Err(Contradiction::Range { place: place.to_owned(), value, low, high });
    }
    let outside = [low, high].into_iter().find(|bound| !unit.limits().contains(bound));
    outside.map_or(Ok(()), |value| {
        Err(Contradiction::Cost { place: format!("{place}.range"), value, unit })
    })
}

fn check_number(place: &str, value: f64, unit: Unit, source: &str) -> Result<(), Contradiction> {
    let place = || place.to_owned();
    if !unit.limits().contains(&value) {
        return Err(Contradiction::Cost { place: place(), value, unit });
    }
    if source.trim().is_empty() {
        return Err(Contradiction::NoSource { place: place() });
    }
    Ok(())
}

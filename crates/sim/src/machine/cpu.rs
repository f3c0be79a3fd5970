//! Finds the machine for a CPU by its ID numbers.
//!
//! Machine files list the CPUs they describe (`cpus`). An unlisted CPU gets the machine of its
//! nearest relative: the same vendor and family, and the nearest model.

use super::builtin::MACHINES;
use super::{Machine, MachineError};

/// Vendor, family and model of an x86-64 CPU; implementer and part of an Arm CPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuId(Vec<String>);

#[derive(Clone, Debug, PartialEq)]
pub struct Nearest {
    pub machine: Machine,
    pub is_listed: bool,
}

/// Machines for CPUs without a relative: per architecture, the machine with the most known costs.
const STRANGERS: [(&str, &str); 2] = [("GenuineIntel", "cascadelake"), ("0x", "altra")];

impl CpuId {
    /// Builds an ID from its words: `["AuthenticAMD", "25", "17"]`, `["0x41", "0xd0c"]`.
    #[must_use]
    pub fn new<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        Self(parts.into_iter().map(str::to_owned).collect())
    }

    /// Returns the machine of this CPU, or of its nearest relative.
    ///
    /// ```
    /// use largefolio_sim::machine::CpuId;
    /// let found = CpuId::new(["AuthenticAMD", "25", "17"]).nearest()?;
    /// assert_eq!((found.machine.name.as_str(), found.is_listed), ("zen4", true));
    /// # Ok::<(), largefolio_sim::machine::MachineError>(())
    /// ```
    ///
    /// # Errors
    /// A built-in file is invalid.
    pub fn nearest(&self) -> Result<Nearest, MachineError> {
        let near = listed().filter_map(|(file, other)| Some((self.distance(&other)?, file)));
        let nearest = near.min();
        let is_listed = nearest.is_some_and(|(distance, _)| distance == 0);
        let name = nearest.map_or_else(|| self.strangers_machine(), |(_, file)| file);
        Ok(Nearest { machine: Machine::named(name)?, is_listed })
    }

    /// Returns the difference of the models; `None` for different families.
    fn distance(&self, other: &Self) -> Option<u64> {
        let ((model, family), (other, of)) = (self.0.split_last()?, other.0.split_last()?);
        let number = |text: &str| match text.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None => text.parse().ok(),
        };
        (family == of).then(|| Some(number(model)?.abs_diff(number(other)?)))?
    }

    fn strangers_machine(&self) -> &'static str {
        let vendor = self.0.first().map_or("", String::as_str);
        let stranger = STRANGERS.iter().find(|(prefix, _)| vendor.starts_with(prefix));
        stranger.map_or(STRANGERS[0].1, |(_, machine)| machine)
    }
}

/// Returns every CPU listed by a built-in machine, with the machine's name.
fn listed() -> impl Iterator<Item = (&'static str, CpuId)> {
    MACHINES.names().flat_map(|name| {
        let table: toml::Table =
            MACHINES.text(name).unwrap_or_default().parse().unwrap_or_default();
        let cpus = table.get("cpus").and_then(toml::Value::as_array).cloned().unwrap_or_default();
        let ids = cpus.into_iter().filter_map(|cpu| Some(CpuId::new(cpu.as_str()?.split(' '))));
        ids.map(|id| (name, id)).collect::<Vec<_>>()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nearest(parts: &str) -> (String, bool) {
        let nearest_cpu = CpuId::new(parts.split(' ')).nearest().unwrap();
        (nearest_cpu.machine.name, nearest_cpu.is_listed)
    }

    #[test]
    fn a_listed_cpu_is_its_machine() {
        assert_eq!(nearest("GenuineIntel 6 143"), ("sapphirerapids".to_owned(), true));
        assert_eq!(nearest("0x41 0xd0c"), ("altra".to_owned(), true));
    }

    #[test]
    fn another_cpu_has_the_machine_of_its_nearest_relative() {
        assert_eq!(nearest("AuthenticAMD 25 18"), ("zen4".to_owned(), false));
        assert_eq!(nearest("AuthenticAMD 26 200"), ("zen5".to_owned(), false));
        assert_eq!(nearest("GenuineIntel 6 150"), ("sapphirerapids".to_owned(), false));
        assert_eq!(nearest("HygonGenuine 24 1"), ("cascadelake".to_owned(), false));
        assert_eq!(nearest("0x61 0x22"), ("altra".to_owned(), false));
        assert_eq!(nearest(""), ("cascadelake".to_owned(), false));
    }

    #[test]
    fn no_two_machines_list_a_cpu() {
        let mut names: Vec<_> = listed().map(|(_, cpu)| cpu.0).collect();
        let nr = names.len();
        names.sort_unstable();
        names.dedup();
        assert!(nr > 20 && names.len() == nr);
    }
}

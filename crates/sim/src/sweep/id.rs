//! The identity of a cell.
//!
//! It is the BLAKE3 hash of one JSON array: the trace's digest, the stamps of kernel and machine
//! (the name and the text's BLAKE3 hash), the settings, and the versions of folio and of its
//! counts. JSON delimits the parts, so no two cells have the same text.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::recipe::{Recipe, Setting, Stamp};
use crate::replay::RESULTS_VERSION;

/// Prefix of the text; its number is raised when the format changes.
const FORM: &str = "largefolio cell 1";

const NR_DIGITS: usize = 64;

/// 64 hexadecimal digits.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct CellId(String);

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a cell id; expected {NR_DIGITS} hexadecimal digits")]
pub struct NoCellId(String);

impl CellId {
    /// Returns the identity of `recipe` for the trace file with `digest`
    /// ([`largefolio_trace::digest`]).
    #[must_use]
    pub fn new(digest: &str, recipe: &Recipe) -> Self {
        let (kernel, machine) = (recipe.kernel.stamp(), recipe.machine.stamp());
        Self::of_stamps(digest, &kernel, &machine, &recipe.setting)
    }

    /// Returns the identity from the stamps of kernel and machine, for callers with many cells of a
    /// few of each.
    #[must_use]
    pub fn of_stamps(digest: &str, kernel: &Stamp, machine: &Stamp, setting: &Setting) -> Self {
        let cell = Identified { digest, kernel, machine, setting };
        cell.of_version(env!("CARGO_PKG_VERSION"), RESULTS_VERSION)
    }

    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

struct Identified<'a> {
    digest: &'a str,
    kernel: &'a Stamp,
    machine: &'a Stamp,
    setting: &'a Setting,
}

impl Identified<'_> {
    fn of_version(&self, folio: &str, results: u32) -> CellId {
        let stamps = (self.kernel, self.machine);
        let parts = (FORM, (folio, results), self.digest, stamps, self.setting);
        let Ok(text) = serde_json::to_vec(&parts) else {
            unreachable!("texts, numbers and names of variants are JSON")
        };
        CellId(blake3::hash(&text).to_hex().to_string())
    }
}

impl fmt::Display for CellId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl TryFrom<String> for CellId {
    type Error = NoCellId;

    fn try_from(text: String) -> Result<Self, NoCellId> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        if text.len() == NR_DIGITS && text.bytes().all(is_digit) {
            Ok(Self(text))
        } else {
            Err(NoCellId(text))
        }
    }
}

impl From<CellId> for String {
    fn from(id: CellId) -> Self {
        id.0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::cost::Walks;
    use crate::kernel::Kernel;
    use crate::machine::Machine;
    use crate::replay::{Budget, CacheState, CellSpec, Fragmented};

    const DIGEST: &str = "00";

    fn cell() -> CellSpec {
        CellSpec::new(Kernel::parse("6.12").unwrap(), Machine::named("altra").unwrap())
    }

    fn id(cell: &CellSpec) -> CellId {
        CellId::new(DIGEST, &Recipe::of(cell).unwrap())
    }

    #[test]
    fn an_identity_survives_being_written_down() {
        let mut cell = cell();
        cell.annotations = vec!["libc*=64K".parse().unwrap()];
        cell.linked = vec!["2M".parse().unwrap(), "libc*=64K".parse().unwrap()];
        cell.cgroups = vec!["64M".parse().unwrap(), "cc1=32M".parse().unwrap()];
        cell.changes = vec!["50%:thp=always".parse().unwrap()];
        cell.filesystem = Some("xfs".to_owned());
        let recipe = Recipe::of(&cell).unwrap();
        let text = serde_json::to_string(&recipe).unwrap();
        let read: Recipe = serde_json::from_str(&text).unwrap();
        let again = read.cell().unwrap();
        assert_eq!(again.kernel, cell.kernel);
        assert_eq!(again.machine, cell.machine);
        assert_eq!(again.linked, cell.linked);
        assert_eq!(again.cgroups, cell.cgroups);
        assert_eq!(again.changes, cell.changes);
        assert_eq!(id(&again), id(&cell));
        assert_eq!(CellId::try_from(id(&cell).to_string()), Ok(id(&cell)));
        assert!(CellId::try_from("../../etc/passwd".to_owned()).is_err());
    }

    #[test]
    fn whatever_decides_the_outcome_changes_the_identity() {
        let kernel = |name: &str| Kernel::parse(name).unwrap();
        let mut edited = kernel("6.12+readahead=1M");
        edited.name = String::from("6.12");
        let mut slower = Machine::named("altra").unwrap();
        slower.tlb.l2[0].entries /= 2;
        let cells = vec![
            cell(),
            CellSpec { kernel: kernel("7.2"), ..cell() },
            CellSpec { kernel: kernel("6.12+page=4K"), ..cell() },
            CellSpec { kernel: edited, ..cell() },
            CellSpec { machine: slower, ..cell() },
            CellSpec { cache: CacheState::Warm, ..cell() },
            CellSpec { seed: 2, ..cell() },
            CellSpec { ram_bytes: 1 << 30, ..cell() },
            CellSpec { swap_bytes: 1 << 30, ..cell() },
            CellSpec { cgroups: vec!["64M".parse().unwrap()], ..cell() },
            CellSpec { cgroups: vec!["a=64M".parse().unwrap()], ..cell() },
            CellSpec { changes: vec!["50%:thp=always".parse().unwrap()], ..cell() },
            CellSpec { changes: vec!["51%:thp=always".parse().unwrap()], ..cell() },
            CellSpec { changes: vec!["50%:thp=never".parse().unwrap()], ..cell() },
            CellSpec { nr_cpus: Some(2), ..cell() },
            CellSpec { fragmentation: Fragmented { bytes: 0, permille: 1 }, ..cell() },
            CellSpec { fragmentation: Fragmented { bytes: 1 << 16, permille: 1 }, ..cell() },
            CellSpec { aged_rounds: 1, ..cell() },
            CellSpec { filesystem: Some("xfs".to_owned()), ..cell() },
            CellSpec { annotations: vec!["a=64K".parse().unwrap()], ..cell() },
            CellSpec { linked: vec!["2M".parse().unwrap()], ..cell() },
            CellSpec { linked: vec!["a=2M".parse().unwrap()], ..cell() },
            CellSpec { ns_per_reference: 2, ..cell() },
            CellSpec { walks: Walks::Nested, ..cell() },
        ];
        let ids: BTreeSet<CellId> = cells.iter().map(id).collect();
        assert_eq!(ids.len(), cells.len());
        let recipe = Recipe::of(&cell()).unwrap();
        let (kernel, machine) = (recipe.kernel.stamp(), recipe.machine.stamp());
        let identified = Identified {
            digest: DIGEST,
            kernel: &kernel,
            machine: &machine,
            setting: &recipe.setting,
        };
        for other in [
            CellId::new("01", &recipe),
            identified.of_version("0.0.9", RESULTS_VERSION),
            identified.of_version(env!("CARGO_PKG_VERSION"), RESULTS_VERSION + 1),
        ] {
            assert!(!ids.contains(&other));
        }
    }

    #[test]
    fn equal_rules_are_one_cell_where_they_have_one_name() {
        let of = |name: &str| CellSpec { kernel: Kernel::parse(name).unwrap(), ..cell() };
        let short = of("6.12+exec-block=64K");
        for equal in ["6.12+exec-block=65536", "6.12+fault.exec.block.bytes=64K"] {
            let mut equal = of(equal);
            assert_ne!(id(&equal), id(&short), "the name is in the row");
            equal.kernel.name.clone_from(&short.kernel.name);
            assert_eq!(id(&equal), id(&short));
        }
    }

    #[test]
    fn the_form_of_an_identity_does_not_change_unnoticed() {
        let stamp = |name: &str| Stamp { name: name.to_owned(), text: "0".to_owned() };
        let setting = Setting::of(&cell());
        let (kernel, machine) = (&stamp("k"), &stamp("m"));
        let id = Identified { digest: DIGEST, kernel, machine, setting: &setting }
            .of_version("1.2.3", 1);
        assert_eq!(id.as_str(), "5c7a5b08294f98d88dc16b2a184aaad221243de80d7194759fb1212f05a83b61");
    }

    #[test]
    fn what_only_pictures_need_does_not_change_it() {
        assert_eq!(id(&CellSpec { detail_runs_max: 7, ..cell() }), id(&cell()));
    }

    #[test]
    fn a_budget_travels_with_a_cell_and_does_not_change_its_identity() {
        let more = CellSpec { budget: Budget::times(3), ..cell() };
        assert_eq!(id(&more), id(&cell()));
        let text = serde_json::to_string(&Recipe::of(&more).unwrap()).unwrap();
        let read: Recipe = serde_json::from_str(&text).unwrap();
        assert_eq!(read.cell().unwrap().budget, Budget::times(3));
    }
}

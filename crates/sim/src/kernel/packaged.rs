//! The build options of a kernel's packages: the `[packaged]` tables in its file.
//!
//! `scripts/recordings/configs.py` writes the tables from the packages' configurations. They are
//! not rules: a kernel based on another does not inherit them. The tests in this file check the
//! rules against the options.

use std::collections::BTreeMap;

use serde::Deserialize;
use toml::Table;

use super::KernelError;
use crate::datafile::parse;

const KEY: &str = "packaged";
const SHOWN: [(&str, &str); 9] = [
    ("PREEMPT_NONE", "no preemption"),
    ("PREEMPT_VOLUNTARY", "voluntary preemption"),
    ("PREEMPT", "full preemption"),
    ("PREEMPT_LAZY", "lazy preemption"),
    ("PREEMPT_RT", "PREEMPT_RT"),
    ("TRANSPARENT_HUGEPAGE_ALWAYS", "THP always"),
    ("TRANSPARENT_HUGEPAGE_MADVISE", "THP madvise"),
    ("LRU_GEN_ENABLED", "LRU generations"),
    ("READ_ONLY_THP_FOR_FS", "THP of read-only files"),
];

#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub struct Package {
    pub package: String,
    pub version: String,
    built_in: Vec<String>,
    off: Vec<String>,
}

impl Package {
    #[must_use]
    pub fn has(&self, option: &str) -> bool {
        self.built_in.iter().any(|name| name == option)
    }

    /// Returns whether the option exists, on or off. Of a choice, only the selected one is known.
    #[must_use]
    pub fn knows(&self, option: &str) -> bool {
        self.has(option) || self.off.iter().any(|name| name == option)
    }

    /// Returns the options that matter for a prediction: `lazy preemption, THP always`.
    #[must_use]
    pub fn summary(&self) -> String {
        let shown = SHOWN.iter().filter(|(option, _)| self.has(option)).map(|(_, words)| *words);
        shown.collect::<Vec<_>>().join(", ")
    }
}

pub(super) fn of(name: &str, text: &str) -> Result<BTreeMap<String, Package>, KernelError> {
    take(name, &mut parse(text, name)?)
}

pub(super) fn take(
    origin: &str,
    table: &mut Table,
) -> Result<BTreeMap<String, Package>, KernelError> {
    let Some(packages) = table.remove(KEY) else {
        return Ok(BTreeMap::new());
    };
    packages.try_into().map_err(|error: toml::de::Error| KernelError::BadFile {
        origin: origin.to_owned(),
        message: format!("{KEY}: {}", error.message()),
    })
}

#[cfg(test)]
mod tests {
    use largefolio_mm::rules::anon::{Enabled, Mapcount};
    use largefolio_mm::rules::clear::{ClearOrder, Preemption};
    use largefolio_mm::rules::collapse::FileCollapse;
    use largefolio_mm::rules::reclaim::LruRule;
    use largefolio_mm::rules::shmem::ShmemEnabled;
    use largefolio_mm::rules::{Arch, ContpteRule, MinorRetry, Rules};

    use super::*;
    use crate::kernel::Kernel;

    fn packages() -> Vec<(String, Package, Rules)> {
        let mut all = Vec::new();
        for kernel in Kernel::names() {
            for (flavour, package) in Kernel::packages(kernel).unwrap() {
                let rules = Kernel::parse(kernel).unwrap().rules;
                all.push((format!("{kernel} {flavour}"), package, rules));
            }
        }
        assert_eq!(all.len(), 29, "three flavours of ten kernels, 6.1 has two");
        all
    }

    fn arch(place: &str) -> Arch {
        if place.ends_with("amd64") { Arch::X86_64 } else { Arch::Arm64 }
    }

    /// P.3: generations are on from the start if the package enables them.
    #[test]
    fn lists_are_those_of_the_packages() {
        for (place, package, rules) in packages() {
            let is_on = rules.reclaim.lru == LruRule::Generations;
            assert_eq!(package.has("LRU_GEN_ENABLED"), is_on, "{place}");
        }
    }

    /// D.4.2: the default of `PREEMPT_DYNAMIC` is the built-in model.
    #[test]
    fn preemption_is_that_of_the_packages() {
        for (place, package, rules) in packages() {
            let models = [
                ("PREEMPT_NONE", Preemption::None),
                ("PREEMPT_VOLUNTARY", Preemption::Voluntary),
                ("PREEMPT", Preemption::Full),
                ("PREEMPT_LAZY", Preemption::Lazy),
            ];
            let built: Vec<_> =
                models.into_iter().filter(|(option, _)| package.has(option)).collect();
            assert_eq!(built.len(), 1, "{place}: {built:?}");
            assert_eq!(rules.clear.preemption, built[0].1, "{place}");
            // From 7.0 on, these architectures cannot be built without preemption.
            let can_be_off = rules.clear.order == ClearOrder::Converging;
            for option in ["PREEMPT_NONE", "PREEMPT_VOLUNTARY"] {
                assert_eq!(package.knows(option), can_be_off, "{place}: {option}");
            }
        }
    }

    /// H.1.3: up to 7.1, collapse of files needs the option; later kernels have no such option.
    #[test]
    fn collapse_of_files_is_that_of_the_packages() {
        for (place, package, rules) in packages() {
            let option = "READ_ONLY_THP_FOR_FS";
            let expected = match (package.knows(option), package.has(option)) {
                (false, _) => FileCollapse::LargeFolios,
                (true, false) => FileCollapse::Absent,
                (true, true) => FileCollapse::Exec,
            };
            assert_eq!(rules.collapse.file, expected, "{place}");
        }
    }

    /// F.5: no package counts folios instead of pages.
    #[test]
    fn map_counts_are_those_of_the_packages() {
        for (place, package, rules) in packages() {
            let is_per_page = !package.has("NO_PAGE_MAPCOUNT");
            assert_eq!(rules.anon.mapcount == Mapcount::PerPage, is_per_page, "{place}");
            let knows = package.knows("NO_PAGE_MAPCOUNT");
            assert_eq!(knows, package.has("PAGE_MAPCOUNT"), "{place}: a choice of two");
        }
    }

    #[test]
    fn locks_and_contpte_are_those_of_the_packages() {
        for (place, package, rules) in packages() {
            let is_untried = package.has("PER_VMA_LOCK");
            assert_eq!(rules.fault.minor_retry == MinorRetry::Untried, is_untried, "{place}");
            if arch(&place) == Arch::Arm64 {
                let has_contpte = package.has("ARM64_CONTPTE");
                assert_eq!(rules.contpte == ContpteRule::OnArm64, has_contpte, "{place}");
                let is_16k = package.has("ARM64_16K_PAGES");
                assert_eq!(is_16k, place.ends_with("16k"), "{place}");
            }
        }
    }

    /// The user chooses settings: packages start with `always`, the rules with `madvise`, as in the
    /// recordings. Shared memory starts with `never` in both.
    #[test]
    fn settings_of_thp_are_told_and_not_taken_over() {
        for (place, package, rules) in packages() {
            assert!(package.has("TRANSPARENT_HUGEPAGE_ALWAYS"), "{place}");
            assert_eq!(rules.anon.thp, Enabled::Madvise, "{place}");
            let shmem = "TRANSPARENT_HUGEPAGE_SHMEM_HUGE_";
            let other = package
                .built_in
                .iter()
                .find(|name| name.strip_prefix(shmem).is_some_and(|value| value != "NEVER"));
            assert_eq!((other, rules.shmem.enabled), (None, ShmemEnabled::Never), "{place}");
        }
    }

    #[test]
    fn generations_are_on_from_6_12() {
        for (place, package, _) in packages() {
            let is_old = place.starts_with("6.1 ");
            assert_eq!(package.has("LRU_GEN_ENABLED"), !is_old, "{place}");
        }
    }

    #[test]
    fn a_kernel_based_on_another_has_not_its_packages() {
        let text =
            "[packaged.amd64]\npackage = \"p\"\nversion = \"1\"\nbuilt-in = [\"A\"]\noff = []";
        let own = of("mine", text).unwrap();
        assert!(own["amd64"].has("A") && !own["amd64"].knows("B"));
        let table = format!("based-on = \"7.2\"\ndescription = \"mine\"\n{text}").parse().unwrap();
        let kernel = Kernel::from_table("mine", table).unwrap();
        assert!(!kernel.to_table().unwrap().contains_key(KEY));
        let bad = "based-on = \"7.2\"\ndescription = \"\"\n[packaged.amd64]\npackage = 1";
        let error = Kernel::from_table("mine", bad.parse().unwrap()).unwrap_err().to_string();
        assert!(error.starts_with("kernel file mine: packaged: "), "{error}");
        assert_eq!(Kernel::packages("recorded/g_72_64k_stock").unwrap(), BTreeMap::new());
        assert_eq!(
            Kernel::packages("7.2").unwrap()["amd64"].summary(),
            "lazy preemption, THP always, LRU generations"
        );
    }
}

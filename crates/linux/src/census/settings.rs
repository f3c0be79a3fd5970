//! The transparent huge page settings that apply to a mapping.
//!
//! Owns their combined meaning: a size's setting of `inherit` refers to the global one. Ordinary
//! filesystems have no setting; reads determine their folios. A kernel built with `kernel/` has
//! settings for these reads.

use std::path::PathBuf;

use crate::geometry::Geometry;
use crate::proc::{largefolio, number, thp};
use crate::setting::thp::size_name;
use crate::system::System;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allows {
    All,
    Advised,
    None,
}

#[derive(Clone, Copy)]
pub struct ThpSettings<'a> {
    system: &'a dyn System,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InForce {
    pub allows: Allows,
    pub path: PathBuf,
    /// Its name for `folio tune`.
    pub name: String,
}

/// A setting that is off, and the value that turns it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TurnedOn {
    /// Its name for `folio tune`.
    pub name: String,
    pub value: &'static str,
}

impl<'a> ThpSettings<'a> {
    #[must_use]
    pub fn of(system: &'a dyn System) -> Self {
        Self { system }
    }

    #[must_use]
    pub fn anon(&self, bytes: u64) -> Option<InForce> {
        self.sized(bytes, "enabled")
    }

    /// Returns the setting for memfd, shared anonymous memory and System V in folios of `bytes`.
    #[must_use]
    pub fn shmem(&self, bytes: u64) -> Option<InForce> {
        self.sized(bytes, "shmem_enabled")
    }

    /// Returns the memory that a tmpfs mounted with `huge` allows. The mount option overrides the
    /// setting, except for `deny` and `force`. `None` without transparent huge pages.
    #[must_use]
    pub fn tmpfs(&self, huge: &str) -> Option<Allows> {
        match thp::chosen(self.system, &thp::setting("shmem_enabled"))?.as_str() {
            "deny" => Some(Allows::None),
            "force" => Some(Allows::All),
            _ => Some(allows(huge)),
        }
    }

    /// Returns whether `deny` forbids all large folios of shared memory.
    #[must_use]
    pub fn is_shmem_denied(&self) -> bool {
        thp::chosen(self.system, &thp::setting("shmem_enabled")).as_deref() == Some("deny")
    }

    /// Returns the setting with which the kernel would read text in folios of `bytes`; `None` if it
    /// has no such setting, or reads text in folios of some chosen size already.
    #[must_use]
    pub fn text(&self, bytes: u64) -> Option<TurnedOn> {
        let chosen = |name: &str| thp::chosen(self.system, &largefolio::setting(name));
        if let Some(form) = chosen("exec_order") {
            let has_size =
                number(self.system, &largefolio::setting("exec_order_bytes")) == Some(bytes);
            let name = "largefolio.exec_order".to_owned();
            return (form == "off" && has_size).then_some(TurnedOn { name, value: "window" });
        }
        let use_of = |kib: u64| thp::chosen(self.system, &largefolio::of_size(kib));
        let folder = largefolio::setting(largefolio::FILE_SIZES);
        let names = self.system.names(&folder).ok()?;
        let mut sizes = names.iter().filter_map(|name| thp::kib_of(name.to_str()?));
        if sizes.any(|kib| use_of(kib).is_some_and(|word| word.contains("exec"))) {
            return None;
        }
        let value = match use_of(bytes >> 10)?.as_str() {
            "never" => "exec",
            _ => "always+exec",
        };
        Some(TurnedOn { name: format!("largefolio.file_sizes.{}", size_name(bytes)), value })
    }

    /// Returns `None` on kernels without transparent huge pages or without this size.
    fn sized(&self, bytes: u64, name: &str) -> Option<InForce> {
        let path = thp::of_size(bytes >> 10, name);
        match thp::chosen(self.system, &path).as_deref() {
            Some("inherit") => self.global(name),
            Some(word) => {
                let kind = if name == "enabled" { "" } else { ".shmem" };
                let name = format!("thp.{}{kind}", size_name(bytes));
                Some(InForce { allows: allows(word), path, name })
            }
            // Before Linux 6.8 only the PMD size exists, under the global setting.
            None if bytes == self.pmd_bytes() => self.global(name),
            None => None,
        }
    }

    fn pmd_bytes(&self) -> u64 {
        Geometry::of(self.system.page_bytes()).pmd_bytes()
    }

    pub(crate) fn global(&self, name: &str) -> Option<InForce> {
        let path = thp::setting(name);
        let word = thp::chosen(self.system, &path)?;
        Some(InForce { allows: allows(&word), path, name: format!("thp.{name}") })
    }
}

fn allows(word: &str) -> Allows {
    match word {
        "always" | "within_size" | "force" => Allows::All,
        "madvise" | "advise" => Allows::Advised,
        _ => Allows::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::system::MemSystem;

    #[test]
    fn a_size_that_inherits_follows_the_global_setting() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join(thp::THP.trim_start_matches('/'));
        for (name, text) in [
            ("enabled", "always [madvise] never\n"),
            ("hugepages-2048kB/enabled", "always [inherit] madvise never\n"),
            ("hugepages-64kB/enabled", "always inherit madvise [never]\n"),
            ("shmem_enabled", "always within_size advise [never] deny force\n"),
        ] {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        let system = MemSystem::from_dir(dir.path());
        let settings = ThpSettings::of(&system);
        let pmd = settings.anon(2 << 20).unwrap();
        assert_eq!((pmd.allows, pmd.path), (Allows::Advised, thp::setting("enabled")));
        assert_eq!(pmd.name, "thp.enabled");
        let small = settings.anon(64 << 10).unwrap();
        assert_eq!(small.allows, Allows::None);
        assert!(small.path.ends_with("hugepages-64kB/enabled"));
        assert_eq!(small.name, "thp.64K");
        assert_eq!(settings.anon(32 << 10), None);
        assert_eq!(settings.shmem(2 << 20).unwrap().allows, Allows::None);
    }

    #[test]
    fn text_has_a_setting_in_kernels_built_for_it() {
        let dir = tempfile::tempdir().unwrap();
        let system = MemSystem::from_dir(dir.path());
        let folder = dir.path().join(largefolio::LARGEFOLIO.trim_start_matches('/'));
        let write = |name: &str, text: &str| {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let of = |kib: u64| {
            let set = ThpSettings::of(&system).text(kib << 10);
            set.map(|set| format!("{}={}", set.name, set.value))
        };
        assert_eq!(of(64), None, "another kernel");
        write("file_sizes/hugepages-64kB", "never [always] exec always+exec\n");
        write("file_sizes/hugepages-2048kB", "[never] always exec always+exec\n");
        assert_eq!(of(64).unwrap(), "largefolio.file_sizes.64K=always+exec");
        assert_eq!(of(2048).unwrap(), "largefolio.file_sizes.2M=exec");
        assert_eq!(of(32), None, "no such size");
        write("file_sizes/hugepages-16kB", "never always exec [always+exec]\n");
        assert_eq!(of(64), None, "another size has it");
        write("exec_order", "[off] block window\n");
        assert_eq!(of(64), None, "of an unknown size");
        write("exec_order_bytes", "65536\n");
        assert_eq!(of(64).unwrap(), "largefolio.exec_order=window");
        assert_eq!(of(2048), None, "of another size");
        write("exec_order", "off [block] window\n");
        assert_eq!(of(64), None, "it is on");
    }

    #[test]
    fn a_mount_of_tmpfs_decides_unless_all_shared_memory_is_denied_or_forced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(thp::THP.trim_start_matches('/')).join("shmem_enabled");
        let system = MemSystem::from_dir(dir.path());
        let settings = ThpSettings::of(&system);
        assert_eq!(settings.tmpfs("always"), None, "a kernel without THP");
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        for (chosen, huge, allows) in [
            ("never", "always", Allows::All),
            ("always", "never", Allows::None),
            ("never", "within_size", Allows::All),
            ("never", "advise", Allows::Advised),
            ("deny", "always", Allows::None),
            ("force", "never", Allows::All),
        ] {
            std::fs::write(&path, format!("x [{chosen}] y\n")).unwrap();
            assert_eq!(settings.tmpfs(huge), Some(allows), "{chosen} {huge}");
        }
    }
}

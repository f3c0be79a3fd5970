//! Large folios for malloc: the size in sysfs during the run, and glibc's tunable.
//!
//! With `glibc.malloc.hugetlb=1` and the global setting `madvise`, glibc 2.35 and later calls
//! `madvise(MADV_HUGEPAGE)` on its memory. The per-size settings determine the sizes of advised
//! memory for all processes. While the program runs, sizes above the requested size are therefore
//! disabled. If the global setting was `always`, unadvised memory loses its large folios for that
//! time ([`Heap::cost`]). Other allocators are not affected.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use largefolio_trace::disk::read_whole;

use super::fallback::Fallback;
use super::program::Program;
use crate::proc::thp;
use crate::setting::{self, Setting, SettingError};
use crate::system::Live;

const TUNABLES: &str = "GLIBC_TUNABLES";
const TUNABLE: &[u8] = b"glibc.malloc.hugetlb";
/// A symbol version that glibc 2.35 and later define.
const VERSION: &[u8] = b"GLIBC_2.35\0";
/// Largest C library that is read. With debug information it has 20 MiB.
const LIBC_BYTES_MAX: u64 = 64 << 20;

#[derive(Debug)]
pub struct Heap {
    pub folio_bytes: u64,
    pub(super) variable: (OsString, OsString),
    nr_before: u64,
    /// Folio sizes in KiB that unadvised memory has lost until this is dropped, ascending.
    lost_kib: Vec<u64>,
    _settings: Vec<Setting>,
}

impl Heap {
    pub(super) fn new(
        folio_bytes: u64,
        program: &Program,
        libraries: &[PathBuf],
    ) -> Result<Self, Fallback> {
        check_libc(program, libraries)?;
        let variable = merged(std::env::var_os(TUNABLES).as_deref()).ok_or(Fallback::Tuned)?;
        let sizes = setting::thp::sizes_kib().unwrap_or_default();
        if !sizes.is_empty() && !sizes.contains(&(folio_bytes >> 10)) {
            return Err(Fallback::NoSize(sizes));
        }
        let (settings, lost_kib) = settings(folio_bytes >> 10)
            .map_err(|error: SettingError| Fallback::Setting(error.to_string()))?;
        Ok(Self {
            folio_bytes,
            variable: (TUNABLES.into(), variable),
            nr_before: thp::nr_given(&Live, folio_bytes >> 10),
            lost_kib,
            _settings: settings,
        })
    }

    /// Returns the bytes in folios of this size that page faults of all processes got since the
    /// start.
    #[must_use]
    pub fn given_bytes(&self) -> u64 {
        let nr = thp::nr_given(&Live, self.folio_bytes >> 10).saturating_sub(self.nr_before);
        nr.saturating_mul(self.folio_bytes)
    }

    /// Returns a sentence about the other programs' loss, `None` if unadvised memory had nothing to
    /// lose.
    #[must_use]
    pub fn cost(&self) -> Option<String> {
        let names = |kib: &u64| setting::thp::size_name(kib << 10);
        let sizes: Vec<String> = self.lost_kib.iter().map(names).collect();
        (!sizes.is_empty()).then(|| {
            format!(
                "--heap: until the program ends, memory without MADV_HUGEPAGE gets no {} folios \
                 in any program: thp.enabled is madvise, and sizes above {} are set to never",
                sizes.join(", "),
                names(&(self.folio_bytes >> 10))
            )
        })
    }
}

fn check_libc(program: &Program, libraries: &[PathBuf]) -> Result<(), Fallback> {
    let not = |what: &str| Err(Fallback::NotGlibc(what.to_owned()));
    if let Some(why) = program.why_not_glibc() {
        return not(why);
    }
    let is_libc = |path: &&PathBuf| path.file_name() == Some(OsStr::new("libc.so.6"));
    let Some(libc) = libraries.iter().find(is_libc) else {
        return not("its C library was not found");
    };
    let has_version = |libc: &Path| {
        let bytes = read_whole(libc, LIBC_BYTES_MAX).unwrap_or_default();
        bytes.windows(VERSION.len()).any(|window| window == VERSION)
    };
    if has_version(libc) { Ok(()) } else { Err(Fallback::OldGlibc(libc.clone())) }
}

/// Merges the tunable into the variable. Returns `None` if it is already set.
fn merged(value: Option<&OsStr>) -> Option<OsString> {
    let value = value.map_or(&b""[..], OsStr::as_bytes);
    let is_ours = |part: &[u8]| part.split(|&byte| byte == b'=').next() == Some(TUNABLE);
    if value.split(|&byte| byte == b':').any(is_ours) {
        return None;
    }
    let mut merged = value.to_vec();
    if !merged.is_empty() {
        merged.push(b':');
    }
    merged.extend(TUNABLE);
    merged.extend(b"=1");
    Some(OsString::from_vec(merged))
}

/// Gives advised memory folios of `kib` and no larger ones. Also returns the sizes that unadvised
/// memory loses.
fn settings(kib: u64) -> Result<(Vec<Setting>, Vec<u64>), SettingError> {
    let global = thp::setting("enabled");
    let mut settings = Vec::new();
    // glibc gives advice only under this value.
    let was = Setting::read(&global)?;
    let control = thp::control(kib);
    let own = Setting::read(&control)?;
    let is_on = own == "madvise" || own == "always" || (own == "inherit" && was != "never");
    settings.push(Setting::try_change(&control, if is_on { &own } else { "madvise" })?);
    let sizes = setting::thp::sizes_kib()?;
    let read = |&size: &u64| Ok((size, Setting::read(&thp::control(size))?));
    let lost = lost(kib, &was, &sizes.iter().map(read).collect::<Result<Vec<_>, SettingError>>()?);
    for size in sizes.into_iter().filter(|&size| size > kib) {
        settings.push(Setting::try_change(&thp::control(size), "never")?);
    }
    settings.push(Setting::try_change(&global, "madvise")?);
    Ok((settings, lost))
}

/// Returns the sizes in KiB that unadvised memory gets under `global` and the per-size settings,
/// but not under [`settings`].
fn lost(kib: u64, global: &str, sizes: &[(u64, String)]) -> Vec<u64> {
    let is_lost = |(size, own): &&(u64, String)| match own.as_str() {
        "always" => *size > kib,
        "inherit" => global == "always",
        _ => false,
    };
    sizes.iter().filter(is_lost).map(|(size, _)| *size).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tunable_joins_those_of_the_user() {
        let merged = |text: &str| merged(Some(OsStr::new(text)));
        assert_eq!(merged("").unwrap(), "glibc.malloc.hugetlb=1");
        let both = "glibc.malloc.check=3:glibc.malloc.hugetlb=1";
        assert_eq!(merged("glibc.malloc.check=3").unwrap(), both);
        assert_eq!(merged("glibc.malloc.hugetlb=2"), None);
        assert_eq!(merged("a=b:glibc.malloc.hugetlb=0:c=d"), None);
        assert!(merged("glibc.malloc.hugetlb_x=2").is_some());
    }

    #[test]
    fn what_memory_without_advice_loses_is_known_and_said() {
        let sizes = |texts: &[&str]| -> Vec<(u64, String)> {
            [64, 1024, 2048].into_iter().zip(texts.iter().map(|&word| word.to_owned())).collect()
        };
        let usual = sizes(&["never", "never", "inherit"]);
        assert_eq!(lost(64, "always", &usual), [2048]);
        assert_eq!(lost(2048, "always", &usual), [2048], "it inherits madvise then");
        assert!(lost(64, "madvise", &usual).is_empty());
        let own = sizes(&["always", "always", "always"]);
        assert_eq!(lost(1024, "never", &own), [2048], "the others stay as they are");
        let heap = |lost_kib: &[u64]| Heap {
            folio_bytes: 64 << 10,
            variable: (OsString::new(), OsString::new()),
            nr_before: 0,
            lost_kib: lost_kib.to_vec(),
            _settings: Vec::new(),
        };
        assert_eq!(heap(&[]).cost(), None);
        let cost = heap(&[1024, 2048]).cost().unwrap();
        assert!(cost.contains("gets no 1M, 2M folios in any program"), "{cost}");
        assert!(
            cost.ends_with("enabled is madvise, and sizes above 64K are set to never"),
            "{cost}"
        );
    }
}

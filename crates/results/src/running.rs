//! The running kernel as the model knows it.

use std::path::Path;

use largefolio_linux::tune::catalog::Catalog;
use largefolio_sim::crosscheck::rules_of_release;
use largefolio_sim::kernel::Kernel;

use crate::Error;

/// What the kernel calls itself: `uname -r`.
#[must_use]
pub fn release() -> String {
    rustix::system::uname().release().to_string_lossy().into_owned()
}

/// The rules nearest to those of this kernel, however old it is.
///
/// # Errors
/// A release that is no version.
pub fn nearest_rules() -> Result<Kernel, Error> {
    let release = release();
    let page_bytes = rustix::param::page_size() as u64;
    let nearest = Kernel::nearest_to_release(&release, page_bytes)
        .ok_or_else(|| Error::asked(format!("{release:?} is not a kernel version")))?;
    Ok(nearest?)
}

/// The rules of the kernel that calls itself `release` and has base pages of `page_bytes`.
///
/// # Errors
/// A kernel that is older than all rules, or no version.
pub fn rules(release: &str, page_bytes: u64) -> Result<Kernel, Error> {
    Ok(rules_of_release(release, page_bytes)?)
}

/// The rules of this kernel with its settings of now.
///
/// # Errors
/// As [`rules`].
pub fn rules_with_settings() -> Result<Kernel, Error> {
    let kernel = rules(&release(), rustix::param::page_size() as u64)?;
    let catalog = Catalog::below(Path::new("/"));
    let mut name = kernel.name.clone();
    for setting in ["thp.enabled", "thp.defrag", "thp.64K", "thp.2M", "khugepaged.max_ptes_none"] {
        let now = catalog.read(setting).ok().map(|current| current.value);
        if let Some(edit) = now.and_then(|value| edit(setting, &value)) {
            let edited = format!("{name}+{edit}");
            // A size that this version's rules do not have has no setting to take over.
            if Kernel::parse(&edited).is_ok() {
                name = edited;
            }
        }
    }
    Ok(Kernel { note: kernel.note, ..Kernel::parse(&name)? })
}

/// The edit of a kernel that a setting of the system (`folio tune`) is; `None` for settings that the
/// model does not have.
#[must_use]
pub fn edit(setting: &str, value: &str) -> Option<String> {
    Some(match setting {
        "thp.enabled" => format!("thp={value}"),
        "thp.defrag" => format!("defrag={}", value.replace('+', "-")),
        "thp.use_zero_page" => format!("huge-zero={}", if value == "0" { "off" } else { "on" }),
        "khugepaged.max_ptes_none" => format!("max-ptes-none={value}"),
        "khugepaged.max_ptes_swap" => format!("max-ptes-swap={value}"),
        "khugepaged.max_ptes_shared" => format!("max-ptes-shared={value}"),
        _ => {
            if setting.starts_with("readahead.") {
                return Some(format!("readahead={value}K"));
            }
            let size = setting.strip_prefix("thp.")?;
            if !size.starts_with(|first: char| first.is_ascii_digit()) || size.contains('.') {
                return None;
            }
            format!("anon-{size}={value}")
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_that_the_model_has_are_edits_it_takes() {
        for (setting, value) in [
            ("thp.enabled", "always"),
            ("thp.defrag", "defer+madvise"),
            ("thp.64K", "inherit"),
            ("thp.use_zero_page", "0"),
            ("khugepaged.max_ptes_none", "0"),
            ("readahead.vda", "8192"),
        ] {
            let edit = edit(setting, value).unwrap();
            assert!(Kernel::parse(&format!("6.18+{edit}")).is_ok(), "{setting}: {edit}");
        }
        for setting in ["thp.64K.shmem", "thp.shmem_enabled", "khugepaged.pages_to_scan"] {
            assert_eq!(edit(setting, "always"), None, "{setting}");
        }
    }

    #[test]
    fn a_release_has_the_rules_of_its_version() {
        let kernel = rules("6.18.44-local", 4096).unwrap();
        assert_eq!((kernel.name.as_str(), kernel.note), ("6.18+page=4K", None));
        let newer = rules("8.1.0-1-amd64", 4096).unwrap();
        assert_eq!(newer.name, "7.3+page=4K");
        assert!(newer.note.unwrap().starts_with("Linux 8.1 is newer than the kernels"));
    }

    #[test]
    fn this_kernel_has_nearest_rules() {
        let page = rustix::param::page_size() >> 10;
        assert!(nearest_rules().unwrap().name.ends_with(&format!("+page={page}K")));
    }
}

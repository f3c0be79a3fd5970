//! Chooses the known kernel for a version without its own file.

use super::{Kernel, version};

pub(super) struct Nearest {
    pub(super) base: &'static str,
    pub(super) is_newer: bool,
    pub(super) note: Option<String>,
}

impl Nearest {
    pub(super) fn to_release(release: &str) -> Option<Self> {
        let wanted = version(release)?;
        let known = || Kernel::names().filter_map(|name| Some((version(name)?, name)));
        let (newest, _) = known().max()?;
        let not_newer = known().filter(|(known, _)| *known <= wanted).max();
        let (nearest, base) = not_newer.or_else(|| known().min())?;
        let how = if wanted > newest {
            "newer than the kernels"
        } else if nearest > wanted {
            "older than the kernels"
        } else {
            "not among the kernels"
        };
        let (major, minor) = wanted;
        let note =
            format!("Linux {major}.{minor} is {how} this version knows; using the rules of {base}");
        Some(Self { base, is_newer: nearest > wanted, note: (nearest != wanted).then_some(note) })
    }

    /// Returns the newest known kernel if `name` is the bare number of a newer version: `7.4`.
    pub(super) fn to_newer(name: &str) -> Option<Self> {
        let is_number = |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit());
        let (major, minor) = name.split_once('.')?;
        if !is_number(major) || !is_number(minor) {
            return None;
        }
        let newest = Kernel::names().filter_map(version).max()?;
        version(name).filter(|wanted| *wanted > newest).and_then(|_| Self::to_release(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(release: &str) -> (String, Option<String>) {
        let kernel = Kernel::of_release(release, 16384).unwrap().unwrap();
        (kernel.name, kernel.note)
    }

    #[test]
    fn a_newer_kernel_gets_the_newest_rules_and_is_told_so() {
        for (release, version) in [("7.4.1-1-amd64", "7.4"), ("8.0.0", "8.0"), ("10.2-rc1", "10.2")]
        {
            let (name, note) = of(release);
            assert_eq!(name, "7.3+page=16K", "{release}");
            let expected = format!(
                "Linux {version} is newer than the kernels this version knows; using the rules of \
                 7.3"
            );
            assert_eq!(note, Some(expected), "{release}");
        }
    }

    #[test]
    fn a_version_between_two_known_ones_is_told_whose_rules_it_gets() {
        let (name, note) = of("6.13.2");
        assert_eq!(name, "6.12+page=16K");
        let expected = "Linux 6.13 is not among the kernels this version knows; using the rules of \
                        6.12";
        assert_eq!(note.as_deref(), Some(expected));
    }

    #[test]
    fn nothing_is_said_of_a_known_version() {
        for release in ["7.3.4+deb13-cloud-amd64", "6.18.44", "6.1.0-50-cloud-amd64"] {
            assert_eq!(of(release).1, None, "{release}");
        }
        assert_eq!(Kernel::parse("7.3+page=16K").unwrap().note, None);
    }

    #[test]
    fn an_older_kernel_has_rules_only_for_who_asks_for_the_nearest() {
        assert!(Kernel::of_release("5.10.0", 4096).is_none());
        let nearest = Kernel::nearest_to_release("5.10.0", 4096).unwrap().unwrap();
        assert_eq!(nearest.name, "5.14+page=4K");
        assert!(nearest.note.unwrap().starts_with("Linux 5.10 is older than the kernels"));
        assert!(Kernel::nearest_to_release("weird", 4096).is_none());
    }

    #[test]
    fn only_a_bare_number_names_a_newer_kernel() {
        let newer = Kernel::parse("7.4+clear=posted").unwrap();
        assert_eq!(newer, Kernel::parse("7.3+clear=posted").unwrap());
        assert!(newer.note.is_some());
        for name in ["7.4.1", "7.4-rc1", "6.81", "7.", ".4", "7.4x", "99999999999.1"] {
            assert!(Kernel::parse(name).is_err(), "{name}");
        }
    }
}

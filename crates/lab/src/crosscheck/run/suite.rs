//! The hand-written scripts (`crates/lab/scripts.toml`), and which of them are known to differ.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::script::Script;

const TEXT: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts.toml"));
/// The key of differences under all settings.
const ANY: &str = "any";

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    scripts: BTreeMap<String, String>,
    #[serde(default)]
    different: BTreeMap<String, BTreeMap<String, String>>,
}

#[derive(Clone, Debug, Default)]
pub struct Suite {
    /// By name.
    pub scripts: BTreeMap<String, Script>,
    different: BTreeMap<String, BTreeMap<String, String>>,
}

impl Suite {
    /// Reads the scripts of this build.
    ///
    /// # Errors
    /// A script that cannot be parsed, or a difference of one that does not exist.
    pub fn built_in() -> Result<Self, String> {
        let file: File = toml::from_str(TEXT).map_err(|error| error.to_string())?;
        let parsed = file.scripts.into_iter().map(|(name, text)| {
            let script = text.parse().map_err(|error| format!("{name}: {error}"))?;
            Ok((name, script))
        });
        let scripts: BTreeMap<String, Script> = parsed.collect::<Result<_, String>>()?;
        let named = file.different.values().flat_map(BTreeMap::keys);
        if let Some(unknown) = named.into_iter().find(|name| !scripts.contains_key(*name)) {
            return Err(format!("no script is called {unknown}"));
        }
        Ok(Self { scripts, different: file.different })
    }

    /// Why a script is known to differ under these settings or on this filesystem.
    #[must_use]
    pub fn known(&self, name: &str, settings: &str, filesystem: &str) -> Option<&str> {
        let of = |key: &str| self.different.get(key)?.get(name);
        [settings, filesystem, ANY].into_iter().find_map(of).map(String::as_str)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_scripts_of_the_suite_are_whole() {
        let suite = Suite::built_in().unwrap();
        assert!(suite.scripts.len() >= 150, "{}", suite.scripts.len());
        for (name, script) in &suite.scripts {
            assert_eq!(script.to_string().parse::<Script>().as_ref(), Ok(script), "{name}");
        }
        assert_eq!(suite.known("no-such-script", "always", "ext4"), None);
    }
}

//! Profiles: recommended settings with reasons, as data.

use serde::Deserialize;

use super::TuneError;

const BUILTIN: [(&str, &str); 2] = [
    ("large", include_str!("../../tunings/large.toml")),
    ("large-always", include_str!("../../tunings/large-always.toml")),
];

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    pub description: String,
    #[serde(rename = "setting")]
    pub wishes: Vec<Wish>,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Wish {
    /// Name in the catalog. `readahead` alone means every disk with a mounted filesystem.
    pub name: String,
    #[serde(rename = "instead-of", default)]
    pub instead_of: Vec<String>,
    pub value: Option<String>,
    #[serde(rename = "at-least")]
    pub at_least: Option<u64>,
    pub why: String,
}

impl Profile {
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILTIN.iter().map(|(name, _)| *name)
    }

    /// # Errors
    /// [`TuneError::Profile`] lists the built-in names.
    pub fn named(name: &str) -> Result<Self, TuneError> {
        let Some((_, text)) = BUILTIN.iter().find(|(known, _)| *known == name) else {
            let known: Vec<_> = Self::names().collect();
            return Err(TuneError::Profile {
                file: name.to_owned(),
                message: format!(
                    "no such profile; use {}, or the path of a TOML file",
                    known.join(", ")
                ),
            });
        };
        Self::parse(name, text)
    }

    /// Parses the profile in `text`, which came from `file`.
    ///
    /// # Errors
    /// [`TuneError::Profile`] with the line.
    pub fn parse(file: &str, text: &str) -> Result<Self, TuneError> {
        let error = |message: String| TuneError::Profile { file: file.to_owned(), message };
        let profile: Self =
            toml::from_str(text).map_err(|cause| error(cause.to_string().trim().to_owned()))?;
        for wish in &profile.wishes {
            match (&wish.value, wish.at_least) {
                (Some(_), None) | (None, Some(_)) => {}
                _ => {
                    return Err(error(format!(
                        "setting {:?}: expected either value = \"..\" with instead-of = [..], or \
                         at-least = NUMBER",
                        wish.name
                    )));
                }
            }
        }
        Ok(profile)
    }
}

impl Wish {
    #[must_use]
    pub fn of(&self, now: &str) -> Option<String> {
        if let Some(least) = self.at_least {
            let is_below = now.parse::<u64>().is_ok_and(|number| number < least);
            return is_below.then(|| least.to_string());
        }
        let value = self.value.as_ref().filter(|value| *value != now)?;
        self.instead_of.iter().any(|old| old == now).then(|| value.clone())
    }
}

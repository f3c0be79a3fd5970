//! A service's existing variables: a new drop-in must not remove their options.
//!
//! Owns `Environment=` and `EnvironmentFile=`; [`super::service`] reads them.
//!
//! Invariant D1: a value that cannot be read exactly, such as one with a specifier (`%i`), is
//! refused instead of merged.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use largefolio_trace::disk::read_whole;

use super::PersistError;
use super::place::ServiceName;
use super::service::{self, Setting, UNIT_BYTES_MAX};
use super::unit::Variable;
use crate::program::start::variable::merged;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Variables {
    /// By name, as in the files. An error if only systemd can expand it.
    values: BTreeMap<String, Result<String, String>>,
    files: Vec<PathBuf>,
    unit: Option<ServiceName>,
    /// `Environment=` lines that systemd reads after folio's drop-in.
    later: Vec<Setting>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    pub variable: Variable,
    /// A note for the user, empty if the unit does not set the variable.
    pub note: String,
}

impl Variables {
    #[must_use]
    pub fn of(unit: &ServiceName, root: &Path) -> Self {
        let mut variables = Self { unit: Some(unit.clone()), ..Self::default() };
        for setting in service::settings(unit, root) {
            match (setting.key.as_str(), setting.value.as_str()) {
                ("Environment", _) if setting.is_later => variables.later.push(setting),
                ("Environment", "") => variables.values.clear(),
                ("Environment", value) => variables.assign(value),
                ("EnvironmentFile", "") => variables.files.clear(),
                ("EnvironmentFile", file) => {
                    variables.files.push(file.strip_prefix('-').unwrap_or(file).into());
                }
                _ => {}
            }
        }
        variables
    }

    fn assign(&mut self, value: &str) {
        for word in split_words(value) {
            let Some((name, value)) = word.split_once('=') else { continue };
            self.values.insert(name.to_owned(), expanded(value));
        }
    }

    /// Merges a variable with the options that the unit sets in it.
    ///
    /// # Errors
    /// A value that only systemd can expand, or a file that overrides the variable.
    pub fn join(&self, variable: Variable, root: &Path) -> Result<Joined, PersistError> {
        let (name, wanted) = (variable.name().to_owned(), variable.value().to_owned());
        let is_overruled = |later: &&Setting| {
            let words = split_words(&later.value);
            // An empty value removes all variables.
            words.is_empty() || words.iter().any(|word| word.split('=').next() == Some(&*name))
        };
        if let Some((later, unit)) = self.later.iter().find(is_overruled).zip(self.unit.as_ref()) {
            return Err(service::overruled(later, unit, &name));
        }
        let overruling = self.files.iter().find(|file| has_variable(&below(root, file), &name));
        if let Some(file) = overruling {
            return Err(given(
                &name,
                format!(
                    "the unit reads {} (EnvironmentFile=), whose {name} overrides this value; \
                     change it there",
                    file.display()
                ),
            ));
        }
        let Some(old) = self.values.get(&name) else {
            return Ok(Joined { variable, note: String::new() });
        };
        let old = old.as_ref().map_err(|raw| given(&name, format!(
            "the unit sets {name}={raw}, and only systemd can expand the %; write the whole value \
             with systemctl edit"
        )))?;
        let new = merged(&name, Some(OsStr::new(old)), &wanted).value;
        let value = OsString::into_string(new).unwrap_or(wanted);
        let note = match value {
            _ if *old == value => format!("the unit already sets {name}={old}"),
            _ => format!("the unit sets {name}={old}; this changes it to {name}={value}"),
        };
        Ok(Joined { variable: Variable::parse(&format!("{name}={value}"))?, note })
    }
}

fn given(name: &str, message: String) -> PersistError {
    PersistError::Given { what: format!("variable {name:?}"), message }
}

fn below(root: &Path, file: &Path) -> PathBuf {
    root.join(file.strip_prefix("/").unwrap_or(file))
}

fn has_variable(file: &Path, name: &str) -> bool {
    let text = read_whole(file, UNIT_BYTES_MAX).unwrap_or_default();
    let text = String::from_utf8_lossy(&text);
    let mut lines = text.lines().map(str::trim_start);
    lines.any(|line| line.split_once('=').is_some_and(|(key, _)| key.trim_end() == name))
}

/// Splits a value at blanks, except in quotes and after backslashes.
fn split_words(value: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), None::<String>, None);
    let mut rest = value.chars();
    while let Some(c) = rest.next() {
        match c {
            '\\' => word.get_or_insert_default().extend(rest.next()),
            _ if quote == Some(c) => quote = None,
            '"' | '\'' if quote.is_none() => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            _ if c.is_ascii_whitespace() && quote.is_none() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}

/// Replaces `%%` by `%`. Returns the value as an error if it has a specifier.
fn expanded(value: &str) -> Result<String, String> {
    let plain = value.replace("%%", "");
    if plain.contains('%') { Err(value.to_owned()) } else { Ok(value.replace("%%", "%")) }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn place(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let path = root.path().join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    fn joined(files: &[(&str, &str)], variable: &str) -> Result<(String, String), String> {
        let root = place(files);
        let unit = ServiceName::of_service("job", root.path()).unwrap();
        let variables = Variables::of(&unit, root.path());
        let joined = variables.join(Variable::parse(variable).unwrap(), root.path());
        let joined = joined.map_err(|error| error.to_string())?;
        Ok((joined.variable.value().to_owned(), joined.note))
    }

    const UNIT: &str = "usr/lib/systemd/system/job.service";
    const TUNABLE: &str = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1";

    #[test]
    fn options_of_the_unit_stay() {
        let of = |environment: &str| {
            joined(&[(UNIT, &format!("[Service]\n{environment}\n"))], TUNABLE).unwrap()
        };
        assert_eq!(of(""), ("glibc.malloc.hugetlb=1".to_owned(), String::new()));
        let both = "glibc.pthread.rseq=0:glibc.malloc.hugetlb=1";
        let (value, note) = of("Environment=A=1 GLIBC_TUNABLES=glibc.pthread.rseq=0 B=2");
        assert_eq!(value, both);
        assert!(note.contains("=glibc.pthread.rseq=0; this changes it to"), "{note}");
        assert_eq!(of("Environment=\"GLIBC_TUNABLES=glibc.pthread.rseq=0\"").0, both);
        let (value, note) = of(&format!("Environment=GLIBC_TUNABLES={both}"));
        assert!(value == both && note.contains("already"), "{note}");
        assert_eq!(of("Environment=GLIBC_TUNABLES=a=1\nEnvironment=").0, "glibc.malloc.hugetlb=1");
        assert_eq!(of("Environment=A=1 \\\n GLIBC_TUNABLES=a=1").0, "a=1:glibc.malloc.hugetlb=1");
    }

    #[test]
    fn drop_ins_come_after_the_unit_and_ours_does_not_count() {
        let drop_in = |name: &str| format!("etc/systemd/system/job.service.d/{name}.conf");
        let (first, last) = (drop_in("10-a"), drop_in("90-b"));
        let (ours, text) =
            (drop_in("50-largefolio"), "[Service]\nEnvironment=GLIBC_TUNABLES=c=1\n");
        let files = [
            (
                UNIT,
                "[Service]\nEnvironment=GLIBC_TUNABLES=x=1\n[Unit]\nEnvironment=GLIBC_TUNABLES=y=1",
            ),
            (first.as_str(), "[Service]\nEnvironment=GLIBC_TUNABLES=a=1\n"),
            (ours.as_str(), text),
        ];
        for (later, is_refused) in
            [("'GLIBC_TUNABLES=b=1'", true), ("", true), ("GLIBC_TUNABLES_X=1", false)]
        {
            let text = format!("[Service]\nEnvironment={later}\n");
            let files = [files[0], files[1], (last.as_str(), &text), files[2]];
            match joined(&files, TUNABLE) {
                Err(error) => {
                    assert!(is_refused && error.contains("90-b.conf: it sets"), "{error}");
                }
                Ok((value, _)) => {
                    assert!(!is_refused && value == "a=1:glibc.malloc.hugetlb=1", "{value}");
                }
            }
        }
    }

    #[test]
    fn what_cannot_be_joined_is_refused_with_its_reason() {
        let unit =
            "[Service]\nEnvironment=GLIBC_TUNABLES=a=%i\nEnvironmentFile=-/etc/default/job\n";
        let error = joined(&[(UNIT, unit)], TUNABLE).unwrap_err();
        assert!(error.contains("a=%i") && error.contains("systemctl edit"), "{error}");
        let files = [(UNIT, unit), ("etc/default/job", "X=1\nGLIBC_TUNABLES=a=1\n")];
        let error = joined(&files, TUNABLE).unwrap_err();
        assert!(error.contains("EnvironmentFile="), "{error}");
        assert_eq!(joined(&files, "MALLOC_CONF=thp:always").unwrap().0, "thp:always");
    }

    #[test]
    fn words_and_quotes_are_systemds() {
        assert_eq!(
            split_words(r#" A=1  "B=a b" 'C=x"y' D=a\"b ""#),
            ["A=1", "B=a b", "C=x\"y", "D=a\"b", ""]
        );
        assert_eq!(expanded("100%%"), Ok("100%".to_owned()));
    }
}

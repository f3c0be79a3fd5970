//! Adds an option to an environment variable without losing the value it has.
//!
//! Owns how the variables for allocators and runtimes list their options. In all of them, the last
//! value for an option counts.
//!
//! Invariants:
//! - V1: the result keeps every old option that the new value does not set again, unchanged and in
//!   order.
//! - V2: a value with the option already in effect is returned unchanged.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Merged {
    pub value: OsString,
    pub is_in_effect: bool,
    /// The old options that the new value replaces, as written.
    pub replaced: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// `name=value:name=value`, with these two separators.
    Pairs {
        separator: u8,
        assign: u8,
    },
    List,
    Whole,
}

impl Form {
    fn of(name: &str) -> Self {
        match name {
            "GLIBC_TUNABLES" => Self::Pairs { separator: b':', assign: b'=' },
            "GODEBUG" => Self::Pairs { separator: b',', assign: b'=' },
            _ if name.ends_with("MALLOC_CONF") => Self::Pairs { separator: b',', assign: b':' },
            _ if name.ends_with("_OPTIONS") => Self::List,
            _ => Self::Whole,
        }
    }

    fn parts(self, value: &[u8]) -> Vec<&[u8]> {
        match self {
            Self::Pairs { separator, .. } => value.split(|&byte| byte == separator).collect(),
            Self::List => value.split(u8::is_ascii_whitespace).collect(),
            Self::Whole => vec![value],
        }
    }

    fn key(self, part: &[u8]) -> &[u8] {
        match self {
            Self::Pairs { assign, .. } => {
                let end = part.iter().position(|&byte| byte == assign);
                &part[..end.unwrap_or(part.len())]
            }
            Self::List => switch(part),
            Self::Whole => b"",
        }
    }
}

/// Removes the on/off sign: `-XX:+Name` and `-XX:-Name` are one option.
pub(super) fn switch(word: &[u8]) -> &[u8] {
    let name = |sign: &str| word.strip_prefix(sign.as_bytes());
    name("-XX:+").or_else(|| name("-XX:-")).unwrap_or(word)
}

#[must_use]
pub fn merged(name: &str, old: Option<&OsStr>, wanted: &str) -> Merged {
    let form = Form::of(name);
    let old = old.map_or(&b""[..], OsStr::as_bytes);
    let (parts, new) = (form.parts(old), form.parts(wanted.as_bytes()));
    let last = |key| parts.iter().rev().find(|part| form.key(part) == key);
    if new.iter().all(|part| last(form.key(part)) == Some(part)) {
        let value = OsStr::from_bytes(old).to_owned();
        return Merged { value, is_in_effect: true, replaced: Vec::new() };
    }
    let is_again = |part: &&[u8]| {
        !part.is_empty() && new.iter().any(|one| form.key(one) == form.key(part) && one != part)
    };
    let replaced = parts.iter().filter(|part| is_again(part));
    let replaced = replaced.map(|part| String::from_utf8_lossy(part).into_owned()).collect();
    let value = OsString::from_vec(joined(form, old, &parts, &new));
    Merged { value, is_in_effect: false, replaced }
}

fn joined(form: Form, old: &[u8], parts: &[&[u8]], new: &[&[u8]]) -> Vec<u8> {
    let wanted = |separator: u8| new.join(&separator);
    match form {
        Form::Pairs { separator, .. } => {
            let is_new = |part: &[u8]| new.iter().any(|one| form.key(one) == form.key(part));
            let kept = parts.iter().filter(|part| !part.is_empty() && !is_new(part));
            let all: Vec<&[u8]> = kept.copied().chain(new.iter().copied()).collect();
            all.join(&separator)
        }
        // Quotes can join words, so the old value is not parsed.
        Form::List if !old.trim_ascii().is_empty() => [old, &wanted(b' ')].join(&b' '),
        Form::List | Form::Whole => wanted(b' '),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TUNABLE: &str = "glibc.malloc.hugetlb=1";

    fn of(name: &str, old: &str, wanted: &str) -> (String, bool, Vec<String>) {
        let Merged { value, is_in_effect, replaced } = merged(name, Some(OsStr::new(old)), wanted);
        (value.into_string().unwrap(), is_in_effect, replaced)
    }

    #[test]
    fn an_option_joins_those_of_the_caller() {
        let glibc = |old| of("GLIBC_TUNABLES", old, TUNABLE).0;
        assert_eq!(glibc(""), TUNABLE);
        assert_eq!(glibc("glibc.pthread.rseq=0"), format!("glibc.pthread.rseq=0:{TUNABLE}"));
        assert_eq!(of("MALLOC_CONF", "prof:true", "thp:always").0, "prof:true,thp:always");
        assert_eq!(of("_RJEM_MALLOC_CONF", "a:b", "thp:always").0, "a:b,thp:always");
        assert_eq!(of("PYTHONMALLOC", "debug", "malloc").0, "malloc");
        assert_eq!(of("JAVA_TOOL_OPTIONS", "-Da='b c'", "-XX:+X").0, "-Da='b c' -XX:+X");
        assert_eq!(merged("GLIBC_TUNABLES", None, TUNABLE).value, TUNABLE);
    }

    #[test]
    fn an_option_in_effect_is_known_and_the_last_value_counts() {
        let both = format!("{TUNABLE}:glibc.malloc.check=3");
        assert_eq!(of("GLIBC_TUNABLES", &both, TUNABLE), (both.clone(), true, vec![]));
        let off = of("GLIBC_TUNABLES", &format!("{TUNABLE}:glibc.malloc.hugetlb=0"), TUNABLE);
        assert_eq!(off, (TUNABLE.to_owned(), false, vec!["glibc.malloc.hugetlb=0".to_owned()]));
        assert!(of("MALLOC_CONF", "thp:never,thp:always", "thp:always").1);
        let java = |old| of("JAVA_TOOL_OPTIONS", old, "-XX:+UseTransparentHugePages");
        assert!(java("-Xmx1g  -XX:+UseTransparentHugePages -Xms1g").1);
        let off = java("-XX:-UseTransparentHugePages");
        assert!(!off.1 && off.0.ends_with(" -XX:+UseTransparentHugePages"), "{off:?}");
        assert_eq!(off.2, ["-XX:-UseTransparentHugePages"]);
        assert!(!java("-XX:+UseTransparentHugePagesX").1);
    }

    proptest! {
        #[test]
        fn every_other_option_survives_in_its_order(
            others in proptest::collection::vec(("[a-f]{1,3}", "[0-9x]{0,2}"), 0..6),
            at in 0_usize..6,
            own in proptest::option::of(0_u8..3),
        ) {
            let mut parts: Vec<String> =
                others.iter().map(|(key, value)| format!("{key}={value}")).collect();
            let kept = parts.clone();
            if let Some(value) = own {
                parts.insert(at.min(parts.len()), format!("glibc.malloc.hugetlb={value}"));
            }
            let (value, is_in_effect, _) = of("GLIBC_TUNABLES", &parts.join(":"), TUNABLE);
            prop_assert_eq!(is_in_effect, own == Some(1));
            let got: Vec<&str> = value.split(':').collect();
            let others: Vec<&str> =
                got.iter().copied().filter(|part| *part != TUNABLE).collect();
            prop_assert_eq!(others, kept);
            prop_assert_eq!(got.iter().filter(|part| **part == TUNABLE).count(), 1);
        }
    }
}

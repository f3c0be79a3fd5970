//! A workload described by the user.

use super::super::error::CrosscheckError;
use super::super::workloads::{Filesystem, Workload};

pub(in super::super) const OWN_FILE: &str = "own";
/// The limit of the probe's page map with base pages of 4 KiB.
const OWN_BYTES_MAX: u64 = 4 << 30;
const OWN_BYTES: u64 = 64 << 20;
/// The step limit; at 1.5 ms each these take a few minutes.
const NR_STEPS_MAX: u64 = 100_000;

const PROTS: [&str; 4] = ["r", "rx", "rxc", "rw"];
const SHARES: [&str; 3] = ["shared", "private", "none"];
const ADVICES: [&str; 7] = ["plain", "huge", "nohuge", "random", "seq", "hugerandom", "hugeseq"];
const NUMBERS: [&str; 7] = ["n", "seed", "first", "pages", "skew", "opens", "settle"];
/// Keys with values that only the probe parses.
const FREE: [&str; 3] = ["pattern", "ops", "also"];

/// A workload given as `key=value` words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Custom {
    settings: Vec<(String, String)>,
    pub(super) own_bytes: u64,
}

impl Custom {
    pub(super) fn empty(own_bytes: u64) -> Self {
        Self { settings: Vec::new(), own_bytes }
    }

    /// Checks the words: `prot=r advice=huge pattern=stride7 n=100 file=64M`.
    ///
    /// # Errors
    /// The first invalid word, and the legal values.
    pub fn parse(arguments: &[String]) -> Result<Self, CrosscheckError> {
        let mut custom = Self::empty(OWN_BYTES);
        for word in arguments {
            let failed = |what: String| CrosscheckError::Word { word: word.clone(), what };
            let (key, value) = word
                .split_once('=')
                .ok_or_else(|| failed("expected key=value, such as pattern=stride7".to_owned()))?;
            if key == "file" {
                custom.own_bytes = bytes(value).map_err(failed)?;
                continue;
            }
            check(key, value).map_err(failed)?;
            custom.set(key, value);
        }
        if custom.get("pattern").is_none() {
            let what = "needs a pattern, such as pattern=seq, stride7, rand or read4096";
            let word = arguments.join(" ");
            return Err(CrosscheckError::Word { word, what: what.to_owned() });
        }
        custom.complete();
        Ok(custom)
    }

    pub(super) fn complete(&mut self) {
        let is_reading = self.get("pattern").is_some_and(|pattern| pattern.starts_with("read"));
        if is_reading && self.get("prot").is_none() {
            self.set("map", "none");
        }
        if self.get("map").is_none() {
            let is_private = matches!(self.get("prot"), Some("rx" | "rxc"));
            self.set("map", if is_private { "private" } else { "shared" });
        }
        self.set("file", OWN_FILE);
    }

    fn get(&self, key: &str) -> Option<&str> {
        self.settings.iter().find(|(known, _)| known == key).map(|(_, value)| value.as_str())
    }

    pub(super) fn set(&mut self, key: &str, value: &str) {
        self.settings.retain(|(known, _)| known != key);
        self.settings.push((key.to_owned(), value.to_owned()));
    }

    pub(super) fn workload(&self, filesystem: Filesystem, window_kb: u64) -> Workload {
        let or = |key, default| self.get(key).unwrap_or(default);
        let prot = if self.get("map") == Some("none") { "read" } else { or("prot", "r") };
        let (advice, pattern, seed) =
            (or("advice", "plain"), or("pattern", "seq"), or("seed", "0"));
        let name = format!("{filesystem}_ra{window_kb}_{prot}_{advice}_{pattern}_s{seed}");
        let arguments = self.settings.clone();
        Workload { name, filesystem, window_kb, settings: arguments, own_bytes: self.own_bytes }
    }
}

fn check(key: &str, value: &str) -> Result<(), String> {
    let one_of = |known: &[&str]| {
        let is_known = known.contains(&value);
        if is_known { Ok(()) } else { Err(format!("{key} must be one of {}", known.join(", "))) }
    };
    match key {
        "prot" => one_of(&PROTS),
        "map" => one_of(&SHARES),
        "advice" => one_of(&ADVICES),
        _ if NUMBERS.contains(&key) => {
            let value: u64 = value.parse().map_err(|_| format!("{key} must be a number"))?;
            let is_long = key == "n" && value > NR_STEPS_MAX;
            if is_long { Err(format!("n must be at most {NR_STEPS_MAX}")) } else { Ok(()) }
        }
        _ if FREE.contains(&key) => {
            let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b".+,:/".contains(&byte);
            if value.bytes().all(is_plain) && !value.is_empty() {
                Ok(())
            } else {
                Err(format!("{key} can contain only letters, digits and .+,:/"))
            }
        }
        _ => {
            let known = [&["prot", "map", "advice", "file"][..], &NUMBERS, &FREE].concat();
            Err(format!("unknown key; known: {}", known.join(", ")))
        }
    }
}

/// Parses `64M`: 1 page to 4 GiB.
fn bytes(value: &str) -> Result<u64, String> {
    let (digits, unit) = match value.as_bytes().last() {
        Some(b'K' | b'k') => (&value[..value.len() - 1], 10),
        Some(b'M' | b'm') => (&value[..value.len() - 1], 20),
        Some(b'G' | b'g') => (&value[..value.len() - 1], 30),
        _ => (value, 0),
    };
    let bytes = digits.parse::<u64>().ok().and_then(|n| n.checked_mul(1 << unit));
    bytes
        .filter(|bytes| (1..=OWN_BYTES_MAX).contains(bytes))
        .ok_or_else(|| "file is a size from 1 to 4G, such as 64M".to_owned())
}

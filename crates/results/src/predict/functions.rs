//! The names of the code that causes page walks, from the program's files on this machine.
//!
//! A file counts only if it has the recorded build id. So the names are the same on every machine
//! that has the file, and absent elsewhere.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::ops::Range;
use std::path::Path;

use cpp_demangle::DemangleOptions;
use largefolio_linux::elf::symbols;
use largefolio_sim::replay::Outcome;
use largefolio_sim::replay::regions::CODE_BYTES;
use largefolio_trace::Meta;
use serde::Serialize;

use crate::remark::Remark;

/// Pages of code per row that are looked up, those with the most walks.
const NR_PAGES_MAX: usize = 64;
/// Longest name in bytes. Templates have names of many kilobytes.
const NAME_BYTES_MAX: usize = 512;

/// The functions on a page of code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Functions {
    pub path: String,
    /// The page's position in the file, in bytes.
    pub pos: u64,
    /// By address; empty if the file has no names for this page.
    pub names: Vec<String>,
}

/// Names that were found, and why others were not.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Named {
    pub functions: Vec<Functions>,
    /// One sentence per file without names.
    pub missing: Vec<Remark>,
}

impl Named {
    /// Looks up the code of the rows that say where walks are.
    #[must_use]
    pub fn of(rows: &[Outcome], meta: &Meta) -> Self {
        let regions = rows.iter().filter_map(|row| row.regions.as_ref());
        let pages = regions.flat_map(|regions| regions.code.iter().take(NR_PAGES_MAX));
        let mut by_file: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        for page in pages.filter(|page| !page.path.is_empty()) {
            by_file.entry(&page.path).or_default().push(page.pos);
        }
        let mut named = Self::default();
        for (path, mut positions) in by_file {
            positions.sort_unstable();
            positions.dedup();
            match looked_up(path, meta, &positions) {
                Ok(functions) => named.functions.extend(functions),
                Err(why) => named.missing.push(Remark::Warning(why)),
            }
        }
        named
    }
}

fn looked_up(path: &str, meta: &Meta, positions: &[u64]) -> Result<Vec<Functions>, String> {
    let shown = largefolio_trace::shown(Path::new(path));
    let build_id = meta.files.iter().find(|file| file.path == path).map(|file| &file.build_id);
    let Some(build_id) = build_id.filter(|id| !id.is_empty()) else {
        return Err(format!("{shown} has no build id, so its functions have no names"));
    };
    let places: Vec<Range<u64>> =
        positions.iter().map(|&pos| pos..pos.saturating_add(CODE_BYTES)).collect();
    let names = match symbols::functions(Path::new(path), build_id, &places) {
        Ok(Some(names)) => names,
        Ok(None) => return Err(format!("{shown} here is another version than the recorded one")),
        Err(error) => return Err(format!("no names of functions: {error}")),
    };
    if names.iter().all(Vec::is_empty) {
        return Err(format!("{shown} has no names for this code; install its symbols"));
    }
    let functions = positions.iter().zip(names).map(|(&pos, names)| {
        let names = names.iter().map(|name| readable(name)).collect();
        Functions { path: path.to_owned(), pos, names }
    });
    Ok(functions.collect())
}

/// Returns the name as in the source, without parameters, cut to a limit.
fn readable(symbol: &str) -> String {
    let mut name = Bounded(String::new());
    // An error means that the limit was reached.
    let _ = match (rustc_demangle::try_demangle(symbol), cpp_demangle::Symbol::new(symbol)) {
        (Ok(rust), _) => write!(name, "{rust:#}"),
        (Err(_), Ok(cpp)) => {
            cpp.structured_demangle(&mut name, &DemangleOptions::new().no_params())
        }
        (Err(_), Err(_)) => name.write_str(symbol),
    };
    name.0
}

/// Text that takes no more than [`NAME_BYTES_MAX`]: a short symbol can stand for a name without
/// end.
struct Bounded(String);

impl fmt::Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        let room = NAME_BYTES_MAX - self.0.len();
        self.0.push_str(&text[..text.floor_char_boundary(room)]);
        if text.len() > room { Err(fmt::Error) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_as_in_the_source_and_bounded() {
        assert_eq!(readable("_ZN8opt_passC1ERK9pass_dataPN3gcc7contextE"), "opt_pass::opt_pass");
        assert_eq!(readable("_RNvC6_123foo3bar"), "123foo::bar");
        assert_eq!(readable("malloc"), "malloc");
        assert_eq!(readable("_Zbroken\u{e9}"), "_Zbroken\u{e9}");
        let long = format!("_Z{}", "é".repeat(1 << 12));
        assert!(readable(&long).len() <= NAME_BYTES_MAX);
        // Each substitution doubles the name before it.
        let doubling = "_Z1fI".to_owned() + &"1AIS_S_E".repeat(64) + "EvT_";
        assert!(readable(&doubling).len() <= NAME_BYTES_MAX);
    }
}

//! Rules as the leaves of a kernel file's table.

use std::collections::BTreeMap;

use largefolio_mm::rules::Rules;
use toml::{Table, Value};

/// Maps in a kernel file: each entry is a rule. Any other nested table is the value of one rule
/// (`fault.exec = { block = { bytes = 65536 } }`).
const MAPS: [&str; 3] = ["anon.size_kib", "shmem.size_kib", "sizes.filesystems"];

pub(super) type Path = Vec<String>;

pub(super) fn leaves(rules: &Rules) -> Result<BTreeMap<Path, Value>, toml::ser::Error> {
    let mut leaves = BTreeMap::new();
    for (name, value) in Table::try_from(rules)? {
        let Value::Table(below) = value else {
            leaves.insert(vec![name], value);
            continue;
        };
        for (rule, value) in below {
            match value {
                Value::Table(map) if MAPS.contains(&format!("{name}.{rule}").as_str()) => {
                    let path = |key| vec![name.clone(), rule.clone(), key];
                    leaves.extend(map.into_iter().map(|(key, value)| (path(key), value)));
                }
                value => {
                    leaves.insert(vec![name.clone(), rule], value);
                }
            }
        }
    }
    Ok(leaves)
}

pub(super) fn put(table: &mut Table, path: &[String], value: Option<&Value>) {
    match (path, value) {
        ([name], Some(value)) => {
            table.insert(name.clone(), value.clone());
        }
        ([name], None) => {
            table.remove(name);
        }
        ([name, rest @ ..], value) => {
            let below = table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
            if let Value::Table(below) = below {
                put(below, rest, value);
            }
        }
        ([], _) => {}
    }
}

//! Sets one rule by its name in a kernel file: `fault.exec_miss`.
//!
//! Serializes the rules to a kernel file's table, replaces one value, and reads the table back.
//! `serde`'s view of [`Rules`] decides which paths and values are valid. This module does not know
//! any rule.

use largefolio_mm::rules::Rules;
use toml::{Table, Value};

use crate::names::{nearest, or_list};
use crate::size::parse_bytes;

#[derive(Debug)]
pub(super) enum Refused {
    /// No rule has the path. Lists the names in its table, if that table exists.
    Unknown(Option<String>),
    Value(String),
}

pub(super) fn set(rules: &Rules, path: &str, value: &str) -> Result<Rules, Refused> {
    let table = Table::try_from(rules).map_err(|error| Refused::Value(error.to_string()))?;
    let steps: Vec<&str> = path.split('.').collect();
    let mut refusals = Vec::new();
    for value in readings(path, value) {
        for over in [Over::Whatever, Over::OtherVariant] {
            let mut table = Value::Table(table.clone());
            put(&mut table, &steps, &value, over);
            match table.try_into() {
                Ok(rules) => return Ok(rules),
                Err(error) => refusals.push(error.message().to_owned()),
            }
        }
    }
    Err(refused(&table, &steps, &refusals))
}

pub(super) fn single(rules: &Rules) -> Vec<String> {
    let table = Table::try_from(rules).unwrap_or_default();
    table.into_iter().filter(|(_, value)| !value.is_table()).map(|(name, _)| name).collect()
}

/// Returns the TOML values that `value` can mean; a word is a string without quotes. The string
/// comes first, because its error message lists the rule's words.
fn readings(path: &str, value: &str) -> Vec<Value> {
    let mut readings = vec![Value::String(value.to_owned())];
    if let Ok(mut table) = format!("value = {value}").parse::<Table>() {
        readings.extend(table.remove("value"));
    }
    let number = match path {
        _ if path.ends_with("bytes") => parse_bytes(value),
        _ if path.ends_with("_ms") => value.strip_suffix("ms").and_then(|ms| ms.parse().ok()),
        _ => None,
    };
    readings.extend(number.and_then(|number| i64::try_from(number).ok()).map(Value::Integer));
    readings
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Over {
    Whatever,
    /// Replaces a table without the key, because it is another variant of an enum.
    OtherVariant,
}

fn put(at: &mut Value, steps: &[&str], value: &Value, over: Over) {
    let Some((step, rest)) = steps.split_first() else {
        *at = value.clone();
        return;
    };
    let is_kept = |table: &Table| over == Over::Whatever || table.contains_key(*step);
    if !at.as_table().is_some_and(is_kept) {
        *at = Value::Table(Table::new());
    }
    if let Value::Table(table) = at {
        let below = table.entry(*step).or_insert_with(|| Value::Table(Table::new()));
        put(below, rest, value, over);
    }
}

fn refused(table: &Table, steps: &[&str], refusals: &[String]) -> Refused {
    let about = |what: &str| refusals.iter().find(|message| message.starts_with(what));
    if about("unknown field").is_some() {
        return Refused::Unknown(known(table, steps));
    }
    if let ([name], Some(Value::Table(below))) = (steps, steps.first().and_then(|s| table.get(*s)))
    {
        let below = or_list(below.keys().map(String::as_str));
        return Refused::Unknown(Some(format!("{name} is a table, with {below}")));
    }
    let message = about("unknown variant").or(refusals.first()).map_or("", String::as_str);
    let (_, expected) = message.rsplit_once("expected ").unwrap_or(("", message));
    Refused::Value(match expected {
        "u32" | "u64" => "a number".to_owned(),
        "a boolean" => "true or false".to_owned(),
        names => {
            or_list(names.trim_start_matches("one of ").split([',', '`']).filter_map(|word| {
                let word = word.trim();
                (!word.is_empty() && word != "or").then_some(word)
            }))
        }
    })
}

fn known(table: &Table, steps: &[&str]) -> Option<String> {
    let [name, rule, ..] = steps else { return None };
    let Some(Value::Table(below)) = table.get(*name) else {
        let tables = table.iter().filter(|(_, value)| value.is_table());
        return Some(nearest(name, tables.map(|(name, _)| name.as_str())));
    };
    let keys = || below.keys().map(String::as_str);
    let near = nearest(rule, keys());
    if near.starts_with("known") {
        return Some(near);
    }
    Some(format!("{near} {name} has {}", keys().collect::<Vec<_>>().join(", ")))
}

#[cfg(test)]
mod tests;

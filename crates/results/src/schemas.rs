//! JSON Schemas of the results, as `folio schema` prints them and the packages install them.
//!
//! Owns which there are. What is in one is data, `schemas/*.json`; the tests of the command line hold
//! every JSON that they see against it. A schema lets further fields stand: they do not change its
//! version.

macro_rules! schema {
    ($name:literal) => {
        ($name, include_str!(concat!("../schemas/", $name, ".json")))
    };
}

/// Name and text of every schema, by name.
const SCHEMAS: &[(&str, &str)] = &[
    schema!("advise"),
    schema!("advise-process"),
    schema!("bench"),
    schema!("calibrate"),
    schema!("calibrate-check"),
    schema!("collapse"),
    schema!("crosscheck"),
    schema!("crosscheck-programs"),
    schema!("crosscheck-workloads"),
    schema!("maps"),
    schema!("maps-diff"),
    schema!("maps-elf"),
    schema!("predict"),
    schema!("study"),
    schema!("sweep"),
    schema!("trace-cat"),
    schema!("trace-info"),
    schema!("tune"),
    schema!("verify"),
    schema!("warm"),
];

/// Names of the schemas, sorted.
pub fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|(name, _)| *name)
}

/// The text of the schema `name`.
///
/// ```
/// let text = largefolio_results::schemas::text("predict").unwrap();
/// assert!(text.contains("\"title\": \"folio predict --json\""));
/// ```
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

//! JSON Schemas of the results, printed by `folio schema` and installed by the packages.
//!
//! Owns the list of schemas. Their text is data in `schemas/*.json`, and the command line's tests
//! check all their JSON against it. A schema allows further fields, which do not change its
//! version.

macro_rules! schema {
    ($name:literal) => {
        ($name, include_str!(concat!("../schemas/", $name, ".json")))
    };
}

const SCHEMAS: &[(&str, &str)] = &[
    schema!("advise"),
    schema!("advise-process"),
    schema!("calibrate"),
    schema!("calibrate-check"),
    schema!("calibrate-programs"),
    schema!("collapse"),
    schema!("maps"),
    schema!("maps-diff"),
    schema!("maps-elf"),
    schema!("maps-hot"),
    schema!("maps-stalls"),
    schema!("maps-waste"),
    schema!("predict"),
    schema!("sweep"),
    schema!("trace-cat"),
    schema!("trace-info"),
    schema!("tune"),
    schema!("verify"),
    schema!("warm"),
];

pub fn names() -> impl Iterator<Item = &'static str> {
    SCHEMAS.iter().map(|(name, _)| *name)
}

/// Returns the text of the schema `name`.
///
/// ```
/// let text = largefolio_results::schemas::text("predict").unwrap();
/// assert!(text.contains("\"title\": \"folio predict --json\""));
/// ```
#[must_use]
pub fn text(name: &str) -> Option<&'static str> {
    SCHEMAS.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the schema's version; `None` for results without one.
#[must_use]
pub fn version(name: &str) -> Option<u64> {
    let schema: serde_json::Value = serde_json::from_str(text(name)?).ok()?;
    schema.pointer("/properties/schema_version/const")?.as_u64()
}

//! `folio schema`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use largefolio_results::schemas;
use serde::Deserialize;

use crate::console::Console;
use crate::errors::Exit;

/// Print the JSON Schema of a result
///
/// It says which fields the JSON of a verb has, with types and meaning. A later version of folio may
/// add fields; if one goes away or changes its meaning, `schema_version` grows.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio schema                          which there are
  folio schema predict > predict.schema.json")]
pub(crate) struct SchemaArgs {
    /// Which; without a name, all are listed
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(schemas::names()))]
    name: Option<String>,
}

/// Schemas that can be printed.
pub(crate) struct SchemaPlan {
    name: Option<String>,
}

impl SchemaArgs {
    /// One schema, or a list of them.
    pub(crate) fn plan(self) -> SchemaPlan {
        SchemaPlan { name: self.name }
    }
}

/// What the list shows of a schema.
#[derive(Deserialize)]
struct Head {
    title: String,
}

impl SchemaPlan {
    /// Prints it.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        let text = match &self.name {
            Some(name) => schemas::text(name).context("unknown schema")?.to_owned(),
            None => list()?,
        };
        console.deliver(text.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}

/// A line for each schema: its name, and the command whose output it is of.
fn list() -> Result<String> {
    let width = schemas::names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for name in schemas::names() {
        let head: Head = serde_json::from_str(schemas::text(name).context("unknown schema")?)?;
        writeln!(text, "{name:width$}  {}", head.title)?;
    }
    Ok(text)
}

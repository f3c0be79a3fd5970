//! `folio schema`.

use std::fmt::Write as _;

use anyhow::{Context as _, Result};
use clap::Args;
use clap::builder::PossibleValuesParser;
use largefolio_results::schemas;
use serde::Deserialize;

use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Print the JSON Schema of a result
///
/// The schema describes the fields in the JSON output of a verb, with their types and meanings. A
/// later version of folio may add fields; if a field is removed or changes its meaning,
/// `schema_version` increases.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio schema                          lists the schemas
  folio schema predict > predict.schema.json")]
pub(crate) struct SchemaArgs {
    /// Name of the schema; without it, all schemas are listed
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(schemas::names()))]
    name: Option<String>,
}

pub(crate) struct SchemaPlan {
    name: Option<String>,
}

impl VerbArgs for SchemaArgs {
    type Plan = SchemaPlan;

    fn plan(self, _invocation: &Invocation<'_>) -> Result<Self::Plan> {
        Ok(SchemaPlan { name: self.name })
    }
}

#[derive(Deserialize)]
struct Head {
    title: String,
}

impl VerbPlan for SchemaPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let text = match &self.name {
            Some(name) => schemas::text(name).context("unknown schema")?.to_owned(),
            None => list()?,
        };
        console.deliver(text.as_bytes(), None)?;
        Ok(Exit::Done)
    }
}

fn list() -> Result<String> {
    let width = schemas::names().map(str::len).max().unwrap_or(0);
    let mut text = String::new();
    for name in schemas::names() {
        let head: Head = serde_json::from_str(schemas::text(name).context("unknown schema")?)?;
        writeln!(text, "{name:width$}  {}", head.title)?;
    }
    Ok(text)
}

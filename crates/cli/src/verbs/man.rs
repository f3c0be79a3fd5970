//! `folio man`: manual pages, generated from the verbs' help.

mod facts;
mod page;
mod parts;

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, bail};
use clap::{Args, Command};
use largefolio_trace::shown;

use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Print a manual page, or write all of them
///
/// Without --output, prints the manual page for folio or for one verb; pipe it to `man -l -` to
/// view it. If folio is installed, so are its manual pages: try man folio or man folio-predict.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio man predict | man -l -
  folio man trace gen zipf > folio-trace-gen-zipf.1
  folio man -o man1                                 one file for folio and for each verb")]
pub(crate) struct ManArgs {
    /// Verb, optionally with a subcommand [default: folio itself]
    #[arg(value_name = "VERB", conflicts_with = "output")]
    verb: Vec<String>,
    /// Write all pages to this directory, which is created if it is missing
    #[arg(short, long, value_name = "DIR")]
    output: Option<PathBuf>,
}

pub(crate) struct ManPlan {
    /// The commands to render, each parent before its children.
    commands: Vec<Command>,
    verbs: Vec<String>,
    output: Option<PathBuf>,
}

impl VerbArgs for ManArgs {
    type Plan = ManPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        let mut root = (invocation.root)().disable_help_subcommand(true);
        root.build();
        let verbs = root.get_subcommands().map(|verb| verb.get_name().to_owned()).collect();
        if self.output.is_some() {
            return Ok(ManPlan { commands: with_verbs(&root), verbs, output: self.output });
        }
        let mut command = &root;
        for word in &self.verb {
            let Some(subcommand) = command.find_subcommand(word) else {
                let word = shown(word);
                bail!("{} has no verb `{word}`; folio --help lists the verbs", command.get_name());
            };
            command = subcommand;
        }
        Ok(ManPlan { commands: vec![command.clone()], verbs, output: None })
    }
}

fn with_verbs(command: &Command) -> Vec<Command> {
    let shown = command.get_subcommands().filter(|verb| !verb.is_hide_set());
    std::iter::once(command.clone()).chain(shown.flat_map(with_verbs)).collect()
}

impl VerbPlan for ManPlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        let Some(directory) = &self.output else {
            for command in &self.commands {
                console.deliver(&page::render(command, &self.verbs)?, None)?;
            }
            return Ok(Exit::Done);
        };
        let not_made = || format!("cannot make {}", shown(directory));
        fs::create_dir_all(directory).with_context(not_made)?;
        for command in &self.commands {
            let path = directory.join(format!("{}.1", page::name(command)));
            console.deliver(&page::render(command, &self.verbs)?, Some(&path))?;
        }
        Ok(Exit::Done)
    }
}

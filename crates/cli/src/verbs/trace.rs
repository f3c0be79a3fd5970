//! `folio trace`.

mod cat;
mod generate;
mod info;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::console::Console;
use crate::errors::Exit;

/// Look into traces, or generate synthetic ones
#[derive(Args, Debug)]
#[command(subcommand_required = true, arg_required_else_help = true)]
pub(crate) struct TraceArgs {
    #[command(subcommand)]
    verb: TraceVerb,
}

#[derive(Debug, Subcommand)]
enum TraceVerb {
    Info(info::InfoArgs),
    Cat(cat::CatArgs),
    Gen(generate::GenArgs),
}

impl TraceArgs {
    /// Does what was asked for.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        match self.verb {
            TraceVerb::Info(args) => args.plan()?.run(console),
            TraceVerb::Cat(args) => args.plan()?.run(console),
            TraceVerb::Gen(args) => args.plan()?.run(console),
        }
    }
}

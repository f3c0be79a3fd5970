//! `folio trace`.

mod cat;
mod generate;
mod info;

use anyhow::Result;
use clap::{Args, Subcommand};

use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Inspect traces, or generate synthetic ones
#[derive(Args, Debug)]
#[command(
    subcommand_required = true,
    arg_required_else_help = true,
    after_help = "\
Examples:
  folio trace info cc1.folio
  folio trace cat cc1.folio --csv --head 1000 > first.csv
  folio trace gen ret-stubs -o stubs.folio"
)]
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

pub(crate) enum TracePlan {
    Info(Box<info::InfoPlan>),
    Cat(Box<cat::CatPlan>),
    Gen(generate::GenPlan),
}

impl VerbArgs for TraceArgs {
    type Plan = TracePlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        Ok(match self.verb {
            TraceVerb::Info(args) => TracePlan::Info(Box::new(args.plan(invocation)?)),
            TraceVerb::Cat(args) => TracePlan::Cat(Box::new(args.plan(invocation)?)),
            TraceVerb::Gen(args) => TracePlan::Gen(args.plan(invocation)?),
        })
    }
}

impl VerbPlan for TracePlan {
    fn run(self, console: &mut Console) -> Result<Exit> {
        match self {
            Self::Info(plan) => plan.run(console),
            Self::Cat(plan) => plan.run(console),
            Self::Gen(plan) => plan.run(console),
        }
    }
}

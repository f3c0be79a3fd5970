//! The output of a check, and its exit code.

use anyhow::Result;
use clap::Args;
use largefolio_lab::crosscheck::result::{CrosscheckOutcome, CrosscheckResult};
use largefolio_results::{Form, Forms as _};
use largefolio_sim::kernel::Kernel;

use largefolio_cli::console::{self, Console};
use largefolio_cli::errors::Exit;
use largefolio_cli::verbs::names;
use largefolio_cli::verbs::values::FormArgs;

/// The output options.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    #[command(flatten)]
    form: FormArgs,
}

impl OutputArgs {
    pub(super) fn output(self) -> Output {
        Output { form: self.form.form() }
    }
}

/// The option that chooses the rules.
#[derive(Args, Debug)]
pub(super) struct RulesArgs {
    /// Replay under these rules, with edits [default: the recorded kernel's]
    #[arg(long, value_name = "KERNEL", value_parser = names::KERNEL, hide_possible_values = true)]
    kernel: Option<String>,
}

impl RulesArgs {
    pub(super) fn kernel(&self) -> Result<Option<Kernel>> {
        Ok(self
            .kernel
            .as_deref()
            .map(Kernel::parse)
            .transpose()?
            .map(Kernel::without_policy)
            .transpose()?)
    }
}

pub(crate) struct Output {
    form: Form,
}

impl Output {
    pub(super) fn deliver(&self, result: &CrosscheckResult, console: &mut Console) -> Result<Exit> {
        console::remark(&result.remarks());
        console.deliver(result.written(self.form)?.as_bytes(), None)?;
        Ok(if result.nr(CrosscheckOutcome::Different) > 0 {
            Exit::No
        } else if result.nr(CrosscheckOutcome::Failed) > 0
            || result.nr(CrosscheckOutcome::Equal) == 0
        {
            Exit::Error
        } else {
            Exit::Done
        })
    }
}

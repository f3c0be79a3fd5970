//! The output of a check, and its exit code.

use std::path::Path;

use anyhow::Result;
use clap::Args;
use largefolio_results::crosscheck::{CrosscheckOutcome, CrosscheckResult};
use largefolio_results::{Form, Forms as _};
use largefolio_sim::kernel::Kernel;

use crate::console::{self, Console};
use crate::errors::Exit;
use crate::verbs::names;
use crate::verbs::page_file::{self, PageArgs, PageFile};
use crate::verbs::values::FormArgs;

/// The output options.
#[derive(Args, Debug)]
pub(super) struct OutputArgs {
    #[command(flatten)]
    form: FormArgs,
    #[command(flatten)]
    page: PageArgs,
}

impl OutputArgs {
    /// Checks that a page can be written and is not one of `inputs`.
    pub(super) fn output<'a>(self, inputs: impl IntoIterator<Item = &'a Path>) -> Result<Output> {
        Ok(Output { form: self.form.form(), page: self.page.file(inputs)? })
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
    page: Option<PageFile>,
}

impl Output {
    pub(super) fn file(&self) -> Option<&Path> {
        self.page.as_ref().map(PageFile::path)
    }

    pub(super) fn deliver(&self, result: &CrosscheckResult, console: &mut Console) -> Result<Exit> {
        console::remark(&result.remarks());
        let text = result.written(self.form)?;
        page_file::deliver(console, &text, self.page.as_ref(), || result.page())?;
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

//! The verbs. Each has arguments ([`VerbArgs`]), which become a plan ([`VerbPlan`]), which runs.

pub(crate) mod advise;
pub(crate) mod align;
pub(crate) mod calibrate;
pub(crate) mod collapse;
pub(crate) mod completions;
pub mod confined;
mod kernel_policy;
mod lasting;
pub(crate) mod man;
pub(crate) mod maps;
pub mod names;
mod page_file;
pub(crate) mod predict;
pub(crate) mod record;
pub(crate) mod run;
pub mod running;
pub(crate) mod schema;
pub(crate) mod trace;
pub(crate) mod tune;
pub mod values;
pub(crate) mod verify;
pub(crate) mod warm;

use std::ffi::OsString;

use anyhow::Result;
use clap::Command;

use crate::console::{self, Console};
use crate::errors::Exit;

/// The command that the user typed.
#[derive(Clone, Copy)]
pub struct Invocation<'a> {
    pub words: &'a [OsString],
    /// The program's command line, with all verbs.
    pub root: fn() -> Command,
    /// Runs other words as a command of the same program.
    pub execute: fn(&[OsString], &mut Console) -> Result<Exit>,
}

impl Invocation<'_> {
    /// Returns the command line to store in results, with the program's name instead of its path.
    #[must_use]
    pub fn line(&self) -> Vec<String> {
        let further = self.words.iter().skip(1).map(|word| word.to_string_lossy().into_owned());
        std::iter::once(console::program().to_owned()).chain(further).collect()
    }
}

/// A verb's arguments.
pub trait VerbArgs: Sized {
    type Plan: VerbPlan;

    /// Checks before the work begins; does not begin it.
    ///
    /// # Errors
    /// If the arguments contradict each other, or the work cannot succeed.
    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan>;

    /// Plans and runs.
    ///
    /// # Errors
    /// As the plan and its work.
    fn execute(self, invocation: &Invocation<'_>, console: &mut Console) -> Result<Exit> {
        self.plan(invocation)?.run(console)
    }
}

/// A verb's work.
pub trait VerbPlan {
    /// Works and delivers the result.
    ///
    /// # Errors
    /// As the work.
    fn run(self, console: &mut Console) -> Result<Exit>;
}

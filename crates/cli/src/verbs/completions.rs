//! `folio completions`.

use anyhow::Result;
use clap::{Args, Command};
use clap_complete::{Shell, generate};

use crate::console::Console;
use crate::errors::Exit;
use crate::verbs::{Invocation, VerbArgs, VerbPlan};

/// Print the completion script for a shell
///
/// If folio is installed, the scripts for bash, zsh and fish are already in place. For bash,
/// install the package bash-completion as well.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio completions bash > ~/.local/share/bash-completion/completions/folio
  folio completions zsh > ~/.zfunc/_folio           with fpath+=~/.zfunc before compinit
  folio completions fish > ~/.config/fish/completions/folio.fish
  source <(folio completions bash)                  for this shell only")]
pub(crate) struct CompletionsArgs {
    /// Shell to print the script for
    #[arg(value_enum, value_name = "SHELL")]
    shell: Shell,
}

pub(crate) struct CompletionsPlan {
    shell: Shell,
    command: Command,
}

impl VerbArgs for CompletionsArgs {
    type Plan = CompletionsPlan;

    fn plan(self, invocation: &Invocation<'_>) -> Result<Self::Plan> {
        Ok(CompletionsPlan { shell: self.shell, command: (invocation.root)() })
    }
}

impl VerbPlan for CompletionsPlan {
    fn run(mut self, console: &mut Console) -> Result<Exit> {
        let mut script = Vec::new();
        generate(self.shell, &mut self.command, "folio", &mut script);
        console.deliver(&script, None)?;
        Ok(Exit::Done)
    }
}

//! `folio maps`: which folio sizes map a program, and why not larger ones.
//!
//! Today of files (`--elf`, [`elf`]); what `maps` will show of processes becomes a second view
//! beside it.

mod elf;
mod text;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use largefolio_sim::kernel::Kernel;

use super::values::{Form, FormArgs};
use crate::console::Console;
use crate::errors::Exit;

/// Show which folio sizes can map a program's segments, and why not larger ones
///
/// A folio can be mapped by one TLB entry only where it is aligned in memory as it is in the file.
/// For each LOAD segment: how much of it folios of a size can map so, on filesystems that have such
/// folios, and what stands in the way of more, with the linker option that removes it.
#[derive(Args, Debug)]
#[command(after_help = "\
Examples:
  folio maps --elf /usr/bin/python3
  folio maps --elf build/server --kernel 6.12+page=16K
  folio maps --elf /usr/bin /usr/lib --json | jq .summary

Words of the table: a percentage is the part of the segment under naturally aligned folios of that
size, wherever it is loaded; `small` has fewer bytes; `ends` holds no whole block; `offset` address
and file offset disagree; `random` the load address is random in smaller steps; `no folio` no
filesystem has them under this kernel. Sizes: 16K for machines whose TLB merges pages, a contpte
block of arm64, a PMD entry. What a kernel then really reads and maps: folio predict.")]
pub(crate) struct MapsArgs {
    /// Programs and shared objects; of a directory all below it
    #[arg(long, value_name = "FILE", num_args = 1..)]
    elf: Vec<PathBuf>,
    /// Kernel whose rules decide, with edits such as +page=16K
    #[arg(long, value_name = "KERNEL", default_value = "7.2")]
    kernel: String,
    #[command(flatten)]
    form: FormArgs,
}

/// A view that can be made.
pub(crate) struct MapsPlan {
    files: Vec<PathBuf>,
    kernel: Kernel,
    form: Form,
    command_line: Vec<String>,
}

impl MapsArgs {
    /// Checks what is asked for.
    pub(crate) fn plan(self, command_line: Vec<String>) -> Result<MapsPlan> {
        let kernel = Kernel::parse(&self.kernel)?;
        if self.elf.is_empty() {
            bail!(
                "say what to show: --elf FILE.. shows programs and shared objects, such as \
                 folio maps --elf /bin/true; processes cannot be shown yet"
            );
        }
        Ok(MapsPlan { files: self.elf, kernel, form: self.form.form(), command_line })
    }
}

impl MapsPlan {
    /// Reads the files and writes the view.
    pub(crate) fn run(self, console: &mut Console) -> Result<Exit> {
        let view = elf::View::of(&self.kernel, &self.files, self.command_line);
        let result = match self.form {
            Form::Json => serde_json::to_string_pretty(&view)? + "\n",
            Form::Csv => view.csv()?,
            Form::Text => text::of(&view),
        };
        console.deliver(result.as_bytes(), None)?;
        Ok(if view.failed.is_empty() { Exit::Done } else { Exit::Error })
    }
}

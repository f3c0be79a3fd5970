//! Runs a command with its text on shared large folios:
//! `cargo run -p largefolio-linux --example remap -- CMD..`. What became of it goes to stderr.

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitCode};

use largefolio_linux::remap::{Options, Remap, Summary, Voice};

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut options = Options::default();
    if arguments.first().is_some_and(|first| first == "-v") {
        options.voice = Voice::Verbose;
        arguments.remove(0);
    }
    let Some((program, rest)) = arguments.split_first() else {
        show("usage: remap [-v] CMD..");
        return ExitCode::from(2);
    };
    let mut command = Command::new(program);
    command.args(rest);
    let remap = Remap::prepare(&options);
    match &remap {
        Ok(remap) => remap.apply(&mut command),
        Err(refused) => show(&format!("text stays as it is: {refused}")),
    }
    let status = match command.status() {
        Ok(status) => status,
        Err(error) => {
            show(&format!("{}: {error}", program.display()));
            return ExitCode::from(2);
        }
    };
    if let Ok(summary) = remap.map_or_else(|_| Ok(Summary::default()), |remap| remap.summary()) {
        show(summary.to_string().trim_end());
    }
    let code = status.code().or_else(|| status.signal().map(|signal| 128 + signal));
    ExitCode::from(code.and_then(|code| u8::try_from(code).ok()).unwrap_or(2))
}

#[expect(clippy::print_stderr, reason = "an example speaks to its user")]
fn show(text: &str) {
    if !text.is_empty() {
        eprintln!("{text}");
    }
}

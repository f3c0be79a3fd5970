//! The verbs. Each has `Args` (the command line), `Plan` (checked, nothing done yet) and `run`.

pub(crate) mod bench;
pub(crate) mod crosscheck;
pub(crate) mod study;

use largefolio_linux::shell::{as_root, quoted};

/// Returns the command line as the user types it to run it as root, with this program's full path:
/// it is not installed.
fn again_as_root(command_line: &[String]) -> String {
    let program =
        std::env::current_exe().map_or_else(|_| "folio-lab".to_owned(), |path| quoted(&path));
    let arguments = command_line.iter().skip(1).map(|word| format!(" {}", quoted(word)));
    as_root(&std::iter::once(program).chain(arguments).collect::<String>())
}

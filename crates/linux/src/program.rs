//! Programs and how they were started: `#!` lines, the machine of an ELF file and the environment
//! of a process.

#[expect(dead_code, reason = "the recorder uses the rest")]
pub(crate) mod arch;
#[cfg_attr(not(test), expect(dead_code, reason = "the recorder uses the rest"))]
pub(crate) mod head;
pub mod start;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStringExt as _;
use std::path::Path;

use self::head::Head;

/// Returns the interpreter and the optional argument of a script's first line.
pub(crate) fn shebang(bytes: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    match head::head(bytes) {
        Head::Script { interpreter, argument } => Some((owned(interpreter), argument.map(owned))),
        _ => None,
    }
}

/// Returns NAME of `#!/usr/bin/env NAME`, which `env` executes from `PATH`. Options and assignments
/// are left to `env` itself.
pub(crate) fn env_name<'a>(
    interpreter: &OsStr,
    argument: Option<&'a OsString>,
) -> Option<&'a OsString> {
    let is_env = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
    let is_name = |word: &&OsString| !word.as_encoded_bytes().iter().any(|b| b"-= \t".contains(b));
    argument.filter(|_| is_env).filter(is_name)
}

//! Programs and how they were started: `#!` lines, the machine of an ELF file, the environment of a
//! process.

#[expect(dead_code, reason = "the recorder uses the rest")]
pub(crate) mod arch;
#[cfg_attr(not(test), expect(dead_code, reason = "the recorder uses the rest"))]
pub(crate) mod head;
pub mod start;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use self::head::Head;

/// Returns the interpreter and the optional argument of a script's first line.
pub(crate) fn shebang(bytes: &[u8]) -> Option<(OsString, Option<OsString>)> {
    let owned = |bytes: &[u8]| OsString::from_vec(bytes.to_vec());
    match head::head(bytes) {
        Head::Script { interpreter, argument } => Some((owned(interpreter), argument.map(owned))),
        _ => None,
    }
}

//! The program from outside: what it prints where, and how it exits.
#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "a test ends where it cannot go on, and says what it skips"
)]

mod crosscheck;
mod errors;
mod help;
mod maps;
mod predict;
mod record;
mod report;
mod support;
mod trace;
mod tune;
mod verify;

//! Tests without special kernel needs: ELF files, aligned copies, plans. Tests run in parallel.

mod align;
mod confine;
mod elf;
mod record_plan;
mod seam;
#[path = "../support/started.rs"]
mod started;

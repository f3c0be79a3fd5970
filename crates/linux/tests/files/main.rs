//! What needs no kernel of its own kind: ELF files, aligned copies, plans. Tests run side by side.

mod align;
mod confine;
mod crosscheck_plan;
mod elf;
mod record_plan;
mod seam;
#[path = "../support/started.rs"]
mod started;

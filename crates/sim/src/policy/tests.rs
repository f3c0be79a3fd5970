//! Object files made here, byte by byte, so that every part of one can be damaged; what clang makes
//! of the examples is judged in `tests/sim/policy.rs`.

mod elf;
mod programs;

use largefolio_mm::policy::{Answer, Context, Point, Window};

use super::*;
use elf::Object;

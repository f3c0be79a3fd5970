//! The verbs: each has `Args` (what was typed), `Plan` (checked, nothing done yet) and `run`.

pub(crate) mod bench;
pub(crate) mod calibrate;
pub(crate) mod crosscheck;
mod machines;
pub(crate) mod maps;
pub(crate) mod predict;
pub(crate) mod record;
pub(crate) mod trace;
mod values;

//! The verbs: each has `Args` (what was typed), `Plan` (checked, nothing done yet) and `run`.

pub(crate) mod align;
pub(crate) mod bench;
pub(crate) mod collapse;
pub(crate) mod crosscheck;
pub(crate) mod maps;
pub(crate) mod predict;
pub(crate) mod record;
pub(crate) mod run;
pub(crate) mod trace;
mod values;
pub(crate) mod warm;

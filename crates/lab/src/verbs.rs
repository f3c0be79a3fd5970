//! The verbs. Each has `Args` (the command line), `Plan` (checked, nothing done yet) and `run`.

pub(crate) mod bench;
pub(crate) mod crosscheck;
pub(crate) mod study;

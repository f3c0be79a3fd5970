//! The verbs. Each has `Args` (the command line), `Plan` (checked, nothing done yet) and `run`.

pub(crate) mod advise;
pub(crate) mod align;
pub(crate) mod calibrate;
pub(crate) mod collapse;
pub(crate) mod completions;
pub mod confined;
mod lasting;
pub(crate) mod man;
pub(crate) mod maps;
pub mod names;
mod page_file;
pub(crate) mod predict;
pub(crate) mod record;
pub(crate) mod run;
pub mod running;
pub(crate) mod schema;
pub(crate) mod trace;
pub(crate) mod tune;
pub mod values;
pub(crate) mod verify;
pub(crate) mod warm;

//! Recording through valgrind's lackey.
use std::path::Path;
use super::{Outcome, Plan, Progress, RecordError};
pub(super) fn run(_plan: &Plan, _valgrind: &Path, _reason: &str, _progress: &mut dyn FnMut(Progress)) -> Result<Outcome, RecordError> { Err(RecordError::NoValgrind) }

//! Recordings of files.

mod aside;
mod compare;
mod parse;
mod recording;
mod replay;
mod timing;

pub use aside::NotCompared;
pub use compare::{Aspect, Difference, Verdict, check};
pub use parse::ParseError;
pub use recording::{
    Action, AreaEnd, AreaSpec, EntryLine, FolioRun, Header, Hit, Recording, Run, State, Step,
    WindowLine,
};
pub use replay::{ReplayError, kernel_of};

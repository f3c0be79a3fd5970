#![forbid(unsafe_code)]
//! What the verbs find, where the running kernel and the model meet.
//!
//! Each verb has a module: the work that needs both sides, the result as a type with a versioned
//! JSON, and its CSV, text and page. `folio` and the Python package call the same code. (The result of
//! a prediction needs no running kernel: it is `largefolio_report::PredictResult`.)
//!
//! Reading order: [`form`] (the forms every result has), `sentence` (an answer, for a text and a
//! page), [`remark`] (what is said beside a result), [`running`] (this kernel as the model knows
//! it), `remedy` (what `folio maps` and `folio advise` say of one), [`schemas`] (what each JSON has), then a module a verb: [`maps`], [`crosscheck`], [`study`],
//! [`verify`], [`calibrate`], [`mod@bench`], [`tune`], [`warm`], [`collapse`], [`advise`].
//!
//! Owns no stream and no exit code: what is printed where, and what a process ends with, is its
//! caller's. Within a module imports point one way: the result knows no form, page and text know the
//! result, the module's own file knows both.

pub mod advise;
pub mod bench;
pub mod calibrate;
pub mod collapse;
pub mod crosscheck;
mod error;
mod files;
pub mod form;
pub mod maps;
mod page;
pub mod remark;
mod remedy;
pub mod running;
pub mod schemas;
mod sentence;
pub mod study;
pub mod tune;
pub mod verify;
pub mod warm;

pub use error::Error;
pub use form::{Form, Forms};
pub use largefolio_linux::shell::set_program;
pub use remark::Remark;

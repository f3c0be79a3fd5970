#![forbid(unsafe_code)]
//! The results of all verbs, and the formats they are printed in.
//!
//! Each verb has a module with its work, its result type (versioned JSON), and the result's CSV,
//! text and page. `folio` and the Python package call the same code.
//!
//! Reading order: [`form`] (the output formats), [`json`], [`cells`] (CSV), [`html`] (pages),
//! [`figures`] (numbers as text), [`prose`] (line wrapping), `sentence` (an answer for text and
//! page), [`remark`] (warnings about a result), [`running`] (this kernel in the model), `remedy`
//! (remedies in `folio maps` and `folio advise`), [`schemas`] (the JSON schemas), then one module
//! per verb: [`predict`], [`maps`], [`verify`], [`calibrate`], [`tune`], [`warm`], [`collapse`],
//! [`advise`].
//!
//! Owns no stream and no exit code: the caller decides where to print and how the process ends.
//! Imports within a module point one way: the result knows no format, page and text know the
//! result, and the module's own file knows both.

pub mod advise;
pub mod anchor;
pub mod calibrate;
pub mod cells;
pub mod collapse;
mod error;
pub mod figures;
mod files;
pub mod form;
pub mod html;
pub mod json;
pub mod maps;
mod page;
pub mod predict;
pub mod prose;
pub mod remark;
mod remedy;
pub mod running;
pub mod schemas;
mod sentence;
mod trial;
pub mod tune;
pub mod verify;
pub mod warm;

pub use error::Error;
pub use form::{ExportError, Form, Forms};
pub use largefolio_linux::shell::set_program;
pub use remark::Remark;

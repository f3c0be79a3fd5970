//! Policies of a kernel: programs of BPF that answer where it decides.
//!
//! ```text
//!   policy.c --clang--> policy.o --object--> programs, maps, variables
//!                                     verify: bounded, own memory, nothing unset
//!                                     start:  fresh maps for a cell --> interpreter
//! ```
//!
//! Why not a library: rbpf uses addresses of this process, which programs see, so that results could
//! depend on where memory lies; of an access to registered memory it checks the first byte alone; and
//! its helpers get plain addresses, which only unsafe code can follow. Here an address is a region and
//! an offset.
//!
//! Reading order: `insn`, `object` (the file), `verify` (what may run), `maps`, `interpreter`,
//! `builtin` (those that come with folio). Owns programs. What a policy sees and may answer is
//! [`largefolio_mm::policy`].

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a register is 64 bits, with a sign or without; instructions cut them to 32"
)]

mod builtin;
mod error;
mod insn;
mod interpreter;
mod limits;
mod maps;
mod object;
mod verify;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use largefolio_mm::policy::{Answer, Context, Point, Policy, PolicyError};
use largefolio_trace::disk;

pub use error::{PolicyFileError, Refusal};
use insn::Insn;
use interpreter::State;
use object::Parsed;

/// What a program returns for the kernel's own choice.
pub const OWN: u64 = u64::MAX;
/// The same from a function that returns an `int`. As a number it would mean all orders, which is the
/// kernel's own choice too, and nothing at the other points.
pub const OWN_OF_INT: u64 = u32::MAX as u64;
/// Instructions that cost about as much as a step of the memory manager.
const INSNS_OF_STEP: u64 = 16;
/// What object files end in.
const SUFFIX: &str = ".o";

/// Where a policy comes from: each cell starts one of its own.
pub trait Source: fmt::Debug + Send + Sync {
    /// What results call it.
    fn name(&self) -> &str;

    /// BLAKE3 of what it does, in hex; `None` where that is not known.
    fn digest(&self) -> Option<&str>;

    /// The object file, if it is one.
    fn object(&self) -> Option<&[u8]>;

    /// A policy that has seen nothing.
    ///
    /// # Errors
    /// When it cannot be made, in its own words.
    fn start(&self) -> Result<Box<dyn Policy>, String>;
}

/// The policy of a kernel.
#[derive(Clone, Debug)]
pub struct KernelPolicy(pub Arc<dyn Source>);

/// Same name, same bytes.
impl PartialEq for KernelPolicy {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.0.name() == other.0.name() && self.0.digest() == other.0.digest();
        is_same && (self.0.digest().is_some() || Arc::ptr_eq(&self.0, &other.0))
    }
}

impl KernelPolicy {
    /// What results call it.
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// The policy that `text` names: one that comes with folio, or an object file.
    ///
    /// # Errors
    /// [`PolicyFileError`].
    pub fn named(text: &str) -> Result<Self, PolicyFileError> {
        if let Some(object) = builtin::object(text) {
            return Self::from_object(text, object);
        }
        if !text.ends_with(SUFFIX) {
            let (name, hint) = (text.to_owned(), builtin::hint(text));
            return Err(PolicyFileError::Unknown { name, hint });
        }
        let path = Path::new(text);
        let unread = |error| PolicyFileError::Read { path: text.to_owned(), error };
        let bytes = disk::read_whole(path, limits::OBJECT_BYTES_MAX as u64).map_err(unread)?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        Self::from_object(stem.as_deref().unwrap_or(text), &bytes)
    }

    /// The policy that the bytes of an object file are.
    ///
    /// # Errors
    /// [`PolicyFileError::Refused`].
    pub fn from_object(name: &str, bytes: &[u8]) -> Result<Self, PolicyFileError> {
        let program = Program::new(name, bytes).map_err(|cause| {
            let name = name.to_owned();
            PolicyFileError::Refused { name, cause }
        })?;
        Ok(Self(Arc::new(program)))
    }

    /// Names of the policies that come with folio, and what each does.
    pub fn builtin() -> impl Iterator<Item = (&'static str, &'static str)> {
        builtin::all()
    }
}

/// Names of points, for errors.
fn point_names() -> String {
    Point::ALL.map(Point::name).join(", ")
}

/// A verified object file.
#[derive(Debug)]
struct Program {
    name: String,
    digest: String,
    object: Vec<u8>,
    parsed: Arc<Parsed>,
}

impl Program {
    fn new(name: &str, bytes: &[u8]) -> Result<Self, Refusal> {
        let parsed = object::parse(bytes)?;
        for (point, code) in &parsed.programs {
            verify::check(code, &parsed, *point).map_err(|fault| Refusal::Insn {
                section: format!("folio/{}", point.name()),
                at: fault.at,
                what: fault.what,
            })?;
        }
        let digest = blake3::hash(bytes).to_hex().to_string();
        let (name, object) = (name.to_owned(), bytes.to_vec());
        Ok(Self { name, digest, object, parsed: Arc::new(parsed) })
    }
}

impl Source for Program {
    fn name(&self) -> &str {
        &self.name
    }

    fn digest(&self) -> Option<&str> {
        Some(&self.digest)
    }

    fn object(&self) -> Option<&[u8]> {
        Some(&self.object)
    }

    fn start(&self) -> Result<Box<dyn Policy>, String> {
        Ok(Box::new(Running::new(Arc::clone(&self.parsed))))
    }
}

/// A program with its maps and variables.
#[derive(Debug)]
struct Running {
    parsed: Arc<Parsed>,
    state: State,
    /// Steps of the last answer.
    nr_steps: u64,
}

impl Running {
    fn new(parsed: Arc<Parsed>) -> Self {
        let state = State::new(&parsed);
        Self { parsed, state, nr_steps: 0 }
    }

    fn code(&self, point: Point) -> Option<&Vec<Insn>> {
        self.parsed.programs.get(&point)
    }
}

impl Policy for Running {
    fn asks(&self, point: Point) -> bool {
        self.code(point).is_some()
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        let Some(code) = self.parsed.programs.get(&point) else { return Ok(Answer::Own) };
        let ran = interpreter::run(code, &context.bytes(), &mut self.state).map_err(|trap| {
            let message = format!("instruction {}: {}", trap.at, trap.what);
            PolicyError { point, message }
        })?;
        self.nr_steps = ran.nr_insns / INSNS_OF_STEP;
        Ok(match (ran.value, ran.window) {
            (OWN | OWN_OF_INT, _) => Answer::Own,
            (0, Some(window)) => Answer::Window(window),
            (value, _) => Answer::Value(value),
        })
    }

    fn nr_steps(&self) -> u64 {
        self.nr_steps
    }

    fn state_bytes(&self) -> u64 {
        self.parsed.state_bytes() as u64
    }
}

#[cfg(test)]
mod tests;

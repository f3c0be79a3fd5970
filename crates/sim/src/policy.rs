//! Kernel policies: BPF programs that answer at the kernel's decision points.
//!
//! ```text
//!   policy.c --clang--> policy.o --object--> programs, maps, variables
//!                                     verify: bounded, own memory, nothing unset
//!                                     start:  fresh maps for a cell --> interpreter
//! ```
//!
//! Three properties of rbpf ruled it out. Its programs see addresses in this process, so results
//! could depend on the memory layout. For registered memory, it checks only the first byte of an
//! access. Its helpers get raw pointers, which only unsafe code can dereference. In this
//! interpreter, an address is a region and an offset.
//!
//! Reading order: `insn`, `object` (the file), `verify` (which programs may run), `maps`,
//! `interpreter`, `builtin` (the policies shipped with folio). Interfaces that were posted upstream:
//! `posted` (hooks and kernel functions), `btf`, `things` (kernel structures), `cached` (folios and
//! eviction lists), `adapter` (points as hooks). Owns the programs.
//! [`largefolio_mm::policy`] defines a policy's inputs and answers.

#![expect(
    clippy::cast_possible_truncation,
    clippy::cast_possible_wrap,
    clippy::cast_sign_loss,
    reason = "a register is 64 bits, with a sign or without; instructions cut them to 32"
)]

mod adapter;
mod attach;
mod btf;
mod builtin;
mod cached;
mod error;
mod insn;
mod interpreter;
mod limits;
mod maps;
mod object;
mod posted;
mod things;
mod verify;

use std::fmt;
use std::path::Path;
use std::sync::Arc;

use largefolio_mm::policy::{Answer, Context, INTERVAL_NS, Point, Policy, PolicyError};
use largefolio_trace::disk;

pub use attach::{KernelImage, KernelMap, KernelMapKind, KernelProgram};
pub use error::{PolicyFileError, PolicyRefusal};
use interpreter::{Question, Ran, State};
use object::Parsed;
use posted::Entry;

/// Return value for the kernel's own choice.
pub const OWN: u64 = u64::MAX;
/// `OWN` from a function that returns an `int`. As a set of orders it would mean all orders, which
/// is the kernel's own choice too; it has no other meaning at the other points.
pub const OWN_OF_INT: u64 = u32::MAX as u64;
/// Instructions that cost about as much as one step of the memory manager.
const INSNS_OF_STEP: u64 = 16;
const SUFFIX: &str = ".o";

/// Source of policies: each cell starts its own.
pub trait Source: fmt::Debug + Send + Sync {
    fn name(&self) -> &str;

    /// BLAKE3 of its behaviour, in hex; `None` if unknown.
    fn digest(&self) -> Option<&str>;

    fn object(&self) -> Option<&[u8]>;

    /// Starts a policy without state.
    ///
    /// # Errors
    /// It cannot be created; the string says why.
    fn start(&self) -> Result<Box<dyn Policy>, String>;
}

#[derive(Clone, Debug)]
pub struct KernelPolicy(pub Arc<dyn Source>);

/// Equal name and equal bytes.
impl PartialEq for KernelPolicy {
    fn eq(&self, other: &Self) -> bool {
        let is_same = self.0.name() == other.0.name() && self.0.digest() == other.0.digest();
        is_same && (self.0.digest().is_some() || Arc::ptr_eq(&self.0, &other.0))
    }
}

impl KernelPolicy {
    #[must_use]
    pub fn name(&self) -> &str {
        self.0.name()
    }

    /// Loads a built-in policy by name, or an object file.
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

    /// Loads a policy from an object file's bytes.
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

    /// The policy's programs for a running kernel; `None` if it has no object file.
    ///
    /// # Errors
    /// [`PolicyFileError::Refused`], also for a policy that uses what only the model has.
    pub fn for_kernel(&self) -> Result<Option<KernelImage>, PolicyFileError> {
        let image = self.0.object().map(attach::image).transpose();
        image.map_err(|cause| PolicyFileError::Refused { name: self.name().to_owned(), cause })
    }

    pub fn builtin() -> impl Iterator<Item = (&'static str, &'static str)> {
        builtin::all()
    }
}

fn point_names() -> String {
    Point::ALL.map(Point::name).join(", ")
}

#[derive(Debug)]
struct Program {
    name: String,
    digest: String,
    object: Vec<u8>,
    parsed: Arc<Parsed>,
}

impl Program {
    fn new(name: &str, bytes: &[u8]) -> Result<Self, PolicyRefusal> {
        let parsed = object::parse(bytes)?;
        for (entry, function) in &parsed.programs {
            let checked = verify::check(&function.code, &parsed, verify::Entrance::of(*entry));
            checked.map_err(|fault| PolicyRefusal::Insn {
                section: match entry {
                    Entry::Point(point) => format!("folio/{}", point.name()),
                    Entry::Hook(_) => format!("function {}", function.name),
                },
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
        let parsed = Arc::clone(&self.parsed);
        Ok(match parsed.interface {
            None => Box::new(Native(Running::new(parsed))),
            Some(_) => Box::new(adapter::Adapter::new(parsed)),
        })
    }
}

/// A policy's programs with their state in one machine.
#[derive(Debug)]
struct Running {
    parsed: Arc<Parsed>,
    state: State,
    /// Instructions since the latest question began.
    nr_insns: u64,
}

impl Running {
    fn new(parsed: Arc<Parsed>) -> Self {
        let state = State::new(&parsed);
        Self { parsed, state, nr_insns: 0 }
    }

    fn has(&self, entry: Entry) -> bool {
        self.parsed.programs.contains_key(&entry)
    }

    /// Runs the program of an entry; `None` if the policy does not have it.
    fn run(
        &mut self,
        entry: Entry,
        input: &[u8],
        context: &Context,
    ) -> Result<Option<Ran>, String> {
        let Some(program) = self.parsed.programs.get(&entry) else { return Ok(None) };
        let question = Question { functions: &self.parsed.functions, input, context };
        let ran = interpreter::run(&program.code, question, &mut self.state);
        let ran = ran.map_err(|trap| {
            let of_hook = match entry {
                Entry::Point(_) => String::new(),
                Entry::Hook(_) => format!("function {}, ", program.name),
            };
            format!("{of_hook}instruction {}: {}", trap.at, trap.what)
        })?;
        self.nr_insns += ran.nr_insns;
        Ok(Some(ran))
    }

    fn nr_steps(&self) -> u64 {
        self.nr_insns / INSNS_OF_STEP
    }

    fn state_bytes(&self) -> u64 {
        self.parsed.state_bytes() as u64
    }

    fn interval_ns(&self) -> u64 {
        self.parsed.interval_ns.unwrap_or(INTERVAL_NS)
    }
}

/// A policy that is written with `folio_policy.h`.
#[derive(Debug)]
struct Native(Running);

impl Policy for Native {
    fn handles(&self, point: Point) -> bool {
        self.0.has(Entry::Point(point))
    }

    fn answer(&mut self, point: Point, context: &Context) -> Result<Answer, PolicyError> {
        self.0.nr_insns = 0;
        let ran = self.0.run(Entry::Point(point), &context.bytes(), context);
        let ran = ran.map_err(|message| PolicyError { point, message })?;
        Ok(match ran.map(|ran| (ran.value, ran.window)) {
            None | Some((OWN | OWN_OF_INT, _)) => Answer::Own,
            Some((0, Some(window))) => Answer::Window(window),
            Some((value, _)) => Answer::Value(value),
        })
    }

    fn nr_steps(&self) -> u64 {
        self.0.nr_steps()
    }

    fn state_bytes(&self) -> u64 {
        self.0.state_bytes()
    }

    fn interval_ns(&self) -> u64 {
        self.0.interval_ns()
    }
}

#[cfg(test)]
mod tests;

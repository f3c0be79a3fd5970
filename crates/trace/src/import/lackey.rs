//! Parses the output of `valgrind --tool=lackey --trace-mem=yes --basic-counts=no
//! --trace-syscalls=yes`.
//!
//! Owns the grammar as of valgrind 3.19. Does not track descriptors or mappings.
//!
//! ```text
//! I  0401ab70,3                      instruction fetch: address in hexadecimal, bytes
//!  L 1fff000638,8                    load        S store        M load, then store
//! SYSCALL[11408,1](9) sys_mmap ( 0x0, 8192, 3, 34, 429, 0 ) --> [pre-success] Success(0x4835000)
//! SYSCALL[11408,1](257) sys_openat ( 4294967196, 0x4034bb0(/etc/x), 524288 ) --> [async] ...
//! SYSCALL[11408,1](257) ... [async] --> Success(0x3)
//!  --> [pre-success] Success(0x2d23)   result of a call whose line something else broke
//! ==11408== Lackey, an example Valgrind tool
//! ```

use thiserror::Error;

use crate::event::{Event, Op, ThreadId};
use crate::validate::REFERENCE_PAGE_BYTES;

/// Largest plausible access. AVX-512 moves 64 bytes, `fxsave` 512.
const ACCESS_BYTES_MAX: u32 = 4096;

/// A line outside the grammar, usually the program's own output in the same stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("this is not a line from valgrind lackey; give valgrind its own stream with --log-fd=N")]
pub struct NotLackey;

/// One line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Line<'a> {
    /// A memory access.
    Access(Access),
    /// A system call, or the end of one printed earlier.
    Syscall(Syscall<'a>),
    /// The result of the stream's last system call, on its own line.
    Result(Outcome),
    /// valgrind's own text, or an empty line.
    Note(&'a str),
}

/// The kind of an access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AccessKind {
    /// Instruction fetch.
    Fetch,
    /// Data load.
    Load,
    /// Data store.
    Store,
    /// Load and store of the same bytes by one instruction.
    Modify,
}

/// A memory access. I1: `addr + bytes` does not pass the end of the 64-bit space, `bytes >= 1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// The kind of access.
    pub kind: AccessKind,
    /// First address.
    pub addr: u64,
    /// Bytes accessed, 1 to 4096.
    pub bytes: u32,
}

/// A system call as printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Syscall<'a> {
    /// Process id.
    pub pid: u32,
    /// Thread number in the process; 1 is the first.
    pub thread: u32,
    /// Number of the call (x86-64).
    pub number: u32,
    /// Text after the number: `sys_brk ( 0x0 ) --> ..`; see [`Syscall::args`].
    pub text: &'a str,
    /// Result, if the line has one.
    pub outcome: Option<Outcome>,
}

/// How a system call ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The return value.
    Success(u64),
    /// The errno.
    Failure(u64),
}

/// Parses one line, without its newline.
///
/// # Errors
/// [`NotLackey`] for anything else.
///
/// ```
/// use largefolio_trace::import::lackey::{Access, AccessKind, Line, parse_line};
/// let access = Access { kind: AccessKind::Store, addr: 0x1fff_0006_38, bytes: 8 };
/// assert_eq!(parse_line(" S 1fff000638,8"), Ok(Line::Access(access)));
/// assert!(matches!(parse_line("==11408== "), Ok(Line::Note(_))));
/// assert!(parse_line("hello").is_err());
/// ```
pub fn parse_line(line: &str) -> Result<Line<'_>, NotLackey> {
    let parsed = match line.as_bytes() {
        [b'I', b' ', b' ', rest @ ..] => access(AccessKind::Fetch, rest),
        [b' ', b'L', b' ', rest @ ..] => access(AccessKind::Load, rest),
        [b' ', b'S', b' ', rest @ ..] => access(AccessKind::Store, rest),
        [b' ', b'M', b' ', rest @ ..] => access(AccessKind::Modify, rest),
        [b'=', b'=', ..] | [b'-', b'-', ..] | [b'*', b'*', ..] | [] => Some(Line::Note(line)),
        [b'S', b'Y', ..] => line.strip_prefix("SYSCALL[").and_then(syscall),
        [b' ', b'-', b'-', b'>', ..] => outcome(line).map(Line::Result),
        _ => None,
    };
    parsed.ok_or(NotLackey)
}

fn access<'a>(kind: AccessKind, text: &[u8]) -> Option<Line<'a>> {
    let comma = text.iter().position(|&byte| byte == b',')?;
    let addr = hexadecimal(&text[..comma])?;
    let bytes = u32::try_from(decimal(&text[comma + 1..])?).ok()?;
    let is_sane = (1..=ACCESS_BYTES_MAX).contains(&bytes);
    let is_sane = is_sane && addr.checked_add(u64::from(bytes)).is_some();
    is_sane.then_some(Line::Access(Access { kind, addr, bytes }))
}

fn syscall(text: &str) -> Option<Line<'_>> {
    let (pid, text) = text.split_once(',')?;
    let (thread, text) = text.split_once("](")?;
    let (number, text) = text.split_once(')')?;
    Some(Line::Syscall(Syscall {
        pid: pid.parse().ok()?,
        thread: thread.parse().ok()?,
        number: number.parse().ok()?,
        text: text.trim_start(),
        outcome: outcome(text),
    }))
}

fn outcome(text: &str) -> Option<Outcome> {
    let (_, result) = text.rsplit_once("--> ")?;
    let result = result.trim_end();
    let result = result.rsplit_once("] ").map_or(result, |(_, result)| result);
    let (word, value) = result.strip_suffix(')')?.split_once("(0x")?;
    let value = hexadecimal(value.as_bytes())?;
    match word {
        "Success" => Some(Outcome::Success(value)),
        "Failure" => Some(Outcome::Failure(value)),
        _ => None,
    }
}

fn hexadecimal(digits: &[u8]) -> Option<u64> {
    let is_number = (1..=16).contains(&digits.len());
    digits
        .iter()
        .filter(|_| is_number)
        .try_fold(0, |number, &digit| {
            let digit = match digit {
                b'0'..=b'9' => digit - b'0',
                b'a'..=b'f' => digit - b'a' + 10,
                _ => return None,
            };
            Some(number << 4 | u64::from(digit))
        })
        .filter(|_| is_number)
}

fn decimal(digits: &[u8]) -> Option<u64> {
    let is_number = (1..=19).contains(&digits.len());
    digits
        .iter()
        .filter(|_| is_number)
        .try_fold(0, |number: u64, &digit| {
            digit.is_ascii_digit().then(|| number * 10 + u64::from(digit - b'0'))
        })
        .filter(|_| is_number)
}

impl Access {
    /// Converts the access to references of `thread`: one per page and direction, at most four.
    ///
    /// ```
    /// use largefolio_trace::import::lackey::{Access, AccessKind};
    /// let access = Access { kind: AccessKind::Modify, addr: 0x1ffe, bytes: 4 };
    /// let pages: Vec<_> = access.references(0).map(|row| (row.op.name(), row.addr)).collect();
    /// let both = [("read", 0x1000), ("read", 0x2000), ("write", 0x1000), ("write", 0x2000)];
    /// assert_eq!(pages, both);
    /// ```
    pub fn references(self, thread: ThreadId) -> impl Iterator<Item = Event> {
        let page_of = |addr: u64| addr & !(REFERENCE_PAGE_BYTES - 1);
        let first = page_of(self.addr);
        let last = page_of(self.addr.saturating_add(u64::from(self.bytes).saturating_sub(1)));
        let pages = [Some(first), Some(last).filter(|&last| last != first)];
        let ops = match self.kind {
            AccessKind::Fetch => [Some(Op::Exec), None],
            AccessKind::Load => [Some(Op::Read), None],
            AccessKind::Store => [Some(Op::Write), None],
            AccessKind::Modify => [Some(Op::Read), Some(Op::Write)],
        };
        ops.into_iter().flatten().flat_map(move |op| {
            let pages = pages.into_iter().flatten();
            pages.map(move |addr| Event::references(thread, op, addr, 1))
        })
    }
}

/// One argument of a system call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arg<'a> {
    /// The argument as a number, if it is one.
    pub number: Option<u64>,
    /// The string it points to, for a path.
    pub string: Option<&'a str>,
}

impl<'a> Syscall<'a> {
    /// Returns whether the line ends a call that an earlier line of the same thread started.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.text.starts_with("...")
    }

    /// Returns the arguments in order; none on a line that ends a call.
    ///
    /// Numbers with `0x` are hexadecimal, others decimal, except for clone's flags, which valgrind
    /// prints in hexadecimal without a prefix. A path that contains `, ` is cut there.
    ///
    /// ```
    /// use largefolio_trace::import::lackey::{Line, parse_line};
    /// let line = "SYSCALL[1,1](257) sys_openat ( 42, 0x4c90(/etc/x), 524288 ) --> [async] ...";
    /// let Ok(Line::Syscall(call)) = parse_line(line) else { panic!() };
    /// let args: Vec<_> = call.args().collect();
    /// assert_eq!((args[1].string, args[2].number), (Some("/etc/x"), Some(524_288)));
    /// assert_eq!(call.outcome, None);
    /// ```
    pub fn args(&self) -> impl Iterator<Item = Arg<'a>> + use<'a> {
        let call = self.text.split_once("( ").filter(|_| !self.is_resumed());
        let args = call.and_then(|(_, rest)| rest.split_once(" )")).map(|(args, _)| args);
        args.into_iter().flat_map(|args| args.split(", ")).map(argument)
    }
}

fn argument(text: &str) -> Arg<'_> {
    let (number, string) = match text.split_once('(') {
        Some((number, rest)) => (number, Some(rest.strip_suffix(')').unwrap_or(rest))),
        None => (text, None),
    };
    let number = match number.strip_prefix("0x") {
        Some(digits) => hexadecimal(digits.as_bytes()),
        None => decimal(number.as_bytes()).or_else(|| hexadecimal(number.as_bytes())),
    };
    Arg { number, string }
}

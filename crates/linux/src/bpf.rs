//! Attaches BPF programs to a kernel's decision points, while a value lives.
//!
//! A program is a raw tracepoint program that may write its argument. The kernel verifies it.
//! Needs `CAP_BPF` and `CAP_PERFMON`.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

/// Bytes for the verifier's explanation of a refusal.
const LOG_BYTES: usize = 1 << 20;
const LOG_LINES_SHOWN: usize = 4;
const INSN_BYTES: usize = 8;
/// `union bpf_attr` of our commands is shorter.
const ATTR_BYTES: usize = 128;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MapKind {
    Hash = 1,
    Array = 2,
    PerCpuArray = 6,
}

#[derive(Clone, Debug)]
pub struct Map {
    pub kind: MapKind,
    pub key_bytes: usize,
    pub value_bytes: usize,
    pub nr_max: usize,
    /// Value of entry 0.
    pub first: Option<Vec<u8>>,
}

#[derive(Clone, Debug)]
pub struct Program {
    pub tracepoint: &'static CStr,
    pub code: Vec<[u8; INSN_BYTES]>,
    /// Instructions that get the descriptor of a map: where, and which map.
    pub maps: Vec<(usize, usize)>,
}

/// Programs that are attached until this is dropped, or the process ends.
#[derive(Debug)]
pub struct Attached {
    _links: Vec<OwnedFd>,
}

#[derive(Debug, thiserror::Error)]
pub enum BpfError {
    #[error("a policy needs root: {0}")]
    NotAllowed(io::Error),
    #[error("a map of {bytes} bytes cannot be made: {error}")]
    Map { bytes: usize, error: io::Error },
    #[error("the kernel refuses the program for {point}: {why}")]
    Refused { point: String, why: String },
    #[error("this kernel has no decision point {point}: build one that has it (kernel/README.md)")]
    NoPoint { point: String },
    #[error("cannot attach to {point}: {error}")]
    Attach { point: String, error: io::Error },
}

/// The number of a `bpf` command.
#[derive(Clone, Copy)]
enum Command {
    MapCreate = 0,
    MapUpdate = 2,
    ProgLoad = 5,
    RawTracepointOpen = 17,
}

const RAW_TRACEPOINT_WRITABLE: u32 = 24;

/// The start of a `union bpf_attr`, field by field.
struct Attr([u8; ATTR_BYTES]);

impl Attr {
    const fn new() -> Self {
        Self([0; ATTR_BYTES])
    }

    fn with<const N: usize>(mut self, at: usize, field: [u8; N]) -> Self {
        if let Some(place) = self.0.get_mut(at..at + N) {
            place.copy_from_slice(&field);
        }
        self
    }

    fn word(self, at: usize, value: u32) -> Self {
        self.with(at, value.to_ne_bytes())
    }

    fn size(self, at: usize, value: usize) -> io::Result<Self> {
        let value = u32::try_from(value).map_err(|_| io::ErrorKind::InvalidInput)?;
        Ok(self.word(at, value))
    }

    fn pointer<T: ?Sized>(self, at: usize, to: *const T) -> Self {
        self.with(at, (to.cast::<()>() as u64).to_ne_bytes())
    }
}

/// # Safety
/// The pointers in `attr` are to memory as large as the command says, and no one else writes it.
unsafe fn bpf(command: Command, attr: &Attr) -> io::Result<i64> {
    // SAFETY: the caller vouches for the pointers; the kernel copies only `attr`.
    let done = unsafe { libc::syscall(libc::SYS_bpf, command as i32, attr.0.as_ptr(), ATTR_BYTES) };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(done) }
}

fn owned(fd: i64) -> io::Result<OwnedFd> {
    let fd = i32::try_from(fd).map_err(|_| io::ErrorKind::InvalidData)?;
    // SAFETY: the kernel has just made this descriptor for us, and nothing else has it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

fn map(map: &Map) -> io::Result<OwnedFd> {
    let attr = Attr::new()
        .word(0, map.kind as u32)
        .size(4, map.key_bytes)?
        .size(8, map.value_bytes)?
        .size(12, map.nr_max)?;
    // SAFETY: the command takes no pointer.
    let fd = owned(unsafe { bpf(Command::MapCreate, &attr) }?)?;
    if let Some(first) = map.first.as_ref().filter(|first| first.len() == map.value_bytes) {
        let key = 0_u32;
        let attr = Attr::new()
            .word(0, fd.as_raw_fd().cast_unsigned())
            .pointer(8, &raw const key)
            .pointer(16, first.as_ptr());
        // SAFETY: the map has keys of four bytes and values as long as `first`.
        unsafe { bpf(Command::MapUpdate, &attr) }?;
    }
    Ok(fd)
}

fn load(code: &[[u8; INSN_BYTES]], log: &mut [u8]) -> io::Result<OwnedFd> {
    let licence = c"Dual MIT/GPL";
    let mut attr = Attr::new()
        .word(0, RAW_TRACEPOINT_WRITABLE)
        .size(4, code.len())?
        .pointer(8, code.as_ptr())
        .pointer(16, licence.as_ptr());
    if !log.is_empty() {
        attr = attr.word(24, 1).size(28, log.len())?.pointer(32, log.as_mut_ptr());
    }
    // SAFETY: the code, the licence and the log live until the call returns, with these lengths.
    owned(unsafe { bpf(Command::ProgLoad, &attr) }?)
}

fn program(program: &Program, maps: &[OwnedFd]) -> Result<OwnedFd, BpfError> {
    let point = || program.tracepoint.to_string_lossy().into_owned();
    let mut code = program.code.clone();
    for &(at, map) in &program.maps {
        if let (Some(insn), Some(fd)) = (code.get_mut(at), maps.get(map)) {
            insn[4..].copy_from_slice(&fd.as_raw_fd().to_le_bytes());
        }
    }
    let loaded = load(&code, &mut []).or_else(|error| {
        if error.kind() == io::ErrorKind::PermissionDenied
            && error.raw_os_error() == Some(libc::EPERM)
        {
            return Err(BpfError::NotAllowed(error));
        }
        let mut log = vec![0; LOG_BYTES];
        load(&code, &mut log).map_err(|error| {
            let why = last_lines(&log).unwrap_or_else(|| error.to_string());
            BpfError::Refused { point: point(), why }
        })
    })?;
    let attr = Attr::new()
        .pointer(0, program.tracepoint.as_ptr())
        .word(8, loaded.as_raw_fd().cast_unsigned());
    // SAFETY: the name ends with a zero.
    let link = unsafe { bpf(Command::RawTracepointOpen, &attr) }.and_then(owned);
    link.map_err(|error| match error.raw_os_error() {
        Some(libc::ENOENT) => BpfError::NoPoint { point: point() },
        _ => BpfError::Attach { point: point(), error },
    })
}

/// The end of a verifier's log, which has the reason.
fn last_lines(log: &[u8]) -> Option<String> {
    let text = CStr::from_bytes_until_nul(log).ok()?.to_string_lossy();
    let lines: Vec<&str> = text.lines().filter(|line| !line.starts_with("processed ")).collect();
    let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..)?;
    (!shown.is_empty()).then(|| shown.join("; "))
}

/// Makes the maps, and loads and attaches the programs.
///
/// # Errors
/// [`BpfError`]; nothing stays attached.
pub fn attach(maps: &[Map], programs: &[Program]) -> Result<Attached, BpfError> {
    let made = maps.iter().map(|each| {
        map(each).map_err(|error| match error.raw_os_error() {
            Some(libc::EPERM) => BpfError::NotAllowed(error),
            _ => BpfError::Map { bytes: each.value_bytes.saturating_mul(each.nr_max), error },
        })
    });
    let made = made.collect::<Result<Vec<_>, _>>()?;
    let links = programs.iter().map(|each| program(each, &made)).collect::<Result<_, _>>()?;
    Ok(Attached { _links: links })
}

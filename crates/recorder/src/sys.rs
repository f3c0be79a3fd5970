//! Safe wrappers for the system calls that std lacks.
//!
//! Owns every libc call of the plugin, except for those in `imports` and `placed`. Invariants:
//! - S1: changing errno here is harmless: QEMU reads it right after its own calls, never across a
//!   plugin callback.
//! - S2: descriptors made here are close-on-exec.

use std::ffi::{CStr, CString, c_int, c_void};
use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr;

use crate::holes::{self, Edge};
use crate::wire;

const PARTS_MAX: usize = 4;

/// `AF_UNIX`, in the type of an address's family field.
const FAMILY: libc::sa_family_t = 1;
const _: () = assert!(FAMILY as c_int == libc::AF_UNIX);

fn length_of<T>() -> libc::socklen_t {
    libc::socklen_t::try_from(size_of::<T>()).unwrap_or(0)
}

fn checked(result: c_int) -> io::Result<c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

pub(crate) fn thread_number() -> u32 {
    // SAFETY: gettid has no arguments and no preconditions.
    let tid = unsafe { libc::gettid() };
    tid.unsigned_abs()
}

/// Returns the signals that the calling thread blocks. Bit 0 is signal 1.
pub(crate) fn blocked_signals() -> u64 {
    mask(libc::SIG_BLOCK, ptr::null())
}

pub(crate) fn block_signals(signals: u64) -> u64 {
    // SAFETY: an all-zero set is valid.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in (1..=64_i32).filter(|signal| signals >> (signal - 1) & 1 == 1) {
        // SAFETY: `set` is a whole set; the numbers that the C library keeps are refused.
        unsafe { libc::sigaddset(&raw mut set, signal) };
    }
    mask(libc::SIG_SETMASK, &raw const set)
}

fn mask(how: c_int, set: *const libc::sigset_t) -> u64 {
    // SAFETY: an all-zero set is valid.
    let mut earlier: libc::sigset_t = unsafe { std::mem::zeroed() };
    // SAFETY: `set` is null, which changes nothing, or a whole set; both outlive the call.
    let result = unsafe { libc::pthread_sigmask(how, set, &raw mut earlier) };
    if result != 0 {
        return 0;
    }
    (1..=64_i32).fold(0, |signals, signal| {
        // SAFETY: `earlier` is a whole set; other numbers are refused.
        let is_blocked = unsafe { libc::sigismember(&raw const earlier, signal) } == 1;
        signals | u64::from(is_blocked) << (signal - 1)
    })
}

pub(crate) fn is_executable(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    // SAFETY: `path` is a C string that outlives the call.
    let result =
        unsafe { libc::faccessat(libc::AT_FDCWD, path.as_ptr(), libc::X_OK, libc::AT_EACCESS) };
    result == 0
}

/// Resolves `path`, including links, for a program whose root is `root`. Returns `None` if it does
/// not exist there.
pub(crate) fn path_in_root(root: &Path, path: &Path) -> Option<PathBuf> {
    let c_string = |path: &Path| CString::new(path.as_os_str().as_bytes()).ok();
    let (root, path) = (c_string(root)?, c_string(path)?);
    let flags = libc::O_PATH | libc::O_CLOEXEC;
    // SAFETY: `root` is a C string that outlives the call.
    let fd = unsafe { libc::open(root.as_ptr(), flags | libc::O_DIRECTORY) };
    // SAFETY: the descriptor was just opened and nothing else owns it.
    let root = (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })?;
    // SAFETY: an all-zero open_how is valid.
    let mut how: libc::open_how = unsafe { std::mem::zeroed() };
    how.flags = u64::from(flags.cast_unsigned());
    how.resolve = libc::RESOLVE_IN_ROOT | libc::RESOLVE_NO_MAGICLINKS;
    let (directory, size) = (root.as_raw_fd(), size_of::<libc::open_how>());
    // SAFETY: `path` and `how`, whose size is passed, outlive the call.
    let fd =
        unsafe { libc::syscall(libc::SYS_openat2, directory, path.as_ptr(), &raw const how, size) };
    let fd = RawFd::try_from(fd).ok().filter(|fd| *fd >= 0)?;
    // SAFETY: as above.
    let found = unsafe { OwnedFd::from_raw_fd(fd) };
    std::fs::read_link(format!("/proc/self/fd/{}", found.as_raw_fd())).ok()
}

pub(crate) fn effective_ids() -> (u32, u32) {
    // SAFETY: no arguments and no preconditions.
    let user = unsafe { libc::geteuid() };
    // SAFETY: as above.
    let group = unsafe { libc::getegid() };
    (user, group)
}

pub(crate) fn has_capabilities(path: &Path) -> bool {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return false };
    let name = c"security.capability";
    // SAFETY: both are C strings that outlive the call; a size of 0 asks for the length only.
    unsafe { libc::getxattr(path.as_ptr(), name.as_ptr(), ptr::null_mut(), 0) > 0 }
}

pub(crate) fn execute(path: &CString, arguments: &[CString], variables: &[CString]) {
    let pointers = |words: &[CString]| -> Vec<*const libc::c_char> {
        words.iter().map(|word| word.as_ptr()).chain([ptr::null()]).collect()
    };
    let (arguments, variables) = (pointers(arguments), pointers(variables));
    // SAFETY: `path` is a C string and both arrays end with a null pointer; all outlive the call.
    unsafe { libc::execve(path.as_ptr(), arguments.as_ptr(), variables.as_ptr()) };
}

pub(crate) fn shut_down(fd: RawFd) {
    // SAFETY: shutdown refuses an invalid descriptor and one that is not a socket.
    unsafe { libc::shutdown(fd, libc::SHUT_WR) };
}

pub(crate) fn descriptor_limit() -> u64 {
    soft_limit(libc::RLIMIT_NOFILE).unwrap_or(64)
}

/// Returns the soft limit on file sizes in bytes. Exceeding it would raise SIGXFSZ.
pub(crate) fn file_size_limit() -> u64 {
    soft_limit(libc::RLIMIT_FSIZE).unwrap_or(0)
}

fn soft_limit(resource: libc::__rlimit_resource_t) -> Option<u64> {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid rlimit that outlives the call.
    let result = unsafe { libc::getrlimit(resource, &raw mut limit) };
    (result == 0).then_some(limit.rlim_cur)
}

pub(crate) fn move_descriptor(fd: OwnedFd, lowest: RawFd) -> io::Result<OwnedFd> {
    // SAFETY: F_DUPFD_CLOEXEC takes an open descriptor, which `fd` owns, and a number.
    let moved = unsafe { libc::fcntl(fd.as_raw_fd(), libc::F_DUPFD_CLOEXEC, lowest) };
    drop(fd);
    let moved = checked(moved)?;
    // SAFETY: the descriptor was just made by fcntl and nothing else owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(moved) })
}

pub(crate) fn connect(path: &Path) -> io::Result<OwnedFd> {
    // SAFETY: an all-zero sockaddr_un is valid.
    let mut address: libc::sockaddr_un = unsafe { std::mem::zeroed() };
    address.sun_family = FAMILY;
    let bytes = path.as_os_str().as_bytes();
    if bytes.len() >= address.sun_path.len() {
        return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
    }
    for (slot, byte) in address.sun_path.iter_mut().zip(bytes) {
        *slot = libc::c_char::from_ne_bytes([*byte]);
    }
    // SAFETY: socket takes three numbers.
    let fd = unsafe { libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0) };
    let fd = checked(fd)?;
    // SAFETY: the descriptor was just made by socket and nothing else owns it.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    let length = length_of::<libc::sockaddr_un>();
    loop {
        // SAFETY: `address` is a whole sockaddr_un that outlives the call, `length` its size.
        let result = unsafe { libc::connect(fd.as_raw_fd(), (&raw const address).cast(), length) };
        match checked(result) {
            Ok(_) => return Ok(fd),
            Err(error) if error.raw_os_error() == Some(libc::EINTR) => {}
            Err(error) => return Err(error),
        }
    }
}

/// Lets the kernel queue more of our messages. Root can exceed the system's limit.
pub(crate) fn set_send_buffer(fd: &OwnedFd, bytes: c_int) {
    let value = (&raw const bytes).cast::<c_void>();
    let length = length_of::<c_int>();
    for option in [libc::SO_SNDBUF, libc::SO_SNDBUFFORCE] {
        // SAFETY: `value` points to a c_int of `length` bytes that outlives the call. A refusal
        // leaves the default in place, which is only slower.
        unsafe { libc::setsockopt(fd.as_raw_fd(), libc::SOL_SOCKET, option, value, length) };
    }
}

pub(crate) fn send_packet(fd: RawFd, parts: &[&[u8]]) -> io::Result<()> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; PARTS_MAX];
    for (vector, part) in vectors.iter_mut().zip(parts) {
        vector.iov_base = part.as_ptr().cast_mut().cast();
        vector.iov_len = part.len();
    }
    // SAFETY: an all-zero msghdr is valid.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = vectors.as_mut_ptr();
    message.msg_iovlen = parts.len().min(PARTS_MAX);
    // SAFETY: `message` points to valid vectors over live slices; sendmsg only reads them.
    let sent = unsafe { libc::sendmsg(fd, &raw const message, libc::MSG_NOSIGNAL) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// The unit of a file's allocated blocks.
const BLOCK_BYTES: u64 = 512;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) device: u64,
    pub(crate) inode: u64,
    /// 0 if unknown.
    birth_ns: u64,
    mode: u32,
    pub(crate) nr_names: u32,
    pub(crate) size_bytes: u64,
    allocated_bytes: u64,
}

impl Identity {
    pub(crate) fn is_regular(&self) -> bool {
        self.mode & libc::S_IFMT == libc::S_IFREG
    }

    pub(crate) fn key(&self) -> u64 {
        wire::file_key(self.device, self.inode, self.birth_ns)
    }

    /// Whether parts of the file may lack data.
    pub(crate) fn may_have_holes(&self) -> bool {
        self.allocated_bytes < self.size_bytes
    }
}

/// Finds a file without opening it or following a link. `directory` is a descriptor or `AT_FDCWD`.
pub(crate) fn find(directory: RawFd, path: &[u8]) -> Option<OwnedFd> {
    let path = CString::new(path).ok()?;
    let flags = libc::O_PATH | libc::O_NOFOLLOW | libc::O_CLOEXEC;
    // SAFETY: `path` is a C string that outlives the call; openat accepts any number.
    let fd = unsafe { libc::openat(directory, path.as_ptr(), flags) };
    // SAFETY: the descriptor was just opened and nothing else owns it.
    (fd >= 0).then(|| unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Returns the status flags of an open file (`O_DIRECT`, ..), 0 if it is not open.
pub(crate) fn status_flags(fd: RawFd) -> c_int {
    // SAFETY: F_GETFL takes no argument; fcntl accepts any number as descriptor.
    unsafe { libc::fcntl(fd, libc::F_GETFL) }.max(0)
}

/// Identifies an open file.
pub(crate) fn identity(fd: RawFd) -> Option<Identity> {
    identity_of(fd, c"", libc::AT_EMPTY_PATH)
}

/// Identifies the file at a path, or the link there. `directory` is a descriptor or `AT_FDCWD`.
pub(crate) fn identity_at(directory: RawFd, path: &[u8]) -> Option<Identity> {
    identity_of(directory, &CString::new(path).ok()?, libc::AT_SYMLINK_NOFOLLOW)
}

fn identity_of(directory: RawFd, path: &CStr, flags: c_int) -> Option<Identity> {
    let wanted = libc::STATX_BASIC_STATS | libc::STATX_BTIME;
    // SAFETY: an all-zero statx is valid.
    let mut stat: libc::statx = unsafe { std::mem::zeroed() };
    // SAFETY: `path` and `stat` outlive the call; statx accepts any number as descriptor.
    let result = unsafe { libc::statx(directory, path.as_ptr(), flags, wanted, &raw mut stat) };
    let seconds = stat.stx_btime.tv_sec.unsigned_abs();
    (result == 0).then(|| Identity {
        device: libc::makedev(stat.stx_dev_major, stat.stx_dev_minor),
        inode: stat.stx_ino,
        birth_ns: seconds.wrapping_mul(1_000_000_000).wrapping_add(stat.stx_btime.tv_nsec.into()),
        mode: stat.stx_mode.into(),
        nr_names: stat.stx_nlink,
        size_bytes: stat.stx_size,
        allocated_bytes: stat.stx_blocks.saturating_mul(BLOCK_BYTES),
    })
}

/// Returns the time on the clock that all processes share.
pub(crate) fn monotonic_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` outlives the call.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Returns the kernel's page size.
pub(crate) fn page_bytes() -> usize {
    // SAFETY: takes a number.
    usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096)
}

/// Returns a file's page size if it has huge pages (hugetlbfs, memfd).
pub(crate) fn huge_page_bytes(fd: RawFd) -> Option<u64> {
    // SAFETY: an all-zero statfs is valid.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: `stat` outlives the call; fstatfs accepts any number as descriptor.
    let result = unsafe { libc::fstatfs(fd, &raw mut stat) };
    let is_huge = result == 0 && stat.f_type == libc::HUGETLBFS_MAGIC;
    u64::try_from(stat.f_bsize).ok().filter(|_| is_huge)
}

/// Returns position and length of each hole of an open file, none if the program may not read it.
/// The descriptor's own position stays.
pub(crate) fn holes(fd: RawFd, size_bytes: u64) -> Vec<(u64, u64)> {
    let Ok(file) = File::open(format!("/proc/self/fd/{fd}")) else { return Vec::new() };
    holes::between(size_bytes, |edge, at| {
        let whence = match edge {
            Edge::Hole => libc::SEEK_HOLE,
            Edge::Data => libc::SEEK_DATA,
        };
        let at = libc::off_t::try_from(at).ok()?;
        // SAFETY: takes numbers, and only moves the position of a descriptor opened above.
        u64::try_from(unsafe { libc::lseek(file.as_raw_fd(), at, whence) }).ok()
    })
}

/// Returns the size of a System V shared memory segment, `None` if there is none with this id.
pub(crate) fn segment_bytes(number: c_int) -> Option<u64> {
    // SAFETY: an all-zero shmid_ds is valid.
    let mut segment: libc::shmid_ds = unsafe { std::mem::zeroed() };
    // SAFETY: `segment` outlives the call; shmctl accepts any number.
    let result = unsafe { libc::shmctl(number, libc::IPC_STAT, &raw mut segment) };
    (result == 0).then_some(segment.shm_segsz as u64)
}

/// Turns THP off for this process, or on again. Returns whether the kernel knows such a switch.
pub(crate) fn switch_thp(is_off: u64, flags: u64) -> bool {
    let zero: libc::c_ulong = 0;
    // SAFETY: takes numbers, and only changes the sizes of this process's folios.
    unsafe { libc::prctl(libc::PR_SET_THP_DISABLE, is_off, flags, zero, zero) == 0 }
}

/// Locks memory (mlock2). Returns whether the kernel did.
pub(crate) fn lock(start: u64, len: u64, flags: u64) -> bool {
    // SAFETY: takes numbers; a locked page keeps its content and address.
    unsafe { libc::syscall(libc::SYS_mlock2, start, len, flags) == 0 }
}

/// Repeats an advice that changes no content.
pub(crate) fn advise(start: u64, len: u64, advice: u64) {
    // SAFETY: takes numbers; the caller's advice only sets flags of mappings.
    unsafe { libc::syscall(libc::SYS_madvise, start, len, advice) };
}

pub(crate) fn position(fd: RawFd) -> Option<u64> {
    // SAFETY: SEEK_CUR by 0 changes nothing; lseek accepts any number as descriptor.
    let position = unsafe { libc::lseek(fd, 0, libc::SEEK_CUR) };
    u64::try_from(position).ok()
}

pub(crate) fn reserve(file: &File, length: usize) -> io::Result<()> {
    let length = length.cast_signed() as libc::off_t;
    // SAFETY: fallocate takes an open descriptor, which `file` owns, and numbers.
    let result = unsafe { libc::fallocate(file.as_raw_fd(), libc::FALLOC_FL_KEEP_SIZE, 0, length) };
    checked(result).map(|_| ())
}

pub(crate) fn truncate(path: &Path, length: usize) -> io::Result<()> {
    let path = CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: `path` is a C string that outlives the call.
    let result = unsafe { libc::truncate(path.as_ptr(), length.cast_signed() as libc::off_t) };
    checked(result).map(|_| ())
}

pub(crate) fn map(length: usize, file: Option<&File>) -> Option<*mut u8> {
    let (flags, fd) = match file {
        Some(file) => (libc::MAP_SHARED, file.as_raw_fd()),
        None => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1),
    };
    let prot = libc::PROT_READ | libc::PROT_WRITE;
    // SAFETY: without MAP_FIXED the kernel chooses an address that is free.
    let address = unsafe { libc::mmap(ptr::null_mut(), length, prot, flags, fd, 0) };
    (address != libc::MAP_FAILED).then_some(address.cast())
}

/// Reserves memory, without access, at an address that the kernel chooses.
pub(crate) fn map_anywhere(len: usize, flags: c_int, fd: RawFd, pos: i64) -> Option<*mut c_void> {
    // SAFETY: without MAP_FIXED the kernel chooses an address that is free.
    let address = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_NONE, flags, fd, pos) };
    (address != libc::MAP_FAILED).then_some(address)
}

/// Unmaps memory from [`map`].
///
/// # Safety
/// `address` and `length` describe a mapping made by [`map`] that is no longer in use.
pub(crate) unsafe fn unmap(address: *mut u8, length: usize) {
    // SAFETY: by the caller's promise.
    unsafe { libc::munmap(address.cast(), length) };
}

/// Copies program memory into `buffer` and returns the number of readable bytes.
///
/// The kernel does the copy, so a bad program address is an error, not a crash.
pub(crate) fn read_memory(address: u64, buffer: &mut [u8]) -> usize {
    let local = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    let start = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address).unwrap_or(0));
    let remote = libc::iovec { iov_base: start, iov_len: buffer.len() };
    let pid = std::process::id().cast_signed();
    // SAFETY: `local` describes `buffer`, which is writable and outlives the call; the remote
    // range is checked by the kernel.
    let copied =
        unsafe { libc::process_vm_readv(pid, &raw const local, 1, &raw const remote, 1, 0) };
    usize::try_from(copied).unwrap_or(0)
}

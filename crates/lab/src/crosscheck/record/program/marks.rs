//! Marks in the trace: the effects of the program's system calls on its files.
//!
//! Each mark is one line written to `trace_marker` while the thread is stopped, so marks and kernel
//! events have their true order.
//!
//! | mark (after `lf`) | when |
//! |---|---|
//! | `call TID NR`, `return TID RESULT` | a thread enters and leaves a system call; marks up to the next of these belong to that call |
//! | `thread TID SPACE` | a thread exists, with its address space |
//! | `fork SPACE NEW` | address space NEW is a copy of SPACE |
//! | `exec TID SPACE` | the new program is mapped |
//! | `kmap SPACE ADDR LEN PROT INODE POS` | before `exec`: a mapping the kernel made |
//! | `open ID INODE` | an open file |
//! | `map SPACE ADDR LEN PROT FLAGS ID POS` | `mmap`; ID `-`: not on the filesystem |
//! | `unmap`, `protect`, `remap`, `advise`, `lock`, `lockall` | the calls of these names |
//! | `read ID POS LEN`, `write ..` | at entry |
//! | `send ID POS LEN` | `sendfile` from a file |
//! | `fadvise ID ADVICE POS LEN` | also `readahead` |
//! | `aside INODE WHY` | the call uses a file in a way that the model does not cover |

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use super::descriptors::{Behind, Descriptors, Inode, Open, behind, flags, position};
use super::tracer::{Birth, Call, Observer};
use largefolio_linux::proc::{Task, fd};
use largefolio_linux::system::Live;

/// In the PROT of `kmap`: a shared mapping.
const KMAP_SHARED: u32 = 8;

/// Called with all threads whenever a new one exists and is stopped.
pub(crate) type Follow<'a> = &'a mut dyn FnMut(&BTreeSet<i32>) -> io::Result<()>;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// Its length in bytes when it was first opened.
    pub(crate) bytes: u64,
    pub(crate) path: PathBuf,
}

pub(crate) struct Marks<'a> {
    marker: File,
    /// The filesystem's device, as in `stat`.
    device: u64,
    follow: Follow<'a>,
    threads: BTreeSet<i32>,
    descriptors: Descriptors,
    pub(crate) files: BTreeMap<Inode, Used>,
}

impl<'a> Marks<'a> {
    pub(crate) fn new(marker: File, device: u64, follow: Follow<'a>) -> Self {
        Self {
            marker,
            device,
            follow,
            threads: BTreeSet::new(),
            descriptors: Descriptors::default(),
            files: BTreeMap::new(),
        }
    }

    fn mark(&mut self, text: &str) -> io::Result<()> {
        // One write is one mark.
        self.marker.write_all(format!("lf {text}\n").as_bytes())
    }

    fn space(&self, tid: i32) -> u32 {
        self.descriptors.process(tid).map_or(0, |process| process.space)
    }

    /// Returns a descriptor's file if it is on the filesystem.
    fn own(&self, tid: i32, fd: i32) -> Option<Behind> {
        behind(tid, fd).filter(|file| file.device == self.device)
    }

    fn open_of(&mut self, tid: i32, fd: i32) -> io::Result<Option<Open>> {
        let Some(file) = self.own(tid, fd) else { return Ok(None) };
        match self.descriptors.get(tid, fd) {
            Some(open) if open.inode == file.inode => Ok(Some(open)),
            _ => self.opened(tid, fd, file).map(Some),
        }
    }

    fn opened(&mut self, tid: i32, fd: i32, file: Behind) -> io::Result<Open> {
        let Behind { inode, bytes, path, .. } = file;
        self.files.entry(inode).or_insert(Used { bytes, path });
        let open = self.descriptors.new_open(inode);
        self.descriptors.set(tid, fd, Some(open));
        self.mark(&format!("open {} {inode}", open.id))?;
        Ok(open)
    }

    /// A read or write starts; `pos` is the call's or the descriptor's.
    fn io_begins(&mut self, tid: i32, name: &str, call: &Call) -> io::Result<()> {
        let fd = descriptor(call.args[0]);
        let Some(open) = self.open_of(tid, fd)? else { return Ok(()) };
        if flags(tid, fd)? & bits(libc::O_DIRECT) != 0 {
            return self.set_aside(open.inode, &format!("{name} with O_DIRECT"));
        }
        let [_, buffer, nr, at, _, flags] = call.args;
        let is_v2 = matches!(call.nr, libc::SYS_preadv2 | libc::SYS_pwritev2);
        if is_v2 && flags & !u64::from(RWF_PLAIN) != 0 {
            return self.set_aside(open.inode, &format!("{name} with RWF flags {flags:#x}"));
        }
        let pos = match call.nr {
            libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => at,
            _ if is_v2 && at != u64::MAX => at,
            _ => position(tid, fd)?,
        };
        let len = match call.nr {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_write | libc::SYS_pwrite64 => nr,
            _ => vector_bytes(tid, buffer, nr)?,
        };
        self.mark(&format!("{name} {} {pos} {len}", open.id))
    }

    fn set_aside(&mut self, inode: Inode, why: &str) -> io::Result<()> {
        self.mark(&format!("aside {inode} {why}"))
    }

    /// `sendfile` reads through its own pipe. Into a pipe, it reads only as much as fits.
    fn send_begins(&mut self, tid: i32, call: &Call) -> io::Result<()> {
        let [to, from, at, len, ..] = call.args;
        let from = descriptor(from);
        let Some(open) = self.open_of(tid, from)? else { return Ok(()) };
        if flags(tid, from)? & bits(libc::O_DIRECT) != 0 {
            return self.set_aside(open.inode, "sendfile with O_DIRECT");
        }
        if !fd::is_file_or_device(tid, descriptor(to)) {
            return self.set_aside(open.inode, "sendfile to a pipe or socket");
        }
        let pos = if at == 0 { position(tid, from)? } else { number_at(tid, at)? };
        self.mark(&format!("send {} {pos} {len}", open.id))
    }

    fn mapped(&mut self, tid: i32, call: &Call, addr: i64) -> io::Result<()> {
        let [_, len, prot, flags, fd, pos] = call.args;
        let is_anon = flags & bits(libc::MAP_ANONYMOUS) != 0;
        let open = if is_anon { None } else { self.open_of(tid, descriptor(fd))? };
        let id = open.map_or_else(|| "-".to_owned(), |open| open.id.to_string());
        let space = self.space(tid);
        self.mark(&format!("map {space} {addr:x} {len} {prot} {flags:x} {id} {pos}"))
    }

    fn advised_file(&mut self, tid: i32, fd: u64, rest: [u64; 3]) -> io::Result<()> {
        let Some(open) = self.open_of(tid, descriptor(fd))? else { return Ok(()) };
        let [advice, pos, len] = rest;
        self.mark(&format!("fadvise {} {advice} {pos} {len}", open.id))
    }

    fn copied(&mut self, tid: i32, from: u64, to: i64) {
        let open = self.descriptors.get(tid, descriptor(from));
        self.descriptors.set(tid, i32::try_from(to).unwrap_or(-1), open);
    }

    fn kernel_mappings(&mut self, tid: i32, space: u32) -> io::Result<()> {
        for vma in Task::of(&Live, tid).maps()?.vmas {
            let (major, minor) = vma.device;
            if libc::makedev(major, minor) != self.device {
                continue;
            }
            let path = vma.name().into_owned();
            let bytes = std::fs::metadata(&path).map_or(0, |metadata| metadata.len());
            self.files.entry(vma.inode).or_insert(Used { bytes, path });
            let prot = vma.prot() | if vma.is_shared() { KMAP_SHARED } else { 0 };
            let (start, len, pos) = (vma.range.start, vma.len_bytes(), vma.pos);
            self.mark(&format!("kmap {space} {start:x} {len} {prot} {} {pos}", vma.inode))?;
        }
        Ok(())
    }
}

impl Observer for Marks<'_> {
    fn starts(&mut self, tid: i32) -> io::Result<()> {
        let space = self.descriptors.start(tid).space;
        self.threads.insert(tid);
        (self.follow)(&self.threads)?;
        self.mark(&format!("thread {tid} {space}"))
    }

    fn enters(&mut self, tid: i32, call: &Call) -> io::Result<()> {
        self.mark(&format!("call {tid} {}", call.nr))?;
        match call.nr {
            libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_preadv2 => self.io_begins(tid, "read", call),
            libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
            | libc::SYS_pwritev2 => self.io_begins(tid, "write", call),
            libc::SYS_sendfile => self.send_begins(tid, call),
            _ => {
                for (name, fd) in uncovered(call).into_iter().flatten() {
                    if let Some(open) = self.open_of(tid, descriptor(fd))? {
                        self.set_aside(open.inode, name)?;
                    }
                }
                Ok(())
            }
        }
    }

    fn leaves(&mut self, tid: i32, call: &Call, result: i64) -> io::Result<()> {
        let [first, second, third, fourth, ..] = call.args;
        self.mark(&format!("return {tid} {result}"))?;
        if result < 0 {
            return Ok(());
        }
        let space = self.space(tid);
        match call.nr {
            nr if is_open(nr) => {
                let fd = i32::try_from(result).unwrap_or(-1);
                self.descriptors.set(tid, fd, None);
                self.open_of(tid, fd).map(|_| ())
            }
            libc::SYS_close => {
                self.descriptors.set(tid, descriptor(first), None);
                Ok(())
            }
            libc::SYS_dup | libc::SYS_dup3 => {
                self.copied(tid, first, result);
                Ok(())
            }
            #[cfg(target_arch = "x86_64")]
            libc::SYS_dup2 => {
                self.copied(tid, first, result);
                Ok(())
            }
            libc::SYS_fcntl
                if [libc::F_DUPFD, libc::F_DUPFD_CLOEXEC].contains(&descriptor(second)) =>
            {
                self.copied(tid, first, result);
                Ok(())
            }
            libc::SYS_mmap => self.mapped(tid, call, result),
            libc::SYS_munmap => self.mark(&format!("unmap {space} {first:x} {second}")),
            libc::SYS_mprotect => self.mark(&format!("protect {space} {first:x} {second} {third}")),
            libc::SYS_mremap => {
                self.mark(&format!("remap {space} {first:x} {second} {result:x} {third}"))
            }
            libc::SYS_madvise => self.mark(&format!("advise {space} {first:x} {second} {third}")),
            libc::SYS_mlock | libc::SYS_mlock2 => {
                self.mark(&format!("lock {space} {first:x} {second}"))
            }
            libc::SYS_mlockall => self.mark(&format!("lockall {space} {first}")),
            libc::SYS_fadvise64 => self.advised_file(tid, first, [fourth, second, third]),
            libc::SYS_readahead => {
                let willneed = bits(libc::POSIX_FADV_WILLNEED);
                self.advised_file(tid, first, [willneed, second, third])
            }
            _ => Ok(()),
        }
    }

    fn executes(&mut self, tid: i32) -> io::Result<()> {
        let Some(process) = self.descriptors.execute(tid) else { return Ok(()) };
        self.mark(&format!("thread {tid} {}", process.space))?;
        self.kernel_mappings(tid, process.space)?;
        self.mark(&format!("exec {tid} {}", process.space))
    }

    fn ends(&mut self, tid: i32) {
        self.threads.remove(&tid);
    }

    fn births(&mut self, tid: i32, child: i32, how: Birth) -> io::Result<()> {
        self.threads.insert(child);
        (self.follow)(&self.threads)?;
        let parent = self.space(tid);
        let Some(process) = self.descriptors.birth(tid, child, how) else { return Ok(()) };
        if process.space != parent {
            self.mark(&format!("fork {parent} {}", process.space))?;
        }
        self.mark(&format!("thread {child} {}", process.space))
    }
}

/// An int argument uses the lower half of a register.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is not part of the argument")]
fn descriptor(argument: u64) -> i32 {
    argument as i32
}

fn bits(flag: i32) -> u64 {
    u64::try_from(flag).unwrap_or(0)
}

/// `RWF_HIPRI`, `RWF_DSYNC`, `RWF_SYNC`: flags without effect on the page cache.
const RWF_PLAIN: u32 = 7;

pub(crate) fn is_open(nr: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(nr, libc::SYS_open | libc::SYS_creat) {
        return true;
    }
    matches!(nr, libc::SYS_openat | libc::SYS_openat2)
}

/// Returns the descriptors of calls that use file pages in a way that the model does not cover.
fn uncovered(call: &Call) -> [Option<(&'static str, u64)>; 2] {
    let [first, _, third, ..] = call.args;
    let one = |name, fd| [Some((name, fd)), None];
    match call.nr {
        libc::SYS_splice => [Some(("splice", first)), Some(("splice", third))],
        libc::SYS_copy_file_range => {
            [Some(("copy_file_range", first)), Some(("copy_file_range", third))]
        }
        libc::SYS_fallocate => one("fallocate", first),
        libc::SYS_ftruncate => one("ftruncate", first),
        libc::SYS_sync_file_range => one("sync_file_range", first),
        _ => [None, None],
    }
}

fn number_at(tid: i32, addr: u64) -> io::Result<u64> {
    let mut bytes = [0; 8];
    fd::memory(tid, addr, &mut bytes)?;
    Ok(u64::from_ne_bytes(bytes))
}

fn vector_bytes(tid: i32, addr: u64, nr: u64) -> io::Result<u64> {
    let nr = usize::try_from(nr.min(1024)).unwrap_or(0);
    let mut bytes = vec![0; nr * 16];
    fd::memory(tid, addr, &mut bytes)?;
    let lengths = bytes.chunks_exact(16).filter_map(|part| part[8..].try_into().ok());
    Ok(lengths.map(u64::from_ne_bytes).fold(0, u64::saturating_add))
}

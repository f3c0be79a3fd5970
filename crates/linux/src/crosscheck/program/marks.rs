//! Marks in the trace: what the program's system calls mean for its files.
//!
//! Each mark is one line written to `trace_marker` while the thread stands still, so that it lies
//! between the kernel's events in the order in which everything happened.
//!
//! | mark (after `lf`) | when |
//! |---|---|
//! | `thread TID SPACE` | a thread exists; its address space |
//! | `fork SPACE NEW` | address space NEW is a copy of SPACE |
//! | `execve TID`, `exec SPACE` | entry; the new program is mapped |
//! | `kmap SPACE ADDR LEN PROT INODE PAGE` | behind `exec`: a mapping the kernel made |
//! | `open ID INODE` | an open file |
//! | `map SPACE ADDR LEN PROT FLAGS ID POS` | `mmap`; ID `-`: not of the filesystem |
//! | `unmap`, `protect`, `remap`, `advise` | as the calls |
//! | `read TID ID POS LEN`, `write ..`, `done TID` | entry and end |
//! | `fadvise ID ADVICE POS LEN` | also `readahead` |

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Write};
use std::path::PathBuf;

use super::descriptors::{Behind, Descriptors, Inode, Open, behind, fdinfo};
use super::tracer::{Birth, Call, Watch};

/// Is told all threads whenever there is a new one, which stands still.
pub(crate) type Follow<'a> = &'a mut dyn FnMut(&BTreeSet<i32>) -> io::Result<()>;

/// A file the program used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Used {
    /// Size in bytes when it was first opened.
    pub(crate) bytes: u64,
    /// Path.
    pub(crate) path: PathBuf,
}

/// Writes marks; one of a run.
pub(crate) struct Marks<'a> {
    marker: File,
    /// Device of the filesystem, as `stat` gives it.
    device: u64,
    follow: Follow<'a>,
    threads: BTreeSet<i32>,
    descriptors: Descriptors,
    /// Files of the filesystem.
    pub(crate) files: BTreeMap<Inode, Used>,
    /// Calls that read or write files in a way the recording has no line for.
    pub(crate) unknown: BTreeMap<&'static str, u64>,
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
            unknown: BTreeMap::new(),
        }
    }

    fn mark(&mut self, text: &str) -> io::Result<()> {
        // One write is one mark.
        self.marker.write_all(format!("lf {text}\n").as_bytes())
    }

    fn space(&self, tid: i32) -> u32 {
        self.descriptors.process(tid).map_or(0, |process| process.space)
    }

    /// The file of the filesystem behind a descriptor.
    fn own(&self, tid: i32, fd: i32) -> Option<Behind> {
        behind(tid, fd).filter(|found| found.device == self.device)
    }

    /// The open file behind a descriptor; one whose opening was not seen is a new one.
    fn open_of(&mut self, tid: i32, fd: i32) -> io::Result<Option<Open>> {
        let Some(found) = self.own(tid, fd) else { return Ok(None) };
        match self.descriptors.get(tid, fd) {
            Some(open) if open.inode == found.inode => Ok(Some(open)),
            _ => self.opened(tid, fd, found).map(Some),
        }
    }

    fn opened(&mut self, tid: i32, fd: i32, found: Behind) -> io::Result<Open> {
        let Behind { inode, bytes, path, .. } = found;
        self.files.entry(inode).or_insert(Used { bytes, path });
        let open = self.descriptors.new_open(inode);
        self.descriptors.set(tid, fd, Some(open));
        self.mark(&format!("open {} {inode}", open.id))?;
        Ok(open)
    }

    /// A read or write begins; `pos` as the call gives it, or the descriptor's.
    fn io_begins(&mut self, tid: i32, name: &str, call: &Call) -> io::Result<()> {
        let fd = descriptor(call.args[0]);
        let Some(open) = self.open_of(tid, fd)? else { return Ok(()) };
        let pos = match call.nr {
            libc::SYS_pread64 | libc::SYS_pwrite64 | libc::SYS_preadv | libc::SYS_pwritev => {
                call.args[3]
            }
            _ => fdinfo(tid, fd, "pos")?,
        };
        let len = match call.nr {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_write | libc::SYS_pwrite64 => {
                call.args[2]
            }
            _ => vector_bytes(tid, call.args[1], call.args[2])?,
        };
        self.mark(&format!("{name} {tid} {} {pos} {len}", open.id))
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

    /// Mappings the kernel made of the filesystem's files.
    fn kernel_mappings(&mut self, tid: i32, space: u32) -> io::Result<()> {
        let text = std::fs::read_to_string(format!("/proc/{tid}/maps"))?;
        for line in text.lines() {
            let Some(area) = MapsLine::parse(line).filter(|area| area.device == self.device) else {
                continue;
            };
            let path = PathBuf::from(area.path);
            let bytes = std::fs::metadata(&path).map_or(0, |found| found.len());
            self.files.entry(area.inode).or_insert(Used { bytes, path });
            let MapsLine { start, end, prot, inode, page, .. } = area;
            let len = end - start;
            self.mark(&format!("kmap {space} {start:x} {len} {prot} {inode} {page}"))?;
        }
        Ok(())
    }
}

impl Watch for Marks<'_> {
    fn starts(&mut self, tid: i32) -> io::Result<()> {
        let space = self.descriptors.start(tid).space;
        self.threads.insert(tid);
        (self.follow)(&self.threads)?;
        self.mark(&format!("thread {tid} {space}"))
    }

    fn enters(&mut self, tid: i32, call: &Call) -> io::Result<()> {
        match call.nr {
            libc::SYS_read | libc::SYS_pread64 | libc::SYS_readv | libc::SYS_preadv => {
                self.io_begins(tid, "read", call)
            }
            libc::SYS_write | libc::SYS_pwrite64 | libc::SYS_writev | libc::SYS_pwritev => {
                self.io_begins(tid, "write", call)
            }
            libc::SYS_execve | libc::SYS_execveat => self.mark(&format!("execve {tid}")),
            _ => {
                if let Some((name, fd)) = unknown_io(call)
                    && self.own(tid, descriptor(fd)).is_some()
                {
                    *self.unknown.entry(name).or_default() += 1;
                }
                Ok(())
            }
        }
    }

    fn leaves(&mut self, tid: i32, call: &Call, result: i64) -> io::Result<()> {
        let [first, second, third, fourth, ..] = call.args;
        if result < 0 && !is_io(call.nr) {
            return Ok(());
        }
        let space = self.space(tid);
        match call.nr {
            nr if is_io(nr) => {
                let is_own = self.own(tid, descriptor(first)).is_some();
                if is_own { self.mark(&format!("done {tid}")) } else { Ok(()) }
            }
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

/// One line of `/proc/PID/maps`.
struct MapsLine<'a> {
    start: u64,
    end: u64,
    /// `PROT_*`, and 8 for a shared mapping.
    prot: u64,
    page: u64,
    device: u64,
    inode: u64,
    path: &'a str,
}

impl<'a> MapsLine<'a> {
    fn parse(line: &'a str) -> Option<Self> {
        let mut words = line.splitn(6, ' ');
        let (start, end) = words.next()?.split_once('-')?;
        let flags = words.next()?;
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let pos = hex(words.next()?)?;
        let (major, minor) = words.next()?.split_once(':')?;
        let device = libc::makedev(
            u32::from_str_radix(major, 16).ok()?,
            u32::from_str_radix(minor, 16).ok()?,
        );
        let inode = words.next()?.parse().ok()?;
        let prot = [('r', 1), ('w', 2), ('x', 4), ('s', 8)];
        let prot = prot.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, bit)| bit).sum();
        let (start, end) = (hex(start)?, hex(end)?);
        let path = words.next()?.trim();
        Some(Self { start, end, prot, page: pos >> 12, device, inode, path })
    }
}

/// Arguments of type int use the lower half of a register.
#[expect(clippy::cast_possible_truncation, reason = "the upper half is not part of the argument")]
fn descriptor(argument: u64) -> i32 {
    argument as i32
}

fn bits(flag: i32) -> u64 {
    u64::try_from(flag).unwrap_or(0)
}

fn is_io(nr: i64) -> bool {
    matches!(
        nr,
        libc::SYS_read
            | libc::SYS_pread64
            | libc::SYS_readv
            | libc::SYS_preadv
            | libc::SYS_write
            | libc::SYS_pwrite64
            | libc::SYS_writev
            | libc::SYS_pwritev
    )
}

pub(crate) fn is_open(nr: i64) -> bool {
    #[cfg(target_arch = "x86_64")]
    if matches!(nr, libc::SYS_open | libc::SYS_creat) {
        return true;
    }
    matches!(nr, libc::SYS_openat | libc::SYS_openat2)
}

/// Calls that move file pages in other ways, with the descriptor they read.
fn unknown_io(call: &Call) -> Option<(&'static str, u64)> {
    Some(match call.nr {
        libc::SYS_sendfile => ("sendfile", call.args[1]),
        libc::SYS_splice => ("splice", call.args[0]),
        libc::SYS_copy_file_range => ("copy_file_range", call.args[0]),
        libc::SYS_preadv2 => ("preadv2", call.args[0]),
        libc::SYS_pwritev2 => ("pwritev2", call.args[0]),
        libc::SYS_fallocate => ("fallocate", call.args[0]),
        libc::SYS_ftruncate => ("ftruncate", call.args[0]),
        _ => return None,
    })
}

/// Sum of the lengths of an I/O vector in a stopped thread's memory.
fn vector_bytes(tid: i32, addr: u64, nr: u64) -> io::Result<u64> {
    use std::os::unix::fs::FileExt;
    let nr = usize::try_from(nr.min(1024)).unwrap_or(0);
    let mut bytes = vec![0; nr * 16];
    File::open(format!("/proc/{tid}/mem"))?.read_exact_at(&mut bytes, addr)?;
    let lengths = bytes.chunks_exact(16).filter_map(|part| part[8..].try_into().ok());
    Ok(lengths.map(u64::from_ne_bytes).fold(0, u64::saturating_add))
}

//! An event as a line of text, in terms of its system call.

use std::fmt::Write as _;
use std::io::{self, Write};

use largefolio_results::figures;
use largefolio_trace::event::abi::{
    FALLOC_FL_COLLAPSE_RANGE, FALLOC_FL_INSERT_RANGE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE,
    MAP_SHARED,
};
use largefolio_trace::event::{
    BORROWS_MEMORY, SHARES_MEMORY, io as means, lock, map_of, mempolicy, prot_of, thp_disable,
};
use largefolio_trace::{Event, ExitKind, Meta, Op};

pub(super) fn line(out: &mut dyn Write, row: u64, event: &Event, meta: &Meta) -> io::Result<()> {
    let op = event.op.name();
    if event.op.is_reference() {
        let Event { thread, addr, len, flags, .. } = event;
        let link = if *flags == 0 { String::new() } else { format!(" link {flags}") };
        return writeln!(out, "{row:>10} t{thread:<3} {op:<8} {addr:#014x} x{len}{link}");
    }
    writeln!(out, "{row:>10} t{:<3} {op:<8} {}", event.thread, text(event, meta))
}

fn text(event: &Event, meta: &Meta) -> String {
    let &Event { op, addr, len, pos, aux, flags, .. } = event;
    let range = format!("{addr:#014x} {}", figures::bytes(len));
    let file = file(event, meta);
    match op {
        Op::Exec | Op::Read | Op::Write => format!("{addr:#014x} x{len}"),
        Op::Collapse if pos > 0 => format!("{range} to {}", figures::bytes(pos)),
        Op::Munmap | Op::Collapse => range,
        Op::Mmap => {
            let kind = if map_of(flags) & MAP_SHARED == 0 { "private" } else { "shared" };
            let what = match event.file {
                Some(_) => format!("{file} at {pos:#x}"),
                None => "anonymous".to_owned(),
            };
            format!("{range} {} {kind} {what}", prot(prot_of(flags)))
        }
        Op::Mprotect => format!("{range} {}", prot(flags)),
        Op::Mremap => format!("{range} to {pos:#014x} {}", figures::bytes(aux)),
        Op::Madvise => format!("{range} {}", madvice(aux)),
        Op::Brk => format!("{addr:#014x} to {pos:#014x}"),
        Op::Fork if flags & SHARES_MEMORY != 0 => format!("thread t{aux}"),
        Op::Fork if flags & BORROWS_MEMORY != 0 => format!("vfork, process with thread t{aux}"),
        Op::Fork => format!("process with thread t{aux}"),
        Op::Exit => exit(flags, pos),
        Op::Open => format!("{file} as descriptor {pos}"),
        Op::Close => format!("descriptor {pos}"),
        Op::Pread | Op::Pwrite => {
            format!("{file} at {pos:#x} {}{}", figures::bytes(len), moves(flags))
        }
        Op::Truncate => format!("{file} to {}", figures::bytes(len)),
        Op::Fadvise => format!("{file} at {pos:#x} {} advice {aux}", figures::bytes(len)),
        Op::DropCaches | Op::Unlink => file,
        Op::Execve => execve(aux, meta),
        Op::Sync if event.file.is_none() && len > 0 => range,
        Op::Sync if event.file.is_none() => file,
        Op::Sync if len == u64::MAX => file,
        Op::Sync => format!("{file} at {pos:#x} {}", figures::bytes(len)),
        Op::Mlock => {
            format!("{}{}", if len == 0 { "all memory" } else { range.as_str() }, locked(flags))
        }
        Op::ThpDisable => disabled(aux).to_owned(),
        Op::Fallocate => format!("{file} at {pos:#x} {}{}", figures::bytes(len), fallocate(aux)),
        Op::Mempolicy => {
            format!("{}{}", if len == 0 { "the process" } else { range.as_str() }, policy(event))
        }
    }
}

fn locked(flags: u32) -> &'static str {
    match flags {
        0 => " unlocked",
        _ if flags & lock::ON_FAULT != 0 => " on fault",
        _ => "",
    }
}

/// The mode of a memory policy, its nodes, and whether pages move.
fn policy(event: &Event) -> String {
    let names = [
        "default",
        "preferred",
        "bind",
        "interleave",
        "local",
        "preferred-many",
        "weighted-interleave",
    ];
    let mode = event.flags & mempolicy::MODE_MASK;
    let mut text = match usize::try_from(mode).ok().and_then(|mode| names.get(mode)) {
        Some(name) => format!(" {name}"),
        None => format!(" mode {mode}"),
    };
    for (nr, node) in (0..u64::BITS).filter(|node| event.aux >> node & 1 == 1).enumerate() {
        let _ = write!(text, "{}{node}", if nr == 0 { '=' } else { '+' });
    }
    if event.flags & (mempolicy::MOVE | mempolicy::MOVE_ALL) != 0 {
        text += ", pages move";
    }
    text
}

fn disabled(aux: u64) -> &'static str {
    match aux {
        0 => "no longer",
        _ if aux & thp_disable::EXCEPT_ADVISED != 0 => "except in advised areas",
        _ => "all",
    }
}

/// How a read or write call moves the data.
fn moves(flags: u32) -> &'static str {
    match flags {
        _ if flags & means::DIRECT != 0 => " direct",
        _ if flags & means::COPY != 0 => " copy_file_range",
        _ if flags & means::PIPE != 0 => " through a pipe",
        _ if flags & means::SYNC != 0 => " synchronous",
        _ => "",
    }
}

/// `FALLOC_FL_*` of the Linux ABI.
fn fallocate(mode: u64) -> &'static str {
    match mode {
        _ if mode & FALLOC_FL_PUNCH_HOLE != 0 => " hole",
        _ if mode & FALLOC_FL_COLLAPSE_RANGE != 0 => " removed",
        _ if mode & FALLOC_FL_ZERO_RANGE != 0 => " zeroes",
        _ if mode & FALLOC_FL_INSERT_RANGE != 0 => " inserted",
        _ => "",
    }
}

fn execve(exec: u64, meta: &Meta) -> String {
    let known = usize::try_from(exec).ok().and_then(|row| meta.execs.get(row));
    known.map_or_else(String::new, |exec| figures::printable(&exec.command.join(" ")))
}

fn file(event: &Event, meta: &Meta) -> String {
    let Some(id) = event.file else { return "all files".to_owned() };
    let known = meta.files.get(id as usize).map(|file| figures::printable(&file.path));
    known.filter(|path| !path.is_empty()).unwrap_or_else(|| format!("file {id}"))
}

/// `PROT_*` in the format of /proc/PID/maps.
fn prot(bits: u32) -> String {
    let flag = |bit, letter| if bits & bit == 0 { '-' } else { letter };
    [flag(1, 'r'), flag(2, 'w'), flag(4, 'x')].iter().collect()
}

/// `MADV_*` of the Linux ABI.
fn madvice(advice: u64) -> String {
    let name = match advice {
        0 => "normal",
        1 => "random",
        2 => "sequential",
        3 => "willneed",
        4 => "dontneed",
        8 => "free",
        14 => "hugepage",
        15 => "nohugepage",
        20 => "cold",
        21 => "pageout",
        22 => "populate-read",
        25 => "collapse",
        _ => return format!("advice {advice}"),
    };
    name.to_owned()
}

fn exit(flags: u32, pos: u64) -> String {
    let is = |kind: ExitKind| flags == kind as u32;
    match () {
        () if is(ExitKind::Thread) => format!("thread, status {pos}"),
        () if is(ExitKind::Execve) => "execve".to_owned(),
        () if is(ExitKind::Signal) && pos == 0 => "a signal".to_owned(),
        () if is(ExitKind::Signal) => format!("signal {pos}"),
        () if is(ExitKind::Unknown) => "process".to_owned(),
        () => format!("process, status {pos}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shows_the_target_of_a_link() {
        let mut text = Vec::new();
        for flags in [0, 4] {
            let event = Event { flags, ..Event::references(1, Op::Read, 0x7000, 16) };
            assert!(line(&mut text, 12, &event, &Meta::default()).is_ok());
        }
        let plain = "        12 t1   read     0x000000007000 x16";
        assert_eq!(String::from_utf8_lossy(&text), format!("{plain}\n{plain} link 4\n"));
    }
}

//! An event as a line of text, in terms of its system call.

use std::io::{self, Write};

use largefolio_results::figures;
use largefolio_trace::event::abi::MAP_SHARED;
use largefolio_trace::event::{BORROWS_MEMORY, SHARES_MEMORY, map_of, prot_of};
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
        Op::Pread | Op::Pwrite => format!("{file} at {pos:#x} {}", figures::bytes(len)),
        Op::Truncate => format!("{file} to {}", figures::bytes(len)),
        Op::Fadvise => format!("{file} at {pos:#x} {} advice {aux}", figures::bytes(len)),
        Op::DropCaches => file,
        Op::Execve => execve(aux, meta),
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

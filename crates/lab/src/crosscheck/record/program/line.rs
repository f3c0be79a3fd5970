//! One line of a trace.

use largefolio_linux::fault_probe::{self, HANDLE_MM_FAULT};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TracerLine {
    /// The thread that caused it; for a mark, the recorder.
    pub(crate) tid: i32,
    pub(crate) event: Event,
}

/// An event. Indices and runs are in pages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Mark(Mark),
    /// `exceptions:page_fault_*`, or `handle_mm_fault` with its code from [`fault_probe`].
    Fault {
        address: u64,
        code: u64,
    },
    /// `mm_filemap_add_to_page_cache`.
    Inserted {
        inode: u64,
        index: u64,
        order: u8,
    },
    /// `mm_filemap_delete_from_page_cache`.
    Removed {
        inode: u64,
        index: u64,
        order: u8,
    },
    /// `mm_filemap_fault`.
    Handler {
        inode: u64,
        index: u64,
    },
    /// `mm_filemap_map_pages`.
    Around {
        inode: u64,
        first: u64,
        last: u64,
    },
    /// `mm_filemap_get_pages`.
    Collected {
        inode: u64,
        first: u64,
        last: u64,
    },
    /// `page_cache_*`, with the values in the order of `recordings/README.md`.
    Readahead {
        inode: u64,
        kind: Readahead,
        fields: Vec<i64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Readahead {
    Order,
    Unbounded,
    Sync,
    Async,
}

/// A mark; the table in `marks` lists when each is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    Thread { tid: i32, space: u32 },
    Fork { from: u32, to: u32 },
    Call { tid: i32, nr: i64 },
    Return { tid: i32, result: i64 },
    Exec { tid: i32, space: u32 },
    KernelMap { space: u32, addr: u64, len: u64, prot: u64, inode: u64, pos: u64 },
    Open { id: u32, inode: u64 },
    Map { space: u32, addr: u64, len: u64, prot: u64, flags: u64, open: Option<u32>, pos: u64 },
    Unmap { space: u32, addr: u64, len: u64 },
    Protect { space: u32, addr: u64, len: u64, prot: u64 },
    Remap { space: u32, from: u64, len: u64, to: u64, to_len: u64 },
    Advise { space: u32, addr: u64, len: u64, advice: u64 },
    Io { is_write: bool, open: u32, pos: u64, len: u64 },
    Send { open: u32, pos: u64, len: u64 },
    Aside { inode: u64, why: String },
    Lock { space: u32, addr: u64, len: u64 },
    LockAll { space: u32, flags: u64 },
    Fadvise { open: u32, advice: u64, pos: u64, len: u64 },
}

impl Event {
    pub(crate) fn inode(&self) -> Option<u64> {
        match *self {
            Self::Mark(_) | Self::Fault { .. } => None,
            Self::Inserted { inode, .. }
            | Self::Removed { inode, .. }
            | Self::Handler { inode, .. }
            | Self::Around { inode, .. }
            | Self::Collected { inode, .. }
            | Self::Readahead { inode, .. } => Some(inode),
        }
    }

    /// Returns a collected run's position and length in bytes; for other events, the first page.
    pub(crate) fn range(&self, page: u64) -> (u64, u64) {
        match *self {
            Self::Collected { first, last, .. } => {
                (first * page, last.saturating_sub(first) * page)
            }
            _ => (0, page),
        }
    }
}

/// Parses a line; pages have `1 << shift` bytes. `None` for comments and unused events.
pub(crate) fn parse(text: &str, shift: u32) -> Result<Option<TracerLine>, String> {
    if text.starts_with('#') || text.trim().is_empty() {
        return Ok(None);
    }
    if text.starts_with("CPU:") && text.contains("LOST") {
        return Err("events were lost".to_owned());
    }
    let Some((tid, name, fields)) = split(text) else {
        // A thread's name may contain a newline. The text before it is at most as long as a name.
        if text.chars().count() <= COMM_WIDTH {
            return Ok(None);
        }
        return Err(format!("not a trace line: {text:?}"));
    };
    let event = match name {
        "tracing_mark_write" => match fields.strip_prefix("lf ") {
            Some(mark) => Event::Mark(self::mark(mark).ok_or_else(|| format!("mark {mark:?}"))?),
            None => return Ok(None),
        },
        _ => match kernel_event(name, fields, shift) {
            Some(Ok(event)) => event,
            Some(Err(())) => return Err(format!("event {name}: {fields:?}")),
            None => return Ok(None),
        },
    };
    Ok(Some(TracerLine { tid, event }))
}

/// The width of the thread name in a line; the name itself has at most one character less.
const COMM_WIDTH: usize = 16;

/// Splits `COMM-TID  [CPU] FLAGS TIME: NAME: FIELDS`. COMM is too short to contain the rest.
fn split(text: &str) -> Option<(i32, &str, &str)> {
    let mut after_dashes = text.match_indices('-').map(|(at, _)| &text[at + 1..]);
    let (tid, rest) = after_dashes.find_map(after_comm)?;
    let (name, fields) = rest.split_once(':')?;
    Some((tid, name, fields.trim()))
}

fn after_comm(text: &str) -> Option<(i32, &str)> {
    let (tid, rest) = text.split_once(' ')?;
    let (cpu, rest) = rest.trim_start().strip_prefix('[')?.split_once("] ")?;
    let (flags, rest) = rest.split_once(' ')?;
    let (time, rest) = rest.trim_start().split_once(": ")?;
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let is_time = time.split_once('.').is_some_and(|(s, us)| is_number(s) && is_number(us));
    let is_line = is_number(cpu) && cpu.len() >= 3 && flags.len() >= 4 && is_time;
    let tid = tid.parse().ok().filter(|&tid: &i32| tid >= 0)?;
    is_line.then_some((tid, rest))
}

fn kernel_event(name: &str, fields: &str, shift: u32) -> Option<Result<Event, ()>> {
    let cached = |fields: &str| cached(fields, shift);
    let range = |fields: &str| range(fields, shift);
    let parsed = match name {
        "page_fault_user" | "page_fault_kernel" => fault(fields),
        HANDLE_MM_FAULT => return handled(fields),
        "mm_filemap_add_to_page_cache" => {
            cached(fields).map(|(inode, index, order)| Event::Inserted { inode, index, order })
        }
        "mm_filemap_delete_from_page_cache" => {
            cached(fields).map(|(inode, index, order)| Event::Removed { inode, index, order })
        }
        "mm_filemap_fault" => {
            range(fields).map(|(inode, index, _)| Event::Handler { inode, index })
        }
        "mm_filemap_map_pages" => {
            range(fields).map(|(inode, first, last)| Event::Around { inode, first, last })
        }
        "mm_filemap_get_pages" => {
            range(fields).map(|(inode, first, last)| Event::Collected { inode, first, last })
        }
        "page_cache_ra_order" => readahead(
            Readahead::Order,
            fields,
            &["index", "order", "size", "async_size", "ra_pages"],
        ),
        "page_cache_ra_unbounded" => {
            readahead(Readahead::Unbounded, fields, &["index", "nr_to_read", "lookahead_size"])
        }
        "page_cache_sync_ra" => readahead(Readahead::Sync, fields, &ENTRY),
        "page_cache_async_ra" => readahead(Readahead::Async, fields, &ENTRY),
        _ => return None,
    };
    Some(parsed.ok_or(()))
}

const ENTRY: [&str; 8] =
    ["index", "req_count", "order", "size", "async_size", "ra_pages", "mmap_miss", "prev_pos"];

fn value<'a>(fields: &'a str, key: &str) -> Option<&'a str> {
    let mut fields = fields.split(' ');
    while let Some(word) = fields.next() {
        if let Some(value) = word.strip_prefix(key).and_then(|rest| rest.strip_prefix('=')) {
            return Some(value);
        }
        if word == key {
            return fields.next();
        }
    }
    None
}

fn hex(text: &str) -> Option<u64> {
    u64::from_str_radix(text.strip_prefix("0x").unwrap_or(text), 16).ok()
}

fn inode(fields: &str) -> Option<u64> {
    hex(value(fields, "ino")?)
}

fn fault(fields: &str) -> Option<Event> {
    let address = hex(value(fields, "address")?)?;
    Some(Event::Fault { address, code: hex(value(fields, "error_code")?)? })
}

/// Parses a call of `handle_mm_fault`: nothing if it handles no fault, an error if it is invalid.
fn handled(fields: &str) -> Option<Result<Event, ()>> {
    let number = |key| value(fields, key).and_then(hex);
    let (Some(address), Some(flags)) = (number("address"), number("flags")) else {
        return Some(Err(()));
    };
    fault_probe::code(flags).map(|code| Ok(Event::Fault { address, code }))
}

fn cached(fields: &str, shift: u32) -> Option<(u64, u64, u8)> {
    let pos: u64 = value(fields, "ofs")?.parse().ok()?;
    Some((inode(fields)?, pos >> shift, value(fields, "order")?.parse().ok()?))
}

/// Parses `ofs=FIRST` or `ofs=FIRST-LAST`, in bytes.
fn range(fields: &str, shift: u32) -> Option<(u64, u64, u64)> {
    let pos = value(fields, "ofs")?;
    let (first, last) = pos.split_once('-').unwrap_or((pos, pos));
    let page = |text: &str| text.parse::<u64>().ok().map(|pos| pos >> shift);
    Some((inode(fields)?, page(first)?, page(last)?))
}

fn readahead(kind: Readahead, fields: &str, keys: &[&str]) -> Option<Event> {
    let values: Option<Vec<i64>> =
        keys.iter().map(|key| value(fields, key)?.parse().ok()).collect();
    Some(Event::Readahead { inode: inode(fields)?, kind, fields: values? })
}

fn mark(text: &str) -> Option<Mark> {
    let fields: Vec<&str> = text.split_ascii_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    let id = |word: &str| word.parse::<u32>().ok();
    let thread = |word: &str| word.parse::<i32>().ok();
    Some(match *fields {
        ["thread", tid, space] => Mark::Thread { tid: thread(tid)?, space: id(space)? },
        ["fork", from, to] => Mark::Fork { from: id(from)?, to: id(to)? },
        ["call", tid, nr] => Mark::Call { tid: thread(tid)?, nr: nr.parse().ok()? },
        ["return", tid, result] => Mark::Return { tid: thread(tid)?, result: result.parse().ok()? },
        ["exec", tid, space] => Mark::Exec { tid: thread(tid)?, space: id(space)? },
        ["kmap", space, addr, len, prot, inode, pos] => Mark::KernelMap {
            space: id(space)?,
            addr: hex(addr)?,
            len: number(len)?,
            prot: number(prot)?,
            inode: number(inode)?,
            pos: number(pos)?,
        },
        ["open", open, inode] => Mark::Open { id: id(open)?, inode: number(inode)? },
        ["map", space, addr, len, prot, flags, open, pos] => Mark::Map {
            space: id(space)?,
            addr: hex(addr)?,
            len: number(len)?,
            prot: number(prot)?,
            flags: hex(flags)?,
            open: if open == "-" { None } else { Some(id(open)?) },
            pos: number(pos)?,
        },
        ["unmap", space, addr, len] => {
            Mark::Unmap { space: id(space)?, addr: hex(addr)?, len: number(len)? }
        }
        ["protect", space, addr, len, prot] => Mark::Protect {
            space: id(space)?,
            addr: hex(addr)?,
            len: number(len)?,
            prot: number(prot)?,
        },
        ["remap", space, from, len, to, to_len] => Mark::Remap {
            space: id(space)?,
            from: hex(from)?,
            len: number(len)?,
            to: hex(to)?,
            to_len: number(to_len)?,
        },
        ["advise", space, addr, len, advice] => Mark::Advise {
            space: id(space)?,
            addr: hex(addr)?,
            len: number(len)?,
            advice: number(advice)?,
        },
        ["lock", space, addr, len] => {
            Mark::Lock { space: id(space)?, addr: hex(addr)?, len: number(len)? }
        }
        ["lockall", space, flags] => Mark::LockAll { space: id(space)?, flags: number(flags)? },
        ref fields => return mark_of_file(fields),
    })
}

fn mark_of_file(fields: &[&str]) -> Option<Mark> {
    let number = |word: &str| word.parse::<u64>().ok();
    let id = |word: &str| word.parse::<u32>().ok();
    Some(match *fields {
        [kind @ ("read" | "write"), open, pos, len] => Mark::Io {
            is_write: kind == "write",
            open: id(open)?,
            pos: number(pos)?,
            len: number(len)?,
        },
        ["send", open, pos, len] => {
            Mark::Send { open: id(open)?, pos: number(pos)?, len: number(len)? }
        }
        ["aside", inode, ref why @ ..] => Mark::Aside { inode: number(inode)?, why: why.join(" ") },
        ["fadvise", open, advice, pos, len] => Mark::Fadvise {
            open: id(open)?,
            advice: number(advice)?,
            pos: number(pos)?,
            len: number(len)?,
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::{prop_assert_eq, proptest};

    use super::*;
    use largefolio_linux::fault_probe::{FETCH, LOCKED, STORE};

    fn fault(flags: &str) -> Result<Option<TracerLine>, String> {
        let text = format!(
            "  ls-17  [000] .....  1.5: handle_mm_fault: (handle_mm_fault+0x0/0x2a0) \
             address=0xffff81234567 flags={flags}"
        );
        parse(&text, 14)
    }

    #[test]
    fn a_probe_of_the_handler_is_a_fault_with_the_codes_of_an_event() {
        for (flags, expected) in
            [("0x254", 0), ("0x255", STORE), ("0x354", FETCH), ("0x1254", LOCKED)]
        {
            let Some(TracerLine { tid: 17, event: Event::Fault { address, code } }) =
                fault(flags).unwrap()
            else {
                panic!("{flags}")
            };
            assert_eq!((address, code), (0xffff_8123_4567, expected), "{flags}");
        }
        // A retry, and a populating call.
        assert_eq!((fault("0x274"), fault("0x14")), (Ok(None), Ok(None)));
        assert!(fault("what").is_err());
    }

    #[test]
    fn positions_become_pages_of_the_machine() {
        let text = "  ls-17  [000] .....  1.5: mm_filemap_map_pages: dev 7:0 ino 1f \
                    ofs=65536-131071";
        let of = |shift| match parse(text, shift) {
            Ok(Some(TracerLine { event: Event::Around { first, last, .. }, .. })) => (first, last),
            other => panic!("{other:?}"),
        };
        assert_eq!([of(12), of(14), of(16)], [(16, 31), (4, 7), (1, 1)]);
    }

    #[test]
    fn a_name_with_a_line_end_is_two_lines_and_lost_events_are_told() {
        assert_eq!(parse("              a", 12), Ok(None));
        let rest = "b-17  [000] d....  1.5: sched_switch: prev_comm=x";
        assert_eq!(parse(rest, 12), Ok(None));
        assert!(parse("CPU:0 [LOST 12 EVENTS]", 12).is_err());
        assert!(parse("a line that is longer than a name", 12).is_err());
    }

    proptest! {
        /// Programs choose their threads' names.
        #[test]
        fn a_name_of_any_characters_takes_nothing_from_its_line(
            comm in "([ -~]|LOST|EVENTS|-1 |\\[0\\] |[.]{4}|: ){0,15}",
            tid in 0..i32::MAX,
        ) {
            let comm: String = comm.chars().take(15).collect();
            let text = format!(
                "{comm:>16}-{tid:<7} [001] d....  7.012345: mm_filemap_fault: dev 7:0 ino 1f ofs=4096"
            );
            let event = Event::Handler { inode: 0x1f, index: 1 };
            prop_assert_eq!(parse(&text, 12), Ok(Some(TracerLine { tid, event })));
        }
    }
}

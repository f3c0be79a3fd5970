//! Reader of the recording format (`recordings/README.md`).

use std::collections::BTreeMap;

use largefolio_mm::mapping::reserve::{Extent, Kind};
use largefolio_mm::observed::EntryKind;
use largefolio_trace::shown;

use super::recording::{
    Action, AreaEnd, AreaSpec, EntryLine, FileIo, FolioRun, Hit, Recording, Run, State, Step,
    Touch, WindowLine,
};

/// Folios one `A` line may stand for: those of a file of 64 GiB in base pages.
const NR_TIMES_MAX: u64 = 1 << 24;
/// Largest page number: byte positions stay below 2^62.
const INDEX_MAX: u64 = 1 << 46;
/// Largest base page (docs/behaviour 0.1).
const PAGE_BYTES_MAX: u64 = 64 << 10;
/// Descriptors, mappings and files one recording may have.
const NR_IDS_MAX: u64 = 1 << 16;
/// Where the one mapping of a recording without `N` lines begins.
const DEFAULT_ADDR: u64 = 0x4000_0000_0000;

/// A line that is not of the format.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}:{line}: {what}; recordings/README.md describes the format", shown(name))]
pub struct ParseError {
    /// Recording.
    pub name: String,
    /// Line, from 1.
    pub line: usize,
    /// What is wrong.
    pub what: String,
}

type Parsed<T> = Result<T, String>;

impl Recording {
    /// Parses one recording.
    ///
    /// # Errors
    /// The first line that is not of the format.
    pub fn parse(name: &str, text: &str) -> Result<Self, ParseError> {
        let mut reader = Reader::default();
        for (nr, line) in text.lines().enumerate() {
            reader.line(line).map_err(|what| {
                let name = name.to_owned();
                ParseError { name, line: nr + 1, what }
            })?;
        }
        let mut recording = reader.recording;
        if recording.header.page_bytes == 0 {
            let what = "no header (# kernel=.. page=..)".to_owned();
            return Err(ParseError { name: name.to_owned(), line: 1, what });
        }
        name.clone_into(&mut recording.name);
        Ok(recording)
    }
}

/// Position in a recording.
#[derive(Default)]
struct Reader {
    recording: Recording,
    /// Mapping whose final state is being read, once the steps have ended.
    end: Option<u32>,
}

impl Reader {
    fn line(&mut self, line: &str) -> Parsed<()> {
        let mut words: Vec<&str> = line.split_ascii_whitespace().collect();
        let Some(&first) = words.first() else { return Ok(()) };
        if first == "#" {
            return self.header(&words[1..]);
        }
        if self.recording.header.page_bytes == 0 {
            return Err("the first line must be the header".to_owned());
        }
        let mut file = 0;
        if let Some(id) = first.strip_prefix('@') {
            file = id_of(id)?;
            words.remove(0);
        }
        let done = match self.end {
            Some(area) => self.final_line(area, &words)?,
            None => self.action(&words)? || self.kernel_line(file, &words)?,
        };
        if done { Ok(()) } else { Err(format!("unknown line {line:?}")) }
    }

    fn header(&mut self, pairs: &[&str]) -> Parsed<()> {
        let of: BTreeMap<&str, &str> =
            pairs.iter().filter_map(|pair| pair.split_once('=')).collect();
        let text = |key: &str| (*of.get(key).unwrap_or(&"")).to_owned();
        let value = |key: &str| of.get(key).map(|text| number(text)).transpose();
        let header = &mut self.recording.header;
        let page = value("page")?.ok_or("no page= in the header")?;
        if !page.is_power_of_two() || !(4096..=PAGE_BYTES_MAX).contains(&page) {
            return Err(format!("page={page} is no base page size"));
        }
        header.page_bytes = page;
        header.release = text("kernel");
        header.variant = text("variant");
        header.arch = if of.contains_key("arch") { text("arch") } else { "arm64".to_owned() };
        header.filesystem = text("fs");
        header.pattern = text("pattern");
        header.program = of.get("program").map(|&program| program.to_owned());
        header.ra_pages = value("ra_pages")?.unwrap_or(32).min(INDEX_MAX);
        header.io_bytes = value("max_sectors_kb")?.unwrap_or(512).min(1 << 30) << 10;
        header.fault_around_bytes = value("fault_around_bytes")?;
        let pages = value("file_pages")?.unwrap_or(0);
        let bytes = value("file_bytes")?.unwrap_or(index_in(pages)? * page);
        header.file_bytes = bytes.min(INDEX_MAX * 4096);
        header.nr_opens = value("opens")?.unwrap_or(1).clamp(1, NR_IDS_MAX);
        header.read_bytes =
            header.pattern.strip_prefix("read").and_then(|n| n.parse().ok()).unwrap_or(0);
        header.events = value("events")?;
        header.nr_lost = value("lost")?.unwrap_or(0);
        header.settle_us = value("settle")?.unwrap_or(1500);
        header.reads_within_call = text("io") == "within";
        header.nr_major = value("majflt")?;
        // A recording of a self-built kernel describes its one mapping here.
        if header.events.is_none() && text("map") != "none" && header.program.is_none() {
            let area = AreaSpec {
                id: 0,
                open: 0,
                first: 0,
                nr_pages: pages,
                prot: text("prot"),
                is_shared: text("map") == "shared",
                advice: text("advice"),
                addr: DEFAULT_ADDR,
            };
            self.start(Action::Map(area));
            self.recording.ends.insert(0, AreaEnd::default());
        }
        Ok(())
    }

    fn start(&mut self, action: Action) {
        self.recording.steps.push(Step { action, ..Step::default() });
    }

    /// A line that says what the program did; whether it is one.
    fn action(&mut self, words: &[&str]) -> Parsed<bool> {
        let action = match *words {
            ["E", ..] => {
                self.end = Some(0);
                return Ok(true);
            }
            ["I", file, bytes, ref path @ ..] => {
                let bytes = number(bytes)?.min(INDEX_MAX * 4096);
                self.recording.files.insert(id_of(file)?, (bytes, path.join(" ")));
                return Ok(true);
            }
            ["O", open, file] => Action::Open(id_of(open)?, id_of(file)?),
            ["N", area, ref pairs @ ..] if !pairs.is_empty() => {
                Action::Map(area_of(id_of(area)?, pairs)?)
            }
            ["U", addr, len] => Action::Unmap(hex(addr)?, number(len)?),
            ["Q", addr, len, prot] => Action::Protect(hex(addr)?, number(len)?, prot.to_owned()),
            ["T", index, ref rest @ ..] => {
                let area = rest.first().map_or(Ok(0), |area| id_of(area))?;
                let access = match rest.get(1) {
                    None => Touch::AsMapped,
                    Some(&"w") => Touch::Write,
                    Some(&"x") => Touch::Exec,
                    Some(other) => return Err(format!("touched how? {other:?}")),
                };
                Action::Touch { index: index_of(index)?, area, access }
            }
            ["B", ref at @ ..] => Action::Read(self.file_io(at)?),
            ["X", ref at @ ..] => Action::Write(self.file_io(at)?),
            ["c", index, offset] => Action::Truncate(self.pos(index, offset)?),
            ["V", advice, area] => Action::Advise(advice.to_owned(), id_of(area)?),
            ["V", advice, addr, len] => {
                Action::AdviseBytes(advice.to_owned(), hex(addr)?, number(len)?)
            }
            ["L", advice, open, pos, len] => {
                let (pos, len_bytes) = (number(pos)?, number(len)?);
                Action::AdviseFile(advice.to_owned(), FileIo { pos, len_bytes, open: id_of(open)? })
            }
            ["J", area, from, len, to, to_len] => Action::Remap {
                area: id_of(area)?,
                from: (hex(from)?, number(len)?),
                to: (hex(to)?, number(to_len)?),
            },
            ["s", ref at @ ..] => Action::Send(self.file_io(at)?),
            ["~", file] => Action::Met(id_of(file)?),
            ["~", file, ref why @ ..] => Action::Aside(id_of(file)?, reason(why)?),
            ["a", addr] => Action::Table(hex(addr)?),
            ["H", space] => Action::Switch(id_of(space)?),
            ["H", from, to] => Action::Fork(id_of(from)?, id_of(to)?),
            ["Y", bytes] => Action::Reclaim(number(bytes)?),
            ["Z", nr] => Action::Restored(number(nr)?),
            ["p", area] => Action::Point(id_of(area)?),
            ["p", _, run] => {
                let step = self.recording.steps.last_mut().ok_or("a point before any action")?;
                step.present.push(run_of(run)?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.start(action);
        Ok(true)
    }

    /// Byte `offset` of page `index`.
    fn pos(&self, index: &str, offset: &str) -> Parsed<u64> {
        let page = self.recording.header.page_bytes;
        Ok(index_of(index)? * page + number(offset)?.min(PAGE_BYTES_MAX))
    }

    /// `idx off` or `idx off len open`.
    fn file_io(&self, words: &[&str]) -> Parsed<FileIo> {
        match *words {
            [index, offset] => {
                let len_bytes = self.recording.header.read_bytes;
                Ok(FileIo { pos: self.pos(index, offset)?, len_bytes, open: 0 })
            }
            [index, offset, len, open] => {
                let len_bytes = number(len)?.min(INDEX_MAX);
                Ok(FileIo { pos: self.pos(index, offset)?, len_bytes, open: id_of(open)? })
            }
            _ => Err("a read or write needs `idx off` or `idx off len open`".to_owned()),
        }
    }

    /// A line that says what the kernel did; whether it is one.
    fn kernel_line(&mut self, file: u32, words: &[&str]) -> Parsed<bool> {
        // Before the first action: the mapping of the file itself.
        if self.recording.steps.is_empty() {
            self.start(Action::Start);
        }
        let Some(step) = self.recording.steps.last_mut() else { unreachable!("one was started") };
        let here = match step.action {
            Action::Touch { index, .. } => index,
            Action::Read(io) => io.pos / self.recording.header.page_bytes,
            _ => 0,
        };
        let at = |word: &str| if word == "." { Ok(here) } else { index_of(word) };
        match *words {
            ["A", index, order, ref rest @ ..] => {
                step.insertions.extend(folios(file, at(index)?, order, rest)?);
            }
            ["D", index, order, ref rest @ ..] => {
                step.removals.extend(folios(file, at(index)?, order, rest)?);
            }
            ["e", ref extents @ ..] => {
                let all = step.extents.get_or_insert_default();
                for word in extents {
                    all.push(extent_of(word)?);
                }
            }
            ["F", index] => step.handler.push((file, at(index)?)),
            ["W", first, last] => step.around.push((file, at(first)?, at(last)?)),
            ["G", _, _, ..] | ["R", "sync" | "async", ..] => {}
            ["S", "order", index, order, size, async_size, _] => step.windows.push(WindowLine {
                file,
                is_base: false,
                start: at(index)?,
                order: Some(order_of(order)?),
                size: number(size)?,
                async_size: number(async_size)?,
            }),
            ["S" | "R", "unbounded", index, nr, lookahead, ..] => {
                step.windows.push(base_line(file, at(index)?, nr, lookahead)?);
            }
            ["S", kind @ ("sync" | "async"), ref rest @ ..] => {
                step.entries.push(entry(kind, file, rest)?);
            }
            ["R", "order", index, _, _, _, size, async_size, ..] => step.windows.push(WindowLine {
                file,
                is_base: false,
                start: at(index)?,
                order: None,
                size: number(size)?,
                async_size: number(async_size)?,
            }),
            ["R", "msync", _, _, _, start, size, async_size, miss, ..] => {
                step.cold.push(state(at(start)?, [size, async_size, miss])?);
            }
            ["R", "masync", index, _, bits, start, size, async_size, miss, ..] => {
                let bits = number(bits)?;
                let state = state(at(start)?, [size, async_size, miss])?;
                let (is_marked, is_locked) = (bits & 1 != 0, bits & 2 != 0);
                step.hits.push(Hit { index: at(index)?, is_marked, is_locked, state });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// A line behind the last action; whether it is one.
    fn final_line(&mut self, area: u32, words: &[&str]) -> Parsed<bool> {
        if let ["N", area] = *words {
            self.end = Some(id_of(area)?);
            return Ok(true);
        }
        let end = self.recording.ends.entry(area).or_default();
        match *words {
            ["P", "=", "T"] => end.present = None,
            ["P", run] => end.present.get_or_insert_default().push(run_of(run)?),
            ["K", first, nr, head] => {
                let nr_pages = number(nr.strip_prefix('+').unwrap_or(nr))?;
                let is_head = head == "head";
                end.folios.push(FolioRun { first: index_of(first)?, nr_pages, is_head });
            }
            ["M", "FilePmdMapped:", kib, ..] => {
                end.pmd_kib = Some(number(kib.trim_end_matches("kB"))?);
                // A page map without a present page has no `P` line.
                end.present.get_or_insert_default();
            }
            // Late events, the cached set (it equals the insertions), other lines of smaps.
            ["M" | "C" | "A" | "D" | "F" | "W" | "G" | "R" | "S" | "E" | "X" | "K", ..] => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

/// `idx order [xN]`: file, index and order of each folio.
fn folios(
    file: u32,
    index: u64,
    order: &str,
    rest: &[&str],
) -> Parsed<impl Iterator<Item = (u32, u64, u8)>> {
    let order = order_of(order)?;
    let times = rest.first().map_or(Ok(1), |times| number(times.trim_start_matches('x')))?;
    if times > NR_TIMES_MAX || times.checked_mul(1 << order).is_none_or(|n| n > INDEX_MAX) {
        return Err(format!("{times} folios of order {order}: no file is so large"));
    }
    Ok((0..times).map(move |nr| (file, index + (nr << order), order)))
}

/// `FIRST+NR`, then `d` or `u`, then `<`.
fn extent_of(word: &str) -> Parsed<Extent> {
    let (word, is_next) = word.strip_suffix('<').map_or((word, false), |word| (word, true));
    let (word, kind) = if let Some(word) = word.strip_suffix('d') {
        (word, Kind::Reserved)
    } else if let Some(word) = word.strip_suffix('u') {
        (word, Kind::Unwritten)
    } else {
        (word, Kind::Written)
    };
    let (first, nr) = word.split_once('+').ok_or_else(|| format!("{word:?} is no extent"))?;
    let (first, nr) = (index_of(first)?, index_of(nr)?);
    Ok(Extent { first, end: first + nr, kind, is_next })
}

fn base_line(file: u32, start: u64, nr: &str, lookahead: &str) -> Parsed<WindowLine> {
    let (size, async_size) = (number(nr)?, number(lookahead)?);
    Ok(WindowLine { file, is_base: true, start, order: None, size, async_size })
}

/// `idx req order size async_size ra_pages miss prev_pos`.
fn entry(kind: &str, file: u32, words: &[&str]) -> Parsed<EntryLine> {
    let &[index, nr, order, size, async_size, ra_pages, miss, prev_pos] = words else {
        return Err("an entry has eight values".to_owned());
    };
    Ok(EntryLine {
        kind: if kind == "sync" { EntryKind::Sync } else { EntryKind::Async },
        file,
        index: index_of(index)?,
        nr_pages: number(nr)?,
        order: order_of(order)?,
        size: number(size)?,
        async_size: number(async_size)?,
        ra_pages: number(ra_pages)?,
        mmap_miss: miss.parse().map_err(|_| not_a_number(miss))?,
        prev_pos: prev_pos.parse().map_err(|_| not_a_number(prev_pos))?,
    })
}

fn area_of(id: u32, pairs: &[&str]) -> Parsed<AreaSpec> {
    let of: BTreeMap<&str, &str> = pairs.iter().filter_map(|pair| pair.split_once('=')).collect();
    let word = |key: &str| of.get(key).copied().ok_or_else(|| format!("a mapping needs {key}="));
    Ok(AreaSpec {
        id,
        open: id_of(word("open")?)?,
        first: index_of(word("first")?)?,
        nr_pages: index_of(word("pages")?)?,
        prot: word("prot")?.to_owned(),
        is_shared: word("map")? == "shared",
        advice: word("advice")?.to_owned(),
        addr: hex(word("addr")?)?,
    })
}

/// Words that are shown to people as they are.
fn reason(words: &[&str]) -> Parsed<String> {
    let text = words.join(" ");
    if text.chars().any(char::is_control) {
        return Err(format!("{text:?} is no reason: it has control characters"));
    }
    Ok(text)
}

fn not_a_number(word: &str) -> String {
    format!("{word:?} is not a number")
}

fn number(word: &str) -> Parsed<u64> {
    word.parse().map_err(|_| not_a_number(word))
}

fn hex(word: &str) -> Parsed<u64> {
    let digits = word.strip_prefix("0x").unwrap_or(word);
    u64::from_str_radix(digits, 16).map_err(|_| not_a_number(word))
}

fn index_in(value: u64) -> Parsed<u64> {
    if value < INDEX_MAX { Ok(value) } else { Err(format!("page {value} is beyond any file")) }
}

fn index_of(word: &str) -> Parsed<u64> {
    index_in(number(word)?)
}

fn id_of(word: &str) -> Parsed<u32> {
    let value = number(word)?;
    u32::try_from(value)
        .ok()
        .filter(|_| value < NR_IDS_MAX)
        .ok_or_else(|| format!("{value} is no number of a file, descriptor or mapping"))
}

fn order_of(word: &str) -> Parsed<u8> {
    let order = number(word)?;
    u8::try_from(order).ok().filter(|&order| order < 32).ok_or_else(|| format!("order {order}?"))
}

/// `17` or `17..20`.
fn run_of(word: &str) -> Parsed<Run> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    let (first, last) = (index_of(first)?, index_of(last)?);
    if first <= last { Ok((first, last)) } else { Err(format!("{word} runs backwards")) }
}

fn state(start: u64, [size, async_size, miss]: [&str; 3]) -> Parsed<State> {
    let mmap_miss = miss.parse().map_err(|_| not_a_number(miss))?;
    Ok(State { start, size: number(size)?, async_size: number(async_size)?, mmap_miss })
}

#[cfg(test)]
mod tests;

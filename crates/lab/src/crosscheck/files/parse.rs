//! Parser for recordings of files (`recordings/README.md`).

use largefolio_mm::core::observed::EntryKind;
use largefolio_mm::mapping::reserve::{Extent, ExtentKind};

use super::body::{AreaEnd, FileSteps, FolioRun};
use super::step::{
    Action, AreaSpec, ByteSpan, CachedFolio, EntryLine, FileIo, FileStep, HandlerHit, PageRun,
    PrintedState, Touch, WindowLine,
};
use crate::crosscheck::decision::Decision;
use crate::crosscheck::recording::{PAGE_BYTES_MAX, RecordingBody, RecordingHeader};
use crate::crosscheck::text::{Pairs, Parsed, hex, not_a_number, number, reason, unknown};

/// Maximum number of folios in all `A` and `D` lines of a recording: a 16 GiB file in base pages.
/// Each folio is stored, and 16 bytes of text can describe any number of them. The recordings
/// shipped with folio have at most 80,896.
const NR_FOLIOS_MAX: u64 = 1 << 22;
/// Largest page index: byte positions stay below 2^62.
const INDEX_MAX: u64 = 1 << 46;
/// Maximum number of descriptors, mappings or files per recording.
const NR_IDS_MAX: u64 = 1 << 16;
/// Address of the only mapping in a recording without `N` lines.
const DEFAULT_ADDR: u64 = 0x4000_0000_0000;

impl RecordingBody for FileSteps {
    /// The mapping whose final state is being read, after the last step.
    type Position = Option<u32>;

    fn begin(&mut self, header: &RecordingHeader, pairs: &Pairs<'_>) -> Parsed<()> {
        let page = header.page_bytes;
        let pages = pairs.number("file_pages")?.unwrap_or(0);
        let file_bytes = pairs.number("file_bytes")?.unwrap_or(index_in(pages)? * page);
        let read_bytes = pairs.get("pattern").and_then(|pattern| pattern.strip_prefix("read"));
        let setup = &mut self.setup;
        setup.program = pairs.get("program").map(str::to_owned);
        setup.ra_pages = pairs.number("ra_pages")?.unwrap_or(32).min(INDEX_MAX);
        setup.io_bytes = pairs.number("max_sectors_kb")?.unwrap_or(512).min(1 << 30) << 10;
        setup.fault_around_bytes = pairs.number("fault_around_bytes")?;
        setup.file_bytes = file_bytes.min(INDEX_MAX * 4096);
        setup.nr_opens = pairs.number("opens")?.unwrap_or(1).clamp(1, NR_IDS_MAX);
        setup.read_bytes = read_bytes.and_then(|bytes| bytes.parse().ok()).unwrap_or(0);
        setup.events = pairs.number("events")?;
        setup.settle_us = pairs.number("settle")?.unwrap_or(1500);
        setup.reads_within_call = pairs.get("io") == Some("within");
        setup.is_slowed = header.filesystem.ends_with("-slow");
        setup.nr_major = pairs.number("majflt")?;
        setup.limit_bytes = pairs.number("limit")?;
        setup.lru = pairs.text("lru");
        // Self-built kernels' recordings describe their only mapping here.
        let has_mapping = pairs.get("map") != Some("none");
        if setup.events.is_none() && has_mapping && setup.program.is_none() {
            let area = AreaSpec {
                id: 0,
                open: 0,
                first: 0,
                nr_pages: pages,
                prot: pairs.text("prot"),
                is_shared: pairs.get("map") == Some("shared"),
                advice: pairs.text("advice"),
                addr: DEFAULT_ADDR,
            };
            self.start(Action::Map(area));
            self.ends.insert(0, AreaEnd::default());
        }
        Ok(())
    }

    fn line(
        &mut self,
        end: &mut Option<u32>,
        header: &RecordingHeader,
        fields: &[&str],
    ) -> Parsed<()> {
        let (file, fields) = match fields[0].strip_prefix('@') {
            Some(id) => (id_of(id)?, &fields[1..]),
            None => (0, fields),
        };
        let page = header.page_bytes;
        let is_known = match (*end, fields) {
            (Some(_), ["N", area]) => {
                *end = Some(id_of(area)?);
                true
            }
            (Some(area), _) => self.final_line(area, fields)?,
            (None, ["E", ..]) => {
                *end = Some(0);
                true
            }
            (None, _) => self.action(page, fields)? || self.kernel_line(page, file, fields)?,
        };
        match fields {
            _ if is_known => Ok(()),
            // First line of a recording of a program (`processes`).
            ["program", ..] => Err("this is a recording of private memory, which only the tests \
                                    replay; crosscheck replay accepts recordings of files"
                .to_owned()),
            _ => unknown(fields),
        }
    }
}

impl FileSteps {
    fn start(&mut self, action: Action) {
        self.steps.push(FileStep { action, ..FileStep::default() });
    }

    /// Reads a line with a program action. Returns whether it is one.
    fn action(&mut self, page: u64, fields: &[&str]) -> Parsed<bool> {
        let action = match *fields {
            ["I", file, bytes, ..] => {
                let bytes = number(bytes)?.min(INDEX_MAX * 4096);
                self.files.insert(id_of(file)?, bytes);
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
                    Some(other) => return Err(format!("unknown kind of touch {other:?}")),
                };
                Action::Touch { index: index_of(index)?, area, access }
            }
            ["B", ref at @ ..] => Action::Read(self.file_io(page, at)?),
            ["X", ref at @ ..] => Action::Write(self.file_io(page, at)?),
            ["c", index, offset] => Action::Truncate(pos(page, index, offset)?),
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
                from: ByteSpan { addr: hex(from)?, len_bytes: number(len)? },
                to: ByteSpan { addr: hex(to)?, len_bytes: number(to_len)? },
            },
            ["s", ref at @ ..] => Action::Send(self.file_io(page, at)?),
            ["~", file] => Action::Met(id_of(file)?),
            ["~", file, ref why @ ..] => Action::Aside(id_of(file)?, reason(why)?),
            ["a", addr] => Action::Table(hex(addr)?),
            ["H", space] => Action::Switch(id_of(space)?),
            ["H", from, to] => Action::Fork(id_of(from)?, id_of(to)?),
            ["Y", bytes] => Action::Reclaim(number(bytes)?),
            ["k", nr] => Action::Charged(number(nr)?),
            ["Z", nr] => Action::Restored(number(nr)?),
            ["p", area] => Action::Point(id_of(area)?),
            ["p", _, run] => {
                let step = self.steps.last_mut().ok_or("a point before any action")?;
                step.present.push(run_of(run)?);
                return Ok(true);
            }
            _ => return Ok(false),
        };
        self.start(action);
        Ok(true)
    }

    /// Reads `idx off` or `idx off len open`.
    fn file_io(&self, page: u64, fields: &[&str]) -> Parsed<FileIo> {
        match *fields {
            [index, offset] => {
                let len_bytes = self.setup.read_bytes;
                Ok(FileIo { pos: pos(page, index, offset)?, len_bytes, open: 0 })
            }
            [index, offset, len, open] => {
                let len_bytes = number(len)?.min(INDEX_MAX);
                Ok(FileIo { pos: pos(page, index, offset)?, len_bytes, open: id_of(open)? })
            }
            _ => Err("a read or write needs `idx off` or `idx off len open`".to_owned()),
        }
    }

    /// Reads a line with a kernel event. Returns whether it is one.
    fn kernel_line(&mut self, page: u64, file: u32, fields: &[&str]) -> Parsed<bool> {
        // Events before the first action come from mapping the file itself.
        if self.steps.is_empty() {
            self.start(Action::Start);
        }
        let nr_folios = &mut self.nr_folios;
        let Some(step) = self.steps.last_mut() else { unreachable!("one was started") };
        let here = match step.action {
            Action::Touch { index, .. } => index,
            Action::Read(io) => io.pos / page,
            _ => 0,
        };
        let at = |word: &str| if word == "." { Ok(here) } else { index_of(word) };
        match *fields {
            ["A", index, order, ref rest @ ..] => {
                let run = cached_run(file, at(index)?, order, rest)?;
                step.insertions.extend(run.folios(nr_folios)?);
            }
            ["D", index, order, ref rest @ ..] => {
                let run = cached_run(file, at(index)?, order, rest)?;
                step.removals.extend(run.folios(nr_folios)?);
                step.removed_at.resize(step.removals.len(), step.insertions.len());
            }
            ["e", ref extents @ ..] => {
                let all = step.extents.get_or_insert_default();
                for word in extents {
                    all.push(extent_of(word)?);
                }
            }
            ["q", ref words @ ..] => step.decisions.push(Decision::parse(words)?),
            ["F", index] => step.handler.push((file, at(index)?)),
            ["W", first, last] => step.around.push((file, at(first)?, at(last)?)),
            // `v` and `l` lines: list details from a probe with `detail=`, for research only.
            ["G", _, _, ..] | ["R", "sync" | "async", ..] | ["v" | "l", ..] => {}
            ["S", "order", index, order, size, async_size, _] => {
                let order = Some(order_of(order)?);
                step.windows.push(window(file, at(index)?, order, [size, async_size])?);
            }
            ["R", "order", index, _, _, _, size, async_size, ..] => {
                step.windows.push(window(file, at(index)?, None, [size, async_size])?);
            }
            ["S" | "R", "unbounded", index, nr, lookahead, ..] => {
                let line = window(file, at(index)?, None, [nr, lookahead])?;
                step.windows.push(WindowLine { is_base: true, ..line });
            }
            ["S", kind @ ("sync" | "async"), ref rest @ ..] => {
                step.entries.push(entry(kind, file, rest)?);
            }
            ["R", "msync", _, _, _, start, size, async_size, miss, ..] => {
                step.cold.push(state(at(start)?, [size, async_size, miss])?);
            }
            ["R", "masync", index, _, bits, start, size, async_size, miss, ..] => {
                let bits = number(bits)?;
                let state = state(at(start)?, [size, async_size, miss])?;
                let (is_marked, is_locked) = (bits & 1 != 0, bits & 2 != 0);
                step.hits.push(HandlerHit { index: at(index)?, is_marked, is_locked, state });
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Reads a line after the last action. Returns whether it is one.
    fn final_line(&mut self, area: u32, fields: &[&str]) -> Parsed<bool> {
        if let ["=", key, value] = *fields {
            self.counted.insert(key.to_owned(), number(value)?);
            return Ok(true);
        }
        let end = self.ends.entry(area).or_default();
        match *fields {
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
            // Late events, the cached set (equal to the insertions), other lines of smaps.
            [
                "M" | "C" | "A" | "D" | "F" | "W" | "G" | "R" | "S" | "E" | "X" | "K" | "q" | "v"
                | "l",
                ..,
            ] => {}
            _ => return Ok(false),
        }
        Ok(true)
    }
}

struct CachedRun {
    first: CachedFolio,
    times: u64,
}

impl CachedRun {
    /// Lists each folio. `nr_folios` is the recording's running total.
    fn folios(self, nr_folios: &mut u64) -> Parsed<impl Iterator<Item = CachedFolio>> {
        let Self { first: CachedFolio { file, index, order }, times } = self;
        if times > NR_FOLIOS_MAX - *nr_folios {
            return Err(format!(
                "{times} folios after {nr_folios}: a recording can contain at most {NR_FOLIOS_MAX}"
            ));
        }
        *nr_folios += times;
        Ok((0..times).map(move |nr| CachedFolio { file, index: index + (nr << order), order }))
    }
}

/// Reads `idx order [xN]`.
fn cached_run(file: u32, index: u64, order: &str, rest: &[&str]) -> Parsed<CachedRun> {
    let order = order_of(order)?;
    let times = rest.first().map_or(Ok(1), |times| number(times.trim_start_matches('x')))?;
    if times.checked_mul(1 << order).is_none_or(|n| n > INDEX_MAX) {
        return Err(format!("{times} folios of order {order}: no file is that large"));
    }
    Ok(CachedRun { first: CachedFolio { file, index, order }, times })
}

fn pos(page: u64, index: &str, offset: &str) -> Parsed<u64> {
    Ok(index_of(index)? * page + number(offset)?.min(PAGE_BYTES_MAX))
}

/// Reads `FIRST+NR`, then `d` or `u`, then `<`.
fn extent_of(word: &str) -> Parsed<Extent> {
    let (word, is_next) = word.strip_suffix('<').map_or((word, false), |word| (word, true));
    let (word, kind) = if let Some(word) = word.strip_suffix('d') {
        (word, ExtentKind::Reserved)
    } else if let Some(word) = word.strip_suffix('u') {
        (word, ExtentKind::Unwritten)
    } else {
        (word, ExtentKind::Written)
    };
    let (first, nr) = word.split_once('+').ok_or_else(|| format!("{word:?} is not an extent"))?;
    let (first, nr) = (index_of(first)?, index_of(nr)?);
    Ok(Extent { first, end: first + nr, kind, is_next })
}

fn window(
    file: u32,
    start: u64,
    order: Option<u8>,
    [size, async_size]: [&str; 2],
) -> Parsed<WindowLine> {
    let (size, async_size) = (number(size)?, number(async_size)?);
    Ok(WindowLine { file, is_base: false, start, order, size, async_size })
}

/// Reads `idx req order size async_size ra_pages miss prev_pos`.
fn entry(kind: &str, file: u32, fields: &[&str]) -> Parsed<EntryLine> {
    let &[index, nr, order, size, async_size, ra_pages, miss, prev_pos] = fields else {
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
    let of = Pairs::of(pairs);
    let word = |key: &str| of.get(key).ok_or_else(|| format!("a mapping needs {key}="));
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
        .ok_or_else(|| format!("{value} is not a file, descriptor or mapping number"))
}

fn order_of(word: &str) -> Parsed<u8> {
    let order = number(word)?;
    u8::try_from(order).ok().filter(|&order| order < 32).ok_or_else(|| format!("order {order}?"))
}

/// Reads `17` or `17..20`.
fn run_of(word: &str) -> Parsed<PageRun> {
    let (first, last) = word.split_once("..").unwrap_or((word, word));
    let (first, last) = (index_of(first)?, index_of(last)?);
    if first <= last { Ok((first, last)) } else { Err(format!("{word} runs backwards")) }
}

fn state(start: u64, [size, async_size, miss]: [&str; 3]) -> Parsed<PrintedState> {
    let mmap_miss = miss.parse().map_err(|_| not_a_number(miss))?;
    Ok(PrintedState { start, size: number(size)?, async_size: number(async_size)?, mmap_miss })
}

#[cfg(test)]
mod tests;

//! The actions of a random workload on its file, as the word `ops`.
//!
//! Actions come in phrases - a run of touches, two interleaved streams, a write followed by a read
//! - to reach rules that depend on earlier accesses.

use super::{Draw, Part};

/// The approximate step limit of a workload: each step has a pause.
const NR_STEPS_MAX: u64 = 60;
/// Bytes of one write. A write of 1 MiB can be repeated.
const WRITE_BYTES_MAX: u64 = 2 << 20;

pub(super) struct Actions<'a> {
    pub(super) draw: &'a mut Draw,
    page: u64,
    nr_opens: u64,
    bytes: u64,
    parts: Vec<Part>,
    ops: Vec<String>,
    nr_steps: u64,
}

#[derive(Clone, Copy)]
struct Bytes {
    /// The page of the first byte.
    index: u64,
    offset: u64,
    len: u64,
}

impl<'a> Actions<'a> {
    pub(super) fn new(draw: &'a mut Draw, page: u64, bytes: u64, nr_opens: u64) -> Self {
        Self { draw, page, nr_opens, bytes, parts: Vec::new(), ops: Vec::new(), nr_steps: 0 }
    }

    pub(super) fn add_mapping(&mut self, part: Part) {
        self.parts.push(part);
    }

    pub(super) fn list(mut self) -> String {
        let nr_steps = 4 + self.draw.below(NR_STEPS_MAX);
        let is_read_only = self.parts.iter().any(|part| part.is_called) || self.draw.below(2) == 0;
        while self.nr_steps < nr_steps {
            match self.draw.below(if is_read_only { 15 } else { 21 }) {
                1 | 2 if self.parts.is_empty() => self.read_run(),
                0 | 7 => self.read_run(),
                1 | 13 => self.touch_run(),
                2 | 14 => self.scattered(),
                3 => self.strided(),
                4 => self.two_reads(),
                5 => self.two_touches(),
                6 => self.read_back(),
                8 => self.inspect(),
                9 | 10 => self.advise(),
                11 => self.advise_file(),
                12 => self.scattered_reads(),
                15..=17 => self.write(),
                18 => self.append(),
                _ => self.set_length(),
            }
            // A phrase without a suitable page or mapping does nothing.
            self.nr_steps += 1;
        }
        self.ops.join(",")
    }

    fn push(&mut self, op: String, nr_steps: u64) {
        self.ops.push(op);
        self.nr_steps += nr_steps;
    }

    fn nr_pages(&self) -> u64 {
        self.bytes.div_ceil(self.page)
    }

    fn mapped(&mut self) -> Option<(usize, Part)> {
        let nr = self.draw.below(self.parts.len() as u64);
        let at = usize::try_from(nr).unwrap_or(0);
        let mut part = *self.parts.get(at)?;
        part.nr_pages = part.nr_pages.min(self.nr_pages().saturating_sub(part.first));
        (part.nr_pages > 0).then_some((at, part))
    }

    /// Returns `t` or `w`. A page that is called is never stored to (D2).
    fn how(&mut self, part: Part) -> char {
        let is_store = part.is_writable && self.draw.below(3) > 0;
        if is_store && !self.parts.iter().any(|part| part.is_called) { 'w' } else { 't' }
    }

    fn touch(&mut self, how: char, index: u64, nr: u64, mapping: usize) {
        let times = if nr > 1 { format!("x{nr}") } else { String::new() };
        let of = if mapping > 0 { format!("/{mapping}") } else { String::new() };
        self.push(format!("{how}{index}{times}{of}"), nr);
    }

    fn touch_run(&mut self) {
        let Some((at, part)) = self.mapped() else { return };
        let from = self.draw.below(part.nr_pages);
        let nr = (1 + self.draw.below(24)).min(part.nr_pages - from);
        let how = self.how(part);
        self.touch(how, part.first + from, nr, at);
    }

    fn scattered(&mut self) {
        for _ in 0..=self.draw.below(6) {
            let Some((at, part)) = self.mapped() else { return };
            let how = self.how(part);
            let index = part.first + self.draw.below(part.nr_pages);
            self.touch(how, index, 1, at);
        }
    }

    fn strided(&mut self) {
        let Some((at, part)) = self.mapped() else { return };
        let stride = self.draw.of(&[1, 2, 3, 7, 15, 16, 17, 31, 32, 33, 64, 100, 512]);
        let how = self.how(part);
        let (from, nr) = (self.draw.below(part.nr_pages), 2 + self.draw.below(8));
        let is_back = self.draw.below(2) == 0;
        for step in 0..nr {
            let far = step * stride;
            let index = if is_back { from.checked_sub(far) } else { Some(from + far) };
            let Some(index) = index.filter(|&index| index < part.nr_pages) else { return };
            self.touch(how, part.first + index, 1, at);
        }
    }

    /// Draws a call's length: about a page, a window, or an odd length.
    fn call_bytes(&mut self) -> u64 {
        let page = self.page;
        let pages = 1 + self.draw.below(40);
        self.draw.of(&[
            1,
            100,
            page - 1,
            page,
            page,
            page + 1,
            5000,
            2 * page,
            3 * page,
            16384,
            65536,
            65537,
            131_072,
            pages * page,
            pages * page,
            pages * page - 1,
            262_144,
            1 << 20,
        ])
    }

    fn offset(&mut self) -> u64 {
        let odd = self.draw.below(self.page);
        self.draw.of(&[0, 0, 0, 1, odd, self.page - 1])
    }

    fn open(&mut self) -> u64 {
        self.draw.below(self.nr_opens)
    }

    fn call(&mut self, kind: char, bytes: Bytes, nr: u64, open: u64) {
        let Bytes { index, offset, len } = bytes;
        let times = if nr > 1 { format!("x{nr}") } else { String::new() };
        let of = if open > 0 { format!("/{open}") } else { String::new() };
        self.push(format!("{kind}{index}.{offset}+{len}{times}{of}"), nr);
    }

    fn bytes(&mut self) -> Bytes {
        Bytes { index: self.index(), offset: self.offset(), len: self.call_bytes() }
    }

    /// Draws a call's first page; one in twenty is just after the end.
    fn index(&mut self) -> u64 {
        let more = u64::from(self.draw.below(20) == 0);
        self.draw.below(self.nr_pages() + more)
    }

    fn read_run(&mut self) {
        let at = self.bytes();
        let (nr, open) = (1 + self.draw.below(8), self.open());
        self.call('b', at, nr, open);
    }

    fn scattered_reads(&mut self) {
        for _ in 0..=self.draw.below(4) {
            let at = self.bytes();
            let open = self.open();
            self.call('b', at, 1, open);
        }
    }

    fn read_back(&mut self) {
        let (from, open) = (self.index(), self.open());
        let nr_pages = self.draw.of(&[1, 1, 2, 4, 16]);
        let len = nr_pages * self.page;
        for step in 0..=self.draw.below(8) {
            let Some(index) = from.checked_sub(step * nr_pages) else { return };
            self.call('b', Bytes { index, offset: 0, len }, 1, open);
        }
    }

    fn two_reads(&mut self) {
        let (a, b) = (self.index(), self.index());
        let (open, other) = (self.open(), self.open());
        let nr_pages = self.draw.of(&[1, 1, 2, 4, 8]);
        let len = nr_pages * self.page;
        for step in 0..2 + self.draw.below(8) {
            self.call('b', Bytes { index: a + step * nr_pages, offset: 0, len }, 1, open);
            self.call('b', Bytes { index: b + step * nr_pages, offset: 0, len }, 1, other);
        }
    }

    fn two_touches(&mut self) {
        let (Some((at, part)), Some((other_at, other))) = (self.mapped(), self.mapped()) else {
            return;
        };
        let (from, other_from) = (self.draw.below(part.nr_pages), self.draw.below(other.nr_pages));
        for step in 0..2 + self.draw.below(10) {
            if from + step < part.nr_pages {
                self.touch('t', part.first + from + step, 1, at);
            }
            if other_from + step < other.nr_pages {
                self.touch('t', other.first + other_from + step, 1, other_at);
            }
        }
    }

    fn inspect(&mut self) {
        if let Some((at, _)) = self.mapped() {
            self.push(format!("p/{at}"), 1);
        }
    }

    fn advise(&mut self) {
        const ADVICES: [&str; 8] =
            ["random", "normal", "seq", "huge", "nohuge", "willneed", "dontneed", "dontneed"];
        let advice = self.draw.of(&ADVICES);
        if let Some((at, _)) = self.mapped() {
            self.push(format!("a:{advice}/{at}"), 1);
        }
    }

    fn advise_file(&mut self) {
        let (advice, open) = (self.draw.of(&["random", "normal", "seq", "willneed"]), self.open());
        self.push(format!("f:{advice}/{open}"), 1);
    }

    fn write(&mut self) {
        let (index, offset) = (self.index(), self.offset());
        self.write_at(index * self.page + offset);
    }

    /// Writes from the end of the file, one in eight from beyond it.
    fn append(&mut self) {
        let far = if self.draw.below(8) == 0 { 1 + self.draw.below(600_000) } else { 0 };
        self.write_at(self.bytes + far);
    }

    fn write_at(&mut self, pos: u64) {
        let len = self.call_bytes();
        let nr = (1 + self.draw.below(6)).min(WRITE_BYTES_MAX.div_ceil(len));
        let open = self.open();
        self.call('s', Bytes { index: pos / self.page, offset: pos % self.page, len }, nr, open);
        self.bytes = self.bytes.max(pos + nr * len);
    }

    /// Truncates the file, rarely extends it.
    fn set_length(&mut self) {
        let (index, offset, open) = (self.index(), self.offset(), self.open());
        let mut bytes = index * self.page + offset;
        if self.draw.below(4) == 0 {
            bytes = self.bytes + self.draw.below(40 * self.page);
        }
        let of = if open > 0 { format!("/{open}") } else { String::new() };
        self.push(format!("c{}.{}{of}", bytes / self.page, bytes % self.page), 1);
        self.bytes = bytes;
    }
}

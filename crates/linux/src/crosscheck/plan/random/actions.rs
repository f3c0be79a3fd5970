//! What a random workload does to its file, as the word `ops`.
//!
//! Actions come in phrases - a run of touches, two interleaved streams, a write and a read behind it
//! - so that rules about what came before are reached.

use super::{Draw, Part};

/// Steps of one workload at most, roughly: each takes a pause.
const NR_STEPS_MAX: u64 = 60;
/// Bytes of one write; one of 1 MiB comes several times.
const WRITE_BYTES_MAX: u64 = 2 << 20;

/// The list while it is drawn.
pub(super) struct Actions<'a> {
    pub(super) draw: &'a mut Draw,
    page: u64,
    nr_opens: u64,
    /// Length of the file now.
    bytes: u64,
    parts: Vec<Part>,
    ops: Vec<String>,
    nr_steps: u64,
}

/// Bytes of a file that a call is made for.
#[derive(Clone, Copy)]
struct Bytes {
    /// Page of the first.
    index: u64,
    /// Where in that page.
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

    /// Draws it.
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
                8 => self.look(),
                9 | 10 => self.advise(),
                11 => self.advise_file(),
                12 => self.scattered_reads(),
                15..=17 => self.write(),
                18 => self.append(),
                _ => self.set_length(),
            }
            // A phrase for which there is no page or no mapping does nothing.
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

    /// A mapping and the pages of it that the file has.
    fn mapped(&mut self) -> Option<(usize, Part)> {
        let nr = self.draw.below(self.parts.len() as u64);
        let at = usize::try_from(nr).unwrap_or(0);
        let mut part = *self.parts.get(at)?;
        part.nr_pages = part.nr_pages.min(self.nr_pages().saturating_sub(part.first));
        (part.nr_pages > 0).then_some((at, part))
    }

    /// `t` or `w`; what is called anywhere is stored to nowhere (D2).
    fn how(&mut self, part: Part) -> char {
        let is_store = part.is_writable && self.draw.below(3) > 0;
        if is_store && !self.parts.iter().any(|part| part.is_called) { 'w' } else { 't' }
    }

    fn touch(&mut self, how: char, index: u64, nr: u64, mapping: usize) {
        let times = if nr > 1 { format!("x{nr}") } else { String::new() };
        let of = if mapping > 0 { format!("/{mapping}") } else { String::new() };
        self.push(format!("{how}{index}{times}{of}"), nr);
    }

    /// Neighbouring pages, forwards.
    fn touch_run(&mut self) {
        let Some((at, part)) = self.mapped() else { return };
        let from = self.draw.below(part.nr_pages);
        let nr = (1 + self.draw.below(24)).min(part.nr_pages - from);
        let how = self.how(part);
        self.touch(how, part.first + from, nr, at);
    }

    /// Pages anywhere.
    fn scattered(&mut self) {
        for _ in 0..=self.draw.below(6) {
            let Some((at, part)) = self.mapped() else { return };
            let how = self.how(part);
            let index = part.first + self.draw.below(part.nr_pages);
            self.touch(how, index, 1, at);
        }
    }

    /// One stride, forwards or backwards.
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

    /// Bytes of one call: a page more or less, windows, odd.
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

    /// An offset into a page: mostly none.
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

    /// Bytes of a call, from anywhere.
    fn bytes(&mut self) -> Bytes {
        Bytes { index: self.index(), offset: self.offset(), len: self.call_bytes() }
    }

    /// A page to begin a call in; one in twenty lies just behind the end.
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

    /// Calls from some page down to the first.
    fn read_back(&mut self) {
        let (from, open) = (self.index(), self.open());
        let nr_pages = self.draw.of(&[1, 1, 2, 4, 16]);
        let len = nr_pages * self.page;
        for step in 0..=self.draw.below(8) {
            let Some(index) = from.checked_sub(step * nr_pages) else { return };
            self.call('b', Bytes { index, offset: 0, len }, 1, open);
        }
    }

    /// Two streams of read(2), on one descriptor or on two.
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

    /// Two streams of touches, in one mapping or in two.
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

    fn look(&mut self) {
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

    /// Writes somewhere; they may pass the end of the file.
    fn write(&mut self) {
        let (index, offset) = (self.index(), self.offset());
        self.write_at(index * self.page + offset);
    }

    /// Writes from the end of the file on, one in eight from beyond it.
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

    /// Makes the file shorter, seldom longer.
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

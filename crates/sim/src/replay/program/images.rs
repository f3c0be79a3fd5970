//! The programs and libraries in a trace, and where a linker would put their segments.
//!
//! A trace contains mappings, not ELF headers. That is enough to reproduce the layout for `-z
//! max-page-size=SIZE` to the page:
//!
//! ```text
//!   recorded, linked for 4K          laid out again for 2M
//!   file   | hdr | text | ro |data   | hdr |....| text     |....| ro |data
//!   memory | hdr | text | ro |data   | hdr |....| text     |....| ro |....|data
//!                                    0          2M              4M        6M + data's offset
//! ```
//!
//! If text shares no page of the file with its neighbours, the image was linked with `-z
//! separate-code`: text and the segments after it then start at multiples of SIZE in the file too.
//! Otherwise the file stays unchanged, and only the addresses move apart, congruent to their file
//! positions. Written data always follows in the file without a gap.
//!
//! The model ignores three things that a trace does not show: how much of its first and last page a
//! segment uses, the alignment in the ELF header, and unmapped parts of the file, which stay after
//! the last segment.
//!
//! Invariants:
//! - M1: an image's segments ascend in addresses and do not descend in file positions.
//! - M2: in a new layout, each segment's address is congruent to its file position mod SIZE, and no
//!   two segments share a page of SIZE bytes.

use std::collections::BTreeMap;

use largefolio_trace::event::abi::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_SHARED, PROT_EXEC, PROT_WRITE,
};
use largefolio_trace::event::{map_of, prot_of};
use largefolio_trace::{
    Batch, Event, FileId, FileInfo, LayoutEntry, LayoutKind, Meta, Op, OpenTrace, TraceError,
};

use crate::replay::program::place::{LEN_MAX, RECORDED_MASK, page_end};

/// Maximum number of segments in an image. Linkers create four or five.
const NR_SEGMENTS_MAX: usize = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Recorded {
    addr: u64,
    len: u64,
    pos: u64,
    prot: u32,
}

impl Recorded {
    fn pos_end(self) -> u64 {
        self.pos + self.len
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Image {
    segments: Vec<Recorded>,
    /// Recorded bytes from the first segment to the end of the loader's reservation.
    span: u64,
    first_len: u64,
}

#[derive(Clone, Debug, Default)]
pub struct Images {
    by_file: BTreeMap<FileId, Image>,
    /// The most recently mapped file.
    last: Option<FileId>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct LinkedImage {
    pub(crate) link_bytes: u64,
    segments: Vec<Laid>,
    pub(crate) span: u64,
    pub(crate) size_bytes: u64,
    pub(crate) first_len: u64,
    /// Recorded bytes of the whole image.
    pub(crate) recorded_span: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Laid {
    at: u64,
    pub(crate) recorded: u64,
    pub(crate) len: u64,
    pub(crate) pos: u64,
    /// New address, relative to the image's base (a multiple of `link_bytes`).
    pub(crate) addr: u64,
}

impl Image {
    fn begun(event: &Event) -> Self {
        let len = page_end(event.len.min(LEN_MAX));
        let prot = prot_of(event.flags);
        let first = Recorded { addr: event.addr, len, pos: event.pos, prot };
        Self { segments: vec![first], span: len, first_len: event.len }
    }

    fn grow(&mut self, segment: Recorded) -> bool {
        let (base, nr_segments) = (self.segments[0].addr, self.segments.len());
        let Some(last) = self.segments.last_mut() else { return false };
        let distance = segment.addr.saturating_sub(last.addr);
        if segment.addr <= last.addr
            || segment.pos < last.pos
            || segment.addr - base > LEN_MAX
            || nr_segments == NR_SEGMENTS_MAX
        {
            return false;
        }
        last.len = last.len.min(distance);
        // Avoids `segment.addr + segment.len`, which can be 2^64.
        self.span = self.span.max(segment.addr - base + segment.len);
        self.segments.push(segment);
        true
    }

    /// Ends the first segment at `addr`, the start of the gap that a loader leaves.
    fn cut(&mut self, addr: u64) {
        if let [first] = self.segments.as_mut_slice()
            && addr > first.addr
            && addr - first.addr < first.len
        {
            first.len = addr - first.addr;
        }
    }

    fn has_code(&self) -> bool {
        self.segments.iter().any(|segment| segment.prot & PROT_EXEC != 0)
    }

    fn is_separate(&self) -> bool {
        self.segments.windows(2).all(|pair| {
            let is_code = (pair[0].prot | pair[1].prot) & PROT_EXEC != 0;
            !is_code || pair[1].pos >= pair[0].pos_end()
        })
    }

    /// Lays the image out for pages of `link` bytes (M2). The file has `size_bytes`.
    pub(crate) fn linked(&self, link: u64, size_bytes: u64) -> LinkedImage {
        let is_separate = self.is_separate();
        let mut laid: Vec<Laid> = Vec::new();
        for (nr, segment) in self.segments.iter().enumerate() {
            let Recorded { len, pos: recorded, prot, .. } = *segment;
            let at = segment.addr - self.segments[0].addr;
            let (pos, addr) = match (laid.last(), nr.checked_sub(1).map(|nr| self.segments[nr])) {
                (Some(below), Some(before)) => {
                    let pos = if !is_separate {
                        recorded
                    } else if prot & PROT_WRITE != 0 {
                        // Keeps a page that both segments share.
                        below.pos + below.len - before.pos_end().saturating_sub(recorded)
                    } else {
                        (below.pos + below.len).next_multiple_of(link)
                    };
                    // Keeps a page that the linker left unused.
                    let gap = segment.addr - before.addr - before.len;
                    let gap = if gap <= link { gap } else { 0 };
                    (pos, (below.addr + below.len + gap).next_multiple_of(link) + pos % link)
                }
                _ => (recorded, recorded % link),
            };
            laid.push(Laid { at, recorded, len, pos, addr });
        }
        let (last, ends) = (laid[laid.len() - 1], self.segments[self.segments.len() - 1]);
        let recorded_end = ends.addr - self.segments[0].addr + ends.len;
        let behind = self.span.saturating_sub(recorded_end);
        LinkedImage {
            link_bytes: link,
            span: last.addr + last.len + behind,
            size_bytes: last.pos.saturating_add(size_bytes).saturating_sub(last.recorded),
            first_len: self.first_len,
            recorded_span: self.span,
            segments: laid,
        }
    }
}

impl LinkedImage {
    pub(crate) fn first(&self) -> Laid {
        self.segments[0]
    }

    pub(crate) fn segment_at(&self, at: u64) -> Option<Laid> {
        self.segments.iter().find(|segment| segment.at == at).copied()
    }

    /// Returns the new position of a recorded file position, which moves with its segment.
    pub(crate) fn moved(&self, pos: u64) -> u64 {
        let segment = self.segments.iter().rev().find(|segment| segment.recorded <= pos);
        segment.map_or(pos, |segment| segment.pos.saturating_add(pos - segment.recorded))
    }
}

impl Images {
    /// Collects the images of `trace`: the program, and each file that a loader mapped to run it.
    /// The loader itself is left out, because the kernel maps it at any page boundary.
    ///
    /// # Errors
    /// A trace that cannot be read.
    pub fn of(trace: &OpenTrace) -> Result<Self, TraceError> {
        let mut reader = trace.reader()?;
        let mut images = Self::of_layouts(reader.meta());
        let mut batch = Batch::default();
        while reader.next_batch(&mut batch)? {
            let calls = [Op::Mmap as u8, Op::Munmap as u8, Op::Mprotect as u8];
            let rows = batch.ops().iter().enumerate().filter(|(_, op)| calls.contains(op));
            rows.for_each(|(row, _)| images.follow(&batch.event(row)));
        }
        images.by_file.retain(|_, image| image.has_code());
        Ok(images)
    }

    fn of_layouts(meta: &Meta) -> Self {
        let mut images = Self::default();
        for layout in layouts(meta) {
            images.add_layout(layout);
        }
        images
    }

    fn add_layout(&mut self, layout: &[LayoutEntry]) {
        let mut by_file: BTreeMap<FileId, Image> = BTreeMap::new();
        for entry in layout.iter().filter(|entry| entry.kind == LayoutKind::Program) {
            let Some(file) = entry.file.filter(|_| entry.pos <= LEN_MAX) else { continue };
            let len = page_end(entry.len.min(LEN_MAX));
            let segment = Recorded { addr: entry.addr, len, pos: entry.pos, prot: entry.prot };
            if let Some(image) = by_file.get_mut(&file) {
                _ = image.grow(segment);
            } else {
                let (segments, first_len) = (vec![segment], entry.len);
                by_file.insert(file, Image { segments, span: len, first_len });
            }
        }
        for (file, image) in by_file {
            self.by_file.entry(file).or_insert(image);
        }
    }

    fn follow(&mut self, event: &Event) {
        if event.op != Op::Mmap {
            let takes_away = event.op == Op::Munmap || event.flags == 0;
            let last = self.last.and_then(|file| self.by_file.get_mut(&file));
            if let Some(image) = last.filter(|_| takes_away && event.addr & RECORDED_MASK == 0) {
                image.cut(event.addr);
            }
            return;
        }
        let (Some(file), flags) = (event.file, map_of(event.flags)) else { return };
        let is_aligned = (event.addr | event.pos) & RECORDED_MASK == 0;
        if flags & MAP_SHARED != 0 || !is_aligned || event.pos > LEN_MAX {
            return;
        }
        self.last = Some(file);
        let is_fixed = flags & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        match self.by_file.get_mut(&file) {
            Some(image) => {
                let begun = Image::begun(event);
                let is_grown = is_fixed && image.grow(begun.segments[0]);
                if !is_grown && !image.has_code() {
                    *image = begun;
                }
            }
            None => drop(self.by_file.insert(file, Image::begun(event))),
        }
    }

    pub(crate) fn get(&self, file: FileId) -> Option<&Image> {
        self.by_file.get(&file)
    }
}

/// Returns the paths of files with a build id, programs, and generated files, but no loaders.
pub(crate) fn candidates(meta: &Meta) -> impl Iterator<Item = &str> {
    let mut kinds: BTreeMap<usize, LayoutKind> = BTreeMap::new();
    for entry in layouts(meta).flatten() {
        if let Some(file) = entry.file {
            kinds.entry(file as usize).or_insert(entry.kind);
        }
    }
    let is_image = move |(nr, file): &(usize, &FileInfo)| match kinds.get(nr) {
        Some(LayoutKind::Interpreter) => false,
        Some(LayoutKind::Program) => true,
        _ => !file.build_id.is_empty() || file.path.starts_with('['),
    };
    meta.files.iter().enumerate().filter(is_image).map(|(_, file)| file.path.as_str())
}

fn layouts(meta: &Meta) -> impl Iterator<Item = &[LayoutEntry]> {
    let of_images = meta.images.iter().map(|image| image.layout.as_slice());
    std::iter::once(meta.layout.as_slice()).chain(of_images)
}

#[cfg(test)]
mod tests;

//! Maps images that are linked for pages other than the recorded ones.
//!
//! A loader first reserves the whole image at a multiple of its page size (glibc 2.35), then maps
//! each segment inside it. The kernel loads the program itself the same way. Calls on recorded
//! addresses find the segments at their new places. `images` determines an image's layout.

use largefolio_mm::map::Map;
use largefolio_mm::units::Vaddr;
use largefolio_mm::vma::Prot;
use largefolio_trace::event::abi::{MAP_FIXED, MAP_FIXED_NOREPLACE};
use largefolio_trace::event::map_of;
use largefolio_trace::{Event, FileId, LayoutEntry, LayoutKind, Meta};

use crate::replay::cell::Cell;
use crate::replay::error::CellError;
use crate::replay::program::images::Images;
use crate::replay::program::layout::{FIXED_BELOW, PIE_BASE, Room};
use crate::replay::program::place::{LEN_MAX, Segment};
use crate::replay::program::space::PlacedImage;
use crate::replay::program::{ProcessNr, place};

impl Cell {
    pub(crate) fn link(&mut self, meta: &Meta, images: &Images) {
        for (file, info) in (0..).zip(&meta.files) {
            let Some(image) = images.get(file) else { continue };
            if let Some(linked) = self.spec.linked.iter().rfind(|known| known.fits(&info.path)) {
                let laid = image.linked(linked.bytes(), info.size_bytes);
                self.program.linked.insert(file, laid);
            }
        }
    }

    pub(crate) fn linked_pos(&self, file: FileId, pos: u64) -> u64 {
        self.program.linked.get(&file).map_or(pos, |image| image.moved(pos))
    }

    pub(crate) fn linked_entry(
        &mut self,
        process: ProcessNr,
        entry: &LayoutEntry,
    ) -> Option<Segment> {
        let file = entry.file.filter(|_| entry.kind == LayoutKind::Program)?;
        let image = self.program.linked.get(&file)?;
        let space = &mut self.program.spaces[self.program.processes[process].space];
        let (start, end) = (entry.addr, entry.addr.saturating_add(entry.len.min(LEN_MAX)));
        let (first, base) = match space.image_at(start) {
            Some((first, placed)) if placed.file == file => (first, placed.base),
            _ => {
                // A position-independent program is loaded at a multiple of its largest alignment.
                let lowest = if start >= FIXED_BELOW { PIE_BASE } else { start };
                let link = image.link_bytes;
                (start, (lowest & !(link - 1)).max(link))
            }
        };
        let end_of_image = first.saturating_add(image.recorded_span);
        let laid = image.segment_at(start - first)?;
        space.placed(first, PlacedImage { file, end: end_of_image, base });
        Some(Segment { start, end, placed: base + laid.addr, file: Some((file, laid.pos)) })
    }

    /// Returns the place of a mapping that begins a relinked image or belongs to one.
    pub(crate) fn linked_mapping(
        &mut self,
        process: ProcessNr,
        event: &Event,
    ) -> Result<Option<Segment>, CellError> {
        let (start, len) = (event.addr, event.len.min(LEN_MAX));
        let is_fixed = map_of(event.flags) & (MAP_FIXED | MAP_FIXED_NOREPLACE) != 0;
        let known = self.program.space(process).image_at(start).filter(|_| is_fixed);
        let Some(file) = event.file else {
            return Ok(known.and_then(|_| self.linked_bss(process, start, len)));
        };
        let Some(image) = self.program.linked.get(&file) else { return Ok(None) };
        let of_image = known.filter(|(_, placed)| placed.file == file);
        let part = of_image.and_then(|(first, placed)| {
            let laid = image.segment_at(start - first)?;
            (laid.recorded == event.pos).then_some((placed, laid))
        });
        if let Some((placed, laid)) = part {
            let end = start.saturating_add(len);
            let (placed, file) = (placed.base + laid.addr, Some((file, laid.pos)));
            return Ok(Some(Segment { start, end, placed, file }));
        }
        let first = image.first();
        if event.pos != first.recorded || event.len != image.first_len {
            return Ok(None);
        }
        let (recorded_span, file_pos) = (image.recorded_span, Some((file, first.pos)));
        let base = self.free_linked(process, file)?;
        let placed = PlacedImage { file, end: start.saturating_add(recorded_span), base };
        self.program.space_mut(process).placed(start, placed);
        let (end, placed) = (start.saturating_add(first.len), base + first.addr);
        Ok(Some(Segment { start, end, placed, file: file_pos }))
    }

    fn linked_bss(&self, process: ProcessNr, start: u64, len: u64) -> Option<Segment> {
        let segments = &self.program.space(process).segments;
        let placed = if let Some(over) = segments.find(start) {
            over.place(start)
        } else {
            place::after(segments.before(start)?, start, None, self.program.link)?
        };
        Some(Segment { start, end: start.saturating_add(len), placed, file: None })
    }

    fn free_linked(&mut self, process: ProcessNr, file: FileId) -> Result<u64, CellError> {
        let image = &self.program.linked[&file];
        let (link, span, first) = (image.link_bytes, image.span, image.first());
        let base = if link <= self.page().bytes() {
            self.free_room(process, Some(file), Room { pos: first.pos, len: span, span })?
        } else {
            // glibc requests extra room for the alignment and unmaps the rest.
            let span_bytes = if span >= link { span.saturating_add(link) } else { 2 * link };
            self.free_place(process, None, 0, span_bytes)?.next_multiple_of(link)
        };
        // Reserves the range after the first segment for the other segments.
        let rest = (base + first.addr + first.len).next_multiple_of(self.page().bytes());
        if rest < base + span {
            let kept = Map::anon(base + span - rest, Prot::default()).at(Vaddr(rest));
            let mm = self.program.space(process).mm;
            self.change(|memory| memory.mmap(mm, kept))?;
        }
        Ok(base)
    }
}

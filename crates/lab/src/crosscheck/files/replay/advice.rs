//! Advice: `madvise` on areas, `posix_fadvise` and `readahead` on files.

use std::collections::BTreeSet;

use largefolio_mm::io::Fadvice;
use largefolio_mm::map::Madvice;
use largefolio_mm::mapping::tree::MAX_ORDER;
use largefolio_mm::units::ByteRange;
use largefolio_mm::units::{MappingId, PageIndex, Vaddr};
use largefolio_mm::vma::Backing;

use super::super::step::{ByteSpan, CachedFolio, FileIo};
use super::FileReplay;

impl FileReplay {
    pub(super) fn advise(&mut self, area: u32, advice: &str) -> Result<(), String> {
        let area = self.area(area)?;
        let len_bytes = area.nr_pages * self.page_bytes();
        let span = ByteSpan { addr: area.addr, len_bytes };
        let range = ByteRange { pos: area.first * self.page_bytes(), len_bytes };
        if advice == "willneed" {
            let open = *self.opens.get(&area.open).ok_or("no descriptor")?;
            self.memory.fadvise(open, range, Fadvice::Willneed);
            return Ok(());
        }
        self.advise_bytes(advice, span)
    }

    pub(super) fn advise_bytes(&mut self, advice: &str, span: ByteSpan) -> Result<(), String> {
        let (addr, len) = (Vaddr(span.addr), span.len_bytes);
        let advices: &[Madvice] = match advice {
            "plain" | "-" => &[],
            "normal" => &[Madvice::Normal],
            "huge" => &[Madvice::Hugepage],
            "nohuge" => &[Madvice::Nohugepage],
            "random" => &[Madvice::Random],
            "seq" => &[Madvice::Sequential],
            "hugerandom" => &[Madvice::Hugepage, Madvice::Random],
            "hugeseq" => &[Madvice::Hugepage, Madvice::Sequential],
            "dontneed" => &[Madvice::Dontneed],
            "cold" => &[Madvice::Cold],
            "populate" => &[Madvice::PopulateRead],
            "willneed" => {
                self.will_need(addr, len);
                return Ok(());
            }
            other => return self.prefer(other, span),
        };
        for &advice in advices {
            self.memory.madvise(self.mm, addr, len, advice).map_err(|e| e.to_string())?;
        }
        Ok(())
    }

    /// Applies `orderN`: a preferred folio order (`kernel/file_sizes/ABI`).
    fn prefer(&mut self, advice: &str, span: ByteSpan) -> Result<(), String> {
        let order = advice.strip_prefix("order").and_then(|order| order.parse::<u8>().ok());
        let order = order.filter(|&order| order <= MAX_ORDER.get());
        let order = order.ok_or_else(|| format!("unknown advice {advice:?}"))?;
        let bytes = self.page_bytes() << order;
        let preferred =
            self.memory.prefer_folios(self.mm, Vaddr(span.addr), span.len_bytes, Some(bytes));
        preferred.map_err(|error| error.to_string())
    }

    /// Applies `MADV_WILLNEED` to the file pages of the range, area by area.
    pub(super) fn will_need(&mut self, addr: Vaddr, len: u64) {
        let page = self.memory.rules().page;
        let start = addr.vpn(page);
        let end = start.plus(page.pages_in(len));
        for part in self.memory.space(self.mm).vmas.overlapping(start, end) {
            let Backing::File { open, pgoff } = part.backing else { continue };
            let range =
                ByteRange { pos: pgoff * page.bytes(), len_bytes: part.nr_pages() * page.bytes() };
            self.memory.fadvise(open, range, Fadvice::Willneed);
        }
    }

    /// Applies advice and returns the folios it removed from the page cache; `kernel` has the
    /// folios that the kernel removed.
    pub(super) fn advise_file(
        &mut self,
        advice: &str,
        io: FileIo,
        kernel: &[CachedFolio],
    ) -> Result<Vec<CachedFolio>, String> {
        let open = self.open_of(io)?;
        let advice = match advice {
            "normal" => Fadvice::Normal,
            "random" => Fadvice::Random,
            "seq" => Fadvice::Sequential,
            "willneed" => Fadvice::Willneed,
            "dontneed" => Fadvice::Dontneed,
            other => return Err(format!("unknown advice {other:?}")),
        };
        let file = self.memory.open_file(open).mapping;
        if advice != Fadvice::Dontneed {
            self.memory.fadvise(open, ByteRange { pos: io.pos, len_bytes: io.len_bytes }, advice);
            return Ok(Vec::new());
        }
        if self.takes_io_in_flight {
            return Ok(self.drop_read(file, io, kernel));
        }
        let before = self.folios(file);
        self.memory.fadvise(open, ByteRange { pos: io.pos, len_bytes: io.len_bytes }, advice);
        let (after, number) = (self.folios(file), self.number_of(file));
        let dropped = before.difference(&after);
        Ok(dropped.map(|&(index, order)| CachedFolio { file: number, index, order }).collect())
    }

    /// Drops the folios of `kernel` that the advice may drop. A folio under read stays, and the
    /// recording determines which folios are under read.
    fn drop_read(
        &mut self,
        file: MappingId,
        io: FileIo,
        kernel: &[CachedFolio],
    ) -> Vec<CachedFolio> {
        let number = self.number_of(file);
        let range =
            self.memory.dropped_pages(file, ByteRange { pos: io.pos, len_bytes: io.len_bytes });
        let mut dropped = Vec::new();
        for &folio in kernel {
            let CachedFolio { file: of, index, order } = folio;
            let entry = self.memory.core().find(file, PageIndex(index));
            let entry = entry.filter(|entry| {
                of == number && entry.index.0 == index && entry.order.get() == order
            });
            let may_drop =
                entry.is_some_and(|entry| range.start <= index && entry.end() <= range.end);
            let removed = may_drop && self.memory.drop_folio(file, PageIndex(index)).is_some();
            if removed {
                dropped.push(folio);
            }
        }
        dropped
    }

    fn folios(&self, file: MappingId) -> BTreeSet<(u64, u8)> {
        let folios = self.memory.core().mapping(file).tree.iter();
        folios.map(|entry| (entry.index.0, entry.order.get())).collect()
    }
}

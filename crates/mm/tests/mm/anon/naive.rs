//! The naive model: each process is a map from page to bytes, each file a vector.
//!
//! It models the bytes that a program sees, without folios, page tables or references.

use std::collections::BTreeMap;

use largefolio_mm::ram::stored_byte;
use largefolio_mm::units::MappingId;

use crate::anon::world::PAGE;

const PAGE_BYTES: usize = PAGE as usize;

pub(crate) type Bytes = Box<[u8]>;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Anon,
    File { file: usize, index: u64 },
}

#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub(crate) source: Source,
    pub(crate) is_shared: bool,
    pub(crate) can_write: bool,
    pub(crate) own: Option<Bytes>,
    pub(crate) is_lazy: bool,
    pub(crate) pin: Option<usize>,
}

#[derive(Clone, Debug)]
pub(crate) struct File {
    pub(crate) size: u64,
    bytes: Vec<u8>,
}

impl File {
    pub(crate) fn stored(id: MappingId, size: u64) -> Self {
        let mut file = Self { size: 0, bytes: Vec::new() };
        file.resize(size);
        for pos in 0..size {
            file.bytes[pos as usize] = stored_byte(id, pos);
        }
        file
    }

    pub(crate) fn zeroes(size: u64) -> Self {
        let mut file = Self { size: 0, bytes: Vec::new() };
        file.resize(size);
        file
    }

    pub(crate) fn nr_pages(&self) -> u64 {
        self.size.div_ceil(PAGE)
    }

    pub(crate) fn page(&self, index: u64) -> Option<&[u8]> {
        let first = index as usize * PAGE_BYTES;
        (index < self.nr_pages()).then(|| &self.bytes[first..first + PAGE_BYTES])
    }

    fn resize(&mut self, size: u64) {
        self.bytes.truncate(size as usize);
        self.bytes.resize(size.next_multiple_of(PAGE) as usize, 0);
        self.size = size;
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Naive {
    pub(crate) processes: Vec<Option<BTreeMap<u64, Page>>>,
    pub(crate) files: Vec<File>,
}

impl Naive {
    fn process(&mut self, nr: usize) -> &mut BTreeMap<u64, Page> {
        self.processes[nr].as_mut().unwrap()
    }

    pub(crate) fn page(&self, nr: usize, at: u64) -> Option<&Page> {
        self.processes[nr].as_ref()?.get(&at)
    }

    pub(crate) fn unmap(&mut self, nr: usize, at: u64, nr_pages: u64) {
        self.process(nr).retain(|page, _| !(at..at + nr_pages).contains(page));
    }

    pub(crate) fn map(&mut self, nr: usize, (at, nr_pages): (u64, u64), first: &Page) {
        self.unmap(nr, at, nr_pages);
        for by in 0..nr_pages {
            let source = match first.source {
                Source::Anon => Source::Anon,
                Source::File { file, index } => Source::File { file, index: index + by },
            };
            self.process(nr).insert(at + by, Page { source, own: None, pin: None, ..*first });
        }
    }

    pub(crate) fn protect(&mut self, nr: usize, at: u64, nr_pages: u64, can_write: bool) {
        for (_, page) in self.process(nr).range_mut(at..at + nr_pages) {
            page.can_write = can_write;
        }
    }

    pub(crate) fn forget(&mut self, nr: usize, at: u64, nr_pages: u64) {
        for (_, page) in self.process(nr).range_mut(at..at + nr_pages) {
            (page.own, page.pin) = (None, None);
        }
    }

    pub(crate) fn give_up(&mut self, nr: usize, at: u64, nr_pages: u64) {
        for (_, page) in self.process(nr).range_mut(at..at + nr_pages) {
            page.is_lazy |= page.source == Source::Anon && page.own.is_some();
        }
    }

    pub(crate) fn settle(&mut self, nr: usize, at: u64, found: &[u8]) {
        let Some(page) = self.process(nr).get_mut(&at) else { return };
        if std::mem::take(&mut page.is_lazy) && found.iter().all(|&byte| byte == 0) {
            page.own = None;
        }
    }

    pub(crate) fn remap(&mut self, nr: usize, (at, old): (u64, u64), (to, new): (u64, u64)) {
        let keep = old.min(new);
        let pages = self.process(nr);
        if (at..at + keep).any(|page| !pages.contains_key(&page)) {
            // Areas move one after the other; the gaps between them are untouched.
            for page in 0..keep {
                if let Some(moved) = self.process(nr).remove(&(at + page)) {
                    self.process(nr).insert(to + page, moved);
                }
            }
            return;
        }
        let first = self.page(nr, at).unwrap().clone();
        let moved: Vec<Page> =
            (at..at + keep).map(|page| self.process(nr).remove(&page).unwrap()).collect();
        self.unmap(nr, at + keep, old - keep);
        self.map(nr, (to, new), &first);
        for (page, moved) in (to..).zip(moved) {
            self.process(nr).insert(page, moved);
        }
    }

    pub(crate) fn fork(&mut self, nr: usize) {
        let mut child = self.process(nr).clone();
        for page in child.values_mut() {
            page.pin = None;
        }
        self.processes.push(Some(child));
    }

    pub(crate) fn content(&self, page: &Page) -> Option<Bytes> {
        match (&page.own, page.source) {
            (Some(own), _) => Some(own.clone()),
            (None, Source::Anon) => Some(vec![0; PAGE_BYTES].into()),
            (None, Source::File { file, index }) => self.files[file].page(index).map(Into::into),
        }
    }

    pub(crate) fn own(&mut self, nr: usize, at: u64) -> &mut Page {
        let content = self.content(self.page(nr, at).unwrap());
        let page = self.process(nr).get_mut(&at).unwrap();
        page.own = content;
        page
    }

    pub(crate) fn store(&mut self, nr: usize, at: u64, (from, bytes): (usize, &[u8])) {
        let page = self.page(nr, at).unwrap();
        match page.source {
            Source::File { file, index } if page.is_shared => {
                let first = index as usize * PAGE_BYTES + from;
                self.files[file].bytes[first..first + bytes.len()].copy_from_slice(bytes);
            }
            _ => {
                let own = self.own(nr, at).own.as_mut().unwrap();
                own[from..from + bytes.len()].copy_from_slice(bytes);
            }
        }
    }

    pub(crate) fn write_file(&mut self, file: usize, pos: u64, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        let end = pos + bytes.len() as u64;
        let file = &mut self.files[file];
        if end > file.size {
            file.resize(end);
        }
        file.bytes[pos as usize..end as usize].copy_from_slice(bytes);
    }

    pub(crate) fn truncate(&mut self, file: usize, size: u64) {
        self.files[file].resize(size);
        let nr_pages = self.files[file].nr_pages();
        for page in self.processes.iter_mut().flatten().flat_map(BTreeMap::values_mut) {
            let is_gone = |index| index >= nr_pages;
            if matches!(page.source, Source::File { file: of, index } if of == file && is_gone(index))
            {
                (page.own, page.pin) = (None, None);
            }
        }
    }

    pub(crate) fn punch(&mut self, file: usize, pos: u64, len: u64) {
        let file = &mut self.files[file];
        let end = (pos + len).min(file.size);
        if pos < end {
            file.bytes[pos as usize..end as usize].fill(0);
        }
    }

    pub(crate) fn pinned(&mut self, pin: usize) -> Option<&mut Page> {
        let pages = self.processes.iter_mut().flatten().flat_map(BTreeMap::values_mut);
        pages.into_iter().find(|page| page.pin == Some(pin))
    }
}

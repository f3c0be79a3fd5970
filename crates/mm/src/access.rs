//! Loads and stores of real bytes, by processes and by file calls.
//!
//! Each page is touched before its bytes are copied, so it faults as it would on a processor.

use crate::fault::{Access, FaultError};
use crate::io::OutOfMemory;
use crate::memory::Memory;
use crate::units::ByteRange;
use crate::units::{MmId, Pfn, Vaddr};
use crate::vma::OpenId;

impl Memory {
    /// Loads bytes from a process's memory.
    ///
    /// # Errors
    /// Fails at the first page that cannot be touched. `into` is filled up to it.
    pub fn load(&mut self, mm: MmId, addr: Vaddr, into: &mut [u8]) -> Result<(), FaultError> {
        for piece in pieces(self.rules.page.bytes(), addr.0, into.len()) {
            let pfn = self.touched_frame(mm, Vaddr(addr.0 + piece.from as u64), Access::Read)?;
            let frame = self.core.ram.frame(pfn);
            into[piece.from..piece.to].copy_from_slice(&frame[piece.in_page()]);
        }
        Ok(())
    }

    /// Stores bytes to a process's memory.
    ///
    /// # Errors
    /// Fails at the first page that cannot be touched. The bytes before it are stored.
    pub fn store(&mut self, mm: MmId, addr: Vaddr, bytes: &[u8]) -> Result<(), FaultError> {
        for piece in pieces(self.rules.page.bytes(), addr.0, bytes.len()) {
            let pfn = self.touched_frame(mm, Vaddr(addr.0 + piece.from as u64), Access::Write)?;
            let frame = self.core.ram.frame_mut(pfn);
            frame[piece.in_page()].copy_from_slice(&bytes[piece.from..piece.to]);
        }
        Ok(())
    }

    /// Reads bytes of a file as `pread` does. Returns how many it read.
    ///
    /// # Errors
    /// Fails if no page is free.
    pub fn read_file(
        &mut self,
        open: OpenId,
        pos: u64,
        into: &mut [u8],
    ) -> Result<usize, OutOfMemory> {
        let page_bytes = self.rules.page.bytes();
        let nr = self.read_with(
            open,
            ByteRange { pos, len_bytes: into.len() as u64 },
            |ram, pfn, range| {
                let part = &mut into[(range.start - pos) as usize..(range.end - pos) as usize];
                for (piece, pfn) in pieces(page_bytes, range.start, part.len()).zip(pfn.0..) {
                    part[piece.from..piece.to]
                        .copy_from_slice(&ram.frame(Pfn(pfn))[piece.in_page()]);
                }
            },
        )?;
        Ok(nr as usize)
    }

    /// Writes bytes to a file as `pwrite` does.
    ///
    /// # Errors
    /// Fails if no page is free. The bytes before that point are written.
    pub fn write_file(&mut self, open: OpenId, pos: u64, bytes: &[u8]) -> Result<(), OutOfMemory> {
        let page_bytes = self.rules.page.bytes();
        self.write_with(
            open,
            ByteRange { pos, len_bytes: bytes.len() as u64 },
            None,
            |ram, pfn, range| {
                let part = &bytes[(range.start - pos) as usize..(range.end - pos) as usize];
                for (piece, pfn) in pieces(page_bytes, range.start, part.len()).zip(pfn.0..) {
                    let frame = ram.frame_mut(Pfn(pfn));
                    frame[piece.in_page()].copy_from_slice(&part[piece.from..piece.to]);
                }
            },
        )
    }

    /// Returns a frame's bytes, for a store by a device. No entry and no folio notices it.
    pub fn frame_mut(&mut self, pfn: Pfn) -> &mut [u8] {
        self.core.ram.frame_mut(pfn)
    }

    fn touched_frame(&mut self, mm: MmId, addr: Vaddr, how: Access) -> Result<Pfn, FaultError> {
        let leaf = self.touch(mm, addr, how)?.leaf;
        Ok(leaf.pfn_of(addr.vpn(self.rules.page)))
    }
}

struct CopyPiece {
    from: usize,
    to: usize,
    at: usize,
}

impl CopyPiece {
    fn in_page(&self) -> std::ops::Range<usize> {
        self.at..self.at + (self.to - self.from)
    }
}

fn pieces(page_bytes: u64, start: u64, len: usize) -> impl Iterator<Item = CopyPiece> {
    let mut from = 0;
    std::iter::from_fn(move || {
        if from >= len {
            return None;
        }
        let at = ((start + from as u64) % page_bytes) as usize;
        let to = len.min(from + page_bytes as usize - at);
        let piece = CopyPiece { from, to, at };
        from = to;
        Some(piece)
    })
}

//! Parses `/proc/self/maps`.
//!
//! The program headers are not used: only the kernel knows which file is really mapped (device and
//! inode), and whether text became writable or anonymous.

use core::ffi::CStr;

use largefolio_ranges::{field, number};

use crate::line::c_str;

/// A private, executable, read-only mapping of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Text<'a> {
    pub(crate) start: usize,
    pub(crate) end: usize,
    /// File offset of `start`.
    pub(crate) offset: u64,
    /// The file's device as the kernel prints it: major, minor.
    pub(crate) device: (u64, u64),
    pub(crate) inode: u64,
    pub(crate) path: &'a CStr,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Blocks {
    pub(crate) block: usize,
    /// A multiple of `block`.
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) offset: u64,
}

impl<'a> Text<'a> {
    /// Parses a line of maps, which ends with a zero byte. Returns `None` if it does not describe a
    /// text.
    pub(crate) fn parse(line: &'a [u8]) -> Option<Self> {
        Self::parse_mapping(line, b"r-xp")
    }

    pub(crate) fn parse_mapping(line: &'a [u8], wanted: &[u8]) -> Option<Self> {
        let mut rest = line;
        let start = number::<16>(field(&mut rest, b'-')?)?;
        let end = number::<16>(field(&mut rest, b' ')?)?;
        let flags = field(&mut rest, b' ')?;
        let offset = number::<16>(field(&mut rest, b' ')?)?;
        let major = number::<16>(field(&mut rest, b':')?)?;
        let minor = number::<16>(field(&mut rest, b' ')?)?;
        let inode = number::<10>(field(&mut rest, b' ')?)?;
        while let Some((b' ', after)) = rest.split_first() {
            rest = after;
        }
        let path = c_str(rest)?;
        let is_file = inode != 0 && path.to_bytes().first() == Some(&b'/');
        let (start, end) = (usize::try_from(start).ok()?, usize::try_from(end).ok()?);
        (flags == wanted && is_file && start < end).then_some(Self {
            start,
            end,
            offset,
            device: (major, minor),
            inode,
            path,
        })
    }

    pub(crate) const fn len(&self) -> usize {
        self.end - self.start
    }

    /// Returns the whole naturally aligned blocks of `block` bytes, `None` if there are none.
    pub(crate) fn blocks(&self, block: usize) -> Option<Blocks> {
        let whole = largefolio_ranges::blocks(self.start, self.end, block)?;
        let into = u64::try_from(whole.start().checked_sub(self.start)?).ok()?;
        let offset = self.offset.checked_add(into)?;
        Some(Blocks { block, start: whole.start(), len: whole.len(), offset })
    }

    pub(crate) fn name(&self) -> &'a [u8] {
        self.path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or(b"")
    }
}

impl Blocks {
    /// Returns the shift of the copy in bytes, which makes its address and position agree modulo a
    /// block. It is 0 if the linker aligned the segment to a block.
    pub(crate) const fn shift(&self) -> u64 {
        let block = self.block as u64;
        (block - self.offset % block) % block
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const M2: usize = 2 << 20;
    const LINE: &[u8] =
        b"00b72000-025fe000 r-xp 00772000 fe:0a 1234                       /usr/bin/node x\0";

    #[test]
    fn a_text_is_read_from_its_line() {
        let text = Text::parse(LINE).unwrap();
        assert_eq!((text.start, text.end, text.offset), (0xb7_2000, 0x25f_e000, 0x77_2000));
        assert_eq!((text.device, text.inode), ((0xfe, 0xa), 1234));
        assert_eq!(text.name(), b"node x");
        let blocks = text.blocks(M2).unwrap();
        assert_eq!((blocks.start, blocks.len), (0xc0_0000, 0x180_0000));
        assert_eq!((blocks.offset, blocks.shift()), (0x80_0000, 0));
    }

    #[test]
    fn a_text_off_its_alignment_is_shifted() {
        let line = b"7f0000001000-7f0000601000 r-xp 00000000 00:1b 7 /a\0";
        let blocks = Text::parse(line).unwrap().blocks(M2).unwrap();
        assert_eq!((blocks.start, blocks.len), (0x7f00_0020_0000, 0x40_0000));
        assert_eq!((blocks.offset, blocks.shift()), (0x1f_f000, 0x1000));
    }

    #[test]
    fn blocks_are_those_of_the_machine() {
        let line = b"7f0001234000-7f0006600000 r-xp 00004000 00:1b 7 /a\0";
        let blocks = Text::parse(line).unwrap().blocks(32 << 20).unwrap();
        assert_eq!((blocks.start, blocks.len), (0x7f00_0200_0000, 0x400_0000));
        assert_eq!(blocks.shift(), (32 << 20) - 0xdd_0000);
        assert_eq!(Text::parse(line).unwrap().blocks(512 << 20), None);
    }

    #[test]
    fn what_is_no_text_is_not_taken() {
        for line in [
            &b"7f0000000000-7f0000600000 rw-p 00000000 00:1b 7 /a\0"[..],
            b"7f0000000000-7f0000600000 r-xs 00000000 00:1b 7 /a\0",
            b"7f0000000000-7f0000600000 r-xp 00000000 00:00 0 [vdso]\0",
            b"7f0000000000-7f0000600000 r-xp 00000000 00:00 0 \0",
            b"7f0000600000-7f0000000000 r-xp 00000000 00:1b 7 /a\0",
            b"fffffffffffffffff-7 r-xp 00000000 00:1b 7 /a\0",
            b"7f0000000000 \0",
            b"\0",
            b"",
        ] {
            assert_eq!(Text::parse(line), None, "{}", line.escape_ascii());
        }
    }

    #[test]
    fn less_than_a_block_is_none() {
        let small = b"7f0000001000-7f00003ff000 r-xp 00000000 00:1b 7 /a\0";
        assert_eq!(Text::parse(small).unwrap().blocks(M2), None);
        let high = b"ffffffffffe01000-fffffffffffff000 r-xp 00000000 00:1b 7 /a\0";
        assert_eq!(Text::parse(high).unwrap().blocks(M2), None);
    }
}

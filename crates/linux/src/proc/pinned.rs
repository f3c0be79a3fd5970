//! A process's pinned memory: held in place for a device or for `io_uring`.
//!
//! ```text
//!   status          VmPin: 65536 kB             all of it, at unknown addresses
//!   fdinfo/FD       UserBufs: 1                 registered io_uring buffers, with their addresses
//!                      0: 0x7f2bb4600000/8388608
//! ```
//!
//! Owns both formats. No file shows the addresses that VFIO and RDMA pin.

use std::ops::Range;

use super::Task;

/// Descriptors read at most: the open file limit is rarely higher.
const DESCRIPTORS_MAX: usize = 1 << 12;
/// Buffers per descriptor: `IORING_MAX_REG_BUFFERS` (`io_uring/rsrc.h`).
const BUFFERS_MAX: usize = 1 << 14;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pinned {
    pub bytes: u64,
    /// The known addresses, ascending and not adjacent.
    pub known: Vec<Range<u64>>,
}

impl Pinned {
    pub(crate) fn of(task: &Task<'_>, bytes: u64) -> Self {
        if bytes == 0 {
            return Self::default();
        }
        let descriptors = task.descriptors().into_iter().take(DESCRIPTORS_MAX);
        let known = descriptors.filter_map(|fd| task.fdinfo(fd).ok());
        Self { bytes, known: joined(known.flat_map(|text| buffers(&text)).collect()) }
    }

    #[must_use]
    pub fn unknown_bytes(&self) -> u64 {
        let known: u64 = self.known.iter().map(|range| range.end - range.start).sum();
        self.bytes.saturating_sub(known)
    }
}

fn joined(mut ranges: Vec<Range<u64>>) -> Vec<Range<u64>> {
    ranges.sort_unstable_by_key(|range| (range.start, range.end));
    let mut joined: Vec<Range<u64>> = Vec::new();
    for range in ranges {
        match joined.last_mut() {
            Some(last) if last.end >= range.start => last.end = last.end.max(range.end),
            _ => joined.push(range),
        }
    }
    joined
}

fn buffers(text: &[u8]) -> Vec<Range<u64>> {
    let lines = text.split(|byte| *byte == b'\n');
    let mut lines = lines.skip_while(|line| !line.starts_with(b"UserBufs:"));
    lines.next();
    lines.map_while(place_of_buffer).take(BUFFERS_MAX).filter_map(range).collect()
}

fn place_of_buffer(line: &[u8]) -> Option<&str> {
    let (number, place) = std::str::from_utf8(line).ok()?.trim().split_once(": ")?;
    number.parse::<u32>().ok()?;
    Some(place)
}

fn range(place: &str) -> Option<Range<u64>> {
    let (start, len) = place.split_once('/')?;
    let start = u64::from_str_radix(start.strip_prefix("0x")?, 16).ok()?;
    let end = start.checked_add(len.parse().ok()?)?;
    (start < end).then_some(start..end)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_the_lines_of_the_list() {
        let text = b"pos:\t0\nSqMask:\t0x3\nUserFiles:\t1\n    0: /x/y\nUserBufs:\t3\n    \
            0: 0x1000/8192\n    1: <none>\n    2: 0x9000/4096\nPollList:\n 3: 0x7000/1\n";
        assert_eq!(buffers(text), [0x1000..0x3000, 0x9000..0xa000]);
        let absurd = b"UserBufs: 9\n 0: 0xfffffffffffff000/8192\n 1: 0x0/0\n 2: 0x5/x\n 3: 0x1/2\n";
        assert_eq!(buffers(absurd), vec![1..3; 1]);
        assert_eq!(buffers(b"\xff\nUserBufs:\n\xff: 0x1/2\n 0: 0x1/2"), []);
    }

    #[test]
    fn what_overlaps_is_counted_once() {
        let ranges = vec![0x5000..0x6000, 0x1000..0x3000, 0x2000..0x4000, 0x1000..0x1800];
        let known = joined(ranges);
        assert_eq!(known, [0x1000..0x4000, 0x5000..0x6000]);
        let pinned = Pinned { bytes: 0x5000, known };
        assert_eq!(pinned.unknown_bytes(), 0x1000);
    }
}

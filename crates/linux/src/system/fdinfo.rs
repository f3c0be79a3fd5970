//! Parses `/proc/PID/fdinfo/FD`.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FdInfo {
    pub pos: Option<u64>,
    pub flags: Option<u64>,
}

impl FdInfo {
    /// Parses the two fields of every descriptor: `pos` decimal, `flags` octal.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let mut info = Self::default();
        for line in text.split(|byte| *byte == b'\n') {
            let number = |value: &[u8], radix| {
                u64::from_str_radix(std::str::from_utf8(value).ok()?.trim(), radix).ok()
            };
            if let Some(value) = line.strip_prefix(b"pos:") {
                info.pos = info.pos.or(number(value, 10));
            } else if let Some(value) = line.strip_prefix(b"flags:") {
                info.flags = info.flags.or(number(value, 8));
            }
        }
        info
    }

    #[must_use]
    pub fn may_write(&self) -> bool {
        let mode = u64::from(libc::O_ACCMODE.unsigned_abs());
        self.flags.is_some_and(|flags| flags & mode != u64::from(libc::O_RDONLY.unsigned_abs()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_good_line_counts() {
        let info = FdInfo::parse(b"pos:\t4096\nflags:\t0100002\nmnt_id:\t29\npos:\t1\n");
        assert_eq!(info, FdInfo { pos: Some(4096), flags: Some(0o10_0002) });
        assert!(info.may_write() && !FdInfo::parse(b"flags: 0100000").may_write());
        let none =
            FdInfo::parse(b"pos:\tx\nflags:\t9\n\xff\n flags: 1\nflags:99999999999999999999999");
        assert_eq!((none, none.may_write()), (FdInfo::default(), false));
    }
}

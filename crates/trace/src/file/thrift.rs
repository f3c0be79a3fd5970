//! A look at a Thrift compact structure before the Parquet library allocates for it.
//!
//! Owns a walker that visits every byte of a page header or footer, allocates nothing, and
//! reports the top level's numbers and list lengths. It refuses what no Parquet writer emits and
//! what could make a second parser see other numbers: repeated or descending field ids, sets,
//! maps, more than [`DEPTH_MAX`] levels. Invariants:
//! - I1: the walk ends: each step consumes a byte of the input.
//! - I2: every length inside what was walked lies inside it, too.

/// Levels of nesting; Parquet's own structures have six.
const DEPTH_MAX: usize = 24;

/// Field ids of the top level that are reported; the largest that Parquet uses is 9.
const NR_FIELDS: usize = 16;

/// What the walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    /// Bytes of the structure.
    pub(super) len: usize,
    fields: [Option<u64>; NR_FIELDS],
}

impl Outline {
    /// Walks the structure at the start of `bytes`; `None` if it is malformed or cut short.
    pub(super) fn of(bytes: &[u8]) -> Option<Self> {
        let mut walk = Walk { bytes, at: 0 };
        let mut fields = [None; NR_FIELDS];
        walk.structure(DEPTH_MAX, &mut |id, number| {
            if let Some(field) = usize::try_from(id).ok().and_then(|id| fields.get_mut(id)) {
                *field = Some(number);
            }
        })?;
        Some(Self { len: walk.at, fields })
    }

    /// Length of the list, or of the string, in field `id`; 0 without the field.
    pub(super) fn list_len(&self, id: usize) -> u64 {
        self.fields.get(id).copied().flatten().unwrap_or(0)
    }

    /// Number in field `id`, `None` without the field or if it is negative.
    pub(super) fn number(&self, id: usize) -> Option<u64> {
        let raw = self.fields.get(id).copied().flatten()?;
        u64::try_from(zigzag(raw)).ok()
    }
}

/// Wire types of the compact protocol.
const STOP: u8 = 0;
const BOOL_TRUE: u8 = 1;
const BOOL_FALSE: u8 = 2;
const BYTE: u8 = 3;
const I16: u8 = 4;
const I64: u8 = 6;
const DOUBLE: u8 = 7;
const BINARY: u8 = 8;
const LIST: u8 = 9;
const STRUCT: u8 = 12;

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    /// Walks a structure; `seen` gets each field's id and its raw number or length.
    fn structure(&mut self, depth: usize, seen: &mut dyn FnMut(i64, u64)) -> Option<()> {
        let depth = depth.checked_sub(1)?;
        let mut last = 0;
        loop {
            let header = self.byte()?;
            let kind = header & 0xf;
            if kind == STOP {
                return (header == 0).then_some(());
            }
            let id = match header >> 4 {
                0 => zigzag(self.varint()?),
                delta => last + i64::from(delta),
            };
            if id <= last || id > i64::from(i16::MAX) {
                return None;
            }
            last = id;
            let number = if kind <= BOOL_FALSE { 0 } else { self.value(kind, depth)? };
            seen(id, number);
        }
    }

    /// Walks a value; returns its raw number, or the length of a string or list.
    fn value(&mut self, kind: u8, depth: usize) -> Option<u64> {
        match kind {
            BOOL_TRUE | BOOL_FALSE | BYTE => self.byte().map(u64::from),
            I16..=I64 => self.varint(),
            DOUBLE => self.skip(8).map(|()| 0),
            BINARY => {
                let len = self.varint()?;
                self.skip(len).map(|()| len)
            }
            LIST => self.list(depth),
            STRUCT => self.structure(depth, &mut |_, _| ()).map(|()| 0),
            _ => None,
        }
    }

    fn list(&mut self, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let header = self.byte()?;
        let len = match header >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        for _ in 0..len {
            self.value(header & 0xf, depth)?;
        }
        Some(len)
    }

    fn byte(&mut self) -> Option<u8> {
        let byte = *self.bytes.get(self.at)?;
        self.at += 1;
        Some(byte)
    }

    fn varint(&mut self) -> Option<u64> {
        let mut number = 0_u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return Some(number);
            }
        }
        None
    }

    fn skip(&mut self, bytes: u64) -> Option<()> {
        let at = self.at.checked_add(usize::try_from(bytes).ok()?)?;
        (at <= self.bytes.len()).then(|| self.at = at)
    }
}

/// The signed number behind a raw one: 0, -1, 1, -2, ..
const fn zigzag(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -((raw & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Header of field `delta` after the last one, of `kind`.
    const fn field(delta: u8, kind: u8) -> u8 {
        delta << 4 | kind
    }

    #[test]
    fn numbers_and_lengths_of_the_top_level_are_reported() {
        let bytes = [
            field(1, I64),
            0x80,
            0x02, // 1: 128
            field(1, LIST),
            0x25,
            1,
            2, // 2: two numbers
            field(1, STRUCT),
            field(2, I64),
            9,
            0, // 3: a structure, not looked into
            field(1, BINARY),
            3,
            b'a',
            b'b',
            b'c', // 4: a string
            field(1, I64),
            1, // 5: -1
            0,
            0xff,
        ];
        let outline = Outline::of(&bytes).unwrap();
        assert_eq!(outline.len, bytes.len() - 1);
        assert_eq!(outline.number(1), Some(128));
        assert_eq!((outline.list_len(2), outline.list_len(4), outline.list_len(9)), (2, 3, 0));
        assert_eq!((outline.number(5), outline.number(6)), (None, None));
    }

    #[test]
    fn repeated_fields_are_refused() {
        let long = [field(1, I64), 2, field(0, I64), 2, 4, 0]; // field 1 again, long form
        assert_eq!(Outline::of(&long), None);
        assert!(Outline::of(&[field(1, I64), 2, field(0, I64), 4, 4, 0]).is_some());
    }

    #[test]
    fn declared_lengths_beyond_the_input_are_refused() {
        assert_eq!(Outline::of(&[field(1, BINARY), 5, b'a', 0]), None);
        assert_eq!(Outline::of(&[field(1, LIST), 0xf5, 0xff, 0xff, 0xff, 0x7f, 0]), None);
        assert_eq!(Outline::of(&[field(1, I64), 0xff, 0xff]), None);
        assert_eq!(Outline::of(&[field(1, I64), 2]), None);
        assert_eq!(Outline::of(&[]), None);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| [vec![field(1, STRUCT); depth], vec![0; depth + 1]].concat();
        assert!(Outline::of(&nested(DEPTH_MAX - 1)).is_some());
        assert_eq!(Outline::of(&nested(DEPTH_MAX)), None);
        assert_eq!(Outline::of(&nested(1_000_000)), None);
    }

    #[test]
    fn every_cut_of_a_header_is_refused() {
        let bytes = [field(1, I64), 4, field(1, STRUCT), field(1, BINARY), 2, 7, 7, 0, 0];
        assert!(Outline::of(&bytes).is_some());
        assert!((0..bytes.len()).all(|len| Outline::of(&bytes[..len]).is_none()));
    }
}

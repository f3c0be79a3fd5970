//! Walks a Thrift compact structure before the Parquet library allocates memory for it.
//!
//! Visits every byte of a page header or footer without allocating. Reports the top level's
//! numbers, list lengths and structure positions. Rejects anything that no Parquet writer emits and
//! that could make a second parser see different numbers: repeated or descending field ids, sets,
//! maps, more than [`DEPTH_MAX`] levels, and fields that do not match the format ([`Shape`]).
//! Invariants:
//! - I1: the walk ends: each step consumes a byte of the input.
//! - I2: no length in the walked bytes extends past their end.
//! - I3: the library reads the walked bytes field by field. It skips an unknown list of booleans as
//!   if it had no bytes, so such lists are rejected.

use super::shape::Shape;

/// Maximum nesting. Parquet's own structures have six levels.
const DEPTH_MAX: usize = 24;

/// Reported field ids of the top level. The largest in Parquet is 9.
const NR_FIELDS: usize = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outline {
    pub(super) len: usize,
    fields: [Option<u64>; NR_FIELDS],
}

impl Outline {
    /// Walks the structure at the start of `bytes`; `None` if it is malformed or of another shape.
    pub(super) fn of(bytes: &[u8], shape: &Shape) -> Option<Self> {
        let mut walk = Walk { bytes, at: 0 };
        let mut fields = [None; NR_FIELDS];
        walk.structure(shape, DEPTH_MAX, &mut |id, number| {
            if let Some(field) = usize::try_from(id).ok().and_then(|id| fields.get_mut(id)) {
                *field = Some(number);
            }
        })?;
        Some(Self { len: walk.at, fields })
    }

    pub(super) fn list_len(&self, id: usize) -> u64 {
        self.fields.get(id).copied().flatten().unwrap_or(0)
    }

    /// Returns the outline of the structure in field `id`; `self` is the outline of `bytes`.
    pub(super) fn within(&self, id: usize, bytes: &[u8], shape: &Shape) -> Option<Self> {
        let at = usize::try_from((*self.fields.get(id)?)?).ok()?;
        Self::of(bytes.get(at..)?, shape.field(i64::try_from(id).ok()?))
    }

    pub(super) fn number(&self, id: usize) -> Option<u64> {
        let raw = self.fields.get(id).copied().flatten()?;
        u64::try_from(zigzag(raw)).ok()
    }
}

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

impl Shape {
    const fn is_written_as(&self, kind: u8) -> bool {
        match self {
            Self::Bool => matches!(kind, BOOL_TRUE | BOOL_FALSE),
            Self::Byte => kind == BYTE,
            Self::Int => matches!(kind, I16..=I64),
            Self::Double => kind == DOUBLE,
            Self::Text => kind == BINARY,
            Self::List(_) => kind == LIST,
            Self::Struct(_) => kind == STRUCT,
            Self::Skipped => true,
        }
    }

    fn field(&self, id: i64) -> &Self {
        let at = usize::try_from(id).ok().and_then(|id| id.checked_sub(1));
        match (self, at) {
            (Self::Struct(fields), Some(at)) => fields.get(at).unwrap_or(&Self::Skipped),
            _ => &Self::Skipped,
        }
    }

    const fn element(&self) -> &Self {
        match self {
            Self::List(element) => element,
            _ => &Self::Skipped,
        }
    }
}

struct Walk<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Walk<'_> {
    fn structure(
        &mut self,
        shape: &Shape,
        depth: usize,
        seen: &mut dyn FnMut(i64, u64),
    ) -> Option<()> {
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
            let field = shape.field(id);
            if !field.is_written_as(kind) {
                return None;
            }
            let number = if kind <= BOOL_FALSE { 0 } else { self.value(kind, field, depth)? };
            seen(id, number);
        }
    }

    /// Walks a value. Returns its raw number, length (string, list) or position (structure).
    fn value(&mut self, kind: u8, shape: &Shape, depth: usize) -> Option<u64> {
        match kind {
            BYTE => self.byte().map(u64::from),
            I16..=I64 => self.varint(),
            DOUBLE => self.skip(8).map(|()| 0),
            BINARY => {
                let len = self.varint()?;
                self.skip(len).map(|()| len)
            }
            LIST => self.list(shape, depth),
            STRUCT => {
                let at = self.at as u64;
                self.structure(shape, depth, &mut |_, _| ()).map(|()| at)
            }
            // Booleans in lists, sets, maps.
            _ => None,
        }
    }

    fn list(&mut self, shape: &Shape, depth: usize) -> Option<u64> {
        let depth = depth.checked_sub(1)?;
        let header = self.byte()?;
        let (kind, element) = (header & 0xf, shape.element());
        let len = match header >> 4 {
            15 => self.varint()?,
            short => u64::from(short),
        };
        if len > 0 && !element.is_written_as(kind) {
            return None;
        }
        for _ in 0..len {
            self.value(kind, element, depth)?;
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

/// Decodes a zigzag number: 0, -1, 1, -2, ..
const fn zigzag(raw: u64) -> i64 {
    (raw >> 1).cast_signed() ^ -((raw & 1).cast_signed())
}

#[cfg(test)]
mod tests {
    use super::super::shape::FOOTER;
    use super::*;

    fn outline(bytes: &[u8]) -> Option<Outline> {
        Outline::of(bytes, &Shape::Skipped)
    }

    /// Encodes the header of the field `delta` after the last one.
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
            0, // 3: a structure, not visited
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
        let outline = outline(&bytes).unwrap();
        assert_eq!(outline.len, bytes.len() - 1);
        assert_eq!(outline.number(1), Some(128));
        assert_eq!((outline.list_len(2), outline.list_len(4), outline.list_len(9)), (2, 3, 0));
        assert_eq!((outline.number(5), outline.number(6)), (None, None));
    }

    #[test]
    fn repeated_fields_are_refused() {
        let long = [field(1, I64), 2, field(0, I64), 2, 4, 0]; // field 1 again, long form
        assert_eq!(outline(&long), None);
        assert!(outline(&[field(1, I64), 2, field(0, I64), 4, 4, 0]).is_some());
    }

    #[test]
    fn declared_lengths_beyond_the_input_are_refused() {
        assert_eq!(outline(&[field(1, BINARY), 5, b'a', 0]), None);
        assert_eq!(outline(&[field(1, LIST), 0xf5, 0xff, 0xff, 0xff, 0x7f, 0]), None);
        assert_eq!(outline(&[field(1, I64), 0xff, 0xff]), None);
        assert_eq!(outline(&[field(1, I64), 2]), None);
        assert_eq!(outline(&[]), None);
    }

    #[test]
    fn deep_nesting_is_refused() {
        let nested = |depth: usize| [vec![field(1, STRUCT); depth], vec![0; depth + 1]].concat();
        assert!(outline(&nested(DEPTH_MAX - 1)).is_some());
        assert_eq!(outline(&nested(DEPTH_MAX)), None);
        assert_eq!(outline(&nested(1_000_000)), None);
    }

    #[test]
    fn every_cut_of_a_header_is_refused() {
        let bytes = [field(1, I64), 4, field(1, STRUCT), field(1, BINARY), 2, 7, 7, 0, 0];
        assert!(outline(&bytes).is_some());
        assert!((0..bytes.len()).all(|len| outline(&bytes[..len]).is_none()));
    }

    #[test]
    fn fields_that_are_not_what_the_format_says_are_refused() {
        let version = [field(1, I64), 2, 0];
        assert!(Outline::of(&version, &FOOTER).is_some());
        let text = [field(1, BINARY), 1, b'a', 0];
        assert!(outline(&text).is_some());
        assert_eq!(Outline::of(&text, &FOOTER), None);
        // The key of a pair, then a pair that is not a structure.
        let key = |kind: u8| [field(5, LIST), 0x1c, field(1, kind), 0, 0, 0];
        assert!(Outline::of(&key(BINARY), &FOOTER).is_some());
        assert_eq!(Outline::of(&key(I64), &FOOTER), None);
        assert_eq!(Outline::of(&[field(5, LIST), 0x15, 2, 0], &FOOTER), None);
        assert!(Outline::of(&[field(5, LIST), 0, 0], &FOOTER).is_some(), "none has no kind");
    }

    /// The library would treat such a list as having no bytes and read its bytes as fields: for
    /// example, another list of two billion booleans, which takes seconds.
    #[test]
    fn booleans_in_lists_are_refused() {
        for kind in [BOOL_TRUE, BOOL_FALSE] {
            let list = [field(15, LIST), 0x20 | kind, 1, 1, 0];
            assert_eq!(outline(&list), None);
            assert_eq!(Outline::of(&list, &FOOTER), None);
        }
    }
}

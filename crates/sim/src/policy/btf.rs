//! The type information of an object file (BTF, written by clang -g).
//!
//! Owns the parser. `posted` asks it for maps and `struct_ops`; nothing else needs types.
//!
//! Invariants:
//! - I1: no chain of types is followed further than [`DEPTH_MAX`], so hostile types cannot recurse
//!   without end.

use std::collections::BTreeMap;

const MAGIC: u16 = 0xeb9f;
const NR_TYPES_MAX: usize = 1 << 16;
const DEPTH_MAX: u32 = 16;
const TYPE_BYTES: usize = 12;
const MEMBER_BYTES: usize = 12;

mod kind {
    pub(super) const INT: u32 = 1;
    pub(super) const PTR: u32 = 2;
    pub(super) const ARRAY: u32 = 3;
    pub(super) const STRUCT: u32 = 4;
    pub(super) const UNION: u32 = 5;
    pub(super) const ENUM: u32 = 6;
    pub(super) const FWD: u32 = 7;
    pub(super) const TYPEDEF: u32 = 8;
    pub(super) const VOLATILE: u32 = 9;
    pub(super) const CONST: u32 = 10;
    pub(super) const RESTRICT: u32 = 11;
    pub(super) const FUNC: u32 = 12;
    pub(super) const FUNC_PROTO: u32 = 13;
    pub(super) const VAR: u32 = 14;
    pub(super) const DATASEC: u32 = 15;
    pub(super) const FLOAT: u32 = 16;
    pub(super) const DECL_TAG: u32 = 17;
    pub(super) const TYPE_TAG: u32 = 18;
    pub(super) const ENUM64: u32 = 19;
}

#[derive(Clone, Copy, Debug)]
struct Type<'a> {
    name: &'a str,
    kind: u32,
    /// Another type's number, or the type's own bytes.
    referred: u32,
    /// What follows: members, or an array's numbers.
    rest: &'a [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Member<'a> {
    pub(super) name: &'a str,
    pub(super) of_type: u32,
    /// Bytes from the structure's start; `None` for a bit field.
    pub(super) offset: Option<u64>,
}

/// The file's types, numbered from 1.
#[derive(Debug)]
pub(super) struct Btf<'a> {
    types: Vec<Type<'a>>,
    variables: BTreeMap<&'a str, u32>,
}

const fn rest_bytes(of_kind: u32, nr: usize) -> Option<usize> {
    Some(match of_kind {
        kind::INT | kind::VAR | kind::DECL_TAG => 4,
        kind::ARRAY => 12,
        kind::STRUCT | kind::UNION | kind::DATASEC | kind::ENUM64 => nr * MEMBER_BYTES,
        kind::ENUM | kind::FUNC_PROTO => nr * 8,
        kind::PTR
        | kind::FWD
        | kind::TYPEDEF
        | kind::VOLATILE
        | kind::CONST
        | kind::RESTRICT
        | kind::FUNC
        | kind::FLOAT
        | kind::TYPE_TAG => 0,
        _ => return None,
    })
}

fn word(bytes: &[u8], at: usize) -> Option<u32> {
    let word = bytes.get(at..)?.first_chunk::<4>()?;
    Some(u32::from_le_bytes(*word))
}

/// `nr` bytes from an offset of a header's part that starts at `start`.
fn part(bytes: &[u8], start: u32, offset: u32, nr: u32) -> Option<&[u8]> {
    let first = usize::try_from(start.checked_add(offset)?).ok()?;
    bytes.get(first..)?.get(..usize::try_from(nr).ok()?)
}

impl<'a> Btf<'a> {
    /// Parses the section `.BTF`; `None` if it is damaged.
    pub(super) fn parse(bytes: &'a [u8]) -> Option<Self> {
        let magic = u16::from_le_bytes(*bytes.first_chunk()?);
        let header_bytes = word(bytes, 4)?;
        let part_at = |at: usize| part(bytes, header_bytes, word(bytes, at)?, word(bytes, at + 4)?);
        let (mut left, strings) = (part_at(8)?, part_at(16)?);
        if magic != MAGIC {
            return None;
        }
        let mut btf = Self { types: Vec::new(), variables: BTreeMap::new() };
        while !left.is_empty() {
            let info = word(left, 4)?;
            let (of_kind, nr) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
            let nr_bytes = rest_bytes(of_kind, nr)?;
            let rest = left.get(TYPE_BYTES..)?.get(..nr_bytes)?;
            let name = text(strings, word(left, 0)?)?;
            let of = Type { name, kind: of_kind, referred: word(left, 8)?, rest };
            btf.types.push(of);
            if of_kind == kind::VAR {
                btf.variables.entry(name).or_insert(of.referred);
            }
            if btf.types.len() > NR_TYPES_MAX {
                return None;
            }
            left = &left[TYPE_BYTES + nr_bytes..];
        }
        // Names of members are looked up later.
        let names = btf.types.iter().filter(|of| matches!(of.kind, kind::STRUCT | kind::UNION));
        let mut names = names.flat_map(|of| of.rest.chunks_exact(MEMBER_BYTES));
        if !names.all(|member| word(member, 0).and_then(|name| text(strings, name)).is_some()) {
            return None;
        }
        btf.types.push(Type { name: "", kind: 0, referred: 0, rest: strings });
        Some(btf)
    }

    fn strings(&self) -> &'a [u8] {
        self.types.last().map_or(&[], |of| of.rest)
    }

    fn get(&self, nr: u32) -> Option<Type<'a>> {
        let at = usize::try_from(nr).ok()?.checked_sub(1)?;
        self.types.get(at).copied()
    }

    /// The type of a variable.
    pub(super) fn variable(&self, name: &str) -> Option<u32> {
        self.variables.get(name).copied()
    }

    /// The type without names and qualifiers.
    fn plain(&self, mut nr: u32) -> Option<Type<'a>> {
        for _ in 0..DEPTH_MAX {
            let of = self.get(nr)?;
            match of.kind {
                kind::TYPEDEF | kind::VOLATILE | kind::CONST | kind::RESTRICT | kind::TYPE_TAG => {
                    nr = of.referred;
                }
                _ => return Some(of),
            }
        }
        None
    }

    /// A structure's name and members.
    pub(super) fn structure(&self, nr: u32) -> Option<(&'a str, Vec<Member<'a>>)> {
        let of = self.plain(nr).filter(|of| of.kind == kind::STRUCT)?;
        let strings = self.strings();
        let member = |bytes: &'a [u8]| {
            let (name, bits) = (text(strings, word(bytes, 0)?)?, word(bytes, 8)?);
            let offset = (bits % 8 == 0).then_some(u64::from(bits / 8));
            Some(Member { name, of_type: word(bytes, 4)?, offset })
        };
        let members = of.rest.chunks_exact(MEMBER_BYTES).map(member).collect::<Option<Vec<_>>>()?;
        Some((of.name, members))
    }

    /// The number in a member declared by `__uint`: the length of the array it points to.
    pub(super) fn number(&self, nr: u32) -> Option<u32> {
        let array = self.pointed(nr).and_then(|nr| self.plain(nr))?;
        (array.kind == kind::ARRAY).then(|| word(array.rest, 8)).flatten()
    }

    /// Bytes of the type that a member declared by `__type` points to.
    pub(super) fn pointed_bytes(&self, nr: u32) -> Option<u64> {
        self.bytes(self.pointed(nr)?, DEPTH_MAX)
    }

    fn pointed(&self, nr: u32) -> Option<u32> {
        let pointer = self.plain(nr)?;
        (pointer.kind == kind::PTR).then_some(pointer.referred)
    }

    fn bytes(&self, nr: u32, depth: u32) -> Option<u64> {
        let of = self.plain(nr)?;
        match of.kind {
            kind::PTR => Some(8),
            kind::ARRAY => {
                let bytes = self.bytes(word(of.rest, 0)?, depth.checked_sub(1)?)?;
                bytes.checked_mul(word(of.rest, 8)?.into())
            }
            kind::INT | kind::STRUCT | kind::UNION | kind::ENUM | kind::ENUM64 | kind::FLOAT => {
                Some(of.referred.into())
            }
            _ => None,
        }
    }
}

fn text(strings: &[u8], at: u32) -> Option<&str> {
    let from = strings.get(usize::try_from(at).ok()?..)?;
    let nr = from.iter().position(|&byte| byte == 0)?;
    std::str::from_utf8(&from[..nr]).ok()
}

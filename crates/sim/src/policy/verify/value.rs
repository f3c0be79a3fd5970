//! The known state of a value: a number in a range, or a pointer into one object.

use super::super::things::Kind;
use super::number::{Number, Range};

pub(super) const MIXED: &str = "an address points to different objects on different paths; use \
                                each address in its own branch, and only numbers where the \
                                branches merge";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Value {
    /// Unset: it may not be used.
    Unset,
    Number(Number),
    /// An address of different objects on different paths, or an address on one and a number on
    /// another.
    Mixed,
    /// Into the context, from its start.
    Context {
        offset: Range,
    },
    /// Into the stack, from its end.
    Stack {
        offset: i64,
    },
    Map {
        nr: usize,
    },
    /// The result of lookup `id`: an entry, or 0.
    MaybeEntry {
        map: usize,
        id: usize,
    },
    Entry {
        map: usize,
        offset: Range,
    },
    Data {
        section: usize,
        offset: Range,
    },
    /// Into the stack of the function that called the helper, from its end.
    Caller {
        offset: i64,
    },
    /// A function, for a helper that calls it.
    Function {
        nr: usize,
    },
    /// An address of a thing, from its start. It depends on no memory of this process, so it also
    /// is a number.
    Thing {
        kind: Kind,
        offset: i64,
    },
}

impl Value {
    pub(super) const fn is_number(self) -> bool {
        matches!(self, Self::Number(_) | Self::Thing { .. })
    }

    /// The value as a number; `None` if it depends on an address.
    pub(super) const fn number(self) -> Option<Number> {
        match self {
            Self::Number(number) => Some(number),
            Self::Thing { .. } => Some(Number::ANY),
            _ => None,
        }
    }

    /// Merges the values of two paths. If both are an entry or 0, `fresh` becomes a new lookup id.
    pub(super) fn meet(self, other: Self, fresh: &mut usize) -> Self {
        match (self, other) {
            (one, other) if one == other => one,
            (one, other) if let Some(map) = one.entry_or_none(other) => {
                *fresh += 1;
                Self::MaybeEntry { map, id: *fresh }
            }
            (Self::Number(one), Self::Number(other)) => Self::Number(one.hull(other)),
            (one, other) if one.is_number() && other.is_number() => Self::Number(Number::ANY),
            (Self::Context { offset }, Self::Context { offset: other }) => {
                Self::Context { offset: offset.hull(other) }
            }
            (Self::Entry { map, offset }, Self::Entry { map: same, offset: other })
                if map == same =>
            {
                Self::Entry { map, offset: offset.hull(other) }
            }
            (Self::Data { section, offset }, Self::Data { section: same, offset: other })
                if section == same =>
            {
                Self::Data { section, offset: offset.hull(other) }
            }
            (Self::Unset, _) | (_, Self::Unset) => Self::Unset,
            _ => Self::Mixed,
        }
    }

    /// Returns the map if both are the start of its entry, or 0, and at least one is an entry.
    fn entry_or_none(self, other: Self) -> Option<usize> {
        let start = Range::exact(0);
        let map_of = |value| match value {
            Self::MaybeEntry { map, .. } => Some(Some(map)),
            Self::Entry { map, offset } if offset == start => Some(Some(map)),
            Self::Number(number) if number == Number::exact(0) => Some(None),
            _ => None,
        };
        let both_are_entries = matches!((self, other), (Self::Entry { .. }, Self::Entry { .. }));
        match (map_of(self)?, map_of(other)?) {
            (Some(one), Some(other)) => (one == other && !both_are_entries).then_some(one),
            (one, other) => one.or(other),
        }
    }

    pub(super) fn moved(self, by: Range) -> Result<Self, String> {
        let exact = || {
            let is_exact = by.min == by.max;
            is_exact.then_some(by.min as i64).ok_or(
                "it moves a stack address by an unknown amount; use a variable or a map for \
                 indexed data",
            )
        };
        let far = || {
            let what = "it moves an address too far; compare the index with the size first, as an \
                        unsigned number";
            what.to_owned()
        };
        Ok(match self {
            Self::Context { offset } => Self::Context { offset: offset.plus(by).ok_or_else(far)? },
            Self::Stack { offset } => {
                Self::Stack { offset: offset.checked_add(exact()?).ok_or_else(far)? }
            }
            Self::Caller { offset } => {
                Self::Caller { offset: offset.checked_add(exact()?).ok_or_else(far)? }
            }
            Self::Entry { map, offset } => {
                Self::Entry { map, offset: offset.plus(by).ok_or_else(far)? }
            }
            Self::Data { section, offset } => {
                Self::Data { section, offset: offset.plus(by).ok_or_else(far)? }
            }
            Self::MaybeEntry { .. } => {
                return Err(
                    "the result of bpf_map_lookup_elem must first be compared with 0".to_owned()
                );
            }
            Self::Mixed => return Err(MIXED.to_owned()),
            Self::Unset
            | Self::Number(_)
            | Self::Map { .. }
            | Self::Function { .. }
            | Self::Thing { .. } => {
                return Err("it computes with an address".to_owned());
            }
        })
    }
}

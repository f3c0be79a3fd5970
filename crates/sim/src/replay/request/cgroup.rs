//! Cgroups with a limit: `64M` for all programs, `cc1=64M` for one (docs/behaviour P.1).
//!
//! A process is in the cgroup of the program that it last executed. If that program has none, it
//! stays in its parent's cgroup, or in the one for all programs. Memory stays charged to the cgroup
//! that was charged for it first. Owns the text form, the assignment of processes, and the results.

use std::fmt;
use std::str::FromStr;

use largefolio_mm::core::groups::GroupLimits;
use largefolio_mm::folio::lruvec::GroupCounters;
use largefolio_mm::memory::Memory;
use largefolio_mm::units::GroupId;
use serde::Serialize;

use crate::replay::request::pattern::Pattern;
use crate::size;

/// Maximum number of cgroups in a cell.
pub const NR_CGROUPS_MAX: usize = 1 << 10;

/// A limit and the programs that it applies to.
///
/// ```
/// use largefolio_sim::replay::Cgroup;
/// let limit: Cgroup = "cc1=64M".parse()?;
/// assert_eq!((limit.bytes(), limit.to_string()), (64 << 20, "cc1=64M".to_owned()));
/// assert!("cc1=".parse::<Cgroup>().is_err());
/// # Ok::<(), largefolio_sim::replay::CgroupError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cgroup {
    /// The programs it applies to; `None` = every program without its own cgroup.
    pattern: Option<Pattern>,
    bytes: u64,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is neither LIMIT nor PROGRAM=LIMIT; expected bytes, such as 64M, or a program with its \
     limit, such as cc1=64M"
)]
pub struct CgroupError(String);

impl FromStr for Cgroup {
    type Err = CgroupError;

    fn from_str(text: &str) -> Result<Self, CgroupError> {
        let error = || CgroupError(text.to_owned());
        let (pattern, limit) = match text.rsplit_once('=') {
            Some((pattern, limit)) => (Some(Pattern::new(pattern).ok_or_else(error)?), limit),
            None => (None, text),
        };
        let bytes = size::limit(limit).ok().filter(|&bytes| bytes > 0).ok_or_else(error)?;
        Ok(Self { pattern, bytes })
    }
}

impl fmt::Display for Cgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(pattern) = &self.pattern {
            write!(f, "{pattern}=")?;
        }
        let (bytes, units) = (self.bytes, [(30, 'G'), (20, 'M'), (10, 'K')]);
        let is_whole = |(shift, _): &(u32, char)| bytes.trailing_zeros() >= *shift;
        match units.into_iter().find(is_whole) {
            Some((shift, unit)) => write!(f, "{}{unit}", bytes >> shift),
            None => write!(f, "{bytes}"),
        }
    }
}

impl Cgroup {
    #[must_use]
    pub const fn for_all(bytes: u64) -> Self {
        Self { pattern: None, bytes }
    }

    pub(crate) const fn is_for_all(&self) -> bool {
        self.pattern.is_none()
    }

    pub(crate) fn fits(&self, path: &str) -> bool {
        self.pattern.as_ref().is_some_and(|pattern| pattern.fits(path))
    }

    pub(crate) fn is_for_same(&self, other: &Self) -> bool {
        self.pattern == other.pattern
    }

    #[must_use]
    pub const fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CgroupOutcome {
    /// The limit's text form.
    pub name: String,
    pub limit_bytes: u64,
    pub usage_bytes: u64,
    pub peak_bytes: u64,
    pub evicted_bytes: u64,
    pub refaulted_bytes: u64,
    /// Charges that had to reclaim first.
    pub nr_limit_hits: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Cgroups {
    ids: Vec<GroupId>,
    base: Vec<GroupBase>,
}

#[derive(Clone, Copy, Debug, Default)]
struct GroupBase {
    counters: GroupCounters,
    nr_limit_hits: u64,
}

impl Cgroups {
    pub(crate) fn new(requested: &[Cgroup], memory: &mut Memory) -> Self {
        let shift = memory.rules().page.shift();
        let mut add = |group: &Cgroup| memory.add_group(GroupLimits::max(group.bytes >> shift));
        let ids: Vec<GroupId> = requested.iter().map(&mut add).collect();
        let base = vec![GroupBase::default(); ids.len()];
        Self { ids, base }
    }

    pub(crate) fn mark(&mut self, memory: &Memory) {
        for (id, base) in self.ids.iter().zip(&mut self.base) {
            let view = memory.group(*id);
            *base = GroupBase { counters: view.vec.counters, nr_limit_hits: view.group.events.max };
        }
    }

    pub(crate) fn at_start(&self, requested: &[Cgroup], path: Option<&str>) -> Option<GroupId> {
        let for_all = || Some(self.ids[requested.iter().rposition(Cgroup::is_for_all)?]);
        self.of(requested, path).or_else(for_all)
    }

    /// Returns the cgroup for a program. Its path can be unknown.
    pub(crate) fn of(&self, requested: &[Cgroup], path: Option<&str>) -> Option<GroupId> {
        let path = path?;
        Some(self.ids[requested.iter().rposition(|group| group.fits(path))?])
    }

    pub(crate) fn outcomes(&self, group: &[Cgroup], memory: &Memory) -> Vec<CgroupOutcome> {
        let shift = memory.rules().page.shift();
        let groups = group.iter().zip(&self.ids).zip(&self.base);
        let outcome = |((group, &id), base): ((&Cgroup, &GroupId), &GroupBase)| {
            let view = memory.group(id);
            let (now, before) = (view.vec.counters, base.counters);
            let refaults = |counters: GroupCounters| counters.refaults.iter().sum::<u64>();
            CgroupOutcome {
                name: group.to_string(),
                limit_bytes: group.bytes,
                usage_bytes: view.vec.nr_charged() << shift,
                peak_bytes: view.vec.peak() << shift,
                evicted_bytes: (now.pgsteal - before.pgsteal) << shift,
                refaulted_bytes: (refaults(now) - refaults(before)) << shift,
                nr_limit_hits: view.group.events.max - base.nr_limit_hits,
            }
        };
        groups.map(outcome).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_read_and_written_the_same() {
        for text in ["64M", "cc1=1536K", "/usr/lib/gcc/*=2G", "a=b=4097"] {
            assert_eq!(text.parse::<Cgroup>().unwrap().to_string(), text);
        }
        for text in ["", "cc1", "=64M", "cc1=", "cc1=0", "cc1=64X", "99999T"] {
            assert!(text.parse::<Cgroup>().is_err(), "{text}");
        }
    }
}

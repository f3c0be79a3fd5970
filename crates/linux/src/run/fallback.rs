//! Why a program, or a part of it, runs as it would without folio.

use std::fmt;
use std::path::PathBuf;

use largefolio_trace::shown;

use crate::alignment::Obstacle;
use crate::geometry::Geometry;
use crate::setting::thp::size_name;
use crate::shell::as_typed;
use crate::warm;

/// The cause. Each includes its remedy if there is one.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fallback {
    OtherRights(PathBuf),
    Sanitizer(PathBuf),
    /// No text of the program and its libraries contains a whole block.
    TinyText(PathBuf),
    Placement {
        file: PathBuf,
        obstacle: Obstacle,
    },
    Cache {
        file: PathBuf,
        refusal: warm::WarmRefusal,
    },
    Unreadable(String),
    NoRemap(String),
    /// The heap's allocator is not glibc's, or is statically linked.
    NotGlibc(String),
    OldGlibc(PathBuf),
    /// The environment already sets the tunable differently.
    Tuned,
    /// The kernel has no anonymous folios of this size. Lists its sizes.
    NoSize(Vec<u64>),
    Setting(String),
    NoRegions(String),
    /// No size is enabled for memory with advice.
    RegionsIdle(String),
}

impl fmt::Display for Fallback {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherRights(file) => write!(
                out,
                "{} runs with its own privileges (set-id or capabilities), so folio leaves it \
                 unchanged",
                shown(file)
            ),
            Self::Sanitizer(file) => write!(
                out,
                "{} is built with a sanitizer, which controls the address space, so folio leaves \
                 it unchanged",
                shown(file)
            ),
            Self::TinyText(program) => write!(
                out,
                "{} and its libraries contain no whole block of {} of text, so no {} entry maps \
                 it. If it executes another program (as env and nice do), name that program; if \
                 it loads its code with dlopen (as java does), warm that library: {}",
                shown(program),
                size_name(Geometry::running().text_block_bytes()),
                if Geometry::running().has_contpte { "contpte" } else { "PMD" },
                as_typed("folio warm LIBRARY"),
            ),
            Self::Placement { file, obstacle } => {
                write!(out, "the text of {} stays in small pages: {obstacle}", shown(file))?;
                match obstacle.remedy(file) {
                    Some(remedy) => write!(out, "; {remedy}"),
                    None => Ok(()),
                }
            }
            Self::Cache { file, refusal } => {
                write!(out, "{}: {refusal}; {}", shown(file), refusal.remedy(file))
            }
            Self::Unreadable(what) => write!(out, "{what}: started unchanged"),
            Self::NoRemap(why) => write!(out, "the text is not moved: {why}"),
            Self::NotGlibc(what) => write!(
                out,
                "--heap works only for glibc's malloc in dynamic programs, but {what}: the heap \
                 is unchanged"
            ),
            Self::OldGlibc(libc) => write!(
                out,
                "--heap needs glibc 2.35 or later, but {} is older: the heap is unchanged",
                shown(libc)
            ),
            Self::Tuned => {
                out.write_str("GLIBC_TUNABLES already sets glibc.malloc.hugetlb: left unchanged")
            }
            Self::NoSize(sizes_kib) => {
                let names: Vec<_> = sizes_kib.iter().map(|kib| size_name(kib << 10)).collect();
                let names = names.join(", ");
                write!(
                    out,
                    "--heap: the kernel has anonymous folios enabled for {names}: the heap is \
                     unchanged"
                )
            }
            Self::Setting(what) => write!(out, "the heap is unchanged: {what}"),
            Self::NoRegions(why) => write!(out, "no region gets advice: {why}"),
            Self::RegionsIdle(why) => {
                write!(out, "the regions get advice, but no large folios: {why}")
            }
        }
    }
}

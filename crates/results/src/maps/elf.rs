//! The segments of files compared with a kernel's folio sizes.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use crate::ExportError;
use crate::cells::Cells;
use largefolio_linux::alignment::{self, AlignRefusal, Ground};
use largefolio_linux::elf::{Class, ElfError, ElfFile, ElfKind, Load};
use largefolio_mm::mapping::disk::Disk;
use largefolio_mm::rules::Rules;
use largefolio_sim::kernel::Kernel;
use largefolio_trace::shown;
use serde::Serialize;

use crate::Remark;

const SCHEMA_VERSION: u32 = 1;
/// The bit of [`Load::prot`] that makes a segment text.
const EXECUTE: u32 = 4;

/// Programs and shared objects on disk: which folio sizes can map which segments.
#[derive(Debug, Serialize)]
pub struct ElfResult {
    schema_version: u32,
    pub(super) tool_version: &'static str,
    pub(super) command_line: Vec<String>,
    pub(super) kernel: String,
    pub(super) page_bytes: u64,
    /// The largest folio of each filesystem with large folios, in bytes.
    pub(super) filesystems: Vec<(String, u64)>,
    pub(super) size_bytes: Vec<u64>,
    pub(super) files: Vec<FileView>,
    /// Named files that could not be shown, with the reason.
    pub(super) failed: Vec<(String, String)>,
    pub(super) summary: ElfCounts,
    #[serde(skip)]
    remarks: Vec<Remark>,
}

/// Numbers of executable segments, and of those that could hold a folio.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[expect(clippy::struct_field_names, reason = "keys of the JSON, where counts begin with nr_")]
pub(super) struct ElfCounts {
    pub(super) nr_files: usize,
    pub(super) nr_exec: usize,
    /// Executable segments of at least 16 KiB, and of at least 64 KiB.
    pub(super) nr_exec_16k: usize,
    pub(super) nr_exec_64k: usize,
    /// Executable segments that 64 KiB folios can map in part, at any load address.
    pub(super) nr_exec_mapped_64k: usize,
}

#[derive(Debug, Serialize)]
pub(super) struct FileView {
    pub(super) path: String,
    pub(super) machine: String,
    pub(super) bits: u32,
    pub(super) is_little_endian: bool,
    /// `fixed`, `program`, `shared`.
    pub(super) kind: &'static str,
    /// The load address is a random multiple of this; `None` if it is fixed.
    pub(super) step_bytes: Option<u64>,
    pub(super) segments: Vec<SegmentView>,
}

#[derive(Debug, Serialize)]
pub(super) struct SegmentView {
    pub(super) nr: usize,
    /// `r-x`.
    pub(super) flags: String,
    pub(super) offset: u64,
    pub(super) vaddr: u64,
    pub(super) file_bytes: u64,
    pub(super) mem_bytes: u64,
    pub(super) align: u64,
    pub(super) shares_page_with: Vec<usize>,
    pub(super) sizes: Vec<SizeView>,
}

#[derive(Debug, Serialize)]
pub(super) struct SizeView {
    pub(super) bytes: u64,
    pub(super) covered_bytes: u64,
    pub(super) filesystems: Vec<String>,
    pub(super) refusal: Option<AlignRefusal>,
    /// The remedy; `None` if nothing helps.
    pub(super) remedy: Option<String>,
}

impl SegmentView {
    pub(super) fn is_text(&self) -> bool {
        self.flags.ends_with('x')
    }
}

impl ElfResult {
    #[must_use]
    pub fn of(kernel: &Kernel, paths: &[PathBuf], command_line: Vec<String>) -> Self {
        let rules = &kernel.rules;
        let page = rules.page.bytes();
        let grounds: Vec<_> =
            rules.filesystems.keys().map(|name| (name.clone(), ground(rules, name))).collect();
        let large = grounds.iter().filter(|(_, ground)| ground.folio_bytes_max > page);
        let filesystems =
            large.map(|(name, ground)| (name.clone(), ground.folio_bytes_max)).collect();
        let mut view = Self {
            schema_version: SCHEMA_VERSION,
            tool_version: env!("CARGO_PKG_VERSION"),
            command_line,
            kernel: kernel.name.clone(),
            page_bytes: page,
            filesystems,
            size_bytes: sizes(rules),
            files: Vec::new(),
            failed: Vec::new(),
            summary: ElfCounts::default(),
            remarks: Vec::new(),
        };
        let judge = Judge { kernel, grounds, sizes: view.size_bytes.clone() };
        for path in paths {
            if path.is_dir() {
                view.walk(&judge, path);
            } else if let Err(error) = view.add(&judge, path) {
                view.remarks.push(Remark::Missing(error.to_string()));
                view.failed.push((path.to_string_lossy().into_owned(), error.to_string()));
            }
        }
        view.summarise();
        view
    }

    /// Adds every ELF file below `folder`, sorted by name. Does not follow links or enter other
    /// filesystems. Reports unreadable files in one line.
    fn walk(&mut self, judge: &Judge, folder: &Path) {
        let device = fs::metadata(folder).map(|metadata| metadata.dev()).ok();
        let mut folders = vec![folder.to_owned()];
        let mut unread: Vec<String> = Vec::new();
        while let Some(folder) = folders.pop() {
            let entries = match fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    unread.push(format!("cannot read {}: {error}", shown(&folder)));
                    continue;
                }
            };
            let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
            paths.sort();
            for path in &paths {
                let Ok(metadata) = fs::symlink_metadata(path) else { continue };
                if metadata.is_file()
                    && let Err(error) = self.add(judge, path)
                    && !matches!(error, ElfError::NotElf(_) | ElfError::NotLoadable(_))
                {
                    unread.push(error.to_string());
                }
            }
            let is_inside = |path: &PathBuf| {
                let metadata = fs::symlink_metadata(path);
                metadata.is_ok_and(|metadata| metadata.is_dir() && Some(metadata.dev()) == device)
            };
            folders.extend(paths.into_iter().rev().filter(is_inside));
        }
        if let Some(first) = unread.first() {
            let (nr, name) = (unread.len(), shown(folder));
            let message = format!("skipped {nr} files below {name}, the first: {first}");
            self.remarks.push(Remark::Warning(message));
        }
    }

    #[must_use]
    pub fn is_whole(&self) -> bool {
        self.failed.is_empty()
    }

    #[must_use]
    pub fn remarks(&self) -> &[Remark] {
        &self.remarks
    }

    fn add(&mut self, judge: &Judge, path: &Path) -> Result<(), ElfError> {
        let elf = ElfFile::read(path)?;
        elf.check(path)?;
        self.files.push(judge.file(path, &elf));
        Ok(())
    }

    fn summarise(&mut self) {
        let segments = self.files.iter().flat_map(|file| &file.segments);
        let text: Vec<_> = segments.filter(|segment| segment.is_text()).collect();
        let of_at_least = |bytes| text.iter().filter(|s| s.file_bytes >= bytes).count();
        let is_mapped = |segment: &&&SegmentView| {
            segment.sizes.iter().any(|size| size.bytes == 64 << 10 && size.covered_bytes > 0)
        };
        self.summary = ElfCounts {
            nr_files: self.files.len(),
            nr_exec: text.len(),
            nr_exec_16k: of_at_least(16 << 10),
            nr_exec_64k: of_at_least(64 << 10),
            nr_exec_mapped_64k: text.iter().filter(is_mapped).count(),
        };
    }

    pub(super) fn records(&self) -> Result<String, ExportError> {
        let mut writer = Cells::text();
        writer.record([
            "path",
            "machine",
            "kind",
            "step_bytes",
            "segment",
            "flags",
            "offset",
            "vaddr",
            "file_bytes",
            "mem_bytes",
            "align",
            "size_bytes",
            "covered_bytes",
            "filesystems",
            "refusal",
        ])?;
        for file in &self.files {
            for segment in &file.segments {
                for size in &segment.sizes {
                    writer.record([
                        file.path.as_str(),
                        &file.machine,
                        file.kind,
                        &file.step_bytes.map_or_else(String::new, |step| step.to_string()),
                        &segment.nr.to_string(),
                        &segment.flags,
                        &segment.offset.to_string(),
                        &segment.vaddr.to_string(),
                        &segment.file_bytes.to_string(),
                        &segment.mem_bytes.to_string(),
                        &segment.align.to_string(),
                        &size.bytes.to_string(),
                        &size.covered_bytes.to_string(),
                        &size.filesystems.join(" "),
                        size.refusal.map_or("", AlignRefusal::name),
                    ])?;
                }
            }
        }
        writer.into_text()
    }
}

/// The kernel and limits that files are compared with.
struct Judge<'a> {
    kernel: &'a Kernel,
    grounds: Vec<(String, Ground)>,
    sizes: Vec<u64>,
}

impl Judge<'_> {
    fn file(&self, path: &Path, elf: &ElfFile) -> FileView {
        let kind = match elf.kind {
            ElfKind::Fixed => "fixed",
            ElfKind::Program => "program",
            ElfKind::Shared | ElfKind::Other => "shared",
        };
        let views = elf.loads.iter().enumerate().map(|(nr, load)| SegmentView {
            nr,
            flags: flags(load.prot),
            offset: load.offset,
            vaddr: load.vaddr,
            file_bytes: load.file_bytes,
            mem_bytes: load.mem_bytes,
            align: load.align,
            shares_page_with: alignment::sharing(&elf.loads, nr, self.kernel.rules.page.bytes()),
            sizes: self.sizes.iter().map(|&size| self.size(elf, nr, size)).collect(),
        });
        FileView {
            path: path.to_string_lossy().into_owned(),
            machine: machine(elf.machine),
            bits: if elf.class == Class::Bits64 { 64 } else { 32 },
            is_little_endian: elf.is_little_endian,
            kind,
            step_bytes: alignment::step_bytes(elf, self.best_ground()),
            segments: views.collect(),
        }
    }

    /// Returns the filesystem that allows most: a refusal there holds everywhere.
    fn best_ground(&self) -> Ground {
        let none = ground(&self.kernel.rules, "");
        let grounds = self.grounds.iter().map(|(_, ground)| *ground);
        grounds.max_by_key(|ground| (ground.folio_bytes_max, ground.places_aligned)).unwrap_or(none)
    }

    fn size(&self, elf: &ElfFile, nr: usize, bytes: u64) -> SizeView {
        let covered = |ground| alignment::covered(elf, nr, ground, bytes);
        let on =
            self.grounds.iter().filter_map(|(name, ground)| Some((name, covered(*ground).ok()?)));
        let (filesystems, covered_bytes): (Vec<_>, Vec<_>) =
            on.map(|(name, covered)| (name.clone(), covered)).unzip();
        let refusal = if filesystems.is_empty() { covered(self.best_ground()).err() } else { None };
        SizeView {
            bytes,
            covered_bytes: covered_bytes.into_iter().max().unwrap_or(0),
            filesystems,
            refusal,
            remedy: refusal.and_then(|refusal| remedy(refusal, &elf.loads[nr], bytes)),
        }
    }
}

fn remedy(refusal: AlignRefusal, segment: &Load, bytes: u64) -> Option<String> {
    match refusal {
        AlignRefusal::Incongruent | AlignRefusal::RandomAddress => {
            Some(format!("re-link with -Wl,-z,max-page-size={bytes}"))
        }
        // A segment of that many bytes, aligned to the size, holds a block.
        AlignRefusal::NoWholeBlock if segment.align < bytes => {
            Some(format!("re-link with -Wl,-z,separate-code,-z,max-page-size={bytes}"))
        }
        AlignRefusal::NoWholeBlock | AlignRefusal::TooSmall | AlignRefusal::Filesystem => None,
    }
}

fn ground(rules: &Rules, filesystem: &str) -> Ground {
    let page = rules.page;
    Ground {
        page_bytes: page.bytes(),
        pmd_bytes: page.bytes() << page.pmd_order().get(),
        folio_bytes_max: page.bytes() << rules.order_range(filesystem).max.get(),
        places_aligned: Disk::of(filesystem).places_aligned,
    }
}

/// Returns the sizes that one TLB entry can hold on some machine (C), limited to the page cache's
/// folios: 16K by the hardware with 4K base pages, a contpte block, a PMD entry.
fn sizes(rules: &Rules) -> Vec<u64> {
    let page = rules.page;
    let max = page.bytes() << rules.max_pagecache_order().get();
    let contpte = page.bytes() << page.contpte_order().get();
    let pmd = page.bytes() << page.pmd_order().get();
    let mut sizes = vec![16 << 10, 64 << 10, contpte, pmd];
    sizes.retain(|&bytes| bytes > page.bytes() && bytes <= max);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

fn flags(prot: u32) -> String {
    let bits = [(1, 'r'), (2, 'w'), (EXECUTE, 'x')];
    bits.map(|(bit, letter)| if prot & bit == 0 { '-' } else { letter }).iter().collect()
}

fn machine(number: u16) -> String {
    const NAMES: [(u16, &str); 9] = [
        (3, "i386"),
        (8, "mips"),
        (20, "powerpc"),
        (21, "powerpc64"),
        (22, "s390x"),
        (40, "arm"),
        (62, "x86-64"),
        (183, "arm64"),
        (243, "riscv"),
    ];
    let known = NAMES.iter().find(|(known, _)| *known == number);
    known.map_or_else(|| format!("machine {number}"), |(_, name)| (*name).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_those_of_one_tlb_entry_on_some_machine() {
        let of = |kernel: &str| sizes(&Kernel::parse(kernel).unwrap().rules);
        assert_eq!(of("7.2"), [16 << 10, 64 << 10, 2 << 20]);
        assert_eq!(of("7.2+page=16K"), [64 << 10, 2 << 20, 32 << 20]);
        assert_eq!(of("7.2+page=64K"), [2 << 20]);
    }

    #[test]
    fn a_kernel_decides_the_largest_folio_of_a_filesystem() {
        let of =
            |kernel: &str, filesystem| ground(&Kernel::parse(kernel).unwrap().rules, filesystem);
        assert_eq!(of("7.2", "xfs").folio_bytes_max, 2 << 20);
        assert!(of("7.2", "btrfs").folio_bytes_max < 2 << 20);
        assert_eq!(
            [of("6.12", "ext4"), of("6.16", "ext4")].map(|on| on.folio_bytes_max),
            [4 << 10, 2 << 20]
        );
        assert!(of("7.2", "xfs").places_aligned && !of("7.2", "vfat").places_aligned);
    }
}

//! Where a file is stored: the filesystem that holds its pages, its block size and its device.
//!
//! An overlay shows files of other filesystems, whose page cache holds them. Inside a container,
//! the layers' paths lead nowhere; then a mount of the same size shows the filesystem. Owns the
//! names of the forms in which a filesystem treats its page cache differently (`ext4-journal`).
//! Does not own access to files: everything is read through [`Ground`].

mod extents;

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use largefolio_trace::disk::open_regular;
use rustix::fs::{AtFlags, CWD, IFlags, StatxAttributes, StatxFlags};

use crate::filesystem;
use crate::proc::{block, host};
use crate::system::mounts::{self, Mounted};

/// Overlays of overlays that are followed.
const DEPTH_MAX: u32 = 4;
const OVERLAY: &str = "overlay";
/// The upper layer of an overlay, whose files are written in place.
const UPPER: &str = "overlay upper";

/// Where a file is stored, as in [`largefolio_trace::FileInfo`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Store {
    pub(super) filesystem: String,
    pub(super) through: String,
    pub(super) block_bytes: u64,
    pub(super) disk: String,
}

/// What one call shows of a file and of its filesystem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) magic: i64,
    pub(super) device: (u32, u32),
    pub(super) block_bytes: u64,
    /// The filesystem's size in blocks and inodes.
    pub(super) totals: [u64; 2],
    pub(super) is_file: bool,
}

/// The system as a file's path shows it.
pub(super) trait Ground {
    /// `None` if nothing is there.
    fn place(&self, path: &Path) -> Option<Place>;

    /// Reads `/proc/self/mountinfo`; empty if it cannot be read.
    fn mounts(&self) -> Vec<u8>;

    /// Returns the block device's name, and its disk's if it is a partition.
    fn block_device(&self, device: (u32, u32)) -> Option<(String, String)>;

    /// Returns the name that `/dev/NAME` leads to.
    fn device_name(&self, source: &Path) -> Option<String>;

    /// Reads the options of the ext4 filesystem on a block device, also those in effect by default.
    fn ext4_options(&self, device: &str) -> Option<String>;

    /// Whether the file's own attributes make ext4 keep its data in the journal.
    fn is_journalled(&self, path: &Path) -> bool;

    /// Whether the file is stored in compressed form.
    fn is_compressed(&self, path: &Path) -> bool;
}

impl Store {
    /// Returns where the file at `path` is stored; `None` if nothing is there or its filesystem
    /// has no page cache.
    pub(super) fn of(ground: &dyn Ground, path: &Path) -> Option<Self> {
        Self::below(ground, path, DEPTH_MAX)
    }

    fn below(ground: &dyn Ground, path: &Path, depth: u32) -> Option<Self> {
        let place = ground.place(path)?;
        if filesystem::is_without_files(place.magic) {
            return None;
        }
        let name = filesystem::name(place.magic);
        if name == filesystem::OVERLAY {
            let found = (depth > 0).then(|| Self::of_layer(ground, path, place, depth)).flatten();
            let unknown = Self { filesystem: name, ..Self::default() };
            return Some(found.unwrap_or(unknown));
        }
        let disk = disk(ground, path, &name, place.device);
        let is_journalled = || {
            let device = ground.block_device(place.device);
            let options = device.and_then(|(device, _)| ground.ext4_options(&device));
            let in_journal = |text: &str| text.split([',', '\n']).any(|o| o == "data=journal");
            let of_mount = || mounts::of_path(&ground.mounts(), path).map(|mount| mount.options);
            options.or_else(of_mount).is_some_and(|text| in_journal(&text))
                || ground.is_journalled(path)
        };
        let filesystem = match name.as_str() {
            "ext4" if is_journalled() => "ext4-journal".to_owned(),
            "btrfs" | "erofs" if ground.is_compressed(path) => format!("{name}-compressed"),
            _ => name,
        };
        Some(Self { filesystem, block_bytes: place.block_bytes, disk, ..Self::default() })
    }

    /// Returns the store of an overlay's file: of the uppermost layer that has it.
    fn of_layer(ground: &dyn Ground, path: &Path, place: Place, depth: u32) -> Option<Self> {
        let mountinfo = ground.mounts();
        let mount = mounts::of_path(&mountinfo, path).filter(|m| m.filesystem == OVERLAY)?;
        let inside = path.strip_prefix(&mount.point).ok()?;
        let inside = mount.root.strip_prefix("/").unwrap_or(&mount.root).join(inside);
        let layers = mounts::layers(&mount.options);
        let has_file = |file: &PathBuf| ground.place(file).is_some_and(|found| found.is_file);
        let found = layers.iter().map(|layer| layer.path.join(&inside)).enumerate();
        let found = found.into_iter().find(|(_, file)| has_file(file));
        let is_upper = found.as_ref().is_some_and(|(nr, _)| layers[*nr].is_upper);
        let store = if let Some((_, file)) = found {
            Self::below(ground, &file, depth - 1)
        } else {
            // Only an upper layer's size is an overlay's, but layers usually share a filesystem.
            let totals = |mount: &Mounted| Some(ground.place(&mount.point)?.totals);
            let is_it = |mount: &Mounted| {
                mounts::is_of_disk(&mount.filesystem) && totals(mount) == Some(place.totals)
            };
            let same = mounts::all(&mountinfo).into_iter().find(is_it)?;
            Self::below(ground, &same.point, 0)
        };
        let known = store.filter(|store| store.filesystem != filesystem::OVERLAY)?;
        let through = if is_upper { UPPER } else { OVERLAY };
        Some(Self { through: through.to_owned(), ..known })
    }
}

/// Returns the device whose readahead settings apply; empty if unknown. A btrfs has settings of its
/// own and is named by a disk.
fn disk(ground: &dyn Ground, path: &Path, filesystem: &str, device: (u32, u32)) -> String {
    let name = if filesystem == "btrfs" {
        let mount = mounts::of_path(&ground.mounts(), path);
        let device = mount.and_then(|mount| ground.device_name(&mount.source));
        device.map(|device| format!("{}{device}", block::OF_BTRFS))
    } else {
        ground.block_device(device).map(|(_, disk)| disk)
    };
    name.filter(|name| block::is_name(name)).unwrap_or_default()
}

/// This machine.
pub(super) struct Here;

impl Ground for Here {
    fn place(&self, path: &Path) -> Option<Place> {
        let (metadata, of_all) = (path.metadata().ok()?, rustix::fs::statfs(path).ok()?);
        let device = (libc::major(metadata.dev()), libc::minor(metadata.dev()));
        Some(Place {
            magic: of_all.f_type,
            device,
            block_bytes: u64::try_from(of_all.f_bsize).unwrap_or(0),
            totals: [of_all.f_blocks, of_all.f_files],
            is_file: metadata.is_file(),
        })
    }

    fn mounts(&self) -> Vec<u8> {
        crate::system::read(Path::new(host::MOUNTS)).unwrap_or_default()
    }

    fn block_device(&self, (major, minor): (u32, u32)) -> Option<(String, String)> {
        let folder = fs::canonicalize(block::folder_of((major, minor))).ok()?;
        let name = |folder: &Path| folder.file_name()?.to_str().map(str::to_owned);
        let own = name(&folder)?;
        let is_part = folder.join("partition").exists();
        let disk = if is_part { name(folder.parent()?)? } else { own.clone() };
        Some((own, disk))
    }

    fn device_name(&self, source: &Path) -> Option<String> {
        fs::canonicalize(source).ok()?.file_name()?.to_str().map(str::to_owned)
    }

    fn ext4_options(&self, device: &str) -> Option<String> {
        let text = crate::system::read(&block::ext4_options(device));
        String::from_utf8(text.ok()?).ok()
    }

    fn is_journalled(&self, path: &Path) -> bool {
        let flags = open_regular(path).ok().and_then(|file| rustix::fs::ioctl_getflags(file).ok());
        flags.is_some_and(|flags| flags.contains(IFlags::JOURNALING))
    }

    fn is_compressed(&self, path: &Path) -> bool {
        let of_file = rustix::fs::statx(CWD, path, AtFlags::empty(), StatxFlags::BASIC_STATS);
        let is_marked = of_file
            .is_ok_and(|of_file| of_file.stx_attributes.contains(StatxAttributes::COMPRESSED));
        is_marked || open_regular(path).is_ok_and(|file| extents::has_encoded(&file))
    }
}

#[cfg(test)]
mod tests;

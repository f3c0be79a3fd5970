//! Mounted filesystems, from `/proc/PID/mountinfo`.
//!
//! Answers without touching the file: a `stat` on a FUSE or network filesystem waits for its
//! server, and a census of the system must not hang because one user's server does.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

/// Returns the filesystem's name. btrfs files have their subvolume's device number, which no mount
/// has; for them, the mount of `path` decides.
pub(crate) fn filesystem(mountinfo: &[u8], device: (u32, u32), path: &Path) -> Option<String> {
    let mounts = || mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse);
    let name = |mount: Mount<'_>| mount.filesystem.to_owned();
    if let Some(mount) = mounts().find(|mount| mount.device == device) {
        return Some(name(mount));
    }
    let path = path.as_os_str().as_bytes();
    let below = mounts().filter(|mount| path.starts_with(&unescaped(mount.point)));
    below.max_by_key(|mount| mount.point.len()).filter(|m| m.filesystem == "btrfs").map(name)
}

pub(crate) fn devices(mountinfo: &[u8]) -> Vec<(u32, u32)> {
    mountinfo
        .split(|byte| *byte == b'\n')
        .filter_map(Mount::parse)
        .map(|mount| mount.device)
        .collect()
}

/// Returns a mount point that shows the whole filesystem.
pub(crate) fn point(mountinfo: &[u8], device: (u32, u32)) -> Option<PathBuf> {
    let mut mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse);
    let mount = mounts.find(|mount| mount.device == device && mount.root == b"/")?;
    Some(place(mount.point))
}

/// Returns the mount point of a tmpfs and its `huge=`, `never` by default.
pub(crate) fn tmpfs(mountinfo: &[u8], device: (u32, u32)) -> Option<(PathBuf, String)> {
    let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse);
    let mount = mounts.filter(|mount| mount.filesystem == "tmpfs").find(|m| m.device == device)?;
    let options = std::str::from_utf8(mount.options).unwrap_or_default();
    let huge = options.split(',').find_map(|option| option.strip_prefix("huge="));
    Some((place(mount.point), huge.unwrap_or("never").to_owned()))
}

/// Returns the mounted tmpfs with huge folios, and their `huge=`.
pub(crate) fn huge_tmpfs(mountinfo: &[u8]) -> Vec<(PathBuf, String)> {
    let mounts = all(mountinfo).into_iter().filter(|mount| mount.filesystem == "tmpfs");
    let huge = mounts.filter_map(|mount| {
        let huge = mount.options.split(',').find_map(|option| option.strip_prefix("huge="))?;
        Some((mount.point, huge.to_owned())).filter(|(_, huge)| huge != "never")
    });
    huge.collect()
}

pub(crate) fn is_of_disk(filesystem: &str) -> bool {
    ["ext4", "xfs", "btrfs", "f2fs", "bcachefs"].contains(&filesystem)
}

/// A mount, with decoded paths.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mounted {
    pub(crate) device: (u32, u32),
    /// The mounted directory of the filesystem.
    pub(crate) root: PathBuf,
    pub(crate) point: PathBuf,
    pub(crate) filesystem: String,
    pub(crate) source: PathBuf,
    /// The filesystem's options, as the file shows them.
    pub(crate) options: String,
}

pub(crate) fn all(mountinfo: &[u8]) -> Vec<Mounted> {
    let mounts = mountinfo.split(|byte| *byte == b'\n').filter_map(Mount::parse);
    let decoded = mounts.map(|mount| Mounted {
        device: mount.device,
        root: place(mount.root),
        point: place(mount.point),
        filesystem: mount.filesystem.to_owned(),
        source: place(mount.source),
        options: String::from_utf8_lossy(mount.options).into_owned(),
    });
    decoded.collect()
}

/// Returns the mount that `path` is on: the last one on the longest path above it.
pub(crate) fn of_path(mountinfo: &[u8], path: &Path) -> Option<Mounted> {
    let above = all(mountinfo).into_iter().filter(|mount| path.starts_with(&mount.point));
    above.max_by_key(|mount| mount.point.as_os_str().len())
}

/// A directory of an overlay.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layer {
    pub(crate) path: PathBuf,
    pub(crate) is_upper: bool,
}

/// Returns the layers of an overlay, uppermost first, from its options. A colon in a path follows a
/// backslash.
pub(crate) fn layers(options: &str) -> Vec<Layer> {
    let of = |keys: &'static [&'static str]| {
        let pairs = options.split(',').filter_map(|option| option.split_once('='));
        pairs.filter(|(key, _)| keys.contains(key)).map(|(_, value)| unescaped(value.as_bytes()))
    };
    let layer = |is_upper: bool| {
        move |path: Vec<u8>| Layer { path: PathBuf::from(OsString::from_vec(path)), is_upper }
    };
    let mut layers: Vec<Layer> = of(&["upperdir"]).map(layer(true)).collect();
    for list in of(&["lowerdir"]) {
        let mut parts = vec![Vec::new()];
        let mut bytes = list.into_iter().peekable();
        while let Some(byte) = bytes.next() {
            let is_escape = byte == b'\\' && bytes.peek() == Some(&b':');
            let byte = if is_escape { bytes.next().unwrap_or(byte) } else { byte };
            match parts.last_mut() {
                Some(part) if byte != b':' || is_escape => part.push(byte),
                _ => parts.push(Vec::new()),
            }
        }
        layers.extend(parts.into_iter().filter(|part| !part.is_empty()).map(layer(false)));
    }
    layers.extend(of(&["lowerdir+", "datadir+"]).map(layer(false)));
    layers
}

fn place(point: &[u8]) -> PathBuf {
    PathBuf::from(OsString::from_vec(unescaped(point)))
}

/// Decodes a word: space, tab, newline and backslash are `\\` and three octal digits.
fn unescaped(word: &[u8]) -> Vec<u8> {
    let mut pieces = word.split(|byte| *byte == b'\\');
    let mut name = pieces.next().unwrap_or_default().to_vec();
    for piece in pieces {
        let number = piece.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        if let Some(byte) = number.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            name.push(byte);
            name.extend_from_slice(&piece[3..]);
        } else {
            name.push(b'\\');
            name.extend_from_slice(piece);
        }
    }
    name
}

/// Whether file operations on this filesystem involve only this kernel.
pub(crate) fn is_local(filesystem: &str) -> bool {
    const LOCAL: [&str; 12] = [
        "ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "bcachefs", "tmpfs", "ramfs", "squashfs",
        "erofs", "overlay",
    ];
    LOCAL.contains(&filesystem)
}

struct Mount<'a> {
    device: (u32, u32),
    /// The mounted directory of the filesystem.
    root: &'a [u8],
    point: &'a [u8],
    filesystem: &'a str,
    source: &'a [u8],
    /// The filesystem's options, not the mount's.
    options: &'a [u8],
}

impl<'a> Mount<'a> {
    /// Parses `ID PARENT MAJOR:MINOR ROOT POINT OPTIONS [FIELD..] - FILESYSTEM SOURCE OPTIONS`.
    fn parse(line: &'a [u8]) -> Option<Self> {
        let mut fields = line.split(|byte| *byte == b' ');
        let (major, minor) = std::str::from_utf8(fields.nth(2)?).ok()?.split_once(':')?;
        let device = (major.parse().ok()?, minor.parse().ok()?);
        let (root, point) = (fields.next()?, fields.next()?);
        fields.find(|word| *word == b"-")?;
        let filesystem = std::str::from_utf8(fields.next()?).ok()?;
        let (source, options) =
            (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        Some(Self { device, root, point, filesystem, source, options })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_device_decides_and_for_btrfs_the_path() {
        let text = b"22 1 254:0 / / rw - ext4 /dev/vda rw\n\
            30 22 0:44 / /net rw,relatime shared:5 master:1 - nfs4 server:/x rw\n\
            31 22 0:50 / /data rw - btrfs /dev/vdb rw\n\
            32 22 0:51 / /my\\040data\\134x\\9 rw - tmpfs none rw\n\
            rubbish 1:2\n";
        let of = |device, path: &str| filesystem(text, device, Path::new(path));
        assert_eq!(of((254, 0), "/net/x").as_deref(), Some("ext4"));
        assert_eq!(of((0, 44), "/x").as_deref(), Some("nfs4"));
        assert_eq!(of((0, 99), "/data/sub/x").as_deref(), Some("btrfs"));
        assert_eq!(of((0, 1), "/memfd:x"), None);
        assert_eq!(point(text, (0, 50)), Some(PathBuf::from("/data")));
        assert_eq!(point(text, (0, 51)), Some(PathBuf::from("/my data\\x\\9")));
        assert_eq!(point(text, (0, 52)), None);
        assert_eq!(devices(text), [(254, 0), (0, 44), (0, 50), (0, 51)]);
        assert!(is_local("xfs") && !is_local("nfs4") && !is_local("fuse.sshfs"));
    }
}

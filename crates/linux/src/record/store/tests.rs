use std::collections::BTreeMap;

use super::*;

const EXT4: i64 = 0xef53;
const XFS: i64 = 0x5846_5342;
const BTRFS: i64 = 0x9123_683e;
const OVERLAYFS: i64 = 0x794c_7630;
const PROC: i64 = 0x9fa0;

#[derive(Default)]
struct Fixture {
    places: BTreeMap<PathBuf, Place>,
    mounts: String,
    options: BTreeMap<String, String>,
    journalled: Vec<PathBuf>,
    compressed: Vec<PathBuf>,
}

impl Fixture {
    fn with(mut self, path: &str, magic: i64, device: (u32, u32)) -> Self {
        let totals = [u64::from(device.0), u64::from(device.1)];
        let block_bytes = if magic == XFS { 16384 } else { 4096 };
        let place = Place { magic, device, block_bytes, totals, is_file: true };
        self.places.insert(path.into(), place);
        self
    }

    fn mounted(mut self, line: &str) -> Self {
        self.mounts = format!("{}{line}\n", self.mounts);
        self
    }

    fn store(&self, path: &str) -> Store {
        Store::of(self, Path::new(path)).unwrap()
    }
}

impl Ground for Fixture {
    fn place(&self, path: &Path) -> Option<Place> {
        self.places.get(path).copied()
    }

    fn mounts(&self) -> Vec<u8> {
        self.mounts.clone().into_bytes()
    }

    fn block_device(&self, (major, minor): (u32, u32)) -> Option<(String, String)> {
        (major > 0).then(|| (format!("vda{minor}"), "vda".to_owned()))
    }

    fn device_name(&self, source: &Path) -> Option<String> {
        source.file_name()?.to_str().map(str::to_owned)
    }

    fn ext4_options(&self, device: &str) -> Option<String> {
        self.options.get(device).cloned()
    }

    fn is_journalled(&self, path: &Path) -> bool {
        self.journalled.iter().any(|known| known == path)
    }

    fn is_compressed(&self, path: &Path) -> bool {
        self.compressed.iter().any(|known| known == path)
    }
}

fn on(filesystem: &str, block_bytes: u64, disk: &str) -> Store {
    let (filesystem, disk) = (filesystem.to_owned(), disk.to_owned());
    Store { filesystem, block_bytes, disk, ..Store::default() }
}

#[test]
fn a_file_has_its_filesystem_blocks_and_device() {
    let system = Fixture::default()
        .with("/a", EXT4, (254, 1))
        .with("/data/b", XFS, (254, 2))
        .with("/pool/c", BTRFS, (0, 44))
        .with("/proc/d", PROC, (0, 3))
        .mounted("30 1 0:40 / /pool rw - btrfs /dev/mapper/vg-lv rw");
    assert_eq!(system.store("/a"), on("ext4", 4096, "vda"));
    assert_eq!(system.store("/data/b"), on("xfs", 16384, "vda"));
    assert_eq!(system.store("/pool/c"), on("btrfs", 4096, "btrfs-vg-lv"));
    assert_eq!(Store::of(&system, Path::new("/proc/d")), None);
    assert_eq!(Store::of(&system, Path::new("/gone")), None);
}

#[test]
fn a_name_that_no_edit_can_hold_is_left_out() {
    let system = Fixture::default()
        .with("/pool/c", BTRFS, (0, 44))
        .mounted("30 1 0:40 / /pool rw - btrfs /dev/a+b=c rw");
    assert_eq!(system.store("/pool/c"), on("btrfs", 4096, ""));
}

#[test]
fn ext4_with_data_in_the_journal_is_a_form_of_its_own() {
    let plain = || Fixture::default().with("/a", EXT4, (254, 1)).with("/b", EXT4, (254, 1));
    let of = |system: &Fixture, path| system.store(path).filesystem;
    let mut by_mount = plain().mounted("20 1 254:1 / / rw - ext4 /dev/vda rw,data=journal");
    assert_eq!(of(&by_mount, "/a"), "ext4-journal");
    // The full list shows options that are in effect by default.
    by_mount.options.insert("vda1".to_owned(), "rw\ndata=ordered\n".to_owned());
    assert_eq!(of(&by_mount, "/a"), "ext4");
    let mut by_default = plain().mounted("20 1 254:1 / / rw - ext4 /dev/vda rw");
    assert_eq!(of(&by_default, "/a"), "ext4");
    by_default.options.insert("vda1".to_owned(), "rw\ndata=journal\n".to_owned());
    assert_eq!(of(&by_default, "/a"), "ext4-journal");
    let by_file = Fixture { journalled: vec!["/a".into()], ..plain() };
    assert_eq!([of(&by_file, "/a"), of(&by_file, "/b")], ["ext4-journal", "ext4"]);
}

#[test]
fn a_compressed_file_is_a_form_of_its_own() {
    const EROFS: i64 = 0xe0f5_e1e2;
    let plain = || {
        let files = Fixture::default().with("/b", BTRFS, (0, 44)).with("/e", EROFS, (7, 0));
        files.with("/x", XFS, (254, 2))
    };
    let of = |system: &Fixture| ["/b", "/e", "/x"].map(|path| system.store(path).filesystem);
    assert_eq!(of(&plain()), ["btrfs", "erofs", "xfs"]);
    let compressed = ["/b", "/e", "/x"].map(PathBuf::from).to_vec();
    let compressed = Fixture { compressed, ..plain() };
    assert_eq!(of(&compressed), ["btrfs-compressed", "erofs-compressed", "xfs"]);
}

fn container(options: &str) -> Fixture {
    Fixture::default()
        .with("/m/bin/p", OVERLAYFS, (0, 50))
        .mounted("20 1 254:1 / / rw - ext4 /dev/vda rw")
        .mounted(&format!("30 20 0:50 / /m rw - overlay overlay rw,{options}"))
}

#[test]
fn an_overlays_file_is_on_the_uppermost_layer_that_has_it() {
    let system = container("lowerdir=/l1:/l2,upperdir=/u,workdir=/w")
        .with("/l1/bin/q", XFS, (254, 2))
        .with("/l2/bin/p", EXT4, (254, 1));
    let store = Store { through: "overlay".to_owned(), ..on("ext4", 4096, "vda") };
    assert_eq!(system.store("/m/bin/p"), store);
    let copied_up = system.with("/u/bin/p", XFS, (254, 2)).store("/m/bin/p");
    assert_eq!(
        (copied_up.filesystem.as_str(), copied_up.through.as_str()),
        ("xfs", "overlay upper")
    );
}

#[test]
fn layers_are_read_however_they_are_written() {
    for (options, layers) in [
        ("lowerdir=/a\\134:b:/c\\040d\\054e", vec!["/a:b", "/c d,e"]),
        ("upperdir=/u,lowerdir+=/a,lowerdir+=/b:c", vec!["/u", "/a", "/b:c"]),
        ("lowerdir=/a::/b", vec!["/a", "/b"]),
        ("rw,lowerdir=", vec![]),
    ] {
        let expected: Vec<PathBuf> = layers.into_iter().map(PathBuf::from).collect();
        let found = mounts::layers(options);
        let paths: Vec<PathBuf> = found.iter().map(|layer| layer.path.clone()).collect();
        assert_eq!(paths, expected, "{options}");
        assert!(found.iter().all(|layer| layer.is_upper == (layer.path == Path::new("/u"))));
    }
}

/// Inside a container, the layers' paths lead nowhere. A bind mount of the same filesystem shows it.
#[test]
fn without_its_layers_an_overlay_is_known_by_its_size_or_not_at_all() {
    let options = "lowerdir=/var/lib/docker/a,upperdir=/var/lib/docker/b";
    let unknown = on("overlayfs", 0, "");
    assert_eq!(container(options).store("/m/bin/p"), unknown);
    let hosts = "40 30 254:9 /var/lib/docker/hosts /etc/hosts rw - ext4 /dev/vdb rw";
    let mut bound = container(options).with("/etc/hosts", EXT4, (254, 9)).mounted(hosts);
    assert_eq!(bound.store("/m/bin/p"), unknown, "another filesystem");
    let totals = bound.places[Path::new("/m/bin/p")].totals;
    bound.places.get_mut(Path::new("/etc/hosts")).unwrap().totals = totals;
    let store = Store { through: "overlay".to_owned(), ..on("ext4", 4096, "vda") };
    assert_eq!(bound.store("/m/bin/p"), store);
}

#[test]
fn overlays_of_overlays_are_followed_to_a_limit() {
    let options = |nr: usize| format!("lowerdir=/o{}", nr + 1);
    let mut system = Fixture::default();
    for nr in 0..8 {
        let line = format!("30 1 0:{nr} / /o{nr} rw - overlay overlay rw,{}", options(nr));
        system = system.with(&format!("/o{nr}/p"), OVERLAYFS, (0, 50)).mounted(&line);
    }
    assert_eq!(system.store("/o0/p").filesystem, "overlayfs", "no end");
    let system = system.with("/o2/p", XFS, (254, 2));
    let store = Store { through: "overlay".to_owned(), ..on("xfs", 16384, "vda") };
    assert_eq!(system.store("/o0/p"), store);
}

#[test]
fn a_bind_mount_of_part_of_an_overlay_is_below_its_root() {
    let system = Fixture::default()
        .with("/srv/p", OVERLAYFS, (0, 50))
        .with("/l1/bin/p", EXT4, (254, 1))
        .mounted("31 1 0:50 /bin /srv rw - overlay overlay rw,lowerdir=/l1");
    assert_eq!(system.store("/srv/p").filesystem, "ext4");
}

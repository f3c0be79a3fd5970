//! An attacker in a directory, which swaps its names continuously.
//!
//! ```text
//!   names/target   a regular file | a link to the victim | a FIFO | a link to a device
//!   names/spare    another of them; renameat2(RENAME_EXCHANGE) swaps the two, 40 times per pair
//!   victim         outside, not to be written to
//!   device         outside, not to be opened: inotify tells
//! ```

#![expect(clippy::expect_used, reason = "a test that cannot make its attacker ends")]
#![expect(clippy::missing_panics_doc, reason = "the same")]

use std::fs::{self, File};
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{OpenOptionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use rustix::fs::inotify::{self, CreateFlags, WatchFlags};
use rustix::fs::{CWD, FileType, Mode, OFlags, RenameFlags, makedev};
use tempfile::TempDir;

const SECRET: &[u8] = b"not to be changed\n";
const NR_EXCHANGES: u64 = 40;
const NR_KINDS: u64 = 4;

#[derive(Debug)]
pub struct Swap {
    dir: TempDir,
    is_over: Arc<AtomicBool>,
    nr_swaps: Arc<AtomicU64>,
    thread: Option<JoinHandle<()>>,
    opened: Option<OwnedFd>,
}

impl Swap {
    #[must_use]
    pub fn begin(sample: &[u8]) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        fs::create_dir(dir.path().join("names")).expect("a directory in it");
        fs::write(dir.path().join("victim"), SECRET).expect("a file in it");
        fs::write(dir.path().join("sample"), sample).expect("another");
        let device = dir.path().join("device");
        let (kind, mode) = (FileType::CharacterDevice, Mode::RUSR | Mode::WUSR);
        // The driver of /dev/full: opening it does nothing.
        let created = rustix::fs::mknodat(CWD, &device, kind, mode, makedev(1, 7));
        let opened = created.ok().map(|()| watched(&device));
        let is_over = Arc::new(AtomicBool::new(false));
        let nr_swaps = Arc::new(AtomicU64::new(0));
        let attacker = Attacker {
            at: dir.path().to_owned(),
            random: 0x9e37_79b9_7f4a_7c15,
            fifos: Vec::new(),
            earlier: Vec::new(),
        };
        attacker.put("names/target", 0);
        let thread = std::thread::spawn({
            let (is_over, nr_swaps) = (is_over.clone(), nr_swaps.clone());
            move || attacker.run(&is_over, &nr_swaps)
        });
        Self { dir, is_over, nr_swaps, thread: Some(thread), opened }
    }

    #[must_use]
    pub fn target(&self) -> PathBuf {
        self.dir.path().join("names/target")
    }

    #[must_use]
    pub fn has_device(&self) -> bool {
        self.opened.is_some()
    }

    #[must_use]
    pub fn nr_swaps(&self) -> u64 {
        self.nr_swaps.load(Ordering::Relaxed)
    }

    #[must_use]
    pub fn harm(&self) -> Option<String> {
        let victim = fs::read(self.dir.path().join("victim")).expect("the victim");
        if victim != SECRET {
            return Some(format!(
                "the victim was written to: {}",
                String::from_utf8_lossy(&victim)
            ));
        }
        let mut events = [0; 4096];
        let is_opened =
            self.opened.as_ref().is_some_and(|fd| rustix::io::read(fd, &mut events).is_ok());
        is_opened.then(|| "the device was opened".to_owned())
    }
}

impl Drop for Swap {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn watched(device: &Path) -> OwnedFd {
    let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC).expect("inotify");
    inotify::add_watch(&fd, device, WatchFlags::OPEN).expect("a watch");
    drop(File::open(device));
    let mut events = [0; 4096];
    let event = rustix::io::read(&fd, &mut events);
    assert!(event.is_ok() || File::open(device).is_err(), "inotify does not see that it is opened");
    let _ = rustix::io::read(&fd, &mut events);
    fd
}

struct Attacker {
    at: PathBuf,
    random: u64,
    fifos: Vec<File>,
    /// Read ends of the previous round: one of its names may just have been looked up.
    earlier: Vec<File>,
}

impl Attacker {
    fn run(mut self, is_over: &AtomicBool, nr_swaps: &AtomicU64) {
        while !is_over.load(Ordering::Relaxed) {
            let first = self.next() % NR_KINDS;
            let other = (first + 1 + self.next() % (NR_KINDS - 1)) % NR_KINDS;
            self.earlier = std::mem::take(&mut self.fifos);
            for (name, kind) in [("names/next", first), ("names/spare", other)] {
                if let Some(fifo) = self.put(name, kind) {
                    self.fifos.push(fifo);
                }
            }
            let [next, spare, target] =
                ["next", "spare", "target"].map(|name| self.at.join("names").join(name));
            fs::rename(next, &target).expect("to take the name");
            for _ in 0..NR_EXCHANGES {
                let flags = RenameFlags::EXCHANGE;
                // A name can be missing briefly while a result replaces it.
                let _ = rustix::fs::renameat_with(CWD, &target, CWD, &spare, flags);
                nr_swaps.fetch_add(1, Ordering::Relaxed);
                for _ in 0..self.next() % 2000 {
                    std::hint::spin_loop();
                }
                self.drain();
            }
        }
    }

    fn put(&self, name: &str, kind: u64) -> Option<File> {
        let path = self.at.join(name);
        let _ = fs::remove_file(&path);
        match kind {
            0 => drop(fs::copy(self.at.join("sample"), &path).expect("a file")),
            1 => symlink(self.at.join("victim"), &path).expect("a link"),
            2 => symlink(self.at.join("device"), &path).expect("another link"),
            _ => {
                let mode = Mode::RUSR | Mode::WUSR;
                rustix::fs::mknodat(CWD, &path, FileType::Fifo, mode, 0).expect("a FIFO");
                let flags = OFlags::NONBLOCK.bits().cast_signed();
                let reader = File::options().read(true).custom_flags(flags).open(&path);
                return Some(reader.expect("its read end"));
            }
        }
        None
    }

    fn drain(&mut self) {
        for fifo in &mut self.fifos {
            let mut bytes = vec![0; 1 << 16];
            while fifo.read(&mut bytes).is_ok_and(|taken| taken > 0) {}
        }
    }

    /// xorshift64: the same names in the same order in each run.
    fn next(&mut self) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random
    }
}

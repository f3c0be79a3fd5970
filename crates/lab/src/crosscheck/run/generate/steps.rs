//! The steps of random scripts. Those about one feature are in [`special`].

mod special;

use super::{Area, Generator, Ground, Open, Source};

const MEMORY_ADVICE: [&str; 12] = [
    "hugepage",
    "hugepage",
    "hugepage",
    "nohugepage",
    "dontneed",
    "dontneed",
    "free",
    "cold",
    "pageout",
    "populate_read",
    "populate_write",
    "collapse",
];
const FILE_ADVICE: [&str; 9] = [
    "random",
    "sequential",
    "normal",
    "willneed",
    "hugepage",
    "dontneed",
    "cold",
    "pageout",
    "populate_read",
];
const READS: [&str; 4] = ["pread", "fread", "readv", "preadv"];
const WRITES: [&str; 4] = ["pwrite", "fwrite", "writev", "pwritev"];

impl Generator {
    /// The first steps: a file that is open, and an area.
    fn first(&mut self) {
        if self.below(3) > 0 {
            self.open_old();
        }
        self.map_anonymous();
    }

    fn step(&mut self) {
        match self.below(40) {
            0..=2 => self.map_anonymous(),
            3..=5 => self.map_file(),
            6..=13 => self.touch(),
            14..=16 => self.advise(),
            17 => self.protect(),
            18 => self.remap(),
            19 => self.unmap(),
            20..=21 => self.block("fork"),
            22 => self.hold(),
            23 => self.block("thread"),
            24..=26 => self.read_call(),
            27..=29 => self.write_call(),
            30 => self.move_call(),
            31..=32 => self.change_file(),
            33 => self.open_old(),
            34 => self.open_new(),
            35 => self.memory_file(),
            36 => self.file_advice(),
            37 => self.lock(),
            38 => self.other_memory(),
            _ => self.other(),
        }
    }

    fn add(&mut self, area: Area) {
        self.areas.push(area);
    }

    fn map_anonymous(&mut self) {
        let Some(slot) = self.free_area() else { return };
        let bytes = self.bytes();
        let is_shared = self.below(4) == 0;
        let flags = match self.below(12) {
            0 => ",populate",
            1 => ",noreserve",
            2 => ",stack",
            3 => ",locked",
            _ => "",
        };
        let kind = if is_shared { "shared" } else { "private" };
        self.push(format!("map {slot} {bytes} rw {kind}{flags}"));
        let source = if is_shared { Source::Shared } else { Source::Private };
        self.add(Area { slot, bytes, source, is_writable: true });
        if self.below(4) == 0 {
            self.push(format!("advise {slot} 0 {bytes} hugepage"));
        }
    }

    fn map_file(&mut self) {
        let Some(slot) = self.free_area() else { return };
        let Some(open) = self.open_with(|open| open.bytes >= 4096) else { return };
        let nr_pages = open.bytes.div_ceil(4096);
        let first = if self.below(2) == 0 { 0 } else { self.below(nr_pages) };
        let nr =
            if self.below(2) == 0 { nr_pages - first } else { 1 + self.below(nr_pages - first) };
        let (pos, bytes) = (first << 12, nr << 12);
        let is_shared = self.below(2) == 0;
        let may_write = open.is_writable || !is_shared;
        let is_writable = may_write && self.below(2) == 0;
        let prot = match (is_writable, self.below(6)) {
            (true, _) => "rw",
            (false, 0) => "rx",
            (false, _) => "r",
        };
        let kind = if is_shared { "shared" } else { "private" };
        let flags = if self.below(10) == 0 { ",populate" } else { "" };
        self.push(format!("map {slot} {bytes} {prot} {kind}{flags} file {} {pos}", open.slot));
        let source = Source::File { slot: open.slot, pos, is_shared };
        self.add(Area { slot, bytes, source, is_writable });
    }

    fn touch(&mut self) {
        let Some(area) = self.area() else { return };
        let Some((offset, len)) = self.range(&area) else { return };
        let word = if area.is_writable && self.below(3) > 0 { "write" } else { "read" };
        let step = if area.source == Source::Huge {
            " 2M".to_owned()
        } else {
            let steps = ["", "", " 8K", " 20K", " 64K"];
            self.one_of(&steps).to_owned()
        };
        self.push(format!("{word} {} {offset} {len}{step}", area.slot));
    }

    fn advise(&mut self) {
        let Some(area) = self.area_with(|area| area.source != Source::Huge) else { return };
        let Some((offset, len)) = self.range(&area) else { return };
        let is_file = matches!(area.source, Source::File { .. });
        let advice = if is_file { self.one_of(&FILE_ADVICE) } else { self.one_of(&MEMORY_ADVICE) };
        if advice == "populate_write" && !area.is_writable {
            return;
        }
        self.push(format!("advise {} {offset} {len} {advice}", area.slot));
    }

    fn protect(&mut self) {
        let Some(area) = self.area_with(|area| area.is_writable && area.source != Source::Huge)
        else {
            return;
        };
        let Some((offset, len)) = self.range(&area) else { return };
        let slot = area.slot;
        self.push(format!("protect {slot} {offset} {len} r"));
        if self.below(2) == 0 {
            self.push(format!("read {slot} {offset} {len}"));
        }
        self.push(format!("protect {slot} {offset} {len} rw"));
        if self.below(2) == 0 {
            self.push(format!("write {slot} {offset} {len}"));
        }
    }

    fn remap(&mut self) {
        let movable = |area: &Area| matches!(area.source, Source::Private);
        let Some(area) = self.area_with(movable).filter(|_| self.depth == 0) else { return };
        let bytes = self.bytes();
        let how = self.one_of(&[" move", " move", " move", ""]);
        // Without `move`, growing may fail; the area then keeps its size.
        if how.is_empty() && bytes > area.bytes {
            return;
        }
        self.push(format!("remap {} {bytes}{how}", area.slot));
        let slot = area.slot;
        self.areas.iter_mut().filter(|one| one.slot == slot).for_each(|one| one.bytes = bytes);
    }

    fn unmap(&mut self) {
        if self.depth > 0 {
            return;
        }
        let Some(area) = self.area_with(|area| area.source != Source::Heap) else { return };
        let bytes = area.bytes;
        self.push(format!("unmap {} 0 {bytes}", area.slot));
        self.areas.retain(|one| one.slot != area.slot);
    }

    fn block(&mut self, word: &str) {
        // A thread inside a forked process or a process inside a thread is enough.
        if self.depth > 1 {
            return;
        }
        self.push(word.to_owned());
        self.depth += 1;
        for _ in 0..=self.below(3) {
            self.inner();
        }
        self.depth -= 1;
        self.push("end".to_owned());
    }

    fn inner(&mut self) {
        match self.below(10) {
            0..=6 => self.touch(),
            7 => self.protect(),
            8 => self.advise(),
            _ => self.block("fork"),
        }
    }

    fn hold(&mut self) {
        if self.depth > 0 {
            return;
        }
        self.block("hold");
        self.touch();
        self.touch();
        self.push("go".to_owned());
    }

    /// An area for the bytes of a call, and how many.
    fn buffer(&mut self, needs_write: bool) -> Option<(usize, u64, u64)> {
        let fits = |area: &Area| {
            let is_memory = matches!(area.source, Source::Private | Source::Shared);
            is_memory && (area.is_writable || !needs_write)
        };
        let area = self.area_with(fits)?;
        let offset = self.below(area.bytes >> 12) << 12;
        let offset = if self.below(3) == 0 { offset + self.below(4096) } else { offset };
        let len = match self.below(4) {
            0 => area.bytes - offset,
            1 => 1 + self.below(20_000),
            _ => 1 + self.below(area.bytes - offset),
        };
        Some((area.slot, offset, len.min(area.bytes - offset)))
    }

    fn read_call(&mut self) {
        let Some(open) = self.open_with(|open| open.bytes > 0) else { return };
        let Some((slot, offset, len)) = self.buffer(true) else { return };
        let pos = if self.below(2) == 0 { 0 } else { self.below(open.bytes) };
        let word = self.one_of(&READS);
        self.push(format!("{word} {} {pos} {slot} {offset} {len}", open.slot));
    }

    fn write_call(&mut self) {
        let Some(open) = self.open_with(|open| open.is_writable) else { return };
        let Some((slot, offset, len)) = self.buffer(false) else { return };
        let pos = if self.below(2) == 0 { open.bytes } else { self.below(open.bytes + 1) };
        let word = self.one_of(&WRITES);
        if word == "fwrite" || word == "writev" {
            self.push(format!("seek {} {pos}", open.slot));
        }
        self.push(format!("{word} {} {pos} {slot} {offset} {len}", open.slot));
        self.set_bytes_of_file(open.slot, open.bytes.max(pos + len));
    }

    /// A call that moves bytes from one file to another.
    fn move_call(&mut self) {
        let Some(from) = self.open_with(|open| open.bytes > 0 && open.ground == Ground::Disk)
        else {
            return;
        };
        let to = self.open_with(|open| open.is_writable && open.slot != from.slot);
        let Some(to) = to else { return };
        let len = 1 + self.below(from.bytes);
        let (a, b) = (from.slot, to.slot);
        let end = match self.below(3) {
            0 => {
                self.push(format!("seek {b} 0"));
                self.push(format!("sendfile {b} {a} 0 {len}"));
                len
            }
            1 => {
                self.push(format!("splice {a} 0 {b} 0 {len}"));
                len
            }
            _ => {
                self.push(format!("copyrange {b} 0 {a} 0 {len}"));
                // It may fail between filesystems.
                if to.ground == Ground::Disk { len } else { 0 }
            }
        };
        self.set_bytes_of_file(b, to.bytes.max(end));
    }

    fn change_file(&mut self) {
        let Some(open) = self.open_with(|open| open.is_writable) else { return };
        let slot = open.slot;
        let pos = self.below(open.bytes + 1) & !4095;
        let len = (1 + self.below(64)) << 12;
        match self.below(7) {
            0 if self.depth == 0 => {
                let bytes = self.bytes();
                self.push(format!("truncate {slot} {bytes}"));
                self.set_bytes_of_file(slot, bytes);
            }
            1 => self.push(format!("fallocate {slot} punch {pos} {len}")),
            2 => {
                self.push(format!("fallocate {slot} alloc {pos} {len}"));
                self.set_bytes_of_file(slot, open.bytes.max(pos + len));
            }
            3 => self.push(format!("fallocate {slot} keep {pos} {len}")),
            4 => self.push(format!("fsync {slot}")),
            5 => self.push(format!("fdatasync {slot}")),
            _ => {
                let shared = |area: &Area| {
                    matches!(area.source, Source::File { is_shared: true, .. }) && area.is_writable
                };
                let Some(area) = self.area_with(shared) else { return };
                let how = self.one_of(&["sync", "async"]);
                self.push(format!("msync {} 0 {} {how}", area.slot, area.bytes));
            }
        }
    }

    fn open_old(&mut self) {
        let Some(slot) = self.free_file() else { return };
        let bytes = self.bytes() + if self.below(3) == 0 { 1 + self.below(4095) } else { 0 };
        let name = self.add_file(bytes);
        let how = self.one_of(&["r", "rw", "rw", "rd"]);
        self.push(format!("open {slot} {name} {how}"));
        let (is_writable, ground) = (how == "rw", Ground::Disk);
        self.opens.push(Open { slot, bytes, is_writable, ground });
        if self.below(8) == 0 {
            self.push(format!("unlink {name}"));
        }
    }

    fn open_new(&mut self) {
        let Some(slot) = self.free_file() else { return };
        let name = self.new_name();
        self.push(format!("open {slot} {name} rwct"));
        let (bytes, is_writable, ground) = (0, true, Ground::Disk);
        self.opens.push(Open { slot, bytes, is_writable, ground });
    }

    fn memory_file(&mut self) {
        let Some(slot) = self.free_file() else { return };
        let name = self.new_name();
        if self.below(3) == 0 {
            let path = format!("/dev/shm/folio-judge-{name}");
            self.push(format!("open {slot} {path} rwct"));
            self.push(format!("unlink {path}"));
        } else {
            self.push(format!("memfd {slot} {name}"));
        }
        let bytes = self.bytes();
        self.push(format!("truncate {slot} {bytes}"));
        self.opens.push(Open { slot, bytes, is_writable: true, ground: Ground::Memory });
    }

    fn file_advice(&mut self) {
        let Some(open) = self.open_with(|open| open.bytes > 0) else { return };
        let (slot, pos) = (open.slot, self.below(open.bytes) & !4095);
        let len = 1 + self.below(open.bytes);
        if self.below(4) == 0 {
            self.push(format!("readahead {slot} {pos} {len}"));
            return;
        }
        let advice = self.one_of(&["random", "sequential", "normal", "willneed", "dontneed"]);
        self.push(format!("fadvise {slot} {pos} {len} {advice}"));
    }

    fn lock(&mut self) {
        let is_memory = |area: &Area| area.source != Source::Huge;
        let Some(area) = self.area_with(is_memory) else { return };
        let Some((offset, len)) = self.range(&area) else { return };
        match self.below(6) {
            0 if self.depth == 0 => {
                let flags = self.one_of(&[1, 2, 3]);
                self.push(format!("lockall {flags}"));
            }
            1 => self.push(format!("unlock {} {offset} {len}", area.slot)),
            _ => self.push(format!("lock {} {offset} {len}", area.slot)),
        }
    }

    fn other_memory(&mut self) {
        let Some(slot) = self.free_area() else { return };
        let bytes = self.bytes();
        match self.below(4) {
            0 => {
                self.push(format!("sysv {slot} {bytes}"));
                self.add(Area { slot, bytes, source: Source::SystemV, is_writable: true });
            }
            1 if self.areas.iter().all(|area| area.source != Source::Heap) => {
                self.push(format!("heap {slot} {bytes}"));
                self.add(Area { slot, bytes, source: Source::Heap, is_writable: true });
            }
            2 => {
                self.script.nr_huge = 8;
                let bytes = 4 << 20;
                self.push(format!("map {slot} {bytes} rw private,huge"));
                self.add(Area { slot, bytes, source: Source::Huge, is_writable: true });
            }
            _ => {
                let step = 16 + self.below(1500);
                self.push(format!("stack {step}K"));
            }
        }
    }

    fn other(&mut self) {
        match self.below(6) {
            0 => self.push("spawn".to_owned()),
            1 => {
                let is_on = self.below(2);
                self.push(format!("thp {is_on}"));
            }
            2 => {
                let Some((slot, offset, len)) = self.buffer(true) else { return };
                let what = self.one_of(&["random", "stat", "cwd", "link"]);
                self.push(format!("info {what} {slot} {offset} {len}"));
            }
            3 => {
                let Some((a, offset, len)) = self.buffer(true) else { return };
                let Some((b, from, bytes)) = self.buffer(true) else { return };
                // QEMU refuses process_vm_readv, so scripts.toml alone has it.
                self.push(format!("copy {a} {offset} {len} {b} {from} {bytes}"));
            }
            4 => {
                let limit = self.one_of(&["stack 4M", "data 64M", "memlock 1M"]);
                self.push(format!("limit {limit}"));
            }
            _ => self.touch(),
        }
    }
}

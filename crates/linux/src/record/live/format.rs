//! Decodes the data of recorded events.
//!
//! Owns the list of recorded events and their fields; `tracefs::format` finds the fields. An event
//! with a field outside the data is dropped.

use std::collections::BTreeMap;

use largefolio_trace::event::abi;

use super::kernel_event::{Call, FileRange, KernelEvent};
use crate::fault_probe::{self, FaultProbe};
use crate::tracefs::Instance;
use crate::tracefs::format::{Field, NUMBER, parse, value};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum EventKind {
    Fault,
    /// A call of the probed function, possibly without a fault.
    Handled,
    FileRead,
    FileWrite,
    DirectBegins,
    /// One step of a direct call: the only event that tells a write from a read.
    DirectGoes,
    Synced,
    /// A kind of fallocate: its bits of the mode.
    Allocates(u64),
    Birth,
    Executes,
    Ends,
    Enter(Call),
    Exit,
}

struct Recorded {
    name: &'static str,
    fields: &'static [&'static str],
    kind: EventKind,
}

/// Faults in user mode, and in the kernel on user addresses. Only x86-64 has these events.
const FAULTS: [Recorded; 2] = [
    Recorded {
        name: "exceptions/page_fault_user",
        fields: &["address", "error_code"],
        kind: EventKind::Fault,
    },
    Recorded { name: OF_KERNEL, fields: &["address", "error_code"], kind: EventKind::Fault },
];
/// Required for any recording.
const NEEDED: [Recorded; 3] = [
    Recorded { name: "task/task_newtask", fields: &["pid", "clone_flags"], kind: EventKind::Birth },
    Recorded {
        name: "sched/sched_process_exec",
        fields: &["pid", "old_pid"],
        kind: EventKind::Executes,
    },
    Recorded { name: "sched/sched_process_exit", fields: &["pid"], kind: EventKind::Ends },
];
/// File reads through the page cache: Linux 6.12 and later.
const READS: Recorded = Recorded {
    name: "filemap/mm_filemap_get_pages",
    fields: &["i_ino", "s_dev", "index", "last_index"],
    kind: EventKind::FileRead,
};
/// What ext4 and XFS report. Without one of these, the kernel lacks that filesystem.
const OF_FILESYSTEMS: [Recorded; 12] = [
    Recorded {
        name: "ext4/ext4_write_begin",
        fields: &["ino", "dev", "pos", "len"],
        kind: EventKind::FileWrite,
    },
    Recorded {
        name: "ext4/ext4_da_write_begin",
        fields: &["ino", "dev", "pos", "len"],
        kind: EventKind::FileWrite,
    },
    Recorded {
        name: "xfs/xfs_file_buffered_write",
        fields: &["ino", "dev", "offset", "count"],
        kind: EventKind::FileWrite,
    },
    Recorded {
        name: "iomap/iomap_dio_rw_begin",
        fields: &["ino", "dev", "pos", "count"],
        kind: EventKind::DirectBegins,
    },
    Recorded { name: STEPS, fields: &["ino", "flags"], kind: EventKind::DirectGoes },
    Recorded {
        name: "ext4/ext4_sync_file_enter",
        fields: &["ino", "dev"],
        kind: EventKind::Synced,
    },
    Recorded { name: "xfs/xfs_file_fsync", fields: &["ino", "dev"], kind: EventKind::Synced },
    Recorded {
        name: "ext4/ext4_fallocate_enter",
        fields: &["ino", "dev", "offset", "len", "mode"],
        kind: EventKind::Allocates(0),
    },
    Recorded {
        name: "ext4/ext4_punch_hole",
        fields: &["ino", "dev", "offset", "len", "mode"],
        kind: EventKind::Allocates(abi::FALLOC_FL_PUNCH_HOLE | abi::FALLOC_FL_KEEP_SIZE),
    },
    Recorded {
        name: "ext4/ext4_zero_range",
        fields: &["ino", "dev", "offset", "len", "mode"],
        kind: EventKind::Allocates(abi::FALLOC_FL_ZERO_RANGE),
    },
    Recorded {
        name: "ext4/ext4_collapse_range",
        fields: &["ino", "dev", "offset", "len"],
        kind: EventKind::Allocates(abi::FALLOC_FL_COLLAPSE_RANGE),
    },
    Recorded {
        name: "ext4/ext4_insert_range",
        fields: &["ino", "dev", "offset", "len"],
        kind: EventKind::Allocates(abi::FALLOC_FL_INSERT_RANGE),
    },
];
/// Steps through the blocks of a file, of every kind of call.
const STEPS: &str = "iomap/iomap_iter";
/// `IOMAP_DIRECT`.
const OF_DIRECT: &str = "flags & 16";
/// `IOMAP_WRITE`.
const WRITES: u64 = 1;
const CALLS: [(Call, &str, &[&str]); 16] = [
    (Call::Mmap, "mmap", &["addr", "len", "prot", "flags", "fd", "off"]),
    (Call::Munmap, "munmap", &["addr", "len"]),
    (Call::Mprotect, "mprotect", &["start", "len", "prot"]),
    (Call::Mprotect, WITH_KEYS, &["start", "len", "prot"]),
    (Call::Mremap, "mremap", &["addr", "old_len", "new_len", "flags", "new_addr"]),
    (Call::Madvise, "madvise", &["start", "len_in", "behavior"]),
    (Call::Brk, "brk", &["brk"]),
    (Call::Msync, "msync", &["start", "len", "flags"]),
    (Call::SyncAll, "sync", &[]),
    (Call::SyncAll, "syncfs", &[]),
    (Call::Mlock, "mlock", &["start", "len"]),
    (Call::Mlock2, "mlock2", &["start", "len", "flags"]),
    (Call::Munlock, "munlock", &["start", "len"]),
    (Call::Mlockall, "mlockall", &["flags"]),
    (Call::Munlockall, "munlockall", &[]),
    (Call::Prctl, "prctl", &["option", "arg2", "arg3"]),
];
/// Exists only with protection keys: on arm64 since 6.12, as an option.
const WITH_KEYS: &str = "pkey_mprotect";
/// Faults while the kernel works for a program.
const OF_KERNEL: &str = "exceptions/page_fault_kernel";
/// Only faults on user addresses.
const OF_PROGRAMS: &str = "address < 0x800000000000";

#[derive(Debug, Default)]
pub(super) struct Formats {
    events: BTreeMap<u64, (EventKind, Vec<Field>)>,
    thread: Option<Field>,
    pub(super) has_reads: bool,
}

impl Formats {
    /// Enables the events in a stopped instance; the event of `probe` replaces the fault events. On
    /// failure returns the event that the kernel lacks or refuses.
    pub(super) fn enable(instance: &Instance, probe: Option<&FaultProbe>) -> Result<Self, String> {
        let mut formats = Self::default();
        match probe {
            Some(probe) => {
                formats.add(instance, &probe.event(), &["address", "flags"], EventKind::Handled)?;
            }
            None => formats.add_all(instance, &FAULTS)?,
        }
        formats.add_all(instance, &NEEDED)?;
        for (call, name, arguments) in CALLS {
            let enter = format!("syscalls/sys_enter_{name}");
            if name == WITH_KEYS && !instance.has(&enter) {
                continue;
            }
            formats.add(instance, &enter, arguments, EventKind::Enter(call))?;
            formats.add(
                instance,
                &format!("syscalls/sys_exit_{name}"),
                &["ret"],
                EventKind::Exit,
            )?;
        }
        formats.has_reads = formats.add(instance, READS.name, READS.fields, READS.kind).is_ok();
        for event in OF_FILESYSTEMS {
            let _ = formats.add(instance, event.name, event.fields, event.kind);
        }
        Ok(formats)
    }

    pub(super) fn has_faults(instance: &Instance) -> bool {
        FAULTS.iter().all(|event| instance.has(event.name))
    }

    fn add_all(&mut self, instance: &Instance, events: &[Recorded]) -> Result<(), String> {
        events.iter().try_for_each(|event| self.add(instance, event.name, event.fields, event.kind))
    }

    fn add(
        &mut self,
        instance: &Instance,
        name: &str,
        fields: &[&str],
        kind: EventKind,
    ) -> Result<(), String> {
        let missing = || name.to_owned();
        let path = instance.path().join("events").join(name);
        let text = std::fs::read_to_string(path.join("format")).map_err(|_| missing())?;
        let (number, fields, thread) = parse(&text, fields).ok_or_else(missing)?;
        let filter = match name {
            OF_KERNEL => Some(OF_PROGRAMS),
            STEPS => Some(OF_DIRECT),
            _ => None,
        };
        if let Some(filter) = filter {
            std::fs::write(path.join("filter"), filter).map_err(|_| missing())?;
        }
        std::fs::write(path.join("enable"), "1").map_err(|_| missing())?;
        self.thread = Some(thread);
        self.events.insert(number, (kind, fields));
        Ok(())
    }

    pub(super) fn decode(&self, data: &[u8]) -> Option<(u32, KernelEvent)> {
        let number = value(data, NUMBER)?;
        let (kind, fields) = self.events.get(&number)?;
        let thread = u32::try_from(value(data, self.thread?)?).ok()?;
        let mut values = [0; 6];
        for (word, field) in values.iter_mut().zip(fields) {
            *word = value(data, *field)?;
        }
        // Thread ids have 31 bits.
        let tid = |word: u64| u32::try_from(word).unwrap_or(0);
        let event = match *kind {
            EventKind::Fault => KernelEvent::Fault { address: values[0], code: values[1] },
            EventKind::Handled => {
                KernelEvent::Fault { address: values[0], code: fault_probe::code(values[1])? }
            }
            // The kernel reports the first and the last page.
            EventKind::FileRead => KernelEvent::FileRead {
                inode: values[0],
                device: values[1],
                first: values[2],
                end: values[3].saturating_add(1),
            },
            EventKind::FileWrite => KernelEvent::FileWrite(range(values)),
            EventKind::DirectBegins => KernelEvent::DirectBegins(range(values)),
            EventKind::DirectGoes => {
                KernelEvent::DirectGoes { inode: values[0], is_write: values[1] & WRITES != 0 }
            }
            EventKind::Synced => KernelEvent::Synced { inode: values[0], device: values[1] },
            EventKind::Allocates(kind) => {
                KernelEvent::Allocates { range: range(values), mode: kind | values[4] }
            }
            EventKind::Birth => KernelEvent::Birth { child: tid(values[0]), flags: values[1] },
            EventKind::Executes => {
                KernelEvent::Executes { process: tid(values[0]), earlier: tid(values[1]) }
            }
            EventKind::Ends => KernelEvent::Ends,
            EventKind::Enter(call) => KernelEvent::Enter { call, arguments: values },
            EventKind::Exit => KernelEvent::Exit { result: values[0].cast_signed() },
        };
        Some((thread, event))
    }
}

fn range([inode, device, pos, len, ..]: [u64; 6]) -> FileRange {
    FileRange { inode, device, pos, len }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: page_fault_user\nID: 190\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\
        \tfield:int common_pid;\toffset:4;\tsize:4;\tsigned:1;\n\n\
        \tfield:unsigned long address;\toffset:8;\tsize:8;\tsigned:0;\n\
        \tfield:unsigned long error_code;\toffset:24;\tsize:8;\tsigned:0;\n\nprint fmt: \"x\"\n";

    fn formats(text: &str) -> Formats {
        let (number, fields, thread) = parse(text, &["address", "error_code"]).unwrap();
        let events = BTreeMap::from([(number, (EventKind::Fault, fields))]);
        Formats { events, thread: Some(thread), has_reads: false }
    }

    #[test]
    fn fields_are_where_the_kernel_says() {
        let mut data = vec![190, 0, 0, 0, 7, 0, 0, 0];
        for word in [0x7f00_1000_u64, 0x40_0000, 6] {
            data.extend(word.to_le_bytes());
        }
        let formats = formats(FORMAT);
        let fault = KernelEvent::Fault { address: 0x7f00_1000, code: 6 };
        assert_eq!(formats.decode(&data), Some((7, fault)));
        data[0] = 191;
        assert_eq!(formats.decode(&data), None, "another event");
    }

    #[test]
    fn a_call_that_handles_a_fault_is_one_and_others_are_none() {
        let text = FORMAT.replace("error_code", "flags").replace("offset:24", "offset:16");
        let (number, fields, thread) = parse(&text, &["address", "flags"]).unwrap();
        let events = BTreeMap::from([(number, (EventKind::Handled, fields))]);
        let formats = Formats { events, thread: Some(thread), has_reads: false };
        let decoded = |flags: u64| {
            let mut data = vec![190, 0, 0, 0, 7, 0, 0, 0];
            data.extend([0xffff_8123_4567, flags].iter().flat_map(|word: &u64| word.to_le_bytes()));
            formats.decode(&data)
        };
        let fault = |code| Some((7, KernelEvent::Fault { address: 0xffff_8123_4567, code }));
        assert_eq!(decoded(0x255), fault(fault_probe::STORE));
        assert_eq!(decoded(0x1354), fault(fault_probe::FETCH | fault_probe::LOCKED));
        assert_eq!((decoded(0x274), decoded(0x14)), (None, None), "tried again, and populating");
    }

    #[test]
    fn an_event_cut_short_and_a_field_of_no_size_are_none() {
        let formats = formats(FORMAT);
        for len in 0..32 {
            assert_eq!(formats.decode(&[190; 32][..len]), None);
        }
        for (from, to) in
            [("offset:24", "offset:x"), ("size:8;\tsigned:0;\n\nprint", "size:-1;\nprint")]
        {
            assert_eq!(parse(&FORMAT.replace(from, to), &["error_code"]), None, "{to}");
        }
        let huge = FORMAT.replace("offset:24;\tsize:8", "offset:24;\tsize:18446744073709551615");
        let (number, fields, thread) = parse(&huge, &["error_code"]).unwrap();
        let events = BTreeMap::from([(number, (EventKind::Fault, fields))]);
        let formats = Formats { events, thread: Some(thread), has_reads: false };
        let mut data = [0; 64];
        data[0] = 190;
        assert_eq!(formats.decode(&data), None);
    }
}

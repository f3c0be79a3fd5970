//! Aligned copies of real programs, and of damaged files.

#![expect(clippy::unwrap_used, reason = "a test ends if it cannot continue")]

use std::fs;
use std::io::Cursor;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use largefolio_linux::align::{self, AlignError, Layout};
use largefolio_linux::elf::{ElfFile, ElfKind};
use proptest::prelude::*;

use crate::started::started;

const M2: u64 = 2 << 20;

/// A program with 6 MiB of text, thread-local variables, zeroed data and a constructor. It checks
/// them, and that its file has their addresses.
const PROGRAM: &str = r#"
#include <stdio.h>
#include <string.h>
__asm__(".text\n.balign 4096\n.globl stubs\nstubs:\n.fill 6291456,1,0xc3\n");
extern char stubs[];
static __thread int local = 7;
static __thread int zeroed_local;
static char zeroed[1 << 16];
static const char *const words[] = {"one", "two"};
static int constructed;
__attribute__((constructor)) static void construct(void) { constructed = 3; }
int main(int argc, char **argv) {
    for (long at = 0; at < 6291456; at += 4096) ((void (*)(void))(stubs + at))();
    int sum = local + zeroed_local + constructed + zeroed[sizeof zeroed - 1];
    printf("%d %s %d\n", sum, words[argc > 1], argc);
    return argc > 1 ? 5 : 0;
}
"#;

struct Place(tempfile::TempDir);

impl Place {
    fn new() -> Self {
        let place = Self(tempfile::tempdir().unwrap());
        fs::write(place.path("p.c"), PROGRAM).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn compile(&self, flags: &str) -> bool {
        let arguments = flags.split_whitespace().chain(["p.c", "-o", "p"]);
        let Ok(output) = Command::new("gcc").current_dir(self.0.path()).args(arguments).output()
        else {
            largefolio_testkit::skipped!("gcc is not installed (scripts/setup.sh installs it)");
            return false;
        };
        assert!(output.status.success(), "{flags}: {}", String::from_utf8_lossy(&output.stderr));
        true
    }

    fn run(&self, name: &str) -> (Option<i32>, String) {
        let mut command = Command::new(self.path(name));
        let command = command.arg("x").stdin(Stdio::null()).stdout(Stdio::piped());
        let output = started(command).wait_with_output().unwrap();
        (output.status.code(), String::from_utf8(output.stdout).unwrap())
    }
}

#[test]
fn copies_run_and_agree_with_their_addresses() {
    let place = Place::new();
    let layouts = [
        "-O0 -g -pie -fPIE",
        "-O0 -pie -fPIE -Wl,-z,noseparate-code",
        "-O0 -pie -fPIE -Wl,-z,max-page-size=65536",
        "-O0 -static-pie -fPIE",
        "-O0 -g -no-pie -Wl,-Ttext-segment=0x10001000",
        "-O0 -no-pie -static -Wl,-Ttext-segment=0x10001000",
    ];
    for flags in layouts {
        if !place.compile(flags) {
            return;
        }
        fs::set_permissions(place.path("p"), fs::Permissions::from_mode(0o750)).unwrap();
        let copied = align::copy(&place.path("p"), &place.path("copy"), M2).unwrap();
        assert!(copied.text_bytes >= 2 * M2, "{flags}: {copied:?}");
        assert!(copied.nr_compared > 10, "{flags}: {copied:?}");
        let elf = ElfFile::read(&place.path("copy")).unwrap();
        elf.check(&place.path("copy")).unwrap();
        for load in &elf.loads {
            assert_eq!(load.vaddr.wrapping_sub(load.offset) % M2, 0, "{flags}: {load:?}");
            assert_eq!(load.align, M2, "{flags}");
        }
        let original = ElfFile::read(&place.path("p")).unwrap();
        assert_eq!((elf.kind, elf.build_id), (original.kind, original.build_id), "{flags}");
        assert_eq!(place.run("copy"), (Some(5), "10 two 2\n".to_owned()), "{flags}");
        let mode = fs::metadata(place.path("copy")).unwrap().permissions().mode();
        assert_eq!(mode & 0o7777, 0o750);
        // A second copy has nothing to do.
        let error = align::copy(&place.path("copy"), &place.path("copy2"), M2).unwrap_err();
        assert!(matches!(error, AlignError::Already(_)), "{flags}: {error}");
        assert!(!place.path("copy2").exists());
    }
}

#[test]
fn a_library_is_loaded_at_multiples_of_2m() {
    let place = Place::new();
    let main = "#include <stdio.h>\nextern char stubs[];\n\
                int main(void) { printf(\"%lu\", (unsigned long)stubs); return 0; }";
    fs::write(place.path("m.c"), main).unwrap();
    if !place.compile("-O0 -shared -fPIC -Dmain=other -Wl,-soname,p") {
        return;
    }
    align::copy(&place.path("p"), &place.path("aligned"), M2).unwrap();
    fs::rename(place.path("aligned"), place.path("p")).unwrap();
    let elf = ElfFile::read(&place.path("p")).unwrap();
    assert_eq!(elf.kind, ElfKind::Shared);
    let arguments = "-w -fPIC m.c p -Wl,-rpath,$ORIGIN -o m";
    let output = Command::new("gcc")
        .current_dir(place.0.path())
        .args(arguments.split(' '))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    for _ in 0..4 {
        let (_, address) = place.run("m");
        // The stubs start within the first pages of the image.
        assert!(address.parse::<u64>().unwrap() % M2 < 1 << 16, "loaded elsewhere: {address}");
    }
}

#[test]
fn debuggers_find_the_symbols_of_a_copy() {
    let place = Place::new();
    if !place.compile("-O0 -g -pie -fPIE") {
        return;
    }
    align::copy(&place.path("p"), &place.path("copy"), M2).unwrap();
    let arguments = ["-nx", "-batch", "-ex", "break construct", "-ex", "run", "-ex", "bt"];
    let Ok(output) = Command::new("gdb").args(arguments).arg(place.path("copy")).output() else {
        largefolio_testkit::skipped!("gdb is not installed (apt-get install gdb)");
        return;
    };
    let stdout = String::from_utf8_lossy(&output.stdout);
    assert!(stdout.contains("#0  construct () at p.c:"), "{stdout}");
}

#[test]
fn what_cannot_be_aligned_is_refused_with_the_reason() {
    let place = Place::new();
    let refused = |bytes: &[u8]| {
        fs::write(place.path("f"), bytes).unwrap();
        let error = align::copy(&place.path("f"), &place.path("copy"), M2).unwrap_err();
        assert!(!place.path("copy").exists());
        error
    };
    assert!(refused(b"hello").to_string().ends_with("f is not an ELF file"));
    if !place.compile("-O0 -pie -fPIE") {
        return;
    }
    let good = fs::read(place.path("p")).unwrap();
    let mut appended = good.clone();
    appended.extend(b"PK\x03\x04 an archive");
    let error = refused(&appended);
    assert!(matches!(error, AlignError::Appended { bytes: 15, .. }), "{error}");
    let mut packed = good.clone();
    packed[2000..2004].copy_from_slice(b"UPX!");
    assert!(matches!(refused(&packed), AlignError::Packed(_)));
    assert!(matches!(refused(&good[..good.len() / 2]), AlignError::Elf(_)));
    let error = align::copy(&place.path("p"), &place.path("p"), M2).unwrap_err();
    assert!(matches!(error, AlignError::Same(_)), "{error}");
    assert_eq!(fs::read(place.path("p")).unwrap(), good);
    let error = align::copy(Path::new("/bin/true"), &place.path("copy"), M2).unwrap_err();
    assert!(matches!(error, AlignError::NoGain { .. }), "{error}");
    // At fixed addresses it is already aligned, but still nothing would be gained.
    fs::write(place.path("p.c"), "int main(void) { return 0; }").unwrap();
    if place.compile("-O0 -no-pie -Wl,-z,max-page-size=2097152") {
        let error = align::copy(&place.path("p"), &place.path("copy"), M2).unwrap_err();
        assert!(matches!(error, AlignError::NoGain { .. }), "{error}");
    }
}

/// Returns a small program of this machine. Its section headers are at the end.
fn small() -> Vec<u8> {
    fs::read("/bin/true").unwrap()
}

fn lay_out(bytes: &[u8]) -> Result<Vec<u8>, AlignError> {
    let layout = Layout::of(Path::new("file"), bytes, 1 << 13)?;
    // A damaged file may have a sparse layout; then only check its length.
    if layout.copy_bytes > 64 << 20 {
        return Ok(Vec::new());
    }
    let mut copy = Cursor::new(Vec::new());
    layout.write(&mut Cursor::new(bytes), &mut copy).unwrap();
    Ok(copy.into_inner())
}

#[test]
fn the_small_program_is_laid_out_when_it_is_whole() {
    let copy = lay_out(&small()).unwrap();
    let elf = ElfFile::parse(Path::new("copy"), &*copy).unwrap();
    elf.check(Path::new("copy")).unwrap();
    assert!(elf.loads.iter().all(|load| load.vaddr.wrapping_sub(load.offset) % (1 << 13) == 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(largefolio_testkit::cases(2000)))]

    #[test]
    fn no_damage_is_more_than_an_error(
        changes in prop::collection::vec((0..1024_usize, any::<u8>()), 0..12),
        arguments in prop::collection::vec((any::<bool>(), 0..200_usize, prop::sample::select(vec![
            0_u64, 1, 0x1000, 0x4000, u64::MAX, u64::MAX - 0xfff, 1 << 63, 0x7fff_ffff,
        ])), 0..6),
        len in prop_oneof![3 => Just(usize::MAX), 1 => 0..40_000_usize],
    ) {
        let mut bytes = small();
        let end = bytes.len() / 8;
        for (is_at_end, at, word) in arguments {
            // Program headers are at the start, section headers at the end.
            let at = if is_at_end { end - 1 - at } else { at };
            bytes[at * 8..at * 8 + 8].copy_from_slice(&word.to_le_bytes());
        }
        for (at, byte) in changes {
            bytes[at] = byte;
        }
        bytes[..4].copy_from_slice(b"\x7fELF");
        bytes.truncate(len);
        if let Err(error) = lay_out(&bytes) {
            prop_assert!(error.to_string().contains("file"), "{}", error);
        }
    }
}

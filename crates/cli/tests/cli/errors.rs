//! Errors: exit code 2, nothing on standard output, cause and remedy on standard error.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Stdio;
use std::sync::Arc;

use parquet::data_type::Int32Type;
use parquet::file::writer::SerializedFileWriter;
use parquet::schema::parser::parse_message_type;

use crate::support::{Place, text};

#[test]
fn unknown_names_come_with_the_nearest() {
    let place = Place::with_trace();
    for (args, hint) in [
        ("--kernel 6.13", "did you mean 6.12 or 6.16?"),
        ("--kernel 6.7", "did you mean 6.6 or 6.8?"),
        ("--kernel 6.12+exec-blok=64K", "exec-block"),
        ("--kernel 6.12+page=5K", "4K, 16K or 64K"),
        ("--kernel ./none.toml", "none.toml"),
        ("--machine altre", "altra"),
        ("--machine graviton5", "did you mean graviton4"),
        ("--machine cascadelake --kernel 6.12+page=64K", "it has 4K"),
        ("--fs ext5", "ext4"),
        ("--memory 12Q", "16G"),
        ("--memory 16T", "at most 4T"),
        ("--memory 4097G", "at most 4T"),
        ("--kernel ./none", "its path, ending in .toml"),
        ("--kernel 7.2+min-folio=1G", "at most 128M"),
        ("--kernel 7.2+min-folio=32M", "at most 2M"),
        ("--list", "cannot be used with"),
        ("--fragmentation 1001", "from 0 to 1000"),
        ("--json --csv", "cannot be used with"),
        ("--cold --warm", "cannot be used with"),
    ] {
        let stderr = place.fails(&format!("predict mix.folio {args}"));
        assert!(stderr.contains(hint), "{args}: {stderr}");
    }
}

#[test]
fn more_columns_than_fit_are_counted() {
    let place = Place::with_trace();
    let seeds: Vec<_> = (0..129).map(|seed| seed.to_string()).collect();
    let args = format!("--kernel 6.12,7.2 --fragmentation 500 --seed {}", seeds.join(","));
    let stderr = place.fails(&format!("predict mix.folio {args}"));
    assert!(
        stderr.contains("2 kernels x 1 machines x 1 memory sizes x 129 seeds make 258 cells"),
        "{stderr}"
    );
}

#[test]
fn reports_the_type_of_files_that_are_not_traces() {
    let place = Place::new();
    fs::write(place.path("text"), "hello, world\n").unwrap();
    fs::write(place.path("image.png"), b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR").unwrap();
    fs::write(place.path("empty"), "").unwrap();
    fs::create_dir(place.path("directory")).unwrap();
    foreign_parquet(&place);
    for name in ["text", "image.png", "empty", "directory", "foreign.parquet", "missing"] {
        // A named kernel: other tests change the settings of `this` meanwhile.
        for verb in ["predict --kernel 7.2", "trace info", "trace cat"] {
            let stderr = place.fails(&format!("{verb} {name}"));
            assert!(stderr.contains(name), "{verb} {name}: {stderr}");
            assert_eq!(stderr.lines().count(), 1, "{verb} {name}: {stderr}");
        }
    }
    assert!(place.fails("predict directory").contains("it is a directory"));
    assert!(place.fails("predict missing").contains("No such file"));
}

fn foreign_parquet(place: &Place) {
    let schema = parse_message_type("message other { REQUIRED INT32 number; }").unwrap();
    let file = fs::File::create(place.path("foreign.parquet")).unwrap();
    let mut writer = SerializedFileWriter::new(file, Arc::new(schema), Arc::default()).unwrap();
    let mut group = writer.next_row_group().unwrap();
    let mut column = group.next_column().unwrap().unwrap();
    column.typed::<Int32Type>().write_batch(&[1, 2, 3], None, None).unwrap();
    column.close().unwrap();
    group.close().unwrap();
    writer.close().unwrap();
}

#[test]
fn a_file_without_read_permission_is_an_error() {
    let place = Place::with_trace();
    let path = place.path("mix.folio");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o000)).unwrap();
    let output = place.command_of_nobody("predict mix.folio").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("mix.folio: Permission denied"), "{stderr}");
}

#[test]
fn checks_the_output_before_the_replay() {
    let place = Place::with_trace();
    fs::create_dir(place.path("directory")).unwrap();
    for output in ["/proc/x", "mix.folio/x", "missing/x", "directory"] {
        let stderr = place.fails(&format!("predict mix.folio -o {output}"));
        assert!(stderr.contains(output), "{stderr}");
        let stderr = place.fails(&format!("trace gen zipf --runs 1 -o {output}"));
        assert!(stderr.contains(output), "{stderr}");
    }
    let stderr = place.fails("predict mix.folio -o mix.folio");
    assert!(stderr.contains("is the input trace"), "{stderr}");
    place.done("trace info mix.folio");
}

#[test]
fn generator_errors_name_the_options() {
    let place = Place::new();
    for (args, option) in [
        ("zipf --files 0", "--files is 0"),
        ("random --file-size 5", "--file-size is 5"),
        ("sequential --read-size 0", "--read-size is 0"),
        ("ret-stubs --stub-size 5K", "--stub-size is 5120"),
    ] {
        let stderr = place.fails(&format!("trace gen {args} -o x.folio"));
        assert!(stderr.contains(option), "{stderr}");
        assert!(!place.path("x.folio").exists());
    }
}

/// Truncated and bit-flipped traces cause an error or, if the damage does not matter, a result, but
/// never a panic message.
#[test]
fn damaged_traces_never_show_a_panic() {
    let place = Place::with_trace();
    let whole = fs::read(place.path("mix.folio")).unwrap();
    let step = whole.len() / 13;
    for at in (0..whole.len()).step_by(step) {
        fs::write(place.path("cut"), &whole[..at]).unwrap();
        place.fails("trace info cut");
        let mut flipped = whole.clone();
        flipped[at] ^= 0x55;
        fs::write(place.path("flipped"), &flipped).unwrap();
        let output = place.run("predict flipped --kernel 6.12");
        let stderr = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{at}: {stderr}");
        assert!(
            !stderr.contains("panicked") && !stderr.contains("internal error"),
            "{at}: {stderr}"
        );
    }
}

#[test]
fn a_closed_pipe_is_no_error() {
    let place = Place::new();
    place.done("trace gen zipf --runs 300000 -o long.folio");
    for form in ["", "--json", "--csv"] {
        let args = format!("trace cat long.folio {form}");
        let mut child =
            place.command(&args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(!line.is_empty());
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{args}");
        assert_eq!(text(&output.stderr), "", "{args}");
    }
}

#[test]
fn an_unread_result_keeps_its_exit_status() {
    let place = Place::new();
    for (args, code) in [
        ("verify --env LARGEFOLIO_TEST=1 --runs 3 --margin 99 -- true", 1),
        ("predict --list", 0),
        ("maps --elf no-such", 2),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = place.command(args).stdout(writer).output().unwrap();
        let stderr = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{args}: {stderr}");
        assert_eq!(stderr.is_empty(), code < 2, "{args}: {stderr}");
    }
}

#[test]
fn a_full_output_device_is_an_error() {
    let place = Place::with_trace();
    for args in ["trace cat mix.folio", "--help", "predict -h", "help tune", "--version"] {
        let full = fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
        let output = place.command(args).stdout(full).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{args}");
        let stderr = text(&output.stderr);
        assert!(stderr.contains("standard output: No space left"), "{args}: {stderr}");
    }
}

/// A list would ignore other requests.
#[test]
fn lists_reject_other_forms() {
    let place = Place::with_trace();
    for args in [
        "predict --list --json",
        "predict --list --csv",
        "predict --list --parquet -o list",
        "predict --list -o list",
        "predict --list --report list.html",
        "predict --list mix.folio",
    ] {
        let stderr = place.fails(args);
        assert!(stderr.contains("cannot be used with"), "{args}: {stderr}");
    }
}

#[test]
fn a_misplaced_name_has_a_hint() {
    let place = Place::with_trace();
    for (args, expected) in [
        ("predict mix.folio --kernel 6.12 7.2", "7.2 is interpreted as a trace"),
        ("predict mix.folio --kernel 6.12 --machine zen4 altra", "altra is interpreted as a trace"),
        ("predict mix.folio --kernel 6.12, 7.2", "a name is empty"),
        ("predict mix.folio --kernel 6.12 --memory 64", "expected at least 1M"),
        ("warm gone", "cannot read gone: No such file or directory (os error 2)\n"),
        ("verify --env A=1 --trace mix.folio -- true", "the effects of environment variables"),
    ] {
        let stderr = place.fails(args);
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
    let mut command = place.command("predict mix.folio --kernel 7.2 --machine altra --policy");
    let output = command.arg(OsStr::from_bytes(b"\xff.o")).output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("must be UTF-8 here; rename the file"), "{stderr}");
}

#[test]
fn verbs_of_the_lab_name_its_program() {
    for args in ["study", "study owners --json", "crosscheck --help", "bench clear --rounds 5"] {
        let verb = args.split(' ').next().unwrap();
        let stderr = Place::new().fails(args);
        let expected = format!(
            "folio: error: `folio {verb}` is now `folio-lab {verb}`, which is not installed; in a \
             checkout, build it with `cargo build --release --bin folio-lab`\n"
        );
        assert_eq!(stderr, expected);
    }
}

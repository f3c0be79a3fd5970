//! Refusals before anything runs, on a machine made from a table.
#![expect(clippy::expect_used, reason = "helpers of tests fail like tests")]

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use largefolio_linux::environment::{Environment, Host, Node};
use largefolio_linux::record::tools::{Emulator, escape_commas};
use largefolio_linux::record::{RecordError, RecordRequest, Recording, program};

/// A machine: files with their first bytes, and QEMU's answer to the probe.
#[derive(Default)]
struct Table {
    nodes: BTreeMap<PathBuf, (Node, Vec<u8>)>,
    qemu_complaint: String,
    plugin: Option<OsString>,
    qemu: Option<OsString>,
    /// All users may write to the program's directory.
    is_bin_open: bool,
}

impl Environment for Table {
    fn variable(&self, name: &str) -> Option<OsString> {
        match name {
            "PATH" => Some("/bin:/usr/bin".into()),
            "LARGEFOLIO_RECORDER" => self.plugin.clone(),
            "LARGEFOLIO_QEMU" => self.qemu.clone(),
            _ => None,
        }
    }

    fn node(&self, path: &Path) -> Node {
        self.nodes.get(path).map_or(Node::Missing, |(node, _)| *node)
    }

    fn gives_rights(&self, path: &Path) -> bool {
        path.ends_with("passwd")
    }

    fn head(&self, path: &Path) -> io::Result<Vec<u8>> {
        match self.nodes.get(path) {
            Some((_, head)) if head == b"secret" => Err(io::ErrorKind::PermissionDenied.into()),
            Some((_, head)) => Ok(head.clone()),
            None => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn own_executable(&self) -> Option<PathBuf> {
        Some("/opt/folio/bin/folio".into())
    }

    fn distrust(&self, path: &Path) -> Option<String> {
        let is_open = path.starts_with("/opt/folio/bin") && self.is_bin_open;
        is_open.then(|| "everyone can write to it".to_owned())
    }

    fn complaint(&self, tool: &Path, _arguments: &[&OsStr]) -> String {
        let is_built = tool.starts_with("/opt") || tool.starts_with("/elsewhere");
        let complaint = if is_built { WITH_PLUGINS } else { &self.qemu_complaint };
        complaint.to_owned()
    }
}

/// The probe's answers from a QEMU with plugins, and from one without.
const WITH_PLUGINS: &str = "qemu-x86_64: Could not load plugin";
const WITHOUT_PLUGINS: &str = "qemu: plugin interface not enabled in this build";

fn elf(class: u8, kind: u16, machine: u16) -> Vec<u8> {
    let mut head = b"\x7fELF\0\x01\x01\0\0\0\0\0\0\0\0\0".to_vec();
    head[4] = class;
    head.extend_from_slice(&kind.to_le_bytes());
    head.extend_from_slice(&machine.to_le_bytes());
    head
}

fn machine() -> Table {
    let mut table = Table::default();
    for (path, head) in [
        ("/bin/good", elf(2, 3, 62)),
        ("/usr/bin/qemu-x86_64", elf(2, 3, 62)),
        ("/opt/folio/bin/liblargefolio_recorder.so", elf(2, 3, 62)),
    ] {
        table.add(path, Node::Executable, &head);
    }
    Table { qemu_complaint: WITH_PLUGINS.to_owned(), ..table }
}

impl Table {
    fn add(&mut self, path: &str, node: Node, head: &[u8]) {
        self.nodes.insert(path.into(), (node, head.to_vec()));
    }

    fn plan(&self, command: &[&str]) -> Result<Recording, RecordError> {
        let command: Vec<OsString> = command.iter().map(OsString::from).collect();
        let output = std::env::temp_dir().join("largefolio-plan-test.folio");
        let request = RecordRequest { command: &command, output: Some(&output), root: None };
        Recording::in_environment(self, &request)
    }

    fn refusal(&self, command: &[&str]) -> String {
        self.plan(command).expect_err("a refusal").to_string()
    }
}

#[test]
fn a_program_in_path_is_planned_with_qemu() {
    let plan = machine().plan(&["good", "-x"]).expect("a plan");
    let plugin = "/opt/folio/bin/liblargefolio_recorder.so".into();
    assert_eq!(plan.emulator(), &Emulator { qemu: "/usr/bin/qemu-x86_64".into(), plugin });
}

#[test]
fn each_bad_program_has_its_own_message_with_a_remedy() {
    let mut table = machine();
    table.add("/d", Node::Directory, b"");
    table.add("/plain", Node::Plain, b"");
    table.add("/secret", Node::Executable, b"secret");
    table.add("/text", Node::Executable, b"echo hello\n");
    table.add("/thirtytwo", Node::Executable, &elf(1, 2, 3));
    table.add("/riscv", Node::Executable, &elf(2, 2, 243));
    table.add("/arm", Node::Executable, &elf(2, 2, 183));
    table.add("/object.o", Node::Executable, &elf(2, 1, 62));
    table.add("/passwd", Node::Executable, &elf(2, 2, 62));
    table.add("/short", Node::Executable, b"\x7fELF");
    for (command, expected) in [
        (&[][..], "put it after `--`"),
        (&[""], "put it after `--`"),
        (&["nothing"], "nothing: not found in PATH"),
        (&["/nothing"], "/nothing: there is no such file"),
        (&["/d"], "is a directory"),
        (&["/plain"], "chmod +x /plain"),
        (&["/secret"], "must be able to read"),
        (&["/text"], "record `sh /text`"),
        (&["/thirtytwo"], "32-bit"),
        (&["/riscv"], "a program for riscv"),
        (&["/arm"], "qemu-aarch64 not found in PATH"),
        (&["/object.o"], "not a program"),
        (&["/short"], "not a program"),
        (&["/passwd"], "set-user-ID"),
    ] {
        let message = table.refusal(command);
        assert!(message.contains(expected), "{command:?}: {message}");
    }
}

#[test]
fn scripts_lead_to_their_interpreter() {
    let mut table = machine();
    table.add("/script", Node::Executable, b"#! /bin/good -a b \nbody");
    table.add("/outer", Node::Executable, b"#!/script\n");
    table.add("/loop", Node::Executable, b"#!/loop\n");
    table.add("/orphan", Node::Executable, b"#!/bin/nothing\n");
    table.add("/empty", Node::Executable, b"#!\n");
    let command = ["/outer".into(), "1".into()];
    let resolved = program::resolve(&table, &command, None).expect("a program");
    assert_eq!(resolved.elf, Path::new("/bin/good"));
    let arguments = ["/bin/good", "-a b", "/script", "/outer", "1"];
    assert_eq!(resolved.arguments, arguments.map(OsString::from));
    assert_eq!(resolved.name, "outer");
    table.add("/enved", Node::Executable, b"#!/usr/bin/env good\n");
    let resolved =
        program::resolve(&table, &["/enved".into(), "x".into()], None).expect("a program");
    assert_eq!(resolved.arguments, ["/bin/good", "/enved", "x"].map(OsString::from));
    assert!(table.refusal(&["/loop"]).contains("form a loop"));
    let message = table.refusal(&["/orphan"]);
    assert!(message.contains("/orphan") && message.contains("/bin/nothing"), "{message}");
    assert!(table.refusal(&["/empty"]).contains("neither an ELF program nor a script"));
}

#[test]
fn a_missing_qemu_names_the_command_that_gets_one() {
    let mut table = machine();
    table.nodes.remove(Path::new("/usr/bin/qemu-x86_64"));
    let error = table.plan(&["good"]).expect_err("a refusal");
    assert!(matches!(error, RecordError::NoQemu { .. }), "{error}");
    assert!(error.to_string().ends_with("; get one with `scripts/qemu.sh`"), "{error}");
}

#[test]
fn a_qemu_built_for_folio_is_used_where_that_of_path_has_no_plugins() {
    let mut table = machine();
    let built = "/opt/folio/lib/largefolio/qemu-x86_64";
    table.add(built, Node::Executable, b"");
    let qemu = |table: &Table| {
        let plan = table.plan(&["good"]).expect("a plan");
        plan.emulator().qemu.clone()
    };
    assert_eq!(qemu(&table), Path::new("/usr/bin/qemu-x86_64"));
    table.qemu_complaint = WITHOUT_PLUGINS.to_owned();
    assert_eq!(qemu(&table), Path::new(built));
    table.nodes.remove(Path::new("/usr/bin/qemu-x86_64"));
    assert_eq!(qemu(&table), Path::new(built));

    table.qemu = Some("/elsewhere/qemu".into());
    let error = table.plan(&["good"]).expect_err("a refusal").to_string();
    assert!(error.contains("LARGEFOLIO_QEMU=/elsewhere/qemu"), "{error}");
    table.add("/elsewhere/qemu", Node::Executable, b"");
    table.add("/usr/bin/qemu-x86_64", Node::Executable, b"");
    let table = Table { qemu_complaint: WITH_PLUGINS.to_owned(), ..table };
    assert_eq!(qemu(&table), Path::new("/elsewhere/qemu"));
}

#[test]
fn the_command_that_gets_a_qemu_is_the_installed_script() {
    let mut table = machine();
    table.qemu_complaint = WITHOUT_PLUGINS.to_owned();
    table.add("/opt/folio/lib/largefolio/qemu.sh", Node::Executable, b"");
    let error = table.plan(&["good"]).expect_err("a refusal").to_string();
    let expected = "/usr/bin/qemu-x86_64: built without plugins; get a QEMU that has them with \
        `/opt/folio/lib/largefolio/qemu.sh`";
    assert_eq!(error, expected);
}

#[test]
fn a_missing_plugin_is_searched_where_the_message_says() {
    let mut table = machine();
    table.nodes.remove(Path::new("/opt/folio/bin/liblargefolio_recorder.so"));
    let error = table.plan(&["good"]).expect_err("a refusal").to_string();
    assert!(error.contains("/opt/folio/lib/largefolio"), "{error}");
    table.add("/opt/folio/lib/largefolio/liblargefolio_recorder.so", Node::Plain, b"");
    assert!(table.plan(&["good"]).is_ok());
    table.plugin = Some("/elsewhere.so".into());
    let error = table.plan(&["good"]).expect_err("a refusal").to_string();
    assert!(error.contains("LARGEFOLIO_RECORDER=/elsewhere.so"), "{error}");
}

#[test]
fn a_plugin_that_others_could_have_written_is_not_loaded() {
    let table = Table { is_bin_open: true, ..machine() };
    let error = table.plan(&["good"]).expect_err("a refusal").to_string();
    assert!(error.contains("/opt/folio/bin (everyone can write to it)"), "{error}");
}

#[test]
fn a_file_is_trusted_by_the_owners_and_modes_on_its_way() {
    let folder = tempfile::tempdir().expect("a directory");
    let file = folder.path().join("file");
    std::fs::write(&file, "").expect("a file");
    assert_eq!(Host.distrust(&file), None);
    for path in [file.as_path(), folder.path()] {
        let before = path.metadata().expect("a mode").permissions();
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o777)).expect("a mode");
        let result = format!("everyone can write to {}", path.display());
        assert_eq!(Host.distrust(&file), Some(result));
        std::fs::set_permissions(path, before).expect("a mode");
    }
    assert!(Host.distrust(Path::new("/nonexistent")).is_some());
}

#[test]
fn an_unwritable_output_is_found_before_the_program_starts() {
    let directory = tempfile::tempdir().expect("a directory");
    let command = [OsString::from("good")];
    for output in ["/nonexistent/x.folio", directory.path().to_str().expect("utf-8")] {
        let output = Some(Path::new(output));
        let request = RecordRequest { command: &command, output, ..RecordRequest::default() };
        let refused = Recording::in_environment(&machine(), &request);
        assert!(matches!(refused, Err(RecordError::Output { .. })), "{output:?}: {refused:?}");
    }
    let request = RecordRequest { command: &command, ..RecordRequest::default() };
    let plan = Recording::in_environment(&machine(), &request).expect("a plan");
    assert_eq!(plan.output(), Path::new("good.folio"));
}

#[test]
fn commas_are_doubled_for_qemu() {
    assert_eq!(escape_commas(OsStr::new("/a,b/c")), "/a,,b/c");
}

//! Records a real program on the running kernel. Needs root; prints a message if it skips.

use std::fs;

use largefolio_lab::crosscheck::record::{
    CrosscheckError, Disk, Facts, Filesystem, ProgramPlan, ProgramRecorder,
};

use crate::turn::{self, Turn};

fn plan(words: &[&str]) -> ProgramPlan {
    ProgramPlan {
        command: words.iter().map(Into::into).collect(),
        filesystem: Filesystem::Ext4,
        window_kb: 128,
        disk: Disk::Best,
    }
}

fn recorder() -> Option<(Turn, ProgramRecorder)> {
    // The tests of workloads use the same tracefs instance of this process.
    let turn = turn::alone();
    match ProgramRecorder::new(Facts::of_host(), "sudo cargo test") {
        Ok(recorder) => Some((turn, recorder)),
        Err(error) if is_refusal(&error) => None,
        Err(error) => panic!("{error}"),
    }
}

/// Whether the system refuses an operation that only privileged root may do.
pub(crate) fn is_refusal(error: &CrosscheckError) -> bool {
    let is_refused = matches!(
        error,
        CrosscheckError::NotRoot(_)
            | CrosscheckError::NotPermitted { .. }
            | CrosscheckError::NoTracefs
            | CrosscheckError::PidNamespace
            | CrosscheckError::NoEvent(_)
            | CrosscheckError::NoFilesystem(_)
            | CrosscheckError::NoLoop(_)
            | CrosscheckError::Mount { .. }
    );
    if is_refused {
        largefolio_testkit::skipped!("{error}");
    }
    is_refused
}

#[test]
fn a_program_is_recorded_with_its_files_and_leaves_nothing_behind() {
    let Some((_turn, recorder)) = recorder() else { return };
    let mounts = || fs::read_to_string("/proc/self/mountinfo").unwrap();
    let before = mounts();
    let recording = match recorder.record(&plan(&["sh", "-c", "exec cat /etc/passwd > /dev/null"]))
    {
        Err(error) if is_refusal(&error) => return,
        result => result.unwrap(),
    };
    assert!(recording.status.success());
    assert_eq!(mounts(), before);
    let text = recording.text;
    assert!(text.starts_with("# kernel="), "{text}");
    for name in ["/libc.so", "/ld-", "/etc/passwd"] {
        assert!(text.lines().any(|line| line.starts_with("I ") && line.contains(name)), "{name}");
    }
    for start in ["O ", "B ", "N ", "U ", "Q ", "T ", "H "] {
        assert!(text.lines().any(|line| line.starts_with(start)), "no line {start}\n{text}");
    }
    assert!(text.ends_with("E 0\n"));
}

#[test]
fn what_cannot_be_started_is_named() {
    let Some((_turn, recorder)) = recorder() else { return };
    let error = recorder.record(&plan(&["no-such-program"])).unwrap_err().to_string();
    assert!(error.starts_with("no-such-program: not found"), "{error}");
}

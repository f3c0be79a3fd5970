//! Completion scripts are valid in their shells, and bash completes with its script.

use std::fs;
use std::process::Command;

use crate::support::{Place, text};

fn completions(place: &Place, args: &[&str]) -> Vec<String> {
    fs::write(place.path("folio.bash"), place.done("completions bash")).unwrap();
    // Calls the function that the script registers, as readline does.
    let script = "source ./folio.bash
        function=$(complete -p folio | sed -E 's/.* -F ([^ ]+).*/\\1/')
        COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); COMP_LINE=\"$*\"; COMP_POINT=${#COMP_LINE}
        $function folio \"${COMP_WORDS[COMP_CWORD]}\" \"${COMP_WORDS[COMP_CWORD - 1]}\"
        printf '%s\\n' \"${COMPREPLY[@]}\"";
    let mut bash = Command::new("bash");
    bash.args(["--norc", "-c", script, "bash"]).args(args).current_dir(place.0.path());
    let output = bash.output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", text(&output.stderr));
    let lines = text(&output.stdout);
    lines.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

#[test]
fn bash_completes_verbs_options_and_values() {
    let place = Place::new();
    assert_eq!(completions(&place, &["folio", "pre"]), ["predict"]);
    assert_eq!(completions(&place, &["folio", "c"]), ["collapse", "calibrate", "completions"]);
    assert_eq!(completions(&place, &["folio", "trace", "gen", "z"]), ["zipf"]);
    assert_eq!(completions(&place, &["folio", "predict", "--mach"]), ["--machine"]);
    assert_eq!(completions(&place, &["folio", "run", "--text", "re"]), ["remap"]);
    assert!(completions(&place, &["folio", "zzz"]).is_empty());
}

#[test]
fn bash_completes_kernels_machines_and_policies() {
    let place = Place::new();
    assert_eq!(completions(&place, &["folio", "predict", "--kernel", "5."]), ["5.14", "5.15"]);
    assert_eq!(
        completions(&place, &["folio", "predict", "--machine", "gra"]),
        ["grace-4k", "grace-64k", "grace-hpa", "graviton3", "graviton4"]
    );
    let args = ["folio", "maps", "--kernel", "7."];
    assert_eq!(completions(&place, &args), ["7.0", "7.1", "7.2", "7.3"]);
    for verb in ["verify", "calibrate"] {
        assert_eq!(completions(&place, &["folio", verb, "--machine", "thi"]), ["this"], "{verb}");
    }
    assert_eq!(
        completions(&place, &["folio", "predict", "--policy", "p"]),
        ["per-program", "pressure"]
    );
    // A file is not among the names: the script leaves it to the shell.
    assert!(completions(&place, &["folio", "predict", "--machine", "./mine"]).is_empty());
    assert!(place.done("completions bash").contains("-o bashdefault -o default folio"));
}

#[test]
fn every_shell_reads_its_script() {
    let place = Place::new();
    for (shell, arguments) in [("bash", &["-n"][..]), ("zsh", &["-n"]), ("fish", &["--no-execute"])]
    {
        let file = place.path(shell);
        fs::write(&file, place.done(&format!("completions {shell}"))).unwrap();
        let Ok(output) = Command::new(shell).args(arguments).arg(&file).output() else {
            largefolio_testkit::skipped!("no {shell}: apt-get install {shell}");
            continue;
        };
        let printed = text(&output.stdout) + &text(&output.stderr);
        assert!(output.status.success() && printed.is_empty(), "{shell}: {printed}");
    }
    for shell in ["elvish", "powershell"] {
        assert!(place.done(&format!("completions {shell}")).contains("collapse"), "{shell}");
    }
    assert!(place.fails("completions csh").contains("possible values"));
}

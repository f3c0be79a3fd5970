//! `folio advise`.

use serde_json::Value;

use crate::support::{Place, text};

#[test]
fn the_plan_is_certain_to_help() {
    let place = Place::with_trace();
    let output = place.run("advise mix.folio --goal faults --memory-growth 10000 --json");
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    let candidates = advice["candidates"].as_array().unwrap();
    assert_eq!(candidates[0]["choices"].as_array().unwrap().len(), 0);
    assert!(candidates.len() > 1, "{advice}");
    let faults = |nr: usize| candidates[nr]["faults"].as_u64().unwrap();
    let fewest = (0..candidates.len()).map(faults).min().unwrap();
    let Some(nr) = advice["plan"]["candidate"].as_u64() else {
        assert_eq!((output.status.code(), fewest), (Some(1), faults(0)), "{advice}");
        return;
    };
    assert_eq!(output.status.code(), Some(0));
    let chosen = faults(usize::try_from(nr).unwrap());
    // Within a twentieth of the best saving.
    assert!(20 * (chosen - fewest) <= faults(0) - fewest, "{chosen} {fewest}");
    let shown = place.done("advise mix.folio --goal faults --memory-growth 10000");
    assert!(shown.contains("\nBest for faults: "), "{shown}");
    assert!(
        shown.contains("to prove it: ") && shown.contains("folio verify --runs 20 "),
        "{shown}"
    );
    let csv = place.done("advise mix.folio --goal faults --memory-growth 10000 --csv");
    assert_eq!(csv.lines().count(), candidates.len() + 1);
    assert_eq!(csv.lines().filter(|line| line.ends_with(",true")).count(), 1);
}

#[test]
fn unadvisable_requests_have_helpful_errors() {
    let place = Place::with_trace();
    let stderr = place.fails("advise gone.folio");
    assert!(stderr.contains("folio record --runs 3 -o gone.folio -- CMD"), "{stderr}");
    assert!(place.fails("advise").contains("<TRACE|PID|NAME>"));
    assert!(place.fails("advise mix.folio --goal speed").contains("choose time, memory or faults"));
    assert!(place.fails("advise mix.folio --memory-growth=-1").contains("percent"));
    let stderr = place.fails("advise mix.folio --apply --json");
    assert!(stderr.contains("only print the advice"), "{stderr}");
    // Run as nobody: a command that is not refused would change this machine.
    let output =
        place.command_of_nobody("advise mix.folio --unit nosuch --apply").output().unwrap();
    let stderr = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{stderr}");
    assert!(stderr.contains("there is no such service"), "{stderr}");
    let stderr = place.fails("advise nosuchname");
    assert!(stderr.contains("no process is called nosuchname"), "{stderr}");
    std::fs::write(place.path("true.folio"), "mine").unwrap();
    let stderr = place.fails("advise -- true");
    assert!(
        stderr.contains("true.folio already exists") && stderr.contains("remove the file first"),
        "{stderr}"
    );
    assert_eq!(std::fs::read(place.path("true.folio")).unwrap(), b"mine");
    let stderr = place.fails("advise -- /no/such/program");
    assert!(stderr.contains("/no/such/program"), "{stderr}");
}

/// A process takes precedence over a directory or non-trace file of its name; a trace takes
/// precedence over both.
#[test]
fn processes_have_precedence_over_files_that_are_no_trace() {
    let place = Place::with_trace();
    let mut sleeps: Vec<std::process::Child> =
        (0..2).map(|_| std::process::Command::new("sleep").arg("600").spawn().unwrap()).collect();
    let pids: Vec<String> = sleeps.iter().map(|sleep| sleep.id().to_string()).collect();
    let advised_pids = |args: &str| {
        let output = place.run(&format!("advise --json {args}"));
        let stderr = text(&output.stderr);
        let Ok(advice) = serde_json::from_slice::<Value>(&output.stdout) else {
            panic!("{args}: {stderr}")
        };
        let processes = advice["processes"].as_array().unwrap().clone();
        processes.iter().map(|one| one[1].to_string()).collect::<Vec<_>>()
    };
    let has_both = |advised: &[String]| pids.iter().all(|pid| advised.contains(pid));
    assert_eq!(advised_pids(&pids.join(" ")).len(), 2);
    assert!(has_both(&advised_pids(&pids.join(","))));
    assert!(has_both(&advised_pids("--name sleep")) && has_both(&advised_pids("sleep")));
    std::fs::create_dir(place.path("sleep")).unwrap();
    assert!(has_both(&advised_pids("sleep")), "a directory is not a trace");
    std::fs::remove_dir(place.path("sleep")).unwrap();
    std::fs::write(place.path("sleep"), "no trace").unwrap();
    assert!(has_both(&advised_pids("sleep")), "nor is this file");
    std::fs::copy(place.path("mix.folio"), place.path("sleep")).unwrap();
    let output = place.run("advise --goal faults --json sleep");
    let advice: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(advice["candidates"].is_array(), "a trace is one whatever it is called: {advice}");
    for sleep in &mut sleeps {
        sleep.kill().unwrap();
        sleep.wait().unwrap();
    }
    for (args, expected) in [
        ("advise 1 sh", "by PID or by name"),
        ("advise mix.folio 1", "mix.folio is a trace"),
        ("advise --name nosuchname", "no process is called nosuchname"),
        ("advise --unit nosuch.service", "nosuch.service"),
        ("advise --name sh 1", "cannot be used with"),
    ] {
        let stderr = place.fails(args);
        assert!(stderr.contains(expected), "{args}: {stderr}");
    }
}

#[test]
fn nothing_changes_without_apply() {
    let place = Place::with_trace();
    let settings = || {
        let json: Value = serde_json::from_slice(&place.run("tune --json").stdout).unwrap();
        json["rows"].clone()
    };
    let before = settings();
    place.run("advise mix.folio");
    assert_eq!(settings(), before);
}

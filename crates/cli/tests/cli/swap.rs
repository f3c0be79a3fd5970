//! Every verb that reads or writes a file, while another thread swaps the names: no file outside is
//! written, and no device is opened.

use std::fs;
use std::process::Stdio;

use largefolio_testkit::swap::Swap;

use crate::support::{Place, copy_program};

/// Command lines; `@` is the attacked name. Each ends by itself, whatever it finds.
const VERBS: [&str; 20] = [
    "maps PID --openmetrics @",
    "maps PID --report @",
    "maps --file @",
    "maps --elf @",
    "maps --diff @",
    "predict mix.folio --kernel 6.18 --machine zen4 --json -o @",
    "predict mix.folio --kernel 6.18 --machine zen4 --report @",
    "predict @ --kernel 6.18 --machine zen4",
    "predict mix.folio --kernel @ --machine zen4",
    "predict mix.folio --kernel 6.18 --policy @",
    "trace gen zipf --files 1 --file-size 1M --runs 100 -o @",
    "trace info @",
    "trace cat @",
    "align true -o @",
    "align @ -o copy",
    "warm @",
    "warm --check @",
    "run --text large -- @",
    "tune --profile @",
    "calibrate --check --machine @",
];

/// Command lines that take a second or more.
const SLOW: [&str; 3] = [
    "record -o @ -- true",
    "calibrate --quick -o @",
    "verify --text large --rounds 1 --report @ -- true",
];

#[test]
fn no_exchange_of_names_reaches_anything_else() {
    let place = Place::with_trace();
    copy_program("/bin/true", place.path("true"));
    let is_whole = largefolio_testkit::is_whole();
    let nr_runs = if is_whole { 60 } else { 2 };
    let slow = SLOW.iter().filter(|_| is_whole);
    for verb in VERBS.iter().chain(slow) {
        let sample = fs::read(place.path(if verb.contains("mix") { "mix.folio" } else { "true" }));
        let swap = Swap::begin(&sample.unwrap());
        let target = swap.target();
        let args = verb.replace("PID", &std::process::id().to_string());
        for nr in 0..nr_runs {
            let mut command = place.command("");
            command.args(args.split(' ').map(|word| match word {
                "@" => target.as_os_str(),
                word => word.as_ref(),
            }));
            let status = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            let status = status.status().unwrap();
            assert!(status.code().is_some_and(|code| code != 101), "{verb}: {status}");
            if let Some(harm) = swap.harm() {
                panic!("{verb}: {harm} (run {nr})");
            }
        }
    }
}

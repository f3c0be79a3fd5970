//! `--report` of `maps` and `verify`: the file, its data, hostile names, and
//! each page in a real browser.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Child, Command};

use largefolio_testkit::browser::{browser, printed, probed};
use serde_json::Value;

use crate::support::{Place, text};

/// A name that would do harm as HTML, script or attribute.
const HOSTILE: &str =
    "<script>window.harmed=1<&quot;'><img src=x onerror=\"window.harmed=1\">\u{202e}";

fn page(place: &Place, name: &str) -> String {
    let page = fs::read_to_string(place.path(name)).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    assert!(page.len() < 3 << 20, "{name}: {} bytes", page.len());
    page
}

fn data(page: &str) -> Value {
    let (_, data) = page.split_once("id=\"result\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

/// The page is complete without scripts: numbers match the data, and each figure has marks and a
/// table.
fn read_without_scripts(page: &str, nr_figures: usize) {
    let json = data(page);
    let (body, rest) = page.split_once("<script type=\"application/json\"").unwrap();
    assert!(!body.contains("<img") && !body.contains("<script"), "a name became an element");
    assert!(!body.contains(['\u{1b}', '\u{202e}', '\u{0}']), "a control character came through");
    assert_eq!(rest.matches("</script>").count(), 2, "a name ended the data");
    let figures: Vec<&str> = body.split("<figure").skip(1).collect();
    assert!(figures.len() >= nr_figures, "{} figures", figures.len());
    for figure in figures {
        let figure = figure.split("</figure>").next().unwrap();
        assert!(figure.contains("<svg") && figure.contains("<table"), "{figure}");
    }
    for number in body.split("<data value=\"").skip(1) {
        let (value, rest) = number.split_once("\" data-at=\"").unwrap();
        let at = rest.split('"').next().unwrap();
        let expected = json.pointer(at).unwrap_or_else(|| panic!("nothing at {at}"));
        let (value, expected) = (value.parse::<f64>().unwrap(), expected.as_f64().unwrap());
        assert!((value - expected).abs() <= expected.abs() * 1e-12, "{at}: {value}");
    }
}

/// In a wide and a narrow window, and on paper.
fn use_in_a_browser(page: &str) {
    let Some(browser) = browser() else { return };
    for width in [1200, 390] {
        let probe: Value = serde_json::from_str(&probed(browser, page, width)).unwrap();
        assert_eq!(probe["wrong"], Value::Array(Vec::new()), "{probe}");
        assert_eq!(probe["seen"]["width"], width);
        assert!(probe["seen"]["pictures"].as_u64().unwrap() > 0, "{probe}");
        assert!(probe["seen"]["tips"].as_u64().unwrap() > 0, "{probe}");
    }
    let pdf = printed(browser, page);
    assert!(pdf.starts_with(b"%PDF") && pdf.len() > 10_000, "{} bytes", pdf.len());
}

struct Sleeper(Child);

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_page_of_processes_and_files() {
    if fs::File::open("/proc/kpageflags").is_err() {
        largefolio_testkit::skipped!("PFNs need root");
        return;
    }
    let (place, sleeper) =
        (Place::new(), Sleeper(Command::new("sleep").arg("1000").spawn().unwrap()));
    fs::write(place.path("some.data"), vec![1_u8; 3 << 20]).unwrap();
    let args = format!("maps {} --file some.data --json --report page.html", sleeper.0.id());
    let printed: Value = serde_json::from_str(&place.done(&args)).unwrap();
    let page = page(&place, "page.html");
    let json = data(&page);
    assert_eq!(json["nr_processes"], 1);
    let sum = |cells: &Value| {
        let cells = cells.as_array().unwrap().iter();
        cells.map(|cell| cell["mapped_bytes"].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(json["total"]["mapped_bytes"], sum(&printed["totals"]));
    assert_eq!(json["files"][0]["mapped_bytes"], 3 << 20);
    let strips = json["strips"].as_array().unwrap();
    let file = strips.iter().find(|strip| strip["is_file"] == true).unwrap();
    assert_eq!(file["nr_pages"], 768);
    let nr_run_pages = |strip: &Value| {
        let runs = strip["runs"].as_array().unwrap().iter();
        runs.map(|run| run[1].as_u64().unwrap()).sum::<u64>()
    };
    assert_eq!(nr_run_pages(file), 768, "all the file's pages are drawn");
    assert!(strips.len() > 3 && page.contains("libc.so.6"), "{strips:?}");
    read_without_scripts(&page, 4);
    use_in_a_browser(&page);
}

#[test]
fn a_page_of_the_whole_system_is_bounded() {
    let place = Place::new();
    let output = place.run("maps --all --report page.html");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let page = page(&place, "page.html");
    assert!(data(&page)["processes"].as_array().unwrap().len() <= 24);
    read_without_scripts(&page, 2);
    use_in_a_browser(&page);
}

#[test]
fn writes_a_page_of_programs_with_non_utf8_names() {
    let place = Place::new();
    fs::copy("/bin/true", place.path("harmless")).unwrap();
    let hostile = [HOSTILE.as_bytes(), b"\x1b[31m\xff\xfe</script>"].concat();
    let hostile: Vec<u8> = hostile.into_iter().filter(|byte| *byte != b'/').collect();
    fs::copy("/bin/true", place.path("harmless").with_file_name(OsStr::from_bytes(&hostile)))
        .unwrap();
    let output = place
        .command("maps --report page.html --json --elf harmless")
        .arg(OsStr::from_bytes(&hostile))
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let page = page(&place, "page.html");
    assert_eq!(data(&page)["files"], printed["files"]);
    read_without_scripts(&page, 2);
    use_in_a_browser(&page);
}

#[test]
fn a_page_of_a_verdict_has_every_round() {
    let place = Place::new();
    let args = "verify --env X=1 --runs 4 --margin 50 --json --report page.html -- true";
    let output = place.run(args);
    let printed: Value = serde_json::from_slice(&output.stdout).unwrap();
    let rounds = printed["rounds"].as_array().unwrap();
    assert_eq!(rounds.len(), 4);
    for (nr, round) in (1..).zip(rounds) {
        let ns = |arm: &str| round[arm]["wall_ns"].as_f64().unwrap();
        assert_eq!(round["nr"], nr);
        let ratio = round["ratio"].as_f64().unwrap();
        assert!((ratio - ns("changed") / ns("plain")).abs() < 1e-12, "{round}");
    }
    let page = page(&place, "page.html");
    assert_eq!(data(&page), printed);
    assert!(page.contains("rounds are too few"), "a doubt with its remedy");
    read_without_scripts(&page, 3);
    use_in_a_browser(&page);
}

#[test]
fn refuses_an_unwritable_page_before_the_work() {
    let place = Place::with_trace();
    // If the command ran, it would create a file.
    for args in [
        "verify --heap 64K --report nowhere/page.html -- touch made",
        "predict mix.folio --report nowhere/page.html",
        "maps --all --report nowhere/page.html",
        "maps --elf /bin/true --report nowhere/page.html",
    ] {
        let stderr = place.fails(args);
        assert!(stderr.contains("cannot write nowhere/page.html"), "{args}: {stderr}");
        assert!(stderr.contains("choose another place with --report"), "{args}: {stderr}");
    }
    assert!(!place.path("made").exists());
    let stderr = place.fails("maps --all --watch --report page.html");
    assert!(stderr.contains("--watch repeats"), "{stderr}");
    assert!(!place.path("page.html").exists());
}

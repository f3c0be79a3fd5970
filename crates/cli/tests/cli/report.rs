//! `folio predict --report`.

use std::fs;

use serde_json::Value;

use crate::support::Place;

fn data(place: &Place, name: &str) -> Value {
    let page = fs::read_to_string(place.path(name)).unwrap();
    assert!(page.starts_with("<!DOCTYPE html>") && page.ends_with("</html>\n"));
    let (_, data) = page.split_once("id=\"result\">").unwrap();
    serde_json::from_str(data.split_once("</script>").unwrap().0).unwrap()
}

#[test]
fn the_page_has_the_same_numbers_as_the_result() {
    let place = Place::with_trace();
    let args = "predict mix.folio --kernel 6.12,7.2 --report page.html --json";
    let printed: Value = serde_json::from_str(&place.done(args)).unwrap();
    assert_eq!(data(&place, "page.html"), printed);
    assert!(printed["rows"][0]["detail"]["areas"].as_array().unwrap().len() > 1);
    let plain = place.done("predict mix.folio --kernel 6.12,7.2 --json");
    let plain: Value = serde_json::from_str(&plain).unwrap();
    assert_eq!(plain["rows"][1]["detail"], Value::Null);
    assert_eq!(plain["rows"][1]["faults"], printed["rows"][1]["faults"]);
}

#[test]
fn one_cell_and_twelve_make_a_page() {
    let place = Place::with_trace();
    for (args, nr_rows) in
        [("--kernel 6.12", 1), ("--kernel 6.1,6.12,6.18,7.2 --machine altra,zen4,grace-64k", 12)]
    {
        place.done(&format!("predict mix.folio {args} --report page.html"));
        assert_eq!(data(&place, "page.html")["rows"].as_array().unwrap().len(), nr_rows);
    }
    let first = fs::read(place.path("page.html")).unwrap();
    let args = "--kernel 6.1,6.12,6.18,7.2 --machine altra,zen4,grace-64k";
    place.done(&format!("predict mix.folio {args} --report page.html"));
    assert_eq!(fs::read(place.path("page.html")).unwrap(), first, "a page is replaced as it was");
}

#[test]
fn a_page_cannot_replace_the_trace_or_the_result() {
    let place = Place::with_trace();
    assert!(place.fails("predict mix.folio --report .").contains("cannot write ."));
    let before = fs::read(place.path("mix.folio")).unwrap();
    let stderr = place.fails("predict mix.folio --report ./mix.folio");
    assert!(stderr.contains("is the input trace"), "{stderr}");
    assert_eq!(fs::read(place.path("mix.folio")).unwrap(), before);
    let stderr = place.fails("predict mix.folio --csv -o a.html --report a.html");
    assert!(stderr.contains("--output and --report both name a.html"), "{stderr}");
    assert!(!place.path("a.html").exists());
}

#[test]
fn a_broken_trace_leaves_no_page() {
    let place = Place::with_trace();
    fs::write(place.path("broken.folio"), b"PAR1 no trace").unwrap();
    place.fails("predict broken.folio --report page.html");
    place.fails("predict missing.folio --report page.html");
    assert!(!place.path("page.html").exists());
}

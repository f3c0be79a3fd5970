//! `folio-lab bench`.

use crate::support::Place;

#[test]
fn stubs_are_called_from_every_backing_and_the_table_is_whole() {
    let place = Place::new();
    let words = "bench exec --region 4M --calls 1000 --rounds 2 --dir .";
    let said = place.done(&format!("{words} --phase cold,mapped,random"));
    for expected in ["file-4K", "file-large", "memfd-collapse", "PMD entries map", "series 002"] {
        assert!(said.contains(expected), "{expected}: {said}");
    }
    let csv = place.done(&format!("{words} --csv --backing file-4K,memfd-4K"));
    assert_eq!(csv.lines().count(), 1 + 2 * 2, "{csv}");
    let said = place.fails("bench exec --region 5M");
    assert!(said.contains("multiple of 2M"), "{said}");
    let said = place.fails("bench exec --region 4M --dir nowhere");
    assert!(said.contains("--dir"), "{said}");
}

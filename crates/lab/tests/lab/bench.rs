//! `folio-lab bench`.

use crate::support::Place;

#[test]
fn stubs_are_called_from_every_backing_and_the_table_is_whole() {
    let place = Place::new();
    let command = "bench exec --region 4M --calls 1000 --rounds 2 --dir .";
    let message = place.done(&format!("{command} --phase cold,mapped,random"));
    for expected in ["file-4K", "file-large", "memfd-collapse", "PMD entries map", "series 002"] {
        assert!(message.contains(expected), "{expected}: {message}");
    }
    let csv = place.done(&format!("{command} --csv --backing file-4K,memfd-4K"));
    assert_eq!(csv.lines().count(), 1 + 2 * 2, "{csv}");
    let message = place.fails("bench exec --region 5M");
    assert!(message.contains("multiple of 2M"), "{message}");
    let message = place.fails("bench exec --region 4M --dir nowhere");
    assert!(message.contains("--dir"), "{message}");
}

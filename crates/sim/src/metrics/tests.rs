use std::collections::BTreeSet;

use serde_json::Value as Json;

use super::{Metric, Value, numbers, table};
use crate::replay::Outcome;

#[test]
fn each_metric_has_its_own_path_and_names() {
    for name in [|of: &Metric| of.path.to_owned(), Metric::csv_name, Metric::frame_name] {
        let names: Vec<String> = table::all().map(name).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    }
}

/// M1, for numbers that every row has.
#[test]
fn each_count_is_at_its_path_in_the_json() {
    let mut row = Outcome::default();
    row.tlb.data.references = 1;
    row.nodes = Some(crate::replay::outcome::Nodes::default());
    row.hugetlb = Some(crate::replay::outcome::Hugetlb::default());
    row.processes = Some(crate::replay::programs::ManyProcesses::default());
    let json = serde_json::to_value(&row).unwrap();
    for metric in table::all().filter(|metric| !metric.path.contains(".causes.")) {
        let pointer = format!("/{}", metric.path.replace('.', "/"));
        let at = json.pointer(&pointer);
        match metric.value {
            Value::Count(of) => assert_eq!(at, Some(&Json::from(of(&row))), "{pointer}"),
            Value::Known(of) => assert_eq!(at, Some(&of(&row).into()), "{pointer}"),
            Value::Sizes(_) | Value::Names(..) => assert!(at.is_some_and(Json::is_object)),
            // Absent together with the interval or the groups that have them.
            Value::Real(_) | Value::Rounded(..) | Value::Groups(_) => {}
        }
    }
    assert!(numbers(&row).len() > 100);
}

/// Returns the schema of the number at `path` below a row.
fn described<'a>(schema: &'a Json, path: &str) -> Option<&'a Json> {
    let mut at = &schema["$defs"]["Outcome"];
    for step in path.split('.') {
        let of = at.pointer("/anyOf/0").unwrap_or(at);
        let of = match of["$ref"].as_str() {
            Some(name) => schema.pointer(name.strip_prefix('#')?)?,
            None => of,
        };
        at = of["properties"].get(step).or_else(|| of.get("additionalProperties"))?;
    }
    Some(at)
}

#[test]
fn each_metric_is_described_in_the_schema() {
    let schema = include_str!("../../../../schemas/predict.json");
    let schema: Json = serde_json::from_str(schema).unwrap();
    let missing: Vec<&str> = table::all()
        .filter(|metric| {
            let wanted = match metric.value {
                Value::Count(_) | Value::Known(_) => "integer",
                Value::Real(_) | Value::Rounded(..) => "number",
                Value::Sizes(_) | Value::Names(..) => "object",
                Value::Groups(_) => "array",
            };
            described(&schema, metric.path).is_none_or(|of| {
                let is_of_type = of["type"] == wanted || of["type"][0] == wanted;
                !is_of_type || !of["description"].is_string()
            })
        })
        .map(|metric| metric.path)
        .collect();
    assert!(missing.is_empty(), "describe these in schemas/predict.json: {missing:?}");
}

//! A JSON schema that allows no further fields. The tests of `folio-lab` use it too.

use jsonschema::Validator;
use serde_json::Value;

pub(crate) struct Closed(Validator);

impl Closed {
    pub(crate) fn new(name: &str, mut schema: Value) -> Self {
        jsonschema::meta::validate(&schema).unwrap_or_else(|fault| panic!("{name}: {fault}"));
        close(&mut schema);
        Self(jsonschema::validator_for(&schema).unwrap())
    }

    pub(crate) fn faults(&self, value: &Value) -> Vec<String> {
        let faults = self.0.iter_errors(value);
        faults.map(|fault| format!("{}: {fault}", fault.instance_path())).take(5).collect()
    }
}

fn close(schema: &mut Value) {
    match schema {
        Value::Object(keys) => {
            keys.values_mut().for_each(close);
            if keys.contains_key("properties") && !keys.contains_key("additionalProperties") {
                keys.insert("additionalProperties".to_owned(), false.into());
            }
        }
        Value::Array(items) => items.iter_mut().for_each(close),
        _ => {}
    }
}

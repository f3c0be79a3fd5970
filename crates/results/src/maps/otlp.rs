//! `--otlp`: metrics for `OpenTelemetry`, one `ExportMetricsServiceRequest` per line.
//!
//! The form is OTLP/JSON 1.x, which the collector's otlpjsonfile receiver reads and its HTTP
//! receiver accepts at `/v1/metrics`: protobuf's JSON mapping with names in lowerCamelCase, 64-bit
//! integers as strings and enums as numbers.

use std::time::Duration;

use serde_json::{Value as Json, json};

use super::metrics::{Family, Sample, Unit, Value, Whole};

/// `AGGREGATION_TEMPORALITY_CUMULATIVE`: a sample is the amount since `startTimeUnixNano`.
const CUMULATIVE: u32 = 2;

/// Where and when the metrics were read. Times are since 1970.
pub(super) struct Origin {
    pub(super) host: String,
    pub(super) release: String,
    /// Before it, no memory was mapped.
    pub(super) booted: Duration,
    pub(super) taken: Duration,
}

pub(super) fn of(families: &[Family], origin: &Origin) -> String {
    let version = env!("CARGO_PKG_VERSION");
    let attributes = [
        ("service.name", "folio"),
        ("service.version", version),
        ("host.name", &origin.host),
        ("os.type", "linux"),
        ("os.version", &origin.release),
    ];
    // A metric without data points would be an empty envelope.
    let families = families.iter().filter(|family| !family.samples.is_empty());
    let metrics: Vec<Json> = families.map(|family| metric(family, origin)).collect();
    let request = json!({"resourceMetrics": [{
        "resource": {"attributes": attributes.map(|(key, value)| attribute(key, value))},
        "scopeMetrics": [{
            "scope": {"name": "largefolio", "version": version},
            "metrics": metrics,
        }],
    }]});
    format!("{request}\n")
}

fn metric(family: &Family, origin: &Origin) -> Json {
    let start = (family.whole == Whole::Sum).then_some(origin.booted);
    let points: Vec<Json> =
        family.samples.iter().map(|sample| point(sample, start, origin.taken)).collect();
    let mut metric = json!({
        "name": family.name,
        "unit": unit(family.unit),
        "description": family.help,
    });
    match family.whole {
        Whole::Sum => {
            metric["sum"] = json!({
                "aggregationTemporality": CUMULATIVE,
                "isMonotonic": false,
                "dataPoints": points,
            });
        }
        Whole::Apart => metric["gauge"] = json!({"dataPoints": points}),
    }
    metric
}

fn point(sample: &Sample, start: Option<Duration>, taken: Duration) -> Json {
    let attributes: Vec<Json> =
        sample.labels.iter().map(|(key, value)| attribute(key, value)).collect();
    let mut point = json!({"attributes": attributes, "timeUnixNano": nanos(taken)});
    if let Some(start) = start {
        point["startTimeUnixNano"] = nanos(start).into();
    }
    match sample.value {
        Value::Count(count) => {
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            point["asInt"] = count.to_string().into();
        }
        Value::Ns(ns) => point["asDouble"] = Duration::from_nanos(ns).as_secs_f64().into(),
    }
    point
}

fn attribute(key: &str, value: &str) -> Json {
    json!({"key": key, "value": {"stringValue": value}})
}

fn nanos(since_epoch: Duration) -> String {
    since_epoch.as_nanos().to_string()
}

/// Returns the unit's name in UCUM.
const fn unit(unit: Unit) -> &'static str {
    match unit {
        Unit::Bytes => "By",
        Unit::Seconds => "s",
        Unit::Processes => "{process}",
        Unit::None => "1",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_strings_and_only_wholes_are_sums() {
        let origin = Origin {
            host: "h\"ost".to_owned(),
            release: "6.18".to_owned(),
            booted: Duration::from_secs(5),
            taken: Duration::from_millis(7_250),
        };
        let family = |name, unit, whole, samples| Family { name, unit, help: "?", whole, samples };
        let sample = |value| Sample { labels: vec![("size", "2M".to_owned())], value };
        let families = [
            family("sum", Unit::Bytes, Whole::Sum, vec![sample(Value::Count(1 << 60))]),
            family("gauge", Unit::Seconds, Whole::Apart, vec![sample(Value::Ns(1_500_000_000))]),
            family("empty", Unit::Processes, Whole::Sum, Vec::new()),
            family("huge", Unit::None, Whole::Apart, vec![sample(Value::Count(u64::MAX))]),
        ];
        let line = of(&families, &origin);
        assert_eq!(line.matches('\n').count(), 1);
        let json: Json = serde_json::from_str(&line).unwrap();
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap());
    }
}

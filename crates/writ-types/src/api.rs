//! Parameters and answers of the engine's methods, as JSON over every surface.
//!
//! The table of the methods themselves is `writ_runtime::methods`; clients and the HTTP API use the same types. A field is
//! written in the order in which it stands here.

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::IgnoredAny;
use serde::{Deserialize, Deserializer, Serialize};

pub mod status;

pub mod session;

pub mod project;

pub mod approval;
pub mod cassette;

pub mod budget;

pub mod context;

pub mod ledger;

pub mod key;

pub mod gate;

pub mod memory;

pub mod model;

pub mod file;

pub mod job;

pub mod tool;

pub mod fleet;

pub mod work;

pub mod pilot;

pub mod plan;

/// Parameters of a method that takes none. Any JSON is read as such: older clients send `null`, `{}` or fields that a
/// method had before.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NoParams {}

impl<'de> Deserialize<'de> for NoParams {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        IgnoredAny::deserialize(deserializer).map(|_| Self {})
    }
}

impl JsonSchema for NoParams {
    fn schema_name() -> std::borrow::Cow<'static, str> {
        "NoParams".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "properties": {} })
    }
}

/// The answer of a method that has nothing to report: an empty object.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct Acknowledgement {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_parameters_are_read_from_any_json() {
        for text in ["null", "{}", "{\"a\":1}", "[]", "3", "\"x\""] {
            assert_eq!(serde_json::from_str::<NoParams>(text).expect("read"), NoParams {}, "{text}");
        }
        assert_eq!(serde_json::to_string(&NoParams {}).expect("written"), "{}");
    }
}

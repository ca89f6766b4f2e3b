//! JSON Schemas of arguments, in the plain form that every provider accepts.

use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Value, json};
use writ_inspect::origin::THEN;

use crate::def::ToolDef;

impl ToolDef {
    /// Returns the schema for models: with [`THEN`], where results come from outside.
    pub(crate) fn told_schema(&self) -> Value {
        let mut schema = (self.schema)();
        if self.reads_outside()
            && let Some(properties) = schema.get_mut("properties").and_then(Value::as_object_mut)
        {
            properties.insert(THEN.to_owned(), then_schema());
        }
        schema
    }
}

/// Returns the schema of [`THEN`](writ_inspect::origin::THEN); its meaning is explained once, for all tools.
pub(crate) fn then_schema() -> Value {
    json!({ "type": "array", "items": { "type": "string" } })
}

/// The schema of a type: without references, titles, number formats and `null` types.
pub(crate) fn schema_of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        // References are inlined: some providers do not resolve them.
        settings.meta_schema = None;
        settings.inline_subschemas = true;
    });
    let mut schema = settings.into_generator().into_root_schema_for::<T>().to_value();
    // The type's own description is for readers of the code; the tool has one of its own.
    if let Some(object) = schema.as_object_mut() {
        object.shift_remove("description");
    }
    simplify_schema(&mut schema);
    schema
}

fn simplify_schema(schema: &mut Value) {
    let Some(object) = schema.as_object_mut() else { return };
    for key in ["title", "format"] {
        // A property may have such a name; then its value is a schema, not a text.
        if object.get(key).is_some_and(Value::is_string) {
            object.shift_remove(key);
        }
    }
    if let Some(Value::Array(types)) = object.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = types.as_slice() {
            let only = only.clone();
            object.insert("type".to_owned(), only);
        }
    }
    if object.get("default").is_some_and(Value::is_null) {
        object.shift_remove("default");
    }
    object.values_mut().for_each(simplify_schema);
}

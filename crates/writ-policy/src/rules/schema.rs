//! The schema that rules are validated against.

use writ_types::action::ActionKind;

/// The types of the schema; the guide for owners refers to this file.
const TYPES: &str = include_str!("schema.cedarschema");

/// Returns the schema of rules: its types, and for each kind an action with the same circumstances.
pub(super) fn schema_text() -> String {
    // Made of the table of kinds, so that no kind can be missing here.
    let kinds = ActionKind::ALL.map(ActionKind::as_str).join(", ");
    let shape = "{ principal: [Agent], resource: [Target], context: Circumstances }";
    format!("{TYPES}\naction {kinds} appliesTo {shape};\n")
}

//! From JSON Schema, as others write it, to a plain tree.

use std::collections::BTreeSet;

use serde_json::{Map, Number, Value, json};

/// The deepest part that is read; below, anything is taken. OpenAI takes ten levels in strict schemas.
const MAX_DEPTH: usize = 8;

/// A part of a schema.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Node {
    pub(super) description: String,
    pub(super) nullable: bool,
    pub(super) kind: Kind,
}

/// The values that a part takes.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Kind {
    /// Anything.
    #[default]
    Any,
    /// Texts; where `values` are named, these.
    Text { values: Vec<String>, format: Option<String>, length: Range },
    /// Numbers; where `values` are named, these.
    Number { is_integer: bool, values: Vec<Number>, range: Range },
    /// Truth values.
    Truth,
    /// Lists.
    List { items: Box<Node>, length: Range },
    /// Records.
    Object(Object),
    /// One of these, of which none is a choice itself.
    Choice(Vec<Node>),
}

/// The least and the most.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Range {
    pub(super) least: Option<Number>,
    pub(super) most: Option<Number>,
}

/// A record.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Object {
    pub(super) properties: Vec<(String, Node)>,
    pub(super) required: BTreeSet<String>,
    pub(super) others: Others,
}

/// The fields that a record may have besides those that are named.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) enum Others {
    /// Not restricted.
    #[default]
    Open,
    /// None.
    Closed,
    /// Such.
    Of(Box<Node>),
}

/// Reads the schema of a tool's arguments; `None`: it is not of an object.
pub(super) fn read_arguments(schema: &Value) -> Option<Object> {
    let node = read_node(schema, 0);
    match node.kind {
        Kind::Object(object) => Some(object),
        Kind::Any => Some(Object::default()),
        Kind::Choice(nodes) => {
            let mut objects = nodes.into_iter().map(|node| match node.kind {
                Kind::Object(object) => Some(object),
                Kind::Any => Some(Object::default()),
                Kind::Text { .. }
                | Kind::Number { .. }
                | Kind::Truth
                | Kind::List { .. }
                | Kind::Choice(_) => None,
            });
            let mut all = objects.next()??;
            for object in objects {
                let object = object?;
                // An argument is required if every branch requires it.
                all.required.retain(|name| object.required.contains(name));
                all.add(object.properties);
            }
            Some(all)
        }
        Kind::Text { .. } | Kind::Number { .. } | Kind::Truth | Kind::List { .. } => None,
    }
}

impl Object {
    /// Takes in properties that it does not have.
    fn add(&mut self, properties: Vec<(String, Node)>) {
        for (name, node) in properties {
            if !self.properties.iter().any(|(own, _)| *own == name) {
                self.properties.push((name, node));
            }
        }
    }
}

/// Reads a part.
fn read_node(schema: &Value, depth: usize) -> Node {
    // Below the bound anything is accepted; the tool itself still checks the arguments.
    let Some(fields) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else { return Node::default() };
    let fields = with_all_of(fields);
    let mut node = Node {
        description: fields.get("description").and_then(Value::as_str).unwrap_or_default().to_owned(),
        ..Node::default()
    };
    let mut types: Vec<&str> = match fields.get("type") {
        Some(Value::String(kind)) => vec![kind],
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).collect(),
        Some(_) | None => Vec::new(),
    };
    let had_types = !types.is_empty();
    // `null` is a type of its own in JSON Schema, and a flag in the dialects.
    types.retain(|kind| *kind != "null");
    node.nullable = had_types && types.len() < count_of(&fields);
    let named = fields.get("const").map(|value| vec![value.clone()]);
    // `const` is an enum with one value.
    let values = named.or_else(|| fields.get("enum").and_then(Value::as_array).cloned());
    let branches = ["anyOf", "oneOf"].iter().find_map(|name| fields.get(*name)).and_then(Value::as_array);
    let is_object = types == ["object"] || fields.contains_key("properties");
    node.kind = if let Some(values) = values {
        node.nullable |= values.contains(&Value::Null);
        if values.iter().all(Value::is_null) { Kind::Any } else { one_of_values(&values) }
    } else if let (Some(branches), false) = (branches, is_object) {
        let (kind, nullable) = one_of(branches, &mut node.description, depth);
        node.nullable |= nullable;
        kind
    } else {
        // Without a type it is inferred from the words that are used.
        match types.as_slice() {
            [] => of_type(infer_type(&fields), &fields, depth),
            [kind] => of_type(kind, &fields, depth),
            kinds => read_choice(
                kinds.iter().map(|kind| Node { kind: of_type(kind, &fields, depth), ..Node::default() }),
            ),
        }
    };
    if let (Kind::Object(object), Some(branches)) = (&mut node.kind, branches) {
        // A property of only one branch may be left out. The arguments of a call are checked against the branches.
        for branch in branches {
            if let Kind::Object(branch) = self::read_node(branch, depth + 1).kind {
                object.add(branch.properties);
            }
        }
    }
    let pattern = fields.get("pattern").and_then(Value::as_str);
    if let (Kind::Text { .. }, Some(pattern)) = (&node.kind, pattern) {
        add_note(&mut node.description, &format!("matches {pattern}"));
    }
    node
}

/// The longest note that is added to a description, in characters.
const MAX_NOTE_CHARS: usize = 200;

/// Adds what a dialect has no word for to a description.
pub(super) fn add_note(description: &mut String, note: &str) {
    if !description.is_empty() {
        description.push(' ');
    }
    let note: String = note.chars().take(MAX_NOTE_CHARS).collect();
    description.push_str(&format!("({note})"));
}

/// The number of types that are named.
fn count_of(fields: &Map<String, Value>) -> usize {
    fields.get("type").map_or(0, |kind| kind.as_array().map_or(1, Vec::len))
}

/// The fields with those of `allOf` among them: names are united, else what stands first holds.
fn with_all_of(fields: &Map<String, Value>) -> Map<String, Value> {
    let mut all = fields.clone();
    let Some(Value::Array(parts)) = all.shift_remove("allOf") else { return all };
    for part in parts {
        let Value::Object(part) = part else { continue };
        for (name, value) in with_all_of(&part) {
            match (name.as_str(), all.get_mut(&name)) {
                (_, None) => drop(all.insert(name, value)),
                ("required", Some(Value::Array(names))) => {
                    names.extend(value.as_array().into_iter().flatten().cloned());
                }
                ("properties", Some(Value::Object(properties))) => {
                    for (name, value) in value.as_object().into_iter().flatten() {
                        match properties.get(name) {
                            Some(own) => {
                                // Both descriptions of one property hold, so they are joined in turn.
                                let both = json!({ "allOf": [own, value] });
                                properties.insert(name.clone(), both);
                            }
                            None => drop(properties.insert(name.clone(), value.clone())),
                        }
                    }
                }
                (_, Some(_)) => {}
            }
        }
    }
    all
}

/// The type of a part that does not name one.
fn infer_type(fields: &Map<String, Value>) -> &'static str {
    let has = |names: &[&str]| names.iter().any(|name| fields.contains_key(*name));
    if has(&["properties", "additionalProperties", "required", "patternProperties"]) {
        "object"
    } else if has(&["items", "prefixItems", "minItems", "maxItems"]) {
        "array"
    } else if has(&["pattern", "minLength", "maxLength"]) {
        "string"
    } else if has(&["minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"]) {
        "number"
    } else {
        ""
    }
}

fn read_range(fields: &Map<String, Value>, least: &str, most: &str) -> Range {
    let number = |name: &str| fields.get(name).and_then(Value::as_number).cloned();
    Range { least: number(least), most: number(most) }
}

/// Reads a part of one type.
fn of_type(kind: &str, fields: &Map<String, Value>, depth: usize) -> Kind {
    match kind {
        "string" => {
            let format = fields.get("format").and_then(Value::as_str).map(str::to_owned);
            Kind::Text { values: Vec::new(), format, length: read_range(fields, "minLength", "maxLength") }
        }
        "integer" | "number" => {
            let mut range = read_range(fields, "minimum", "maximum");
            let exclusive = self::read_range(fields, "exclusiveMinimum", "exclusiveMaximum");
            // Dialects have no exclusive bounds; the inclusive one admits one value more, which the tool
            // refuses.
            range.least = range.least.or(exclusive.least);
            range.most = range.most.or(exclusive.most);
            Kind::Number { is_integer: kind == "integer", values: Vec::new(), range }
        }
        "boolean" => Kind::Truth,
        "array" => Kind::List {
            items: Box::new(read_items(fields, depth)),
            length: read_range(fields, "minItems", "maxItems"),
        },
        "object" => Kind::Object(read_object(fields, depth)),
        _unknown => Kind::Any,
    }
}

/// Reads the items of a list; of a list with different places, one of these.
fn read_items(fields: &Map<String, Value>, depth: usize) -> Node {
    let places = fields.get("prefixItems").or_else(|| fields.get("items"));
    match places {
        Some(Value::Array(places)) => {
            let mut nodes: Vec<Node> = Vec::new();
            for place in places {
                let node = read_node(place, depth + 1);
                // Places of the same kind are one kind of item.
                if !nodes.contains(&node) {
                    nodes.push(node);
                }
            }
            match nodes.len() {
                1 => nodes.remove(0),
                // A list with different places takes any of them at each place.
                _ => Node { kind: read_choice(nodes.into_iter()), ..Node::default() },
            }
        }
        Some(items) => read_node(items, depth + 1),
        None => Node::default(),
    }
}

fn read_object(fields: &Map<String, Value>, depth: usize) -> Object {
    let properties = fields.get("properties").and_then(Value::as_object);
    let properties: Vec<(String, Node)> = properties
        .into_iter()
        .flatten()
        .map(|(name, part)| (name.clone(), read_node(part, depth + 1)))
        .collect();
    let required = fields.get("required").and_then(Value::as_array).into_iter().flatten();
    // Some schemas require a name that they do not define.
    let is_named = |name: &&str| properties.iter().any(|(own, _)| own == name);
    let required = required.filter_map(Value::as_str).filter(is_named).map(str::to_owned).collect();
    let others = match fields.get("additionalProperties") {
        Some(Value::Bool(false)) => Others::Closed,
        Some(part @ Value::Object(_)) => Others::Of(Box::new(read_node(part, depth + 1))),
        Some(_) | None => Others::Open,
    };
    Object { properties, required, others }
}

/// Reads values that are named.
fn one_of_values(values: &[Value]) -> Kind {
    let texts: Vec<String> = values.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let numbers: Vec<Number> = values.iter().filter_map(Value::as_number).cloned().collect();
    let mut nodes = Vec::new();
    if !texts.is_empty() {
        nodes.push(Kind::Text { values: texts, format: None, length: Range::default() });
    }
    if !numbers.is_empty() {
        let is_integer = numbers.iter().all(|number| number.is_i64() || number.is_u64());
        nodes.push(Kind::Number { is_integer, values: numbers, range: Range::default() });
    }
    if values.iter().any(Value::is_boolean) {
        nodes.push(Kind::Truth);
    }
    read_choice(nodes.into_iter().map(|kind| Node { kind, ..Node::default() }))
}

/// Reads branches of which one holds, and whether one of them is `null`. A single one stands for itself; enums of texts become one.
fn one_of(branches: &[Value], description: &mut String, depth: usize) -> (Kind, bool) {
    let is_null = |branch: &&Value| {
        branch.get("type") == Some(&json!("null")) || branch.get("const") == Some(&Value::Null)
    };
    let mut nullable = branches.iter().any(|branch| is_null(&branch));
    let mut nodes: Vec<Node> = Vec::new();
    for branch in branches.iter().filter(|branch| !is_null(branch)) {
        let node = read_node(branch, depth + 1);
        nullable |= node.nullable;
        if let Kind::Choice(inner) = node.kind {
            nodes.extend(inner);
        } else {
            nodes.push(Node { nullable: false, ..node });
        }
    }
    // A single branch is no choice.
    if let [only] = nodes.as_mut_slice() {
        if description.is_empty() {
            *description = std::mem::take(&mut only.description);
        }
        return (std::mem::take(&mut only.kind), nullable);
    }
    let named = nodes.iter().map(|node| {
        let Kind::Text { values, .. } = &node.kind else { return None };
        (!values.is_empty()).then(|| values.clone())
    });
    if let Some(values) = named.collect::<Option<Vec<_>>>().filter(|named| !named.is_empty()) {
        let mut all: Vec<String> = Vec::new();
        for value in values.into_iter().flatten() {
            if !all.contains(&value) {
                all.push(value);
            }
        }
        return (Kind::Text { values: all, format: None, length: Range::default() }, nullable);
    }
    (read_choice(nodes.into_iter()), nullable)
}

/// One of several, or the only one; where one takes anything, anything.
fn read_choice(nodes: impl Iterator<Item = Node>) -> Kind {
    let mut nodes: Vec<Node> = nodes.collect();
    if nodes.iter().any(|node| node.kind == Kind::Any) {
        return Kind::Any;
    }
    match nodes.len() {
        0 => Kind::Any,
        1 => std::mem::take(&mut nodes[0].kind),
        _ => Kind::Choice(nodes),
    }
}

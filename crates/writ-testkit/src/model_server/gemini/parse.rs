//! Requests in Gemini's format, checked as the provider does.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, Uri};
use serde_json::{Map, Value};
use writ_types::chat::Role;

use crate::model_server::anthropic::parse::{array, object, string};
use crate::model_server::files::file_of;
use crate::model_server::http::Refusal;
use crate::model_server::parsed::{
    ParsedCall, ParsedMessage, ParsedRequest, ParsedResult, ParsedTool, ServedFormat,
};

/// The path of the models; a model's name and an action follow.
pub(crate) const MODELS: &str = "/v1beta/models/";

/// The longest name of a function.
const MAX_NAME: usize = 64;

const KNOWN_KEYS: [&str; 7] = [
    "contents",
    "systemInstruction",
    "tools",
    "toolConfig",
    "generationConfig",
    "safetySettings",
    "cachedContent",
];

const KNOWN_GENERATION_KEYS: [&str; 10] = [
    "maxOutputTokens",
    "temperature",
    "topP",
    "topK",
    "seed",
    "stopSequences",
    "candidateCount",
    "responseMimeType",
    "responseJsonSchema",
    "thinkingConfig",
];

/// A malformed request.
fn invalid(message: impl Into<String>) -> Refusal {
    Refusal { kind: "INVALID_ARGUMENT", ..Refusal::invalid(message) }
}

pub(crate) fn parse(
    uri: &Uri,
    headers: &HeaderMap,
    body: &[u8],
    key: Option<&str>,
) -> Result<ParsedRequest, Refusal> {
    authenticated(headers, key)?;
    let (model, stream) = asked(uri)?;
    let raw: Value = serde_json::from_slice(body)
        .map_err(|error| invalid(format!("Invalid JSON payload received. {error}")))?;
    let fields = object(&raw, "body").map_err(as_invalid)?;
    known(fields, &KNOWN_KEYS)?;
    let generation = match fields.get("generationConfig") {
        None => None,
        Some(config) => Some(object(config, "generation_config").map_err(as_invalid)?),
    };
    if let Some(generation) = generation {
        known(generation, &KNOWN_GENERATION_KEYS)?;
    }
    let system = match fields.get("systemInstruction") {
        None => String::new(),
        Some(content) => texts(content)?,
    };
    Ok(ParsedRequest {
        format: ServedFormat::Gemini,
        model,
        stream,
        include_usage: true,
        system,
        messages: contents(fields)?,
        tools: tools(fields)?,
        max_output_tokens: generation.and_then(|config| config.get("maxOutputTokens")?.as_u64()),
        raw: raw.clone(),
    })
}

fn as_invalid(refusal: Refusal) -> Refusal {
    Refusal { kind: "INVALID_ARGUMENT", ..refusal }
}

fn authenticated(headers: &HeaderMap, key: Option<&str>) -> Result<(), Refusal> {
    let given = headers.get("x-goog-api-key").and_then(|value| value.to_str().ok()).unwrap_or_default();
    if given.is_empty() {
        return Err(Refusal {
            status: 403,
            kind: "PERMISSION_DENIED",
            message: "Method doesn't allow unregistered callers.".to_owned(),
            code: None,
        });
    }
    if key.is_some_and(|key| key != given) {
        let message = "API key not valid. Please pass a valid API key.".to_owned();
        // Unlike every other provider, this one answers a wrong key with 400, as if an argument were bad.
        return Err(Refusal { code: Some("API_KEY_INVALID"), ..invalid(message) });
    }
    Ok(())
}

/// Reads from the URL which model is asked, and whether its answer is streamed.
fn asked(uri: &Uri) -> Result<(String, bool), Refusal> {
    let rest = uri.path().strip_prefix(MODELS).unwrap_or_default();
    let (model, method) = rest.split_once(':').unwrap_or((rest, ""));
    let streams = match method {
        "generateContent" => false,
        "streamGenerateContent" if uri.query() == Some("alt=sse") => true,
        _ => {
            return Err(Refusal {
                status: 404,
                kind: "NOT_FOUND",
                message: format!("{method} is not found for API version v1beta, or is not supported."),
                code: None,
            });
        }
    };
    Ok((model.to_owned(), streams))
}

fn known(fields: &Map<String, Value>, known: &[&str]) -> Result<(), Refusal> {
    match fields.keys().find(|key| !known.contains(&key.as_str())) {
        None => Ok(()),
        Some(unknown) => Err(invalid(format!(
            "Invalid JSON payload received. Unknown name \"{unknown}\": Cannot find field."
        ))),
    }
}

fn tools(fields: &Map<String, Value>) -> Result<Vec<ParsedTool>, Refusal> {
    let mut tools = Vec::new();
    for tool in fields.get("tools").and_then(Value::as_array).into_iter().flatten() {
        let tool = object(tool, "tools").map_err(as_invalid)?;
        known(tool, &["functionDeclarations"])?;
        for declaration in tool.get("functionDeclarations").and_then(Value::as_array).into_iter().flatten() {
            tools.push(function(object(declaration, "function_declarations").map_err(as_invalid)?)?);
        }
    }
    Ok(tools)
}

fn function(fields: &Map<String, Value>) -> Result<ParsedTool, Refusal> {
    known(fields, &["name", "description", "parameters", "parametersJsonSchema"])?;
    let name = string(fields, "name", "name").map_err(as_invalid)?;
    let letter = |c: char| c.is_ascii_alphabetic() || c == '_';
    let plain = |c: char| letter(c) || c.is_ascii_digit() || matches!(c, '.' | '-');
    if name.len() > MAX_NAME || !name.starts_with(letter) || !name.chars().all(plain) {
        return Err(invalid(
            "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), \
             underscores (_), dots (.) or dashes (-), with a maximum length of 64.",
        ));
    }
    let schema = fields.get("parametersJsonSchema").or_else(|| fields.get("parameters"));
    let description = fields.get("description").and_then(Value::as_str).unwrap_or_default();
    Ok(ParsedTool {
        name: name.to_owned(),
        description: description.to_owned(),
        schema: schema.cloned().unwrap_or(Value::Null),
    })
}

/// The texts of a content, joined.
fn texts(content: &Value) -> Result<String, Refusal> {
    let parts = content.get("parts").and_then(Value::as_array).into_iter().flatten();
    let texts = parts.map(|part| part.get("text").and_then(Value::as_str));
    texts.collect::<Option<Vec<&str>>>().map(|texts| texts.concat()).ok_or_else(|| {
        invalid("Unable to submit request because system instruction must have a text parameter.")
    })
}

/// A call that has no response yet. Its id is the one of the conversation (`given`), or made here.
struct PendingCalls {
    id: String,
    given: bool,
    name: String,
}

/// Reads the turns and checks their order: a function call turn comes after a user or function response turn,
/// and is followed by a function response turn with as many parts.
fn contents(fields: &Map<String, Value>) -> Result<Vec<ParsedMessage>, Refusal> {
    let list = fields.get("contents").and_then(Value::as_array).filter(|list| !list.is_empty());
    let list = list.ok_or_else(|| invalid("* GenerateContentRequest.contents: contents is not specified"))?;
    let mut parsed: Vec<ParsedMessage> = Vec::new();
    let mut open: Vec<PendingCalls> = Vec::new();
    let mut calls = 0;
    for (index, content) in list.iter().enumerate() {
        let turn = turn(content, index, &mut open, &mut calls)?;
        let after_model = parsed.last().is_none_or(|last| last.role == Role::Assistant);
        if !turn.calls.is_empty() && after_model {
            return Err(invalid(
                "Please ensure that function call turn comes immediately after a user turn or after a function \
                 response turn.",
            ));
        }
        parsed.push(turn);
    }
    if open.is_empty() { Ok(parsed) } else { Err(uneven()) }
}

fn uneven() -> Refusal {
    invalid(
        "Please ensure that the number of function response parts is equal to the number of function call parts of \
         the function call turn.",
    )
}

fn turn(
    content: &Value,
    index: usize,
    open: &mut Vec<PendingCalls>,
    calls: &mut usize,
) -> Result<ParsedMessage, Refusal> {
    let at = format!("contents[{index}]");
    let fields = object(content, &at).map_err(as_invalid)?;
    known(fields, &["role", "parts"])?;
    let role = match fields.get("role").and_then(Value::as_str) {
        Some("user") => Role::User,
        Some("model") => Role::Assistant,
        Some(_) | None => return Err(invalid("Please use a valid role: user, model.")),
    };
    let parts = fields.get("parts").map_or(Ok(&Vec::new()), |parts| array(parts, &at)).cloned();
    let parts = parts.map_err(as_invalid)?;
    if parts.is_empty() {
        return Err(invalid(format!(
            "* GenerateContentRequest.{at}.parts: contents.parts must not be empty."
        )));
    }
    let waited = std::mem::take(open);
    let mut turn = ParsedMessage { role, text: String::new(), calls: Vec::new(), results: Vec::new() };
    for part in &parts {
        let part = object(part, &at).map_err(as_invalid)?;
        known(
            part,
            &[
                "text",
                "functionCall",
                "functionResponse",
                "thoughtSignature",
                "thought",
                "inlineData",
                "inline_data",
            ],
        )?;
        if role == Role::User && file_of(part, &at).transpose()?.is_some() {
            continue;
        }
        if let Some(text) = part.get("text").and_then(Value::as_str) {
            turn.text.push_str(text);
        } else if let (Some(call), Role::Assistant) = (part.get("functionCall"), role) {
            let waiting = function_call(&mut turn, call, calls)?;
            open.push(waiting);
        } else if let (Some(response), Role::User) = (part.get("functionResponse"), role) {
            function_response(&mut turn, response, &waited)?;
        } else {
            return Err(invalid(format!(
                "* GenerateContentRequest.{at}.parts: required oneof field 'data' must have one initialized field"
            )));
        }
    }
    if turn.results.len() != waited.len() {
        return Err(uneven());
    }
    if !turn.results.is_empty() {
        turn.role = Role::Tool;
    }
    Ok(turn)
}

fn function_call(
    turn: &mut ParsedMessage,
    call: &Value,
    number: &mut usize,
) -> Result<PendingCalls, Refusal> {
    let fields = object(call, "function_call").map_err(as_invalid)?;
    known(fields, &["id", "name", "args"])?;
    let name = string(fields, "name", "function_call.name").map_err(as_invalid)?.to_owned();
    let arguments = fields.get("args").cloned().unwrap_or_else(|| Value::Object(Map::new()));
    if !arguments.is_object() {
        return Err(invalid(
            "Invalid value at 'contents.parts.function_call.args' (type.googleapis.com/google.protobuf.Struct)",
        ));
    }
    let given = fields.get("id").and_then(Value::as_str);
    let id = given.map_or_else(|| format!("gemini_{number:02}"), str::to_owned);
    *number += 1;
    turn.calls.push(ParsedCall { id: id.clone(), name: name.clone(), arguments });
    Ok(PendingCalls { id, given: given.is_some(), name })
}

/// Matches a response with its call: by the id, or without one by the order of the calls. The names must be equal.
fn function_response(
    turn: &mut ParsedMessage,
    response: &Value,
    waited: &[PendingCalls],
) -> Result<(), Refusal> {
    let fields = object(response, "function_response").map_err(as_invalid)?;
    known(fields, &["id", "name", "response"])?;
    let name = string(fields, "name", "function_response.name").map_err(as_invalid)?;
    let by_id: BTreeMap<&str, &PendingCalls> =
        waited.iter().filter(|call| call.given).map(|call| (call.id.as_str(), call)).collect();
    let call = match fields.get("id").and_then(Value::as_str) {
        Some(id) => by_id.get(id).copied(),
        None => waited.get(turn.results.len()).filter(|call| !call.given),
    };
    let call = call.filter(|call| call.name == name).ok_or_else(|| {
        invalid("Please ensure that function response turn comes immediately after a function call turn.")
    })?;
    let response = fields
        .get("response")
        .and_then(Value::as_object)
        .ok_or_else(|| invalid("Invalid value at 'contents.parts.function_response.response'"))?;
    // Clients put the text into `content`, `output` or `result`; without any of them the whole object is the text.
    let text = ["content", "output", "result"].iter().find_map(|key| response.get(*key)?.as_str());
    let text = text.map_or_else(|| Value::Object(response.clone()).to_string(), str::to_owned);
    turn.results.push(ParsedResult { call_id: call.id.clone(), name: name.to_owned(), text });
    Ok(())
}

//! Files of cases for trying rules and gates: read within bounds, and reported as passed and failed cases.

use std::io::Read as _;
use std::path::Path;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use writ_runtime::methods::Method;
use writ_types::error::Exit;

use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;

/// The largest file of cases, in bytes.
const MAX_FILE_BYTES: u64 = 1024 * 1024;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Cases<T> {
    case: Vec<T>,
}

/// Reads a TOML file of 1 to `most` tables `[[case]]`.
///
/// # Errors
///
/// The error that `wrong` makes: the file cannot be read, is too large, or has no such tables.
pub(crate) fn read_cases<T: DeserializeOwned>(
    file: &Path,
    most: usize,
    wrong: impl Fn(&str) -> Failure,
) -> Result<Vec<T>, Failure> {
    let shown = file.display();
    let opened =
        std::fs::File::open(file).map_err(|error| wrong(&format!("{shown} cannot be read: {error}")))?;
    let mut text = String::new();
    // One byte more than the limit shows that the file is too large.
    let read = opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    let bytes = read.map_err(|error| wrong(&format!("{shown} cannot be read: {error}")))?;
    if u64::try_from(bytes).unwrap_or(u64::MAX) > MAX_FILE_BYTES {
        return Err(wrong(&format!("{shown} has more than {MAX_FILE_BYTES} bytes")));
    }
    let Cases { case } = toml::from_str(&text).map_err(|error| wrong(&format!("{shown}: {error}")))?;
    if case.is_empty() || case.len() > most {
        return Err(wrong(&format!("{shown} holds {} cases; from 1 to {most} can be", case.len())));
    }
    Ok(case)
}

/// Asks the engine to judge each case in a temporary conversation. `params` makes the parameters of a case, and `compared`
/// the result that is printed, from the answer.
///
/// # Errors
///
/// If the engine cannot be asked, or a case did not pass.
pub(crate) fn judge_cases<T>(
    context: &Context,
    cases: &[T],
    params: impl Fn(&T) -> Value,
    compared: impl Fn(&T, &Value) -> Value,
    line: impl Fn(&Value) -> String,
) -> Result<(), Failure> {
    block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        // All cases share one temporary session, which is closed afterwards.
        let (mut results, mut session) = (Vec::new(), Value::Null);
        for case in cases {
            let mut params = params(case);
            if let Some(params) = params.as_object_mut() {
                params.insert("session".to_owned(), session);
            }
            let judged = client.call_method(Method::GatesJudge, params).await?;
            session = judged.get("session").cloned().unwrap_or_default();
            results.push(compared(case, &judged));
        }
        client.call_method(Method::SessionsClose, json!({ "session": session })).await?;
        print_results(context, &results, line)
    })
}

/// Prints each result as a line made by `line`, and the number of cases that passed.
///
/// # Errors
///
/// If a case did not pass: exit code 8.
pub(crate) fn print_results(
    context: &Context,
    results: &[Value],
    line: impl Fn(&Value) -> String,
) -> Result<(), Failure> {
    let failed = results.iter().filter(|result| result.get("passed") == Some(&json!(false))).count();
    let (passed, all) = (results.len() - failed, json!({ "failed": failed, "cases": results }));
    context.out.print_either(&all, |_| {
        let mut lines: Vec<String> = results.iter().map(&line).collect();
        lines.push(format!("{passed} passed, {failed} failed"));
        lines
    })?;
    if failed == 0 { Ok(()) } else { Err(Failure::Code(Exit::Verification.code())) }
}

//! `writ keys sign`: a message that its owner has signed, ready to be sent by another person.

use std::io::Read as _;

use serde_json::json;
use writ_policy::inbound::{MessageClaims, MessageToken};
use writ_policy::principal::MAX_MESSAGE_BYTES;
use writ_runtime::methods::Method;
use writ_types::digest::Digest;
use writ_types::error::Exit;
use writ_types::frame::ClientFrame;

use crate::approve;
use crate::args::SignArgs;
use crate::client::EngineClient;
use crate::clock;
use crate::context::Context;
use crate::failure::Failure;
use crate::host::InputStream;
use crate::interrupt::block_on;
use crate::keyring::open_approver_key;

/// Runs `writ keys sign`.
pub(super) fn sign_message(context: &Context, args: &SignArgs) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    let text = args.text.clone().map_or_else(|| read_message(context.host.streams.input.clone()), Ok)?;
    let (installation, epoch) = block_on(async {
        let mut client = EngineClient::ensure(context).await?;
        // An unknown session is reported now, before the message is passed on.
        client.call_method(Method::SessionsShow, json!({ "session": args.session })).await?;
        approve::load_installation(&mut client).await
    })?;
    let key = open_approver_key(context, &config)?.signing_key()?;
    // An id of the message, so that it can be sent twice and stored once.
    let client_id = args.client_id.clone().unwrap_or_else(|| hex::encode(clock::random_bytes()));
    let claims = MessageClaims {
        installation,
        epoch,
        session: args.session,
        client_id: client_id.clone(),
        text: Digest::of_bytes(text.as_bytes()),
        nonce: hex::encode(clock::random_bytes()),
        issued_at: clock::now(),
        signer: hex::encode(key.verifying_key().as_bytes()),
    };
    let bug = |error: String| Failure::internal_error("signing the message", error);
    let token = MessageToken::sign_claims(claims, &key).map_err(|error| bug(error.to_string()))?;
    let signature = Some(serde_json::to_value(token).map_err(|error| bug(error.to_string()))?);
    context.out.json_line(&ClientFrame::Message {
        text,
        quoted: String::new(),
        client_id,
        signature,
        sender: None,
    })
}

fn read_message(input: InputStream) -> Result<String, Failure> {
    let mut text = String::new();
    let most = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
    let read = input.take(most).read_to_string(&mut text);
    let wrong =
        |why: String| Failure::new(Exit::Usage, "message.invalid", why, "give it with --text or as input");
    read.map_err(|error| wrong(format!("the text cannot be read: {error}")))?;
    if text.len() > MAX_MESSAGE_BYTES {
        return Err(wrong(format!("the text has more than {MAX_MESSAGE_BYTES} bytes")));
    }
    Ok(text.trim_end_matches('\n').to_owned())
}

//! `writ fleet token`: the token of the trusted front end.

use rand::TryRngCore as _;
use rand::rngs::OsRng;
use serde_json::json;
use writ_fleet::cases::front_end::TokenFile;
use writ_secrets::error::SecretsError;
use zeroize::Zeroizing;

use crate::context::Context;
use crate::failure::Failure;

/// The random bytes of a token.
const TOKEN_BYTES: usize = 32;

/// Makes a token, stores its digest and prints it, once.
pub(super) fn make_token(context: &Context, replaces: bool) -> Result<(), Failure> {
    let mut bytes = Zeroizing::new([0; TOKEN_BYTES]);
    OsRng.try_fill_bytes(bytes.as_mut()).map_err(|_| SecretsError::NoRandomness)?;
    let token = Zeroizing::new(hex::encode(bytes.as_ref()));
    // Stored first: a token that was printed and not stored would be refused.
    TokenFile(context.home.front_end_token()).write_token(&token, replaces)?;
    context.out.print_either(&json!({ "token": token.as_str() }), |_| vec![token.to_string()])?;
    // On standard error, so that a script can pass the token alone on.
    context.out.print_remark("shown once; the front end sends it as `Authorization: Bearer TOKEN`");
    Ok(())
}

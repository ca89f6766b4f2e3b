//! `writ secrets`: named secrets. Values come from the terminal or a pipe, never from arguments, and are
//! never printed.

use serde_json::json;
use writ_runtime::methods::SecretsChanged;
use writ_types::api::NoParams;
use writ_types::credential::Reference;

use crate::args::SecretsCommand;
use crate::client::EngineClient;
use crate::context::Context;
use crate::failure::Failure;
use crate::interrupt::block_on;
use crate::keyring::open_secrets;
use crate::terminal;

/// Runs `writ secrets …`.
pub(crate) fn run_secrets(context: &Context, command: &SecretsCommand) -> Result<(), Failure> {
    let config = context.load_ready_config()?;
    match command {
        SecretsCommand::Set { name } => {
            let name: Reference = name.parse::<Reference>()?;
            let store = open_secrets(context, &config)?;
            store.set_secret(
                &name,
                terminal::read_value(&context.host.streams, &format!("Value of '{name}': "))?,
            )?;
            // A running engine must mask the new value from now on.
            reload_secrets(context)?;
            context.out.print_either(&json!({ "stored": name, "use": format!("secret:{name}") }), |_| {
                vec![format!("stored; write secret:{name} where the configuration wants it")]
            })
        }
        SecretsCommand::List => {
            let names = open_secrets(context, &config)?.list_names()?;
            context.out.print_either(&json!({ "secrets": names }), |_| {
                names.iter().map(ToString::to_string).collect()
            })
        }
        SecretsCommand::Remove { name } => {
            let name: Reference = name.parse::<Reference>()?;
            open_secrets(context, &config)?.remove_secret(&name)?;
            reload_secrets(context)?;
            context.out.print_either(&json!({ "removed": name }), |_| vec![format!("removed {name}")])
        }
    }
}

/// Tells a running engine to reload the secrets that it masks. If that fails, the message says so: the secret
/// is stored.
fn reload_secrets(context: &Context) -> Result<(), Failure> {
    block_on(async {
        // Without an engine there is nothing to reload.
        if let Some(mut client) = EngineClient::connect(context).await? {
            client.ask::<SecretsChanged>(&NoParams {}).await?;
        }
        Ok(())
    })
}

//! Wires the routers of a fleet: their places in the home, and the launcher of its agents.

use std::sync::Arc;

use writ_fleet::cases::config::CasesConfig;
use writ_fleet::cases::front_end::TokenFile;
use writ_fleet::cases::launcher::LaunchedAgents;
use writ_fleet::cases::server::CasePlaces;
use writ_fleet::cases::service::{CaseParts, CaseService};
use writ_fleet::models::server::RouterSocket;
use writ_runtime::engine::Engine;
use writ_types::error::Exit;

use crate::config::Config;
use crate::context::Context;
use crate::failure::Failure;

/// The variables that the launcher of an agent gets besides its home. None of them reaches the agent.
const VARIABLES: [&str; 5] = ["HOME", "PATH", "LANG", "TZ", "XDG_RUNTIME_DIR"];

/// Starts the routers that are configured, after the engine, since they find no one to ask before.
///
/// # Errors
///
/// If the open cases cannot be taken up, or a socket cannot be opened.
pub(super) async fn start_routers(
    context: &Context,
    config: &Config,
    engine: &Engine,
) -> Result<(Option<CaseService>, Option<RouterSocket>), Failure> {
    let cases = start_cases(context, config, engine).await?;
    let models = config.fleet.model_router.then(|| RouterSocket::bind(&context.home.model_socket()));
    let models = models.transpose()?.map(|socket| match &cases {
        // Rules about anomalies count tokens.
        Some(cases) => socket.with_observer(cases.call_observer()),
        None => socket,
    });
    Ok((cases, models))
}

/// Starts the case router, if it is configured.
async fn start_cases(
    context: &Context,
    config: &Config,
    engine: &Engine,
) -> Result<Option<CaseService>, Failure> {
    let (home, fleet) = (&context.home, &config.fleet);
    if !fleet.cases {
        return Ok(None);
    }
    let root = home.root().display().to_string();
    // A launcher starts with these alone: keys of providers stay with the engine.
    let known =
        VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), context.env.text_of(name)?.to_owned())));
    // A launcher would otherwise read the default home of its user.
    let variables = known.chain([("WRIT_HOME".to_owned(), root)]).collect();
    let folder = home.runtime().join("agents");
    // Launchers write their errors into a file: a pipe that no one reads would fill up and block them.
    let host = LaunchedAgents::open_folder(folder, variables, Vec::new(), home.logs().join("agents.log"));
    let host = host.map_err(|fault| {
        let hint = "check the owner and mode of the home's folder 'runtime'";
        Failure::new(Exit::Config, "fleet.agents", fault.to_string(), hint)
    })?;
    let parts = CaseParts {
        config: CasesConfig {
            silence: fleet.silence.duration(),
            rules: fleet.rules.clone(),
            ..CasesConfig::default()
        },
        agents: home.root().join("agents"),
        proxy: home.root().join("proxy"),
        host: Arc::new(host),
        places: CasePlaces {
            socket: home.cases_socket(),
            listen: fleet.listen.map(writ_fleet::config::LoopbackAddress::address),
            token: TokenFile(home.front_end_token()),
        },
    };
    Ok(Some(CaseService::start(engine, parts).await?))
}

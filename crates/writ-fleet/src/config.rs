//! Settings of the routers.

use serde::{Deserialize, Serialize};

/// Settings of the routers of locked agents.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FleetConfig {
    /// Locked agents may ask models, over `runtime/llm-router.sock`. Default: no.
    pub model_router: bool,
}

//! The names of facts.

use super::Fact;

impl Fact {
    /// The names of all kinds of facts.
    pub const EVENTS: [&'static str; 29] = [
        "received",
        "gated",
        "hooked",
        "shadowed",
        "intent",
        "outcome",
        "asked",
        "answered",
        "denied",
        "served",
        "model_called",
        "keyed",
        "planned",
        "phase",
        "worked",
        "remembered",
        "escalated",
        "case_moved",
        "agent_moved",
        "customer_read",
        "policy_changed",
        "restored",
        "applied",
        "sandbox_ready",
        "connected",
        "erased",
        "checkpoint",
        "compacted",
        "replied",
    ];

    /// The name under which the ledger indexes this fact.
    pub const fn event_name(&self) -> &'static str {
        match self {
            Self::Received { .. } => "received",
            Self::Gated { .. } => "gated",
            Self::Hooked { .. } => "hooked",
            Self::Shadowed { .. } => "shadowed",
            Self::Intent { .. } => "intent",
            Self::Outcome { .. } => "outcome",
            Self::Asked { .. } => "asked",
            Self::Answered { .. } => "answered",
            Self::Denied { .. } => "denied",
            Self::Served { .. } => "served",
            Self::ModelCalled { .. } => "model_called",
            Self::Keyed { .. } => "keyed",
            Self::Planned { .. } => "planned",
            Self::Phase { .. } => "phase",
            Self::Worked { .. } => "worked",
            Self::Remembered { .. } => "remembered",
            Self::Escalated { .. } => "escalated",
            Self::CaseMoved { .. } => "case_moved",
            Self::AgentMoved { .. } => "agent_moved",
            Self::CustomerRead { .. } => "customer_read",
            Self::PolicyChanged { .. } => "policy_changed",
            Self::Restored { .. } => "restored",
            Self::Applied { .. } => "applied",
            Self::SandboxReady { .. } => "sandbox_ready",
            Self::Connected { .. } => "connected",
            Self::Erased { .. } => "erased",
            Self::Checkpoint { .. } => "checkpoint",
            Self::Compacted { .. } => "compacted",
            Self::Replied { .. } => "replied",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_fact_can_be_searched_for_by_its_name() {
        let unknown = serde_json::from_str::<Fact>(r#"{"event":"nope"}"#).expect_err("no such kind");
        let told = unknown.to_string();
        let kinds: Vec<&str> = told.split('`').skip(3).step_by(2).collect();
        assert_eq!(kinds, Fact::EVENTS, "in the order of the variants: {told}");
    }
}

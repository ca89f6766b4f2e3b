//! The variants of an action without their data.

use serde::{Deserialize, Serialize};

/// The variants of [`Action`](super::Action) without their data: what keys grant and rules name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[expect(missing_docs, reason = "each names the variant of `Action`, which is documented there")]
pub enum ActionKind {
    Exec,
    ReadFile,
    WriteFile,
    Fetch,
    Browse,
    Recall,
    Remember,
    Forget,
    Say,
    SendFile,
    CallTool,
    CreateTool,
    InstallSkill,
    Docker,
    Subscribe,
    Message,
    Handoff,
    Spawn,
    Escalate,
    ModelCall,
    Vcs,
    ModifySelf,
    Operate,
    Connect,
    Search,
    Plan,
}

impl ActionKind {
    /// Every kind, in the order of [`Action`](super::Action).
    pub const ALL: [Self; 26] = [
        Self::Exec,
        Self::ReadFile,
        Self::WriteFile,
        Self::Fetch,
        Self::Browse,
        Self::Recall,
        Self::Remember,
        Self::Forget,
        Self::Say,
        Self::SendFile,
        Self::CallTool,
        Self::CreateTool,
        Self::InstallSkill,
        Self::Docker,
        Self::Subscribe,
        Self::Message,
        Self::Handoff,
        Self::Spawn,
        Self::Escalate,
        Self::ModelCall,
        Self::Vcs,
        Self::ModifySelf,
        Self::Operate,
        Self::Connect,
        Self::Search,
        Self::Plan,
    ];

    /// The name used in keys, rules, records and on screens.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Exec => "exec",
            Self::ReadFile => "read_file",
            Self::WriteFile => "write_file",
            Self::Fetch => "fetch",
            Self::Browse => "browse",
            Self::Recall => "recall",
            Self::Remember => "remember",
            Self::Forget => "forget",
            Self::Say => "say",
            Self::SendFile => "send_file",
            Self::CallTool => "call_tool",
            Self::CreateTool => "create_tool",
            Self::InstallSkill => "install_skill",
            Self::Docker => "docker",
            Self::Subscribe => "subscribe",
            Self::Message => "message",
            Self::Handoff => "handoff",
            Self::Spawn => "spawn",
            Self::Escalate => "escalate",
            Self::ModelCall => "model_call",
            Self::Vcs => "vcs",
            Self::ModifySelf => "modify_self",
            Self::Operate => "operate",
            Self::Connect => "connect",
            Self::Search => "search",
            Self::Plan => "plan",
        }
    }

    /// The kind with this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

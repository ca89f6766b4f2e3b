//! The system zone: pinned texts and tool descriptions.

use writ_types::chat::{ToolSpecs, estimate_tokens, estimate_tokens_of_chars};
use writ_types::taint::Taint;
use writ_types::unit::Tokens;

use super::{ItemUse, Zone};
use crate::event::{ContextSeed, SystemSource, SystemText};

pub(super) fn system_text(texts: &[SystemText]) -> String {
    let section = |text: &SystemText| format!("# {}\n\n{}", source_heading(text.source), text.text.trim());
    texts.iter().map(section).collect::<Vec<_>>().join("\n\n")
}

const fn source_heading(source: SystemSource) -> &'static str {
    match source {
        SystemSource::Constitution => "Constitution",
        SystemSource::Rules => "Rules of the owner",
        SystemSource::Notes => "Notes of the agent",
        SystemSource::Facts => "Facts",
        SystemSource::FirstRun => "First run",
    }
}

/// Returns the estimated number of tokens of the system texts and tool descriptions.
pub fn system_tokens(seed: &ContextSeed) -> Tokens {
    system_items(&seed.system, &seed.tools)
        .iter()
        .fold(Tokens::ZERO, |sum, item| sum.saturating_add(item.tokens))
}

pub(super) fn system_items(texts: &[SystemText], tools: &ToolSpecs) -> Vec<ItemUse> {
    let item = |source, tokens, taint| ItemUse {
        zone: Zone::System,
        source,
        tokens,
        pinned: true,
        taint,
        messages: 0,
        place: None,
    };
    let texts = texts.iter().map(|text| {
        let tokens = estimate_tokens(&system_text(std::slice::from_ref(text)));
        item(source_heading(text.source).to_lowercase(), tokens, text.label.taint)
    });
    let tools = tools.iter().zip(tools.schema_sizes()).map(|(tool, schema)| {
        // The name, description and schema are separated by two blanks.
        let chars = tool.name.chars().count() + tool.description.chars().count() + schema.chars + 2;
        let tokens = estimate_tokens_of_chars(chars);
        item(format!("tool {}", tool.name), tokens, Taint::Owner)
    });
    texts.chain(tools).collect()
}

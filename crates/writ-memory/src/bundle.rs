//! Bundles: memories as lines of JSON, to be exported and imported.
//!
//! The first line is a header with the version; each further line is one memory. A reader refuses other versions,
//! unknown fields, and everything beyond its bounds, and names the line.

use serde::{Deserialize, Serialize};
use writ_store::memory::{
    MAX_CAUSES, MAX_ENTITIES, MAX_ENTITY_BYTES, MAX_MEMORY_BYTES, MAX_USES, Memory, MemorySource,
    MemoryStatus, MemoryTraits,
};
use writ_types::action::{MemoryKind, MemoryTrust, Remember};
use writ_types::id::{MemoryId, SessionId};
use writ_types::taint::Taint;
use writ_types::unit::Timestamp;

/// The version of the format.
pub const VERSION: u32 = 1;

/// The most memories of one bundle.
pub const MAX_MEMORIES: usize = 1_000_000;

/// The name of the format.
const FORMAT: &str = "writ-memory";

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct BundleHeader {
    format: String,
    version: u32,
}

// tidy: plain state
/// A memory of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BundledMemory {
    /// Its id.
    pub id: MemoryId,
    /// Its text.
    pub text: String,
    /// Its kind.
    pub kind: MemoryKind,
    /// The owner's confirmation.
    pub trust: MemoryTrust,
    /// The trust in it.
    pub taint: Taint,
    /// True if only models that are cleared for secrets may read it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
    /// The session that it belongs to; `None`: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionId>,
    /// When it was stored, as RFC 3339.
    pub at: String,
    /// Its state.
    pub status: MemoryStatus,
    /// The party that it is from.
    pub source: MemorySource,
    /// Its importance, in thousandths.
    pub importance: u16,
    /// True if it is never put aside.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pinned: bool,
    /// When it happened, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub happened: Option<String>,
    /// The names that it refers to.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub entities: Vec<String>,
    /// The memories that it follows from.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub causes: Vec<MemoryId>,
    /// The number of times that it was put into a context.
    #[serde(default)]
    pub uses: u64,
    /// The last of these times, as RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<String>,
}

/// The reason why a line is no part of a bundle.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BundleError {
    /// The first line is no header.
    #[error("line 1 is not the header of a memory bundle")]
    NoHeader,
    /// The version is another one.
    #[error("the bundle has version {0}, and this program reads version {VERSION}")]
    Version(u32),
    /// A line is no memory.
    #[error("line {line}: {why}")]
    Line {
        /// The number of the line, counted from one.
        line: usize,
        /// The reason.
        why: String,
    },
    /// There are too many.
    #[error("the bundle has more than {MAX_MEMORIES} memories")]
    TooMany,
}

impl BundledMemory {
    /// Returns a memory in the form of a bundle.
    pub fn of(memory: &Memory) -> Self {
        let (item, traits) = (&memory.item, &memory.traits);
        Self {
            id: memory.id,
            text: item.text.clone(),
            kind: item.memory_kind,
            trust: item.trust,
            taint: item.taint,
            secret: item.secret,
            session: item.session,
            at: memory.at.to_string(),
            status: traits.status,
            source: traits.source,
            importance: traits.importance,
            pinned: traits.pinned,
            happened: traits.happened.map(|at| at.to_string()),
            entities: traits.entities.clone(),
            causes: traits.causes.clone(),
            uses: traits.uses,
            used_at: traits.used_at.map(|at| at.to_string()),
        }
    }

    /// Checks what the form alone does not say.
    fn check(&self) -> Result<(), String> {
        let time =
            |text: &str| Timestamp::from_rfc_3339(text).map(drop).ok_or(format!("'{text}' is no time"));
        time(&self.at)?;
        self.happened.as_deref().map_or(Ok(()), time)?;
        self.used_at.as_deref().map_or(Ok(()), time)?;
        if self.uses > MAX_USES {
            return Err(format!("a memory was used at most {MAX_USES} times"));
        }
        if self.text.trim().is_empty() || self.text.len() > MAX_MEMORY_BYTES {
            return Err(format!("a text has from 1 to {MAX_MEMORY_BYTES} bytes"));
        }
        if self.importance > 1000 {
            return Err("an importance is at most 1000".to_owned());
        }
        if self.taint == Taint::External && self.trust != MemoryTrust::Working {
            return Err("external content is never verified".to_owned());
        }
        let few = self.entities.len() <= MAX_ENTITIES && self.causes.len() <= MAX_CAUSES;
        if !few || self.entities.iter().any(|name| name.is_empty() || name.len() > MAX_ENTITY_BYTES) {
            return Err(format!("at most {MAX_ENTITIES} names and {MAX_CAUSES} causes"));
        }
        Ok(())
    }

    /// Returns the parts of a memory to be stored. The time of one that cannot be read is `now`.
    pub fn into_parts(self, now: Timestamp) -> (MemoryId, Remember, Timestamp, MemoryTraits) {
        let at = Timestamp::from_rfc_3339(&self.at).unwrap_or(now);
        let item = Remember {
            text: self.text,
            memory_kind: self.kind,
            trust: self.trust,
            taint: self.taint,
            secret: self.secret,
            session: self.session,
        };
        let traits = MemoryTraits {
            status: self.status,
            source: self.source,
            importance: self.importance,
            pinned: self.pinned,
            happened: self.happened.as_deref().and_then(Timestamp::from_rfc_3339),
            entities: self.entities,
            causes: self.causes,
            uses: self.uses,
            used_at: self.used_at.as_deref().and_then(Timestamp::from_rfc_3339),
            edits: 0,
        };
        (self.id, item, at, traits)
    }
}

/// Returns the first line of a bundle.
pub fn header_line() -> String {
    let header = BundleHeader { format: FORMAT.to_owned(), version: VERSION };
    // Plain data has a JSON form.
    serde_json::to_string(&header).unwrap_or_default()
}

/// Reads a whole bundle.
///
/// # Errors
///
/// The first line that is wrong; nothing of a bundle is used then.
pub fn read_bundle(text: &str) -> Result<Vec<BundledMemory>, BundleError> {
    let mut lines = text.lines().enumerate();
    let header = lines.next().map(|(_, line)| line.trim_start_matches('\u{feff}')).unwrap_or_default();
    let header: BundleHeader = serde_json::from_str(header).map_err(|_| BundleError::NoHeader)?;
    if header.format != FORMAT {
        return Err(BundleError::NoHeader);
    }
    if header.version != VERSION {
        return Err(BundleError::Version(header.version));
    }
    let mut memories: Vec<BundledMemory> = Vec::new();
    for (n, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        if memories.len() >= MAX_MEMORIES {
            return Err(BundleError::TooMany);
        }
        let wrong = |why: String| BundleError::Line { line: n + 1, why };
        let memory: BundledMemory =
            serde_json::from_str(line).map_err(|error| wrong(format!("it is no memory: {error}")))?;
        memory.check().map_err(wrong)?;
        memories.push(memory);
    }
    let mut ids: Vec<MemoryId> = memories.iter().map(|memory| memory.id).collect();
    ids.sort_unstable();
    if let Some(twice) = ids.windows(2).find(|pair| pair[0] == pair[1]) {
        return Err(BundleError::Line { line: 0, why: format!("{} is there twice", twice[0]) });
    }
    Ok(memories)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_versions_and_damaged_lines_are_named() {
        assert_eq!(read_bundle(""), Err(BundleError::NoHeader));
        assert_eq!(read_bundle("{}"), Err(BundleError::NoHeader));
        assert_eq!(read_bundle("{\"format\":\"writ-memory\",\"version\":2}"), Err(BundleError::Version(2)));
        assert_eq!(read_bundle(&header_line()), Ok(Vec::new()));
        let text = format!("{}\n\nnonsense\n", header_line());
        let Err(BundleError::Line { line, .. }) = read_bundle(&text) else { panic!("it is refused") };
        assert_eq!(line, 3);
    }
}

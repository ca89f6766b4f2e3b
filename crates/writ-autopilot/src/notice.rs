//! Notices of units, as chats and programs take them.

use serde_json::{Map, Value, json};

/// The longest line of a notice, in characters: Discord takes 2,000.
pub const MAX_LINE_CHARS: usize = 1_500;
/// The version of the object that programs read.
const VERSION: u32 = 1;

/// The format of a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum NoticeFormat {
    /// One JSON object with all that is known, for programs.
    Webhook,
    /// A line for a channel of Slack.
    Slack,
    /// A line for a channel of Discord.
    Discord,
}

impl NoticeFormat {
    /// Every format.
    pub const ALL: [Self; 3] = [Self::Webhook, Self::Slack, Self::Discord];

    /// Returns its name in the file of settings.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Webhook => "webhook",
            Self::Slack => "slack",
            Self::Discord => "discord",
        }
    }
}

/// An event of a unit, as others read it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnitNotice {
    /// The name of the event, such as `unit_done`.
    pub event: &'static str,
    /// The project's folder.
    pub project: String,
    /// The unit: its id, type, title and metadata.
    pub unit: Value,
    /// Its phase.
    pub phase: &'static str,
    /// The status of the phase.
    pub status: String,
    /// The reason, in one line.
    pub reason: String,
    /// The address of its request at a forge; empty without one.
    pub request: String,
}

impl UnitNotice {
    /// Writes the notice in a format.
    pub fn to_body(&self, format: NoticeFormat) -> Value {
        match format {
            NoticeFormat::Webhook => self.to_object(),
            // Slack reads `<!channel>` and links out of angle brackets, and nothing out of these three entities.
            NoticeFormat::Slack => {
                let line = self.to_line().replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
                json!({ "text": line })
            }
            NoticeFormat::Discord => {
                json!({ "content": self.to_line(), "allowed_mentions": { "parse": [] } })
            }
        }
    }

    /// The object has the keys of the object that hooks after a run read.
    fn to_object(&self) -> Value {
        json!({
            "version": VERSION,
            "event": self.event,
            "project": self.project,
            "unit": self.unit,
            "phase": self.phase,
            "verdict": self.verdict(),
            "status": self.status,
            "reason": self.reason,
            "request": self.request,
        })
    }

    /// The verdict in the words of hooks; of a unit that goes on there is none.
    fn verdict(&self) -> Value {
        match self.status.as_str() {
            "succeeded" => "success".into(),
            "canceled" => "canceled".into(),
            "failed" | "timed_out" | "stalled" => "failure".into(),
            _ => Value::Null,
        }
    }

    fn to_line(&self) -> String {
        let text = |key: &str| self.unit.get(key).and_then(Value::as_str).unwrap_or_default();
        let project = self.project.rsplit('/').next().unwrap_or_default();
        let mut line =
            format!("{project}: {} {} ({}), {}", text("id"), text("title"), self.phase, self.status);
        for more in [&self.reason, &self.request] {
            if !more.is_empty() {
                line.push_str(": ");
                line.push_str(more);
            }
        }
        let visible = line.chars().map(|c| if c.is_control() { ' ' } else { c });
        visible.take(MAX_LINE_CHARS).collect()
    }
}

/// Returns the metadata of a unit that others read: the issue that its goal is about.
pub fn linked_metadata(issue: Option<u64>) -> Map<String, Value> {
    issue.into_iter().map(|issue| ("gh_issue".to_owned(), Value::from(issue))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(title: &str, reason: &str) -> UnitNotice {
        UnitNotice {
            event: "unit_done",
            project: "/home/me/shop".to_owned(),
            unit: json!({ "id": "slice/m1/s1", "type": "slice", "title": title, "metadata": linked_metadata(Some(42)) }),
            phase: "complete",
            status: "succeeded".to_owned(),
            reason: reason.to_owned(),
            request: String::new(),
        }
    }

    /// Each kind of receiver gets its own form; words of agents mention no person and are no markup there.
    ///
    /// Rows: SF-521 (in part: the forms)
    #[test]
    fn each_receiver_gets_its_own_form() {
        let hostile = notice("<!channel> & @everyone", "merged\nas 1");
        assert_eq!(
            hostile.to_body(NoticeFormat::Slack),
            json!({ "text": "shop: slice/m1/s1 &lt;!channel&gt; &amp; @everyone (complete), succeeded: merged as 1" })
        );
        let discord = hostile.to_body(NoticeFormat::Discord);
        assert_eq!(discord["allowed_mentions"], json!({ "parse": [] }));
        assert_eq!(
            discord["content"],
            "shop: slice/m1/s1 <!channel> & @everyone (complete), succeeded: merged as 1"
        );
        let webhook = notice("Sums", "").to_body(NoticeFormat::Webhook);
        assert_eq!((&webhook["verdict"], &webhook["phase"]), (&json!("success"), &json!("complete")));
        assert_eq!(webhook["unit"]["metadata"]["gh_issue"], 42);
        let long = notice(&"x".repeat(10_000), "").to_body(NoticeFormat::Discord);
        assert_eq!(long["content"].as_str().map(|text| text.chars().count()), Some(MAX_LINE_CHARS));
        let open = UnitNotice { status: "pending".to_owned(), ..notice("Sums", "") };
        assert_eq!(open.to_body(NoticeFormat::Webhook)["verdict"], Value::Null);
    }
}

//! Notices to the receivers that the owner has named. Each is posted by a task of its own: no work waits for it, and what cannot be delivered
//! is in the log.

use std::time::Duration;

use serde_json::json;
use writ_autopilot::notice::{NoticeFormat, UnitNotice, linked_metadata};
use writ_runtime::pilot::PilotHands;
use writ_types::credential::CredentialRef;
use writ_types::entry::HookEvent;
use writ_types::error::{Report, ToReport as _};

use super::UnitNews;
use crate::project::OpenProject;

/// The most tries of one notice.
const MAX_TRIES: u32 = 3;
/// The pause after the first failed try; it doubles.
const FIRST_PAUSE: Duration = Duration::from_secs(5);
/// The longest pause, also where the other side asks for more.
const MAX_PAUSE: Duration = Duration::from_secs(60);

/// Posts an event of a unit to its receivers.
pub(super) fn notify_receivers(project: &OpenProject, event: HookEvent, news: &UnitNews<'_>) {
    let config = project.config();
    for receiver in config.notify.iter().filter(|receiver| receiver.on.contains(&event)) {
        // An outage of a receiver must not gather tasks without end.
        let Some(place) = project.looping.take_notice_place() else {
            tracing::warn!(unit = %news.unit.id, event = event.as_str(), "too many notices wait: one is left out");
            continue;
        };
        let body = notice_of(project, event, news).to_body(receiver.format).to_string().into_bytes();
        let (hands, url, format) = (project.hands.clone(), receiver.url.clone(), receiver.format);
        project.hands.spawn(project.tasks.track_future(async move {
            deliver(&hands, (&url, format), body).await;
            drop(place);
        }));
    }
}

fn notice_of(project: &OpenProject, event: HookEvent, news: &UnitNews<'_>) -> UnitNotice {
    let (row, facts) = (&news.unit.row, &news.unit.facts);
    UnitNotice {
        event: event.as_str(),
        project: project.name.clone(),
        unit: json!({
            "id": row.key.id,
            "type": news.unit.id.unit_type().name(),
            "title": row.title,
            "metadata": linked_metadata(facts.gh_issue),
        }),
        phase: news.phase.name(),
        status: news.status.to_owned(),
        reason: news.short_reason(),
        request: facts.ship.as_ref().map(|ship| ship.url.clone()).unwrap_or_default(),
    }
}

/// Posts a notice, several times where another try may help.
async fn deliver(hands: &PilotHands, (url, format): (&CredentialRef, NoticeFormat), body: Vec<u8>) {
    let draining = hands.draining();
    let mut pause = FIRST_PAUSE;
    for tries in 1..=MAX_TRIES {
        let posted = tokio::select! {
            biased;
            () = draining.cancelled() => return,
            posted = hands.post_notice(url, body.clone()) => posted,
        };
        let Err(error) = posted else { return };
        let kind = format.name();
        if !error.can_pass() || tries == MAX_TRIES {
            let Report { code, hint, .. } = error.report();
            return tracing::error!(kind, receiver = %url, %error, code, hint, "a notice was not delivered");
        }
        tracing::warn!(kind, receiver = %url, %error, tries, "a notice is tried again");
        let wanted = error.wait().unwrap_or(pause).max(pause).min(MAX_PAUSE);
        tokio::select! {
            biased;
            () = draining.cancelled() => return,
            () = hands.wait(wanted) => {}
        }
        pause = pause.saturating_mul(2);
    }
}

//! The receivers of notices about units.

use writ_autopilot::notice::NoticeFormat;
use writ_types::credential::CredentialRef;
use writ_types::entry::HookEvent;

use super::section::{FoundSetting, Section};
use super::ship::read_secret_name;
use super::{CONFIG_FILE, PilotConfigError};

/// The most receivers.
pub(super) const MAX_RECEIVERS: usize = 8;

/// The events of units that receivers may get.
const EVENTS: [(&str, HookEvent); 4] = [
    ("unit_started", HookEvent::UnitStarted),
    ("unit_blocked", HookEvent::UnitBlocked),
    ("unit_merged", HookEvent::UnitMerged),
    ("unit_done", HookEvent::UnitDone),
];
/// Those that receivers get where the file names none: what needs a person, and what is over.
const USUAL: [HookEvent; 2] = [HookEvent::UnitBlocked, HookEvent::UnitDone];

/// A receiver of notices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NoticeReceiver {
    /// The form that it takes.
    pub format: NoticeFormat,
    /// Its address, by reference: it is a secret.
    pub url: CredentialRef,
    /// The events that it gets.
    pub on: Vec<HookEvent>,
}

/// Reads the receivers.
pub(super) fn read_receivers(
    list: Vec<(FoundSetting<'_>, Section<'_>)>,
) -> Result<Vec<NoticeReceiver>, PilotConfigError> {
    let mut receivers = Vec::new();
    for (place, mut section) in list {
        // A project may come from anywhere: it must not say who reads of its owner's work.
        if place.origin().0 == CONFIG_FILE {
            return Err(place.fault(
                "stands only in the owner's own file",
                "write it into `pilot.toml` in the home, beside `config.toml`",
            ));
        }
        if receivers.len() >= MAX_RECEIVERS {
            return Err(place.fault(&format!("has more than {MAX_RECEIVERS} entries"), "remove some"));
        }
        let formats = NoticeFormat::ALL.map(|format| (format.name(), format));
        let format = section.read_choice("kind", &formats)?;
        let format = format.ok_or_else(|| place.fault("has no `kind`", "write kind = \"slack\""))?;
        let url = section.find_setting("url");
        let url = url.ok_or_else(|| place.fault("has no `url`", "write url = \"secret:NAME\""))?;
        let hint = "write \"secret:NAME\"; `writ secrets set NAME` stores the address";
        let reference = read_secret_name(&url, hint)?;
        let on = read_events(section.find_setting("on"))?;
        section.end_section()?;
        receivers.push(NoticeReceiver { format, url: reference, on });
    }
    Ok(receivers)
}

fn read_events(setting: Option<FoundSetting<'_>>) -> Result<Vec<HookEvent>, PilotConfigError> {
    let Some(setting) = setting else { return Ok(USUAL.to_vec()) };
    let mut events = Vec::new();
    for name in setting.read_texts()? {
        let found = EVENTS.iter().find(|(known, _)| *known == name);
        let Some((_, event)) = found else {
            let names: Vec<&str> = EVENTS.iter().map(|(name, _)| *name).collect();
            return Err(setting.fault("names an event that is none", format!("one of {}", names.join(", "))));
        };
        if !events.contains(event) {
            events.push(*event);
        }
    }
    Ok(events)
}

//! Writes a document of the agent's, for later sessions.

use writ_policy::permit::Permit;
use writ_tools::outcome::PerformedOutcome;
use writ_types::action::{Action, ChangeKind};
use writ_types::error::{Exit, Report};

use crate::error::EngineError;
use crate::home_files::DocumentText;
use crate::place::{self, CallPlace};

/// Writes the document that a permit names. A home that cannot, or a document that is not the agent's, is an outcome for the model.
pub(super) async fn write_document(
    place: &CallPlace,
    permit: Permit,
) -> Result<PerformedOutcome, EngineError> {
    let prepared = place::opened(place, permit)?;
    let Action::ModifySelf(modify) = &prepared.action else {
        return Err(EngineError::Machine("a permit for something else".to_owned()));
    };
    let failed = |code: &'static str, text: &str, hint: &str| PerformedOutcome::Failed {
        report: Report::new(Exit::Usage, code, text).with_hint(hint),
    };
    let (Some(name), Some(text)) = (modify.document(), modify.content.as_deref()) else {
        return Ok(failed("document.other", "only documents can be written", "use docs_write"));
    };
    // Masked text would be another than the one that was approved.
    if place.services.journal.redactor.mask_text(text) != text {
        return Ok(failed("document.secret", "the text holds a secret", "write it without the secret"));
    }
    let document = DocumentText { name, text, taint: prepared.label.taint };
    Ok(match place.services.outside.home_files.write_document(document).await {
        Ok(written) => {
            if let Some(why) = written.note {
                tracing::warn!(%why, "the change of a document is not recorded");
            }
            let kind = if written.is_new { ChangeKind::Create } else { ChangeKind::Modify };
            let bytes = u64::try_from(text.len()).unwrap_or(u64::MAX);
            PerformedOutcome::Written { files: vec![(modify.path.clone(), kind, bytes)] }
        }
        Err(report) => {
            PerformedOutcome::Failed { report: place.services.journal.redactor.mask_report(report) }
        }
    })
}

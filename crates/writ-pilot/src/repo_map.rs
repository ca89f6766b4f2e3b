//! TEMP
use crate::error::PilotError;
use writ_sandbox::git::GitProject;
pub(crate) async fn draw_map(project: &GitProject) -> Result<String, PilotError> {
    Ok(project.top_dir().display().to_string())
}

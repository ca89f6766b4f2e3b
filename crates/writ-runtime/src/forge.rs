//! The APIs of forges, as far as a request for review needs them: which calls are made, and what their answers mean.
//!
//! GitHub, GitLab, Gitea and Forgejo differ in paths, names and errors, and in nothing else that matters here. First all requests of
//! the branch are read, and only if none of them has this commit or is open, one is opened: so a try that was cut off is repeated
//! without a second request.

use serde::Deserialize;
use serde_json::{Value, json};
use writ_types::action::{ForgeKind, ForgeRequest};

mod error;

pub use error::ForgeError;

/// The longest title, in characters: the shortest limit of the four (255).
pub const MAX_TITLE_CHARS: usize = 200;
/// The longest text, in characters: the shortest limit of the four is 65,536.
pub const MAX_TEXT_CHARS: usize = 16_000;
/// The longest address of a request, in bytes.
pub const MAX_URL_BYTES: usize = 2_048;
/// The longest name of a repository, in bytes, groups included.
pub const MAX_PROJECT_BYTES: usize = 512;
/// The most groups and names in it: GitLab nests groups twenty deep.
const MAX_PROJECT_PARTS: usize = 22;
/// The requests of one page, where the forge chooses those of the branch itself.
const CHOSEN_PAGE: u32 = 30;
/// The requests of one page, where it lists all.
const WHOLE_PAGE: u32 = 50;
/// The most pages that are read: 1,000 requests, the newest first. Of older ones an open one is found by the refusal of a second.
pub const MAX_PAGES: u32 = 20;

/// A call of a forge's API.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgeCall {
    /// The method.
    pub method: &'static str,
    /// The segments of the path below the API's address.
    pub segments: Vec<String>,
    /// The query.
    pub query: Vec<(String, String)>,
    /// The JSON of the body.
    pub body: Option<Value>,
}

/// An answer of a forge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForgeAnswer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// The body.
    pub body: &'a [u8],
    /// The time for which it asks not to be called again, in seconds.
    pub wait_secs: Option<u64>,
}

/// What a page of requests shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoundRequest {
    /// The request of this branch, with its address.
    Found(String),
    /// None, and there is no further page.
    Missing,
    /// None on this page.
    NextPage,
}

/// Returns true for the name of a repository: `owner/name`, with groups in between at GitLab alone.
pub fn is_project(forge: ForgeKind, name: &str) -> bool {
    let parts: Vec<&str> = name.split('/').collect();
    let is_part = |part: &&str| {
        let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_' | '.' | '~' | '+');
        !part.is_empty() && *part != "." && *part != ".." && part.chars().all(is_plain)
    };
    let most = if forge == ForgeKind::Gitlab { MAX_PROJECT_PARTS } else { 2 };
    name.len() <= MAX_PROJECT_BYTES && (2..=most).contains(&parts.len()) && parts.iter().all(is_part)
}

/// Returns the header that carries a token.
pub fn token_header(forge: ForgeKind, token: &str) -> (&'static str, String) {
    match forge {
        ForgeKind::Github => ("authorization", format!("Bearer {token}")),
        ForgeKind::Gitlab => ("private-token", token.to_owned()),
        ForgeKind::Gitea | ForgeKind::Forgejo => ("authorization", format!("token {token}")),
    }
}

/// Returns the path of the requests of a repository.
fn path_of(request: &ForgeRequest) -> Vec<String> {
    let names = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
    if request.forge == ForgeKind::Gitlab {
        // One segment, slashes encoded: so GitLab takes a name where it has a number otherwise.
        return names(&["projects", &request.project, "merge_requests"]);
    }
    let (owner, name) = request.project.split_once('/').unwrap_or((&request.project, ""));
    names(&["repos", owner, name, "pulls"])
}

/// Makes the call that lists the requests of a branch, one page of them, from one.
pub fn list_requests(request: &ForgeRequest, page: u32) -> ForgeCall {
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut query = match request.forge {
        ForgeKind::Github => {
            let owner = request.project.split('/').next().unwrap_or_default();
            vec![pair("head", &format!("{owner}:{}", request.branch)), pair("base", &request.base)]
        }
        ForgeKind::Gitlab => {
            vec![pair("source_branch", &request.branch), pair("target_branch", &request.base)]
        }
        // They choose by no branch: the newest are read, page by page.
        ForgeKind::Gitea | ForgeKind::Forgejo => Vec::new(),
    };
    let size = if lists_all(request.forge) { ("limit", WHOLE_PAGE) } else { ("per_page", CHOSEN_PAGE) };
    query.push(pair("state", "all"));
    query.push(pair(size.0, &size.1.to_string()));
    query.push(pair("page", &page.to_string()));
    ForgeCall { method: "GET", segments: path_of(request), query, body: None }
}

/// Makes the call that opens a request.
pub fn open_request(request: &ForgeRequest) -> ForgeCall {
    let body = match request.forge {
        ForgeKind::Gitlab => json!({
            "title": request.title,
            "description": request.text,
            "source_branch": request.branch,
            "target_branch": request.base,
        }),
        ForgeKind::Github | ForgeKind::Gitea | ForgeKind::Forgejo => json!({
            "title": request.title,
            "body": request.text,
            "head": request.branch,
            "base": request.base,
        }),
    };
    ForgeCall { method: "POST", segments: path_of(request), query: Vec::new(), body: Some(body) }
}

const fn lists_all(forge: ForgeKind) -> bool {
    matches!(forge, ForgeKind::Gitea | ForgeKind::Forgejo)
}

/// A request as GitHub, Gitea and Forgejo show it.
#[derive(Debug, Deserialize)]
struct PullRow {
    html_url: Option<String>,
    state: Option<String>,
    head: Option<BranchRow>,
    base: Option<BranchRow>,
}

/// A branch of such a request.
#[derive(Debug, Deserialize)]
struct BranchRow {
    #[serde(rename = "ref")]
    name: Option<String>,
    sha: Option<String>,
    repo: Option<RepositoryRow>,
}

/// The repository of such a branch.
#[derive(Debug, Deserialize)]
struct RepositoryRow {
    full_name: Option<String>,
}

/// A request as GitLab shows it.
#[derive(Debug, Deserialize)]
struct MergeRow {
    web_url: Option<String>,
    state: Option<String>,
    sha: Option<String>,
    source_branch: Option<String>,
    target_branch: Option<String>,
    source_project_id: Option<u64>,
    target_project_id: Option<u64>,
}

/// A request of any forge.
#[derive(Debug)]
struct RequestRow {
    url: Option<String>,
    is_open: bool,
    commit: Option<String>,
    branch: Option<String>,
    base: Option<String>,
    is_own: bool,
}

impl RequestRow {
    fn from_pull(row: PullRow, project: &str) -> Self {
        let head = row.head.unwrap_or(BranchRow { name: None, sha: None, repo: None });
        // The repository of a deleted fork is not named.
        let name = head.repo.and_then(|repo| repo.full_name);
        Self {
            url: row.html_url,
            is_open: row.state.as_deref() == Some("open"),
            commit: head.sha,
            branch: head.name,
            base: row.base.and_then(|base| base.name),
            is_own: name.is_some_and(|name| name.eq_ignore_ascii_case(project)),
        }
    }

    fn from_merge(row: MergeRow) -> Self {
        Self {
            url: row.web_url,
            is_open: row.state.as_deref() == Some("opened"),
            commit: row.sha,
            branch: row.source_branch,
            base: row.target_branch,
            is_own: row.source_project_id == row.target_project_id,
        }
    }

    /// Returns true if it is the request of this branch, of the same repository.
    fn is_of(&self, request: &ForgeRequest) -> bool {
        self.is_own
            && self.branch.as_deref() == Some(&*request.branch)
            && self.base.as_deref() == Some(&*request.base)
    }
}

/// Reads a page of requests.
///
/// # Errors
///
/// With the reason why it shows nothing.
pub fn read_page(request: &ForgeRequest, answer: ForgeAnswer<'_>) -> Result<FoundRequest, ForgeError> {
    if answer.status != 200 {
        return Err(ForgeError::from_answer(answer));
    }
    let rows: Vec<RequestRow> = if request.forge == ForgeKind::Gitlab {
        let rows: Vec<MergeRow> = serde_json::from_slice(answer.body).map_err(|_| ForgeError::Format)?;
        rows.into_iter().map(RequestRow::from_merge).collect()
    } else {
        let rows: Vec<PullRow> = serde_json::from_slice(answer.body).map_err(|_| ForgeError::Format)?;
        rows.into_iter().map(|row| RequestRow::from_pull(row, &request.project)).collect()
    };
    let is_last = rows.is_empty() || !lists_all(request.forge);
    let own: Vec<RequestRow> = rows.into_iter().filter(|row| row.is_of(request)).collect();
    // One that was merged or closed at this commit is the answer to it: a second one would ask the same again.
    let has_commit = |row: &&RequestRow| row.commit.as_deref() == Some(&*request.commit);
    let found = own.iter().find(|row| row.is_open).or_else(|| own.iter().find(has_commit));
    match found {
        Some(row) => read_url(row.url.as_deref()).map(FoundRequest::Found),
        None if is_last => Ok(FoundRequest::Missing),
        None => Ok(FoundRequest::NextPage),
    }
}

/// Reads the answer to the opening of a request. Returns its address.
///
/// # Errors
///
/// With the reason why it was not opened.
pub fn read_opened(request: &ForgeRequest, answer: ForgeAnswer<'_>) -> Result<String, ForgeError> {
    if !matches!(answer.status, 200 | 201) {
        return Err(ForgeError::from_answer(answer));
    }
    let opened: Value = serde_json::from_slice(answer.body).map_err(|_| ForgeError::Format)?;
    let key = if request.forge == ForgeKind::Gitlab { "web_url" } else { "html_url" };
    read_url(opened.get(key).and_then(Value::as_str))
}

/// Takes an address that people are shown: one of the web, short, and without a character that acts unseen.
fn read_url(url: Option<&str>) -> Result<String, ForgeError> {
    let url = url.ok_or(ForgeError::Format)?;
    let is_web = url.starts_with("https://") || url.starts_with("http://");
    let is_plain = url.bytes().all(|byte| byte.is_ascii_graphic());
    if is_web && is_plain && url.len() <= MAX_URL_BYTES {
        Ok(url.to_owned())
    } else {
        Err(ForgeError::Format)
    }
}

#[cfg(test)]
mod tests;

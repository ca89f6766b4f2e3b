//! A scripted forge with the wire formats of GitHub, GitLab, and Gitea or Forgejo on a loopback port, strict about all of them, as far as
//! requests for review go.
//!
//! A call that the forge would not take is answered as it would, and recorded as a complaint.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use writ_types::action::ForgeKind;

use crate::forge_git::answer_git;

/// The most calls in the record.
const MAX_RECORDED: usize = 1_000;
/// The longest title that the forges take, in characters.
const MAX_TITLE: usize = 255;

/// The answer to the next call, in place of the forge's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ForgeFault {
    /// A status with these words, and for how many seconds the forge asks not to be called.
    Status(u16, String, Option<u64>),
    /// A page of a browser, with status 200.
    Page,
    /// A redirect to this address.
    Redirect(String),
    /// A request is opened, and its answer does not arrive.
    LostAnswer,
}

/// A request for review at the forge.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ForgeEntry {
    /// Its number.
    pub number: u64,
    /// Its branch.
    pub branch: String,
    /// The branch that it is to be merged into.
    pub base: String,
    /// Its title.
    pub title: String,
    /// Its text.
    pub text: String,
    /// The commit of its branch.
    pub commit: String,
    /// Set while it is open.
    pub is_open: bool,
}

/// A running forge with one repository. Dropping it stops it.
#[derive(Debug)]
pub struct ForgeServer {
    address: SocketAddr,
    shared: Arc<ForgeState>,
    running: JoinHandle<()>,
}

#[derive(Debug)]
struct ForgeState {
    kind: ForgeKind,
    project: String,
    token: String,
    address: SocketAddr,
    record: Mutex<ForgeRecord>,
}

#[derive(Debug, Default)]
struct ForgeRecord {
    faults: VecDeque<ForgeFault>,
    entries: Vec<ForgeEntry>,
    /// The commits of branches, where the test has named them.
    branches: BTreeMap<String, String>,
    calls: Vec<String>,
    complaints: Vec<String>,
    /// The repository that git pushes to.
    repository: Option<PathBuf>,
}

impl ForgeServer {
    /// Starts a forge on a free loopback port, for those who have `token`.
    ///
    /// # Errors
    ///
    /// If no port can be bound.
    pub async fn start(kind: ForgeKind, project: &str, token: &str) -> io::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (project, token) = (project.to_owned(), token.to_owned());
        let shared = Arc::new(ForgeState { kind, project, token, address, record: Mutex::default() });
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let running = tokio::spawn(async move {
            if axum::serve(listener, router).await.is_err() {
                // The listener is closed; clients notice that themselves.
            }
        });
        Ok(Self { address, shared, running })
    }

    /// Returns the address of its API.
    pub fn api(&self) -> String {
        format!("http://{}{}", self.address, prefix(self.shared.kind))
    }

    /// Answers the next calls with these faults, one each.
    pub fn break_next(&self, faults: impl IntoIterator<Item = ForgeFault>) {
        self.shared.record().faults.extend(faults);
    }

    /// Lets git push to this repository, and returns the address of that.
    pub fn serve_repository(&self, folder: &Path) -> String {
        self.shared.record().repository = Some(folder.to_owned());
        format!("http://{}/{}.git", self.address, self.shared.project)
    }

    /// Says which commit a branch has.
    pub fn set_branch(&self, branch: &str, commit: &str) {
        self.shared.record().branches.insert(branch.to_owned(), commit.to_owned());
    }

    /// Merges or closes all requests.
    pub fn close_all(&self) {
        self.shared.record().entries.iter_mut().for_each(|entry| entry.is_open = false);
    }

    /// Returns the address of a request for people.
    pub fn url_of(&self, number: u64) -> String {
        self.shared.url_of(number)
    }

    /// Lists all requests, the oldest first.
    pub fn entries(&self) -> Vec<ForgeEntry> {
        self.shared.record().entries.clone()
    }

    /// Lists all calls, as method and path with the query.
    pub fn calls(&self) -> Vec<String> {
        self.shared.record().calls.clone()
    }

    /// Lists the faults of all calls.
    pub fn complaints(&self) -> Vec<String> {
        self.shared.record().complaints.clone()
    }
}

impl Drop for ForgeServer {
    fn drop(&mut self) {
        self.running.abort();
    }
}

const fn prefix(kind: ForgeKind) -> &'static str {
    match kind {
        ForgeKind::Github => "",
        ForgeKind::Gitlab => "/api/v4",
        ForgeKind::Gitea | ForgeKind::Forgejo => "/api/v1",
    }
}

impl ForgeState {
    fn record(&self) -> MutexGuard<'_, ForgeRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn complain(&self, why: String) {
        let mut record = self.record();
        if record.complaints.len() < MAX_RECORDED {
            record.complaints.push(why);
        }
    }

    /// The path of its requests.
    fn path(&self) -> String {
        let prefix = prefix(self.kind);
        match self.kind {
            ForgeKind::Gitlab => {
                format!("{prefix}/projects/{}/merge_requests", self.project.replace('/', "%2F"))
            }
            ForgeKind::Github | ForgeKind::Gitea | ForgeKind::Forgejo => {
                format!("{prefix}/repos/{}/pulls", self.project)
            }
        }
    }

    fn url_of(&self, number: u64) -> String {
        let part = match self.kind {
            ForgeKind::Github => "pull",
            ForgeKind::Gitlab => "-/merge_requests",
            ForgeKind::Gitea | ForgeKind::Forgejo => "pulls",
        };
        format!("http://{}/{}/{part}/{number}", self.address, self.project)
    }

    /// An error in the words of the forge.
    fn error(&self, status: u16, said: &str) -> Response {
        let body = match (self.kind, status) {
            (ForgeKind::Github, 422) => json!({
                "message": "Validation Failed",
                "errors": [{ "resource": "PullRequest", "code": "custom", "message": said }],
                "documentation_url": "https://docs.github.com/rest/pulls/pulls#create-a-pull-request",
                "status": "422",
            }),
            (ForgeKind::Gitlab, 409) => json!({ "message": [said] }),
            (ForgeKind::Github | ForgeKind::Gitlab | ForgeKind::Gitea | ForgeKind::Forgejo, _) => {
                json!({ "message": said })
            }
        };
        let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        (status, axum::Json(body)).into_response()
    }

    fn has_token(&self, headers: &HeaderMap) -> bool {
        let (name, value) = match self.kind {
            ForgeKind::Github => ("authorization", format!("Bearer {}", self.token)),
            ForgeKind::Gitlab => ("private-token", self.token.clone()),
            ForgeKind::Gitea | ForgeKind::Forgejo => ("authorization", format!("token {}", self.token)),
        };
        headers.get(name).is_some_and(|given| *given == *value)
    }

    fn show(&self, entry: &ForgeEntry) -> Value {
        let url = self.url_of(entry.number);
        match self.kind {
            ForgeKind::Gitlab => json!({
                "id": 7_000 + entry.number,
                "iid": entry.number,
                "project_id": 7,
                "source_project_id": 7,
                "target_project_id": 7,
                "title": entry.title,
                "description": entry.text,
                "state": if entry.is_open { "opened" } else { "merged" },
                "source_branch": entry.branch,
                "target_branch": entry.base,
                "sha": entry.commit,
                "web_url": url,
            }),
            ForgeKind::Github | ForgeKind::Gitea | ForgeKind::Forgejo => json!({
                "id": 9_000 + entry.number,
                "number": entry.number,
                "title": entry.title,
                "body": entry.text,
                "state": if entry.is_open { "open" } else { "closed" },
                "html_url": url,
                "head": { "ref": entry.branch, "sha": entry.commit, "repo": { "full_name": self.project } },
                "base": { "ref": entry.base, "sha": "", "repo": { "full_name": self.project } },
            }),
        }
    }

    /// Lists requests as the query asks for them.
    fn list(&self, query: &BTreeMap<String, String>) -> Response {
        let get = |name: &str| query.get(name).map(String::as_str);
        let (allowed, size): (&[&str], &str) = match self.kind {
            ForgeKind::Github => (&["head", "base", "state", "per_page", "page"], "per_page"),
            ForgeKind::Gitlab => {
                (&["source_branch", "target_branch", "state", "per_page", "page"], "per_page")
            }
            ForgeKind::Gitea | ForgeKind::Forgejo => (&["state", "limit", "page"], "limit"),
        };
        if let Some(other) = query.keys().find(|name| !allowed.contains(&name.as_str())) {
            self.complain(format!("the list has no parameter '{other}'"));
            return self.error(422, "unknown parameter");
        }
        let number = |name: &str| get(name).and_then(|text| text.parse::<usize>().ok());
        let (Some(size), Some(page)) = (number(size), number("page").filter(|page| *page > 0)) else {
            self.complain("a page without its number or size".to_owned());
            return self.error(422, "no page");
        };
        let owner = self.project.split('/').next().unwrap_or_default();
        let matches = |entry: &&ForgeEntry| {
            let branch = match self.kind {
                ForgeKind::Github => get("head").and_then(|head| head.strip_prefix(&format!("{owner}:"))),
                ForgeKind::Gitlab => get("source_branch"),
                ForgeKind::Gitea | ForgeKind::Forgejo => Some(entry.branch.as_str()),
            };
            let base = get("base").or(get("target_branch")).unwrap_or(&entry.base);
            branch == Some(&*entry.branch)
                && base == entry.base
                && (entry.is_open || get("state") == Some("all"))
        };
        let record = self.record();
        let rows: Vec<Value> = record
            .entries
            .iter()
            .rev()
            .filter(matches)
            .skip((page - 1) * size)
            .take(size)
            .map(|entry| self.show(entry))
            .collect();
        axum::Json(Value::from(rows)).into_response()
    }

    /// Opens a request as the body asks for it.
    fn open(&self, headers: &HeaderMap, body: &[u8]) -> Response {
        let keys = if self.kind == ForgeKind::Gitlab {
            ["title", "description", "source_branch", "target_branch"]
        } else {
            ["title", "body", "head", "base"]
        };
        let is_json = headers.get(header::CONTENT_TYPE).is_some_and(|kind| kind == "application/json");
        let asked: Value = serde_json::from_slice(body).unwrap_or_default();
        let fields: Vec<String> =
            keys.iter().filter_map(|key| Some(asked.get(*key)?.as_str()?.to_owned())).collect();
        let [title, text, branch, base] = fields.as_slice() else {
            self.complain(format!("a request without {keys:?}: {asked}"));
            return self.error(422, "missing field");
        };
        let has_more = asked.as_object().is_none_or(|asked| asked.len() != keys.len());
        if !is_json || has_more || title.is_empty() || title.chars().count() > MAX_TITLE {
            self.complain(format!("a wrong request: {asked}"));
            return self.error(422, "wrong field");
        }
        let mut record = self.record();
        let is_same = |entry: &&ForgeEntry| entry.is_open && entry.branch == *branch && entry.base == *base;
        if let Some(entry) = record.entries.iter().find(is_same) {
            let number = entry.number;
            drop(record);
            let owner = self.project.split('/').next().unwrap_or_default();
            return match self.kind {
                ForgeKind::Github => {
                    self.error(422, &format!("A pull request already exists for {owner}:{branch}."))
                }
                ForgeKind::Gitlab => self.error(
                    409,
                    &format!("Another open merge request already exists for this source branch: !{number}"),
                ),
                ForgeKind::Gitea | ForgeKind::Forgejo => self.error(
                    409,
                    &format!("pull request already exists for these targets [id: {number}, issue_id: 1]"),
                ),
            };
        }
        let number = u64::try_from(record.entries.len()).unwrap_or(u64::MAX).saturating_add(1);
        let commit = record.branches.get(branch).cloned().unwrap_or_else(|| "0".repeat(40));
        let [title, text, branch, base] = [title, text, branch, base].map(String::clone);
        let entry = ForgeEntry { number, branch, base, title, text, commit, is_open: true };
        record.entries.push(entry.clone());
        drop(record);
        (StatusCode::CREATED, axum::Json(self.show(&entry))).into_response()
    }
}

async fn answer(
    State(shared): State<Arc<ForgeState>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if let Some(answer) = answer_push(&shared, (method.clone(), &uri), (&headers, body.clone())).await {
        return answer;
    }
    let fault = {
        let mut record = shared.record();
        if record.calls.len() < MAX_RECORDED {
            record.calls.push(format!("{method} {uri}"));
        }
        // An answer that does not arrive is one to the opening of a request.
        let waits = record.faults.front() == Some(&ForgeFault::LostAnswer) && method != Method::POST;
        if waits { None } else { record.faults.pop_front() }
    };
    match fault {
        Some(ForgeFault::Status(status, said, wait)) => {
            let mut answer = shared.error(status, &said);
            if let Some(wait) = wait {
                answer.headers_mut().insert(header::RETRY_AFTER, wait.into());
            }
            return answer;
        }
        Some(ForgeFault::Page) => {
            return ([(header::CONTENT_TYPE, "text/html")], "<!doctype html><p>Sign in").into_response();
        }
        Some(ForgeFault::Redirect(to)) => {
            return (StatusCode::MOVED_PERMANENTLY, [(header::LOCATION, to)]).into_response();
        }
        Some(ForgeFault::LostAnswer) => {
            let opened = shared.open(&headers, &body);
            drop(opened);
            return shared.error(502, "Bad Gateway");
        }
        None => {}
    }
    if !shared.has_token(&headers) {
        shared.complain(format!("{method} {uri}: a wrong token"));
        return shared.error(401, "Bad credentials");
    }
    if uri.path() != shared.path() {
        return shared.error(404, "Not Found");
    }
    let query = form_urlencoded::parse(uri.query().unwrap_or_default().as_bytes());
    match method {
        Method::GET => {
            shared.list(&query.map(|(name, value)| (name.into_owned(), value.into_owned())).collect())
        }
        Method::POST => shared.open(&headers, &body),
        _ => shared.error(405, "Method Not Allowed"),
    }
}

/// Answers a call of git; `None`: it is one of the API.
async fn answer_push(
    shared: &ForgeState,
    (method, uri): (Method, &Uri),
    request: (&HeaderMap, Bytes),
) -> Option<Response> {
    let below = uri.path().strip_prefix(&format!("/{}.git/", shared.project))?.to_owned();
    let folder = shared.record().repository.clone()?;
    let user = (shared.kind.git_user(), shared.token.as_str());
    let query = uri.query().unwrap_or_default();
    Some(answer_git(&folder, user, (method, &below, query), request).await)
}

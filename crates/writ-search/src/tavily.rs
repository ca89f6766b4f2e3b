//! Tavily: `POST search` with a JSON body, and the key as a bearer token.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::json;
use writ_egress::http::{Client, RequestBuilder, Url};

use crate::format::{NoHeader, NotInFormat, SearchFormat, SearchRequest, sensitive_header};
use crate::search::SearchHit;

/// The format.
#[derive(Debug)]
pub(crate) struct Tavily;

impl SearchFormat for Tavily {
    fn base_url(&self) -> &'static str {
        "https://api.tavily.com/"
    }

    fn build_request(
        &self,
        client: &Client,
        base: &Url,
        key: &SecretString,
        search: SearchRequest<'_>,
    ) -> Result<RequestBuilder, NoHeader> {
        let mut url = base.clone();
        url.set_path(&format!("{}search", base.path()));
        let key = sensitive_header(&format!("Bearer {}", key.expose_secret()))?;
        // No answer of its own: another model's words would be taken for what a page says.
        let body = json!({
            "query": search.query,
            "max_results": search.max_results,
            "search_depth": "basic",
            "include_answer": false,
            "include_raw_content": false,
            "include_images": false,
        });
        Ok(client.post(url).header("authorization", key).json(&body))
    }

    fn refuses_key(&self, status: u16) -> bool {
        matches!(status, 401 | 403)
    }

    fn read_hits(&self, body: &[u8]) -> Result<Vec<SearchHit>, NotInFormat> {
        let answer: TavilyAnswer = serde_json::from_slice(body).map_err(|_| NotInFormat)?;
        let hit = |one: TavilyHit| SearchHit { title: one.title, url: one.url, text: one.content };
        Ok(answer.results.into_iter().map(hit).collect())
    }
}

#[derive(Deserialize)]
struct TavilyAnswer {
    results: Vec<TavilyHit>,
}

#[derive(Deserialize)]
struct TavilyHit {
    title: String,
    url: String,
    content: String,
}

//! The Brave Search API: `GET web/search?q=…`, with the key in `X-Subscription-Token`.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use writ_egress::http::{Client, RequestBuilder, Url};

use crate::format::{NoHeader, NotInFormat, SearchFormat, SearchRequest, sensitive_header};
use crate::search::SearchHit;

/// The format.
#[derive(Debug)]
pub(crate) struct Brave;

impl SearchFormat for Brave {
    fn base_url(&self) -> &'static str {
        "https://api.search.brave.com/res/v1/"
    }

    fn build_request(
        &self,
        client: &Client,
        base: &Url,
        key: &SecretString,
        search: SearchRequest<'_>,
    ) -> Result<RequestBuilder, NoHeader> {
        let mut url = base.clone();
        url.set_path(&format!("{}web/search", base.path()));
        // Without decorations, texts hold no tags around the words that were found.
        url.query_pairs_mut()
            .append_pair("q", search.query)
            .append_pair("count", &search.max_results.to_string())
            // Marks around words of the query would stand in the texts.
            .append_pair("text_decorations", "false")
            .append_pair("result_filter", "web");
        let key = sensitive_header(key.expose_secret())?;
        Ok(client.get(url).header("accept", "application/json").header("x-subscription-token", key))
    }

    fn refuses_key(&self, status: u16) -> bool {
        // The provider answers 422 for an invalid key; the rest of the request is made here and valid.
        matches!(status, 401 | 403 | 422)
    }

    fn read_hits(&self, body: &[u8]) -> Result<Vec<SearchHit>, NotInFormat> {
        let answer: BraveAnswer = serde_json::from_slice(body).map_err(|_| NotInFormat)?;
        // Errors of this provider also come with status 200.
        if answer.kind != "search" {
            return Err(NotInFormat);
        }
        // This part is missing if nothing was found.
        let results = answer.web.map(|web| web.results).unwrap_or_default();
        let hit = |one: BraveHit| SearchHit {
            title: one.title,
            url: one.url,
            text: one.description.unwrap_or_default(),
        };
        Ok(results.into_iter().map(hit).collect())
    }
}

#[derive(Deserialize)]
struct BraveAnswer {
    #[serde(rename = "type")]
    kind: String,
    web: Option<Web>,
}

#[derive(Deserialize)]
struct Web {
    results: Vec<BraveHit>,
}

#[derive(Deserialize)]
struct BraveHit {
    title: String,
    url: String,
    description: Option<String>,
}

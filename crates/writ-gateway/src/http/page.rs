//! The page: static files, built into the binary.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use rust_embed::RustEmbed;

/// Restricts the page to its own files and its own server, and to nothing written into the document.
pub(crate) const CONTENT_SECURITY_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
     img-src 'self' data:; connect-src 'self'; manifest-src 'self'; worker-src 'self'; form-action 'none'; \
     frame-ancestors 'none'; base-uri 'none'";

#[derive(RustEmbed)]
#[folder = "web/"]
struct Files;

/// A file of the page, if it is one.
pub(crate) fn serve_file(method: &Method, path: &str, headers: &HeaderMap) -> Option<Response> {
    let name = file_name(path);
    // A file without a known type is not served, so that nothing is interpreted by guess.
    let kind = content_type(name)?;
    let file = Files::get(name)?;
    if method != Method::GET && method != Method::HEAD {
        let allow = [(header::ALLOW, "GET, HEAD")];
        return Some((StatusCode::METHOD_NOT_ALLOWED, allow).into_response());
    }
    // The hash of the content: a rebuilt file gets another tag.
    let tag = format!("\"{}\"", hex::encode(&file.metadata.sha256_hash()[..16]));
    let known = headers.get_all(header::IF_NONE_MATCH).iter().any(|known| {
        known
            .to_str()
            .is_ok_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag))
    });
    let length = HeaderValue::from(file.data.len());
    let mut response = match (known, method == Method::HEAD) {
        (true, _) => StatusCode::NOT_MODIFIED.into_response(),
        (false, true) => Body::empty().into_response(),
        (false, false) => Body::from(file.data).into_response(),
    };
    let headers = response.headers_mut();
    if !known {
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
        headers.insert(header::CONTENT_LENGTH, length);
    }
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(header::ETAG, tag);
    }
    // Asked for again each time, and answered with 304: a new version is there at once.
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    Some(response)
}

fn file_name(path: &str) -> &str {
    match path.trim_start_matches('/') {
        "" => "index.html",
        name => name,
    }
}

/// The type of a file. What has none here is not served.
fn content_type(name: &str) -> Option<&'static str> {
    if name == "manifest.json" {
        return Some("application/manifest+json");
    }
    Some(match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "ico" => "image/x-icon",
        "webp" => "image/webp",
        "woff2" => "font/woff2",
        _ => return None,
    })
}

/// Returns the page for a link that is used, expired or wrong.
pub(crate) fn used_link() -> Response {
    let text = "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>Writ</title>\
        <meta name=\"viewport\" content=\"width=device-width\"></head><body><h1>This link is not good</h1>\
        <p>A link works once, and for ten minutes. To get another, run <code>writ status --link</code> on \
        the machine where Writ runs.</p></body></html>";
    let headers = [(header::CONTENT_TYPE, "text/html; charset=utf-8"), (header::CACHE_CONTROL, "no-store")];
    (StatusCode::FORBIDDEN, headers, text).into_response()
}

#[cfg(test)]
mod tests {
    use writ_types::entry::Fact;

    use super::*;

    fn has(path: &str) -> bool {
        serve_file(&Method::GET, path, &HeaderMap::new()).is_some()
    }

    /// Activity filters by kind and says each in words: none may be missing there.
    #[test]
    fn every_kind_of_entry_has_its_words_in_the_page() {
        let words = include_str!("../../web/js/format.js");
        let events =
            words.split_once("EVENTS = {").and_then(|(_, rest)| rest.split_once('}')).expect("a list").0;
        let named: Vec<&str> =
            events.lines().filter_map(|line| Some(line.trim().split_once(':')?.0)).collect();
        let missing = Fact::EVENTS.into_iter().filter(|event| !named.contains(event));
        assert_eq!(missing.collect::<Vec<_>>(), [""; 0]);
        assert_eq!(named.len(), Fact::EVENTS.len(), "and no others");
    }

    #[test]
    fn only_files_of_the_page_are_served() {
        assert!(has("/") && has("/index.html") && has("/manifest.json"));
        for path in
            ["/../Cargo.toml", "/web/index.html", "/index", "/icons", "/icons/", "/js/../index.html", "/.git"]
        {
            assert!(!has(path), "{path}");
        }
    }

    /// Rows: SIL-235
    #[test]
    fn every_file_has_a_type_and_none_names_another_server() {
        for name in Files::iter() {
            assert!(content_type(&name).is_some(), "{name}");
            let file = Files::get(&name).expect("there");
            let text = String::from_utf8_lossy(&file.data).into_owned();
            // The names of XML formats are no addresses that are loaded.
            let text = text.replace("http://www.w3.org/", "");
            assert!(!text.contains("http://") && !text.contains("https://"), "{name}");
        }
    }

    /// Threat 13: what a reply could make the page load.
    #[test]
    fn the_policy_names_this_server_and_no_other() {
        let rules: Vec<&str> = CONTENT_SECURITY_POLICY.split(';').map(str::trim).collect();
        assert_eq!(rules.first(), Some(&"default-src 'none'"), "what no other rule names is refused");
        for rule in &rules {
            let mut words = rule.split_whitespace();
            let name = words.next().expect("a name");
            for source in words {
                let own = matches!(source, "'none'" | "'self'") || (name == "img-src" && source == "data:");
                assert!(own, "{rule}");
            }
        }
        for name in ["frame-src", "media-src", "font-src", "object-src"] {
            assert!(!CONTENT_SECURITY_POLICY.contains(name), "{name} is left to the first rule");
        }
        for name in ["form-action 'none'", "base-uri 'none'", "frame-ancestors 'none'"] {
            assert!(rules.contains(&name), "no default stands for {name}");
        }
    }

    #[test]
    fn what_is_known_is_not_sent_again() {
        let first = serve_file(&Method::GET, "/", &HeaderMap::new()).expect("there");
        assert_eq!(first.status(), StatusCode::OK);
        assert_eq!(first.headers()[header::CONTENT_TYPE], "text/html; charset=utf-8");
        let mut known = HeaderMap::new();
        known.insert(header::IF_NONE_MATCH, first.headers()[header::ETAG].clone());
        assert_eq!(serve_file(&Method::GET, "/", &known).expect("there").status(), StatusCode::NOT_MODIFIED);
        known.insert(header::IF_NONE_MATCH, HeaderValue::from_static("\"other\""));
        assert_eq!(serve_file(&Method::GET, "/", &known).expect("there").status(), StatusCode::OK);
        let posted = serve_file(&Method::POST, "/", &HeaderMap::new()).expect("there");
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    }
}

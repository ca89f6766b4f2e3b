//! Images and PDF files in requests, in the form that each format has for them.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Map, Value};

use super::http::Refusal;

/// A file of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParsedFile {
    /// Its media type; empty where the format does not say it.
    pub media: String,
    /// Its bytes.
    pub content: Vec<u8>,
}

/// The image types that every provider takes.
const IMAGES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];

impl ParsedFile {
    fn read(media: &str, content: &str, at: &str) -> Result<Self, Refusal> {
        let content = STANDARD.decode(content);
        let content = content.map_err(|_| Refusal::invalid(format!("{at}: Invalid base64 data")))?;
        if content.is_empty() {
            return Err(Refusal::invalid(format!("{at}: the file is empty")));
        }
        Ok(Self { media: media.to_owned(), content })
    }

    /// Reads `data:MEDIA;base64,CONTENT`.
    fn read_url(url: &str, at: &str) -> Result<Self, Refusal> {
        let parts = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
        let (media, content) =
            parts.ok_or_else(|| Refusal::invalid(format!("{at}: expected a base64-encoded data URL")))?;
        Self::read(media, content, at)
    }

    fn check_image(self, at: &str) -> Result<Self, Refusal> {
        if IMAGES.contains(&self.media.as_str()) {
            return Ok(self);
        }
        Err(Refusal::invalid(format!("{at}: unsupported image type {}", self.media)))
    }

    fn check_pdf(self, at: &str) -> Result<Self, Refusal> {
        if self.media == "application/pdf" {
            return Ok(self);
        }
        Err(Refusal::invalid(format!("{at}: unsupported file type {}", self.media)))
    }
}

/// The file of a part of a message, in any of the formats; `None`: the part is no file.
///
/// # Errors
///
/// If it is a file, and not as its format wants it.
pub(crate) fn file_of(part: &Map<String, Value>, at: &str) -> Option<Result<ParsedFile, Refusal>> {
    fn text<'a>(value: Option<&'a Value>, field: &str) -> Result<&'a str, Refusal> {
        let text = value.and_then(|value| value.get(field)).and_then(Value::as_str);
        text.ok_or_else(|| Refusal::invalid(format!("{field}: Field required")))
    }
    let own = Value::Object(part.clone());
    let kind = part.get("type").and_then(Value::as_str);
    let read = match kind {
        Some("image" | "document") => {
            let source = part.get("source");
            let file = (|| match text(source, "type")? {
                "base64" => ParsedFile::read(text(source, "media_type")?, text(source, "data")?, at),
                other => Err(Refusal::invalid(format!("{at}.source.type: unexpected '{other}'"))),
            })();
            let is_image = kind == Some("image");
            file.and_then(|file| if is_image { file.check_image(at) } else { file.check_pdf(at) })
        }
        Some("image_url") => text(part.get("image_url"), "url")
            .and_then(|url| ParsedFile::read_url(url, at))
            .and_then(|file| file.check_image(at)),
        Some("file") => text(part.get("file"), "filename")
            .and_then(|_| text(part.get("file"), "file_data"))
            .and_then(|url| ParsedFile::read_url(url, at))
            .and_then(|file| file.check_pdf(at)),
        Some("input_image") => text(Some(&own), "image_url")
            .and_then(|url| ParsedFile::read_url(url, at))
            .and_then(|file| file.check_image(at)),
        Some("input_file") => text(Some(&own), "filename")
            .and_then(|_| text(Some(&own), "file_data"))
            .and_then(|url| ParsedFile::read_url(url, at))
            .and_then(|file| file.check_pdf(at)),
        Some(_) => return None,
        None => {
            let data = part.get("inlineData").or_else(|| part.get("inline_data"))?;
            let media = text(Some(data), "mimeType").or_else(|_| text(Some(data), "mime_type"));
            media.and_then(|media| ParsedFile::read(media, text(Some(data), "data")?, at))
        }
    };
    Some(read)
}

/// The images of a message in Ollama's format: base64 alone.
pub(crate) fn images_of(fields: &Map<String, Value>, at: &str) -> Result<Vec<ParsedFile>, Refusal> {
    let images = fields.get("images").and_then(Value::as_array).into_iter().flatten();
    images.map(|image| ParsedFile::read("", image.as_str().unwrap_or_default(), at)).collect()
}

/// Every file of a checked request, in order.
pub(crate) fn all_files(raw: &Value) -> Vec<ParsedFile> {
    match raw {
        Value::Array(items) => items.iter().flat_map(all_files).collect(),
        Value::Object(fields) => match file_of(fields, "") {
            Some(file) => file.into_iter().collect(),
            None => {
                let images = images_of(fields, "").unwrap_or_default();
                images.into_iter().chain(fields.values().flat_map(all_files)).collect()
            }
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Vec::new(),
    }
}

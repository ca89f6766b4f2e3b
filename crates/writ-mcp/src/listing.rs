//! Lists that a server gives in pages. A bad item is left out and reported; the rest is used.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Value, json};
use writ_types::visible::escape_line;

use crate::definition::{Definition, MAX_SHOWN_CHARS, empty};
use crate::error::McpError;
use crate::message::METHOD_NOT_FOUND;
use crate::reading::{self, Has};

/// The most tools of one server that are used: servers made of whole web APIs have about 450.
pub const MAX_TOOLS: usize = 512;
/// The most bytes of all tools of one server, as JSON: they are shown to the owner in one frame.
pub const MAX_LIST_BYTES: usize = 1536 * 1024;
/// The most pages that are turned: eight tools on each page make up [`MAX_TOOLS`].
pub(crate) const MAX_PAGES: usize = 64;
/// The longest cursor, in bytes.
const MAX_CURSOR_BYTES: usize = 4 * 1024;
/// The most remarks about what is left out of one list; more are counted.
const MAX_REMARKS: usize = 32;
/// The method that lists a server's tools.
const METHOD: &str = "tools/list";

/// The tools of a server, as far as they can be used.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// The tools, by name.
    pub tools: Vec<Definition>,
    /// The reasons why other tools, or the rest of the list, are left out: in our own words, with the
    /// server's names escaped.
    pub left_out: Vec<String>,
}

/// The pages of a list.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    cursor: Option<String>,
    /// The cursor of the page that was asked for last.
    asked: Option<String>,
    seen: BTreeSet<String>,
    turned: usize,
    broken: Option<String>,
}

impl Pages {
    /// Returns the parameters that ask for the next page; `None` after the last.
    pub(crate) fn next_page(&mut self) -> Option<Value> {
        match (self.turned, self.cursor.take()) {
            (0, _) => Some(empty()),
            (_, None) => None,
            // A server that always names a next page would be read for ever.
            (MAX_PAGES.., Some(_)) => {
                self.end(format!("its list has more than {MAX_PAGES} pages; the rest is left out"));
                None
            }
            (_, Some(cursor)) => {
                let page = json!({ "cursor": &cursor });
                self.asked = Some(cursor);
                Some(page)
            }
        }
    }

    /// Takes note of where the page after this one begins. A cursor that came before would lead in a circle and ends the
    /// list. An empty one is a cursor by the protocol, but is mostly sent for the end: it is tried once.
    pub(crate) fn turn_page(&mut self, result: &Value) {
        self.turned = self.turned.saturating_add(1);
        match result.get("nextCursor") {
            None | Some(Value::Null) => {}
            Some(Value::String(cursor)) if cursor.len() <= MAX_CURSOR_BYTES => {
                // A cursor that is new leads on; one that came before would lead in a circle.
                if self.seen.insert(cursor.clone()) {
                    self.cursor = Some(cursor.clone());
                } else if !cursor.is_empty() {
                    self.end("its list leads back to an earlier page, and was ended there".to_owned());
                }
            }
            Some(_) => self.end("the cursor of its list is no short text; the rest is left out".to_owned()),
        }
    }

    /// Ends the list early, for this reason.
    pub(crate) fn end(&mut self, why: String) {
        self.cursor = None;
        self.broken.get_or_insert(why);
    }

    /// Takes the failure to get a page.
    ///
    /// # Errors
    ///
    /// The failure itself, at the first page or where the connection cannot be used again. Later, the pages
    /// before it stand.
    pub(crate) fn take_failure(&mut self, error: McpError) -> Result<(), McpError> {
        // A connection that is over cannot give the next page either.
        if self.turned == 0 || error.is_final() || error == McpError::Cancelled {
            return Err(error);
        }
        // Many servers send an empty cursor for the end, and answer it with an error.
        if self.asked.as_deref() != Some("") {
            self.end(format!("its list broke off, and the rest is left out: {error}"));
        }
        self.cursor = None;
        Ok(())
    }

    /// Returns true until a page was read.
    pub(crate) const fn is_at_start(&self) -> bool {
        self.turned == 0
    }

    /// Returns why the list was ended early, if it was.
    pub(crate) fn take_broken(&self) -> Option<&str> {
        self.broken.as_deref()
    }
}

/// A list of tools that is put together from its pages.
#[derive(Debug, Default)]
pub(crate) struct ToolPages {
    tools: BTreeMap<String, Definition>,
    /// Names that stand for different tools: a call could mean either.
    twice: BTreeSet<String>,
    bytes: usize,
    pages: Pages,
    remarks: Vec<String>,
    more: usize,
}

impl ToolPages {
    /// Returns the parameters that ask for the next page; `None` after the last.
    pub(crate) fn next_request(&mut self) -> Option<Value> {
        self.pages.next_page()
    }

    /// Takes a page.
    ///
    /// # Errors
    ///
    /// If the first page is no list of tools.
    pub(crate) fn take_page(&mut self, result: &Value) -> Result<(), McpError> {
        let Some(page) = result.get("tools").and_then(Value::as_array) else {
            // The first page decides if there is a list; a later one that is none ends it.
            let why = "it lists no tools".to_owned();
            return self.pages.take_failure(McpError::Wrong { method: METHOD, why });
        };
        let mut here = BTreeSet::new();
        for tool in page {
            match Definition::of(tool) {
                Ok(tool) => {
                    let is_repeated = !here.insert(tool.name.clone());
                    self.add_tool(tool, is_repeated);
                }
                Err(why) => self.add_remark(why),
            }
        }
        self.pages.turn_page(result);
        Ok(())
    }

    /// Takes the failure to get a page, as [`Pages::take_failure`] does. A server that has no tools may not know the method.
    ///
    /// # Errors
    ///
    /// The failure itself, if nothing of the list can be used.
    pub(crate) fn fail(&mut self, error: McpError, has: Has) -> Result<(), McpError> {
        // A server with resources alone may not know the method for tools.
        let is_unknown = matches!(error, McpError::Refused { code: METHOD_NOT_FOUND, .. });
        if is_unknown && self.pages.is_at_start() && has != Has::default() {
            self.pages.turn_page(&Value::Null);
            return Ok(());
        }
        self.pages.take_failure(error)
    }

    /// The tools, with those for what else the server has.
    pub(crate) fn into_listing(mut self, has: Has) -> Listing {
        if let Some(why) = self.pages.take_broken() {
            self.remarks.push(why.to_owned());
        }
        if self.more > 0 {
            self.remarks.push(format!("{} more are left out", self.more));
        }
        let mut left_out = self.remarks;
        let tools = reading::add_readings(self.tools.into_values().collect(), has, &mut left_out);
        Listing { tools, left_out }
    }

    fn add_tool(&mut self, tool: Definition, is_repeated: bool) {
        let shown = show_name(&tool.name);
        // A name that stands for two tools stays dropped, also if it comes again.
        if self.twice.contains(&tool.name) {
            return;
        }
        // Servers repeat a tool on two pages; in the same words it is the same tool.
        match self.tools.get(&tool.name) {
            Some(other) if *other == tool => {
                if is_repeated {
                    self.add_remark(format!(
                        "'{shown}' is listed twice in the same words; one of them is used"
                    ));
                }
                return;
            }
            Some(_) => {
                self.tools.remove(&tool.name);
                self.add_remark(format!("'{shown}' is listed twice in different words: both are left out"));
                self.twice.insert(tool.name);
                return;
            }
            None => {}
        }
        let bytes = tool
            .name
            .len()
            .saturating_add(tool.description.len())
            .saturating_add(tool.schema.to_string().len());
        // The bounds are on the whole list, which is shown to the owner in one frame.
        if self.tools.len() >= MAX_TOOLS {
            return self
                .add_remark(format!("'{shown}' is left out: {MAX_TOOLS} tools of one server are used"));
        }
        match self.bytes.checked_add(bytes).filter(|bytes| *bytes <= MAX_LIST_BYTES) {
            Some(bytes) => {
                self.bytes = bytes;
                self.tools.insert(tool.name.clone(), tool);
            }
            None => {
                let most = MAX_LIST_BYTES;
                self.add_remark(format!(
                    "'{shown}' is left out: all tools of a server take {most} bytes at most"
                ));
            }
        }
    }

    fn add_remark(&mut self, why: String) {
        if self.remarks.len() < MAX_REMARKS {
            self.remarks.push(why);
        } else {
            self.more = self.more.saturating_add(1);
        }
    }
}

/// A name of the server in a remark: short, on one line.
pub(crate) fn show_name(name: &str) -> String {
    escape_line(name).chars().take(MAX_SHOWN_CHARS).collect()
}

#[cfg(test)]
mod tests;

//! Search with ripgrep's libraries: respects `.gitignore`, skips `.git` and binary files, bounded in every way.

use std::path::Path;
use std::time::{Duration, Instant};

use globset::{GlobBuilder, GlobMatcher};
use grep_matcher::Matcher as _;
use grep_regex::{RegexMatcher, RegexMatcherBuilder};
use grep_searcher::sinks::Lossy;
use grep_searcher::{BinaryDetection, SearcherBuilder};
use ignore::{DirEntry, WalkBuilder};

use crate::file::{
    FILE_MAX, FileFault, LINE_MAX, MATCHES_MAX, MatchWindow, PLACES_MAX, ReadResult, SearchMatch,
};
use crate::file_request::cut_text;

/// The longest that a search may go on; then it returns its matches so far.
const TIME_MAX: Duration = Duration::from_secs(10);
/// The most files that are looked at.
const FILES_MAX: u64 = 100_000;
/// The most memory that a pattern may take when compiled, and one line when searched, in bytes.
const MEMORY_MAX: usize = 10 * 1024 * 1024;

/// Searches the files below `path`, which is relative to the work folder.
pub(super) fn search_folder(
    work: &Path,
    path: &Path,
    pattern: &str,
    glob: &str,
    max: u64,
) -> Result<ReadResult, FileFault> {
    let compiled = |pattern: &str| {
        RegexMatcherBuilder::new().size_limit(MEMORY_MAX).dfa_size_limit(MEMORY_MAX).build(pattern)
    };
    // The end of a line stands before its carriage return.
    let matcher =
        compiled(&format!("(?mR){pattern}")).map_err(|why| FileFault::Pattern { why: why.to_string() })?;
    let glob = compile_pattern(glob)?;
    let mut search = FileSearch {
        work,
        max: max.clamp(1, MATCHES_MAX),
        until: Instant::now() + TIME_MAX,
        matches: Vec::new(),
        files: 0,
        truncated: false,
    };
    let walk = WalkBuilder::new(work.join(path))
        .hidden(false)
        .require_git(false)
        .git_global(false)
        .follow_links(false)
        .max_filesize(Some(FILE_MAX))
        .filter_entry(|entry| entry.file_name() != ".git")
        .sort_by_file_name(Ord::cmp)
        .build();
    for entry in walk.flatten() {
        if search.is_full() {
            search.truncated = true;
            break;
        }
        let relative = entry.path().strip_prefix(work).unwrap_or(entry.path());
        let wanted = glob.as_ref().is_none_or(|glob| glob.is_match(relative));
        if wanted && entry.file_type().is_some_and(|kind| kind.is_file()) {
            search.search_file(&matcher, &entry);
        }
    }
    Ok(ReadResult::Search { matches: search.matches, files: search.files, truncated: search.truncated })
}

/// Returns the shown parts of a line that matches: all of it, or of a long one the surroundings of each
/// match.
fn shown_parts(matcher: &RegexMatcher, line: &str) -> Vec<(String, Option<MatchWindow>)> {
    if line.len() <= LINE_MAX {
        return vec![(line.to_owned(), None)];
    }
    let (mut parts, mut shown) = (Vec::new(), 0);
    // Matching cannot fail: this matcher's errors are those of its making.
    let _infallible = matcher.find_iter(line.as_bytes(), |found| {
        // A match that begins in the part before it is seen there.
        if parts.is_empty() || found.start() >= shown {
            let (from, text) = text_around(line, found.start(), found.end());
            shown = from + text.len();
            let before = line.get(..found.start()).unwrap_or_default().chars().count();
            let window = MatchWindow {
                column: u64::try_from(before).unwrap_or(u64::MAX).saturating_add(1),
                cut_before: from > 0,
                cut_after: shown < line.len(),
            };
            parts.push((text.to_owned(), Some(window)));
        }
        parts.len() < PLACES_MAX
    });
    if parts.is_empty() {
        let text = cut_text(line, LINE_MAX);
        parts.push((text.to_owned(), Some(MatchWindow { column: 1, cut_before: false, cut_after: true })));
    }
    parts
}

/// At most [`LINE_MAX`] bytes around a match, and where they begin: at the beginning of a word, so that no word is taken for
/// another.
fn text_around(line: &str, start: usize, end: usize) -> (usize, &str) {
    let room = LINE_MAX.saturating_sub(end.saturating_sub(start)) / 2;
    let mut from = start.saturating_sub(room.max(1));
    while !line.is_char_boundary(from) {
        from += 1;
    }
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || b"_-+/=.".contains(&byte) || !byte.is_ascii();
    let begins = |at: usize| at == 0 || !line.as_bytes().get(at - 1).copied().is_some_and(is_word);
    if let Some(word) = (from..start).find(|at| line.is_char_boundary(*at) && begins(*at)) {
        from = word;
    }
    (from, cut_text(line.get(from..).unwrap_or_default(), LINE_MAX))
}

/// A glob without `/` is about names in any folder.
fn compile_pattern(glob: &str) -> Result<Option<GlobMatcher>, FileFault> {
    if glob.is_empty() {
        return Ok(None);
    }
    let anywhere = if glob.contains('/') { glob.to_owned() } else { format!("**/{glob}") };
    let glob = GlobBuilder::new(&anywhere).literal_separator(true).build();
    Ok(Some(glob.map_err(|why| FileFault::Pattern { why: why.to_string() })?.compile_matcher()))
}

/// A search under way.
struct FileSearch<'a> {
    work: &'a Path,
    max: u64,
    until: Instant,
    matches: Vec<SearchMatch>,
    files: u64,
    truncated: bool,
}

impl FileSearch<'_> {
    fn is_full(&self) -> bool {
        u64::try_from(self.matches.len()).unwrap_or(u64::MAX) >= self.max
            || self.files >= FILES_MAX
            || Instant::now() >= self.until
    }

    /// Adds the matches of one file. A file that cannot be read has none.
    fn search_file(&mut self, matcher: &RegexMatcher, entry: &DirEntry) {
        self.files += 1;
        let path =
            entry.path().strip_prefix(self.work).unwrap_or(entry.path()).to_string_lossy().into_owned();
        let mut searcher = SearcherBuilder::new()
            .line_number(true)
            .binary_detection(BinaryDetection::quit(0))
            .heap_limit(Some(MEMORY_MAX))
            .build();
        let sink = Lossy(|line, text| {
            if self.is_full() {
                self.truncated = true;
                return Ok(false);
            }
            let text = text.trim_end_matches(['\n', '\r']);
            for (text, window) in shown_parts(matcher, text) {
                if self.is_full() {
                    self.truncated = true;
                    return Ok(false);
                }
                self.matches.push(SearchMatch { path: path.clone(), line, text, window });
            }
            Ok(true)
        });
        // Matches before an error stay.
        let _ = searcher.search_path(matcher, entry.path(), sink);
    }
}

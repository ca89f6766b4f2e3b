//! One layer of the configuration: a file, the environment, or flags, as settings with their origin.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{ErrorKind, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use toml::Value;
use toml::de::{DeTable, DeValue};

use super::nearest::nearest_key;
use super::schema::{KeyPath, SchemaEntry, ValueKind, dotted_path, place_of};

/// The largest configuration file that is read, in bytes: a thousand times what people write.
pub(crate) const MAX_CONFIG_BYTES: u64 = 1024 * 1024;
/// The most settings of one layer: bounds what a hostile project file makes us keep.
const MAX_SETTINGS: usize = 10_000;
/// Variables with our prefix that are no settings. The last two are for tests, in debug builds alone.
const RESERVED: [&str; 4] = ["WRIT_HOME", "WRIT_KILL_POINT", "WRIT_MAX_PAGES", "WRIT_MCP_IDLE_MS"];
/// The prefix of variables' names.
const PREFIX: &str = "WRIT_";

/// The source of a value. Files are ordered by name and line.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum SettingOrigin {
    /// The built-in default.
    Default,
    /// A file, by its short name, and the line in it, counted from one.
    File {
        /// `config.toml`, or `.writ/config.toml` for the project's.
        name: &'static str,
        /// The line.
        line: usize,
    },
    /// An environment variable.
    Env(String),
    /// A flag of the command line.
    Flag,
}

impl fmt::Display for SettingOrigin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { name, line } => write!(f, "{name} line {line}"),
            Self::Env(name) => f.write_str(name),
            Self::Flag => f.write_str("command line"),
        }
    }
}

/// One value that a source sets.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Setting {
    /// Its key.
    pub(crate) path: KeyPath,
    /// Its value.
    pub(crate) value: Value,
    /// The place where it was set.
    pub(crate) origin: SettingOrigin,
}

/// Something that is wrong with the configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Finding {
    /// The place.
    pub(crate) origin: SettingOrigin,
    /// The error.
    pub(crate) text: String,
    /// A hint for the reader; may be empty.
    pub(crate) hint: String,
}

impl Finding {
    /// Returns advice for the reader: the hint, else the place where settings are documented. Never empty.
    pub(crate) fn advice(&self) -> &str {
        if self.hint.is_empty() {
            "correct it there; the comments in the config.toml of `writ init` show every key and its default"
        } else {
            &self.hint
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.origin {
            SettingOrigin::Default => f.write_str(&self.text),
            origin @ (SettingOrigin::File { .. } | SettingOrigin::Env(_) | SettingOrigin::Flag) => {
                write!(f, "{origin}: {}", self.text)
            }
        }
    }
}

/// The settings of one source, and what is wrong with it.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Layer {
    /// Its settings.
    pub(crate) settings: Vec<Setting>,
    /// Its errors.
    pub(crate) findings: Vec<Finding>,
}

/// Reads a file's text, bounded and without waiting for a pipe's other end; `None`: there is none.
pub(crate) fn read_file(path: &Path, name: &'static str) -> Result<Option<String>, Finding> {
    let unusable = |text: String| Finding {
        origin: SettingOrigin::Default,
        text: format!("{name} {text}"),
        hint: format!("check {}", path.display()),
    };
    let file = match OpenOptions::new().read(true).custom_flags(nix::libc::O_NONBLOCK).open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unusable(format!("cannot be read: {error}"))),
    };
    // A device in its place would never end.
    if !file.metadata().is_ok_and(|meta| meta.is_file()) {
        return Err(unusable("is not a file".into()));
    }
    let mut bytes = Vec::new();
    file.take(MAX_CONFIG_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| unusable(format!("cannot be read: {error}")))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > MAX_CONFIG_BYTES {
        return Err(unusable(format!("is larger than {MAX_CONFIG_BYTES} bytes")));
    }
    // Editors for Windows write these marks: the first changes nothing, the others name an encoding.
    if let Some(rest) = bytes.strip_prefix(b"\xef\xbb\xbf") {
        bytes = rest.to_vec();
    } else if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return Err(unusable("is UTF-16: save it as UTF-8".into()));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| unusable("is not UTF-8 text".into()))
}

/// Reads the settings of a file's text.
pub(crate) fn from_file(name: &'static str, text: &str) -> Layer {
    let mut reader = LayerReader { name, text, layer: Layer::default() };
    match DeTable::parse(text) {
        Ok(table) => reader.read_table(table.get_ref(), &mut Vec::new()),
        Err(error) => {
            let at = error.span().map_or(0, |span| span.start);
            let (line, column) = (reader.line_of(at), reader.column_of(at));
            let text = format!("column {column}: this is not TOML: {}", error.message().trim());
            let hint = "a setting is written `key = value`, a section `[name]`; text stands in quotes";
            reader.add_finding(line, text, hint.to_owned());
        }
    }
    reader.layer
}

struct LayerReader<'a> {
    name: &'static str,
    text: &'a str,
    layer: Layer,
}

impl LayerReader<'_> {
    fn line_of(&self, at: usize) -> usize {
        self.text.bytes().take(at).filter(|byte| *byte == b'\n').count() + 1
    }

    /// Returns the position in its line, in characters, counted from one.
    fn column_of(&self, at: usize) -> usize {
        let before = self.text.get(..at).unwrap_or(self.text);
        before.rsplit('\n').next().unwrap_or_default().chars().count() + 1
    }

    fn add_finding(&mut self, line: usize, text: String, hint: String) {
        let origin = SettingOrigin::File { name: self.name, line };
        if self.layer.findings.len() < MAX_SETTINGS {
            self.layer.findings.push(Finding { origin, text, hint });
        }
    }

    fn read_table(&mut self, table: &DeTable<'_>, path: &mut KeyPath) {
        for (key, value) in table {
            path.push(key.get_ref().to_string());
            let line = self.line_of(key.span().start);
            self.read_item(value.get_ref(), path, line);
            path.pop();
        }
    }

    fn read_item(&mut self, value: &DeValue<'_>, path: &mut KeyPath, line: usize) {
        match place_of(path) {
            SchemaEntry::Key(key) => self.read_value(value, path, line, key.kind),
            SchemaEntry::Section => match value {
                DeValue::Table(table) => self.read_table(table, path),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => {
                    let key = dotted_path(path);
                    self.add_finding(
                        line,
                        format!("'{key}' is a section"),
                        format!("write [{key}] on a line of its own"),
                    );
                }
            },
            SchemaEntry::List => self.read_list(value, path, line),
            SchemaEntry::Nothing => self.report_unknown(path, line),
        }
    }

    fn read_list(&mut self, value: &DeValue<'_>, path: &mut KeyPath, line: usize) {
        let key = dotted_path(path);
        let DeValue::Array(items) = value else {
            self.add_finding(
                line,
                format!("'{key}' is a list"),
                format!("write [[{key}]] on a line of its own"),
            );
            return;
        };
        for (n, item) in items.iter().enumerate() {
            let line = self.line_of(item.span().start);
            path.push(format!("{n:03}"));
            match item.get_ref() {
                DeValue::Table(table) => self.read_table(table, path),
                DeValue::String(_)
                | DeValue::Integer(_)
                | DeValue::Float(_)
                | DeValue::Boolean(_)
                | DeValue::Datetime(_)
                | DeValue::Array(_) => {
                    self.add_finding(
                        line,
                        format!("'{key}' is a list of tables"),
                        format!("write [[{key}]]"),
                    );
                }
            }
            path.pop();
        }
    }

    fn read_value(&mut self, value: &DeValue<'_>, path: &[String], line: usize, kind: ValueKind) {
        let checked = plain_value(value).and_then(|value| kind.check_value(&value).map(|()| value));
        match checked {
            Ok(_) if self.layer.settings.len() >= MAX_SETTINGS => {
                self.add_finding(line, format!("more than {MAX_SETTINGS} settings"), String::new());
            }
            Ok(value) => {
                let origin = SettingOrigin::File { name: self.name, line };
                self.layer.settings.push(Setting { path: path.to_vec(), value, origin });
            }
            Err(expected) => {
                let text = format!("'{}' must be {expected}", dotted_path(path));
                self.add_finding(line, text, String::new());
            }
        }
    }

    fn report_unknown(&mut self, path: &[String], line: usize) {
        let (text, hint) = describe_unknown(path);
        self.add_finding(line, text, hint);
    }
}

fn describe_unknown(path: &[String]) -> (String, String) {
    let hint = match nearest_key(path) {
        Some(right) => format!("did you mean '{right}'?"),
        None => "`writ config show` lists every key".to_owned(),
    };
    (format!("unknown key '{}'", dotted_path(path)), hint)
}

/// A parsed value without its places in the file.
fn plain_value(value: &DeValue<'_>) -> Result<Value, String> {
    match value {
        DeValue::String(text) => Ok(Value::String(text.to_string())),
        DeValue::Integer(number) => i64::from_str_radix(number.as_str(), number.radix())
            .map(Value::Integer)
            .map_err(|_| format!("a number below {}", i64::MAX)),
        DeValue::Float(number) => {
            number.as_str().parse().map(Value::Float).map_err(|_| "a number".to_owned())
        }
        DeValue::Boolean(flag) => Ok(Value::Boolean(*flag)),
        DeValue::Datetime(time) => Ok(Value::Datetime(*time)),
        DeValue::Array(items) => {
            items.iter().map(|item| plain_value(item.get_ref())).collect::<Result<_, _>>().map(Value::Array)
        }
        // No key holds a table, so what is in it does not matter.
        DeValue::Table(_) => Ok(Value::Table(toml::Table::new())),
    }
}

/// Reads the settings of the environment: `WRIT_SECTION__KEY`.
pub(crate) fn from_env(variables: &[(&str, Option<&str>)]) -> Layer {
    let mut layer = Layer::default();
    for (name, value) in variables {
        let Some(rest) = name.strip_prefix(PREFIX) else { continue };
        if RESERVED.contains(name) {
            continue;
        }
        let path: KeyPath = rest.split("__").map(str::to_lowercase).collect();
        let origin = SettingOrigin::Env((*name).to_owned());
        let found = match (place_of(&path), value) {
            (_, None) => Err(("the value is not UTF-8 text".to_owned(), String::new())),
            (SchemaEntry::Key(key), Some(_)) if key.path.starts_with("gates.") => {
                Err(("gates are set in files".to_owned(), String::new()))
            }
            (SchemaEntry::Key(key), Some(_)) if key.path.starts_with("hooks.") => {
                Err(("hooks are set in files".to_owned(), String::new()))
            }
            (SchemaEntry::Key(key), Some(_)) if key.path.starts_with("egress.pin.") => {
                Err(("pins are set in files".to_owned(), String::new()))
            }
            (SchemaEntry::Key(key), Some(_)) if key.path.starts_with("egress.credentials.") => {
                Err(("credentials are bound in files".to_owned(), String::new()))
            }
            (SchemaEntry::Key(key), Some(text)) => key
                .kind
                .parse_text(text)
                .map_err(|expected| (format!("'{}' must be {expected}", dotted_path(&path)), String::new())),
            (SchemaEntry::Section | SchemaEntry::List, Some(_)) => {
                let hint = format!("name a key of it: {name}__KEY");
                Err((format!("'{}' is a section", dotted_path(&path)), hint))
            }
            (SchemaEntry::Nothing, Some(_)) => Err(describe_unknown(&path)),
        };
        match found {
            Ok(value) => layer.settings.push(Setting { path, value, origin }),
            Err((text, hint)) => layer.findings.push(Finding { origin, text, hint }),
        }
    }
    layer
}

/// The settings that flags of the command line make.
pub(crate) fn from_flags(flags: &[(&str, Value)]) -> Layer {
    let setting = |(path, value): &(&str, Value)| Setting {
        path: path.split('.').map(str::to_owned).collect(),
        value: value.clone(),
        origin: SettingOrigin::Flag,
    };
    Layer { settings: flags.iter().map(setting).collect(), findings: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn findings(text: &str) -> Vec<String> {
        from_file("config.toml", text).findings.iter().map(|f| format!("{f} | {}", f.hint)).collect()
    }

    /// Rows: SIL-254 WIN-052
    #[test]
    fn an_unknown_key_is_named_with_its_line_and_the_right_one() {
        let text = "owner_id = \"ann\"\n\n[budget]\nmax_token_per_day = 3\n\n[budgt]\nx = 1\n";
        assert_eq!(
            findings(text),
            [
                "config.toml line 4: unknown key 'budget.max_token_per_day' | did you mean 'budget.max_tokens_per_day'?",
                "config.toml line 6: unknown key 'budgt' | did you mean 'budget'?",
            ]
        );
    }

    /// Rows: SIL-253
    #[test]
    fn a_wrong_type_is_named_with_its_line_and_what_was_expected() {
        assert_eq!(
            findings("budget.max_tokens_per_day = \"many\"\nmodels = 3\n[gates]\nname = \"x\"\n"),
            [
                "config.toml line 1: 'budget.max_tokens_per_day' must be a whole number of at least 1 | ",
                "config.toml line 3: 'gates' is a list | write [[gates]] on a line of its own",
                "config.toml line 2: 'models' is a section | write [models] on a line of its own",
            ]
        );
        for finding in from_file("config.toml", "budget.max_tokens_per_day = \"many\"\n").findings {
            assert!(
                finding.advice().contains("config.toml"),
                "nothing is told without what to do: {finding}"
            );
        }
    }

    #[test]
    fn what_is_not_toml_is_named_with_its_line() {
        let found = findings("a = 1\nb = = 2\n");
        assert_eq!(found.len(), 1);
        assert!(
            found.iter().all(|text| text.starts_with("config.toml line 2: column 5: this is not TOML")),
            "{found:?}"
        );
        assert!(found.iter().all(|text| text.contains(" | a setting is written `key = value`")), "{found:?}");
        let wide = findings("a = 1\n\"ä\" = = 2\n");
        assert!(wide.iter().all(|text| text.contains("line 2: column 7: ")), "characters count: {wide:?}");
        assert!(findings(&"[".repeat(100_000)).len() == 1, "deep nesting is an error, not a crash");
    }

    #[test]
    fn a_value_in_the_wrong_place_is_not_repeated() {
        let text = "[providers.p]\napi_key = \"sk-live-123\"\nbase_url = \"http://a:sk-live-123@h/\"\n";
        let found = findings(text);
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|text| !text.contains("sk-live")), "{found:?}");
        let layer = from_env(&[("WRIT_PROVIDERS__P__API_KEY", Some("sk-live-123"))]);
        assert_eq!(layer.findings.len(), 1);
        assert!(!format!("{layer:?}").contains("sk-live"));
    }

    #[test]
    fn variables_name_keys_and_unknown_ones_are_errors() {
        let layer = from_env(&[
            ("WRIT_HOME", Some("/x")),
            ("WRIT_OWNER_ID", Some("ann")),
            ("WRIT_BUDGET__MAX_TOKENS_PER_DAY", Some("7_000")),
            ("WRIT_PROVIDERS__LOCAL__API_KEY", Some("env:KEY")),
        ]);
        assert_eq!(layer.findings, []);
        let values: Vec<String> =
            layer.settings.iter().map(|s| format!("{}={}", dotted_path(&s.path), s.value)).collect();
        assert_eq!(
            values,
            ["owner_id=\"ann\"", "budget.max_tokens_per_day=7000", "providers.local.api_key=\"env:KEY\""]
        );
        for (name, hint) in [
            ("WRIT_BUDGET__MAX_TOKEN_PER_DAY", "did you mean 'budget.max_tokens_per_day'?"),
            ("WRIT_OWNERID", "did you mean 'owner_id'?"),
            ("WRIT_BUDGET", "name a key of it: WRIT_BUDGET__KEY"),
        ] {
            let found = from_env(&[(name, Some("1"))]).findings;
            assert_eq!(found.iter().map(|f| f.hint.as_str()).collect::<Vec<_>>(), [hint], "{name}");
        }
    }

    #[test]
    fn a_pipe_or_a_huge_file_is_no_configuration() {
        let dir = tempfile::tempdir().expect("temp dir");
        assert_eq!(read_file(&dir.path().join("none"), "config.toml"), Ok(None));
        let pipe = dir.path().join("pipe");
        nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).expect("made");
        assert!(read_file(&pipe, "config.toml").is_err_and(|f| f.text.contains("not a file")));
        let huge = dir.path().join("huge");
        std::fs::File::create(&huge).and_then(|f| f.set_len(MAX_CONFIG_BYTES + 1)).expect("made");
        assert!(read_file(&huge, "config.toml").is_err_and(|f| f.text.contains("larger")));
    }
}

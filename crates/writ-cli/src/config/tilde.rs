//! `~` in configured paths: the owner's home folder, as a shell would read it.

use std::path::Path;

use toml::Value;

use super::layer::{Finding, Setting};
use super::schema::{SchemaEntry, ValueKind, dotted_path, place_of};

/// Replaces a leading `~` in the settings that are paths; one that stands for no user's folder is a finding.
pub(super) fn expand_tilde(settings: Vec<Setting>, home: Option<&Path>) -> (Vec<Setting>, Vec<Finding>) {
    let mut findings = Vec::new();
    let settings = settings.into_iter().filter_map(|setting| {
        let is_path = matches!(place_of(&setting.path), SchemaEntry::Key(key) if matches!(key.kind, ValueKind::Folder | ValueKind::Folders));
        if !is_path {
            return Some(setting);
        }
        match expand_value(&setting.value, home) {
            Ok(value) => Some(Setting { value, ..setting }),
            Err(why) => {
                let text = format!("'{}' {why}", dotted_path(&setting.path));
                let hint = "write the whole path, from the root folder on".to_owned();
                findings.push(Finding { origin: setting.origin, text, hint });
                None
            }
        }
    });
    let settings = settings.collect();
    (settings, findings)
}

fn expand_value(value: &Value, home: Option<&Path>) -> Result<Value, &'static str> {
    match value {
        Value::String(text) => expand_text(text, home).map(Value::String),
        Value::Array(items) => {
            items.iter().map(|item| expand_value(item, home)).collect::<Result<_, _>>().map(Value::Array)
        }
        Value::Integer(_) | Value::Float(_) | Value::Boolean(_) | Value::Datetime(_) | Value::Table(_) => {
            Ok(value.clone())
        }
    }
}

fn expand_text(text: &str, home: Option<&Path>) -> Result<String, &'static str> {
    let Some(rest) = text.strip_prefix('~') else { return Ok(text.to_owned()) };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err("begins with '~' and a name: only '~/' is understood");
    }
    let home = home.filter(|home| home.is_absolute()).and_then(Path::to_str);
    let home = home.ok_or("begins with '~', and HOME is not set to an absolute path")?;
    Ok(format!("{}{rest}", home.trim_end_matches('/')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_own_home_folder_is_meant() {
        let home = Some(Path::new("/home/ann/"));
        for (text, expanded) in
            [("~/x", "/home/ann/x"), ("~", "/home/ann"), ("/a/~/b", "/a/~/b"), ("a~", "a~"), ("./~", "./~")]
        {
            assert_eq!(expand_text(text, home).as_deref(), Ok(expanded), "{text}");
        }
        assert!(expand_text("~bob/x", home).is_err());
        for none in [None, Some(Path::new("relative"))] {
            assert!(expand_text("~/x", none).is_err());
        }
    }
}

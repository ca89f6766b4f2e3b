//! Laying the sources over each other, key by key.

use std::collections::BTreeMap;

use toml::{Table, Value};

use super::layer::{Finding, Setting, SettingOrigin};
use super::schema::{InProject, KeyPath, SchemaEntry, dotted_path, place_of};

/// The source that is laid over the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LayerSource {
    /// The home's file.
    Home,
    /// The project's file, which can only narrow.
    Project,
    /// The environment.
    Environment,
    /// Flags of the command line.
    Flags,
}

/// A value in force and where it comes from.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct MergedValue {
    /// The value.
    pub(crate) value: Value,
    /// The place where it was set.
    pub(crate) origin: SettingOrigin,
}

/// Every value in force, by key.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Effective {
    settings: BTreeMap<KeyPath, MergedValue>,
}

impl Effective {
    /// The defaults alone.
    pub(crate) fn new(defaults: BTreeMap<KeyPath, Value>) -> Self {
        let settings = defaults
            .into_iter()
            .map(|(path, value)| (path, MergedValue { value, origin: SettingOrigin::Default }))
            .collect();
        Self { settings }
    }

    /// Every value in force, sorted by key.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&KeyPath, &MergedValue)> {
        self.settings.iter()
    }

    /// Lays one source over what is there; returns what it may not set.
    pub(crate) fn lay_over(&mut self, which: LayerSource, settings: Vec<Setting>) -> Vec<Finding> {
        let settings = match which {
            LayerSource::Project => self.after_the_last_gate(settings),
            LayerSource::Home | LayerSource::Environment | LayerSource::Flags => settings,
        };
        let mut findings = Vec::new();
        for Setting { path, value, origin } in settings {
            let refused = match which {
                LayerSource::Project => self.project_refusal(&path, &value),
                LayerSource::Home | LayerSource::Environment | LayerSource::Flags => None,
            };
            match refused {
                Some(hint) => {
                    let text = format!("a project may not set '{}' so", dotted_path(&path));
                    findings.push(Finding { origin, text, hint });
                }
                // Later sources win, and say where the value in force comes from.
                None => {
                    self.settings.insert(path, MergedValue { value, origin });
                }
            }
        }
        findings
    }

    /// Returns the reason that a project may not set this; `None`: it may.
    fn project_refusal(&self, path: &[String], value: &Value) -> Option<String> {
        let SchemaEntry::Key(key) = place_of(path) else { return Some("it is no key".into()) };
        match key.in_project {
            InProject::Any => None,
            InProject::Never => Some("only the home's config.toml sets it".into()),
            InProject::Lower => {
                // A limit without a number in force has nothing to be below of: the project's own then counts.
                let now = self.settings.get(path).and_then(|in_force| in_force.value.as_integer());
                let lower = now.zip(value.as_integer()).is_none_or(|(now, new)| new <= now);
                (!lower).then(|| format!("it can only be lowered here (now {})", now.unwrap_or_default()))
            }
            // A gate that rewrites would put words into the owner's mouth.
            InProject::Add if path.last().is_some_and(|name| name == "action") => {
                (value.as_str() != Some("block")).then(|| "a project's gates can only block".into())
            }
            InProject::Add if path.last().is_some_and(|name| name == "name") => {
                self.has_gate(value).then(|| "a gate of this name is there: choose another".into())
            }
            InProject::Add => None,
        }
    }

    fn has_gate(&self, name: &Value) -> bool {
        let shipped = writ_inspect::gate::GateSet::shipped_gate().name;
        name.as_str() == Some(shipped.as_str())
            || self.settings.iter().any(|(path, in_force)| {
                path.first().is_some_and(|section| section == "gates")
                    && path.last().is_some_and(|key| key == "name")
                    && in_force.value == *name
            })
    }

    /// Numbers a project's gates after those that are there.
    fn after_the_last_gate(&self, settings: Vec<Setting>) -> Vec<Setting> {
        let there = self
            .settings
            .keys()
            .filter(|path| path.first().is_some_and(|section| section == "gates"))
            .filter_map(|path| path.get(1)?.parse::<usize>().ok())
            .max()
            .map_or(0, |last| last + 1);
        let renumber = |mut setting: Setting| {
            if let [section, n, ..] = setting.path.as_mut_slice()
                && section == "gates"
                && let Ok(number) = n.parse::<usize>()
            {
                *n = format!("{:03}", number + there);
            }
            setting
        };
        settings.into_iter().map(renumber).collect()
    }

    /// All values as one table of tables.
    pub(crate) fn to_table(&self) -> Table {
        let mut tree = Table::new();
        for (path, in_force) in &self.settings {
            let Some((last, above)) = path.split_last() else { continue };
            let mut table = &mut tree;
            for name in above {
                let below = table.entry(name.clone()).or_insert_with(|| Value::Table(Table::new()));
                // The schema has no key that is a section as well.
                let Value::Table(below) = below else { return tree };
                table = below;
            }
            table.insert(last.clone(), in_force.value.clone());
        }
        tree
    }

    /// Returns the place where the value at a path, or below it, or right above it, was set.
    pub(crate) fn origin_of(&self, path: &[String]) -> SettingOrigin {
        let below = |path: &[String]| {
            let set = self
                .settings
                .iter()
                .filter(|(key, in_force)| key.starts_with(path) && in_force.origin != SettingOrigin::Default);
            set.map(|(_, in_force)| in_force.origin.clone()).min()
        };
        (1..=path.len()).rev().find_map(|length| below(path.get(..length)?)).unwrap_or(SettingOrigin::Default)
    }

    /// Returns the place where a setting that a text names was set, by key or by the name of a table; else
    /// one in `section`.
    pub(crate) fn blame_by_text(&self, text: &str, section: &str) -> SettingOrigin {
        let named = |path: &KeyPath, in_force: &MergedValue| {
            let table =
                path.len() > 2 && path.get(path.len() - 2).is_some_and(|name| quotes_name(text, name));
            text.contains(&dotted_path(path))
                || table
                || in_force.value.as_str().is_some_and(|v| quotes_name(text, v))
        };
        let set = |in_force: &MergedValue| in_force.origin != SettingOrigin::Default;
        let found = self.settings.iter().filter(|(path, in_force)| set(in_force) && named(path, in_force));
        let first = found.map(|(_, in_force)| in_force.origin.clone()).min();
        first.unwrap_or_else(|| self.origin_of(&[section.to_owned()]))
    }
}

fn quotes_name(text: &str, name: &str) -> bool {
    text.contains(&format!("'{name}'"))
}

/// Writes the leaves of a table of tables by their paths.
pub(crate) fn flatten(table: &Table, path: &mut KeyPath, flat: &mut BTreeMap<KeyPath, Value>) {
    for (name, value) in table {
        path.push(name.clone());
        match value {
            Value::Table(table) => flatten(table, path, flat),
            Value::String(_)
            | Value::Integer(_)
            | Value::Float(_)
            | Value::Boolean(_)
            | Value::Datetime(_)
            | Value::Array(_) => {
                flat.insert(path.clone(), value.clone());
            }
        }
        path.pop();
    }
}

/// A section in which the numbered tables at `key` are a list again.
pub(super) fn in_list(mut section: Table, key: &str) -> Table {
    if let Some(Value::Table(numbered)) = section.remove(key) {
        let tables = numbered.into_iter().map(|(_, table)| table).collect();
        section.insert(key.to_owned(), Value::Array(tables));
    }
    section
}

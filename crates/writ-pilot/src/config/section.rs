//! A table of settings, read key by key. What no reader has asked for is a mistake.

use std::ops::RangeInclusive;
use std::time::Duration;

use toml::Spanned;
use toml::de::{DeTable, DeValue};
use writ_types::similar::nearest_name;

use super::{MAX_CONFIG_BYTES, PilotConfigError};

/// The longest quotation in a message, in characters.
const MAX_SHOWN_CHARS: usize = 60;

/// A file with its text, for mistakes with their lines.
#[derive(Clone, Copy, Debug)]
pub(super) struct SettingsText<'a> {
    pub(super) name: &'a str,
    pub(super) text: &'a str,
}

impl<'a> SettingsText<'a> {
    /// Makes the error for a place of the text.
    pub(super) fn fault(
        self,
        at: usize,
        key: &str,
        problem: impl Into<String>,
        hint: impl Into<String>,
    ) -> PilotConfigError {
        let before = self.text.as_bytes().iter().take(at);
        PilotConfigError {
            file: self.name.to_owned(),
            line: 1 + before.filter(|byte| **byte == b'\n').count(),
            key: cut_word(key),
            problem: problem.into(),
            hint: hint.into(),
        }
    }

    /// Reads the text as TOML.
    pub(super) fn parse_table(self) -> Result<Spanned<DeTable<'a>>, PilotConfigError> {
        if self.text.len() > MAX_CONFIG_BYTES {
            return Err(self.fault(
                0,
                "",
                format!("it has more than {MAX_CONFIG_BYTES} bytes"),
                "shorten it",
            ));
        }
        DeTable::parse(self.text).map_err(|error| {
            let at = error.span().map_or(0, |span| span.start);
            let problem = format!("this is not TOML: {}", cut_word(error.message().trim()));
            self.fault(
                at,
                "",
                problem,
                "a setting is written `key = value`, a section `[name]`; text stands in quotes",
            )
        })
    }
}

/// Cuts a word of a file to what a message may show.
pub(super) fn cut_word(word: &str) -> String {
    word.chars().take(MAX_SHOWN_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

/// A value with its place.
#[derive(Clone, Debug)]
pub(super) struct FoundSetting<'a> {
    file: SettingsText<'a>,
    at: usize,
    path: String,
    value: &'a DeValue<'a>,
}

impl<'a> FoundSetting<'a> {
    /// Makes the error «`key` is not …».
    pub(super) fn fault(&self, problem: &str, hint: impl Into<String>) -> PilotConfigError {
        self.file.fault(self.at, &self.path, format!("`{}` {problem}", self.path), hint)
    }

    fn wrong_type(&self, wanted: &str) -> PilotConfigError {
        self.fault(&format!("is of type {}, not {wanted}", self.value.type_str()), format!("write {wanted}"))
    }

    /// The file and the line, to be shown later.
    pub(super) fn origin(&self) -> (String, usize) {
        let place = self.file.fault(self.at, "", "", "");
        (place.file, place.line)
    }

    pub(super) fn read_text(&self) -> Result<&'a str, PilotConfigError> {
        self.value.as_str().ok_or_else(|| self.wrong_type("text in quotes"))
    }

    fn read_whole(&self, range: &RangeInclusive<u64>) -> Result<u64, PilotConfigError> {
        let number = self.value.as_integer().ok_or_else(|| self.wrong_type("a whole number"))?;
        // A negative number, or one of more than 64 bits, is in no range.
        let parsed = u64::from_str_radix(number.as_str(), number.radix()).ok();
        parsed.filter(|number| range.contains(number)).ok_or_else(|| {
            let bounds = format!("from {} to {}", range.start(), range.end());
            self.fault(&format!("is not {bounds}"), format!("choose a number {bounds}"))
        })
    }

    pub(super) fn read_switch(&self) -> Result<bool, PilotConfigError> {
        self.value.as_bool().ok_or_else(|| self.wrong_type("true or false"))
    }

    /// Reads a list of text.
    pub(super) fn read_texts(&self) -> Result<Vec<&'a str>, PilotConfigError> {
        let list = self.value.as_array().ok_or_else(|| self.wrong_type("a list of text"))?;
        list.iter()
            .map(|item| item.get_ref().as_str().ok_or_else(|| self.wrong_type("a list of text")))
            .collect()
    }

    /// Reads a time such as `90s`.
    pub(super) fn read_duration(
        &self,
        range: &RangeInclusive<Duration>,
    ) -> Result<Duration, PilotConfigError> {
        const HINT: &str = "write a number with its unit, such as \"90s\", \"10m\" or \"2h\"";
        let text = self.value.as_str().ok_or_else(|| self.fault("is not a time in quotes", HINT))?;
        let time = parse_duration(text)
            .ok_or_else(|| self.fault(&format!("is not a time: '{}'", cut_word(text)), HINT))?;
        if range.contains(&time) {
            return Ok(time);
        }
        let bounds = format!("from {} ms to {} s", range.start().as_millis(), range.end().as_secs());
        Err(self.fault(&format!("is not {bounds}"), format!("choose a time {bounds}")))
    }
}

/// Reads a whole number with its unit; `0` needs none.
fn parse_duration(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let at = text.find(|c: char| !c.is_ascii_digit())?;
    let (number, unit) = text.split_at(at);
    let number: u64 = number.parse().ok()?;
    let seconds = match unit {
        "ms" => return Some(Duration::from_millis(number)),
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    number.checked_mul(seconds).map(Duration::from_secs)
}

/// One table, as the files have it: the last file is asked first.
#[derive(Debug)]
pub(super) struct Section<'a> {
    path: String,
    layers: Vec<(SettingsText<'a>, &'a DeTable<'a>)>,
    known: Vec<&'static str>,
}

impl<'a> Section<'a> {
    /// Opens the outermost table of the files, the weakest first.
    pub(super) fn of_files(layers: Vec<(SettingsText<'a>, &'a DeTable<'a>)>) -> Self {
        Self { path: String::new(), layers, known: Vec::new() }
    }

    fn path_of(&self, key: &str) -> String {
        if self.path.is_empty() { cut_word(key) } else { format!("{}.{}", self.path, cut_word(key)) }
    }

    /// Finds a key in every file that has it, the weakest first.
    pub(super) fn find_all(&mut self, key: &'static str) -> Vec<FoundSetting<'a>> {
        // Asked for, so it is a key: also where no file has it.
        self.known.push(key);
        let path = self.path_of(key);
        let found = self.layers.iter().filter_map(|(file, table)| {
            let (place, value) = table.iter().find(|(name, _)| name.get_ref() == key)?;
            Some(FoundSetting {
                file: *file,
                at: place.span().start,
                path: path.clone(),
                value: value.get_ref(),
            })
        });
        found.collect()
    }

    /// Finds a key in the strongest file that has it.
    pub(super) fn find_setting(&mut self, key: &'static str) -> Option<FoundSetting<'a>> {
        self.find_all(key).pop()
    }

    pub(super) fn read_text(&mut self, key: &'static str) -> Result<Option<&'a str>, PilotConfigError> {
        self.find_setting(key).map(|setting| setting.read_text()).transpose()
    }

    pub(super) fn read_switch(&mut self, key: &'static str) -> Result<Option<bool>, PilotConfigError> {
        self.find_setting(key).map(|setting| setting.read_switch()).transpose()
    }

    pub(super) fn read_whole(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, PilotConfigError> {
        self.find_setting(key).map(|setting| setting.read_whole(&range)).transpose()
    }

    /// Reads a whole number that fits 32 bits, since its range does.
    pub(super) fn read_count(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u32>,
    ) -> Result<Option<u32>, PilotConfigError> {
        let wide = u64::from(*range.start())..=u64::from(*range.end());
        Ok(self.read_whole(key, wide)?.and_then(|number| u32::try_from(number).ok()))
    }

    /// Reads the lowest of the numbers that the files have for a key.
    pub(super) fn read_lowest(
        &mut self,
        key: &'static str,
        range: RangeInclusive<u64>,
    ) -> Result<Option<u64>, PilotConfigError> {
        let numbers = self.find_all(key).into_iter().map(|setting| setting.read_whole(&range));
        Ok(numbers.collect::<Result<Vec<u64>, PilotConfigError>>()?.into_iter().min())
    }

    /// Reads a part of a whole, above zero and below one.
    pub(super) fn read_part(&mut self, key: &'static str) -> Result<Option<f64>, PilotConfigError> {
        let Some(setting) = self.find_setting(key) else { return Ok(None) };
        let number = setting.value.as_float().ok_or_else(|| setting.wrong_type("a number such as 0.80"))?;
        // Not a number is in no range.
        let part = number.as_str().parse::<f64>().ok().filter(|part| *part > 0.0 && *part < 1.0);
        part.map(Some).ok_or_else(|| setting.fault("is not between 0 and 1", "choose a part such as 0.80"))
    }

    pub(super) fn read_duration(
        &mut self,
        key: &'static str,
        range: RangeInclusive<Duration>,
    ) -> Result<Option<Duration>, PilotConfigError> {
        self.find_setting(key).map(|setting| setting.read_duration(&range)).transpose()
    }

    /// Reads one of a few words.
    pub(super) fn read_choice<T: Copy>(
        &mut self,
        key: &'static str,
        choices: &[(&str, T)],
    ) -> Result<Option<T>, PilotConfigError> {
        let Some(setting) = self.find_setting(key) else { return Ok(None) };
        let word = setting.read_text()?;
        let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
        let found = choices.iter().find(|(name, _)| *name == word).map(|(_, value)| *value);
        found.map(Some).ok_or_else(|| {
            let near = nearest_name(word, &names).map(|near| format!("'{near}' is probably meant; "));
            let problem = format!("has no value '{}'", cut_word(word));
            setting.fault(&problem, format!("{}one of {}", near.unwrap_or_default(), names.join(", ")))
        })
    }

    /// Opens a table inside, of all files together; an empty one if no file has it.
    pub(super) fn open_section(&mut self, key: &'static str) -> Result<Self, PilotConfigError> {
        let path = self.path_of(key);
        // Of several files: each of its keys is asked for in all of them.
        let mut layers = Vec::new();
        for setting in self.find_all(key) {
            let table = setting.value.as_table().ok_or_else(|| setting.wrong_type("a section"))?;
            layers.push((setting.file, table));
        }
        Ok(Self { path, layers, known: Vec::new() })
    }

    /// Opens a list of tables, that of the strongest file that has it.
    pub(super) fn open_list(
        &mut self,
        key: &'static str,
    ) -> Result<Vec<(FoundSetting<'a>, Self)>, PilotConfigError> {
        let Some(setting) = self.find_setting(key) else { return Ok(Vec::new()) };
        let wrong = || setting.wrong_type(&format!("a list of sections `[[{}]]`", setting.path));
        let list = setting.value.as_array().ok_or_else(wrong)?;
        // Lists are not joined: the order of two files together would be no one's.
        let open = |item: &'a Spanned<DeValue<'a>>| {
            let table = item.get_ref().as_table().ok_or_else(wrong)?;
            let place = FoundSetting { at: item.span().start, value: item.get_ref(), ..setting.clone() };
            let path = setting.path.clone();
            Ok((place, Self { path, layers: vec![(setting.file, table)], known: Vec::new() }))
        };
        list.iter().map(open).collect()
    }

    /// Ends the reading: a key that was not asked for is a mistake.
    pub(super) fn end_section(self) -> Result<(), PilotConfigError> {
        for (file, table) in &self.layers {
            let unknown = table.iter().find(|(name, _)| !self.known.contains(&name.get_ref().as_ref()));
            if let Some((name, _)) = unknown {
                let path = self.path_of(name.get_ref());
                // Half a name is not like the whole one, but as good a sign.
                let longer =
                    || self.known.iter().find(|known| known.starts_with(name.get_ref().as_ref())).copied();
                let hint = nearest_name(name.get_ref(), &self.known).or_else(longer).map_or_else(
                    || format!("here are possible: {}", self.known.join(", ")),
                    |near| format!("'{near}' is probably meant"),
                );
                return Err(file.fault(name.span().start, &path, format!("unknown key `{path}`"), hint));
            }
        }
        Ok(())
    }
}

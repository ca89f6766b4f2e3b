//! The catalogue of models: their limits, and their prices by date. Data, in `models.toml`.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::LazyLock;

use serde::Deserialize;
use writ_types::chat::Usage;
use writ_types::unit::{MicroUsd, Timestamp, Tokens};

use crate::config::OwnPrice;
use crate::provider::{ModelsConfigError, split_name};

/// The shipped table.
const SHIPPED: &str = include_str!("models.toml");

/// Tokens that prices are given for.
const PRICED_TOKENS: u128 = 1_000_000;

/// The assumptions about a model that is not in the table: small enough for most models.
const UNKNOWN: ModelInfo = ModelInfo {
    context_window: Tokens::new(32_768),
    max_output: Tokens::new(8_192),
    tools: true,
    vision: false,
    known: false,
};

/// The abilities and limits of a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelInfo {
    /// Tokens that request and answer may have together.
    pub context_window: Tokens,
    /// The most tokens of an answer.
    pub max_output: Tokens,
    /// True if it can call tools.
    pub tools: bool,
    /// True if it can see images.
    pub vision: bool,
    /// True if the model is in the table. Else its limits are cautious guesses, and the owner is warned.
    pub known: bool,
}

/// The price of a model's tokens, in micro-USD per million tokens.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Price {
    /// The first day of the price, as `YYYY-MM-DD` in UTC.
    #[serde(deserialize_with = "parse_date")]
    pub since: Timestamp,
    /// The source of the price.
    pub source: String,
    /// The price of input.
    pub input: u64,
    /// The price of output.
    pub output: u64,
    /// The price of input that the provider read from its cache.
    pub cache_read: u64,
    /// The price of input that the provider wrote to its cache.
    pub cache_write: u64,
}

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Row {
    provider: String,
    name: String,
    context_window: u64,
    max_output: u64,
    vision: bool,
    price: Vec<Price>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Table {
    model: Vec<Row>,
}

/// A table of models.
#[derive(Debug)]
pub struct Catalogue {
    rows: Cow<'static, [Row]>,
    /// Prices of the owner's, by provider and model.
    own: BTreeMap<(String, String), Price>,
}

/// A model with its price, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PricedModel<'a> {
    /// The provider's name.
    pub provider: &'a str,
    /// The model's name, without a date.
    pub model: &'a str,
    /// Its price.
    pub price: &'a Price,
    /// True if the owner has set it.
    pub is_own: bool,
}

fn parse_date<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    let text = String::deserialize(deserializer)?;
    let date: jiff::civil::Date = text.parse().map_err(serde::de::Error::custom)?;
    let start = date.to_zoned(jiff::tz::TimeZone::UTC).map_err(serde::de::Error::custom)?;
    Ok(Timestamp::from_millis(start.timestamp().as_millisecond()))
}

/// One part in so many that writing to a cache costs more than input, where the owner names no price: a quarter, the most that the shipped
/// providers take for their usual time. Too low a price would let a limit on money be passed.
const WRITE_SHARE: u64 = 4;

impl Catalogue {
    /// The table that Writ ships with.
    pub fn load_shipped() -> &'static Self {
        static SHIPPED_TABLE: LazyLock<Catalogue> = LazyLock::new(|| {
            // The table is part of the program and parsed by a test; should it ever be broken, every
            // model is an unknown one.
            let none = Catalogue { rows: Cow::Borrowed(&[]), own: BTreeMap::new() };
            Catalogue::parse_catalogue(SHIPPED).unwrap_or(none)
        });
        &SHIPPED_TABLE
    }

    /// Reads a table.
    ///
    /// # Errors
    ///
    /// If it is not of the table's form.
    pub fn parse_catalogue(text: &str) -> Result<Self, toml::de::Error> {
        Ok(Self { rows: Cow::Owned(toml::from_str::<Table>(text)?.model), own: BTreeMap::new() })
    }

    /// The shipped table with prices of the owner's, by `provider/name`.
    ///
    /// # Errors
    ///
    /// If a name has another form.
    pub fn with_own(prices: &BTreeMap<String, OwnPrice>) -> Result<Self, ModelsConfigError> {
        let mut own = BTreeMap::new();
        for (name, price) in prices {
            let (provider, model) = split_name("models.prices", name)?;
            let OwnPrice { input, output, cache_read, cache_write } = *price;
            let price = Price {
                since: Timestamp::from_millis(0),
                source: "config.toml".to_owned(),
                input,
                output,
                cache_read: cache_read.unwrap_or(input),
                cache_write: cache_write.unwrap_or_else(|| input.saturating_add(input.div_ceil(WRITE_SHARE))),
            };
            own.insert((provider.to_owned(), model.to_owned()), price);
        }
        Ok(Self { rows: Cow::Borrowed(&Self::load_shipped().rows), own })
    }

    /// Returns every price that counts at `now`: the owner's first, then the shipped ones that none of those replaces.
    pub fn prices_at(&self, now: Timestamp) -> Vec<PricedModel<'_>> {
        let own = self.own.iter().map(|((provider, model), price)| PricedModel {
            provider,
            model,
            price,
            is_own: true,
        });
        let shipped = self.rows.iter().filter_map(|row| {
            let replaced = self.own.contains_key(&(row.provider.clone(), row.name.clone()));
            let price = self.price_at(&row.provider, &row.name, now).filter(|_| !replaced)?;
            Some(PricedModel { provider: &row.provider, model: &row.name, price, is_own: false })
        });
        own.chain(shipped).collect()
    }

    /// Returns the limits and abilities of a model. For an unknown model they are cautious guesses.
    pub fn model_info(&self, provider: &str, model: &str) -> ModelInfo {
        self.find_row(provider, model).map_or(UNKNOWN, |row| ModelInfo {
            // Rows of the table are written for models that can call tools.
            context_window: Tokens::new(row.context_window),
            max_output: Tokens::new(row.max_output),
            tools: true,
            vision: row.vision,
            known: true,
        })
    }

    /// The newest price that is not after `now`; `None`: it is not known.
    pub fn price_at(&self, provider: &str, model: &str, now: Timestamp) -> Option<&Price> {
        if let Some(own) = self.own.get(&(provider.to_owned(), model.to_owned())) {
            return Some(own);
        }
        let prices = self.find_row(provider, model)?.price.iter();
        // Prices change at a date; a call is billed by the one in force when it was made.
        prices.filter(|price| price.since <= now).max_by_key(|price| price.since)
    }

    fn find_row(&self, provider: &str, model: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.provider == provider && is_version_of(model, &row.name))
    }
}

/// Returns true if `model` is `name`, or a dated or `latest` version of it. `gpt-5-mini` is no version of
/// `gpt-5`.
fn is_version_of(model: &str, name: &str) -> bool {
    let Some(rest) = model.strip_prefix(name) else { return false };
    // A date or `latest`, and nothing else: `gpt-5-mini` is another model with another price.
    let version = |rest: &str| {
        rest == "latest" || (rest.starts_with("20") && rest.chars().all(|c| c.is_ascii_digit() || c == '-'))
    };
    rest.is_empty() || rest.strip_prefix('-').is_some_and(version)
}

impl Price {
    /// Returns the price of these tokens, rounded up.
    pub fn cost_of(&self, usage: &Usage) -> MicroUsd {
        // The provider counts cached tokens within the input, at a price of their own.
        let cached = usage.cache_read.saturating_add(usage.cache_write);
        let parts = [
            (usage.input.saturating_sub(cached), self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write, self.cache_write),
            (usage.output, self.output),
        ];
        // In 128 bits, since tokens times price can exceed 64.
        let total = parts
            .iter()
            .map(|(tokens, price)| u128::from(tokens.get()).saturating_mul(u128::from(*price)))
            .fold(0, u128::saturating_add);
        // Rounded up, so that many small calls are not free.
        MicroUsd::new(u64::try_from(total.div_ceil(PRICED_TOKENS)).unwrap_or(u64::MAX))
    }

    /// The most that a call of this size can cost: every token sent at the dearest input price.
    // Before the call it is unknown how much of the input will come from the cache.
    pub fn cost_ceiling(&self, input: Tokens, output: Tokens) -> MicroUsd {
        let dearest = Self { input: self.input.max(self.cache_write).max(self.cache_read), ..self.clone() };
        dearest.cost_of(&Usage { input, output, ..Usage::default() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(date: &str) -> Timestamp {
        date.parse::<jiff::Timestamp>().map(|t| Timestamp::from_millis(t.as_millisecond())).expect("a time")
    }

    const PRICES: &str = r#"
        [[model]]
        provider = "p"
        name = "m"
        context_window = 1000
        max_output = 100
        vision = false
        price = [
            { since = "2026-02-01", source = "list", input = 2000000, output = 8000000, cache_read = 200000, cache_write = 2500000 },
            { since = "2026-01-01", source = "list", input = 5000000, output = 9000000, cache_read = 500000, cache_write = 5000000 },
        ]
    "#;

    #[test]
    fn the_newest_price_that_is_not_after_now_counts() {
        let table = Catalogue::parse_catalogue(PRICES).expect("parses");
        let input = |time| table.price_at("p", "m", at(time)).map(|price| price.input);
        assert_eq!(input("2025-12-31T23:59:59Z"), None);
        assert_eq!(input("2026-01-01T00:00:00Z"), Some(5_000_000));
        assert_eq!(input("2026-01-31T23:59:59Z"), Some(5_000_000));
        assert_eq!(input("2026-02-01T00:00:00Z"), Some(2_000_000));
        assert_eq!(table.price_at("p", "other", at("2026-02-01T00:00:00Z")), None);
        assert_eq!(table.price_at("other", "m", at("2026-02-01T00:00:00Z")), None);
    }

    #[test]
    fn costs_tell_cached_tokens_apart_and_round_up() {
        let table = Catalogue::parse_catalogue(PRICES).expect("parses");
        let price = table.price_at("p", "m", at("2026-03-01T00:00:00Z")).expect("a price");
        let usage = Usage {
            input: Tokens::new(1_000),
            output: Tokens::new(10),
            cache_read: Tokens::new(600),
            cache_write: Tokens::new(100),
        };
        // 300 × 2 + 600 × 0.2 + 100 × 2.5 + 10 × 8 micro-USD.
        assert_eq!(price.cost_of(&usage), MicroUsd::new(600 + 120 + 250 + 80));
        let one = Usage { cache_read: Tokens::new(1), input: Tokens::new(1), ..Usage::default() };
        assert_eq!(price.cost_of(&one), MicroUsd::new(1));
        assert_eq!(price.cost_ceiling(Tokens::new(1_000), Tokens::new(10)), MicroUsd::new(2_500 + 80));
        let endless = Usage { input: Tokens::MAX, output: Tokens::MAX, ..Usage::default() };
        assert_eq!(price.cost_of(&endless), MicroUsd::new(u64::MAX));
    }

    /// Rows: SCL-028
    #[test]
    fn known_models_are_found_and_unknown_ones_are_taken_for_small() {
        let table = Catalogue::parse_catalogue(SHIPPED).expect("the shipped table parses");
        assert!(!table.rows.is_empty());
        let known = table.model_info("anthropic", "claude-sonnet-4-5-20250929");
        assert!(known.known && known.tools && known.vision);
        assert_eq!(known.context_window, Tokens::new(200_000));
        let unknown = table.model_info("anthropic", "claude-nothing-1");
        assert_eq!(unknown, UNKNOWN);
        assert!(!unknown.known && !unknown.vision);
        assert!(unknown.context_window < known.context_window);
    }

    #[test]
    fn a_smaller_model_is_no_version_of_a_larger_one() {
        assert!(is_version_of("gpt-5", "gpt-5"));
        assert!(is_version_of("gpt-5-2025-08-07", "gpt-5"));
        assert!(is_version_of("claude-sonnet-4-5-20250929", "claude-sonnet-4-5"));
        assert!(is_version_of("claude-sonnet-4-5-latest", "claude-sonnet-4-5"));
        assert!(!is_version_of("gpt-5-mini", "gpt-5"));
        assert!(!is_version_of("gpt-5.1", "gpt-5"));
        assert!(!is_version_of("claude-sonnet-4-55", "claude-sonnet-4-5"));
    }

    #[test]
    fn shipped_prices_are_complete_and_in_order() {
        for row in Catalogue::load_shipped().rows.iter() {
            let prices = &row.price;
            assert!(!prices.is_empty(), "{} has no price", row.name);
            assert!(prices.is_sorted_by(|a, b| a.since < b.since), "prices of {} are out of order", row.name);
            for price in prices {
                assert!(price.input > 0 && price.output > price.input && !price.source.is_empty());
                assert!(price.cache_read < price.input, "a cached token of {} is dear", row.name);
            }
        }
    }
}

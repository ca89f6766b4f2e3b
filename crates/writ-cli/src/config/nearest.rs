//! The right key for a wrong one.

use super::schema::{KEYS, key_segments};

/// The key that was probably meant: at the same place first, anywhere else second.
pub(crate) fn nearest_key(path: &[String]) -> Option<String> {
    let (last, above) = path.split_last()?;
    let siblings = child_names(above);
    let near = siblings
        .iter()
        .map(|name| (strsim::damerau_levenshtein(&name.to_lowercase(), &last.to_lowercase()), *name))
        .filter(|(distance, name)| is_near(*distance, name))
        .min();
    if let Some((_, name)) = near {
        let mut right = above.to_vec();
        right.push(name.to_owned());
        return Some(right.join("."));
    }
    KEYS.iter()
        .filter_map(|key| {
            let name = *key_segments(key).last()?;
            let distance = strsim::damerau_levenshtein(name, last);
            (name != "*" && is_near(distance, name)).then_some((distance, key.path))
        })
        .min()
        .map(|(_, path)| path.to_owned())
}

/// Returns the keys that are possible below a path, without names that the owner can choose freely.
fn child_names(above: &[String]) -> Vec<&'static str> {
    let below = |key| {
        let segments = key_segments(key);
        let fits = segments.len() > above.len()
            && segments.iter().zip(above).all(|(pattern, name)| *pattern == "*" || pattern == name);
        if fits { segments.get(above.len()).copied() } else { None }
    };
    KEYS.iter().filter_map(below).filter(|name| *name != "*").collect()
}

/// A slip of the hand changes one letter in three at most.
fn is_near(distance: usize, name: &str) -> bool {
    distance <= (name.len() / 3).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The nearest key for each wrong one.
    #[test]
    fn slips_lead_to_the_right_key() {
        let near = |text: &str| nearest_key(&text.split('.').map(str::to_owned).collect::<Vec<_>>());
        for (wrong, right) in [
            ("budgt", Some("budget")),
            ("Budget", Some("budget")),
            ("budget.max_token_per_day", Some("budget.max_tokens_per_day")),
            ("model", Some("models")),
            ("models.defualt", Some("models.default")),
            ("providers.mine.baseurl", Some("providers.mine.base_url")),
            ("max_tokens_per_day", Some("budget.max_tokens_per_day")),
            ("limits.max_tool_calls_per_turn", Some("limits.max_model_calls_per_turn")),
            ("something.else.entirely", None),
        ] {
            assert_eq!(near(wrong).as_deref(), right, "{wrong}");
        }
    }
}

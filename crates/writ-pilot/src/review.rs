//! TEMP
use serde::Deserialize;
use writ_autopilot::machine::ReviewVerdict;
#[derive(Clone, Debug, Deserialize)]
pub struct ReviewFinding {
    pub path: String,
    pub line: u32,
    pub severity: String,
    pub text: String,
}
#[derive(Clone, Debug, Deserialize)]
pub struct ReviewAnswer {
    pub verdict: ReviewVerdict,
    pub findings: Vec<ReviewFinding>,
}
pub fn json_object(text: &str) -> Option<&str> {
    let from = text.find('{')?;
    let to = text.rfind('}')?;
    text.get(from..=to)
}
pub fn read_review(text: &str) -> Result<ReviewAnswer, serde_json::Error> {
    serde_json::from_str(json_object(text).unwrap_or(text))
}
pub fn split_diff(diff: &str) -> Vec<String> {
    vec![diff.to_owned()]
}
pub fn join_reviews(all: Vec<ReviewAnswer>) -> (ReviewVerdict, Vec<ReviewFinding>) {
    let verdict = all.iter().map(|one| one.verdict).max().unwrap_or(ReviewVerdict::Pass);
    (verdict, all.into_iter().flat_map(|one| one.findings).collect())
}

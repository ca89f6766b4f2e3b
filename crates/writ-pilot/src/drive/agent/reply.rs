//! The parts of a reply that an attempt is to bring: a plan, or a decision.

use writ_autopilot::attempt::TurnMarker;

/// Returns the plan in a reply: from its front matter to the end of the block or of the reply, without a marker below it.
pub(super) fn plan_text(said: &str) -> &str {
    let from = if said.starts_with("---\n") { Some(0) } else { said.find("\n---\n").map(|at| at + 1) };
    let text = from.and_then(|from| said.get(from..)).unwrap_or(said);
    let end = text.find("\n```").unwrap_or(text.len());
    let text = text.get(..end).unwrap_or(text).trim_end();
    TurnMarker::ALL
        .iter()
        .fold(text, |text, marker| text.strip_suffix(marker.text()).unwrap_or(text).trim_end())
}

/// Returns the object of an answer with words around it.
pub(super) fn json_object(text: &str) -> &str {
    let (from, to) = (text.find('{'), text.rfind('}'));
    from.zip(to).and_then(|(from, to)| text.get(from..=to)).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_found_in_a_reply_with_and_without_a_block() {
        let plan = "---\nunit_id: task/m1/s1/t1\n---\n# Goal\nx";
        for said in [
            plan.to_owned(),
            format!("Here it is:\n{plan}"),
            format!("```markdown\n{plan}\n```\nDone."),
            format!("{plan}\n\n{}", TurnMarker::Complete.text()),
        ] {
            assert_eq!(plan_text(&said), plan, "{said}");
        }
        assert_eq!(plan_text("no plan"), "no plan");
    }
}

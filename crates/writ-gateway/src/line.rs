//! Frames as text.

use serde_json::Value;
use writ_types::error::{Exit, Report};
use writ_types::frame::{MAX_FRAME_BYTES, Numbered, ServerFrame};
use writ_types::id::SessionId;

/// The form of a client's frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shape {
    /// As [`writ_types::frame`] has them.
    Plain,
    /// Messages of the agent are responses of this session: type `response`, with `content`, `session_id` and
    /// `message_id` (SCL-098).
    Session(SessionId),
}

impl Shape {
    /// A frame as its text, without line breaks. One that the client would refuse is replaced by an error.
    pub(crate) fn frame_line(self, frame: &Numbered) -> Option<String> {
        let line = self.text_line(frame)?;
        // A frame that the client would refuse would end its connection.
        if line.len() <= MAX_FRAME_BYTES { Some(line) } else { self.text_line(&too_large(frame, line.len())) }
    }

    fn text_line(self, frame: &Numbered) -> Option<String> {
        let (Self::Session(session), ServerFrame::Message { turn, text, .. }) = (self, &frame.frame) else {
            return serde_json::to_string(frame).ok();
        };
        // `insert` replaces the value of a name and leaves its place.
        let Ok(Value::Object(mut fields)) = serde_json::to_value(frame) else { return None };
        fields.insert("type".to_owned(), "response".into());
        fields.insert("content".to_owned(), text.as_str().into());
        fields.insert("session_id".to_owned(), session.to_string().into());
        // A turn may say more than one thing; each has its place in the session's stream.
        fields.insert("message_id".to_owned(), format!("{turn}-{}", frame.seq).into());
        serde_json::to_string(&fields).ok()
    }
}

/// Returns the error that replaces a frame which the client would refuse.
fn too_large(frame: &Numbered, bytes: usize) -> Numbered {
    let id = if let ServerFrame::Answer { id, .. } = &frame.frame { Some(*id) } else { None };
    let text = format!("what would be sent has {bytes} bytes; the limit is {MAX_FRAME_BYTES}");
    let report = Report::new(Exit::Blocked, "frame.too_large", text).with_hint("ask for less at once");
    Numbered { seq: frame.seq, frame: error_frame(id, report) }
}

/// Makes a frame of an error; the part for the log alone goes there.
pub(crate) fn error_frame(id: Option<u64>, report: Report) -> ServerFrame {
    // The log gets what people outside must not read.
    if report.inside != report.outside {
        tracing::warn!(code = report.code, inside = report.inside, "refused");
    }
    let hint = report.advice().to_owned();
    let Report { exit, code, outside: text, .. } = report;
    ServerFrame::Error { id, exit, code, text, hint, answers: Vec::new() }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use writ_types::error::Exit;
    use writ_types::id::{EntrySeq, TurnId};
    use writ_types::taint::Taint;
    use writ_types::unit::Timestamp;

    use super::*;

    const AT: Timestamp = Timestamp::from_millis(0);

    #[test]
    fn an_answer_that_is_too_large_for_a_frame_becomes_an_error() {
        let answer =
            |text: String| Numbered { seq: 0, frame: ServerFrame::Answer { id: 7, result: json!(text) } };
        let fits = Shape::Plain.frame_line(&answer("x".to_owned())).expect("a line");
        assert_eq!(fits, r#"{"seq":0,"type":"answer","id":7,"result":"x"}"#);
        let cut = Shape::Plain.frame_line(&answer("x".repeat(MAX_FRAME_BYTES))).expect("a line");
        let cut: Numbered = serde_json::from_str(&cut).expect("a frame");
        assert!(
            matches!(&cut.frame, ServerFrame::Error { id: Some(7), code, .. } if code == "frame.too_large"),
            "{cut:?}"
        );
    }

    /// Rows: SCL-098
    #[test]
    fn a_message_is_a_response_of_its_session() {
        let (session, turn) = (SessionId::from_parts(AT, 1), TurnId::from_parts(AT, 2));
        let message = |seq| Numbered {
            seq,
            frame: ServerFrame::Message {
                turn,
                text: "hi\n\"you\"".to_owned(),
                taint: Taint::Owner,
                entries: (EntrySeq(1), EntrySeq(2)),
                last: true,
                exit: Exit::Done,
                answers: vec!["a".to_owned()],
            },
        };
        let said = |seq| -> Value {
            let line = Shape::Session(session).frame_line(&message(seq)).expect("a line");
            assert!(!line.contains('\n'));
            serde_json::from_str(&line).expect("JSON")
        };
        let first = said(3);
        assert_eq!((&first["type"], &first["content"]), (&json!("response"), &json!("hi\n\"you\"")));
        assert_eq!((&first["session_id"], &first["seq"]), (&json!(session), &json!(3)));
        assert_ne!(first["message_id"], said(4)["message_id"]);
        let line = Shape::Plain.frame_line(&message(3)).expect("a line");
        assert_eq!(serde_json::from_str::<Numbered>(&line).expect("a frame"), message(3));
    }
}

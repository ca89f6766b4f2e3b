//! Lines from something that is no terminal, and the rule by which lines are continued.

use std::io::{BufRead, Read as _};

use crate::editor::{Input, MAX_INPUT_BYTES};
use crate::error::EditorError;

/// Returns true if a line continues in the next one: it ends with a backslash that is not itself escaped by
/// one.
pub(crate) fn continues_below(line: &str) -> bool {
    // An even number of backslashes escapes itself.
    line.bytes().rev().take_while(|byte| *byte == b'\\').count() % 2 == 1
}

/// Reads one message: a line, and those that continue it.
pub(crate) fn read_plain(reader: &mut impl BufRead) -> Result<Input, EditorError> {
    let mut message = String::new();
    let mut first = true;
    loop {
        let Some(line) = read_line(reader, MAX_INPUT_BYTES - message.len())? else {
            return Ok(if first { Input::End } else { Input::Line(message) });
        };
        first = false;
        if !continues_below(&line) {
            message.push_str(&line);
            return Ok(Input::Line(message));
        }
        message.push_str(line.strip_suffix('\\').unwrap_or(&line));
        message.push('\n');
    }
}

/// One line without its end; `None` at the end of the input. Of a line that is too long the rest is skipped.
fn read_line(reader: &mut impl BufRead, limit: usize) -> Result<Option<String>, EditorError> {
    let mut line = Vec::new();
    // One byte more than the limit shows that the line is too long.
    let bound = u64::try_from(limit).unwrap_or(u64::MAX).saturating_add(1);
    let read = reader.by_ref().take(bound).read_until(b'\n', &mut line).map_err(EditorError::Terminal)?;
    if read == 0 {
        return Ok(None);
    }
    if line.last() != Some(&b'\n') && line.len() > limit {
        reader.skip_until(b'\n').map_err(EditorError::Terminal)?;
        return Err(EditorError::TooLong { limit: MAX_INPUT_BYTES });
    }
    let mut line = String::from_utf8(line).map_err(|_| EditorError::NotUtf8)?;
    if line.ends_with('\n') {
        line.pop();
        if line.ends_with('\r') {
            line.pop();
        }
    }
    Ok(Some(line))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(mut bytes: &[u8]) -> Vec<Input> {
        let mut inputs = Vec::new();
        loop {
            let input = read_plain(&mut bytes).expect("read");
            inputs.push(input.clone());
            if input == Input::End {
                return inputs;
            }
        }
    }

    fn line(text: &str) -> Input {
        Input::Line(text.into())
    }

    #[test]
    fn lines_end_at_line_breaks_and_go_on_after_a_backslash() {
        assert_eq!(read_all(b"one\r\ntwo"), [line("one"), line("two"), Input::End]);
        assert_eq!(read_all(b"a\\\nb\\\nc\nd\n"), [line("a\nb\nc"), line("d"), Input::End]);
        assert_eq!(read_all(b"a\\\\\nb\n"), [line("a\\\\"), line("b"), Input::End]);
        assert_eq!(read_all(b"a\\"), [line("a\n"), Input::End]);
        assert_eq!(read_all(b"\n"), [line(""), Input::End]);
    }

    #[test]
    fn long_and_broken_lines_are_errors_and_reading_goes_on() {
        let mut bytes = vec![b'x'; MAX_INPUT_BYTES + 10];
        bytes.extend(b"\n\xff\nlast\n");
        let mut reader = bytes.as_slice();
        assert!(matches!(read_plain(&mut reader), Err(EditorError::TooLong { .. })));
        assert!(matches!(read_plain(&mut reader), Err(EditorError::NotUtf8)));
        assert_eq!(read_plain(&mut reader).expect("read"), line("last"));
        let endless = "x\\\n".repeat(MAX_INPUT_BYTES / 2 + 2);
        assert!(matches!(read_plain(&mut endless.as_bytes()), Err(EditorError::TooLong { .. })));
    }
}

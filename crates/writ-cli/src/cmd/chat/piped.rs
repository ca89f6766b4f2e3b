//! A message that comes from a pipe or a file, or text beside one.

use std::io::Read as _;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use writ_policy::principal::MAX_MESSAGE_BYTES;
use writ_types::error::Exit;

use crate::args::ChatArgs;
use crate::context::Context;
use crate::failure::Failure;

/// The time without input after which the person is shown that input is awaited.
const PATIENCE: Duration = Duration::from_secs(3);

/// Takes what stands in a pipe: without `-m` it is the message, as if it were typed; beside `-m` it is quoted. Returns the
/// arguments with the message, and what is quoted.
///
/// # Errors
///
/// If there is neither a message nor a terminal to ask for one, or the text is too long or no UTF-8.
pub(super) fn take_piped(context: &Context, args: &ChatArgs) -> Result<(ChatArgs, String), Failure> {
    let (args, nothing) = (args.clone(), String::new());
    // A standing order runs unattended, where the input may be a pipe that is never closed.
    if context.host.streams.input.is_terminal() || args.order.is_some() {
        return Ok((args, nothing));
    }
    let text = read_input(context)?;
    match args.message {
        Some(_) => Ok((args, text)),
        None if text.trim().is_empty() => {
            let hint = "say it with -m TEXT, send it into a pipe, or start this in a terminal";
            Err(Failure::new(
                Exit::Usage,
                "cli.empty",
                "there is no message, and no terminal to type one in",
                hint,
            ))
        }
        None => Ok((ChatArgs { message: Some(text), ..args }, nothing)),
    }
}

/// Reads all of standard input. Where nothing comes for a while, the person is shown why nothing happens.
fn read_input(context: &Context) -> Result<String, Failure> {
    let (sender, receiver) = mpsc::sync_channel(1);
    let input = context.host.streams.input.clone();
    thread::spawn(move || {
        // One byte more than the limit shows that the text is too long.
        let most = u64::try_from(MAX_MESSAGE_BYTES).unwrap_or(u64::MAX).saturating_add(1);
        let mut bytes = Vec::new();
        // An input that cannot be read has nothing to say, as one that was closed.
        let _read = input.take(most).read_to_end(&mut bytes);
        // The receiver waits for this alone.
        let _sent = sender.send(bytes);
    });
    let bytes = match receiver.recv_timeout(PATIENCE) {
        Ok(bytes) => bytes,
        Err(_) => {
            context
                .out
                .print_remark("waiting for the end of the text from the pipe; `< /dev/null` sends none");
            receiver.recv().unwrap_or_default()
        }
    };
    if bytes.len() > MAX_MESSAGE_BYTES {
        let text = format!("the text from the pipe has more than {MAX_MESSAGE_BYTES} bytes");
        let hint = "put it into a file of the project, and name the file in the message";
        return Err(Failure::new(Exit::Usage, "cli.too_long", &text, hint));
    }
    let text = String::from_utf8(bytes).map_err(|error| {
        let text =
            format!("the text from the pipe is no UTF-8 from byte {} on", error.utf8_error().valid_up_to());
        Failure::new(Exit::Usage, "cli.encoding", &text, "convert it first, such as with: iconv -t UTF-8")
    })?;
    Ok(text.strip_prefix('\u{feff}').map(str::to_owned).unwrap_or(text))
}

//! scratch
use std::io::Write;
use writ_tui::editor::*;
fn main() {
    let rt = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let (mut ed, mut p) = LineEditor::start(&writ_tui::config::Config::default(), Some("/tmp/scratch-hist".into())).unwrap();
    rt.block_on(async {
        loop {
            let i = ed.read("> ").await.unwrap();
            writeln!(p, "GOT {i:?}").unwrap();
            if i == Input::End { break }
            if i == Input::Line("quit".into()) {
                // drop in the middle of a read
                tokio::select! { biased; _ = ed.read("never> ") => {}, () = async { for _ in 0..200000 { tokio::task::yield_now().await } } => {} }
                writeln!(p, "async text above").unwrap();
                break;
            }
        }
    });
}

//! The file worker.

use writ_types::encoding::{LineEnds, TextEncoding, TextForm};

use super::*;
use crate::file::SearchMatch;

async fn ask(fixture: &Fixture, request: FileRequest) -> Result<FileReply, FileFault> {
    match fixture.workspace.ask_worker(request).await {
        Ok(reply) => Ok(reply),
        Err(SandboxError::File(fault)) => Err(fault),
        Err(other) => panic!("{other}"),
    }
}

async fn read(fixture: &Fixture, path: &str, mode: ReadMode) -> Result<ReadResult, FileFault> {
    let reply = ask(fixture, FileRequest::Read(ReadFile { path: path.into(), mode })).await?;
    let FileReply::Read(result) = reply else { panic!("{reply:?}") };
    Ok(result)
}

async fn text(fixture: &Fixture, path: &str, first_line: u64, lines: u64) -> Result<ReadResult, FileFault> {
    read(fixture, path, ReadMode::Text { first_line, lines }).await
}

async fn matches(fixture: &Fixture, pattern: &str, glob: &str) -> Vec<SearchMatch> {
    let mode = ReadMode::Search { pattern: pattern.into(), glob: glob.into(), max_matches: 20 };
    match read(fixture, "", mode).await {
        Ok(ReadResult::Search { matches, .. }) => matches,
        other => panic!("{other:?}"),
    }
}

async fn search(fixture: &Fixture, pattern: &str, glob: &str) -> Vec<String> {
    let found = matches(fixture, pattern, glob).await;
    found.iter().map(|found| format!("{}:{}:{}", found.path, found.line, found.text)).collect()
}

fn change(path: &str, before: Option<&str>, after: Option<&str>) -> FileChange {
    let digest = |text: &str| Digest::of_bytes(text.as_bytes());
    FileChange {
        path: path.into(),
        kind: match (before, after) {
            (None, _) => ChangeKind::Create,
            (Some(_), Some(_)) => ChangeKind::Modify,
            (Some(_), None) => ChangeKind::Delete,
        },
        before: before.map(digest),
        after: after.map(digest),
        executable: false,
        bytes: after.map_or(0, |text| text.len() as u64),
    }
}

async fn write(
    fixture: &Fixture,
    path: &str,
    before: Option<&str>,
    after: Option<&str>,
) -> Result<WrittenFile, FileFault> {
    let content = after.map(str::to_owned);
    let request =
        FileRequest::Write { change: change(path, before, after), content, encoding: Default::default() };
    let reply = ask(fixture, request).await?;
    let FileReply::Written(written) = reply else { panic!("{reply:?}") };
    Ok(written)
}

#[tokio::test]
async fn text_is_read_by_lines() {
    let fixture = Fixture::new().await;
    let found = text(&fixture, "README.md", 2, 5).await.unwrap();
    let digest = Digest::of_bytes(b"one\ntwo\n");
    assert_eq!(
        found,
        ReadResult::Text {
            text: "two\n".into(),
            first_line: 2,
            total_lines: 2,
            bytes: 8,
            digest,
            truncated: false,
            form: Default::default(),
        }
    );
    fixture.sh("head -c 100 /dev/zero > bin; printf 'a\\377b' > latin").await;
    assert!(matches!(text(&fixture, "bin", 1, 1).await, Ok(ReadResult::Binary { bytes: 100, .. })));
    assert!(matches!(text(&fixture, "latin", 1, 1).await, Ok(ReadResult::Binary { bytes: 3, .. })));
    fixture.sh("yes abcdefg | head -c 1000000 > long").await;
    let Ok(ReadResult::Text { text, truncated, total_lines, .. }) =
        self::text(&fixture, "long", 1, u64::MAX).await
    else {
        panic!("not text")
    };
    assert_eq!((text.len() as u64, truncated, total_lines), (crate::file::TEXT_MAX, true, 125_000));
}

/// As Windows editors write them, and as older programs do.
#[tokio::test]
async fn text_is_read_in_the_encodings_that_it_names_and_other_bytes_are_named() {
    let fixture = Fixture::new().await;
    let utf16 = |text: &str| TextEncoding::Utf16Be.encode_text(text);
    fs::write(fixture.project.join("a.cs"), "\u{feff}eins\r\nzwei\r\n").unwrap();
    fs::write(fixture.project.join("a.reg"), utf16("\u{feff}größe\r\nzwei")).unwrap();
    fs::write(
        fixture.project.join("sjis.txt"),
        b"\x93\xfa\x96\x7b\x8c\xea\x82\xcc\x83\x65\x83\x4c\x83\x58\x83\x67\r\n",
    )
    .unwrap();
    fs::write(fixture.project.join("latin.txt"), b"caf\xe9 cr\xe8me, na\xefve\n").unwrap();
    let Ok(ReadResult::Text { text: whole, form, .. }) = text(&fixture, "a.cs", 1, 9).await else { panic!() };
    assert_eq!(whole, "eins\r\nzwei\r\n");
    assert_eq!(form, TextForm { mark: true, ends: LineEnds::Crlf, ..TextForm::default() });
    let Ok(ReadResult::Text { text: whole, form, total_lines, .. }) = text(&fixture, "a.reg", 1, 9).await
    else {
        panic!()
    };
    assert_eq!((whole.as_str(), total_lines), ("größe\r\nzwei", 2));
    let encoding = TextEncoding::Utf16Be;
    assert_eq!(form, TextForm { encoding, mark: true, ends: LineEnds::Crlf, last_end: false });
    for (path, name) in [("sjis.txt", "Shift_JIS"), ("latin.txt", "windows-1252")] {
        let Ok(ReadResult::Binary { content, .. }) = text(&fixture, path, 1, 9).await else {
            panic!("{path}")
        };
        assert_eq!(content.charset(), Some(name));
    }
    // What was read in UTF-16 is written in it.
    let (new, before) = (utf16("\u{feff}größe\r\ndrei"), utf16("\u{feff}größe\r\nzwei"));
    let mut change = change("a.reg", Some(""), Some(""));
    (change.before, change.after) = (Some(Digest::of_bytes(&before)), Some(Digest::of_bytes(&new)));
    let content = Some("\u{feff}größe\r\ndrei".to_owned());
    ask(&fixture, FileRequest::Write { change: change.clone(), content: content.clone(), encoding })
        .await
        .unwrap();
    assert_eq!(fixture.workspace.peek_file("a.reg").await.unwrap().unwrap().bytes, new);
    // Bytes that are not those of the digest are not written, whatever the text is.
    change.before = change.after;
    let forged = FileRequest::Write { change, content, encoding: TextEncoding::Utf8 };
    assert!(matches!(ask(&fixture, forged).await, Err(FileFault::Content { .. })));
}

/// A bundle of JavaScript is one line; Windows files end their lines with two characters.
#[tokio::test]
async fn a_search_shows_the_place_in_a_long_line() {
    let fixture = Fixture::new().await;
    let filler = |name: &str| format!("function {name}(){{return 1}};").repeat(20_000);
    let line = format!("{}const needle=42;{}let needle_2=needle;", filler("a"), filler("ü"));
    fs::write(fixture.project.join("app.min.js"), &line).unwrap();
    fs::write(fixture.project.join("win.txt"), "one\r\nlast word\r\n").unwrap();
    let found = matches(&fixture, r"needle\w*=", "*.js").await;
    assert_eq!(found.len(), 2, "{found:?}");
    for (found, begin) in found.iter().zip(["const needle=42;", "let needle_2=needle;"]) {
        let window = found.window.unwrap();
        assert!(found.text.contains(begin) && found.text.len() <= crate::file::LINE_MAX, "{found:?}");
        let column = usize::try_from(window.column).unwrap();
        let at = line.char_indices().nth(column - 1).unwrap().0;
        assert!(line[at..].starts_with("needle"), "{window:?}");
        assert!(window.cut_before, "{window:?}");
    }
    let end = found[1].window.unwrap();
    assert!(found[0].window.unwrap().cut_after && !end.cut_after);
    // However many places one line has, a bounded number is shown.
    assert_eq!(matches(&fixture, "return", "*.js").await.len(), crate::file::PLACES_MAX);
    assert_eq!(search(&fixture, "word$", "win.txt").await, ["win.txt:2:last word"]);
}

#[tokio::test]
async fn paths_that_leave_or_pass_links_are_refused() {
    let fixture = Fixture::new().await;
    fixture.sh("ln -s /etc/passwd abs; ln -s src dir; mkfifo pipe").await;
    let fault = |path: &'static str| {
        let fixture = &fixture;
        async move { text(fixture, path, 1, 1).await.unwrap_err() }
    };
    for path in ["/etc/passwd", "../project/README.md", "src/../../x", "a\0b"] {
        assert_eq!(fault(path).await, FileFault::Outside { path: path.into() });
    }
    for path in ["abs", "link", "dir/a.rs"] {
        assert_eq!(fault(path).await, FileFault::Link { path: path.into() });
    }
    assert_eq!(fault("none").await, FileFault::NotFound { path: "none".into() });
    assert!(matches!(fault("src").await, FileFault::Kind { .. }));
    assert!(matches!(fault("pipe").await, FileFault::Kind { .. }));
    assert!(text(&fixture, "./src//a.rs", 1, 1).await.is_ok());
    assert!(matches!(write(&fixture, "abs", None, Some("x")).await, Err(FileFault::Link { .. })));
    assert!(matches!(write(&fixture, "dir/x", None, Some("x")).await, Err(FileFault::Link { .. })));
}

#[tokio::test]
async fn folders_are_listed_and_files_searched() {
    let fixture = Fixture::new().await;
    let Ok(ReadResult::List { entries, truncated }) = read(&fixture, "", ReadMode::List).await else {
        panic!()
    };
    let names: Vec<_> = entries.iter().map(|entry| (entry.name.as_str(), entry.kind, entry.bytes)).collect();
    use crate::file::EntryKind::{File, Folder, Link};
    assert_eq!(names, [("README.md", File, 8), ("link", Link, 0), ("src", Folder, 0)]);
    assert!(!truncated);
    assert!(matches!(read(&fixture, "README.md", ReadMode::List).await, Err(FileFault::Kind { .. })));

    fixture
        .sh("mkdir target .git; echo 'fn t() {}' | tee target/t.rs > .git/x; echo target > .gitignore")
        .await;
    assert_eq!(search(&fixture, r"fn \w+\(", "*.rs").await, ["src/a.rs:1:fn a() {}", "src/b.rs:1:fn b() {}"]);
    assert_eq!(search(&fixture, "two", "").await, ["README.md:2:two"]);
    assert_eq!(search(&fixture, "fn", "src/a*").await, ["src/a.rs:1:fn a() {}"]);
    let bad = ReadMode::Search { pattern: "(".into(), glob: String::new(), max_matches: 1 };
    assert!(matches!(read(&fixture, "", bad).await, Err(FileFault::Pattern { .. })));
    let one = ReadMode::Search { pattern: "fn".into(), glob: String::new(), max_matches: 1 };
    assert!(
        matches!(read(&fixture, "", one).await, Ok(ReadResult::Search { matches, truncated: true, .. }) if matches.len() == 1)
    );
}

#[tokio::test]
async fn a_write_replaces_only_what_it_was_made_for() {
    let fixture = Fixture::new().await;
    let (old, new) = ("one\ntwo\n", "one\n2\n");
    let written = write(&fixture, "README.md", Some(old), Some(new)).await.unwrap();
    assert_eq!(written, WrittenFile { digest: Some(Digest::of_bytes(new.as_bytes())), bytes: 6 });
    let conflict = write(&fixture, "README.md", Some(old), Some("lost")).await;
    assert_eq!(
        conflict,
        Err(FileFault::Conflict { path: "README.md".into(), found: Some(Digest::of_bytes(new.as_bytes())) })
    );
    assert!(matches!(
        write(&fixture, "README.md", None, Some("lost")).await,
        Err(FileFault::Conflict { .. })
    ));
    let (change, content) = (change("x", None, Some("said")), Some("done".into()));
    let forged = FileRequest::Write { change, content, encoding: Default::default() };
    assert!(matches!(ask(&fixture, forged).await, Err(FileFault::Content { .. })));
    write(&fixture, "deep/er/file", None, Some("x")).await.unwrap();
    write(&fixture, "src/a.rs", Some("fn a() {}\n"), None).await.unwrap();
    assert_eq!(
        fixture.sh("cat README.md deep/er/file; ls -A . src").await,
        "one\n2\nx.:\nREADME.md\ndeep\nlink\nsrc\n\nsrc:\nb.rs"
    );
    assert_eq!(fixture.read("README.md"), old);
}

#[tokio::test]
async fn a_peek_gives_bytes_and_digest() {
    let fixture = Fixture::new().await;
    fixture.sh("printf 'a\\000\\377' > raw; chmod +x raw").await;
    let found = fixture.workspace.peek_file("raw").await.unwrap().unwrap();
    assert_eq!((found.bytes.as_slice(), found.executable), (b"a\0\xff".as_slice(), true));
    assert_eq!(found.digest, Digest::of_bytes(&found.bytes));
    assert_eq!(fixture.workspace.peek_file("none").await.unwrap(), None);
    assert!(matches!(
        fixture.workspace.peek_file("../x").await,
        Err(SandboxError::File(FileFault::Outside { .. }))
    ));
}

/// Rows: WIN-214 (inside only, through no link) WIN-215
#[tokio::test]
async fn bytes_are_saved_whole_inside_and_through_no_link() {
    let fixture = Fixture::new().await;
    fixture.sh("mkdir -p out; ln -s /etc way; ln -s README.md to").await;
    let bytes: Vec<u8> = (0..=255).cycle().take(3_000_000).collect();
    let count = bytes.len() as u64;
    let saved = fixture.workspace.save_at("new/deep/a.bin".into(), count, bytes.clone()).await.unwrap();
    assert_eq!(saved, WrittenFile { digest: Some(Digest::of_bytes(&bytes)), bytes: count });
    let told = fixture.sh("wc -c < new/deep/a.bin; sha256sum new/deep/a.bin | cut -c1-64").await;
    assert_eq!(told, format!("3000000\n{}", Digest::of_bytes(&bytes)));
    assert!(fixture.workspace.save_at("README.md".into(), 3, b"new".to_vec()).await.is_ok());
    assert_eq!(fixture.sh("cat README.md").await, "new");

    for (path, count) in [
        ("../x", 1),
        ("/etc/x", 1),
        ("way/x", 1),
        ("to", 1),
        ("src", 1),
        ("", 1),
        // Less came than was said, and more.
        ("short", 2),
        ("long", 0),
        ("large", crate::file::LARGE_MAX + 1),
    ] {
        let refused = fixture.workspace.save_at(path.into(), count, b"x".to_vec()).await;
        assert!(matches!(refused, Err(SandboxError::File(_))), "{path:?}: {refused:?}");
    }
    let left = fixture.sh("ls -A . src /etc | grep -xE 'x|short|long|large|.*new' ; cat README.md").await;
    assert_eq!(left, "new\nnew", "nothing else was made");
}

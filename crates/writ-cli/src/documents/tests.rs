//! The documents on a disk: seeded, indexed, written.

use std::os::unix::fs::symlink;

use super::*;

fn folder() -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().expect("temp dir");
    let folder = dir.path().join("docs");
    fs::create_dir(&folder).expect("made");
    (dir, folder)
}

fn index(folder: &Path) -> String {
    fs::read_to_string(folder.join(DOCUMENT_INDEX)).expect("an index")
}

/// Returns the row of a document in the index.
fn row(folder: &Path, name: &str) -> String {
    let text = index(folder);
    let found = text.lines().find(|line| line.starts_with(&format!("- `{name}`")));
    found.unwrap_or_else(|| panic!("{name} is not in {text}")).to_owned()
}

fn agents(summary: &str) -> String {
    format!(
        "---\nsummary: \"{summary}\"\nread_when: \"always\"\nwritten_by: agent\nrests_on: owner\n---\n\nText.\n"
    )
}

/// Each document that `init` writes is there with its summary, and with the moment to read it; one that the owner has changed stays.
///
/// Rows: WIN-325 (in part: the seeded documents are listed with their summaries)
#[test]
fn the_seeded_documents_are_listed_and_never_written_over() {
    let (_dir, folder) = folder();
    fs::write(folder.join("memory.md"), "Mine.\n").expect("written");
    let written = seed_documents(&folder).expect("seeded");
    assert_eq!(written, ["about-writ.md", "approvals.md", "where-things-are.md"]);
    assert_eq!(fs::read_to_string(folder.join("memory.md")).expect("read"), "Mine.\n");
    let rows: Vec<String> =
        index(&folder).lines().filter(|line| line.starts_with("- ")).map(str::to_owned).collect();
    assert_eq!(rows.len(), SEEDS.len());
    for (name, text) in SEEDS {
        let front = read_front_matter(text);
        assert_eq!(front.clone(), read_front_matter(&text.replace("---\n\n", "---\n")), "{name} is closed");
        if name == "memory.md" {
            continue;
        }
        let row = row(&folder, name);
        let summary = text.lines().find_map(|line| line.strip_prefix("summary: ")).expect("a summary");
        assert!(row.contains(summary.trim_matches('"')) && row.contains(" | read when: "), "{row}");
        assert!(!row.contains('('), "{row}");
    }
    assert!(row(&folder, "memory.md").ends_with("(no front matter)"));
    assert!(seed_documents(&folder).expect("again").is_empty());
}

/// Whatever stands in a document, the index has a row for it with what can be read, and says what cannot.
///
/// Rows: WIN-325 WIN-326
#[test]
fn each_document_has_its_row_whatever_its_front_matter_is() {
    let (_dir, folder) = folder();
    let long = format!("---\nsummary: {}\n---\n", "x".repeat(5_000));
    for (name, text, expected) in [
        ("a.md", "---\nsummary: About a\nread_when: needed\n---\nText.", ": About a | read when: needed"),
        ("b.md", "Just text.\n", " | (no front matter)"),
        ("c.md", "", " | (no front matter)"),
        (
            "d.md",
            "---\nsummary: About d\n{[ : no yaml\nread_when: \"it \\\"rains\\\"\"\n---\n",
            ": About d | read when: it \"rains\" | (line 3 of its front matter is malformed)",
        ),
        (
            "e.md",
            "---\nsummary: 'It''s e'\nread_when:\n  - one\n  - two\n---\n",
            ": It's e | read when: one; two",
        ),
        (
            "f.md",
            "---\nsummary: open\nread_when: [one, \"two\"]\n",
            ": open | read when: one; two | (its front matter has no end)",
        ),
        ("g.md", "---\nread_when: ever\n---\n", " | read when: ever | (no summary)"),
        ("h.md", "\u{feff}---\r\nsummary: Of Windows\r\n---\r\n", ": Of Windows"),
        ("i.md", "---\nsummary: \"a\u{202e}b`c\u{7}\"\n---\n", ": a\\u{202e}b'c\\u{7}"),
    ] {
        fs::write(folder.join(name), text).expect("written");
        write_index(&folder).expect("indexed");
        assert_eq!(row(&folder, name), format!("- `{name}`{expected}"));
    }
    fs::write(folder.join("j.md"), [0xff, 0xfe, 0, b'-']).expect("written");
    fs::write(folder.join("k.md"), long).expect("written");
    symlink("/etc/passwd", folder.join("l.md")).expect("linked");
    nix::unistd::mkfifo(&folder.join("m.md"), nix::sys::stat::Mode::S_IRWXU).expect("made");
    fs::create_dir(folder.join("n.md")).expect("made");
    fs::write(folder.join("picture.png"), "").expect("written");
    write_index(&folder).expect("indexed");
    assert!(row(&folder, "j.md").ends_with("(no front matter)"));
    assert!(row(&folder, "k.md").chars().count() < 400);
    let text = index(&folder);
    assert!(text.ends_with("\nFiles and folders that are not listed: 4\n"), "{text}");
    assert!(!text.contains("l.md") && !text.contains("root:"), "{text}");
}

/// Many and large documents make no large index.
#[test]
fn the_index_is_bounded() {
    let (_dir, folder) = folder();
    let text = format!("---\nsummary: {0}\nread_when: {0}\n---\n{0}", "y".repeat(2_000));
    for number in 0..MAX_DOCUMENTS + 3 {
        fs::write(folder.join(format!("{number:04}.md")), &text).expect("written");
    }
    write_index(&folder).expect("indexed");
    let index = index(&folder);
    assert_eq!(index.lines().filter(|line| line.starts_with("- ")).count(), MAX_DOCUMENTS);
    assert!(index.ends_with("not listed: 3\n") && index.len() < 256 * 1024, "{}", index.len());
    let refused = write_document(&folder, "new.md", &agents("new")).expect_err("too many");
    assert_eq!(refused.report().code, "document.too_many");
}

/// The agent makes documents and changes its own; those of the owner, links and folders stay as they are.
#[test]
fn a_document_that_is_not_the_agents_is_never_written_over() {
    let (dir, folder) = folder();
    assert!(write_document(&folder, "mine.md", &agents("first")).expect("written"));
    assert!(!write_document(&folder, "mine.md", &agents("second")).expect("written"));
    assert_eq!(
        row(&folder, "mine.md"),
        "- `mine.md`: second | read when: always | written by the agent, rests on: owner"
    );
    fs::write(folder.join("owners.md"), "---\nsummary: mine\n---\n").expect("written");
    let target = dir.path().join("target");
    fs::write(&target, "outside").expect("written");
    symlink(&target, folder.join("link.md")).expect("linked");
    fs::create_dir(folder.join("folder.md")).expect("made");
    for (name, code) in [
        ("owners.md", "document.not_the_agents"),
        ("link.md", "document.not_a_file"),
        ("folder.md", "document.not_a_file"),
    ] {
        let refused = write_document(&folder, name, &agents("x")).expect_err("refused").report();
        assert_eq!(refused.code, code, "{name}");
    }
    assert_eq!(fs::read_to_string(&target).expect("read"), "outside");
    // A link in place of the folder itself leads nowhere.
    let other = dir.path().join("other");
    symlink(dir.path(), &other).expect("linked");
    let refused = write_document(&other, "new.md", &agents("x")).expect_err("refused").report();
    assert_eq!(refused.code, "document.no_folder");
    assert!(!dir.path().join("new.md").exists());
}

/// An index that is right is not written anew, so that its folder does not change with each session.
#[test]
fn an_index_that_is_right_stays() {
    let (_dir, folder) = folder();
    seed_documents(&folder).expect("seeded");
    let inode = |folder: &Path| {
        std::os::unix::fs::MetadataExt::ino(&fs::metadata(folder.join(DOCUMENT_INDEX)).expect("there"))
    };
    let before = inode(&folder);
    let open =
        File::open(folder.join(DOCUMENT_INDEX)).expect("held open, so that its number is not used again");
    write_index(&folder).expect("indexed");
    assert_eq!(inode(&folder), before);
    fs::write(folder.join(DOCUMENT_INDEX), "changed by hand").expect("written");
    write_index(&folder).expect("indexed");
    assert!(index(&folder).starts_with("# Documents\n"));
    drop(open);
}

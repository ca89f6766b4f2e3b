use super::*;

fn files(paths: &[&str], texts: &[(&str, &str)]) -> ProjectFiles {
    let paths = paths.iter().map(|path| path.as_bytes().to_vec()).collect();
    let texts = texts.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect();
    ProjectFiles::of_parts(paths, texts)
}

#[test]
fn the_map_of_a_project_names_what_a_planner_needs() {
    let cargo = "[workspace]\nmembers = [\"crates/*\"]\n";
    let seen = draw_map(&files(
        &[
            "README.md",
            "Cargo.toml",
            "src/main.rs",
            "src/a/b.rs",
            "src/a.rs",
            "web/package.json",
            "web/app.ts",
            ".hidden",
            "src-x/c.rs",
            "Makefile",
        ],
        &[
            ("README.md", "# Shop\n\nSells things.\u{202e}\n"),
            ("Cargo.toml", cargo),
            ("web/package.json", "{}"),
        ],
    ));
    let expected = "files: 10
languages, by files: Rust 4, Markdown 1, TypeScript 1
manifests: Cargo.toml, Makefile, web/package.json
command (rust-test): cargo test --workspace
command (rust-lint): cargo clippy --workspace --all-targets -- -D warnings
command (rust-format): cargo fmt --all --check

tree:
.hidden
Cargo.toml
Makefile
README.md
src-x/ (1)
  c.rs
src/ (3)
  a.rs
  a/ (1)
    b.rs
  main.rs
web/ (2)
  app.ts
  package.json

README, first lines:
# Shop

Sells things.\\u{202e}
";
    assert_eq!(seen, expected);
    assert_eq!(draw_map(&ProjectFiles::default()), "files: 0\n\ntree:\n");
}

#[test]
fn names_that_are_no_text_or_collide_are_shown_so() {
    let paths = vec![
        b"a\xff\nb".to_vec(),
        b"Readme.md".to_vec(),
        b"README.md".to_vec(),
        "É.rs".into(),
        "é.rs".into(),
        b"x\\y".to_vec(),
    ];
    let map = draw_map(&ProjectFiles::of_parts(paths, BTreeMap::new()));
    assert!(map.contains("\na\\xff\\nb\n"), "{map}");
    assert!(map.contains("names that differ in case alone: Readme.md\n"), "{map}");
    assert!(map.contains("names that differ in case alone: é.rs\n"), "{map}");
    assert_eq!(show_name("a\u{1b}[31m".as_bytes()), "a\\u{1b}[31m");
    assert_eq!(show_name(&[b'x'; 500]).chars().count(), 101);
}

/// Of any shape, 100,000 files give a map of at most 16 KiB.
#[test]
fn a_large_repository_has_a_small_map() {
    let flat = |n: usize| format!("f{n}.rs").into_bytes();
    let wide = |n: usize| format!("d{}/f{n}.py", n % 5_000).into_bytes();
    let deep = |n: usize| format!("{}f{n}.go", "a/".repeat(n % 60)).into_bytes();
    let long = |n: usize| format!("{}/{}{n}", "é".repeat(100), "x".repeat(200)).into_bytes();
    let shapes: [&dyn Fn(usize) -> Vec<u8>; 4] = [&flat, &wide, &deep, &long];
    for shape in shapes {
        let readme = "line\n".repeat(100_000);
        let texts = BTreeMap::from([("README".to_owned(), readme)]);
        let map = draw_map(&ProjectFiles::of_parts((0..100_000).map(shape).collect(), texts));
        assert!(map.starts_with("files: 100000\n"));
        assert!(map.len() <= MAX_MAP_BYTES, "{}", map.len());
        assert!(map.contains("\ntree:\n") && map.contains("\nREADME, first lines:\nline\n"), "{map}");
        assert!(map.contains(" more files\n") || map.contains("(100000)"), "{map}");
    }
    let manifests = (0..1_000).map(|n| format!("p{n}/package.json").into_bytes()).collect();
    assert!(
        draw_map(&ProjectFiles::of_parts(manifests, BTreeMap::new()))
            .contains("p115/package.json, 980 more\n")
    );
}

#[test]
fn a_cut_is_at_the_end_of_a_line_or_of_a_character() {
    assert_eq!(cut_at("ab\n".to_owned(), 3), "ab\n");
    assert_eq!(cut_at("ab\ncd\nef\n".to_owned(), 8), "ab\n…\n");
    assert_eq!(cut_at("é".repeat(10), 8), "éé…\n");
}

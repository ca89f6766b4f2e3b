use super::*;

/// A person's remarks and wrapping stay; ids of new items and marks of ended ones are added.
#[test]
fn the_text_of_a_person_stays_as_it_is() {
    let text = "# Ours\n\nA remark.\n\n- [ ] One <!-- milestone/m1 -->\n  - [ ] New\n    About it.\n  - [ ] With a field <!-- priority=2 -->\n";
    let items = read_outline(text).expect("reads");
    let plan = StoredPlan { rows: BTreeMap::new(), workflow: String::new() };
    let noted =
        note_ids(text, &items, &[UnitId::Milestone(1), UnitId::Slice(1, 4), UnitId::Slice(1, 5)], &plan);
    assert_eq!(
        noted,
        "# Ours\n\nA remark.\n\n- [ ] One <!-- milestone/m1 -->\n  - [ ] New <!-- slice/m1/s4 -->\n    About it.\n  - [ ] With a field <!-- priority=2 slice/m1/s5 -->\n"
    );
    let again = read_outline(&noted).expect("reads");
    assert_eq!(again[2].id, Some(UnitId::Slice(1, 5)));
    assert_eq!(again[2].fields.priority, Some(2));
}

#[test]
fn a_link_in_the_place_of_the_plan_is_not_read() {
    let dir = tempfile::tempdir().expect("a folder");
    let [file, other, fresh] = ["plan.md", "other", "fresh"].map(|name| dir.path().join(name));
    assert_eq!(read_text(&file).expect("none"), None);
    create_file(&file, "a").expect("writes");
    assert!(create_file(&file, "b").is_err(), "it is there");
    replace_file(&file, &fresh, "c").expect("writes");
    assert_eq!(read_text(&file).expect("reads").as_deref(), Some("c"));
    fs::remove_file(&file).expect("removes");
    fs::write(&other, "secret").expect("writes");
    std::os::unix::fs::symlink(&other, &file).expect("links");
    assert!(read_text(&file).is_err());
}

/// The ends of lines stay as the person's editor writes them, also where the last line has none.
#[test]
fn the_ends_of_lines_stay_as_they_are() {
    let text =
        "# Ours\r\n\r\n- [ ] One <!-- milestone/m1 -->\r\n  - [ ] New  \r\n    About it.\r\n  - [ ] Last";
    let items = read_outline(text).expect("reads");
    assert_eq!(items[1].fields.description, "About it.");
    let plan = StoredPlan { rows: BTreeMap::new(), workflow: String::new() };
    let ids = [UnitId::Milestone(1), UnitId::Slice(1, 4), UnitId::Slice(1, 5)];
    let noted = note_ids(text, &items, &ids, &plan);
    assert_eq!(
        noted,
        "# Ours\r\n\r\n- [ ] One <!-- milestone/m1 -->\r\n  - [ ] New <!-- slice/m1/s4 -->  \r\n    About it.\r\n  - [ ] Last <!-- slice/m1/s5 -->"
    );
    assert_eq!(read_outline(&noted).expect("reads")[2].id, Some(UnitId::Slice(1, 5)));
}

/// What an editor has saved since the file was read stays, and nothing is left beside it.
#[test]
fn a_file_that_was_saved_meanwhile_is_not_overwritten() {
    let dir = tempfile::tempdir().expect("a folder");
    let [file, fresh] = ["plan.md", "fresh"].map(|name| dir.path().join(name));
    // What an engine that was killed has left.
    create_file(&fresh, "half").expect("writes");
    create_file(&file, "read").expect("writes");
    assert!(replace_same(&file, &fresh, ("read", "noted")).expect("replaces"));
    assert!(!replace_same(&file, &fresh, ("read", "late")).expect("looks"));
    assert_eq!(read_text(&file).expect("reads").as_deref(), Some("noted"));
    fs::remove_file(&file).expect("removes");
    assert!(
        !replace_same(&file, &fresh, ("noted", "late")).expect("looks"),
        "one that was removed is not made again"
    );
    assert_eq!(fs::read_dir(dir.path()).expect("lists").count(), 0);
}

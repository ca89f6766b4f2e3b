//! Plugins: folders with a manifest, whose programs offer tools from the sandbox.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use super::{Desk, code, stop_engine_of, text};

const PROGRAM: &str = include_str!("plugin.py");

/// A manifest of the plugin of the tests.
fn manifest(more: &str) -> String {
    format!(
        "[plugin]\nname = \"greeter\"\nversion = \"0.2.0\"\napi_version = 1\ndescription = \"Greets.\"\n\
         command = [\"python3\", \"plugin.py\"]\n\n[[tools]]\nname = \"greet\"\n\n[config]\nword = \"Hello\"\n{more}"
    )
}

/// Writes a plugin's folder.
fn write_plugin(desk: &Desk, name: &str, manifest: &str) -> PathBuf {
    let folder = desk.bench.home.dir.path().join(name);
    fs::create_dir_all(&folder).expect("made");
    for (file, content) in [("plugin.toml", manifest), ("plugin.py", PROGRAM), ("closing.txt", "Good day.\n")]
    {
        fs::write(folder.join(file), content).expect("written");
    }
    folder
}

/// Runs `writ plugins`, which has to end so. Returns what it says.
fn run(desk: &Desk, arguments: &[&str], exit: i32) -> String {
    let done = desk.bench.home.run(&[&["plugins"], arguments].concat());
    assert_eq!(code(&done), exit, "{arguments:?}: {}", text(&done));
    text(&done)
}

fn path(folder: &Path) -> &str {
    folder.to_str().expect("UTF-8")
}

fn listed(desk: &Desk) -> Vec<Value> {
    desk.bench.home.json(&["plugins", "list"])["plugins"].as_array().expect("a list").clone()
}

/// A plugin is copied, started once with its settings, offered to the model under its name, and used; what its manifest does not name is
/// not offered. It is gone for good when it is unloaded, and one that is not there cannot be.
///
/// Rows: SCL-127 SCL-128 SCL-129
/// Rows: SCL-074 (in part: settings are given with the start, and a program that refuses them is not loaded)
/// Rows: SCL-071 (in part: load, a call, unload, and an unknown name) SCL-076 (in part: tools)
#[test]
fn needs_userns_needs_python_a_plugin_is_loaded_used_and_unloaded() {
    let desk = Desk::new();
    assert!(run(&desk, &["list"], 0).contains("no plugins"));
    assert_eq!(listed(&desk), Vec::<Value>::new());
    let folder = write_plugin(&desk, "greeter", &manifest(""));
    let loaded = run(&desk, &["load", path(&folder), "--yes"], 0);
    assert!(loaded.contains("tool greet") && loaded.contains("  | Greets a person."), "{loaded}");
    assert!(loaded.contains("left out: extra: the manifest does not name it"), "{loaded}");
    assert!(
        run(&desk, &["load", path(&folder), "--yes"], 2)
            .contains("there is a plugin or a server 'greeter' already")
    );
    let shown = json!({
        "name": "greeter", "version": "0.2.0", "api_version": 1, "description": "Greets.",
        "tools": [{ "name": "greet", "description": "" }], "loaded": true,
    });
    assert_eq!(listed(&desk), [shown]);

    // The home's copy is what runs.
    fs::remove_dir_all(&folder).expect("removed");
    let file = desk.bench.home.root().join("mcp/greeter.toml");
    let before = fs::read_to_string(&file).expect("reads");
    fs::write(&file, format!("{before}\n[tools.greet]\neffect = false\n")).expect("written");
    stop_engine_of(&desk.bench.home);
    let said = desk.said(r#"greeter__greet {"name": "Ann"}"#);
    assert!(said.contains("Hello, Ann. Good day."), "{said}");
    assert_eq!(desk.offered(), ["greeter__greet"]);

    assert!(run(&desk, &["unload", "greeter"], 0).contains("unloaded greeter"));
    assert_eq!((listed(&desk), desk.bench.home.root().join("plugins/greeter").exists()), (Vec::new(), false));
    assert!(run(&desk, &["unload", "greeter"], 2).contains("there is no plugin 'greeter'"));
    let refused = desk.said(r#"greeter__greet {"name": "Ann"}"#);
    assert!(!refused.contains("Hello") && desk.offered().is_empty(), "{refused}");
    desk.verify();
}

/// A manifest that cannot stand says why, and nothing of its plugin is loaded or started: a field that is missing, another version of the
/// interface, a tool that is there twice, or one that the program does not have, settings that the program refuses, and a link among its
/// files. Unknown keys only warn. Plugins beside a broken one are listed.
///
/// Rows: SCL-067 SCL-068 SCL-072
/// Rows: SF-516 (in part: one kind, tools; a broken manifest and an unknown kind are named and left out) SF-522 (in part: the kinds)
/// Rows: SCL-070 (in part: hooks are the owner's, in config.toml, so a list of them is an unknown key)
#[test]
fn needs_userns_needs_python_a_plugin_that_cannot_stand_is_not_loaded() {
    let desk = Desk::new();
    let whole = manifest("");
    for (wrong, exit, why) in [
        (whole.replace("version = \"0.2.0\"\n", ""), 3, "missing field `version`"),
        (whole.replace("api_version = 1", "api_version = 0"), 3, "api_version 0, and this is api_version 1"),
        (whole.replace("api_version = 1", "api_version = 2"), 3, "api_version 2, and this is api_version 1"),
        (whole.replace("\"greeter\"", "\"../up\""), 3, "a server's name has"),
        (format!("{whole}\n[[tools]]\nname = \"greet\"\n"), 3, "'greet' is there twice"),
        (format!("{whole}\n[[tools]]\nname = \"wave\"\n"), 3, "does not offer the tool 'wave'"),
        (
            whole.replace("api_version = 1", "api_version = 1\nkind = \"router\""),
            3,
            "kind: 'router' is none of a plugin",
        ),
        (
            whole.replace("api_version = 1", "api_version = 1\nkind = \"phase\""),
            3,
            "kind: 'phase' is none of a plugin",
        ),
        (manifest("fails = true\n"), -1, "these settings cannot be used"),
    ] {
        let folder = write_plugin(&desk, "wrong", &wrong);
        let done = desk.bench.home.run(&["plugins", "load", path(&folder), "--yes"]);
        assert!(code(&done) != 0 && text(&done).contains(why), "{why}: {}", text(&done));
        assert!(exit < 0 || code(&done) == exit, "{why}: {}", code(&done));
        assert_eq!(
            (listed(&desk), desk.bench.home.root().join("mcp/greeter.toml").exists()),
            (Vec::new(), false)
        );
    }
    let named = whole.replace("api_version = 1", "api_version = 1\nkind = \"tools\"");
    let folder = write_plugin(&desk, "named", &named);
    run(&desk, &["load", path(&folder), "--yes"], 0);
    run(&desk, &["unload", "greeter"], 0);
    let linked = write_plugin(&desk, "linked", &whole);
    std::os::unix::fs::symlink("/etc/passwd", linked.join("passwd")).expect("linked");
    assert!(run(&desk, &["load", path(&linked), "--yes"], 3).contains("it is no plain file"));
    let empty = desk.bench.home.dir.path().join("empty");
    fs::create_dir(&empty).expect("made");
    assert!(run(&desk, &["load", path(&empty), "--yes"], 2).contains("has no plugin.toml"));

    let odd = format!("{whole}\n[[hooks]]\nname = \"watch\"\n")
        .replace("[plugin]\n", "[plugin]\nplanet = \"Mars\"\n");
    let folder = write_plugin(&desk, "odd", &odd);
    let loaded = run(&desk, &["load", path(&folder), "--yes"], 0);
    assert!(
        loaded.contains("unknown key 'hooks'") && loaded.contains("unknown key 'plugin.planet'"),
        "{loaded}"
    );
    let plugins = desk.bench.home.root().join("plugins");
    fs::create_dir_all(plugins.join("broken")).expect("made");
    fs::write(plugins.join("broken/plugin.toml"), whole.replace("api_version = 1\n", "")).expect("written");
    fs::create_dir_all(plugins.join("nothing")).expect("made");
    fs::create_dir_all(plugins.join("second")).expect("made");
    fs::write(plugins.join("second/plugin.toml"), whole.replace("greeter", "second")).expect("written");
    std::os::unix::fs::symlink(&folder, plugins.join("elsewhere")).expect("linked");
    let shown = desk.bench.home.json(&["plugins", "list"]);
    let names: Vec<&Value> =
        shown["plugins"].as_array().expect("a list").iter().map(|one| &one["name"]).collect();
    assert_eq!(names, ["greeter", "second"]);
    let loaded: Vec<&Value> =
        shown["plugins"].as_array().expect("a list").iter().map(|one| &one["loaded"]).collect();
    assert_eq!(loaded, [true, false], "its files alone are no plugin that is used");
    assert!(run(&desk, &["list"], 0).contains("tools: greet (not loaded)"));
    run(&desk, &["unload", "second"], 0);
    assert!(!plugins.join("second").exists());
    let left: Vec<&str> =
        shown["left_out"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(
        left[0].contains("missing field `api_version`") && left[1].ends_with("elsewhere: it is a link"),
        "{left:?}"
    );
}

//! The files that runners of tests obey, language by language.

use writ_types::work::Check;

use super::is_in_tests;

/// A family of programs that run tests.
struct TestRunner {
    /// Their names, without a version at the end.
    programs: &'static [&'static str],
    /// Files without which they do not run at all. In the folder of a new project they are the work itself.
    manifests: &'static [&'static str],
    /// Files and folders that change what they do. `*` at the end stands for anything, `/` for what lies in the folder.
    settings: &'static [&'static str],
    /// Set if they may start any other program, so that the files of every family steer them.
    starts_others: bool,
}

const RUNNERS: [TestRunner; 8] = [
    TestRunner {
        programs: &[
            "python", "pypy", "pytest", "py.test", "nose2", "tox", "nox", "coverage", "uv", "poetry", "hatch",
        ],
        manifests: &[],
        settings: &[
            "conftest.py",
            "pytest.ini",
            ".pytest.ini",
            "tox.ini",
            "noxfile.py",
            "setup.cfg",
            "setup.py",
            "pyproject.toml",
            ".coveragerc",
            "sitecustomize.py",
            "usercustomize.py",
        ],
        starts_others: false,
    },
    TestRunner {
        programs: &["npm", "npx", "yarn", "pnpm", "bun", "deno"],
        manifests: &["package.json", "deno.json", "deno.jsonc"],
        settings: &[".npmrc", ".yarnrc*", ".pnpmfile.cjs", "bunfig.toml"],
        starts_others: true,
    },
    TestRunner {
        programs: &["node", "jest", "vitest", "mocha", "ava", "karma", "playwright", "tsc", "tsx"],
        manifests: &[],
        settings: &[
            "jest.config.*",
            "vitest.config.*",
            "vite.config.*",
            ".mocharc*",
            "ava.config.*",
            "karma.conf*",
            "playwright.config.*",
            "babel.config.*",
            ".babelrc*",
            ".swcrc",
            "node_modules/",
        ],
        starts_others: false,
    },
    TestRunner {
        programs: &["cargo"],
        manifests: &["Cargo.toml"],
        settings: &["build.rs", ".cargo/", ".config/", "rust-toolchain", "rust-toolchain.toml"],
        starts_others: false,
    },
    TestRunner {
        programs: &["go", "gotestsum"],
        manifests: &["go.mod"],
        settings: &["go.work", "vendor/"],
        starts_others: false,
    },
    TestRunner {
        programs: &["make", "gmake"],
        manifests: &["Makefile"],
        settings: &["GNUmakefile", "makefile", "*.mk"],
        starts_others: true,
    },
    TestRunner {
        programs: &[
            "mvn", "gradle", "gradlew", "ant", "ctest", "cmake", "ninja", "meson", "just", "task", "rake",
            "bundle",
        ],
        manifests: &[
            "pom.xml",
            "build.gradle",
            "build.gradle.kts",
            "build.xml",
            "CMakeLists.txt",
            "build.ninja",
            "meson.build",
            "justfile",
            "Taskfile.yml",
            "Rakefile",
            "Gemfile",
        ],
        settings: &[
            "settings.gradle*",
            "gradle.properties",
            "gradle/",
            ".mvn/",
            "CTestTestfile.cmake",
            "CMakePresets.json",
            "*.cmake",
            ".rspec",
        ],
        starts_others: true,
    },
    TestRunner {
        programs: &["php", "phpunit", "composer", "rspec", "ruby", "dotnet", "swift", "mix"],
        manifests: &["composer.json", "Package.swift", "mix.exs"],
        settings: &[
            "phpunit.xml*",
            "phpunit.dist.xml",
            ".rspec",
            "Directory.Build.*",
            "nuget.config",
            "global.json",
        ],
        starts_others: false,
    },
];

/// Programs that run any command.
const SHELLS: [&str; 8] = ["sh", "bash", "dash", "zsh", "ksh", "fish", "busybox", "env"];

/// Modules of Python that a file of the same name would be imported in place of: its standard library (`sys.stdlib_module_names`
/// of Python 3.13, without private ones) and its runners of tests.
const PYTHON_MODULES: &str = " abc aifc antigravity argparse array ast asynchat asyncio asyncore atexit audioop base64 bdb \
    binascii bisect builtins bz2 calendar cgi cgitb chunk cmath cmd code codecs codeop collections colorsys compileall \
    concurrent configparser contextlib contextvars copy copyreg cProfile crypt csv ctypes curses dataclasses datetime dbm \
    decimal difflib dis distutils doctest email encodings ensurepip enum errno faulthandler fcntl filecmp fileinput fnmatch \
    fractions ftplib functools gc genericpath getopt getpass gettext glob graphlib grp gzip hashlib heapq hmac html http \
    idlelib imaplib imghdr imp importlib inspect io ipaddress itertools json keyword lib2to3 linecache locale logging lzma \
    mailbox mailcap marshal math mimetypes mmap modulefinder msilib msvcrt multiprocessing netrc nis nntplib nt ntpath \
    nturl2path numbers opcode operator optparse os ossaudiodev pathlib pdb pickle pickletools pipes pkgutil platform plistlib \
    poplib posix posixpath pprint profile pstats pty pwd py_compile pyclbr pydoc pydoc_data pyexpat queue quopri random re \
    readline reprlib resource rlcompleter runpy sched secrets select selectors shelve shlex shutil signal site smtpd smtplib \
    sndhdr socket socketserver spwd sqlite3 sre_compile sre_constants sre_parse ssl stat statistics string stringprep struct \
    subprocess sunau symtable sys sysconfig syslog tabnanny tarfile telnetlib tempfile termios textwrap this threading time \
    timeit tkinter token tokenize tomllib trace traceback tracemalloc tty turtle turtledemo types typing unicodedata unittest \
    urllib uu uuid venv warnings wave weakref webbrowser winreg winsound wsgiref xdrlib xml xmlrpc zipapp zipfile zipimport \
    zlib zoneinfo pytest _pytest pluggy iniconfig nose nose2 coverage hypothesis tox mock exceptiongroup packaging ";

/// The file that makes a folder a module of Python.
const INIT: &str = "__init__.py";

/// Returns the name of a program without its folder and its version: `python` of `/usr/bin/python3.11`.
fn plain_name(word: &str) -> &str {
    let name = word.rsplit('/').next().unwrap_or(word);
    let plain = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.');
    if plain.is_empty() || name == "nose2" { name } else { plain }
}

/// Returns the families of programs that take part in a check.
fn runners_of(check: &Check) -> Vec<&'static TestRunner> {
    let words = || check.run.iter().map(|word| plain_name(word));
    let takes_part = |runner: &&TestRunner| words().any(|word| runner.programs.contains(&word));
    let named: Vec<&TestRunner> = RUNNERS.iter().filter(takes_part).collect();
    let first = check.run.first().map(String::as_str).unwrap_or_default();
    let is_own = first.contains('/') && !first.starts_with('/');
    let is_open = is_own
        || words().any(|word| SHELLS.contains(&word))
        || named.iter().any(|runner| runner.starts_others);
    if is_open { RUNNERS.iter().collect() } else { named }
}

/// Returns true if a file that was there decides what a check's programs do.
pub(super) fn steers(check: &Check, path: &str) -> bool {
    let is_file_of = |runner: &&TestRunner| {
        runner.manifests.iter().chain(runner.settings).any(|pattern| is_named(path, pattern))
            || runner.programs.contains(&"jest") && is_named(path, "package.json") && !is_bare_node(check)
    };
    runners_of(check).iter().any(is_file_of) || is_script(check, path)
}

/// Returns true if node runs its own tests: it takes no settings from the package.
fn is_bare_node(check: &Check) -> bool {
    check.run.first().is_some_and(|first| plain_name(first) == "node")
}

/// Returns true if a new file makes a check's programs do something else than before.
pub(super) fn is_planted(check: &Check, path: &str) -> bool {
    if check.run.is_empty() {
        return false;
    }
    let folder = path.rsplit_once('/').map_or("", |(folder, _)| folder);
    // Between the work's own folder and that of the check, the nearest one counts.
    let comes_between = !folder.is_empty() && is_in_folder(dir_of(check), folder);
    runners_of(check).iter().any(|runner| {
        let is_setting = runner.settings.iter().any(|pattern| is_named(path, pattern));
        let is_manifest = comes_between && runner.manifests.iter().any(|pattern| is_named(path, pattern));
        is_setting
            || is_manifest
            || (runner.programs.contains(&"python") && takes_place_of_module(check, path))
    })
}

/// Returns true if Python would import a file in place of one of its own modules: it lies in a folder that is searched
/// first.
fn takes_place_of_module(check: &Check, path: &str) -> bool {
    let (folder, name) = path.rsplit_once('/').unwrap_or(("", path));
    let (folder, module) = match name.split_once('.') {
        Some((_, "py")) if name == INIT => folder.rsplit_once('/').unwrap_or(("", folder)),
        Some((module, "py" | "pyc" | "so")) => (folder, module),
        Some((module, rest)) if rest.ends_with(".so") => (folder, module),
        Some(_) | None => return false,
    };
    let is_module = !module.contains(' ') && PYTHON_MODULES.contains(&format!(" {module} "));
    let dir = dir_of(check);
    let of_program =
        check.run.iter().filter_map(|word| word.trim_start_matches("./").rsplit_once('/')).any(|(of, _)| {
            let inside = if dir.is_empty() { of.to_owned() } else { format!("{dir}/{of}") };
            folder == inside
        });
    is_module && (folder == dir || folder == "src" || of_program || is_in_tests(folder))
}

fn dir_of(check: &Check) -> &str {
    let dir = check.dir.as_deref().unwrap_or_default();
    let dir = dir.trim_start_matches("./").trim_end_matches('/');
    if dir == "." { "" } else { dir }
}

fn is_in_folder(path: &str, folder: &str) -> bool {
    path == folder || path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))
}

fn is_named(path: &str, pattern: &str) -> bool {
    let (folders, name) = path.rsplit_once('/').unwrap_or(("", path));
    match (pattern.strip_suffix('/'), pattern.strip_suffix('*'), pattern.strip_prefix('*')) {
        (Some(folder), _, _) => folders.split('/').any(|part| part == folder),
        (None, Some(start), _) => name.starts_with(start),
        (None, None, Some(end)) => name.ends_with(end),
        (None, None, None) => name == pattern,
    }
}

/// Returns true if a check runs a file as a script: one of a shell, or a program of the work itself.
fn is_script(check: &Check, path: &str) -> bool {
    let Some(first) = check.run.first() else { return false };
    let is_shell = SHELLS.contains(&plain_name(first));
    let own = |argument: &String| {
        let (argument, dir) = (argument.trim_start_matches("./"), dir_of(check));
        argument == path || (!dir.is_empty() && format!("{dir}/{argument}") == path)
    };
    let is_makefile = matches!(plain_name(first), "make" | "gmake");
    let is_own = first.contains('/') && path.ends_with(".sh");
    (is_shell || is_makefile || is_own) && check.run.iter().any(own)
}

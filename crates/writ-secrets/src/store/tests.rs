//! Tests of the store, the approver's store and the backends under them, on real files.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use base64::Engine as _;
use ed25519_dalek::{Signature, Signer as _, Verifier as _};
use keyring_core::{CredentialStore, mock};
use tempfile::TempDir;
use writ_types::error::{Exit, ToReport as _};

use super::*;
use crate::approver::open_approver;
use crate::document::SecretsDocument;
use crate::keyring::Keyring;
use crate::record::{RECORD_FILE, recorded_backend};

fn config() -> SecretsConfig {
    SecretsConfig::default()
}

fn passphrase() -> Option<SecretString> {
    Some("correct horse battery staple".into())
}

fn name(text: &str) -> Reference {
    text.parse().expect("a name")
}

fn plain(home: &TempDir) -> SecretStore {
    SecretStore::create(&home.path().join("keys"), Backend::Plain, None, &config()).expect("created")
}

fn home() -> TempDir {
    tempfile::tempdir().expect("a folder")
}

fn value(store: &SecretStore, reference: &str) -> Option<String> {
    store.get_secret(&name(reference)).expect("read").map(|value| value.expose_secret().to_owned())
}

/// Every file below the keys folder, one after the other.
fn all_bytes(dir: &Path) -> Vec<u8> {
    let entries = fs::read_dir(dir).expect("listed").map(|entry| entry.expect("an entry").path());
    entries.flat_map(|path| fs::read(path).expect("read")).collect()
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack.windows(needle.len()).any(|window| window == needle)
}

#[test]
fn secrets_are_set_read_listed_and_removed() {
    let home = home();
    let store = plain(&home);
    store.set_secret(&name("openai"), "sk-1".into()).expect("set");
    store.set_secret(&name("mail.smtp"), "pw\n\"ü\"".into()).expect("set");
    store.set_secret(&name("openai"), "sk-2".into()).expect("replaced");
    let again = SecretStore::open(&home.path().join("keys"), None, &config()).expect("opened");
    assert_eq!(again.list_names().expect("listed"), [name("mail.smtp"), name("openai")]);
    assert_eq!(value(&again, "openai").as_deref(), Some("sk-2"));
    assert_eq!(value(&again, "mail.smtp").as_deref(), Some("pw\n\"ü\""));
    again.remove_secret(&name("openai")).expect("removed");
    assert_eq!(value(&store, "openai"), None);
    assert!(matches!(store.remove_secret(&name("openai")), Err(SecretsError::NoSuchSecret(_))));
}

#[test]
fn values_are_bounded() {
    let home = home();
    let store = plain(&home);
    assert!(matches!(store.set_secret(&name("a"), "".into()), Err(SecretsError::EmptyValue(_))));
    let long = "x".repeat(MAX_VALUE_BYTES + 1);
    assert!(matches!(store.set_secret(&name("a"), long.into()), Err(SecretsError::TooLarge { .. })));
    for n in 0..40 {
        let result = store.set_secret(&name(&format!("s{n}")), "x".repeat(MAX_VALUE_BYTES).into());
        assert!(matches!(result, Ok(()) | Err(SecretsError::TooLarge { .. })), "{result:?}");
    }
    let kept = store.list_names().expect("still readable").len();
    assert!((10..40).contains(&kept), "{kept}");
}

#[test]
fn a_secret_is_had_by_its_name_and_all_of_them_are_had_at_once() {
    let home = home();
    let store = plain(&home);
    store.set_secret(&name("openai"), "sk-1".into()).expect("set");
    store.set_secret(&name("mail"), "pw".into()).expect("set");
    let value = |text: &str| {
        store.get_secret(&name(text)).expect("reads").map(|value| value.expose_secret().to_owned())
    };
    assert_eq!((value("openai").as_deref(), value("other")), (Some("sk-1"), None));
    let all = store.all_secrets().expect("reads");
    let all: Vec<(String, &str)> =
        all.iter().map(|(name, value)| (name.to_string(), value.expose_secret())).collect();
    assert_eq!(all, [("mail".to_owned(), "pw"), ("openai".to_owned(), "sk-1")]);
    let missing = store.remove_secret(&name("other")).expect_err("missing");
    let told = missing.report();
    let wanted = (Exit::Usage, "`writ secrets list` names those that are there");
    assert_eq!((told.exit, told.hint.as_str()), wanted, "not there, as elsewhere: wrong usage");
}

/// Part of SIL-157: files.
#[test]
fn encrypted_files_hold_no_key_or_value_in_any_encoding() {
    let home = home();
    let dir = home.path().join("keys");
    let store = SecretStore::create(&dir, Backend::Age, passphrase(), &config()).expect("created");
    store.generate_key(EngineKey::Root).expect("generated");
    store.set_secret(&name("openai"), "sk-live-0123456789".into()).expect("set");
    let seed = store.signing_key(EngineKey::Root).expect("read").to_bytes();
    let files = all_bytes(&dir);
    let base64 = base64::engine::general_purpose::STANDARD_NO_PAD;
    assert!(!contains(&files, &seed));
    assert!(!contains(&files, hex::encode(seed).as_bytes()));
    assert!(!contains(&files, base64.encode(seed).as_bytes()));
    assert!(!contains(&files, b"sk-live"));
    assert!(!contains(&files, base64.encode("sk-live-0123456789").as_bytes()));

    let again = SecretStore::open(&dir, passphrase(), &config()).expect("opened");
    assert_eq!(value(&again, "openai").as_deref(), Some("sk-live-0123456789"));
    assert_eq!(again.signing_key(EngineKey::Root).expect("read").to_bytes(), seed);
}

#[test]
fn a_wrong_passphrase_and_a_damaged_file_are_told_apart() {
    let home = home();
    let dir = home.path().join("keys");
    let store = SecretStore::create(&dir, Backend::Age, passphrase(), &config()).expect("created");
    store.set_secret(&name("a"), "b".into()).expect("set");
    let open = |passphrase: Option<SecretString>| SecretStore::open(&dir, passphrase, &config());
    assert!(matches!(open(None), Err(SecretsError::PassphraseNeeded)));
    assert!(matches!(open(Some("".into())), Err(SecretsError::PassphraseEmpty)));
    let wrong = open(Some("tr0ub4dor".into())).expect_err("refused");
    assert!(matches!(wrong, SecretsError::WrongPassphrase(_)), "{wrong:?}");
    assert_eq!(wrong.report().exit, Exit::Blocked);

    let file = dir.join("secrets.age");
    let whole = fs::read(&file).expect("read");
    for keep in [0, 10, whole.len() / 2, whole.len() - 1] {
        fs::write(&file, &whole[..keep]).expect("cut");
        assert!(matches!(open(passphrase()), Err(SecretsError::Damaged { .. })), "cut to {keep} bytes");
    }
    let mut changed = whole.clone();
    *changed.last_mut().expect("not empty") ^= 1;
    fs::write(&file, changed).expect("changed");
    assert!(matches!(open(passphrase()), Err(SecretsError::Damaged { .. })));
    fs::write(&file, &whole).expect("restored");
    assert_eq!(
        open(passphrase()).map(|store| store.list_names().expect("listed")).expect("opened"),
        [name("a")]
    );
}

#[test]
fn a_plain_document_that_is_cut_is_refused_and_not_quoted() {
    let home = home();
    let store = plain(&home);
    store.set_secret(&name("a"), "sk-live-0123456789".into()).expect("set");
    let file = home.path().join("keys/secrets.json");
    let whole = fs::read(&file).expect("read");
    for keep in 0..whole.len() {
        fs::write(&file, &whole[..keep]).expect("cut");
        let error = store.list_names().expect_err("refused");
        let told = format!("{error:?} {error} {:?}", error.report());
        assert!(!told.contains("sk-live"), "{told}");
    }
    fs::write(&file, br#"{"v":1,"keys":{},"secrets":{"a":7,"b":"sk-live-0123456789"}}"#).expect("written");
    let error = store.list_names().expect_err("refused");
    assert!(!format!("{error:?} {:?}", error.report()).contains("sk-live"));
}

/// The row speaks of `.env`; the keys folder is what holds secrets here.
///
/// Rows: WIN-014
#[test]
fn files_that_others_can_reach_are_refused_with_the_command_that_mends_it() {
    let home = home();
    let dir = home.path().join("keys");
    let store = plain(&home);
    store.set_secret(&name("a"), "b".into()).expect("set");
    for file in ["secrets.json", RECORD_FILE] {
        let path = dir.join(file);
        let mode = fs::metadata(&path).expect("there").permissions().mode() & 0o7777;
        assert_eq!(mode, 0o600, "{file}");
        for mode in [0o644, 0o620, 0o601] {
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("set");
            let report = SecretStore::open(&dir, None, &config()).expect_err("refused").report();
            assert_eq!(report.code, "secrets.wrong_mode");
            assert!(report.hint.contains(&format!("chmod 0600 keys/{file}")), "{}", report.hint);
            let host = home.path().to_str().expect("text");
            assert!(!report.outside.contains(host) && report.inside.contains(host));
        }
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    }
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("set");
    assert!(matches!(SecretStore::open(&dir, None, &config()), Err(SecretsError::WrongMode { .. })));
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).expect("set");
    assert!(SecretStore::open(&dir, None, &config()).is_ok());
}

#[test]
fn links_folders_and_large_files_are_not_read() {
    let home = home();
    let dir = home.path().join("keys");
    let store = plain(&home);
    let file = dir.join("secrets.json");
    let elsewhere = home.path().join("elsewhere.json");
    fs::rename(&file, &elsewhere).expect("moved");
    symlink(&elsewhere, &file).expect("linked");
    assert!(matches!(store.list_names(), Err(SecretsError::NotAFile { .. })));
    fs::remove_file(&file).expect("removed");
    fs::create_dir(&file).expect("made");
    assert!(matches!(store.list_names(), Err(SecretsError::NotAFile { .. })));
    fs::remove_dir(&file).expect("removed");
    nix::unistd::mkfifo(&file, nix::sys::stat::Mode::S_IRUSR).expect("made");
    assert!(
        matches!(store.list_names(), Err(SecretsError::NotAFile { .. })),
        "and it does not wait for a writer"
    );
    fs::remove_file(&file).expect("removed");
    fs::write(&file, vec![b' '; 2 * 1024 * 1024]).expect("written");
    fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("set");
    assert!(matches!(store.list_names(), Err(SecretsError::TooLarge { .. })));
}

/// Rows: SIL-264
#[test]
fn nothing_is_set_up_or_generated_twice() {
    let home = home();
    let dir = home.path().join("keys");
    assert_eq!(recorded_backend(&dir).expect("no folder"), None);
    assert!(matches!(SecretStore::open(&dir, None, &config()), Err(SecretsError::NotCreated)));
    let store = plain(&home);
    assert_eq!(recorded_backend(&dir).expect("recorded"), Some(Backend::Plain));
    let root = store.generate_key(EngineKey::Root).expect("generated");
    let before = all_bytes(&dir);
    assert!(matches!(store.generate_key(EngineKey::Root), Err(SecretsError::KeyExists("root"))));
    for backend in Backend::ALL {
        let again = SecretStore::create(&dir, backend, passphrase(), &config());
        assert!(matches!(again, Err(SecretsError::AlreadyCreated(Backend::Plain))));
    }
    assert_eq!(all_bytes(&dir), before);
    assert_eq!(store.signing_key(EngineKey::Root).expect("read").verifying_key(), root);

    fs::remove_file(dir.join(RECORD_FILE)).expect("removed");
    let again = SecretStore::create(&dir, Backend::Plain, None, &config());
    assert!(matches!(again, Err(SecretsError::Leftover("secrets.json"))));
}

#[test]
fn a_set_up_that_fails_records_nothing() {
    let home = home();
    let dir = home.path().join("keys");
    let (sender, receiver) = sync_channel::<()>(1);
    let connect = || {
        let store: Arc<CredentialStore> = Arc::new(Waiting::new(receiver));
        Keyring::connect_with(&SecretsConfig { operation_timeout_ms: 50, ..config() }, move || Ok(store))
    };
    let locked = Vault::create_with(&dir, Backend::Keyring, None, &config(), connect);
    assert!(matches!(locked, Err(SecretsError::KeyringLocked)));
    assert_eq!(recorded_backend(&dir).expect("read"), None);
    drop(sender);

    // In the way of the first document.
    fs::create_dir(dir.join(".secrets.json.new")).expect("made");
    let failed = SecretStore::create(&dir, Backend::Plain, None, &config()).expect_err("refused");
    assert!(matches!(failed, SecretsError::Io { .. }), "{failed:?}");
    assert_eq!(recorded_backend(&dir).expect("read"), None);
    fs::remove_dir(dir.join(".secrets.json.new")).expect("removed");
    assert!(SecretStore::create(&dir, Backend::Plain, None, &config()).is_ok());
}

/// Rows: SIL-158
#[test]
fn keys_sign_as_the_published_vectors_say() {
    // RFC 8032, section 7.1, tests 1 and 2: seed, public key, message, signature.
    let vectors = [
        (
            "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
            "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
            "",
            "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e065224901555fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
        ),
        (
            "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
            "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
            "72",
            "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
        ),
    ];
    for (seed, public, message, expected) in vectors {
        let mut document = SecretsDocument::default();
        document.keys.insert("root".into(), HiddenText(seed.into()));
        let key = keys::load_key(&document, "root").expect("loaded");
        let message = hex::decode(message).expect("hexadecimal");
        let signature = key.sign(&message);
        assert_eq!(hex::encode(key.verifying_key().to_bytes()), public);
        assert_eq!(hex::encode(signature.to_bytes()), expected);
        let mut corrupted = signature.to_bytes();
        corrupted[40] ^= 1;
        assert!(key.verifying_key().verify(&message, &signature).is_ok());
        assert!(key.verifying_key().verify(&message, &Signature::from_bytes(&corrupted)).is_err());
    }
    let (one, two) = (home(), home());
    let first = plain(&one).generate_key(EngineKey::Root).expect("generated");
    let second = plain(&two).generate_key(EngineKey::Root).expect("generated");
    assert_ne!(first, second);
}

#[test]
fn the_approver_key_is_in_a_document_of_its_own() {
    let home = home();
    let dir = home.path().join("keys");
    let store = SecretStore::create(&dir, Backend::Age, passphrase(), &config()).expect("created");
    let own: Option<SecretString> = Some("another passphrase".into());
    let approver = open_approver(&dir, own.clone(), &config()).expect("opened");
    let public = approver.generate_key().expect("generated");
    assert!(matches!(approver.generate_key(), Err(SecretsError::KeyExists("approver"))));
    let seed = approver.signing_key().expect("read").to_bytes();

    // What the engine opens does not hold it, and the engine's passphrase does not open the other.
    let bytes = store.vault.read_document().expect("read").to_bytes().expect("written");
    assert!(!contains(&bytes, hex::encode(seed).as_bytes()));
    assert!(matches!(open_approver(&dir, passphrase(), &config()), Err(SecretsError::WrongPassphrase(_))));
    let again = open_approver(&dir, own, &config()).expect("opened");
    assert_eq!(again.signing_key().expect("read").verifying_key(), public);
}

#[test]
fn nothing_secret_is_shown() {
    let home = home();
    let store = plain(&home);
    store.set_secret(&name("a"), "sk-live-0123456789".into()).expect("set");
    store.generate_key(EngineKey::Harness).expect("generated");
    let key = store.signing_key(EngineKey::Harness).expect("read");
    let shown =
        format!("{store:?} {:?} {:?} {key:?}", store.vault.read_document(), store.get_secret(&name("a")));
    assert!(!shown.contains("sk-live"));
    assert!(!shown.contains(&hex::encode(key.to_bytes())));
}

#[test]
fn writers_at_the_same_time_lose_nothing() {
    let home = home();
    let dir = home.path().join("keys");
    drop(plain(&home));
    thread::scope(|scope| {
        for writer in 0..8 {
            let dir = &dir;
            scope.spawn(move || {
                let store = SecretStore::open(dir, None, &config()).expect("opened");
                for n in 0..5 {
                    store.set_secret(&name(&format!("w{writer}-{n}")), "x".into()).expect("set");
                }
            });
        }
    });
    let store = SecretStore::open(&dir, None, &config()).expect("opened");
    assert_eq!(store.list_names().expect("listed").len(), 40);
}

#[test]
fn a_lock_that_is_never_released_ends_in_an_error() {
    let home = home();
    let dir = home.path().join("keys");
    drop(plain(&home));
    let _held = crate::files::Lock::take_lock(&dir, Duration::from_secs(5)).expect("taken");
    let hasty = SecretsConfig { operation_timeout_ms: 50, ..config() };
    let store = SecretStore::open(&dir, None, &hasty).expect("reading needs no lock");
    assert!(matches!(store.set_secret(&name("a"), "b".into()), Err(SecretsError::Busy)));
}

/// Rows: SIL-264
///
/// Rows: SIL-157 (the keyring has it, and no file)
#[test]
fn with_a_keyring_no_value_lies_in_a_file() {
    let home = home();
    let dir = home.path().join("keys");
    let keyring: Arc<CredentialStore> = mock::Store::new().expect("in memory");
    let connect = || {
        let keyring = Arc::clone(&keyring);
        Keyring::connect_with(&config(), move || Ok(keyring))
    };
    let vault = Vault::create_with(&dir, Backend::Keyring, None, &config(), connect).expect("created");
    let store = SecretStore { vault };
    let public = store.generate_key(EngineKey::Root).expect("generated");
    store.set_secret(&name("a"), "sk-live-0123456789".into()).expect("set");
    let seed = store.signing_key(EngineKey::Root).expect("read").to_bytes();
    let files = all_bytes(&dir);
    assert!(!contains(&files, hex::encode(seed).as_bytes()) && !contains(&files, &seed));
    assert!(!contains(&files, b"sk-live"));

    let again =
        SecretStore { vault: Vault::open_with(&dir, ENGINE, None, &config(), connect).expect("opened") };
    assert_eq!(value(&again, "a").as_deref(), Some("sk-live-0123456789"));
    assert_eq!(again.signing_key(EngineKey::Root).expect("read").verifying_key(), public);
}

#[test]
fn a_keyring_that_does_not_answer_is_given_up() {
    let hasty = SecretsConfig { connect_timeout_ms: 50, operation_timeout_ms: 50 };
    let (sender, receiver) = sync_channel::<()>(1);
    let started = Instant::now();
    let silent = Keyring::connect_with(&hasty, move || {
        let _closed = receiver.recv();
        Err(keyring_core::Error::NoEntry)
    });
    let report = silent.expect_err("given up").report();
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!((report.exit, report.code.as_str()), (Exit::Blocked, "secrets.keyring_unavailable"));
    drop(sender);
}

#[test]
fn a_keyring_that_waits_for_a_person_counts_as_locked() {
    // It connects at once, though on another thread.
    let hasty = SecretsConfig { connect_timeout_ms: 60_000, operation_timeout_ms: 50 };
    let (sender, receiver) = sync_channel::<()>(1);
    let store = Arc::new(Waiting::new(receiver));
    let connected: Arc<CredentialStore> = store.clone();
    let keyring = Keyring::connect_with(&hasty, move || Ok(connected)).expect("connected");
    let report = keyring.read_entry("x").expect_err("locked").report();
    assert_eq!((report.exit, report.code.as_str()), (Exit::Blocked, "secrets.keyring_locked"));
    assert!(!report.hint.is_empty());
    // The second call does not leave another thread behind.
    assert!(matches!(keyring.read_entry("x"), Err(SecretsError::KeyringLocked)));
    assert!(store.calls.load(Ordering::SeqCst) <= 1);
    drop(sender);
}

/// The service of this machine, whichever state it is in: an answer or a typed error, never a hang.
#[test]
fn the_keyring_of_this_machine_answers_or_is_given_up() {
    let hasty = SecretsConfig { connect_timeout_ms: 2_000, operation_timeout_ms: 2_000 };
    let started = Instant::now();
    match Keyring::connect_service(&hasty) {
        Ok(keyring) => assert!(keyring.read_entry("writ-test-none").is_ok_and(|entry| entry.is_none())),
        Err(error) => assert_eq!(error.report().exit, Exit::Blocked),
    }
    assert!(started.elapsed() < Duration::from_secs(20));
}

/// A keyring whose every operation waits for a person who does not come.
#[derive(Debug)]
struct Waiting {
    person: Mutex<Receiver<()>>,
    calls: AtomicUsize,
}

impl Waiting {
    fn new(person: Receiver<()>) -> Self {
        Self { person: Mutex::new(person), calls: AtomicUsize::new(0) }
    }
}

#[expect(clippy::disallowed_types, reason = "the trait of the library has a hash map in its signature")]
impl keyring_core::api::CredentialStoreApi for Waiting {
    fn vendor(&self) -> String {
        "waiting".into()
    }

    fn id(&self) -> String {
        "waiting".into()
    }

    fn build(
        &self,
        _service: &str,
        _user: &str,
        _modifiers: Option<&std::collections::HashMap<&str, &str>>,
    ) -> keyring_core::Result<keyring_core::Entry> {
        self.calls.fetch_add(1, Ordering::SeqCst);
        let _closed = self.person.lock().expect("not poisoned").recv();
        Err(keyring_core::Error::NoEntry)
    }

    fn as_any(&self) -> &dyn std::any::Any {
        self
    }
}

#[test]
fn the_key_of_the_authority_is_made_once_and_kept() {
    let home = home();
    let make = |text: &str| Ok::<_, SecretsError>(SecretString::from(text.to_owned()));
    let first = plain(&home).authority_key(|| make("the first")).expect("made");
    let again = SecretStore::open(&home.path().join("keys"), None, &config()).expect("opened");
    let kept = again.authority_key(|| make("another")).expect("kept");
    assert_eq!((first.expose_secret(), kept.expose_secret()), ("the first", "the first"));
    assert!(again.list_names().expect("names").is_empty(), "it is none of the secrets");
    let failed = plain(&self::home()).authority_key(|| Err::<SecretString, _>(SecretsError::NoRandomness));
    assert!(failed.is_err());
}

/// The key of contents is made once: what is sealed with it opens after the home was opened again.
#[test]
fn the_key_of_contents_is_made_once() {
    let home = home();
    let first = plain(&home);
    assert!(first.find_content_key().expect("reads").is_none(), "nothing is made by looking");
    let sealed = first.content_key().expect("made").seal_content("place", b"said").expect("seals");
    let again = SecretStore::open(&home.path().join("keys"), None, &config()).expect("opened");
    let found = again.find_content_key().expect("reads").expect("there");
    for key in [again.content_key().expect("reads"), found] {
        assert_eq!(key.open_content("place", &sealed).expect("opens").as_slice(), b"said");
    }
}

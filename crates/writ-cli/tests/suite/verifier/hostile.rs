//! Input that was made to break the verifier: it says no, within its bounds, and never falls over.

use ed25519_dalek::{Signature, Signer as _, SigningKey};

use super::{Sealed, Verdict, joined, path, python};

/// Says of each signature, given after the key and the message, whether it counts.
const SIGNATURES: &str = r#"
import importlib.util, sys
script, key, message, *signatures = sys.argv[1:]
spec = importlib.util.spec_from_file_location("verifier", script)
verifier = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verifier)
key = verifier.Key(bytes.fromhex(key))
print([int(key.has_signed(bytes.fromhex(message), bytes.fromhex(one))) for one in signatures])
"#;

/// The order of the base point, which added to the second half of a signature gives another one for the same message.
const ORDER: &str = "edd3f55c1a631258d69cf7a2def9de1400000000000000000000000000000010";

/// Verifies an export with each of its bytes changed in three ways, and ends with how many changes were refused at the
/// leaf that they were made in. Everything but the verifier's own refusal ends it at once.
const EVERY_BYTE: &str = r#"
import importlib.util, io, sys
script, export, key = sys.argv[1:]
spec = importlib.util.spec_from_file_location("verifier", script)
verifier = importlib.util.module_from_spec(spec)
spec.loader.exec_module(verifier)
keys = verifier.read_keys([key])
good = open(export, "rb").read()
verifier.Export([]).verify(io.BytesIO(good), keys)
refused = 0
for at in range(len(good)):
    for mask in (0x01, 0x20, 0x80):
        data = bytearray(good)
        data[at] ^= mask
        try:
            verifier.Export([]).verify(io.BytesIO(data), keys)
        except verifier.Bad as bad:
            refused += bad.leaf == good[:at].count(b"\n")
print(refused)
"#;

/// Verifies with less memory than a large file has.
const BOUNDED: &str = r#"
import resource, runpy, sys
resource.setrlimit(resource.RLIMIT_AS, (400 << 20, 400 << 20))
sys.argv = sys.argv[1:]
runpy.run_path(sys.argv[0], run_name="__main__")
"#;

#[test]
fn needs_python_every_changed_byte_of_an_export_is_refused_where_it_stands() {
    let sealed = Sealed::new();
    let rows = joined(&sealed.lines[..2]);
    let (export, key) = (sealed.file("few.jsonl", &rows), sealed.key());
    let output = python(&["-c", EVERY_BYTE, super::SCRIPT, path(&export), path(&key)]);
    assert_eq!(Verdict::of(&output).said.trim(), (3 * rows.len()).to_string());
}

/// The sum of two numbers of 32 bytes, lowest byte first.
fn sum(a: &[u8], b: &[u8]) -> Vec<u8> {
    let mut carry = 0;
    let add = |(a, b): (&u8, &u8)| {
        let sum = u16::from(*a) + u16::from(*b) + carry;
        carry = sum >> 8;
        u8::try_from(sum & 0xff).expect("a byte")
    };
    a.iter().zip(b).map(add).collect()
}

/// What counts as a signature is the same for both verifiers, also at the edges.
#[test]
fn needs_python_signatures_are_verified_as_strictly_as_here() {
    let key = SigningKey::from_bytes(&[5; 32]);
    let message = b"writ-entry-v1\n";
    let good = key.sign(message).to_bytes();
    let (r, s) = good.split_at(32);
    let one = [vec![1], vec![0; 31]].concat();
    let order = hex::decode(ORDER).expect("hexadecimal");
    let flipped = |at: usize| {
        let mut bytes = good.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    let cases = [
        good.to_vec(),
        key.sign(b"another message").to_bytes().to_vec(),
        SigningKey::from_bytes(&[6; 32]).sign(message).to_bytes().to_vec(),
        flipped(0),
        flipped(31),
        flipped(32),
        flipped(63),
        [r, &sum(s, &order)].concat(),
        [one.as_slice(), &[0; 32]].concat(),
        [&[0; 32], s].concat(),
        [&[0xff; 32], s].concat(),
        vec![0; 64],
    ];
    let counts = |bytes: &Vec<u8>| {
        let signature = Signature::from_slice(bytes).expect("64 bytes");
        u8::from(key.verifying_key().verify_strict(message, &signature).is_ok())
    };
    let expected: Vec<u8> = cases.iter().map(counts).collect();
    assert_eq!(expected.iter().sum::<u8>(), 1, "the first alone");
    let mut hexadecimal = vec![hex::encode(key.verifying_key().as_bytes()), hex::encode(message)];
    hexadecimal.extend(cases.iter().map(hex::encode));
    let mut args = vec!["-c", SIGNATURES, super::SCRIPT];
    args.extend(hexadecimal.iter().map(String::as_str));
    assert_eq!(Verdict::of(&python(&args)).said.trim(), format!("{expected:?}"));
}

#[test]
fn needs_python_garbage_in_an_export_is_refused_at_its_line() {
    let sealed = Sealed::new();
    let line = &sealed.lines[5];
    let deep = "[".repeat(200_000);
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("no JSON", b"garbage".to_vec()),
        ("nothing", Vec::new()),
        ("an empty object", b"{}".to_vec()),
        ("no UTF-8", vec![0xff, 0xfe, 0x00, 0x80]),
        ("zeros", vec![0; 100_000]),
        ("deep", deep.clone().into_bytes()),
        ("a deep payload", line.replace("{\"event\"", &format!("{deep}{{\"event\"")).into_bytes()),
        ("a field twice", line.replace("{\"seq\":5,", "{\"seq\":5,\"seq\":5,").into_bytes()),
        (
            "a field twice at the end",
            line.replace(",\"erased\":null", ",\"erased\":null,\"erased\":null").into_bytes(),
        ),
        ("another field", line.replace("{\"seq\"", "{\"note\":0,\"seq\"").into_bytes()),
        ("a field less", line.replace("\"turn_number\":3,", "").into_bytes()),
        (
            "another order",
            line.replace("{\"seq\":5,\"at\":1700000000000,", "{\"at\":1700000000000,\"seq\":5,").into_bytes(),
        ),
        ("spaces", line.replace(":3,", ": 3,").into_bytes()),
        ("a space at the end", format!("{line} ").into_bytes()),
        ("another end of line", format!("{line}\r").into_bytes()),
        ("a mark at the beginning", format!("\u{feff}{line}").into_bytes()),
        ("a number with a zero before it", line.replace(":3,", ":03,").into_bytes()),
        ("a fraction", line.replace(":3,", ":3.0,").into_bytes()),
        ("a huge number", line.replace(":3,", &format!(":{},", "9".repeat(100_000))).into_bytes()),
        ("large letters", line.to_ascii_uppercase().into_bytes()),
        ("a text for a number", line.replace("\"seq\":5", "\"seq\":\"5\"").into_bytes()),
        (
            "an escaped letter",
            line.replace("\"phase\",\"commitment\"", "\"\\u0070hase\",\"commitment\"").into_bytes(),
        ),
        ("a huge line", vec![b'x'; 20 << 20]),
        ("a huge payload", line.replace("entry 5", &"x".repeat(9 << 20)).into_bytes()),
    ];
    let (before, after) = (joined(&sealed.lines[..5]), joined(&sealed.lines[6..20]));
    for (name, garbage) in cases {
        assert_ne!(garbage, line.as_bytes(), "{name}");
        let export = [before.as_bytes(), &garbage, b"\n", after.as_bytes()].concat();
        let [alone, held] = sealed.judged(export);
        assert_eq!((alone.told(), held.told()), ((9, Some(5)), (9, Some(5))), "{name}: {}", alone.said);
        assert!(alone.said.len() < 1_000, "{name}: what is hostile is not repeated");
    }
}

#[test]
fn needs_python_garbage_for_a_proof_is_refused() {
    let sealed = Sealed::new();
    let good = sealed.home.json(&["audit", "proof", "5"]).to_string();
    let key = sealed.key();
    let cases: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("no JSON", b"garbage".to_vec()),
        ("a list", b"[]".to_vec()),
        ("no UTF-8", vec![0xff, 0xfe]),
        ("deep", "[".repeat(1 << 20).into_bytes()),
        ("a field twice", good.replace("{\"seq\":5,", "{\"seq\":5,\"seq\":5,").into_bytes()),
        ("another field", good.replace("{\"seq\":5,", "{\"seq\":5,\"note\":0,").into_bytes()),
        ("a fraction", good.replace("\"seq\":5,", "\"seq\":5.0,").into_bytes()),
        ("no number", good.replace("\"seq\":5,", "\"seq\":NaN,").into_bytes()),
        ("a truth", good.replace("\"seq\":5,", "\"seq\":true,").into_bytes()),
        ("less than nothing", good.replace("\"seq\":5,", "\"seq\":-5,").into_bytes()),
        (
            "a huge number",
            good.replace("\"seq\":5,", &format!("\"seq\":{},", "9".repeat(1 << 20))).into_bytes(),
        ),
        ("half a character", good.replace("entry 5", "\\ud800").into_bytes()),
        ("lists", good.replace("\"path\":[\"", "\"path\":[[],\"").into_bytes()),
        ("a short path", good.replace("\"path\":[\"", "\"path\":[\"00\",\"").into_bytes()),
        ("cut", good.as_bytes()[..good.len() - 1].to_vec()),
    ];
    for (name, proof) in cases {
        assert_ne!(proof, good.as_bytes(), "{name}");
        let proof = sealed.file("proof.json", proof);
        let verdict = Verdict::verify(&["--proof", path(&proof), "--key", path(&key)]);
        assert_eq!(verdict.code, 9, "{name}: {}", verdict.said);
    }
}

/// Files without end are read as far as a line or a file may be long.
#[test]
fn needs_python_what_is_read_has_a_bound() {
    let sealed = Sealed::new();
    let (export, key) = (sealed.file("export.jsonl", joined(&sealed.lines)), sealed.key());
    let bounded = |args: &[&str]| Verdict::of(&python(&[&["-c", BOUNDED, super::SCRIPT], args].concat()));
    let zero = "/dev/zero";
    let whole = [path(&export), "--key", path(&key), "--heads", path(&sealed.heads)];
    assert_eq!(bounded(&whole).told(), (0, None), "the bound is enough for what is good");
    assert_eq!(bounded(&[zero, "--key", path(&key)]).told(), (9, Some(0)));
    assert_eq!(bounded(&[path(&export), "--key", path(&key), "--heads", zero]).told(), (9, None));
    assert_eq!(bounded(&["--proof", zero, "--key", path(&key)]).told(), (2, None));
    assert_eq!(bounded(&[path(&export), "--key", zero]).told(), (2, None));
}

#[test]
fn needs_python_wrong_usage_ends_with_2() {
    let sealed = Sealed::new();
    let (export, key) = (sealed.file("export.jsonl", joined(&sealed.lines)), sealed.key());
    let nothing = sealed.file("nothing", "");
    let (export, key, folder) = (path(&export), path(&key), path(sealed.home.dir.path()));
    // Points of small order, one that is written in another way, and one that is on no curve.
    let identity = format!("01{}", "00".repeat(31));
    let small = "c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a";
    let spelled = format!("ee{}7f", "ff".repeat(30));
    let off = format!("02{}", "00".repeat(31));
    for args in [
        &[][..],
        &[export],
        &["--key", key],
        &[export, "--key", "abc"],
        &[export, "--key", path(&nothing)],
        &[export, "--key", export],
        &[export, "--key", folder],
        &[folder, "--key", key],
        &["not-there", "--key", key],
        &[export, "--key", key, "--heads", "not-there"],
        &[export, "--key", key, "--proof", "not-there"],
        &["--proof", export, "--heads", export, "--key", key],
        &[export, "--key", key, "--unknown"],
        &[export, "--key", &identity],
        &[export, "--key", small],
        &[export, "--key", &spelled],
        &[export, "--key", &off],
    ] {
        let verdict = Verdict::verify(args);
        assert_eq!(verdict.told(), (2, None), "{args:?}: {}", verdict.said);
    }
    // Another key is no mistake of the caller: nothing of this export is signed by it.
    let other = "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a";
    assert_eq!(Verdict::verify(&[export, "--key", other]).told(), (9, Some(0)));
    assert_eq!(Verdict::verify(&[export, "--key", other, "--key", key]).told(), (0, None));
}

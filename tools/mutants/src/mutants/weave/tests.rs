use super::*;

/// Mutants of a text, each named by what it replaces there.
fn mutants(text: &str, all: &[(Genre, &str, &str)]) -> Vec<Mutant> {
    let place = |at: usize| {
        let before = &text[..at];
        let line = before.matches('\n').count() + 1;
        let column = before.rsplit('\n').next().unwrap_or(before).chars().count() + 1;
        Place { line, column }
    };
    let mutant = |(id, (genre, what, replacement)): (u32, &(Genre, &str, &str))| {
        let at = text.find(what).unwrap();
        Mutant {
            id,
            name: format!("a.rs:1:1: {what}"),
            key: format!("a.rs: {what}"),
            file: "crates/a/src/a.rs".to_owned(),
            genre: *genre,
            start: place(at),
            end: place(at + what.len()),
            replacement: (*replacement).to_owned(),
        }
    };
    (1..).zip(all).map(mutant).collect()
}

/// The woven text without what is written for errors.
fn woven(text: &str, all: &[(Genre, &str, &str)]) -> String {
    let mutants = mutants(text, all);
    let woven = weave(text, &mutants.iter().collect::<Vec<_>>(), &Names::default()).unwrap();
    syn::parse_file(&woven.text).unwrap();
    let mut plain = String::new();
    let mut rest = woven.text.as_str();
    while let Some((before, after)) = rest.split_once("/*") {
        plain.push_str(before);
        rest = after.split_once("*/").unwrap().1;
    }
    (plain + rest).replace(IS, "is")
}

#[test]
fn operators_ask_without_writing_an_operand_twice() {
    let text = "fn f(a: u8, b: u8) -> bool { a == 1 && b != 2 }";
    let all = [
        (Genre::BinaryOperator, "==", "!="),
        (Genre::BinaryOperator, "&&", "||"),
        (Genre::BinaryOperator, "!=", "=="),
    ];
    assert_eq!(
        woven(text, &all),
        "fn f(a: u8, b: u8) -> bool { ({ let left: bool = ((a == 1) ^ is(1)); if left == is(2) { left } \
         else { ((b != 2) ^ is(3)) } }) }"
    );
}

#[test]
fn other_operators_are_chosen_between() {
    let text = "fn f(é: u8, b: u8) -> u8 { é + b }";
    let all = [(Genre::BinaryOperator, "+", "-"), (Genre::BinaryOperator, "+", "*")];
    assert_eq!(
        woven(text, &all),
        "fn f(é: u8, b: u8) -> u8 { (if is(1) { é - b } else if is(2) { é * b } else { é + b }) }"
    );
    let text = "fn f(a: bool) -> bool { !a }";
    assert_eq!(
        woven(text, &[(Genre::UnaryOperator, "!", "")]),
        "fn f(a: bool) -> bool { (if is(1) { a } else { !a }) }"
    );
}

#[test]
fn bodies_arms_guards_and_fields_ask_too() {
    let text = "fn f(a: u8) -> u8 { match a { 1 => 2, 3 if a < 2 => 4, _ => 5 } }";
    let all = [
        (Genre::FnValue, "match a { 1 => 2, 3 if a < 2 => 4, _ => 5 }", "0"),
        (Genre::MatchArm, "1 => 2", ""),
        (Genre::MatchArmGuard, "a < 2", "true"),
        (Genre::MatchArm, "3 if a < 2 => 4", ""),
        (Genre::BinaryOperator, "<", "=="),
    ];
    assert_eq!(
        woven(text, &all),
        "fn f(a: u8) -> u8 { if is(1) { return 0; } match a { 1 if !is(2)  => 2, 3 if (if is(3) { true } \
         else if is(4) { false } else { (if is(5) { a == 2 } else { a < 2 }) }) => 4, _ => 5 } }"
    );
    let text = "fn f(x: X) -> X { X { a: 1, b: 2, ..x } }";
    assert_eq!(
        woven(text, &[(Genre::StructField, "b: 2", "")]),
        "fn f(x: X) -> X { (if is(1) { X { a: 1,  ..x } } else { X { a: 1, b: 2, ..x } }) }"
    );
}

#[test]
fn what_cannot_ask_is_set_apart() {
    let text = "const A: u8 = 1 + 2; const fn f() -> u8 { 3 * 4 } const fn k() -> u8 { 5 / 6 } fn g() -> impl Fn(u8) -> u8 { x } \
                fn h(a: Option<u8>) { if let Some(b) = a && b > 1 {} }";
    let all = [
        (Genre::BinaryOperator, "+", "-"),
        (Genre::BinaryOperator, "*", "+"),
        (Genre::FnValue, "x }", "Default::default()"),
        (Genre::BinaryOperator, "&&", "||"),
    ];
    let mutants = mutants(text, &all);
    let names = Names { kept: BTreeSet::from(["f".to_owned()]), ..Names::default() };
    let woven = weave(text, &mutants.iter().collect::<Vec<_>>(), &names).unwrap();
    assert_eq!((woven.apart, woven.unviable), (vec![1, 2, 3], vec![4]));
    assert_eq!(woven.text, text);
    // A function that the compiler need not evaluate is made an ordinary one.
    let text = "pub const fn k(a: u8) -> u8 { a / 6 }";
    let ordinary = "pub  fn k(a: u8) -> u8 { (if is(1) { a % 6 } else { a / 6 }) }";
    assert_eq!(super::tests::woven(text, &[(Genre::BinaryOperator, "/", "%")]), ordinary);
    assert!(weave("fn", &[], &Names::default()).is_err());
}

#[test]
fn an_iterator_of_any_type_is_one_of_two() {
    let text = "fn g() -> impl Iterator<Item = u8> + 'static { x() }";
    let all =
        [(Genre::FnValue, "x()", "::std::iter::empty()"), (Genre::FnValue, "x() }", "::std::iter::once(0)")];
    let either =
        |one: &str, other: &str| format!("{{ {EITHER}::One({one}) }} else {{ {EITHER}::Other({other}) }} }}");
    let inner = format!("{{ if is(2) {}", either("::std::iter::once(0)", "{ x() }"));
    let outer = format!("{{ if is(1) {}", either("::std::iter::empty()", &inner));
    assert_eq!(woven(text, &all), format!("fn g() -> impl Iterator<Item = u8> + 'static {outer}"));
}

#[test]
fn a_constant_is_asked_for_where_it_is_used() {
    let text = "pub const MOST: u8 = 2 * 3; fn f(a: u8) -> bool { a < MOST && g!(self::MOST) } fn h() -> u8 { MOST + 1 }";
    let names = |kept: &[&str]| Names {
        kept: kept.iter().map(|&name| name.to_owned()).collect(),
        asked: BTreeSet::from(["MOST".to_owned()]),
    };
    let all = mutants(text, &[(Genre::BinaryOperator, "*", "+")]);
    let all: Vec<&Mutant> = all.iter().collect();
    let found = weave(text, &all, &names(&[])).unwrap();
    syn::parse_file(&found.text).unwrap();
    assert!(found.text.starts_with("pub const MOST: u8 = 2 * 3; /*<uMOST*/"), "{}", found.text);
    assert!(
        found.text.contains("pub fn asked() -> u8 { /*<p1*/(if crate::mutant_in_force::is(1) {"),
        "{}",
        found.text
    );
    assert_eq!(found.text.matches("MOST::asked()").count(), 3, "{}", found.text);
    assert_eq!((found.apart, found.fixed), (vec![], BTreeSet::new()));
    let at = found.text.find("MOST::asked").unwrap();
    assert_eq!(culprit(&found.text, at), Some(Culprit::Constant("MOST".to_owned())));
    // Where nobody may ask, it is the constant.
    let found = weave(text, &all, &Names::default()).unwrap();
    assert_eq!((found.apart, found.text.as_str()), (vec![1], text));
    // Nor where the compiler has to know it.
    let text = text.replace("fn h", "const fn h");
    assert_eq!(weave(&text, &all, &names(&["h"])).unwrap().fixed, BTreeSet::from(["MOST".to_owned()]));
    for known in [
        "fn f(a: [u8; MOST]) {}",
        "const A: u8 = MOST;",
        "fn f(a: u8) { match a { MOST => {} _ => {} } }",
        "fn f() { [0; MOST]; }",
        "fn f() { g::<MOST>(); }",
    ] {
        assert!(Places::of(known).unwrap().fixed.contains("MOST"), "{known}");
    }
}

#[test]
fn an_error_is_traced_to_its_mutant_or_its_place() {
    let text = "fn f(a: u8, b: u8) -> u8 { a + b }";
    let all = [(Genre::FnValue, "a + b", "Default::default()"), (Genre::BinaryOperator, "+", "-")];
    let mutants = mutants(text, &all);
    let woven = weave(text, &mutants.iter().collect::<Vec<_>>(), &Names::default()).unwrap();
    let at = |what: &str| culprit(&woven.text, woven.text.find(what).unwrap());
    assert_eq!(at("Default"), Some(Culprit::Mutant(1)));
    assert_eq!(at("a - b"), Some(Culprit::Mutant(2)));
    assert_eq!(at("a + b"), Some(Culprit::Place(2)));
    assert_eq!(at("a: u8"), None);
    assert_eq!(woven.places, BTreeMap::from([(1, vec![1]), (2, vec![2])]));
}

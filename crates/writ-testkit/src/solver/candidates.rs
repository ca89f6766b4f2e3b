//! The edits that may mend a function, the likeliest first.

use std::collections::BTreeSet;

use super::evidence::{EditPlace, FailureEvidence, NamedConstant, ReadFunction, number};
use super::text::{Token, TokenKind, indent, joined, tokens};

/// A change of one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Edit {
    pub(crate) place: EditPlace,
    pub(crate) new: String,
}

/// The likelihood of an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Rank {
    /// Test or documents name the very thing.
    Named,
    /// The values or names at hand point to it.
    Pointed,
    /// The usual mistake in such a place.
    Usual,
    /// The difference goes the right way.
    Fitting,
    /// It is possible.
    Possible,
    /// Little speaks for it.
    Unlikely,
}

impl Edit {
    /// The lines that differ, for people.
    pub(crate) fn changed_lines(&self) -> String {
        let (old, new): (Vec<&str>, Vec<&str>) =
            (self.place.old.lines().collect(), self.new.lines().collect());
        let same = |pair: &(&&str, &&str)| pair.0 == pair.1;
        let head = old.iter().zip(&new).take_while(same).count();
        let tail = old.iter().skip(head).rev().zip(new.iter().skip(head).rev()).take_while(same).count();
        let middle = |lines: &[&str]| {
            let lines: Vec<&str> =
                lines.iter().take(lines.len() - tail).skip(head).map(|line| line.trim()).collect();
            lines.join(" ")
        };
        match middle(&old) {
            nothing if nothing.is_empty() => format!("it by adding `{}`", middle(&new)),
            before => format!("`{before}` to `{}`", middle(&new)),
        }
    }
}

/// Every edit that is worth trying.
pub(super) fn rank(evidence: &FailureEvidence) -> Vec<Edit> {
    let mut ranked: Vec<(Rank, Edit)> = Vec::new();
    for constant in &evidence.constants {
        ranked.extend(documented(constant));
    }
    for function in &evidence.functions {
        let mut finder = Finder::new(evidence, function);
        finder.branches();
        finder.keys();
        finder.swaps();
        finder.tokens();
        ranked.extend(finder.found);
    }
    ranked.sort_by_key(|(rank, _)| *rank);
    let mut edits: Vec<Edit> = Vec::new();
    for (_, edit) in ranked {
        if edit.new != edit.place.old && !edits.contains(&edit) {
            edits.push(edit);
        }
    }
    edits
}

/// A constant that is not what the documents say.
fn documented(constant: &NamedConstant) -> Option<(Rank, Edit)> {
    let right = constant.documented.filter(|right| *right != constant.value)?;
    let mut line = tokens(&constant.place.old);
    let value = line.iter_mut().find(|token| number(token) == Some(constant.value))?;
    value.text = right.to_string();
    Some((Rank::Named, Edit { place: constant.place.clone(), new: joined(&line) }))
}

/// Looks for edits of one function.
struct Finder<'a> {
    evidence: &'a FailureEvidence,
    function: &'a ReadFunction,
    lines: Vec<Vec<Token>>,
    /// The strings among the arguments.
    asked: BTreeSet<&'a str>,
    found: Vec<(Rank, Edit)>,
}

impl<'a> Finder<'a> {
    fn new(evidence: &'a FailureEvidence, function: &'a ReadFunction) -> Self {
        let lines = function.place.old.lines().map(tokens).collect();
        let asked = evidence.asked.iter().filter_map(Token::quoted).collect();
        Self { evidence, function, lines, asked, found: Vec::new() }
    }

    /// Notes the function with one line in another form.
    fn replace(&mut self, rank: Rank, line: usize, new: &[Token]) {
        let lines = self.lines.iter().enumerate();
        let lines: Vec<String> = lines.map(|(n, old)| joined(if n == line { new } else { old })).collect();
        self.note(rank, lines.join("\n"));
    }

    fn replace_token(&mut self, rank: Rank, line: usize, token: usize, new: &str) {
        let Some(mut changed) = self.lines.get(line).cloned() else { return };
        if let Some(token) = changed.get_mut(token) {
            new.clone_into(&mut token.text);
        }
        self.replace(rank, line, &changed);
    }

    fn note(&mut self, rank: Rank, new: String) {
        self.found.push((rank, Edit { place: self.function.place.clone(), new }));
    }

    /// The lines of the body with their numbers, without what only describes it.
    fn body(&self) -> Vec<(usize, Vec<Token>)> {
        let describes = |line: &[Token]| joined(line).trim_start().starts_with("\"\"\"");
        let body = self.lines.iter().cloned().enumerate().skip(1);
        body.filter(|(_, line)| !describes(line)).collect()
    }

    /// A case that the function has not: one more like the first it has.
    fn branches(&mut self) {
        let compares = |line: &[Token]| {
            let case = line.iter().find_map(Token::quoted)?;
            line.iter().any(|token| token.is("==") || token.is("===")).then(|| case.to_owned())
        };
        let cases: Vec<(usize, String)> =
            self.body().iter().filter_map(|(n, line)| Some((*n, compares(line)?))).collect();
        let Some((first, case)) = cases.first().cloned() else { return };
        let head = self.lines.get(first).map(|line| joined(line)).unwrap_or_default();
        let rest = self.lines.iter().skip(first + 1).map(|line| joined(line));
        let mut block = vec![head.clone()];
        for line in rest {
            let deeper = indent(&line) > indent(&head);
            if deeper || line.trim() == "}" {
                block.push(line.clone());
            }
            if !deeper {
                break;
            }
        }
        let missing: Vec<&str> =
            self.asked.iter().copied().filter(|asked| !cases.iter().any(|(_, case)| case == asked)).collect();
        for asked in missing {
            let mut added = Vec::new();
            for line in &block {
                let mut line = tokens(line);
                for token in &mut line {
                    if token.quoted() == Some(&case) {
                        token.text = format!("\"{asked}\"");
                    } else if number(token).is_some() {
                        token.text = self.evidence.failure.expected.to_string();
                    }
                }
                added.push(joined(&line));
            }
            let lines: Vec<String> = self.lines.iter().map(|line| joined(line)).collect();
            let (before, after) = (lines.iter().take(first), lines.iter().skip(first));
            let new: Vec<&str> = before.chain(&added).chain(after).map(String::as_str).collect();
            self.note(Rank::Named, new.join("\n"));
        }
    }

    /// A field that the arguments have not, for one that the function does not use.
    fn keys(&mut self) {
        let body = self.body();
        let cases = |line: &[Token]| line.iter().any(|token| token.is("==") || token.is("==="));
        let lines: Vec<&(usize, Vec<Token>)> = body.iter().filter(|(_, line)| !cases(line)).collect();
        let used: BTreeSet<&str> =
            lines.iter().flat_map(|(_, line)| line.iter().filter_map(Token::quoted)).collect();
        let unused: Vec<&str> = self.asked.difference(&used).copied().collect();
        for (n, line) in lines {
            for (at, token) in line.iter().enumerate() {
                let Some(key) = token.quoted() else { continue };
                if self.asked.contains(key) {
                    continue;
                }
                for right in &unused {
                    self.replace_token(Rank::Named, *n, at, &format!("\"{right}\""));
                }
            }
        }
    }

    /// Two arguments in each other's place.
    fn swaps(&mut self) {
        for (n, line) in self.body() {
            for at in 0..line.len() {
                let Some((name, open, comma, close)) = two_arguments(&line, at) else { continue };
                let part = |from: usize, to: usize| joined(line.get(from..to).unwrap_or_default());
                let (first, second) = (part(open + 1, comma), part(comma + 1, close));
                let (first, second) = (first.trim(), second.trim());
                let crossed =
                    self.evidence.functions.iter().find(|function| function.name == name).is_some_and(
                        |callee| {
                            callee.params.first().is_some_and(|param| param == second)
                                || callee.params.get(1).is_some_and(|param| param == first)
                        },
                    );
                let text = format!("{}{second}, {first}{}", part(0, open + 1), part(close, line.len()));
                self.replace(if crossed { Rank::Pointed } else { Rank::Unlikely }, n, &tokens(&text));
            }
        }
    }

    /// Signs, bounds, extremes and returned numbers.
    fn tokens(&mut self) {
        let failure = &self.evidence.failure;
        let (actual, expected) = (failure.actual, failure.expected);
        let more = expected > actual;
        let fitting = |fits: bool| if fits { Rank::Fitting } else { Rank::Possible };
        for (n, line) in self.body() {
            let is_loop = line.iter().any(|token| token.is("for"));
            if is_loop {
                self.range(n, &line);
                continue;
            }
            for (at, token) in line.iter().enumerate() {
                let spaced = at > 0 && line.get(at + 1).is_some_and(|next| next.kind == TokenKind::Space);
                match token.text.as_str() {
                    "<" | "<=" | ">" | ">=" => {
                        let rank = if self.touches(&line, at) { Rank::Pointed } else { Rank::Unlikely };
                        self.replace_token(rank, n, at, other_bound(&token.text));
                    }
                    "-" if spaced => self.replace_token(fitting(more), n, at, "+"),
                    "+" if spaced => {
                        self.replace_token(fitting(more), n, at, "*");
                        self.replace_token(fitting(!more), n, at, "-");
                    }
                    "min" => self.replace_token(fitting(more), n, at, "max"),
                    "max" => self.replace_token(fitting(!more), n, at, "min"),
                    _ => {}
                }
                let returned = line.iter().any(|token| token.is("return"));
                if returned && actual != 0 && number(token) == Some(actual) {
                    self.replace_token(Rank::Pointed, n, at, &expected.to_string());
                }
            }
        }
    }

    /// Returns true if an argument equals the other side of a comparison.
    fn touches(&self, line: &[Token], at: usize) -> bool {
        let mut after = line.iter().skip(at + 1).filter(|token| token.kind != TokenKind::Space);
        let Some(bound) = after.next() else { return false };
        let constant = || self.evidence.constants.iter().find(|constant| bound.is(&constant.name));
        let value = number(bound).or_else(|| constant().map(|constant| constant.value));
        value.is_some() && self.evidence.asked.iter().any(|token| number(token) == value)
    }

    /// The other end of a loop's range.
    fn range(&mut self, n: usize, line: &[Token]) {
        for (at, token) in line.iter().enumerate() {
            match token.text.as_str() {
                ".." => self.replace_token(Rank::Usual, n, at, "..="),
                "..=" => self.replace_token(Rank::Usual, n, at, ".."),
                "<" | "<=" => self.replace_token(Rank::Usual, n, at, other_bound(&token.text)),
                "range" => {
                    let text = joined(line);
                    let other = if text.contains(" + 1)") {
                        text.replace(" + 1)", ")")
                    } else {
                        text.replace("):", " + 1):")
                    };
                    self.replace(Rank::Usual, n, &tokens(&other));
                }
                _ => {}
            }
        }
    }
}

fn other_bound(sign: &str) -> &'static str {
    match sign {
        "<" => "<=",
        "<=" => "<",
        ">" => ">=",
        _ => ">",
    }
}

/// A call of a function, not a method, with two arguments: its name and where its signs are.
fn two_arguments(line: &[Token], at: usize) -> Option<(&str, usize, usize, usize)> {
    let name = line.get(at).filter(|token| token.kind == TokenKind::Name)?;
    let method = at > 0 && line.get(at - 1).is_some_and(|before| before.is("."));
    if method || matches!(name.text.as_str(), "min" | "max" | "range") || !line.get(at + 1)?.is("(") {
        return None;
    }
    let (mut depth, mut commas) = (0, Vec::new());
    for (n, token) in line.iter().enumerate().skip(at + 1) {
        match token.text.as_str() {
            "(" | "[" => depth += 1,
            ")" | "]" => depth -= 1,
            "," if depth == 1 => commas.push(n),
            _ => {}
        }
        if depth == 0 {
            let [comma] = commas.as_slice() else { return None };
            return Some((name.text.as_str(), at + 1, *comma, n));
        }
    }
    None
}

//! One source file with all of its mutants in it.
//!
//! Each place that has mutants asks which one is in force. Where it can, it does so without writing an operand twice
//! (`(a == b) ^ is(7)`), so that places that lie in each other do not multiply. Comments mark the mutant that a text was written for: an
//! error of the compiler is traced back by them.

mod places;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::ops::Range;

use anyhow::{Context as _, Result};

use super::listed::{Genre, Mutant, Place};
pub(crate) use places::Places;
use places::{Arm, Infix, Item, Literal, Prefix, Returned};

/// The function of the woven crate that says whether a mutant is in force.
const IS: &str = "crate::mutant_in_force::is";
/// The iterator of the woven crate that is one of two.
const EITHER: &str = "crate::mutant_in_force::Either";
/// The most text of an operand that is written several times: an expression of many operators in each other
/// grows with each.
const MOST_TEXT: usize = 4 << 20;

/// A file with its mutants.
#[derive(Debug)]
pub(crate) struct Woven {
    pub(crate) text: String,
    /// Those that have to be compiled by themselves.
    pub(crate) apart: Vec<u32>,
    /// Those that never compile.
    pub(crate) unviable: Vec<u32>,
    /// The mutants that share a place, by the first of them.
    pub(crate) places: BTreeMap<u32, Vec<u32>>,
    /// Constants that are used where nothing can be asked.
    pub(crate) fixed: BTreeSet<String>,
}

/// The facts about names in all files of the crate.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// Functions that the compiler has to evaluate.
    pub(crate) kept: BTreeSet<String>,
    /// Constants with uses that can ask.
    pub(crate) asked: BTreeSet<String>,
}

/// The owner of an error of the compiler.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Culprit {
    /// The text of one mutant alone.
    Mutant(u32),
    /// A place, whichever of its mutants it is.
    Place(u32),
    /// A constant, or a use of it.
    Constant(String),
}

/// A place that has mutants, and how it is written.
#[derive(Debug)]
struct Site<'a> {
    range: Range<usize>,
    kind: Kind<'a>,
    mutants: Vec<&'a Mutant>,
}

#[derive(Clone, Debug)]
enum Kind<'a> {
    /// Before the first statement of a body.
    Body,
    /// A whole body, where what it returns is an iterator of some type.
    Iterator,
    /// Behind a constant: its users then ask for the value.
    Item(&'a Item),
    /// The name of such a constant.
    Use,
    /// The word `const` of a function that is made an ordinary one.
    Word,
    /// Between a pattern and its arrow.
    Bare,
    Guard,
    Infix(&'a Infix),
    Prefix(&'a Prefix),
    Literal(&'a Literal),
}

impl Kind<'_> {
    /// Returns the depth: of two with the same range, the lower contains the other.
    fn depth(&self) -> u8 {
        match self {
            Self::Body | Self::Iterator | Self::Item(_) | Self::Word | Self::Bare => 0,
            Self::Guard | Self::Use => 1,
            Self::Infix(_) | Self::Prefix(_) | Self::Literal(_) => 2,
        }
    }
}

/// Weaves the mutants of a file into its text.
///
/// # Errors
///
/// If it is no Rust.
pub(crate) fn weave(text: &str, mutants: &[&Mutant], names: &Names) -> Result<Woven> {
    let places = Places::of(text)?;
    let lines = Lines::of(text);
    let (mut apart, mut unviable) = (Vec::new(), Vec::new());
    let mut sites = Sites::default();
    for mutant in mutants {
        let span = lines.range(mutant).with_context(|| format!("{} lies outside its file", mutant.name))?;
        match found(&places, mutant, &span, names) {
            Weaving::At(range, kind) => sites.at(range, kind).mutants.push(mutant),
            Weaving::Never => unviable.push(mutant.id),
            Weaving::Apart => apart.push(mutant.id),
        }
    }
    let fixed = sites.constants(&places, names);
    for function in places.functions.iter().filter(|function| !names.kept.contains(&function.name)) {
        if sites.0.values().any(|site| function.body.contains(&site.range.start)) {
            sites.at(function.word.clone(), Kind::Word);
        }
    }
    // What lies in another has to come after it; an empty range comes before what begins with it.
    let mut sites: Vec<Site<'_>> = sites.0.into_values().collect();
    sites.sort_by_key(|site| {
        (site.range.start, !site.range.is_empty(), Reverse(site.range.end), site.kind.depth())
    });
    let text = Weaver { text, lines: &lines, sites: &sites }.render(0..text.len(), 0);
    anyhow::ensure!(text.len() <= MOST_TEXT, "the woven file would have {} bytes", text.len());
    let ids = sites.iter().map(|site| site.mutants.iter().map(|mutant| mutant.id).collect::<Vec<_>>());
    let places = ids.filter_map(|ids| Some((*ids.first()?, ids))).collect();
    Ok(Woven { text, apart, unviable, places, fixed })
}

/// The sites of a file, by where they are.
#[derive(Default)]
struct Sites<'a>(BTreeMap<(usize, u8, Reverse<usize>), Site<'a>>);

impl<'a> Sites<'a> {
    fn at(&mut self, range: Range<usize>, kind: Kind<'a>) -> &mut Site<'a> {
        let key = (range.start, kind.depth(), Reverse(range.end));
        self.0.entry(key).or_insert_with(|| Site { range, kind, mutants: Vec::new() })
    }

    /// The constants that are asked for, and their uses; which of them are used where nothing can be asked.
    fn constants(&mut self, places: &'a Places, names: &Names) -> BTreeSet<String> {
        for item in places.items.iter().filter(|item| names.asked.contains(&item.name)) {
            self.at(item.whole.clone(), Kind::Item(item));
        }
        let uses = || places.uses.iter().filter(|used| names.asked.contains(&used.name));
        for used in uses() {
            self.at(used.path.clone(), Kind::Use);
        }
        let fixed = uses().filter(|used| places.is_constant(&used.path, &names.kept));
        fixed.map(|used| used.name.clone()).collect()
    }
}

/// The possibilities for a mutant.
enum Weaving<'a> {
    At(Range<usize>, Kind<'a>),
    Never,
    Apart,
}

fn found<'a>(places: &'a Places, mutant: &Mutant, span: &Range<usize>, names: &Names) -> Weaving<'a> {
    let item = places.items.iter().find(|item| item.value.contains(&span.start));
    let is_asked = item.is_some_and(|item| names.asked.contains(&item.name));
    if !is_asked && places.is_constant(span, &names.kept) {
        return Weaving::Apart;
    }
    match mutant.genre {
        Genre::FnValue => match places.bodies.iter().find(|body| body.inside.contains(&span.start)) {
            Some(body) => match body.returned {
                Returned::Type => Weaving::At(body.begin..body.begin, Kind::Body),
                Returned::Iterator => Weaving::At(body.inside.clone(), Kind::Iterator),
                Returned::Trait => Weaving::Apart,
            },
            None => Weaving::Apart,
        },
        Genre::BinaryOperator => match places.infixes.iter().find(|infix| infix.operator == *span) {
            Some(infix) if infix.has_let => Weaving::Never,
            Some(infix) => Weaving::At(infix.left.start..infix.right.end, Kind::Infix(infix)),
            None => Weaving::Apart,
        },
        Genre::UnaryOperator => {
            match places.prefixes.iter().find(|prefix| prefix.operator.start == span.start) {
                Some(prefix) => Weaving::At(prefix.operator.start..prefix.operand.end, Kind::Prefix(prefix)),
                None => Weaving::Apart,
            }
        }
        Genre::MatchArm => match places.arms.iter().find(|arm| arm.whole.start == span.start) {
            Some(Arm { guard: Some(guard), .. }) => Weaving::At(guard.clone(), Kind::Guard),
            Some(arm) => Weaving::At(arm.pattern_end..arm.pattern_end, Kind::Bare),
            None => Weaving::Apart,
        },
        Genre::MatchArmGuard => {
            match places.arms.iter().find(|arm| arm.guard.as_ref().is_some_and(|guard| guard == span)) {
                Some(_) => Weaving::At(span.clone(), Kind::Guard),
                None => Weaving::Apart,
            }
        }
        Genre::StructField => {
            let holds = |literal: &&Literal| literal.fields.iter().any(|field| field.start == span.start);
            match places.literals.iter().find(holds) {
                Some(literal) => Weaving::At(literal.whole.clone(), Kind::Literal(literal)),
                None => Weaving::Apart,
            }
        }
    }
}

struct Weaver<'a> {
    text: &'a str,
    lines: &'a Lines<'a>,
    /// By where they begin; what holds others comes before them.
    sites: &'a [Site<'a>],
}

impl Weaver<'_> {
    /// A part of the text with the sites from `from` on that lie in it.
    fn render(&self, part: Range<usize>, from: usize) -> String {
        let mut woven = String::new();
        let mut at = part.start;
        for (number, site) in self.sites.iter().enumerate().skip(from) {
            if site.range.start >= part.end && !(site.range.is_empty() && site.range.start == part.end) {
                break;
            }
            let inside = site.range.start >= at && site.range.end <= part.end;
            if inside {
                woven.push_str(self.slice(at..site.range.start));
                woven.push_str(&self.site(number, site));
                at = site.range.end;
            }
        }
        woven.push_str(self.slice(at..part.end));
        woven
    }

    fn slice(&self, range: Range<usize>) -> &str {
        self.text.get(range).unwrap_or_default()
    }

    fn site(&self, number: usize, site: &Site<'_>) -> String {
        let inner = |range: &Range<usize>| self.render(range.clone(), number + 1);
        let woven = match &site.kind {
            Kind::Body => site.mutants.iter().fold(String::new(), |mut all, mutant| {
                let _written = write!(all, "if {} {{ {} }} ", is(mutant), marked(mutant, &returned(mutant)));
                all
            }),
            Kind::Iterator => site.mutants.iter().rev().fold(inner(&site.range), |other, mutant| {
                let (is, one) = (is(mutant), marked(mutant, &mutant.replacement));
                format!("{{ if {is} {{ {EITHER}::One({one}) }} else {{ {EITHER}::Other({other}) }} }}")
            }),
            Kind::Item(item) => {
                let (name, visible) = (&item.name, self.slice(item.visible.clone()));
                let (of, value) = (self.slice(item.of.clone()), inner(&item.value));
                let whole = self.slice(item.whole.clone());
                // A type has the constant's name, too: who imports one imports the other.
                format!(
                    "{whole} /*<u{name}*/#[allow(warnings)] {visible} struct {name} {{}} \
                     impl {name} {{ {visible} fn asked() -> {of} {{ {value} }} }}/*u{name}>*/"
                )
            }
            Kind::Use => {
                let path = self.slice(site.range.clone());
                let name = path.rsplit("::").next().unwrap_or(path);
                format!("/*<u{name}*/{path}::asked()/*u{name}>*/")
            }
            Kind::Word => String::new(),
            Kind::Bare => {
                let none: Vec<String> =
                    site.mutants.iter().map(|mutant| format!("!{}", is(mutant))).collect();
                format!(" if {} ", none.join(" && "))
            }
            Kind::Guard => guard(&site.mutants, &inner(&site.range)),
            Kind::Infix(infix) => self.infix(site, infix, number),
            Kind::Prefix(prefix) => {
                let whole = format!("{}{}", self.slice(prefix.operator.clone()), inner(&prefix.operand));
                chosen(&site.mutants, |_| inner(&prefix.operand), &whole)
            }
            Kind::Literal(literal) => {
                let without = |mutant: &Mutant| {
                    let start = self.lines.range(mutant).map(|span| span.start);
                    let field = literal.fields.iter().find(|field| Some(field.start) == start);
                    field.map_or_else(String::new, |field| {
                        inner(&(literal.whole.start..field.start)) + &inner(&(field.end..literal.whole.end))
                    })
                };
                chosen(&site.mutants, without, &inner(&literal.whole))
            }
        };
        match site.mutants.first() {
            Some(first) => format!("/*<p{0}*/{woven}/*p{0}>*/", first.id),
            None => woven,
        }
    }

    fn infix(&self, site: &Site<'_>, infix: &Infix, number: usize) -> String {
        let inner = |range: &Range<usize>| self.render(range.clone(), number + 1);
        let (left, right) = (inner(&infix.left), inner(&infix.right));
        let operator = self.slice(infix.operator.clone());
        if let [only] = site.mutants.as_slice() {
            let is = is(only);
            match (operator, only.replacement.as_str()) {
                ("==", "!=") | ("!=", "==") => return format!("(({left} {operator} {right}) ^ {is})"),
                ("&&", "||") => {
                    return format!(
                        "({{ let left: bool = {left}; if left == {is} {{ left }} else {{ {right} }} }})"
                    );
                }
                ("||", "&&") => {
                    return format!(
                        "({{ let left: bool = {left}; if left != {is} {{ left }} else {{ {right} }} }})"
                    );
                }
                _ => {}
            }
        }
        let other = |mutant: &Mutant| format!("{left} {} {right}", mutant.replacement);
        chosen(&site.mutants, other, &format!("{left} {operator} {right}"))
    }
}

/// The expression that belongs to whichever mutant is in force, else the real one.
fn chosen(mutants: &[&Mutant], other: impl Fn(&Mutant) -> String, real: &str) -> String {
    let mut woven = String::from("(");
    for mutant in mutants {
        let _written = write!(woven, "if {} {{ {} }} else ", is(mutant), marked(mutant, &other(mutant)));
    }
    let _written = write!(woven, "{{ {real} }})");
    woven
}

/// Weaves a guard that may be always or never true, or an arm that may be left out.
fn guard(mutants: &[&Mutant], real: &str) -> String {
    let value = |mutant: &Mutant| match mutant.genre {
        Genre::MatchArmGuard => mutant.replacement.clone(),
        Genre::FnValue
        | Genre::BinaryOperator
        | Genre::UnaryOperator
        | Genre::MatchArm
        | Genre::StructField => "false".to_owned(),
    };
    chosen(mutants, value, real)
}

fn is(mutant: &Mutant) -> String {
    format!("{IS}({})", mutant.id)
}

fn returned(mutant: &Mutant) -> String {
    format!("return {};", mutant.replacement)
}

fn marked(mutant: &Mutant, text: &str) -> String {
    format!("/*<m{0}*/{text}/*m{0}>*/", mutant.id)
}

/// Returns the owner of the text at a place of a woven file.
pub(crate) fn culprit(woven: &str, at: usize) -> Option<Culprit> {
    let mut open = Vec::new();
    let before = woven.get(..at)?;
    for (start, _) in before.match_indices("/*") {
        let comment = before.get(start + 2..).and_then(|rest| rest.split_once("*/"));
        let Some((comment, _)) = comment else { continue };
        if let Some(opens) = comment.strip_prefix('<') {
            open.extend(marker(opens));
        } else if let Some(closes) = comment.strip_suffix('>')
            && marker(closes).is_some()
        {
            open.pop();
        }
    }
    open.pop()
}

fn marker(text: &str) -> Option<Culprit> {
    let number = || text.get(1..)?.parse().ok();
    match text.as_bytes().first()? {
        b'm' => number().map(Culprit::Mutant),
        b'p' => number().map(Culprit::Place),
        b'u' => text.get(1..).map(|name| Culprit::Constant(name.to_owned())),
        _ => None,
    }
}

/// The beginnings of the lines of a text.
pub(crate) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

impl<'a> Lines<'a> {
    pub(crate) fn of(text: &'a str) -> Self {
        let starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Self { text, starts }
    }

    /// The bytes that a mutant replaces.
    pub(crate) fn range(&self, mutant: &Mutant) -> Option<Range<usize>> {
        Some(self.byte(mutant.start)?..self.byte(mutant.end)?)
    }

    fn byte(&self, place: Place) -> Option<usize> {
        let start = *self.starts.get(place.line.checked_sub(1)?)?;
        let rest = self.text.get(start..)?;
        let column = place.column.checked_sub(1)?;
        let within = rest.char_indices().map(|(at, _)| at).chain([rest.len()]).nth(column)?;
        Some(start + within)
    }
}

#[cfg(test)]
mod tests;

//! The small language as Rust, Python and JavaScript.

use super::Language;
use super::code::{BinaryOp, Cmp, Cond, Constant, Expr, Extreme, Function, Stmt, Type, Value};

impl Language {
    /// A function's or variable's name as this language writes it.
    pub(super) fn name(self, snake: &str) -> String {
        match self {
            Self::Rust | Self::Python => snake.to_owned(),
            Self::JavaScript => {
                let mut words = snake.split('_');
                let first = words.next().unwrap_or_default().to_owned();
                words.fold(first, |name, word| name + &capital(word))
            }
        }
    }

    pub(super) fn constant(self, constant: &Constant) -> String {
        let Constant { name, doc, value } = constant;
        match self {
            Self::Rust => format!("/// {doc}\npub const {name}: i64 = {value};\n"),
            Self::Python => format!("# {doc}\n{name} = {value}\n"),
            Self::JavaScript => format!("// {doc}\nexport const {name} = {value};\n"),
        }
    }

    pub(super) fn function(self, function: &Function, public: bool) -> String {
        let params: Vec<String> =
            function.params.iter().map(|(name, kind)| self.param(name, *kind)).collect();
        let (name, params) = (self.name(&function.name), params.join(", "));
        let doc = &function.doc;
        let body = self.block(&function.body, 1, self == Self::Rust);
        match self {
            Self::Rust => {
                let visible = if public { "pub " } else { "" };
                format!("/// {doc}\n{visible}fn {name}({params}) -> i64 {{\n{body}}}\n")
            }
            Self::Python => format!("def {name}({params}):\n    \"\"\"{doc}\"\"\"\n{body}"),
            Self::JavaScript => {
                let visible = if public { "export " } else { "" };
                format!("/** {doc} */\n{visible}function {name}({params}) {{\n{body}}}\n")
            }
        }
    }

    fn param(self, name: &str, kind: Type) -> String {
        let name = self.name(name);
        match (self, kind) {
            (Self::Python | Self::JavaScript, _) => name,
            (Self::Rust, Type::Int) => format!("{name}: i64"),
            (Self::Rust, Type::Text) => format!("{name}: &str"),
            (Self::Rust, Type::List) => format!("{name}: &[i64]"),
            (Self::Rust, Type::Record) => format!("{name}: &BTreeMap<&str, i64>"),
        }
    }

    /// Lines of a body. `tail`: the last value needs no `return`.
    fn block(self, body: &[Stmt], depth: usize, tail: bool) -> String {
        let last = body.len().saturating_sub(1);
        let lines = body.iter().enumerate().map(|(n, stmt)| self.stmt(stmt, depth, tail && n == last));
        lines.collect()
    }

    fn stmt(self, stmt: &Stmt, depth: usize, tail: bool) -> String {
        let pad = if self == Self::JavaScript { "  ".repeat(depth) } else { "    ".repeat(depth) };
        let end = if self == Self::Python { "" } else { ";" };
        match stmt {
            Stmt::Start(name, expr) => {
                format!("{pad}{}{} = {}{end}\n", self.declare(true), self.name(name), self.top(expr))
            }
            Stmt::Let(name, expr) => {
                format!("{pad}{}{} = {}{end}\n", self.declare(false), self.name(name), self.top(expr))
            }
            Stmt::Add(name, expr) => format!("{pad}{} += {}{end}\n", self.name(name), self.top(expr)),
            Stmt::Return(expr) if tail => format!("{pad}{}\n", self.top(expr)),
            Stmt::Return(expr) => format!("{pad}return {}{end}\n", self.top(expr)),
            Stmt::If(cond, then) => self.nested(&pad, "if", &self.cond(cond), then, depth),
            Stmt::Count { var, to, inclusive, body } => {
                let (var, to) = (self.name(var), self.top(to));
                let head = match (self, inclusive) {
                    (Self::Rust, true) => format!("{var} in 1..={to}"),
                    (Self::Rust, false) => format!("{var} in 1..{to}"),
                    (Self::Python, true) => format!("{var} in range(1, {to} + 1)"),
                    (Self::Python, false) => format!("{var} in range(1, {to})"),
                    (Self::JavaScript, true) => format!("let {var} = 1; {var} <= {to}; {var}++"),
                    (Self::JavaScript, false) => format!("let {var} = 1; {var} < {to}; {var}++"),
                };
                self.nested(&pad, "for", &head, body, depth)
            }
            Stmt::Each { var, list, body } => {
                let (var, list) = (self.name(var), self.name(list));
                let head = match self {
                    Self::Rust => format!("&{var} in {list}"),
                    Self::Python => format!("{var} in {list}"),
                    Self::JavaScript => format!("const {var} of {list}"),
                };
                self.nested(&pad, "for", &head, body, depth)
            }
        }
    }

    const fn declare(self, mutable: bool) -> &'static str {
        match (self, mutable) {
            (Self::Rust, true) => "let mut ",
            (Self::Rust, false) => "let ",
            (Self::Python, _) => "",
            (Self::JavaScript, true) => "let ",
            (Self::JavaScript, false) => "const ",
        }
    }

    fn nested(self, pad: &str, word: &str, head: &str, body: &[Stmt], depth: usize) -> String {
        let body = self.block(body, depth + 1, false);
        match self {
            Self::Rust => format!("{pad}{word} {head} {{\n{body}{pad}}}\n"),
            Self::Python => format!("{pad}{word} {head}:\n{body}"),
            Self::JavaScript => format!("{pad}{word} ({head}) {{\n{body}{pad}}}\n"),
        }
    }

    fn cond(self, cond: &Cond) -> String {
        let cmp = match cond.cmp {
            Cmp::Less => "<",
            Cmp::AtMost => "<=",
            Cmp::More => ">",
            Cmp::AtLeast => ">=",
            Cmp::Equal if self == Self::JavaScript => "===",
            Cmp::Equal => "==",
        };
        format!("{} {cmp} {}", self.top(&cond.left), self.top(&cond.right))
    }

    fn top(self, expr: &Expr) -> String {
        self.expr(expr, 0)
    }

    /// An expression in a place that binds this tightly: 0 not at all, 1 in a sum, 2 in a product, 3 before a dot.
    fn expr(self, expr: &Expr, tight: u8) -> String {
        match expr {
            Expr::Int(value) => value.to_string(),
            Expr::Text(text) => format!("\"{text}\""),
            Expr::Var(name) => self.name(name),
            Expr::Const(name) => name.clone(),
            Expr::Bin(op, left, right) => {
                let (sign, own) = match op {
                    BinaryOp::Add => ("+", 1),
                    BinaryOp::Sub => ("-", 1),
                    BinaryOp::Mul => ("*", 2),
                    BinaryOp::Div if self == Self::JavaScript => {
                        return format!("Math.floor({} / {})", self.expr(left, 2), self.expr(right, 2));
                    }
                    BinaryOp::Div if self == Self::Python => ("//", 2),
                    BinaryOp::Div => ("/", 2),
                };
                let text = format!("{} {sign} {}", self.expr(left, own), self.expr(right, own));
                if tight >= own { format!("({text})") } else { text }
            }
            Expr::Call(name, arguments) => {
                let arguments: Vec<String> = arguments.iter().map(|argument| self.top(argument)).collect();
                format!("{}({})", self.name(name), arguments.join(", "))
            }
            Expr::Pick(extreme, left, right) => {
                let word = match extreme {
                    Extreme::Least => "min",
                    Extreme::Greatest => "max",
                };
                match self {
                    Self::Rust => format!("{}.{word}({})", self.expr(left, 3), self.top(right)),
                    Self::Python => format!("{word}({}, {})", self.top(left), self.top(right)),
                    Self::JavaScript => format!("Math.{word}({}, {})", self.top(left), self.top(right)),
                }
            }
            Expr::Len(list) => match self {
                Self::Rust => format!("({}.len() as i64)", self.name(list)),
                Self::Python => format!("len({})", self.name(list)),
                Self::JavaScript => format!("{}.length", self.name(list)),
            },
            Expr::Key(record, key) => match self {
                Self::Rust => format!("{}.get(\"{key}\").copied().unwrap_or(0)", self.name(record)),
                Self::Python => format!("{}.get(\"{key}\", 0)", self.name(record)),
                Self::JavaScript => format!("({}[\"{key}\"] ?? 0)", self.name(record)),
            },
        }
    }

    /// A value as an argument in a test.
    pub(super) fn value(self, value: &Value) -> String {
        match value {
            Value::Int(value) => value.to_string(),
            Value::Text(text) => format!("\"{text}\""),
            Value::List(items) => {
                let items: Vec<String> = items.iter().map(i64::to_string).collect();
                let borrow = if self == Self::Rust { "&" } else { "" };
                format!("{borrow}[{}]", items.join(", "))
            }
            Value::Record(fields) => {
                let field = |(key, value): &(&str, i64)| match self {
                    Self::Rust => format!("(\"{key}\", {value})"),
                    Self::Python | Self::JavaScript => format!("\"{key}\": {value}"),
                };
                let fields = fields.iter().map(field).collect::<Vec<_>>().join(", ");
                match self {
                    Self::Rust => format!("&BTreeMap::from([{fields}])"),
                    Self::Python => format!("{{{fields}}}"),
                    Self::JavaScript => format!("{{ {fields} }}"),
                }
            }
        }
    }

    /// An assertion that a call gives a value, without indentation and line end.
    pub(super) fn assertion(self, function: &str, arguments: &[Value], expected: i64) -> String {
        let arguments: Vec<String> = arguments.iter().map(|value| self.value(value)).collect();
        let call = format!("{}({})", self.name(function), arguments.join(", "));
        match self {
            Self::Rust => format!("assert_eq!({call}, {expected});"),
            Self::Python => format!("self.assertEqual({call}, {expected})"),
            Self::JavaScript => format!("assert.strictEqual({call}, {expected});"),
        }
    }
}

/// A word with its first letter as a capital.
pub(super) fn capital(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_ascii_uppercase().to_string() + letters.as_str())
}

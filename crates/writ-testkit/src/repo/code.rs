//! The small language that generated functions are made of: its forms and their meaning.
//!
//! A function in it is rendered into each real language, and evaluated here. So the expected values of the generated
//! tests come from the correct function, and a bug is planted only where one of these tests fails because of it.

use std::collections::BTreeMap;

/// A value. Results are integers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Value {
    Int(i64),
    Text(&'static str),
    List(Vec<i64>),
    Record(Vec<(&'static str, i64)>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Type {
    Int,
    Text,
    List,
    Record,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BinaryOp {
    Add,
    Sub,
    Mul,
    /// Integer division. The generated tests divide no negative numbers, since languages round those differently.
    Div,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Extreme {
    Least,
    Greatest,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cmp {
    Less,
    AtMost,
    More,
    AtLeast,
    Equal,
}

/// An expression. Names are in snake case, constants in capitals.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Expr {
    Int(i64),
    Text(&'static str),
    Var(&'static str),
    Const(String),
    Bin(BinaryOp, Box<Expr>, Box<Expr>),
    Call(String, Vec<Expr>),
    Pick(Extreme, Box<Expr>, Box<Expr>),
    /// The length of a list.
    Len(&'static str),
    /// A field of a record; 0 where it has none.
    Key(&'static str, &'static str),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Cond {
    pub(super) cmp: Cmp,
    pub(super) left: Expr,
    pub(super) right: Expr,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Stmt {
    /// Declares a variable that `Add` changes later, so languages with constants declare it as mutable.
    Start(&'static str, Expr),
    Let(&'static str, Expr),
    Add(&'static str, Expr),
    If(Cond, Vec<Stmt>),
    /// A loop over the integers from 1 to a bound.
    Count {
        var: &'static str,
        to: Expr,
        inclusive: bool,
        body: Vec<Stmt>,
    },
    Each {
        var: &'static str,
        list: &'static str,
        body: Vec<Stmt>,
    },
    Return(Expr),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Function {
    pub(super) name: String,
    pub(super) doc: String,
    pub(super) params: Vec<(&'static str, Type)>,
    pub(super) body: Vec<Stmt>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Constant {
    pub(super) name: String,
    pub(super) doc: String,
    pub(super) value: i64,
}

/// A tested function with its helpers, its constants, and arguments to test it with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Unit {
    /// The tested function first, then its helpers.
    pub(super) functions: Vec<Function>,
    pub(super) constants: Vec<Constant>,
    /// Arguments that are worth testing.
    pub(super) samples: Vec<Vec<Value>>,
}

impl Unit {
    pub(super) fn tested(&self) -> Option<&Function> {
        self.functions.first()
    }

    /// Returns the result of the tested function; `None` where it returns nothing or cannot be computed.
    pub(super) fn result(&self, arguments: &[Value]) -> Option<i64> {
        self.call(self.tested()?, arguments.to_vec())
    }

    fn call(&self, function: &Function, arguments: Vec<Value>) -> Option<i64> {
        let names = function.params.iter().map(|(name, _)| *name);
        let mut scope = VariableScope { unit: self, vars: names.zip(arguments).collect() };
        scope.run(&function.body).and_then(|returned| returned)
    }
}

struct VariableScope<'a> {
    unit: &'a Unit,
    vars: BTreeMap<&'static str, Value>,
}

impl VariableScope<'_> {
    /// Runs statements. `None`: one cannot be computed; `Some(None)`: none of them returned.
    fn run(&mut self, body: &[Stmt]) -> Option<Option<i64>> {
        for stmt in body {
            let returned = match stmt {
                Stmt::Start(name, expr) | Stmt::Let(name, expr) => {
                    let value = self.int(expr)?;
                    self.vars.insert(name, Value::Int(value));
                    None
                }
                Stmt::Add(name, expr) => {
                    let value = self.int(&Expr::Var(name))?.checked_add(self.int(expr)?)?;
                    self.vars.insert(name, Value::Int(value));
                    None
                }
                Stmt::If(cond, then) => {
                    if self.holds(cond)? {
                        self.run(then)?
                    } else {
                        None
                    }
                }
                Stmt::Count { var, to, inclusive, body } => {
                    let end = self.int(to)?.checked_add(i64::from(*inclusive))?;
                    self.repeat(var, (1..end).collect(), body)?
                }
                Stmt::Each { var, list, body } => match self.vars.get(list)? {
                    Value::List(items) => self.repeat(var, items.clone(), body)?,
                    Value::Int(_) | Value::Text(_) | Value::Record(_) => return None,
                },
                Stmt::Return(expr) => Some(self.int(expr)?),
            };
            if returned.is_some() {
                return Some(returned);
            }
        }
        Some(None)
    }

    fn repeat(&mut self, var: &'static str, items: Vec<i64>, body: &[Stmt]) -> Option<Option<i64>> {
        for item in items {
            self.vars.insert(var, Value::Int(item));
            if let Some(returned) = self.run(body)? {
                return Some(Some(returned));
            }
        }
        Some(None)
    }

    fn holds(&self, cond: &Cond) -> Option<bool> {
        let (left, right) = (self.value(&cond.left)?, self.value(&cond.right)?);
        let (a, b) = match (&left, &right) {
            (Value::Int(a), Value::Int(b)) => (*a, *b),
            (Value::Text(_), Value::Text(_)) => return (cond.cmp == Cmp::Equal).then_some(left == right),
            _ => return None,
        };
        Some(match cond.cmp {
            Cmp::Less => a < b,
            Cmp::AtMost => a <= b,
            Cmp::More => a > b,
            Cmp::AtLeast => a >= b,
            Cmp::Equal => a == b,
        })
    }

    fn int(&self, expr: &Expr) -> Option<i64> {
        match self.value(expr)? {
            Value::Int(value) => Some(value),
            Value::Text(_) | Value::List(_) | Value::Record(_) => None,
        }
    }

    fn value(&self, expr: &Expr) -> Option<Value> {
        Some(match expr {
            Expr::Int(value) => Value::Int(*value),
            Expr::Text(text) => Value::Text(text),
            Expr::Var(name) => self.vars.get(name)?.clone(),
            Expr::Const(name) => Value::Int(self.unit.constants.iter().find(|c| c.name == *name)?.value),
            Expr::Bin(op, left, right) => {
                let (left, right) = (self.int(left)?, self.int(right)?);
                Value::Int(match op {
                    BinaryOp::Add => left.checked_add(right)?,
                    BinaryOp::Sub => left.checked_sub(right)?,
                    BinaryOp::Mul => left.checked_mul(right)?,
                    BinaryOp::Div => left.checked_div(right)?,
                })
            }
            Expr::Pick(extreme, left, right) => {
                let (left, right) = (self.int(left)?, self.int(right)?);
                Value::Int(match extreme {
                    Extreme::Least => left.min(right),
                    Extreme::Greatest => left.max(right),
                })
            }
            Expr::Call(name, arguments) => {
                let function = self.unit.functions.iter().find(|function| function.name == *name)?;
                let arguments =
                    arguments.iter().map(|argument| self.value(argument)).collect::<Option<_>>()?;
                Value::Int(self.unit.call(function, arguments)?)
            }
            Expr::Len(list) => match self.vars.get(list)? {
                Value::List(items) => Value::Int(i64::try_from(items.len()).ok()?),
                Value::Int(_) | Value::Text(_) | Value::Record(_) => return None,
            },
            Expr::Key(record, key) => match self.vars.get(record)? {
                Value::Record(fields) => {
                    Value::Int(fields.iter().find(|(k, _)| k == key).map_or(0, |(_, v)| *v))
                }
                Value::Int(_) | Value::Text(_) | Value::List(_) => return None,
            },
        })
    }
}

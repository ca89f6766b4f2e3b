//! The functions that generated projects are made of.

use super::code::{BinaryOp, Cmp, Cond, Constant, Expr, Extreme, Function, Stmt, Type, Unit, Value};
use super::rng::Rng;

/// Makes a unit under one of its names.
pub(super) type Template = fn(&mut Rng) -> Unit;

/// Every template.
pub(super) const TEMPLATES: [Template; 12] = [
    surcharge,
    tiers,
    rising_sum,
    volume,
    share,
    bounded,
    count_above,
    duration,
    late_fee,
    weighted,
    pages,
    left_over,
];

fn var(name: &'static str) -> Expr {
    Expr::Var(name)
}

fn constant(name: &str) -> Expr {
    Expr::Const(name.to_owned())
}

fn bin(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr::Bin(op, Box::new(left), Box::new(right))
}

fn pick(extreme: Extreme, left: Expr, right: Expr) -> Expr {
    Expr::Pick(extreme, Box::new(left), Box::new(right))
}

fn when(left: Expr, cmp: Cmp, right: Expr, then: Expr) -> Stmt {
    Stmt::If(Cond { cmp, left, right }, vec![Stmt::Return(then)])
}

fn unit(name: &str, doc: String, params: &[(&'static str, Type)], body: Vec<Stmt>) -> Unit {
    let function = Function { name: name.to_owned(), doc, params: params.to_vec(), body };
    Unit { functions: vec![function], constants: Vec::new(), samples: Vec::new() }
}

impl Unit {
    fn constant(mut self, name: &str, doc: &str, value: i64) -> Self {
        self.constants.push(Constant { name: name.to_owned(), doc: doc.to_owned(), value });
        self
    }

    fn samples(mut self, count: usize, mut sample: impl FnMut(usize) -> Vec<Value>) -> Self {
        self.samples.extend((0..count).map(&mut sample));
        self
    }
}

fn ints<const N: usize>(values: [i64; N]) -> Vec<Value> {
    values.map(Value::Int).to_vec()
}

/// A base price, and more for each unit above a limit.
fn surcharge(rng: &mut Rng) -> Unit {
    let name = rng.word(&["shipping_fee", "baggage_fee", "water_bill", "parking_price", "storage_charge"]);
    let upper = name.to_uppercase();
    let (base, limit, rate) = (format!("{upper}_BASE"), format!("{upper}_LIMIT"), format!("{upper}_RATE"));
    let above = bin(BinaryOp::Mul, bin(BinaryOp::Sub, var("amount"), constant(&limit)), constant(&rate));
    let body = vec![
        when(var("amount"), Cmp::More, constant(&limit), bin(BinaryOp::Add, constant(&base), above)),
        Stmt::Return(constant(&base)),
    ];
    let doc = "The base, and the rate for each unit above the limit.".to_owned();
    let (base_value, limit_value, rate_value) =
        (rng.range(20, 90) * 10, rng.range(10, 40), rng.range(11, 29));
    let amounts: Vec<i64> = [-3, 0, 1, 7].map(|step| limit_value + step).to_vec();
    unit(name, doc, &[("amount", Type::Int)], body)
        .constant(&base, "What is always paid, in cents.", base_value)
        .constant(&limit, "Units that the base covers.", limit_value)
        .constant(&rate, "What each further unit costs, in cents.", rate_value)
        .samples(4, |n| ints([amounts.get(n).copied().unwrap_or(limit_value)]))
}

/// A value for each of some names.
fn tiers(rng: &mut Rng) -> Unit {
    let (name, words): (_, [&'static str; 4]) = match rng.below(4) {
        0 => ("discount_percent", ["bronze", "silver", "gold", "platinum"]),
        1 => ("seat_price", ["balcony", "gallery", "stalls", "box"]),
        2 => ("drying_minutes", ["cotton", "linen", "wool", "silk"]),
        _ => ("loan_days", ["novel", "magazine", "atlas", "film"]),
    };
    let mut values = Vec::new();
    let mut value = rng.range(3, 9);
    for _ in words {
        values.push(value);
        value += rng.range(2, 11);
    }
    let branches = words.iter().zip(&values);
    let mut body: Vec<Stmt> = branches
        .map(|(word, value)| when(var("kind"), Cmp::Equal, Expr::Text(word), Expr::Int(*value)))
        .collect();
    body.push(Stmt::Return(Expr::Int(0)));
    let doc = format!("By kind: {}; 0 for any other.", words.join(", "));
    let mut asked = words.to_vec();
    asked.push("other");
    unit(name, doc, &[("kind", Type::Text)], body)
        .samples(5, |n| vec![Value::Text(asked.get(n).copied().unwrap_or("other"))])
}

/// The sum of a series with as many members as there are days.
fn rising_sum(rng: &mut Rng) -> Unit {
    let name = rng.word(&["training_load", "savings_total", "drill_count", "ramp_output", "reading_goal"]);
    let body = vec![
        Stmt::Start("total", var("start")),
        Stmt::Count {
            var: "day",
            to: var("days"),
            inclusive: true,
            body: vec![Stmt::Add("total", bin(BinaryOp::Mul, var("day"), var("step")))],
        },
        Stmt::Return(var("total")),
    ];
    let doc = "The start, and for each day, the last included, its number times the step.".to_owned();
    let params = [("start", Type::Int), ("days", Type::Int), ("step", Type::Int)];
    unit(name, doc, &params, body).samples(4, |_| ints([rng.range(5, 40), rng.range(3, 9), rng.range(3, 12)]))
}

/// Makes the product of the three fields of a record.
fn volume(rng: &mut Rng) -> Unit {
    let (name, keys, extra): (_, [&'static str; 3], BinaryOp) = match rng.below(4) {
        0 => ("parcel_volume", ["width", "height", "depth"], BinaryOp::Mul),
        1 => ("crate_volume", ["width", "height", "depth"], BinaryOp::Mul),
        2 => ("order_total", ["price", "quantity", "deposit"], BinaryOp::Add),
        _ => ("rental_total", ["price", "quantity", "deposit"], BinaryOp::Sub),
    };
    let [first, second, third] = keys;
    let product = bin(BinaryOp::Mul, Expr::Key("record", first), Expr::Key("record", second));
    let body = vec![Stmt::Return(bin(extra, product, Expr::Key("record", third)))];
    let how = match extra {
        BinaryOp::Add => "and then added",
        BinaryOp::Sub => "and then taken off",
        BinaryOp::Mul | BinaryOp::Div => "and multiplied again",
    };
    let doc = format!("From the fields of a record: {first} times {second}, {how}: {third}.");
    unit(name, doc, &[("record", Type::Record)], body).samples(3, |_| {
        let fields = [(first, rng.range(21, 60)), (second, rng.range(5, 20)), (third, rng.range(2, 9))];
        vec![Value::Record(fields.to_vec())]
    })
}

/// A percentage, computed by a helper.
fn share(rng: &mut Rng) -> Unit {
    let (name, helper) = match rng.below(4) {
        0 => ("completion_rate", "percent_of"),
        1 => ("occupancy_rate", "hundredths"),
        2 => ("attendance_rate", "proportion"),
        _ => ("recycling_rate", "portion_of"),
    };
    let call =
        Expr::Call(helper.to_owned(), vec![bin(BinaryOp::Sub, var("whole"), var("missing")), var("whole")]);
    let body = vec![
        when(var("whole"), Cmp::Equal, Expr::Int(0), Expr::Int(0)),
        Stmt::Return(pick(Extreme::Least, call, Expr::Int(100))),
    ];
    let doc = "What is not missing of the whole, in per cent, 100 at most; 0 of nothing.".to_owned();
    let mut made = unit(name, doc, &[("missing", Type::Int), ("whole", Type::Int)], body);
    made.functions.push(Function {
        name: helper.to_owned(),
        doc: "A part of a whole in per cent, rounded down.".to_owned(),
        params: vec![("part", Type::Int), ("whole", Type::Int)],
        body: vec![Stmt::Return(bin(
            BinaryOp::Div,
            bin(BinaryOp::Mul, var("part"), Expr::Int(100)),
            var("whole"),
        ))],
    });
    made.samples(4, |_| ints([rng.range(3, 30), rng.range(40, 90)]))
}

/// A value between two bounds.
fn bounded(rng: &mut Rng) -> Unit {
    let name = rng.word(&["bounded_level", "safe_speed", "dimmed_light", "legal_bid", "fitted_size"]);
    let inner = pick(Extreme::Least, var("wanted"), var("most"));
    let body =
        vec![Stmt::Let("capped", inner), Stmt::Return(pick(Extreme::Greatest, var("capped"), var("least")))];
    let doc = "What is wanted, but not more than the most and not less than the least.".to_owned();
    let params = [("wanted", Type::Int), ("least", Type::Int), ("most", Type::Int)];
    let (low, high) = (rng.range(5, 20), rng.range(50, 90));
    let wanted = [low - 3, low + 8, high + 11];
    unit(name, doc, &params, body).samples(3, |n| ints([wanted.get(n).copied().unwrap_or(low), low, high]))
}

/// Counts the numbers of a list that reach a limit.
fn count_above(rng: &mut Rng) -> Unit {
    let name = rng.word(&["passing_marks", "busy_hours", "warm_days", "full_trucks", "strong_signals"]);
    let limit = format!("{}_FROM", name.to_uppercase());
    let hit = Cond { cmp: Cmp::AtLeast, left: var("item"), right: constant(&limit) };
    let body = vec![
        Stmt::Start("count", Expr::Int(0)),
        Stmt::Each {
            var: "item",
            list: "items",
            body: vec![Stmt::If(hit, vec![Stmt::Add("count", Expr::Int(1))])],
        },
        Stmt::Return(var("count")),
    ];
    let value = rng.range(20, 70);
    let doc = "How many items reach the bound; one that equals it does.".to_owned();
    unit(name, doc, &[("items", Type::List)], body)
        .constant(&limit, "The bound, which counts itself.", value)
        .samples(3, |n| {
            let near = [value - 5, value, value + 1, value + 30];
            let items = near.iter().cycle().skip(n).take(3 + n).map(|item| item + rng.range(0, 1) * 50);
            vec![Value::List(items.chain([value]).collect())]
        })
}

/// A time in its smallest unit.
fn duration(rng: &mut Rng) -> Unit {
    let (name, per_big, big, per_small, small) = match rng.below(3) {
        0 => ("total_minutes", "HOURS_PER_DAY", 24, "MINUTES_PER_HOUR", 60),
        1 => ("total_ounces", "POUNDS_PER_STONE", 14, "OUNCES_PER_POUND", 16),
        _ => ("total_inches", "YARDS_PER_MILE", 1760, "INCHES_PER_YARD", 36),
    };
    let middle = bin(BinaryOp::Add, bin(BinaryOp::Mul, var("large"), constant(per_big)), var("medium"));
    let body = vec![
        Stmt::Let("medium_total", middle),
        Stmt::Return(bin(
            BinaryOp::Add,
            bin(BinaryOp::Mul, var("medium_total"), constant(per_small)),
            var("little"),
        )),
    ];
    let doc = "Large, medium and little units in little ones.".to_owned();
    let params = [("large", Type::Int), ("medium", Type::Int), ("little", Type::Int)];
    unit(name, doc, &params, body)
        .constant(per_big, "Medium units in a large one.", big)
        .constant(per_small, "Little units in a medium one.", small)
        .samples(3, |_| ints([rng.range(2, 5), rng.range(3, 11), rng.range(1, 13)]))
}

/// Computes the price of being late.
fn late_fee(rng: &mut Rng) -> Unit {
    let name = rng.word(&["late_fee", "overdue_fine", "demurrage", "delay_penalty"]);
    let upper = name.to_uppercase();
    let (grace, rate) = (format!("{upper}_GRACE"), format!("{upper}_RATE"));
    let charged = bin(BinaryOp::Mul, bin(BinaryOp::Sub, var("days"), constant(&grace)), constant(&rate));
    let body = vec![
        when(var("days"), Cmp::AtMost, constant(&grace), Expr::Int(0)),
        Stmt::Let("fee", charged),
        Stmt::Return(pick(Extreme::Least, var("fee"), var("ceiling"))),
    ];
    let (grace_value, rate_value) = (rng.range(2, 6), rng.range(11, 35));
    let days = [grace_value, grace_value + 1, grace_value + 6, grace_value + 40];
    unit(
        name,
        "For each day after the grace, the rate; the ceiling at most.".to_owned(),
        &[("days", Type::Int), ("ceiling", Type::Int)],
        body,
    )
    .constant(&grace, "Days that cost nothing.", grace_value)
    .constant(&rate, "What a day costs, in cents.", rate_value)
    .samples(4, |n| ints([days.get(n).copied().unwrap_or(1), rate_value * 20]))
}

/// A list's total with an extra for each member.
fn weighted(rng: &mut Rng) -> Unit {
    let name = rng.word(&["postage_total", "score_total", "cargo_weight", "recipe_cost", "effort_points"]);
    let body = vec![
        Stmt::Start("total", Expr::Int(0)),
        Stmt::Each {
            var: "item",
            list: "items",
            body: vec![Stmt::Add("total", bin(BinaryOp::Mul, var("item"), var("factor")))],
        },
        Stmt::Return(bin(BinaryOp::Add, var("total"), bin(BinaryOp::Mul, Expr::Len("items"), var("extra")))),
    ];
    let doc = "The items times the factor, and the extra for each of them.".to_owned();
    let params = [("items", Type::List), ("factor", Type::Int), ("extra", Type::Int)];
    unit(name, doc, &params, body).samples(3, |n| {
        let items = (0..n + 3).map(|_| rng.range(4, 19)).collect();
        vec![Value::List(items), Value::Int(rng.range(3, 9)), Value::Int(rng.range(2, 6))]
    })
}

/// Counts the containers that are needed.
fn pages(rng: &mut Rng) -> Unit {
    let name = rng.word(&["page_count", "pallet_count", "batch_count", "bus_count", "shelf_count"]);
    let filled = bin(BinaryOp::Sub, bin(BinaryOp::Add, var("things"), var("room")), Expr::Int(1));
    let body = vec![
        when(var("room"), Cmp::Equal, Expr::Int(0), Expr::Int(0)),
        Stmt::Return(bin(BinaryOp::Div, filled, var("room"))),
    ];
    let doc = "How many of this room hold all things; the last may be partly empty.".to_owned();
    let rooms = [rng.range(6, 9), rng.range(10, 14), rng.range(15, 20)];
    unit(name, doc, &[("things", Type::Int), ("room", Type::Int)], body).samples(4, |n| {
        let room = rooms.get(n % 3).copied().unwrap_or(7);
        ints([room * rng.range(3, 6) + if n == 1 { 0 } else { rng.range(1, room - 1) }, room])
    })
}

/// Computes the rest after some are used and some are reserved.
fn left_over(rng: &mut Rng) -> Unit {
    let name = rng.word(&["free_seats", "spare_beds", "open_slots", "unsold_tickets", "idle_cranes"]);
    let helper = format!("{name}_taken");
    let body = vec![
        Stmt::Let("taken", Expr::Call(helper.clone(), vec![var("groups"), var("reserve")])),
        Stmt::Return(pick(Extreme::Greatest, bin(BinaryOp::Sub, var("all"), var("taken")), Expr::Int(0))),
    ];
    let doc = "Of all, what the groups and the reserve leave; never less than nothing.".to_owned();
    let mut made =
        unit(name, doc, &[("all", Type::Int), ("groups", Type::Int), ("reserve", Type::Int)], body);
    made.functions.push(Function {
        name: helper,
        doc: "Groups have four members; the reserve is counted as it is.".to_owned(),
        params: vec![("groups", Type::Int), ("reserve", Type::Int)],
        body: vec![Stmt::Return(bin(
            BinaryOp::Add,
            bin(BinaryOp::Mul, var("groups"), Expr::Int(4)),
            var("reserve"),
        ))],
    });
    made.samples(3, |n| {
        ints([rng.range(60, 90) - if n == 2 { 55 } else { 0 }, rng.range(5, 9), rng.range(2, 4)])
    })
}

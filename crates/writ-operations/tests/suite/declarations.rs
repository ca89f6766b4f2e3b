//! Files of operations, and what is wrong with them.

use writ_operations::PersonalKind;

use super::*;

/// A file with one statement, in its third line, over the table `orders`.
fn statement(sql: &str) -> Vec<(usize, String)> {
    let quoted = toml_text(sql);
    load(&format!(
        "name = \"x\"\n[target.sql]\nstatement = {quoted}\ndatabase = \"shop\"\ntables.orders = {{ customer = \"customer_id\", case = \"case_id\" }}\n"
    ))
}

fn toml_text(text: &str) -> String {
    Value::from(text).to_string()
}

/// Statements that would get around the scope, or do something else, are refused with their line.
///
/// Rows: SLO-063
#[test]
fn a_statement_has_one_form() {
    for (sql, says) in [
        ("", "empty"),
        ("nonsense", "no SQL"),
        ("SELECT id FROM orders; DELETE FROM orders", "more than one statement"),
        ("SELECT * FROM orders", "with *"),
        ("SELECT orders.* FROM orders", "with *"),
        ("SELECT name FROM customers", "'customers' has no scope column"),
        ("SELECT id FROM ORDERS", "'ORDERS' has no scope column"),
        ("SELECT id FROM public.orders", "has a schema"),
        ("SELECT id FROM main.orders", "has a schema"),
        ("SELECT id FROM orders UNION SELECT name FROM customers", "'customers'"),
        ("SELECT id FROM orders WHERE id IN (SELECT id FROM customers)", "'customers'"),
        ("SELECT (SELECT max(name) FROM customers) AS n FROM orders", "'customers'"),
        ("WITH orders AS (SELECT 1 AS id) SELECT id FROM orders", "WITH"),
        ("WITH RECURSIVE r AS (SELECT 1 AS id) SELECT id FROM r", "WITH"),
        ("WITH d AS (DELETE FROM orders RETURNING id) SELECT id FROM d", "WITH"),
        ("SELECT pg_read_file('/etc/passwd') AS x FROM orders", "'pg_read_file'"),
        ("SELECT load_extension('x') AS x FROM orders", "'load_extension'"),
        ("SELECT readfile('/etc/passwd') AS x FROM orders", "'readfile'"),
        ("SELECT pg_sleep(100) AS x FROM orders", "'pg_sleep'"),
        ("SELECT randomblob(1000000000) AS x FROM orders", "'randomblob'"),
        ("SELECT query_to_xml('select 1', true, true, '') AS x FROM orders", "'query_to_xml'"),
        ("SELECT pg_catalog.lower(id) AS x FROM orders", "'pg_catalog.lower'"),
        ("SELECT id FROM pg_ls_dir('/')", "no table or subquery"),
        ("SELECT id FROM orders, LATERAL (SELECT 1 AS b) AS c", "no table or subquery"),
        ("SELECT 'x'::regclass AS x FROM orders", "expression"),
        ("SELECT CAST('x' AS regclass) AS x FROM orders", "CAST to"),
        ("SELECT id FROM orders FOR UPDATE", "not supported"),
        ("SELECT id INTO evil FROM orders", "not supported"),
        ("SELECT id FROM orders TABLESAMPLE SYSTEM (1)", ""),
        ("SELECT row_number() OVER () AS x FROM orders", "'row_number'"),
        ("SELECT count(*) FILTER (WHERE id > 1) AS x FROM orders", "filter"),
        ("SELECT sum(id) OVER () AS x FROM orders", "window"),
        ("SELECT 'a\\' AS x FROM orders", "value"),
        ("SELECT E'a' AS x FROM orders", "value"),
        ("SELECT $$a$$ AS x FROM orders", "value"),
        ("SELECT id FROM orders WHERE id = $1", "placeholder"),
        ("SELECT id FROM orders WHERE id = ?", "placeholder"),
        ("SELECT id FROM orders WHERE id = :missing", "':missing'"),
        ("SELECT id FROM orders AS writ_1", "'writ_1'"),
        ("SELECT id FROM (SELECT id FROM orders) AS orders", "name of a table"),
        ("SELECT id FROM `orders`", "the name"),
        ("SELECT id, id FROM orders", "same name"),
        ("SELECT id + 1 FROM orders", "no name"),
        ("SELECT id FROM orders NATURAL JOIN orders AS o", "NATURAL"),
        ("SELECT DISTINCT ON (id) id FROM orders", "DISTINCT ON"),
        ("VALUES (1)", "no SELECT"),
        ("TABLE orders", ""),
        ("UPDATE orders SET customer_id = 8", "scope column"),
        ("UPDATE orders SET \"CASE_ID\" = 8", "scope column"),
        ("UPDATE orders AS o SET note = 'x'", "alias"),
        ("UPDATE orders SET note = 'x' FROM customers", "more than SET"),
        ("UPDATE OR REPLACE orders SET note = 'x'", ""),
        ("UPDATE orders SET (note, id) = (1, 2)", "several columns"),
        ("UPDATE orders SET note = 'x' RETURNING lower(note) AS n", "RETURNING"),
        ("DELETE FROM orders USING customers", "joins"),
        ("INSERT INTO orders VALUES (1)", "without column names"),
        ("INSERT INTO orders (id, customer_id) VALUES (1, 8)", "scope column"),
        ("INSERT INTO orders (id) VALUES (1, 2)", "as many"),
        ("INSERT INTO orders (id) VALUES (1) ON CONFLICT (id) DO UPDATE SET note = 'x'", "replaces"),
        ("INSERT OR REPLACE INTO orders (id) VALUES (1)", "replaces"),
        ("REPLACE INTO orders (id) VALUES (1)", "replaces"),
        ("INSERT INTO orders (id) SELECT id FROM orders UNION SELECT 1", "combined"),
        ("INSERT INTO orders DEFAULT VALUES", "without column names"),
        ("MERGE INTO orders USING orders AS o ON true WHEN MATCHED THEN DELETE", "no SELECT"),
        ("CREATE TABLE x (id int)", "no SELECT"),
        ("DROP TABLE orders", "no SELECT"),
        ("COPY orders TO '/tmp/x'", "no SELECT"),
        ("ATTACH DATABASE 'x' AS y", "no SELECT"),
        ("PRAGMA table_info(orders)", ""),
        ("CALL f()", "no SELECT"),
        ("EXPLAIN SELECT id FROM orders", "no SELECT"),
    ] {
        let errors = statement(sql);
        assert!(errors.iter().any(|(line, what)| *line == 3 && what.contains(says)), "{sql}: {errors:?}");
    }
    let deep = format!("SELECT id FROM orders WHERE {}1{} = 1", "(".repeat(500), ")".repeat(500));
    assert_eq!(statement(&deep).len(), 1);
    assert!(
        statement(&format!("SELECT id FROM orders WHERE note = '{}'", "x".repeat(20_000)))[0]
            .1
            .contains("too long")
    );
}

/// Ids of the scope are personal wherever they are read, also where that is not declared.
///
/// Rows: SLO-028 (in part: ids)
#[test]
fn ids_of_the_scope_are_personal_undeclared() {
    let kinds = |sql: &str, personal: &str| {
        let folder = TempDir::new().expect("a folder");
        let text = format!(
            "name = \"x\"\n[target.sql]\ndatabase = \"shop\"\nstatement = {}\ntables.orders = {{ customer = \"customer_id\", case = \"case_id\" }}\n{personal}",
            toml_text(sql)
        );
        std::fs::write(folder.path().join("a.toml"), text).expect("a file");
        let set = OperationSet::load(folder.path()).unwrap_or_else(|errors| panic!("{sql}: {errors:#?}"));
        let operation = set.get("x").expect("an operation");
        operation.result_columns().iter().map(|(_, kind)| *kind).collect::<Vec<_>>()
    };
    let (customer, case) = (Some(PersonalKind::Customer), Some(PersonalKind::Case));
    for (sql, expected) in [
        ("SELECT customer_id, id, case_id AS c FROM orders", vec![customer, None, case]),
        ("SELECT o.\"CUSTOMER_ID\" AS a FROM orders AS o", vec![customer]),
        ("SELECT CAST((customer_id) AS TEXT) AS a FROM orders", vec![customer]),
        ("SELECT d.a AS b FROM (SELECT customer_id AS a, id FROM orders) AS d", vec![customer]),
        ("SELECT (SELECT customer_id FROM orders LIMIT 1) AS a, id FROM orders", vec![customer, None]),
        (
            "SELECT id FROM orders AS o WHERE EXISTS (SELECT 1 FROM orders AS p WHERE p.customer_id = o.customer_id)",
            vec![None],
        ),
        ("SELECT customer_id FROM orders UNION SELECT customer_id FROM orders", vec![customer]),
        (
            "SELECT count(customer_id) AS n, customer_id IS NULL AS b, customer_id = '7' AS c FROM orders",
            vec![None; 3],
        ),
        ("UPDATE orders SET note = 'x' RETURNING customer_id, note", vec![customer, None]),
        ("INSERT INTO orders (id) VALUES (1) RETURNING case_id", vec![case]),
    ] {
        assert_eq!(kinds(sql, ""), expected, "{sql}");
    }
    assert_eq!(kinds("SELECT customer_id AS a FROM orders", "[personal]\na = \"text\"\n"), [customer]);
    assert_eq!(
        kinds("SELECT customer_id AS a FROM orders", "[personal]\na = \"number\"\n"),
        [Some(PersonalKind::Number)]
    );
    for made in [
        "SELECT 'no. ' || customer_id AS a FROM orders",
        "SELECT max(customer_id) AS a FROM orders",
        "SELECT (SELECT o.customer_id || note FROM orders AS p LIMIT 1) AS a FROM orders AS o",
        "SELECT CASE WHEN id = 1 THEN customer_id ELSE note END AS a FROM orders",
        "SELECT id AS a FROM orders UNION SELECT customer_id FROM orders",
    ] {
        let errors = statement(made);
        assert!(
            errors.iter().any(|(line, what)| *line == 3 && what.contains("made of the id")),
            "{made}: {errors:?}"
        );
    }
    assert_eq!(
        kinds("SELECT max(customer_id) AS a FROM orders", "[personal]\na = \"customer\"\n"),
        [customer]
    );
}

/// What is allowed, with comments, which say nothing.
#[test]
fn plain_statements_are_taken() {
    for sql in [
        "SELECT id FROM orders",
        "select Id, \"note\" AS n from orders -- all",
        "SELECT /* ; DROP TABLE orders */ id FROM orders;",
        "SELECT o.id AS a, COUNT(DISTINCT o.note) AS b FROM orders o LEFT JOIN orders AS p ON p.id = o.id AND NOT p.id <> 3 GROUP BY o.id HAVING count(*) > 1 ORDER BY 1 DESC NULLS LAST LIMIT 5 OFFSET 2",
        "SELECT CASE WHEN id BETWEEN 1 AND 2 THEN 'a''b' ELSE NULL END AS x, CAST(id AS TEXT) AS y, coalesce(note, '') || '!' AS z FROM orders",
        "SELECT d.n AS n FROM (SELECT count(*) AS n FROM orders) AS d",
        "SELECT id FROM orders WHERE note NOT LIKE 'a%' AND id NOT IN (1, -2, +3) AND note IS NOT NULL",
        "UPDATE orders SET note = 'x', refunded = refunded * 2 WHERE id = 5 RETURNING id, note",
        "DELETE FROM orders WHERE id IN (SELECT id FROM orders WHERE note IS NULL)",
        "INSERT INTO orders (id, note) VALUES (1, 'x'), (2, NULL)",
        "SELECT current_timestamp AS now, CURRENT_DATE AS day FROM orders",
    ] {
        assert_eq!(statement(sql), [], "{sql}");
    }
}

/// Every mistake of every file is shown, by file and line.
#[test]
fn mistakes_are_shown_with_their_lines() {
    let sql =
        "target.sql = { database = \"d\", statement = \"SELECT id FROM t\", tables.t.customer = \"c\" }";
    let lines = |text: &str| load(text);
    let has = |text: &str, line: usize, says: &str| {
        let errors = lines(text);
        assert!(errors.iter().any(|(at, what)| *at == line && what.contains(says)), "{text}: {errors:?}");
    };
    has("name = \"x\"\nnmae = 1\n", 2, "nmae");
    has("name = \"x\n", 1, "");
    has("name = \"x\"\n", 1, "target");
    has("name = \"x\"\n[target]\n", 2, "no target");
    has(&format!("name = \"x y\"\n{sql}"), 1, "no name");
    has(&format!("name = \"x\"\nparameters.a = {{}}\n{sql}"), 2, "'a' is not used");
    for own in ["customer", "case_token", "idempotency_key"] {
        has(&format!("name = \"x\"\nparameters.{own} = {{}}\n{sql}"), 2, "proxy's own");
    }
    has(
        &format!("name = \"x\"\nparameters.a = {{ role = \"amount\", type = \"number\" }}\n{sql}"),
        2,
        "no integer",
    );
    has(
        &format!("name = \"x\"\nparameters.a = {{ role = \"amount\", optional = true }}\n{sql}"),
        2,
        "optional",
    );
    has(&format!("name = \"x\"\nparameters.a = {{ role = \"scope\" }}\n{sql}"), 2, "scope");
    has(&format!("name = \"x\"\nparameters.a = {{ pattern = \"(\" }}\n{sql}"), 2, "pattern");
    has(&format!("name = \"x\"\nparameters.a = {{ max_bytes = 1000000 }}\n{sql}"), 2, "bounds");
    let one_row = sql.replace("target.sql = {", "target.sql = { one_row = true,");
    has(&format!("name = \"x\"\n{one_row}"), 2, "one_row without a parameter");
    has(&format!("name = \"x\"\n{sql}\n[personal]\nnote = \"text\"\n"), 4, "no column 'note'");
    has(&format!("name = \"x\"\n{sql}\n[personal]\nid = \"secret\"\n"), 4, "secret");
    has(&format!("name = \"x\"\nidempotency = \"k\"\n{sql}"), 2, "does not reach");
    has(
        "name = \"x\"\ntarget.sql.database = \"d\"\ntarget.sql.statement = \"SELECT id FROM t\"\ntarget.sql.tables.t = {}\n",
        4,
        "no scope column",
    );
    has(
        "name = \"x\"\ntarget.sql.database = \"d\"\ntarget.sql.statement = \"SELECT id FROM t\"\ntarget.sql.tables.t.case = \"c\"\n",
        4,
        "no scope column",
    );
    let two =
        format!("name = \"x\"\n{sql}\ntarget.http = {{ api = \"a\", method = \"GET\", path = \"/\" }}\n");
    assert!(load(&two).iter().any(|(_, what)| what.contains("more than one target")), "{:?}", load(&two));
    let http = |path: &str, more: &str| {
        load(&format!(
            "name = \"x\"\n[target.http]\napi = \"a\"\nmethod = \"POST\"\npath = \"{path}\"\n{more}\n"
        ))
    };
    for (path, more, says) in [
        ("/v1/orders", "", "which customer"),
        ("/v1/{customer}/{order}", "", "'{order}'"),
        ("v1/{customer}", "", "begin with"),
        ("https://evil.example/{customer}", "", "begin with"),
        ("/{customer}/../admin", "", "characters"),
        ("/{customer}?admin=1", "", "characters"),
        ("/{customer}", "body = { a = \"{b\" }", "'{'"),
        ("/{customer}", "result = { a = \"b\" }", "JSON pointer"),
    ] {
        let errors = http(path, more);
        assert!(errors.iter().any(|(_, what)| what.contains(says)), "{path} {more}: {errors:?}");
    }
    let mail = |to: &str, rest: &str| {
        load(&format!(
            "name = \"x\"\n[target.mail]\nserver = \"s\"\nto = {{ database = \"d\", table = \"c\", {to}email = \"e\" }}\n{rest}"
        ))
    };
    let one = "[target.mail.templates.a]\nsubject = \"s\"\nbody = \"b\"\n";
    for (to, rest, says) in [
        ("", one.to_owned(), "no scope column"),
        ("customer = \"id\", ", String::new(), "templates"),
        (
            "customer = \"id\", ",
            format!("{one}[target.mail.templates.b]\nsubject = \"s\"\nbody = \"b\"\n"),
            "nothing chooses",
        ),
        ("customer = \"id\", ", one.replace("\"b\"", "\"{customer.card}\""), "'{customer.card}'"),
        ("customer = \"id\", ", one.replace("\"s\"", "\"a\\nBcc: x\""), "one line"),
    ] {
        let errors = mail(to, &rest);
        assert!(errors.iter().any(|(_, what)| what.contains(says)), "{to} {rest}: {errors:?}");
    }
    let folder = TempDir::new().expect("a folder");
    for (name, text) in [
        ("a.toml", format!("name = \"x\"\n{sql}")),
        ("b.toml", format!("\nname = \"x\"\n{sql}")),
        ("c.toml", "\n\n]".to_owned()),
        (".d.toml", "]".to_owned()),
    ] {
        std::fs::write(folder.path().join(name), text).expect("a file");
    }
    std::fs::write(folder.path().join("e.toml"), b"name = \"x\"\n\xff").expect("a file");
    let errors = OperationSet::load(folder.path()).expect_err("errors");
    let shown: Vec<(&str, usize)> = errors
        .iter()
        .map(|error| (error.file.file_name().and_then(|name| name.to_str()).expect("a name"), error.line))
        .collect();
    assert_eq!(shown, [("b.toml", 2), ("c.toml", 3), ("e.toml", 2)]);
    assert_eq!(load_folder(&folder.path().join("absent")).len(), 1);
}

/// Values are checked, and written in one form.
#[test]
fn parameters_are_checked() {
    let folder = TempDir::new().expect("a folder");
    let text = r#"
name = "x"
parameters.text = { min_bytes = 2, max_bytes = 4, pattern = "[a-z]+", optional = true }
parameters.amount = { role = "amount", minimum = 1, maximum = 500 }
parameters.kind = { enum = ["a", "b"], role = "value" }
parameters.rate = { type = "number", maximum = 2, optional = true }
parameters.flag = { type = "boolean", optional = true }
target.sql = { database = "d", statement = "SELECT id FROM t WHERE a = :text AND b = :amount AND c = :kind AND d = :rate AND e = :flag", tables.t.customer = "c" }
personal = { id = "customer" }
"#;
    std::fs::write(folder.path().join("a.toml"), text).expect("a file");
    let set = OperationSet::load(folder.path()).unwrap_or_else(|errors| panic!("{errors:?}"));
    let operation = set.get("x").expect("an operation");
    assert_eq!(operation.amount_parameters().collect::<Vec<_>>(), ["amount"]);
    assert_eq!(
        operation.personal_columns().collect::<Vec<_>>(),
        [("id", writ_operations::PersonalKind::Customer)]
    );
    let check = |value: Value| operation.check_parameters(&object(value)).map_err(|error| error.to_string());
    let good = json!({ "amount": 500, "kind": "a", "text": "ab", "rate": 1.50, "flag": true, "customer_token": "c", "case_token": "d" });
    let checked = check(good).expect("good").into_iter().collect::<Vec<_>>();
    let expected = [
        ("amount", "500"),
        ("case_token", "d"),
        ("customer_token", "c"),
        ("flag", "true"),
        ("kind", "a"),
        ("rate", "1.5"),
        ("text", "ab"),
    ];
    assert_eq!(checked, expected.map(|(a, b)| (a.to_owned(), b.to_owned())));
    for (changed, says) in [
        (json!({ "amount": 501 }), "'amount' is out of its range"),
        (json!({ "amount": 0 }), "out of its range"),
        (json!({ "amount": "5" }), "no whole number"),
        (json!({ "amount": 5.5 }), "no whole number"),
        (json!({ "amount": null }), "no whole number"),
        (json!({ "amount": 1e40 }), "no whole number"),
        (json!({ "kind": "c" }), "allowed values"),
        (json!({ "text": "abcde" }), "more than 4"),
        (json!({ "text": "a" }), "fewer than 2"),
        (json!({ "text": "ab\n" }), "form"),
        (json!({ "text": "a\u{0}" }), "zero byte"),
        (json!({ "text": ["ab"] }), "no text"),
        (json!({ "rate": 2.1 }), "out of its range"),
        (json!({ "flag": 1 }), "true or false"),
        (json!({ "other": 1 }), "none of this operation"),
        (json!({ "customer_token": 5 }), "no token"),
    ] {
        let mut value = object(json!({ "amount": 1, "kind": "a" }));
        value.extend(object(changed.clone()));
        let error = check(Value::Object(value)).expect_err("refused");
        assert!(error.contains(says), "{changed}: {error}");
    }
    assert_eq!(check(json!({ "kind": "a" })), Err("the parameter 'amount' is missing".to_owned()));
    // The digest is that of the files.
    let before = set.digest();
    std::fs::write(folder.path().join("a.toml"), format!("{text}\n# more")).expect("a file");
    assert_ne!(OperationSet::load(folder.path()).expect("a set").digest(), before);
}

/// Targets are read with their mistakes; a secret is in no error.
#[test]
fn configurations_are_checked() {
    let read = |text: &str| {
        let secrets = |name: &str| (name == "planted").then(|| SecretString::from("pl4nted"));
        TargetsConfig::read_text(Path::new("/etc/writ/proxy.toml"), text, &secrets)
    };
    for (text, says) in [
        ("\ndatabases.a = { kind = \"mysql\", host = \"h\" }", "2: 'a': MySQL is not supported"),
        ("databases.a = { kind = \"oracle\" }", "no kind"),
        ("databases.a = { kind = \"sqlite\" }", "a path"),
        ("databases.a = { kind = \"sqlite\", path = \"x\", user = \"u\" }", "nothing else"),
        ("databases.a = { kind = \"postgres\", database = \"d\", user = \"u\" }", "a host or a socket"),
        (
            "databases.a = { kind = \"postgres\", database = \"d\", user = \"u\", host = \"h\", password = \"hunter2\" }",
            "does not exist",
        ),
        (
            "databases.a = { kind = \"postgres\", database = \"d\", user = \"u\", host = \"h\", schema = \"a b\" }",
            "schema",
        ),
        ("databases.a = { kind = \"postgres\", hots = \"d\" }", "hots"),
        ("apis.a = { url = \"http://api.example\" }", "not private"),
        ("apis.a = { url = \"https://u:p@api.example\" }", "address"),
        ("apis.a = { url = \"https://api.example\", header = \"a b\" }", "header"),
        ("mail.a = { server = \"h:25\", tls = \"none\", from = \"a@b.example\" }", "not private"),
        ("mail.a = { server = \"h:25\", tls = \"starttls\", from = \"a\" }", "no address"),
        (
            "mail.a = { server = \"h:25\", tls = \"starttls\", from = \"a@b.example\", user = \"u\" }",
            "not both",
        ),
        ("time_limit_secs = 0", "out of its range"),
    ] {
        let errors = read(text).expect_err("errors");
        let shown = errors.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
        assert!(shown.contains(says) && !shown.contains("hunter2"), "{text}: {shown}");
    }
    let good = "databases.a = { kind = \"postgres\", host = \"h\", database = \"d\", user = \"u\", password = \"planted\" }\n\
                apis.b = { url = \"https://api.example\", credential = \"planted\" }\n\
                mail.c = { server = \"m.example:587\", tls = \"starttls\", user = \"u\", password = \"planted\", from = \"a@b.example\" }";
    let config = read(good).expect("a configuration");
    assert!(!format!("{config:?}").contains("pl4nted"));
}

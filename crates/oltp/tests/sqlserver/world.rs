//! A server that holds what it is sent: enough of a database for a build, a run and a check. It runs no SQL: it knows the
//! statements, and any other fails the test.

use std::collections::BTreeMap;

use super::server::{Acts, Answer, error, given, nothing, number, rows, text};
use super::words::{self, Bulk, Call, Column, Told, Type, Value, column};

const TABLES: &str = include_str!("../../sql/sqlserver_tables.sql");

pub struct World {
    /// Rows of the tables that there are.
    pub tables: BTreeMap<String, Vec<Vec<Value>>>,
    columns: BTreeMap<String, Vec<Column>>,
    pub marker: Option<String>,
    pub procedures: Vec<String>,
    /// What `Batch Requests/sec` counts.
    batches: i64,
    /// New orders in all.
    orders: i64,
    /// The next so many new orders are victims of a deadlock.
    pub deadlocks: u32,
    /// Items that there are.
    items: i64,
}

impl World {
    pub fn new(items: i64) -> Self {
        Self {
            tables: BTreeMap::new(),
            columns: BTreeMap::new(),
            marker: None,
            procedures: Vec::new(),
            batches: 0,
            orders: 0,
            deadlocks: 0,
            items,
        }
    }

    fn create(&mut self, sql: &str) {
        for (name, columns) in tables(sql) {
            self.tables.insert(name.clone(), Vec::new());
            self.columns.insert(name, columns);
        }
    }

    fn drop(&mut self, names: &str) {
        let names = names.split(',').map(str::trim);
        names.for_each(|name| drop(self.tables.remove(name)));
    }

    /// What a number is, if the statement asks for one.
    fn number_of(&self, sql: &str) -> Option<i64> {
        if let Some(rest) = sql.strip_prefix("SELECT count(*) FROM sys.tables WHERE name = '") {
            let name = rest.strip_suffix('\'').expect("a name");
            return Some(self.tables.contains_key(name).into());
        }
        let known = [
            ("SELECT @@SPID", 51),
            ("SELECT @@MAX_CONNECTIONS", 32767),
            ("SELECT count(*) - 1 FROM sys.dm_exec_sessions", 0),
            ("SELECT CAST(SERVERPROPERTY('ProcessID') AS int)", 1),
            (
                "SELECT max(cntr_value) FROM sys.dm_os_performance_counters",
                self.batches,
            ),
            (
                "SELECT sum(CAST(d_next_o_id AS bigint)) FROM district",
                self.orders,
            ),
            (
                "SELECT sum(CAST(len(filler) AS bigint)) FROM ashlar_scan",
                self.letters(),
            ),
            ("SELECT coalesce(max(counted), 0) FROM ashlar_scan_rows", 0),
            // Conditions, and what was acknowledged: nothing is missing.
            ("SELECT count(*) FROM ", 0),
            ("WITH told(", 0),
        ];
        let found = known.iter().find(|(begins, _)| sql.starts_with(begins));
        found.map(|(_, value)| *value)
    }

    fn letters(&self) -> i64 {
        let rows = self.tables.get("ashlar_scan").into_iter().flatten();
        let letters = rows.flatten().map(|value| match value {
            Value::Text(text) => text.len() as i64,
            _ => 0,
        });
        letters.sum()
    }

    fn new_order(&mut self, call: &Call) -> Answer {
        if self.deadlocks > 0 {
            self.deadlocks -= 1;
            let told = Told {
                code: 1205,
                class: 13,
                text: "deadlock victim".into(),
                procedure: call.name.clone(),
            };
            return error(words::DONE_PROC, &told);
        }
        let Some((_, Value::Text(lines))) = call.values.last() else {
            panic!("{call:?}");
        };
        let columns = [column("o_id", Type::Int { is_null: true })];
        let is_missing = lines.contains(&format!("[{},", self.items + 1));
        if is_missing {
            return given(&columns, &[Value::Int(0)]);
        }
        self.orders += 1;
        given(&columns, &[Value::Int(self.orders)])
    }
}

/// Statements that give nothing.
const GIVE_NOTHING: [&str; 4] = [
    "CREATE INDEX ",
    "UPDATE STATISTICS ",
    "INSERT BULK ",
    "INSERT INTO ",
];

impl Acts for World {
    fn batch(&mut self, sql: &str) -> Answer {
        self.batches += 1;
        if let Some(found) = self.number_of(sql) {
            return number(found);
        }
        if sql == "SELECT name FROM sys.tables WHERE is_ms_shipped = 0" {
            let names = self.tables.keys();
            let names: Vec<_> = names.map(|name| vec![Value::Text(name.clone())]).collect();
            return rows(&[column("name", Type::NVarChar(128))], &names);
        }
        if let Some(table) = sql.strip_prefix("SELECT TOP 0 * FROM ") {
            return rows(&self.columns[table], &[]);
        }
        if sql.contains("max(marker)") {
            return text(self.marker.as_deref());
        }
        if sql.starts_with("SELECT physical_name FROM sys.database_files") {
            return text(Some("/var/opt/mssql/data/tpcc.mdf"));
        }
        if sql.starts_with("SELECT CAST(SERVERPROPERTY") || sql.starts_with("SELECT CAST((SELECT ")
        {
            return text(Some("15"));
        }
        if sql.contains("CREATE OR ALTER PROCEDURE") {
            self.procedures.push(sql.to_owned());
            return nothing();
        }
        let lines = sql.lines().filter(|line| !line.starts_with("--"));
        let sql = lines.collect::<Vec<_>>().join("\n");
        for statement in sql.split(';').map(str::trim) {
            match statement.strip_prefix("DROP TABLE IF EXISTS ") {
                Some(names) => self.drop(names),
                None if statement.contains("CREATE TABLE ") => {
                    self.create(&format!("{statement};"))
                }
                None => {
                    let is_known = GIVE_NOTHING
                        .iter()
                        .any(|begin| statement.starts_with(begin));
                    assert!(is_known || statement.is_empty(), "not known: {statement}");
                }
            }
        }
        nothing()
    }

    fn call(&mut self, call: &Call) -> Answer {
        self.batches += 1;
        let int = Type::Int { is_null: true };
        match &*call.name {
            "sp_executesql" => {
                let [(_, Value::Text(sql)), _, (_, Value::Text(marker))] = &call.values[..] else {
                    panic!("{call:?}");
                };
                assert_eq!(sql, "INSERT INTO ashlar_oltp VALUES (@P1)");
                self.marker = Some(marker.clone());
                let mut data = Vec::new();
                words::done_in_proc(&mut data, 1);
                words::return_status(&mut data);
                words::done(&mut data, words::DONE_PROC, 0);
                Answer::Tokens(data)
            }
            "ashlar_new_order" => self.new_order(call),
            "ashlar_payment" => given(&[column("c_id", int)], &[Value::Int(1)]),
            "ashlar_order_status" | "ashlar_stock_level" => {
                given(&[column("o_id", int)], &[Value::Int(1)])
            }
            "ashlar_delivery" => {
                let done = Value::Text("1 2101 ".into());
                given(&[column("done", Type::VarChar(200))], &[done])
            }
            other => panic!("no procedure {other}"),
        }
    }

    fn bulk(&mut self, bulk: Bulk) -> Answer {
        let names = |columns: &[Column]| -> Vec<String> {
            columns.iter().map(|column| column.name.clone()).collect()
        };
        let sent = names(&bulk.columns);
        let tables = self.columns.iter();
        let found = tables.clone().find(|(_, columns)| names(columns) == sent);
        let (table, columns) = found.expect("columns of a table");
        let types = |columns: &[Column]| columns.iter().map(|c| c.of).collect::<Vec<_>>();
        assert_eq!(types(&bulk.columns), types(columns), "{table}");
        let count = bulk.rows.len() as u64;
        let rows = self.tables.get_mut(table).expect("a table");
        rows.extend(bulk.rows);
        let mut data = Vec::new();
        words::done(&mut data, words::DONE, count);
        Answer::Tokens(data)
    }
}

/// Tables with their columns, from statements that create them.
pub fn tables(sql: &str) -> Vec<(String, Vec<Column>)> {
    let creates = sql.split("CREATE TABLE ").skip(1);
    creates
        .map(|text| {
            let (name, rest) = text.split_once('(').expect("columns");
            let end = rest.rfind(')').expect("an end");
            let columns = top_level(&rest[..end]);
            let columns = columns
                .iter()
                .filter(|text| !text.starts_with("PRIMARY KEY"));
            (
                name.trim().to_owned(),
                columns.map(|text| parsed(text)).collect(),
            )
        })
        .collect()
}

/// Parts between commas that are in no brackets.
fn top_level(text: &str) -> Vec<String> {
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for letter in text.chars() {
        depth += match letter {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        match (letter, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().expect("a part").push(letter),
        }
    }
    parts.iter().map(|part| part.trim().to_owned()).collect()
}

/// `d_tax decimal(4,4) NOT NULL`
fn parsed(text: &str) -> Column {
    let mut words = text.split_whitespace();
    let (name, of) = (words.next().expect("a name"), words.next().expect("a type"));
    let is_null = !text.contains("NOT NULL");
    let (kind, rest) = of.split_once('(').unwrap_or((of, ""));
    let sizes = rest.trim_end_matches(')').split(',');
    let sizes: Vec<u16> = sizes.filter_map(|size| size.parse().ok()).collect();
    let of = match (kind, &sizes[..]) {
        ("int" | "integer", []) => Type::Int { is_null },
        ("bigint", []) => Type::BigInt,
        ("decimal", [precision, scale]) => Type::Decimal {
            precision: *precision as u8,
            scale: *scale as u8,
        },
        ("char", [length]) => Type::Char(*length),
        ("varchar", [length]) => Type::VarChar(*length),
        ("datetime2", [digits]) => Type::Moment {
            digits: *digits as u8,
        },
        other => panic!("a type that no table of ours has: {other:?}"),
    };
    column(name, of)
}

#[test]
fn the_schema_has_the_tables_of_tpcc() {
    use ashlar_oltp::schema::Table;

    let found: BTreeMap<String, Vec<Column>> = tables(TABLES).into_iter().collect();
    assert_eq!(found.len(), 10, "nine tables and the marker's");
    for table in Table::ALL {
        assert_eq!(found[table.name()].len(), table.columns(), "{table:?}");
    }
}

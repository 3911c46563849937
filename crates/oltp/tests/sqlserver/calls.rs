//! Transactions as calls: what the server is sent, and what becomes of its answers.

use ashlar_oltp::SqlServer;
use ashlar_oltp::database::{Database, Failure, Outcome, Session};
use ashlar_oltp::inputs::{Line, NewOrder, Payment, Place, Transaction, Who};

use super::server::{Acts, Answer, Asked, Server, error, given};
use super::words::{self, Call, Column, Told, Type, Value, column};

/// Answers calls from a list, the first one first.
#[derive(Default)]
struct Listed(Vec<Answer>);

impl Acts for Listed {
    fn call(&mut self, call: &Call) -> Answer {
        assert!(!self.0.is_empty(), "no answer for {call:?}");
        self.0.remove(0)
    }
}

const HERE: Place = Place {
    warehouse: 7,
    district: 3,
};

fn order() -> Transaction {
    let line = |item, supply, quantity| Line {
        item,
        supply,
        quantity,
    };
    Transaction::NewOrder(NewOrder {
        place: HERE,
        customer: 42,
        lines: vec![line(9, 7, 5), line(10, 8, 1)],
        rolls_back: false,
    })
}

fn ordered(number: i64) -> Answer {
    let columns = [
        column("o_id", Type::Int { is_null: true }),
        column("c_last", Type::VarChar(16)),
        column("c_credit", Type::Char(2)),
    ];
    let text = |text: &str| Value::Text(text.into());
    given(
        &columns,
        &[Value::Int(number), text("BARBARBAR"), text("GC")],
    )
}

fn told(code: u32, class: u8, text: &str) -> Told {
    Told {
        code,
        class,
        text: text.to_owned(),
        procedure: "ashlar_new_order".to_owned(),
    }
}

fn session(answers: Vec<Answer>) -> (Server<Listed>, Box<dyn Session>) {
    let server = Server::start(Listed(answers));
    let database = SqlServer::new(&server.url()).expect("a URL");
    let session = database.session().expect("logged in");
    server.asked();
    (server, session)
}

/// Runs a transaction that is answered so; what the server was sent, and how it ended.
fn run(transaction: &Transaction, answer: Answer) -> (Call, Result<Outcome, Failure>) {
    let (server, mut session) = session(vec![answer]);
    let outcome = session.run(transaction);
    let asked = server.asked();
    let [Asked::Call(call)] = &asked[..] else {
        panic!("{asked:?}");
    };
    (call.clone(), outcome)
}

fn call(name: &str, values: &[(&str, Value)]) -> Call {
    let values = values.iter();
    Call {
        name: name.to_owned(),
        values: values
            .map(|(name, value)| ((*name).to_owned(), value.clone()))
            .collect(),
    }
}

fn int(value: i64) -> Value {
    Value::Int(value)
}

#[test]
fn a_new_order_is_one_call_and_gives_its_number() {
    let (sent, outcome) = run(&order(), ordered(3001));
    let lines = Value::Text("[[9,7,5],[10,8,1]]".into());
    let expected = [
        ("@w", int(7)),
        ("@d", int(3)),
        ("@c", int(42)),
        ("@lines", lines),
    ];
    assert_eq!(sent, call("ashlar_new_order", &expected));
    assert_eq!(outcome, Ok(Outcome::Ordered(3001)));
    let (_, outcome) = run(&order(), ordered(0));
    assert_eq!(outcome, Ok(Outcome::RolledBack));
}

#[test]
fn a_payment_tells_cents_as_a_decimal_and_names_or_numbers_its_customer() {
    let payment = |who, cents| {
        Transaction::Payment(Payment {
            place: HERE,
            home: Place {
                warehouse: 8,
                district: 10,
            },
            who,
            cents,
        })
    };
    let columns = [column("c_id", Type::Int { is_null: true })];
    let by_name = payment(Who::Last("BARBARBAR".into()), 123_405);
    let (sent, outcome) = run(&by_name, given(&columns, &[int(99)]));
    let amount = |units| Value::Decimal { units, scale: 2 };
    let expected = |number, last, units| {
        [
            ("@w", int(7)),
            ("@d", int(3)),
            ("@c_w", int(8)),
            ("@c_d", int(10)),
            ("@c", number),
            ("@last", last),
            ("@amount", amount(units)),
        ]
    };
    let last = Value::Text("BARBARBAR".into());
    assert_eq!(
        sent,
        call("ashlar_payment", &expected(Value::Null, last, 123_405))
    );
    assert_eq!(outcome, Ok(Outcome::Paid(99)));
    let by_number = payment(Who::Number(5), 100);
    let (sent, outcome) = run(&by_number, given(&columns, &[Value::Null]));
    assert_eq!(
        sent,
        call("ashlar_payment", &expected(int(5), Value::Null, 100))
    );
    assert_eq!(outcome, Ok(Outcome::Committed), "no customer has the name");
}

#[test]
fn the_other_three_are_one_call_each() {
    let who = Who::Number(5);
    // Three results, the first of which is empty.
    let mut data = Vec::new();
    let columns = [column("o_id", Type::Int { is_null: false })];
    for rows in [0, 1, 2] {
        words::columns(&mut data, &columns);
        (0..rows).for_each(|_| words::row(&mut data, &columns, &[int(1)]));
        words::done_in_proc(&mut data, rows);
    }
    words::return_status(&mut data);
    words::done(&mut data, words::DONE_PROC, 0);
    let status = Transaction::OrderStatus { place: HERE, who };
    let (sent, outcome) = run(&status, Answer::Tokens(data));
    let expected = [
        ("@w", int(7)),
        ("@d", int(3)),
        ("@c", int(5)),
        ("@last", Value::Null),
    ];
    assert_eq!(sent, call("ashlar_order_status", &expected));
    assert_eq!(outcome, Ok(Outcome::Committed));

    let delivery = Transaction::Delivery {
        warehouse: 7,
        carrier: 4,
    };
    let columns = [column("done", Type::VarChar(200))];
    let text = Value::Text("1 2101 10 7 ".into());
    let (sent, outcome) = run(&delivery, given(&columns, &[text]));
    assert_eq!(
        sent,
        call("ashlar_delivery", &[("@w", int(7)), ("@carrier", int(4))])
    );
    let mut orders = [None; 10];
    (orders[0], orders[9]) = (Some(2101), Some(7));
    assert_eq!(outcome, Ok(Outcome::Delivered(orders)));

    let level = Transaction::StockLevel {
        place: HERE,
        threshold: 15,
    };
    let columns = [column("low", Type::Int { is_null: true })];
    let (sent, outcome) = run(&level, given(&columns, &[int(3)]));
    let expected = [("@w", int(7)), ("@d", int(3)), ("@threshold", int(15))];
    assert_eq!(sent, call("ashlar_stock_level", &expected));
    assert_eq!(outcome, Ok(Outcome::Committed));
}

#[test]
fn a_deadlock_is_tried_again_on_the_same_connection() {
    let text = "Transaction (Process ID 51) was deadlocked on lock resources with another process and has been chosen \
                as the deadlock victim. Rerun the transaction.";
    let victim = error(words::DONE_PROC, &told(1205, 13, text));
    let (server, mut session) = session(vec![victim, ordered(3002)]);
    let failure = session.run(&order()).expect_err("a deadlock");
    assert_eq!(
        failure,
        Failure::Retry(format!("{text} (1205, ashlar_new_order line 7)"))
    );
    assert_eq!(session.run(&order()), Ok(Outcome::Ordered(3002)));
    let asked = server.asked();
    assert!(
        matches!(&asked[..], [Asked::Call(one), Asked::Call(other)] if one == other),
        "{asked:?}"
    );
}

#[test]
fn errors_are_told_apart_by_what_becomes_of_the_session() {
    let is_error = |failure: &Failure| matches!(failure, Failure::Error(_));
    let is_lost = |failure: &Failure| matches!(failure, Failure::Lost(_));
    let is_retry = |failure: &Failure| matches!(failure, Failure::Retry(_));
    type Is = fn(&Failure) -> bool;
    let cases: [(u32, u8, Is); 6] = [
        (2627, 14, is_error),
        (1222, 16, is_retry),
        (3960, 16, is_retry),
        (9002, 17, is_lost),
        (596, 21, is_lost),
        (823, 24, is_lost),
    ];
    for (code, class, is_so) in cases {
        let answer = error(words::DONE_PROC, &told(code, class, "no"));
        let (_, outcome) = run(&order(), answer);
        let failure = outcome.expect_err("an error");
        assert!(is_so(&failure), "{code}: {failure:?}");
    }
}

#[test]
fn a_connection_that_dies_in_an_answer_is_lost() {
    let Answer::Tokens(whole) = ordered(3001) else {
        panic!("tokens");
    };
    let whole = words::packets(&whole);
    // Nothing, a part of a header, of a column, all but one.
    for cut in [0, 5, 60, whole.len() - 1] {
        let (_, outcome) = run(&order(), Answer::Last(whole[..cut].to_vec()));
        let failure = outcome.expect_err("cut off");
        assert!(matches!(failure, Failure::Lost(_)), "{cut}: {failure:?}");
    }
}

#[test]
fn an_answer_of_another_type_is_no_panic() {
    let columns: [Column; 1] = [column("o_id", Type::VarChar(10))];
    let answer = given(&columns, &[Value::Text("3001".into())]);
    let (_, outcome) = run(&order(), answer);
    assert!(matches!(outcome, Err(Failure::Lost(_))), "{outcome:?}");
}

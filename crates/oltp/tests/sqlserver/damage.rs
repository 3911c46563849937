//! Answers that no server gives: an error each, whatever they are.

use ashlar_oltp::SqlServer;
use ashlar_oltp::database::{Database, Session};
use ashlar_oltp::inputs::{Place, Transaction};
use ashlar_oltp::random::Rng;
use ashlar_oltp::schema::State;

use super::server::{Acts, Answer, Server, error, given, lock, rows};
use super::words::{self, Call, Login, Told, Type, Value, column};

/// Gives the same bytes to everything after the login, and to that if told so.
struct Same {
    bytes: Vec<u8>,
    at_login: bool,
}

impl Same {
    fn answer(&self) -> Answer {
        Answer::Last(self.bytes.clone())
    }
}

impl Acts for Same {
    fn log_in(&mut self, login: &Login) -> Answer {
        match self.at_login {
            true => self.answer(),
            false => Answer::Tokens(words::welcome(&login.database)),
        }
    }

    fn batch(&mut self, _: &str) -> Answer {
        self.answer()
    }

    fn call(&mut self, _: &Call) -> Answer {
        self.answer()
    }
}

/// Answers that are right, in packets.
fn right_ones() -> Vec<Vec<u8>> {
    let name = || Value::Text("orders".into());
    let told = Told {
        code: 1205,
        class: 13,
        text: "deadlock victim".into(),
        procedure: "ashlar_delivery".into(),
    };
    let columns = [
        column("done", Type::VarChar(200)),
        column("a", Type::Int { is_null: true }),
        column("b", Type::BigInt),
    ];
    let answers = [
        rows(&[column("name", Type::NVarChar(128))], &[vec![name()]]),
        given(
            &columns,
            &[Value::Text("1 2 ".into()), Value::Null, Value::Int(9)],
        ),
        error(words::DONE_PROC, &told),
    ];
    let mut bytes: Vec<Vec<u8>> = answers
        .into_iter()
        .filter_map(|answer| match answer {
            Answer::Tokens(data) => Some(data),
            _ => None,
        })
        .collect();
    bytes.push(words::welcome("tpcc"));
    bytes.iter().map(|data| words::packets(data)).collect()
}

/// A right answer with some bytes changed, left out or put in, or bytes that are none.
fn damaged(right: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut below = |end: usize| rng.within(0, end.max(1) as i32 - 1) as usize;
    let mut bytes = right[below(right.len())].clone();
    if below(8) == 0 {
        let noise: Vec<u8> = (0..1 + below(200)).map(|_| below(256) as u8).collect();
        return words::packets(&noise);
    }
    for _ in 0..1 + below(4) {
        let at = below(bytes.len());
        match below(4) {
            0 => bytes[at] = below(256) as u8,
            1 => bytes[at] = [0, 1, 0x7f, 0x80, 0xff][below(5)],
            2 => drop(bytes.drain(at..)),
            _ => bytes.insert(at, below(256) as u8),
        }
        if bytes.is_empty() {
            bytes.push(below(256) as u8);
        }
    }
    bytes
}

const DELIVERY: Transaction = Transaction::Delivery {
    warehouse: 1,
    carrier: 1,
};
const LEVEL: Transaction = Transaction::StockLevel {
    place: Place {
        warehouse: 1,
        district: 1,
    },
    threshold: 10,
};

#[test]
fn no_answer_makes_a_panic() {
    let (right, mut rng) = (right_ones(), Rng::stream(9, &[1]));
    let server = Server::start(Same {
        bytes: Vec::new(),
        at_login: false,
    });
    let database = SqlServer::new(&server.url()).expect("a URL");
    let (mut errors, mut well) = (0, 0);
    let mut count = |is_well: bool| match is_well {
        true => well += 1,
        false => errors += 1,
    };
    for round in 0..3000 {
        *lock(&server.acts) = Same {
            bytes: damaged(&right, &mut rng),
            at_login: round % 4 == 0,
        };
        match round % 4 {
            0 | 1 => count(database.state().is_ok()),
            2 => count(ran(&database, &DELIVERY)),
            _ => count(ran(&database, &LEVEL)),
        }
    }
    // Some damage is none: a letter of a text.
    assert!(errors > 1500 && well > 100, "{errors} errors, {well} well");
}

fn ran(database: &SqlServer, transaction: &Transaction) -> bool {
    let session = database.session();
    session.is_ok_and(|mut session: Box<dyn Session>| session.run(transaction).is_ok())
}

#[test]
fn what_is_no_sql_server_is_told_so() {
    let page: &[u8] = b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n";
    for said in [page, b"SSH-2.0-OpenSSH_9.2\r\n", &[4, 1, 0, 7], &[0; 64]] {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let serve = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a client");
            std::io::Write::write_all(&mut stream, said).expect("said");
            // What the client says is read, so that it is not told of a reset.
            let mut all = Vec::new();
            let _ = stream.shutdown(std::net::Shutdown::Write);
            let _ = std::io::Read::read_to_end(&mut stream, &mut all);
        });
        let url = format!("sqlserver://sa:s3cret@127.0.0.1:{port}/tpcc");
        let error = SqlServer::new(&url).expect("a URL").state();
        let text = error.expect_err("no SQL Server").to_string();
        assert!(
            text.contains("does not speak TDS") || text.contains("closed the connection"),
            "{text}"
        );
        serve.join().expect("served");
    }
}

/// The answer to a batch that Microsoft publishes (MS-TDS 4.7): one row of one column `bar`, which is `foo`.
const PUBLISHED: [u8; 51] = [
    0x04, 0x01, 0x00, 0x33, 0x00, 0x00, 0x01, 0x00, 0x81, 0x01, 0x00, 0x00, 0x00, 0x00, 0x00, 0x20,
    0x00, 0xa7, 0x03, 0x00, 0x09, 0x04, 0xd0, 0x00, 0x34, 0x03, 0x62, 0x00, 0x61, 0x00, 0x72, 0x00,
    0xd1, 0x03, 0x00, 0x66, 0x6f, 0x6f, 0xfd, 0x10, 0x00, 0xc1, 0x00, 0x01, 0x00, 0x00, 0x00, 0x00,
    0x00, 0x00, 0x00,
];

struct Published;

impl Acts for Published {
    fn batch(&mut self, _: &str) -> Answer {
        Answer::Raw(PUBLISHED.to_vec())
    }
}

#[test]
fn the_published_answer_to_a_batch_is_read_and_is_how_ours_are_written() {
    let server = Server::start(Published);
    let database = SqlServer::new(&server.url()).expect("a URL");
    assert_eq!(database.state(), Ok(State::Foreign(vec!["foo".into()])));
    let text = Value::Text("foo".into());
    let Answer::Tokens(ours) = rows(&[column("bar", Type::VarChar(3))], &[vec![text]]) else {
        panic!("tokens");
    };
    // But for the column's flags: it is computed there.
    let mut theirs = PUBLISHED[8..].to_vec();
    theirs[7] = ours[7];
    assert_eq!(ours, theirs);
}

//! A server that speaks TDS and knows what a test tells it. It keeps what it was asked.

use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use super::words::{self, Bulk, Call, Column, Login, Told, Type, Value, column};

/// What a server was asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    Hello(Vec<(u8, Vec<u8>)>),
    Login(Login),
    Batch(String),
    Call(Call),
    /// Rows of a bulk insert, and in how many packets they came.
    Bulk {
        rows: usize,
        packets: usize,
    },
}

/// What it does then.
pub enum Answer {
    /// Data of a message.
    Tokens(Vec<u8>),
    /// Bytes as they are.
    Raw(Vec<u8>),
    /// The same, and then it is gone.
    Last(Vec<u8>),
}

/// What a test wants.
pub trait Acts: Send + 'static {
    fn encryption(&self) -> u8 {
        2
    }

    fn log_in(&mut self, login: &Login) -> Answer {
        Answer::Tokens(words::welcome(&login.database))
    }

    fn batch(&mut self, sql: &str) -> Answer {
        panic!("no batch was expected: {sql}");
    }

    fn call(&mut self, call: &Call) -> Answer {
        panic!("no call was expected: {call:?}");
    }

    fn bulk(&mut self, rows: Bulk) -> Answer {
        panic!("no rows were expected: {}", rows.rows.len());
    }
}

/// A server, until it is dropped.
pub struct Server<A> {
    port: u16,
    pub acts: Arc<Mutex<A>>,
    asked: Arc<Mutex<Vec<Asked>>>,
    is_over: Arc<AtomicBool>,
    listener: Option<JoinHandle<()>>,
}

impl<A: Acts> Server<A> {
    pub fn start(acts: A) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bound");
        let port = listener.local_addr().expect("an address").port();
        let acts = Arc::new(Mutex::new(acts));
        let (asked, is_over) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let (served, told, ends) = (Arc::clone(&acts), Arc::clone(&asked), Arc::clone(&is_over));
        let serve = move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let (acts, asked) = (Arc::clone(&served), Arc::clone(&told));
                let stream = stream.expect("a client");
                std::thread::spawn(move || serve(stream, &acts, &asked));
            }
        };
        Self {
            port,
            acts,
            asked,
            is_over,
            listener: Some(std::thread::spawn(serve)),
        }
    }

    pub fn url(&self) -> String {
        format!("sqlserver://sa:s3cret@127.0.0.1:{}/tpcc", self.port)
    }

    /// What it was asked since the last time.
    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut lock(&self.asked))
    }

    /// The same, of batches only.
    pub fn batches(&self) -> Vec<String> {
        let batch = |asked| match asked {
            Asked::Batch(sql) => Some(sql),
            _ => None,
        };
        self.asked().into_iter().filter_map(batch).collect()
    }
}

impl<A> Drop for Server<A> {
    fn drop(&mut self) {
        self.is_over.store(true, Ordering::SeqCst);
        let address = ([127, 0, 0, 1], self.port).into();
        // It looks whether it is over when the next client comes.
        let _ = TcpStream::connect_timeout(&address, Duration::from_secs(1));
        if let Some(listener) = self.listener.take() {
            let _ = listener.join();
        }
    }
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves a client until one of both has had enough. What it must not ask fails the test: it gets no answer.
fn serve<A: Acts>(mut stream: TcpStream, acts: &Mutex<A>, asked: &Mutex<Vec<Asked>>) {
    stream.set_nodelay(true).expect("set");
    while let Ok(Some(message)) = words::read_message(&mut stream) {
        let answer = answer(message, acts, asked);
        let sent = match &answer {
            Answer::Tokens(data) => words::write(&mut stream, data),
            Answer::Raw(bytes) => stream.write_all(bytes),
            Answer::Last(bytes) => {
                let _ = stream.write_all(bytes);
                return;
            }
        };
        if sent.is_err() {
            return;
        }
    }
}

fn answer<A: Acts>(message: words::Message, acts: &Mutex<A>, asked: &Mutex<Vec<Asked>>) -> Answer {
    let keep = |what| lock(asked).push(what);
    let data = &message.data;
    match message.kind {
        words::HELLO => {
            keep(Asked::Hello(words::hello_options(data)));
            Answer::Tokens(words::hello(lock(acts).encryption()))
        }
        words::LOGIN => {
            let login = Login::read(data);
            keep(Asked::Login(login.clone()));
            lock(acts).log_in(&login)
        }
        words::BATCH => {
            let mut reader = words::Reader(data);
            reader.headers();
            let sql = words::utf16(reader.0);
            keep(Asked::Batch(sql.clone()));
            lock(acts).batch(&sql)
        }
        words::CALL => {
            let call = Call::read(data);
            keep(Asked::Call(call.clone()));
            lock(acts).call(&call)
        }
        words::BULK => {
            let bulk = Bulk::read(data);
            keep(Asked::Bulk {
                rows: bulk.rows.len(),
                packets: message.packets,
            });
            lock(acts).bulk(bulk)
        }
        other => panic!("a message {other} that no client of ours sends"),
    }
}

/// A batch's answer: rows of these columns.
pub fn rows(columns: &[Column], rows: &[Vec<Value>]) -> Answer {
    let mut data = Vec::new();
    words::columns(&mut data, columns);
    for values in rows {
        words::row(&mut data, columns, values);
    }
    words::done(&mut data, words::DONE, rows.len() as u64);
    Answer::Tokens(data)
}

/// The same: one number.
pub fn number(value: i64) -> Answer {
    rows(&[column("", Type::BigInt)], &[vec![Value::Int(value)]])
}

/// The same: one text, or null.
pub fn text(value: Option<&str>) -> Answer {
    let value = value.map_or(Value::Null, |text| Value::Text(text.to_owned()));
    rows(&[column("", Type::NVarChar(4000))], &[vec![value]])
}

/// A batch's answer that gives nothing.
pub fn nothing() -> Answer {
    let mut data = Vec::new();
    words::done(&mut data, words::DONE, 0);
    Answer::Tokens(data)
}

/// A procedure's answer: one row, in a transaction that it has committed.
pub fn given(columns: &[Column], values: &[Value]) -> Answer {
    let mut data = Vec::new();
    words::transaction(&mut data, 8);
    words::transaction(&mut data, 9);
    words::columns(&mut data, columns);
    words::row(&mut data, columns, values);
    words::done_in_proc(&mut data, 1);
    words::return_status(&mut data);
    words::done(&mut data, words::DONE_PROC, 0);
    Answer::Tokens(data)
}

/// An answer that is an error, of a batch or a procedure.
pub fn error(token: u8, told: &Told) -> Answer {
    let mut data = Vec::new();
    words::error(&mut data, told);
    words::failed(&mut data, token);
    Answer::Tokens(data)
}

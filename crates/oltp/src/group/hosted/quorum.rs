//! Locks the group's etcd, which is open when it starts, and sees that nothing was put into it before.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ashlar_lab::{LabError, Progress};
use serde_json::{Value, json};

use super::super::http::{Answer, post};
use super::LOOK_EVERY;

/// etcd's own superuser.
pub(super) const ETCD_USER: &str = "root";
/// etcd has a leader within so long, on a busy machine.
const ETCD_WITHIN: Duration = Duration::from_secs(60);
/// What was done already: of a question that was answered too late, or by another, which is found at the end.
const DONE_BEFORE: [&str; 2] = ["already exists", "user name is empty"];

/// A member of etcd, and who it is to obey alone.
pub(super) struct Quorum<'a> {
    pub(super) at: SocketAddr,
    pub(super) password: &'a str,
    pub(super) progress: &'a Progress,
    /// What the group's programs say for themselves if it does not answer.
    pub(super) last_words: &'a dyn Fn() -> String,
}

/// A question to it.
struct Question<'a> {
    path: &'a str,
    /// By what one who has entered is known.
    token: Option<&'a str>,
    body: &'a Value,
}

impl Quorum<'_> {
    /// From now on etcd answers only those who have the password.
    ///
    /// # Errors
    /// It does not answer in time; or another has reached it first, and has left a user or a key.
    pub(super) fn lock(&self) -> Result<(), LabError> {
        let is_done = |answer: &Answer| {
            answer.status == 200 || DONE_BEFORE.iter().any(|said| answer.body.contains(said))
        };
        let password = self.password;
        let user = json!({"name": ETCD_USER, "password": password});
        for (path, body) in [
            ("/v3/auth/user/add", &user),
            ("/v3/auth/role/add", &json!({"name": ETCD_USER})),
            (
                "/v3/auth/user/grant",
                &json!({"user": ETCD_USER, "role": ETCD_USER}),
            ),
            ("/v3/auth/enable", &json!({})),
        ] {
            self.ask(&open(path, body), &is_done)?;
        }
        self.check(&user)
    }

    /// Nothing is in it but what is ours.
    fn check(&self, user: &Value) -> Result<(), LabError> {
        let is_told = |answer: &Answer| answer.status == 200 || answer.status == 400;
        let entered = self.ask(&open("/v3/auth/authenticate", user), &is_told)?;
        let Some(token) = entered["token"].as_str() else {
            let why = entered["message"].as_str().unwrap_or("no token");
            return Err(self.is_not_ours(&format!("it does not take our password: {why}")));
        };
        let ask = |path: &str, body: &Value| {
            let token = Some(token);
            self.ask(&Question { path, token, body }, &|answer| {
                answer.status == 200
            })
        };
        let listed = ask("/v3/auth/user/list", &json!({}))?;
        if listed["users"] != json!([ETCD_USER]) {
            return Err(self.is_not_ours(&format!("its users are {}", listed["users"])));
        }
        // From the first key to the last.
        let all = json!({"key": "AA==", "range_end": "AA==", "count_only": true});
        match ask("/v3/kv/range", &all)?["count"].as_str() {
            None | Some("0") => Ok(()),
            Some(count) => Err(self.is_not_ours(&format!("it has {count} keys"))),
        }
    }

    fn is_not_ours(&self, found: &str) -> LabError {
        LabError::environment(format!(
            "etcd at {}: another has reached it before it was locked: {found}",
            self.at
        ))
    }

    /// Asks until it is done; what was answered.
    fn ask(
        &self,
        question: &Question<'_>,
        is_done: &dyn Fn(&Answer) -> bool,
    ) -> Result<Value, LabError> {
        let Question { path, token, body } = *question;
        let body = body.to_string();
        let begun = Instant::now();
        loop {
            self.progress.go_on()?;
            let said = match post(self.at, token, path, &body) {
                Ok(answer) if is_done(&answer) => {
                    let named =
                        |error| LabError::caused(format!("etcd at {}, {path}", self.at), error);
                    return serde_json::from_str(object(&answer.body)).map_err(named);
                }
                Ok(answer) => answer.body,
                Err(error) => error.to_string(),
            };
            if begun.elapsed() > ETCD_WITHIN {
                return Err(LabError::environment(format!(
                    "etcd at {}, {path}: {}{}",
                    self.at,
                    said.trim(),
                    (self.last_words)()
                )));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }
}

/// What is in an answer's body, which has lengths around it if it was sent in pieces: a refusal is, in one.
fn object(body: &str) -> &str {
    match (body.find('{'), body.rfind('}')) {
        (Some(from), Some(to)) if from < to => &body[from..=to],
        _ => body,
    }
}

/// One of those that everyone may ask who comes first.
fn open<'a>(path: &'a str, body: &'a Value) -> Question<'a> {
    Question {
        path,
        token: None,
        body,
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Child, Command, Stdio};

    use ashlar_lab::OwnFolder;

    use super::*;
    use crate::remote::ports::Ports;

    /// A member that is a quorum of its own.
    struct Etcd {
        process: Child,
        at: SocketAddr,
        _folder: OwnFolder,
    }

    impl Etcd {
        fn start() -> Self {
            let folder = OwnFolder::make(&std::env::temp_dir()).expect("a folder");
            let mut ports = Ports::default();
            let [at, peers] = [(); 2].map(|()| ports.draw([127, 0, 0, 1].into()).expect("a port"));
            let mut command = Command::new("/usr/bin/etcd");
            command.args(["--data-dir", "d", "--initial-cluster"]);
            command.arg(format!("default=http://{peers}"));
            for (of, at) in [("client", at), ("peer", peers)] {
                command.arg(format!("--listen-{of}-urls=http://{at}"));
            }
            command.arg(format!("--advertise-client-urls=http://{at}"));
            command.arg(format!("--initial-advertise-peer-urls=http://{peers}"));
            command.current_dir(folder.path()).stdin(Stdio::null());
            let silent = command.stdout(Stdio::null()).stderr(Stdio::null());
            Self {
                process: silent.spawn().expect("started"),
                at,
                _folder: folder,
            }
        }

        /// Locks it, when another has done this; what is said of it.
        fn locked_after(&self, path: &str, body: &Value) -> String {
            let progress = Progress::silent();
            let quorum = Quorum {
                at: self.at,
                password: "ours",
                progress: &progress,
                last_words: &String::new,
            };
            let is_done = |answer: &Answer| answer.status == 200;
            quorum.ask(&open(path, body), &is_done).expect("it is open");
            quorum
                .lock()
                .map_or_else(|error| error.to_string(), |()| String::new())
        }
    }

    impl Drop for Etcd {
        fn drop(&mut self) {
            // One that has ended by itself is only buried.
            let _ = self.process.kill();
            let _ = self.process.wait();
        }
    }

    #[test]
    fn what_another_has_put_into_etcd_before_it_is_locked_is_found() {
        if super::super::super::needed().is_err() {
            return;
        }
        let theirs = |name: &str| json!({"name": name, "password": "theirs"});
        for (path, body, wanted) in [
            ("/v3/maintenance/status", json!({}), ""),
            // Ours, which was answered too late.
            (
                "/v3/auth/user/add",
                json!({"name": "root", "password": "ours"}),
                "",
            ),
            ("/v3/auth/user/add", theirs("root"), "our password"),
            ("/v3/auth/user/add", theirs("x"), "its users are"),
            (
                "/v3/kv/put",
                json!({"key": "YQ==", "value": "YQ=="}),
                "it has 1 keys",
            ),
        ] {
            let said = Etcd::start().locked_after(path, &body);
            assert!(said.contains(wanted), "{path}: {said}");
            assert_eq!(said.is_empty(), wanted.is_empty(), "{path}: {said}");
        }
    }
}

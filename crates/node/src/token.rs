use std::os::unix::fs::MetadataExt;
use std::path::Path;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;
use uuid::Uuid;

use crate::files::{self, failed};
use crate::model::ControlError;

/// Fewest characters of a token: 64 random bits in hexadecimal.
const SHORTEST: usize = 16;
const LONGEST: usize = 1024;

/// The secret that lets a caller in over TCP.
#[derive(Clone)]
pub struct Token(String);

impl Token {
    /// The token in a daemon's file, which is made, with 244 random bits, if it is not there.
    ///
    /// # Errors
    /// Environment: the file cannot be read or made, others may read it, or it holds no token.
    pub fn open(path: &Path) -> Result<Self, ControlError> {
        if files::read(path)?.is_none() {
            // As a whole or not at all: half a token would keep the daemon from starting.
            let (one, other) = (Uuid::new_v4(), Uuid::new_v4());
            let token = format!("{}{}\n", one.simple(), other.simple());
            files::make(path, token.as_bytes())?;
        }
        let mode = std::fs::metadata(path)
            .map_err(|e| failed(path, "cannot be read", &e))?
            .mode();
        if mode & 0o077 != 0 {
            return Err(ControlError::environment(format!(
                "{} has mode {:04o}: others may use it; make a new token, or at least \
                 `chmod 600` it",
                path.display(),
                mode & 0o7777
            )));
        }
        Self::read(path)
    }

    /// The token in a file that exists.
    ///
    /// # Errors
    /// Environment: the file cannot be read, or holds no token.
    pub fn read(path: &Path) -> Result<Self, ControlError> {
        let text = files::read(path)?.ok_or_else(|| {
            ControlError::environment(format!("{}: there is no such file", path.display()))
        })?;
        let token: Result<Self, ControlError> = text.trim().parse();
        token.map_err(|error| {
            ControlError::environment(format!("{} holds no token: {error}", path.display()))
        })
    }

    /// Whether a client has sent this token. Takes the same time wherever they differ.
    pub fn is(&self, said: &str) -> bool {
        self.0.as_bytes().ct_eq(said.as_bytes()).into()
    }

    /// Shows that the token is known, without telling it: who does not know it cannot make this of the same words.
    pub fn proof(&self, words: &[&str]) -> String {
        // A key of any length will do.
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(self.0.as_bytes()) else {
            unreachable!("HMAC takes keys of every length");
        };
        for word in words {
            // So that "ab", "c" is another text than "a", "bc".
            mac.update(&(word.len() as u64).to_le_bytes());
            mac.update(word.as_bytes());
        }
        let hex = |byte: &u8| format!("{byte:02x}");
        mac.finalize().into_bytes().iter().map(hex).collect()
    }

    /// Whether this is the proof of these words.
    pub fn is_proof(&self, words: &[&str], said: &str) -> bool {
        self.proof(words).as_bytes().ct_eq(said.as_bytes()).into()
    }

    /// The value of the header that says it.
    pub fn header(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl std::str::FromStr for Token {
    type Err = ControlError;

    /// The token itself.
    fn from_str(token: &str) -> Result<Self, ControlError> {
        let plain = token.bytes().all(|byte| byte.is_ascii_graphic());
        match plain && (SHORTEST..=LONGEST).contains(&token.len()) {
            true => Ok(Self(token.into())),
            false => Err(ControlError::usage(format!(
                "{SHORTEST} to {LONGEST} printable characters on one line"
            ))),
        }
    }
}

impl std::fmt::Debug for Token {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Token")
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn a_token_is_made_once_and_kept() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.token");
        let token = Token::open(&path).expect("made");
        assert_eq!(
            std::fs::metadata(&path).expect("file").mode() & 0o7777,
            0o600
        );
        let text = std::fs::read_to_string(&path).expect("text");
        assert_eq!(text.trim().len(), 64);
        assert!(Token::open(&path).expect("kept").is(text.trim()));
        assert!(token.is(text.trim()));
        for other in ["", "x", &text.trim()[1..], &format!("{}x", text.trim())] {
            assert!(!token.is(other), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token", "it is not logged");
    }

    #[test]
    fn processes_that_make_a_token_at_once_have_the_same() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.token");
        let tokens: Vec<Token> = std::thread::scope(|scope| {
            let open = || Token::open(&path).expect("a token");
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|token| token.expect("no panic")).collect()
        });
        assert!(tokens.iter().all(|token| token.is(&tokens[0].0)));
        assert_eq!(dir.path().read_dir().expect("its files").count(), 1);
    }

    #[test]
    fn a_proof_is_of_its_words_and_its_token() {
        let token = Token("0123456789abcdef".into());
        let proof = token.proof(&["agent", "1"]);
        assert_eq!(proof.len(), 64);
        assert!(token.is_proof(&["agent", "1"], &proof));
        let other = Token("0123456789abcdeg".into());
        assert!(!other.is_proof(&["agent", "1"], &proof));
        for words in [&["agent1", ""][..], &["agent"], &["coordinator", "1"]] {
            assert!(!token.is_proof(words, &proof), "{words:?}");
        }
    }

    #[test]
    fn a_token_that_others_may_read_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.token");
        Token::open(&path).expect("made");
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o640)).expect("chmod");
        let error = Token::open(&path).expect_err("too open");
        assert!(error.message.contains("0640"), "{error}");
    }

    #[test]
    fn a_file_without_a_token_is_refused() {
        let dir = tempfile::tempdir().expect("directory");
        let path = dir.path().join("api.token");
        for text in [
            "",
            "short",
            "two words in a line of text",
            "0123456789abcdef\n0123456789abcdef",
        ] {
            std::fs::write(&path, text).expect("file");
            assert!(Token::read(&path).is_err(), "{text:?}");
        }
    }
}

//! Where a server is and who logs in, from a URL.

use std::fmt;

use ashlar_lab::LabError;

const DEFAULT_PORT: u16 = 1433;
/// Names of SQL Server have 128 letters at most, and so have passwords.
const LONGEST: usize = 128;

/// A database of a server, and a login to it.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) user: String,
    pub(super) password: String,
    pub(super) host: String,
    pub(super) port: u16,
    pub(super) database: String,
}

impl Target {
    /// From `sqlserver://USER:PASSWORD@HOST[:PORT]/NAME`.
    ///
    /// # Errors
    /// A usage error. The text is not repeated: it may hold a password.
    pub(super) fn parse(url: &str) -> Result<Self, LabError> {
        Self::read(url).map_err(|why| {
            LabError::usage(format!(
                "--db sqlserver://…: {why}: must be sqlserver://USER:PASSWORD@HOST:PORT/NAME, other characters as \
                 %XX; the port is {DEFAULT_PORT} unless said otherwise"
            ))
        })
    }

    fn read(url: &str) -> Result<Self, String> {
        let rest = url.split_once("://").ok_or("no ://")?.1;
        if rest.contains(['?', '#']) {
            return Err("it takes no options, and there is no TLS".into());
        }
        let (login, place) = rest.rsplit_once('@').ok_or("it names no user")?;
        let (user, password) = login.split_once(':').unwrap_or((login, ""));
        let (address, database) = place.split_once('/').unwrap_or((place, ""));
        let (host, port) = split_port(address)?;
        let port = match port {
            None => DEFAULT_PORT,
            Some(text) => text.parse().map_err(|_| "its port is no number")?,
        };
        Ok(Self {
            user: part("user", user)?,
            password: plain("password", password)?,
            host: part("host", host)?,
            port,
            database: part("database", database)?,
        })
    }
}

/// Without a password.
impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            user,
            host,
            port,
            database,
            ..
        } = self;
        match host.contains(':') {
            true => write!(f, "sqlserver://{user}@[{host}]:{port}/{database}"),
            false => write!(f, "sqlserver://{user}@{host}:{port}/{database}"),
        }
    }
}

/// Host and port; an IPv6 address is in brackets.
fn split_port(address: &str) -> Result<(&str, Option<&str>), String> {
    let Some(rest) = address.strip_prefix('[') else {
        return Ok(match address.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (address, None),
        });
    };
    let (host, after) = rest.split_once(']').ok_or("its [ has no ]")?;
    match after.strip_prefix(':') {
        None if !after.is_empty() => Err("there is something after its ]".into()),
        port => Ok((host, port)),
    }
}

/// A part that must be there.
fn part(what: &str, text: &str) -> Result<String, String> {
    match text {
        "" => Err(format!("it names no {what}")),
        text => plain(what, text),
    }
}

/// A part with its %XX as characters.
fn plain(what: &str, text: &str) -> Result<String, String> {
    let wrong =
        || format!("its {what} has a % that is not followed by two hexadecimal digits of UTF-8");
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after @ ..] = rest {
        rest = after;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, after) = rest.split_at_checked(2).ok_or_else(wrong)?;
        rest = after;
        bytes.push(byte(digits).ok_or_else(wrong)?);
    }
    let plain = String::from_utf8(bytes).map_err(|_| wrong())?;
    match plain.chars().count() {
        0..=LONGEST => Ok(plain),
        _ => Err(format!("its {what} has more than {LONGEST} letters")),
    }
}

/// Two hexadecimal digits as a byte.
fn byte(digits: &[u8]) -> Option<u8> {
    let digit = |at: usize| char::from(*digits.get(at)?).to_digit(16);
    u8::try_from(digit(0)? * 16 + digit(1)?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_names_a_login_and_a_database() {
        let target = Target::parse("sqlserver://sa:p%40ss%3a@db.example:1444/tpcc").expect("a URL");
        assert_eq!(
            (&*target.user, &*target.password, target.port),
            ("sa", "p@ss:", 1444)
        );
        assert_eq!(target.to_string(), "sqlserver://sa@db.example:1444/tpcc");
        let target = Target::parse("sqlserver://me@[::1]/a%20b").expect("a URL");
        assert_eq!((&*target.host, &*target.password), ("::1", ""));
        assert_eq!(target.to_string(), "sqlserver://me@[::1]:1433/a b");
    }

    #[test]
    fn what_is_no_url_is_refused_without_its_text() {
        let long = format!("sqlserver://me:secret@h/{}", "x".repeat(129));
        for (url, why) in [
            ("sqlserver:secret", "no ://"),
            ("sqlserver://h/secret", "user"),
            ("sqlserver://:secret@h/n", "user"),
            ("sqlserver://me:secret@h", "database"),
            ("sqlserver://me:secret@/n", "host"),
            ("sqlserver://me:secret@h:x/n", "port"),
            ("sqlserver://me:secret@h:65536/n", "port"),
            ("sqlserver://me:secret@[::1/n", "]"),
            ("sqlserver://me:secret@[::1]x/n", "]"),
            ("sqlserver://me:secret%4@h/n", "%"),
            ("sqlserver://me:secret%é1@h/n", "%"),
            ("sqlserver://me:secret%ff@h/n", "UTF-8"),
            ("sqlserver://me:secret@h/n?encrypt=on", "no TLS"),
            (&*long, "128"),
        ] {
            let error = Target::parse(url).err().expect(url);
            let text = error.to_string();
            assert_eq!(error.exit_code(), 2);
            assert!(text.contains(why) && !text.contains("secret"), "{text}");
        }
    }
}

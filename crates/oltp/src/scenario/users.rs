//! `--users`: how many work at once, whatever it is that they do.

use ashlar_lab::LabError;
use ashlar_lab::scenario::{has_any, with_set};

/// A scenario's text with these numbers of users, or of readers where it is a scan; none leaves it as it is.
///
/// # Errors
/// A usage error if it has neither.
pub fn with_users(text: &str, users: &[usize]) -> Result<String, LabError> {
    if users.is_empty() {
        return Ok(text.to_owned());
    }
    let key = if has_any(text, &["scan"])? {
        "scan.readers"
    } else if has_any(text, &["oltp"])? {
        "oltp.users"
    } else {
        let numbers: Vec<String> = users.iter().map(ToString::to_string).collect();
        return Err(LabError::usage(format!(
            "--users {}: for scenarios of databases, which have a section [oltp] or [scan]",
            numbers.join(",")
        )));
    };
    with_set(text, &[format!("{key}={users:?}")])
}

#[cfg(test)]
mod tests {
    use super::super::OltpScenario;
    use super::*;

    #[test]
    fn users_are_readers_where_it_is_a_scan() {
        let scan = "name = 'x'\n[scan]\nrows = 1\nreaders = [1]";
        let changed = with_users(scan, &[2, 3]).expect("readers");
        let file = OltpScenario::parse(&changed).expect("sound");
        assert_eq!(file.scan.expect("a scan").readers, [2, 3]);
        let load = "name = 'x'\n[oltp]\nwarehouses = 1\nusers = [1]";
        let changed = with_users(load, &[4]).expect("users");
        let file = OltpScenario::parse(&changed).expect("sound");
        assert_eq!(file.oltp.expect("a load").users, [4]);
        assert_eq!(with_users(load, &[]).as_deref(), Ok(load));
        let error = with_users("name = 'x'\n[fleet]\n", &[4, 8]).expect_err("streams");
        assert!(error.to_string().contains("--users 4,8"), "{error}");
    }
}

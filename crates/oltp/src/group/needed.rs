//! Programs of others, which must be there before anything is made that needs them.

use std::path::Path;

use ashlar_lab::LabError;

use crate::server::Programs;

/// A program, and the package of Debian that brings it.
pub struct Needed {
    program: &'static str,
    package: &'static str,
}

impl Needed {
    pub const ETCD: Self = Self {
        program: "/usr/bin/etcd",
        package: "etcd-server",
    };
    const PATRONI: Self = Self {
        program: "/usr/bin/patroni",
        package: "patroni and python3-etcd",
    };
    pub const HAPROXY: Self = Self {
        program: "/usr/sbin/haproxy",
        package: "haproxy",
    };

    /// # Errors
    /// It is not there; named with its package.
    pub fn check(&self) -> Result<(), LabError> {
        let Self { program, package } = self;
        match Path::new(program).exists() {
            true => Ok(()),
            false => Err(LabError::environment(format!(
                "{program} is not there: install {package} (`scripts/setup.sh test` does)"
            ))),
        }
    }
}

/// What a group needs.
///
/// # Errors
/// Something is not there; named with its package.
pub(super) fn needed() -> Result<(), LabError> {
    for one in [Needed::ETCD, Needed::PATRONI, Needed::HAPROXY] {
        one.check()?;
    }
    Programs::find().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_named_with_its_package() {
        let lacks = Needed {
            program: "/usr/bin/none",
            package: "some",
        };
        let why = lacks.check().expect_err("it is not there");
        assert_eq!(why.exit_code(), 3);
        assert!(
            why.to_string()
                .contains("/usr/bin/none is not there: install some")
        );
    }
}

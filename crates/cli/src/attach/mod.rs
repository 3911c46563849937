//! `ashlar attach` and `ashlar detach`: which namespace, and what is told. And the processes behind it.

mod allowance;
mod helper;
mod namespace;
mod reserve;
mod text;

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use ashlar_attach::{
    AttachError, AttachErrorKind, AttachOptions, DetachOptions, FileSystem, Force, Via,
};

use crate::args::{AttachArguments, DetachArguments, FileSystemWord, ViaWord};
use crate::exit::Failure;
use crate::output::print;

pub(crate) use helper::{guardian, server};
use reserve::Lease;

/// `ashlar attach`.
pub(crate) fn attach(arguments: &AttachArguments) -> Result<(), Failure> {
    let (Some(volume), Some(mount)) = (&arguments.volume, &arguments.mount) else {
        return list(arguments);
    };
    let base = &arguments.folder.base;
    let limit = limit(&arguments.timeout)?;
    // What can be refused without a question to the daemon is refused first, and nothing is done.
    ashlar_attach::require_root("attach")?;
    let via = match arguments.via {
        ViaWord::Auto => Via::Auto,
        ViaWord::Nvme => Via::Nvme,
        ViaWord::Fuse => Via::Fuse,
        ViaWord::Initiator => Via::Initiator,
    };
    ashlar_attach::choose(via)?;
    let mount = ashlar_attach::check_mount_point(base, mount)?;
    let trace = arguments.trace.as_deref().map(std::path::absolute);
    let trace = trace.transpose();
    let trace = trace.map_err(|error| Failure::environment(format!("--trace: {error}")))?;
    let program = std::env::current_exe();
    let program = program.map_err(|error| Failure::environment(format!("/proc/self: {error}")))?;
    if limit.is_none() {
        eprintln!(
            "ashlar: --timeout never: while {volume} does not answer, its users cannot be \
             stopped but by `ashlar detach --force`"
        );
    }
    let options = AttachOptions {
        base: base.clone(),
        mount,
        file_system: arguments.fs.map(|word| match word {
            FileSystemWord::Xfs => FileSystem::Xfs,
            FileSystemWord::Ext4 => FileSystem::Ext4,
        }),
        destroy_data: arguments.destroy_data,
        options: arguments.options.clone(),
        has_twins: arguments.here,
        via,
        always_flush: arguments.always_flush,
        limit,
        spin: arguments.spin,
        trace,
    };
    let state = namespace::with(volume, arguments, |namespace| {
        let attached = ashlar_attach::attach(&namespace, &options, |folder| {
            let mut command = Command::new(program);
            command.arg("attach-guardian").arg(folder.path());
            arguments.log.pass_on(&mut command);
            command
        });
        Ok(attached?)
    })?;
    show(arguments, &state, text::attached(&state))
}

/// `ashlar detach`.
pub(crate) fn detach(arguments: &DetachArguments) -> Result<(), Failure> {
    ashlar_attach::require_root("detach")?;
    let force = match arguments.force {
        true => Force::Yes,
        false => Force::No,
    };
    let patience = Duration::from_secs(arguments.timeout_s);
    let options = DetachOptions {
        force,
        patience,
        tell: |line| eprintln!("ashlar: {line}"),
    };
    let folder = ashlar_attach::attached_at(&arguments.folder.base, &arguments.mount)?;
    let lease = Lease::of(&folder);
    let mut notes = ashlar_attach::detach(&arguments.folder.base, &arguments.mount, options)?;
    // Only now nothing of it writes any more.
    notes.extend(lease.and_then(Lease::end));
    for note in notes {
        eprintln!("ashlar: {note}");
    }
    Ok(())
}

fn list(arguments: &AttachArguments) -> Result<(), Failure> {
    let attachments = ashlar_attach::list(&arguments.folder.base);
    let text = text::list(&attachments);
    show(arguments, &attachments, text)
}

fn show(
    arguments: &AttachArguments,
    answer: &impl serde::Serialize,
    text: String,
) -> Result<(), Failure> {
    if !arguments.api.json {
        return print(&text);
    }
    let json = serde_json::to_string_pretty(answer);
    let json = json.map_err(|error| Failure::environment(format!("the answer: {error}")))?;
    print(&format!("{json}\n"))
}

/// Where commands that have no such option find attachments.
fn state_folder() -> PathBuf {
    let base = std::env::var_os("ASHLAR_ATTACH_STATE");
    base.map_or_else(|| ashlar_attach::DEFAULT_FOLDER.into(), PathBuf::from)
}

/// What is left to be done at this machine for a volume that has grown.
pub(crate) fn after_growth(volume: &str, bytes: u64) -> String {
    let attachments = ashlar_attach::list(&state_folder()).into_iter();
    let states = attachments.map(|one| one.state);
    let is_smaller = |state: &ashlar_attach::State| state.volume == volume && state.bytes < bytes;
    states
        .filter(is_smaller)
        .map(|state| text::grown(&state))
        .collect()
}

/// Where volumes of these NQNs are attached at this machine, and what ends that.
pub(crate) fn where_attached(nqns: &[String]) -> Option<String> {
    let attachments = ashlar_attach::list(&state_folder()).into_iter();
    text::holders(attachments.map(|one| one.state), nqns)
}

/// A time limit: `500ms` is too fine, `never` is none.
fn limit(text: &str) -> Result<Option<Duration>, Failure> {
    if text == "never" {
        return Ok(None);
    }
    let wrong = || Failure::usage(format!("--timeout {text}: say 30s, 10m, 2h or never"));
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (count, unit) = text.split_at(digits);
    let seconds = match unit {
        "s" => 1,
        "m" => 60,
        "h" => 3600,
        _ => return Err(wrong()),
    };
    let total = count
        .parse::<u64>()
        .ok()
        .and_then(|n| n.checked_mul(seconds));
    match total {
        Some(total) if total > 0 => Ok(Some(Duration::from_secs(total))),
        _ => Err(wrong()),
    }
}

impl From<AttachError> for Failure {
    fn from(error: AttachError) -> Self {
        match error.kind() {
            AttachErrorKind::Usage => Self::usage(error),
            AttachErrorKind::Environment => Self::environment(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_limit_is_a_number_and_a_unit() {
        let seconds = |text| {
            limit(text)
                .ok()
                .map(|limit| limit.map(|limit| limit.as_secs()))
        };
        assert_eq!(seconds("30s"), Some(Some(30)));
        assert_eq!(seconds("2h"), Some(Some(7200)));
        assert_eq!(seconds("never"), Some(None));
        for wrong in ["", "s", "0s", "10", "1d", "-1s", "99999999999999999999s"] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}

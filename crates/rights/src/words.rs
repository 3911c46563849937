//! Petitions and verdicts as bytes: on their way from a node to the volume's owner, and back. Little endian.
//!
//! A petition: what is wanted (1: 0 report, 1 do not persist, 2 persist, 3 a command, 4 succeed), then a command's opcode
//! (1), CDW10 (4) and data. A verdict: status (2), bytes of a report (4) and the report, then news: hosts that are told
//! (2) each with what (17), hosts whose commands end (2) each (16).

use ashlar_nvme::reservation::{Ask, Notification};
use ashlar_nvme::{Command, Status};
use ashlar_nvme_target::{News, Verdict, Wants};

/// Bytes that are neither.
#[derive(Debug)]
pub(super) struct Garbled;

/// What a host wants, as bytes.
pub(super) fn of_wants(wants: Wants) -> Vec<u8> {
    match wants {
        Wants::Report => vec![0],
        Wants::Persist(persists) => vec![1 + u8::from(persists)],
        Wants::Succeed => vec![4],
        Wants::Change(ask) => {
            let (command, data) = ask.to_command(1);
            let mut bytes = vec![3, command.opcode];
            bytes.extend_from_slice(&command.cdw10.get().to_le_bytes());
            bytes.extend_from_slice(&data);
            bytes
        }
    }
}

/// What a host wants.
pub(super) fn to_wants(bytes: &[u8]) -> Result<Wants, Garbled> {
    match bytes {
        [0] => Ok(Wants::Report),
        [1] => Ok(Wants::Persist(false)),
        [2] => Ok(Wants::Persist(true)),
        [4] => Ok(Wants::Succeed),
        [3, opcode, rest @ ..] => {
            let (cdw10, data) = rest.split_first_chunk().ok_or(Garbled)?;
            let mut command = Command::new(*opcode, 1);
            command.cdw10.set(u32::from_le_bytes(*cdw10));
            Ask::parse(&command, data).map(Wants::Change).ok_or(Garbled)
        }
        _ => Err(Garbled),
    }
}

/// A verdict, as bytes.
pub(super) fn of_verdict(verdict: &Verdict) -> Vec<u8> {
    let mut bytes = verdict.status.to_wire().to_le_bytes().to_vec();
    bytes.extend_from_slice(&(verdict.report.len() as u32).to_le_bytes());
    bytes.extend_from_slice(&verdict.report);
    bytes.extend(of_news(&verdict.news));
    bytes
}

/// What hosts are told, as bytes.
pub(super) fn of_news(news: &News) -> Vec<u8> {
    let News { told, ended } = news;
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&(told.len() as u16).to_le_bytes());
    for (host, what) in told {
        bytes.extend_from_slice(host);
        bytes.push(*what as u8);
    }
    bytes.extend_from_slice(&(ended.len() as u16).to_le_bytes());
    ended.iter().for_each(|host| bytes.extend_from_slice(host));
    bytes
}

/// The verdict that bytes are.
pub(super) fn to_verdict(bytes: &[u8]) -> Result<Verdict, Garbled> {
    let mut from = bytes;
    let status = Status::from_wire(u16::from_le_bytes(take(&mut from)?));
    let report = u32::from_le_bytes(take(&mut from)?) as usize;
    let (report, rest) = from.split_at_checked(report).ok_or(Garbled)?;
    Ok(Verdict {
        status,
        report: report.to_vec(),
        news: to_news(rest)?,
    })
}

/// What hosts are told.
pub(super) fn to_news(bytes: &[u8]) -> Result<News, Garbled> {
    let mut from = bytes;
    let mut news = News::default();
    for _ in 0..u16::from_le_bytes(take(&mut from)?) {
        let host = take(&mut from)?;
        let [what] = take(&mut from)?;
        let what = match what {
            1 => Notification::RegistrationPreempted,
            2 => Notification::ReservationReleased,
            3 => Notification::ReservationPreempted,
            _ => return Err(Garbled),
        };
        news.told.push((host, what));
    }
    for _ in 0..u16::from_le_bytes(take(&mut from)?) {
        news.ended.push(take(&mut from)?);
    }
    match from.is_empty() {
        true => Ok(news),
        false => Err(Garbled),
    }
}

fn take<const N: usize>(from: &mut &[u8]) -> Result<[u8; N], Garbled> {
    let (first, rest) = from.split_first_chunk().ok_or(Garbled)?;
    *from = rest;
    Ok(*first)
}

#[cfg(test)]
mod tests {
    use ashlar_nvme::reservation::{AcquireAction, ReservationType};

    use super::*;

    #[test]
    fn what_is_said_comes_back_and_what_is_cut_is_refused() {
        let change = Wants::Change(Ask::Acquire {
            action: AcquireAction::PreemptAndAbort,
            kind: ReservationType::ExclusiveAccessAll,
            current: 7,
            preempted: 8,
        });
        for wants in [
            Wants::Report,
            Wants::Persist(true),
            Wants::Persist(false),
            Wants::Succeed,
            change,
        ] {
            let bytes = of_wants(wants);
            assert_eq!(to_wants(&bytes).ok(), Some(wants));
            for cut in 0..bytes.len() {
                assert!(to_wants(&bytes[..cut]).is_err(), "{wants:?} at {cut}");
            }
        }
        let verdict = Verdict {
            status: Status::RESERVATION_CONFLICT.with_dnr(),
            report: vec![1, 2, 3],
            news: News {
                told: vec![([1; 16], Notification::ReservationReleased)],
                ended: vec![[2; 16], [3; 16]],
            },
        };
        let bytes = of_verdict(&verdict);
        assert_eq!(to_verdict(&bytes).ok(), Some(verdict));
        for cut in 0..bytes.len() {
            assert!(to_verdict(&bytes[..cut]).is_err(), "at {cut}");
        }
    }
}

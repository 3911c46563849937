//! Hosts' commands that a member sends to its owner, and what comes back.

use ashlar_block::{AssociationId, HostId, Label, Registrant};
use bytes::Bytes;

use super::decode::{extent, whole, zeroes};
use super::encode::{put, split};
use super::layout::{
    DoneBody, ForwardBody, LabelAskBody, LabelledBody, content, kind, outcome, what,
};
use super::{Codec, WireError};
use crate::event::{HostOperation, Outcome};
use crate::extent::Extent;
use crate::fence::Origin;
use crate::ids::ForwardId;
use crate::message::{Forward, Message};

/// A body that says nothing but the command's name and kind.
fn bare(of: &Forward, what: u8) -> ForwardBody {
    ForwardBody {
        registrant: of.registrant.0,
        forward: of.forward.0.into(),
        host: 0.into(),
        association: 0.into(),
        writes: 0.into(),
        first: 0.into(),
        count: 0.into(),
        label_epoch: 0.into(),
        what,
        content: 0,
        zero: [0; 6],
    }
}

fn of(body: ForwardBody, origin: Origin, label: Label) -> ForwardBody {
    ForwardBody {
        host: origin.host.0.into(),
        association: origin.association.0.into(),
        writes: label.writes.into(),
        label_epoch: label.epoch.into(),
        ..body
    }
}

fn at(body: ForwardBody, extent: Extent) -> ForwardBody {
    ForwardBody {
        first: extent.first().into(),
        count: extent.count().into(),
        ..body
    }
}

pub(super) fn forward(to: &mut Vec<u8>, forward: &Forward, data: &mut Bytes) -> u8 {
    let body = |what| bare(forward, what);
    let body = match &forward.operation {
        HostOperation::Read { extent } => at(body(what::READ), *extent),
        HostOperation::GetRegister => body(what::GET_REGISTER),
        HostOperation::Write {
            extent,
            content,
            origin,
            label,
        } => ForwardBody {
            content: split(content, data),
            ..of(at(body(what::WRITE), *extent), *origin, *label)
        },
        HostOperation::SetRegister {
            content,
            origin,
            label,
        } => ForwardBody {
            content: split(content, data),
            ..of(body(what::SET_REGISTER), *origin, *label)
        },
        HostOperation::Consult {
            question,
            origin,
            label,
        } => {
            *data = question.clone();
            of(body(what::CONSULT), *origin, *label)
        }
    };
    put(to, &body, kind::FORWARD)
}

pub(super) fn label_ask(to: &mut Vec<u8>, origin: Origin) -> u8 {
    let body = LabelAskBody {
        host: origin.host.0.into(),
        association: origin.association.0.into(),
    };
    put(to, &body, kind::LABEL_ASK)
}

pub(super) fn labelled(to: &mut Vec<u8>, origin: Origin, writes: u64) -> u8 {
    let body = LabelledBody {
        host: origin.host.0.into(),
        association: origin.association.0.into(),
        writes: writes.into(),
    };
    put(to, &body, kind::LABELLED)
}

pub(super) fn done(to: &mut Vec<u8>, forward: ForwardId, ended: &Outcome, data: &mut Bytes) -> u8 {
    let outcome = match ended {
        Outcome::Written => outcome::WRITTEN,
        Outcome::Read(bytes) => {
            *data = bytes.clone();
            outcome::READ
        }
        Outcome::NotOwner => outcome::NOT_OWNER,
        Outcome::Stale => outcome::STALE,
        Outcome::PathGone => outcome::PATH_GONE,
        Outcome::Failed => outcome::FAILED,
        Outcome::OutOfRange => outcome::OUT_OF_RANGE,
        Outcome::Reserved => outcome::RESERVED,
        Outcome::Advice(bytes) => {
            *data = bytes.clone();
            outcome::ADVICE
        }
    };
    let body = DoneBody {
        forward: forward.0.into(),
        outcome,
        zero: [0; 7],
    };
    put(to, &body, kind::DONE)
}

fn origin(host: u64, association: u64) -> Origin {
    Origin {
        host: HostId(host),
        association: AssociationId(association),
    }
}

/// Nothing but these kinds carries data.
fn without(data: &Bytes) -> Result<(), WireError> {
    let bytes = data.len() as u32;
    let wrong = WireError::Length {
        what: "data",
        bytes,
    };
    data.is_empty().then_some(()).ok_or(wrong)
}

impl Codec {
    pub(super) fn forward(self, body: &[u8], data: Bytes) -> Result<Message, WireError> {
        let body: ForwardBody = whole(body)?;
        zeroes(&body.zero)?;
        let origin = origin(body.host.get(), body.association.get());
        let label = Label {
            epoch: body.label_epoch.get(),
            writes: body.writes.get(),
        };
        let range = || extent(body.first.get(), body.count.get());
        let operation = match body.what {
            what::READ => {
                without(&data)?;
                HostOperation::Read {
                    extent: self.fits(range()?)?,
                }
            }
            what::GET_REGISTER => {
                without(&data)?;
                HostOperation::GetRegister
            }
            what::WRITE => HostOperation::Write {
                extent: range()?,
                content: self.content(body.content, range()?, data)?,
                origin,
                label,
            },
            what::SET_REGISTER => HostOperation::SetRegister {
                content: self.content(body.content, extent(0, 1)?, data)?,
                origin,
                label,
            },
            what::CONSULT if body.content == content::DATA => HostOperation::Consult {
                question: data,
                origin,
                label,
            },
            _ => return Err(WireError::Field("a forwarded command")),
        };
        Ok(Message::Forward(Forward {
            forward: ForwardId(body.forward.get()),
            registrant: Registrant(body.registrant),
            operation,
        }))
    }
}

pub(super) fn read_label_ask(body: &[u8]) -> Result<Message, WireError> {
    let body: LabelAskBody = whole(body)?;
    let origin = origin(body.host.get(), body.association.get());
    Ok(Message::LabelAsk { origin })
}

pub(super) fn read_labelled(body: &[u8]) -> Result<Message, WireError> {
    let body: LabelledBody = whole(body)?;
    let origin = origin(body.host.get(), body.association.get());
    let writes = body.writes.get();
    Ok(Message::Labelled { origin, writes })
}

pub(super) fn read_done(body: &[u8], data: Bytes) -> Result<Message, WireError> {
    let body: DoneBody = whole(body)?;
    zeroes(&body.zero)?;
    let outcome = match body.outcome {
        outcome::READ => Outcome::Read(data),
        outcome::ADVICE => Outcome::Advice(data),
        other => {
            without(&data)?;
            match other {
                outcome::WRITTEN => Outcome::Written,
                outcome::NOT_OWNER => Outcome::NotOwner,
                outcome::STALE => Outcome::Stale,
                outcome::PATH_GONE => Outcome::PathGone,
                outcome::FAILED => Outcome::Failed,
                outcome::OUT_OF_RANGE => Outcome::OutOfRange,
                outcome::RESERVED => Outcome::Reserved,
                _ => return Err(WireError::Field("an outcome")),
            }
        }
    };
    let forward = ForwardId(body.forward.get());
    Ok(Message::Done { forward, outcome })
}

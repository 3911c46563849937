//! Hosts: each writer has one command at a time, tries again on another path when one is gone, and knows what its
//! reads may have seen.

use std::ops::Range;
use std::time::Duration;

use ashlar_nvme_target::Wants;
use ashlar_replica::{
    AssociationId, CommandId, Content, Extent, HostId, HostOperation, Label, Origin, Registrant,
    Shape, Size,
};
use bytes::Bytes;

use super::asks::Asks;
use super::model::{Model, Value};
use super::store::GRANULE_BYTES;
use crate::chance::Chance;

/// Most writers of a world.
pub(crate) const MOST_HOSTS: usize = 4;

/// By what a writer reserves.
pub(crate) const fn registrant(writer: usize) -> Registrant {
    Registrant([writer as u8 + 1; 16])
}

/// What a writer does.
#[derive(Debug)]
pub(crate) enum Doing {
    /// Its next command comes at some time.
    Thinking,
    /// A command that is not over.
    Busy(Command),
    /// It has done all.
    Done,
}

/// A command that is not over.
#[derive(Debug)]
pub(crate) struct Command {
    pub(crate) extent: Extent,
    /// The same, as its host counts; `None` if it is not of hosts' own granules.
    hosts: Option<Extent>,
    pub(crate) what: What,
    /// If it is one on reservations.
    pub(crate) wants: Option<Wants>,
    /// The attempt that counts, and by which node.
    pub(crate) attempt: CommandId,
    pub(crate) node: usize,
}

#[derive(Debug)]
pub(crate) enum What {
    Write(Value),
    /// Something is to be reserved.
    Ask,
    /// For each granule, what it may have held at any time since the read began.
    Read(Vec<Vec<Value>>),
}

/// One writer.
#[derive(Debug)]
pub(crate) struct Writer {
    pub(crate) doing: Doing,
    pub(crate) left: u64,
    /// The node that served it last.
    pub(crate) path: usize,
    /// Its association with that node.
    pub(crate) association: AssociationId,
    /// What was known when it last used that association, if that node owned the volume then.
    pub(crate) label: Option<Label>,
    /// It was told that others have the volume reserved.
    pub(crate) is_fenced: bool,
}

/// All of them.
#[derive(Debug)]
pub(crate) struct Hosts {
    pub(crate) writers: Vec<Writer>,
    attempts: u64,
    associations: u64,
    values: Value,
    shape: Shape,
    /// Of a thousand commands, those that change or read the register; drawn aside from the world's chances.
    register_commands: u32,
    aside: Chance,
    /// Where two writers each are one host, that writes by two associations at once: how old their labels are.
    ages: Option<Chance>,
    /// What they want reserved, if they reserve.
    asks: Option<Asks>,
    think: Duration,
    /// How long a host waits for an answer.
    timeout: Duration,
}

impl Hosts {
    pub(crate) fn draw(chance: &mut Chance, shape: Shape, commands: u64, lasts: Duration) -> Self {
        let mut aside = chance.aside();
        let count = chance.between(2, MOST_HOSTS as u64);
        let writer = |n| Writer {
            doing: Doing::Thinking,
            left: commands,
            path: 0,
            association: AssociationId(n),
            label: None,
            is_fenced: false,
        };
        Self {
            writers: (0..count).map(writer).collect(),
            attempts: 0,
            associations: count,
            values: 0,
            shape,
            register_commands: aside.pick(&[30, 30, 200]),
            aside,
            ages: None,
            asks: None,
            think: lasts * 2 / commands.max(1) as u32,
            timeout: Duration::from_millis(chance.between(150, 1500)),
        }
    }

    pub(crate) const fn shape(&self) -> Shape {
        self.shape
    }

    /// Two writers each are one host.
    pub(crate) fn pair_up(&mut self, ages: Chance) {
        self.ages = Some(ages);
    }

    /// They reserve the volume: nothing but that is in the register.
    pub(crate) fn reserve(&mut self, asks: Asks) {
        self.asks = Some(asks);
        self.register_commands = 0;
    }

    /// Whether a writer takes the newest label: where two write by turns, what is proven is older.
    pub(crate) fn takes_label(&mut self, writer: usize) -> bool {
        let is_first = self.writers[writer].label.is_none();
        let ages = self.ages.as_mut();
        is_first || ages.is_none_or(|ages| ages.happens(300))
    }

    /// The volume has become larger.
    pub(crate) const fn set_size(&mut self, size: Size) {
        self.shape = self.shape.sized(size);
    }

    /// Granules of hosts that lie together.
    fn drawn(&self, first: u64, count: u32) -> Option<Extent> {
        let drawn = Extent::new(first, count)?;
        match self.shape.place(drawn) {
            Some(_) => Some(drawn),
            None => Extent::new(first, 1),
        }
    }

    pub(crate) fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    pub(crate) fn set_think(&mut self, think: Duration) {
        self.think = think;
    }

    /// What each writer has still to do.
    pub(crate) fn left(&self) -> Vec<u64> {
        self.writers.iter().map(|writer| writer.left).collect()
    }

    /// Nothing more is begun.
    pub(crate) fn end(&mut self) {
        self.writers.iter_mut().for_each(|writer| writer.left = 0);
    }

    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    /// How long until a writer's next command.
    pub(crate) fn pause(&self, chance: &mut Chance) -> Duration {
        match chance.below(4) {
            0 => Duration::from_micros(chance.below(300)),
            _ => chance.time(self.think * 2),
        }
    }

    pub(crate) fn attempt(&mut self) -> CommandId {
        self.attempts += 1;
        CommandId(self.attempts)
    }

    /// A writer goes another way: what its old association carries is on its own.
    pub(crate) fn associate(&mut self, writer: usize, path: usize) {
        self.associations += 1;
        let association = AssociationId(self.associations);
        let writer = &mut self.writers[writer];
        (writer.path, writer.association, writer.label) = (path, association, None);
    }

    /// Whether a writer waits until the node that it has come to knows a label: hosts do so mostly, unknowingly, for
    /// they connect before they write.
    pub(crate) fn waits_for_label(&mut self, writer: usize) -> bool {
        self.writers[writer].label.is_none() && self.aside.happens(900)
    }

    /// By which association of which host a writer's commands come.
    pub(crate) fn origin(&self, writer: usize) -> Origin {
        let writers_of_one = if self.ages.is_some() { 2 } else { 1 };
        Origin {
            host: HostId((writer / writers_of_one) as u64),
            association: self.writers[writer].association,
        }
    }

    /// A writer's next command. False if it has done all.
    pub(crate) fn begin(&mut self, writer: usize, model: &mut Model, chance: &mut Chance) -> bool {
        if self.writers[writer].left == 0 {
            self.writers[writer].doing = Doing::Done;
            return false;
        }
        self.writers[writer].left -= 1;
        if let Some(command) = self.begin_asking(writer, model) {
            self.writers[writer].doing = Doing::Busy(command);
            return true;
        }
        let first = chance.below(self.shape.hosts());
        let most = (self.shape.hosts() - first).min(4);
        let count = chance.between(1, most) as u32;
        let hosts = match self.aside.happens(self.register_commands) {
            true => None,
            false => self.drawn(first, count),
        };
        let place = match hosts {
            Some(hosts) => self.shape.place(hosts),
            None => self.shape.register(),
        };
        let Some(extent) = place else {
            return false;
        };
        let what = if chance.happens(750) {
            let value = if chance.happens(60) {
                0
            } else {
                self.values += 1;
                self.values
            };
            model.begin(writer, extent.granules(), value);
            What::Write(value)
        } else {
            let may = |granule: u64| model.values(granule as usize);
            What::Read(extent.granules().map(may).collect())
        };
        let (attempt, node) = (CommandId(0), 0);
        self.writers[writer].doing = Doing::Busy(Command {
            extent,
            hosts,
            what,
            wants: None,
            attempt,
            node,
        });
        true
    }

    /// A writer's next command, if it is one on reservations.
    fn begin_asking(&mut self, writer: usize, model: &Model) -> Option<Command> {
        let others = self.writers.len() as u64 - 1;
        let is_fenced = self.writers[writer].is_fenced;
        let wants = self.asks.as_mut()?.draw(writer, others, is_fenced)?;
        let extent = self.shape.register()?;
        let what = match wants {
            Wants::Report => What::Read(vec![model.values(extent.first() as usize)]),
            _ => What::Ask,
        };
        Some(Command {
            extent,
            hosts: None,
            what,
            wants: Some(wants),
            attempt: CommandId(0),
            node: 0,
        })
    }

    /// Something has become possible: reads that are on their way may see it.
    pub(crate) fn note(&mut self, model: &Model) {
        for writer in &mut self.writers {
            if let Doing::Busy(command) = &mut writer.doing
                && let What::Read(seen) = &mut command.what
            {
                for (granule, seen) in command.extent.granules().zip(seen) {
                    let values = model.values(granule as usize);
                    seen.extend(
                        values
                            .into_iter()
                            .filter(|value| !seen.contains(value))
                            .collect::<Vec<_>>(),
                    );
                }
            }
        }
    }

    /// Whether all is done.
    pub(crate) fn are_done(&self) -> bool {
        self.writers
            .iter()
            .all(|writer| matches!(writer.doing, Doing::Done))
    }

    /// The writer whose attempt this is, if it still counts.
    pub(crate) fn whose(&self, attempt: CommandId) -> Option<usize> {
        self.writers.iter().position(|writer| match &writer.doing {
            Doing::Busy(command) => command.attempt == attempt,
            _ => false,
        })
    }
}

impl Command {
    pub(crate) fn operation(&self, origin: Origin, label: Label) -> HostOperation {
        let extent = self.extent;
        let content = match self.what {
            What::Write(0) => Content::Zeroes,
            What::Write(value) => {
                let word = value.to_le_bytes();
                Content::Data(Bytes::from(word.repeat(extent.count() as usize)))
            }
            What::Read(_) => {
                let read = |extent| HostOperation::Read { extent };
                return self.hosts.map_or(HostOperation::GetRegister, read);
            }
            // It goes another way.
            What::Ask => return HostOperation::GetRegister,
        };
        match self.hosts {
            None => HostOperation::SetRegister {
                content,
                origin,
                label,
            },
            Some(extent) => HostOperation::Write {
                extent,
                content,
                origin,
                label,
            },
        }
    }
}

/// What a read's bytes say, granule by granule.
pub(crate) fn values_of(data: &[u8]) -> impl ExactSizeIterator<Item = Value> {
    data.chunks_exact(GRANULE_BYTES).map(|word| {
        let mut bytes = [0; GRANULE_BYTES];
        bytes.copy_from_slice(word);
        Value::from_le_bytes(bytes)
    })
}

/// Looks at what a read's bytes say.
///
/// # Errors
/// If a granule holds what it cannot have held at any time since the read began.
pub(crate) fn check_read(command: &Command, data: &[u8]) -> Result<(), String> {
    let What::Read(may) = &command.what else {
        return Err("a write was answered with data".into());
    };
    let range: Range<u64> = command.extent.granules();
    let values = values_of(data);
    if values.len() != may.len() {
        return Err(format!(
            "a read of {} has {} bytes",
            command.extent,
            data.len()
        ));
    }
    for ((granule, value), may) in range.zip(values).zip(may) {
        if !may.contains(&value) {
            return Err(format!(
                "a host's read of granule {granule} returned {value}, which is none of {may:?}"
            ));
        }
    }
    Ok(())
}

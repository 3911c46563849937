//! Hosts' reads past the protocol's queues.

use ashlar_copy::{DirectlyRead, EngineLocal};
use ashlar_replica::{CommandId, DirectEnd, Event, Extent, HostCommand, HostOperation};

use super::{Ground, Replicated};

impl Replicated {
    /// Begins a host's read directly: whether that could be.
    pub(super) fn begin_direct(
        &mut self,
        command: CommandId,
        extent: Extent,
        ground: &mut Ground<'_>,
    ) -> bool {
        let Ground {
            engine, out, now, ..
        } = ground;
        let local = &mut EngineLocal::new(engine, &mut self.copy, *now, out);
        !self.is_over && self.replica.begin_direct(*now, command, extent, local)
    }

    /// Answers what was read. Whether there was any.
    pub(super) fn end_direct(&mut self, ground: &mut Ground<'_>) -> bool {
        let mut any = false;
        while let Some(read) = self.copy.next_directly_read() {
            self.directly_read(read, ground);
            any = true;
        }
        any
    }

    fn directly_read(&mut self, read: DirectlyRead, ground: &mut Ground<'_>) {
        let DirectlyRead { token, result } = read;
        let end = self.replica.end_direct(ground.now, token, result.is_ok());
        match (end, result) {
            (Some(DirectEnd::Answer(command)), Ok(buffer)) => {
                let progress = self.commands.filled(command, buffer);
                self.progressed(command, progress, ground);
            }
            (Some(DirectEnd::Ask { command, extent }), _) => {
                let Some(sender) = self.commands.sender(command) else {
                    return;
                };
                let of_host = HostCommand {
                    command,
                    registrant: sender.registrant,
                    operation: HostOperation::Read { extent },
                };
                self.hear(Event::Host(of_host), ground);
            }
            _ => {}
        }
    }
}

//! Hosts' reads past the protocol's queues.

use ashlar_copy::{DirectlyRead, EngineLocal};
use ashlar_replica::{CommandId, DirectEnd, Event, Extent, HostCommand, HostOperation};

use super::{Ground, ROUNDS, Replicated};

impl Replicated {
    /// Begins a host's read directly, into the host's own buffer: whether that could be.
    pub(super) fn begin_direct(
        &mut self,
        command: CommandId,
        extent: Extent,
        ground: &mut Ground<'_>,
    ) -> bool {
        if self.is_over || !self.replica.is_serving() {
            return false;
        }
        let Some(buffer) = self.commands.lend(command) else {
            return false;
        };
        let Ground {
            engine, out, now, ..
        } = ground;
        let mut local = EngineLocal::new(engine, &mut self.copy, *now, out);
        local.lend(buffer);
        let begins = self.replica.begin_direct(*now, command, extent, &mut local);
        if let Some(buffer) = local.take_back() {
            self.commands.give_back(command, Some(buffer));
        }
        begins
    }

    /// Answers what was read. Whether there was any.
    pub(super) fn end_direct(&mut self, ground: &mut Ground<'_>) -> bool {
        let mut any = false;
        for _ in 0..ROUNDS {
            let Some(read) = self.copy.next_directly_read() else {
                break;
            };
            self.directly_read(read, ground);
            any = true;
        }
        any
    }

    fn directly_read(&mut self, read: DirectlyRead, ground: &mut Ground<'_>) {
        let DirectlyRead {
            token,
            buffer,
            result,
        } = read;
        let is_read = result.is_ok() && buffer.is_some();
        match (self.replica.end_direct(ground.now, token, is_read), buffer) {
            (Some(DirectEnd::Answer(command)), Some(buffer)) => {
                let progress = self.commands.filled(command, buffer);
                self.progressed(command, progress, ground);
            }
            (Some(DirectEnd::Ask { command, extent }), buffer) => {
                let Some(sender) = self.commands.give_back(command, buffer) else {
                    return;
                };
                let of_host = HostCommand {
                    command,
                    registrant: sender.registrant,
                    operation: HostOperation::Read { extent },
                };
                self.hear(Event::Host(of_host), ground);
            }
            // The host was answered when this copy stopped, or is cut off.
            (None | Some(DirectEnd::Answer(_)), _) => {}
        }
    }
}

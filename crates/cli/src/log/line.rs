use std::io::{self, Write};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tracing_subscriber::fmt::MakeWriter;

/// What a pipe that can be written to takes without waiting (PIPE_BUF).
const AT_ONCE: usize = 4096;

/// Writes lines to standard error. Where that leads may be full, gone (a pipe whose reader has ended) or
/// stand still: the thread that logs, which may be a core that serves hosts, must neither end nor wait for it.
#[derive(Clone, Default)]
pub(super) struct Lines {
    lost: Arc<AtomicU64>,
}

impl Lines {
    /// How many lines could not be written since this was asked last.
    pub fn take_lost(&self) -> u64 {
        self.lost.swap(0, Ordering::Relaxed)
    }
}

impl<'a> MakeWriter<'a> for Lines {
    type Writer = Self;

    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

impl Write for Lines {
    /// Takes a line as a whole.
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        let text = harmless(&String::from_utf8_lossy(line));
        if put(io::stderr().lock(), text.as_bytes()).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Writes what can be written without waiting.
fn put(to: impl AsFd, text: &[u8]) -> rustix::io::Result<()> {
    for mut part in text.chunks(AT_ONCE) {
        while !part.is_empty() {
            let mut ready = [PollFd::new(&to, PollFlags::OUT)];
            poll(&mut ready, Some(&rustix::event::Timespec::default()))?;
            if !ready[0].revents().contains(PollFlags::OUT) {
                return Err(Errno::AGAIN);
            }
            match rustix::io::write(&to, part) {
                Ok(0) => return Err(Errno::IO),
                Ok(written) => part = &part[written..],
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

/// A line that changes nothing on a terminal, and is one line, whatever a peer or a file put into it.
fn harmless(line: &str) -> String {
    let (text, end) = match line.strip_suffix('\n') {
        Some(text) => (text, "\n"),
        None => (line, ""),
    };
    let mut clean = String::with_capacity(line.len());
    for character in text.chars() {
        match character.is_control() {
            true => clean.extend(character.escape_default()),
            false => clean.push(character),
        }
    }
    clean + end
}

#[cfg(test)]
mod tests {
    use std::io::Read;

    use super::*;

    #[test]
    fn what_a_peer_sent_cannot_reach_the_terminal() {
        assert_eq!(harmless("plain ü\n"), "plain ü\n");
        assert_eq!(
            harmless("a\x1b[2Jb\nc\r\u{9b}1m\n"),
            "a\\u{1b}[2Jb\\nc\\r\\u{9b}1m\n"
        );
    }

    #[test]
    fn a_reader_that_stands_still_stops_nothing() {
        let (mut reader, writer) = io::pipe().expect("pipe");
        let line = [b'x'; 3 * AT_ONCE];
        let mut written = 0;
        while put(&writer, &line).is_ok() {
            written += line.len();
            assert!(written < 64 << 20, "the pipe never fills");
        }
        let mut some = vec![0; 8 * AT_ONCE];
        reader.read_exact(&mut some).expect("what was written");
        put(&writer, b"again\n").expect("there is room again");
        drop(reader);
        assert!(put(&writer, b"no reader\n").is_err());
    }
}

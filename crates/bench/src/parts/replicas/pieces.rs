//! What a write to two copies cannot do without: a round trip to the other, and an append there.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use crate::failure::Failure;
use crate::signals::Temporary;

/// Of each, after a tenth of it that does not count.
const TIMES: u32 = 2000;
/// What comes back.
const ANSWER: usize = 64;

/// Mean time of a round trip with so many bytes on the way there.
pub(super) fn round_trip_us(bytes: u32) -> Result<f64, Failure> {
    let measured = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| {
        let address = listener.local_addr()?;
        let echo = std::thread::spawn(move || answer(&listener, bytes));
        let asked = TcpStream::connect(address).and_then(|stream| ask(stream, bytes));
        // It ends when the connection has.
        let _ = echo.join();
        asked
    });
    measured.map_err(Failure::doing("a round trip on this machine"))
}

fn answer(listener: &TcpListener, bytes: u32) -> io::Result<()> {
    let (mut stream, _) = listener.accept()?;
    stream.set_nodelay(true)?;
    let mut data = vec![0; bytes as usize];
    loop {
        stream.read_exact(&mut data)?;
        stream.write_all(&[0; ANSWER])?;
    }
}

fn ask(mut stream: TcpStream, bytes: u32) -> io::Result<f64> {
    stream.set_nodelay(true)?;
    let data = vec![0; bytes as usize];
    mean_us(|_| {
        stream.write_all(&data)?;
        stream.read_exact(&mut [0; ANSWER])
    })
}

/// Mean time of a durable append of so many bytes to a file in `dir`.
pub(super) fn append_us(dir: &Path, bytes: u32) -> Result<f64, Failure> {
    let path = dir.join(format!("ashlar-bench-append-{}", std::process::id()));
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let file = file.map_err(Failure::doing(path.display()))?;
    let _gone_after = Temporary::new(path.clone());
    let data = vec![7; bytes as usize];
    let measured = mean_us(|at| {
        file.write_all_at(&data, u64::from(at) * u64::from(bytes))?;
        file.sync_data()
    });
    measured.map_err(Failure::doing(path.display()))
}

fn mean_us(mut act: impl FnMut(u32) -> io::Result<()>) -> io::Result<f64> {
    let warm = TIMES / 10;
    (0..warm).try_for_each(&mut act)?;
    let begun = Instant::now();
    (warm..warm + TIMES).try_for_each(&mut act)?;
    Ok(begun.elapsed().as_secs_f64() * 1e6 / f64::from(TIMES))
}

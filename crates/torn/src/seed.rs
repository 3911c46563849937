//! The database that every part begins with: made once, on an image of a file system, and copied.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use ashlar_block::{BlockRange, BlockSize, Durability, Request};
use ashlar_device::Spec;
use ashlar_lab::{LabError, Progress, Worker};
use ashlar_oltp::database::Database;
use ashlar_oltp::schema::Shape;
use ashlar_oltp::server::{DATABASE, Server, Settings};
use ashlar_oltp::{BuildPlan, Logic, Postgres, build};
use ashlar_testbed::image::LoopMount;
use ashlar_testbed::process::tool;
use ashlar_testbed::stacks::Open;
use ashlar_testbed::worker::ReactorWorker;

/// Block size of the file system: with it, the kernel keeps 16 KiB of a file together from the page
/// cache to the disk.
pub(super) const FILE_SYSTEM_BLOCK: u32 = 16_384;
/// Most that is read and written at once.
const COPY_BYTES: usize = 1 << 20;

/// Rows of the table whose pages are changed all the time; about 7 lie on a page.
pub(super) const PAGE_ROWS: u32 = 14_000;

/// A server that is killed when this is dropped, if it still runs: what is mounted below it must go.
pub(super) struct KilledAtEnd<'a>(pub(super) &'a Server);

impl Drop for KilledAtEnd<'_> {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

/// Where the server is below a mount point.
pub(super) fn server_at(mount: &Path) -> Result<Server, LabError> {
    Server::at(&mount.join("db"))
}

/// The database of a server; waits for it end once `progress` is not to go on.
pub(super) fn database(server: &Server, progress: &Progress) -> Result<Postgres, LabError> {
    Ok(Postgres::new(&server.url(DATABASE), Logic::Functions)?.until(progress))
}

/// PostgreSQL's settings besides `full_page_writes`.
pub(super) fn settings(full_page_writes: bool) -> Settings {
    let mode = if full_page_writes { "on" } else { "off" };
    let set = [
        format!("full_page_writes={mode}"),
        "shared_buffers=128MB".into(),
        "checkpoint_timeout=30s".into(),
        "max_wal_size=256MB".into(),
    ];
    Settings {
        memory_bytes: None,
        set: set.into(),
    }
}

/// What the database holds: TPROC-C, or a schema of its kind of a few MB.
fn shape(warehouses: i32) -> Shape {
    match warehouses {
        0 => Shape {
            warehouses: 1,
            items: 1000,
            customers: 100,
        },
        count => Shape::tpcc(count),
    }
}

/// Bytes of the disk for so many warehouses.
pub(super) fn disk_bytes(warehouses: i32) -> u64 {
    (768 << 20) + (warehouses.unsigned_abs() as u64) * (256 << 20)
}

/// What is in a database of TPROC-C.
#[derive(Clone, Copy, Debug)]
pub(super) struct Holds {
    pub(super) warehouses: i32,
    pub(super) seed: u64,
}

/// Makes the image: XFS, PostgreSQL with checksums, tables, stopped.
pub(super) fn make(
    image: &Path,
    mount: &Path,
    holds: Holds,
    progress: &Progress,
) -> Result<(), LabError> {
    let Holds { warehouses, seed } = holds;
    let caused = |e| LabError::caused(image.display(), e);
    let file = File::create_new(image).map_err(caused)?;
    file.set_len(disk_bytes(warehouses)).map_err(caused)?;
    drop(file);
    let block = format!("size={FILE_SYSTEM_BLOCK}");
    let name = image.display().to_string();
    tool("mkfs.xfs", &["-q", "-b", &block, "-s", "size=4096", &name])?;
    let mounted = LoopMount::new(image, mount)?;
    let server = server_at(mount)?;
    let ended = KilledAtEnd(&server);
    server.start(Some(settings(true)))?;
    server.stop()?;
    server.enable_checksums()?;
    server.start(None)?;
    let database = database(&server, progress)?;
    let plan = BuildPlan {
        shape: shape(warehouses),
        seed,
        users: 2,
        destroy_data: false,
    };
    build(&database, &plan, progress)?;
    for sql in [
        "CREATE TABLE ashlar_ledger (n bigint PRIMARY KEY)".to_owned(),
        "CREATE TABLE ashlar_pages (id int PRIMARY KEY, n int, filler text) WITH (fillfactor = 60)"
            .to_owned(),
        format!(
            "INSERT INTO ashlar_pages SELECT i, 0, repeat(md5(i::text), 20) \
             FROM generate_series(1, {PAGE_ROWS}) i"
        ),
    ] {
        database.execute(&sql)?;
    }
    server.stop()?;
    drop(ended);
    mounted.end()
}

/// What a namespace says that it writes whole, even when the power fails, in bytes.
pub(super) fn atomic_bytes_of(url: &str, open: Open) -> Result<u64, LabError> {
    let spec: Spec = url.parse().map_err(|e| LabError::caused(url, e))?;
    let opened = open(&spec, BlockSize::B4096);
    let geometry = opened.map_err(|e| LabError::caused(url, e))?.geometry();
    Ok(u64::from(geometry.atomic_blocks) << geometry.block_size.shift())
}

/// Copies an image onto a namespace; holes are left out, since it is new.
pub(super) fn copy_to(image: &Path, url: &str, open: Open) -> Result<(), LabError> {
    let caused = |e: std::io::Error| LabError::caused(image.display(), e);
    let spec: Spec = url.parse().map_err(|e| LabError::caused(url, e))?;
    let opener = open(&spec, BlockSize::B4096).map_err(|e| LabError::caused(url, e))?;
    let mut worker = ReactorWorker::open(opener.as_ref(), COPY_BYTES)?;
    let shift = opener.geometry().block_size.shift();
    let file = File::open(image).map_err(caused)?;
    let bytes = file.metadata().map_err(caused)?.len();
    let mut at = 0;
    while at < bytes {
        let len = (bytes - at).min(COPY_BYTES as u64);
        let buffers = worker.buffers();
        let Some(mut buffer) = buffers.get(len as usize) else {
            return Err(LabError::environment("no memory for a copy"));
        };
        file.read_exact_at(&mut buffer, at).map_err(caused)?;
        if buffer.iter().any(|&byte| byte != 0) {
            let range = BlockRange::new(at >> shift, (len >> shift) as u32);
            let request = Request::write(1, range, buffer, Durability::Cached);
            done(&mut worker, request)?;
        }
        at += len;
    }
    done(&mut worker, Request::flush(1))
}

/// Submits one request and waits for it.
fn done(worker: &mut ReactorWorker, request: Request) -> Result<(), LabError> {
    worker.device().submit(request);
    let mut completed = Vec::new();
    loop {
        let now = worker.now();
        worker.device().poll(now, &mut completed);
        if let Some(completion) = completed.pop() {
            return completion
                .result
                .map_err(|error| LabError::environment(error.to_string()));
        }
        let deadline = worker.device().next_deadline();
        worker.turn(deadline)?;
    }
}

//! The way into service: a new cache writes its header; one that was there reads header and pages, and looks
//! whether the backing device is the one it knows, as it left it: by its name, by what begins it, and by some of what both
//! have ([`compare`](super::compare)).

use ashlar_block::{BlockSize, Geometry, IoBuffer, IoError, Moment};

use super::compare::Comparing;
use super::io::Target;
use super::{BLOCK, Cache, Defect, Owner, Side};
use crate::identity::{Identity, Other};
use crate::layout::{GRANULE, HEAD, Header, Layout, Mark, Mode, PAGE, UNIT, decode_page};
use crate::mark::{self, MarkSums};
use crate::policy::S3Fifo;

/// Pages that are read at a time.
const PAGES: u64 = 256;

/// How far it is.
pub(super) struct Opening {
    step: Step,
    /// The cache as it is to be made, or as it is expected.
    wanted: Wanted,
    /// The head of the backing device; once that is known, what belongs there.
    head: Vec<u8>,
    /// What is said of the backing device.
    found: Option<Identity>,
    other: Other,
    same: Same,
    /// It is another one, or has changed: what is cached is forgotten.
    forgets: bool,
    pub(super) comparing: Comparing,
    /// The header must say something else from now on.
    says_more: bool,
}

/// Whether the backing device is the one that is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Same {
    /// By its name.
    Yes,
    /// Nothing names the one or the other, or an older image of it has the same name, and nothing says otherwise.
    Perhaps,
    /// It is another one, that is taken up; or nothing is said of it.
    No,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Header,
    Backing,
    Pages(u64),
    Comparing,
    Kept,
    /// All that a page has is recorded as newer.
    Believing(u64),
    /// The header says that what is cached is of another content.
    Disowning,
    /// Pages of what is forgotten, one by one, and what they describe.
    Forgetting,
    GivingBack,
    Writing,
}

enum Wanted {
    New,
    Known(uuid::Uuid, String),
}

impl Cache {
    /// Makes a cache of what `header` says, over a backing device that has this shape.
    ///
    /// # Errors
    /// A backing device that is too small for what is said, or cannot be used.
    pub fn create(header: Header, backing: Geometry, now: Moment) -> Result<Self, IoError> {
        let mut cache = Self::new(header.layout, backing, now);
        cache.check_backing(&header.backing)?;
        if header.layout.has_part() && header.blocks != BlockSize::B512 {
            return Err(IoError::new(
                ashlar_block::ErrorKind::InvalidRequest,
                "a device that ends within 4 KiB has hosts see blocks of 512 bytes",
            ));
        }
        cache.blocks = header.blocks;
        cache.header = Some(header);
        cache.begin_opening(Wanted::New);
        Ok(cache)
    }

    /// Takes up the cache `id`, over what is said to be its backing device.
    ///
    /// # Errors
    /// A backing device that is too small, or cannot be used.
    pub fn open(
        id: uuid::Uuid,
        layout: Layout,
        backing: Geometry,
        name: &str,
        now: Moment,
    ) -> Result<Self, IoError> {
        let mut cache = Self::new(layout, backing, now);
        cache.check_backing(name)?;
        // What the life before wrote there may be in its volatile cache still: nothing is clean before a flush.
        cache.around.may_have_been();
        cache.cleaning.unflushed = true;
        cache.begin_opening(Wanted::Known(id, name.to_owned()));
        Ok(cache)
    }

    /// Hosts see blocks of this size, as the header says: it is needed before that is read.
    #[must_use]
    pub fn seen_in(mut self, blocks: BlockSize) -> Self {
        self.blocks = blocks;
        self
    }

    /// What is said to be its backing device is this.
    #[must_use]
    pub fn over(mut self, found: Identity, other: Other) -> Self {
        if let Some(opening) = &mut self.opening {
            opening.found = Some(found);
            opening.other = other;
        }
        self
    }

    /// In its life before a flush has failed of which no host was told: the first that a host orders says so.
    #[must_use]
    pub fn after_loss(mut self, is_untold: bool) -> Self {
        if is_untold {
            self.around.may_have_lost();
        }
        self
    }

    fn check_backing(&self, name: &str) -> Result<(), IoError> {
        let refuse = |why: String| {
            let kind = ashlar_block::ErrorKind::InvalidRequest;
            Err(IoError::new(kind, format!("backing device {name} {why}")))
        };
        let (has, needs) = (self.backing.bytes(), self.layout.bytes());
        if has < needs {
            return refuse(format!(
                "has {has} bytes, and the cache knows it with {needs}: it is another one, or was made smaller"
            ));
        }
        if self.layout.has_part() && self.backing.block_size != BlockSize::B512 {
            return refuse(
                "takes no requests of 512 bytes, and what is known of it ends within 4 KiB"
                    .to_owned(),
            );
        }
        let most = u64::from(self.backing.max_blocks) << self.backing.block_size.shift();
        if most < 1 << 20 || needs < (HEAD + UNIT) * GRANULE as u64 {
            return refuse("is too small, or takes no requests of 1 MiB".to_owned());
        }
        Ok(())
    }

    fn begin_opening(&mut self, wanted: Wanted) {
        let step = match wanted {
            Wanted::New => Step::Backing,
            Wanted::Known(..) => Step::Header,
        };
        self.opening = Some(Opening {
            step,
            wanted,
            head: Vec::new(),
            found: None,
            other: Other::Refused,
            same: Same::No,
            forgets: false,
            comparing: Comparing::default(),
            says_more: false,
        });
        let read = match step {
            Step::Header => self.read(Side::Fast, Owner::Open, self.layout.header_at(), 1),
            _ => self.read(Side::Backing, Owner::Open, 0, HEAD),
        };
        self.or_fail(read);
    }

    pub(super) fn or_fail(&mut self, result: Result<(), IoError>) {
        if let Err(error) = result {
            self.fail(error.to_string());
        }
    }

    pub(super) fn opened(&mut self, buffer: Option<IoBuffer>, result: Result<(), IoError>) {
        let Some(opening) = &self.opening else { return };
        let step = opening.step;
        // Space that does not come back is not lost: it is written again some time.
        let result = result.or_else(|error| match step {
            Step::GivingBack => Ok(()),
            _ => Err(error),
        });
        let done = result.and_then(|()| {
            let bytes = buffer.as_deref().unwrap_or_default();
            match step {
                Step::Header => self.header_read(bytes),
                Step::Backing => self.head_read(bytes),
                Step::Pages(first) => self.pages_read(first, bytes),
                Step::Comparing => Ok(()),
                Step::Kept => self.kept_read(bytes.to_vec()),
                Step::Believing(page) => self.believe_next(page + 1),
                Step::Disowning => self.forget_next(),
                Step::Forgetting => {
                    self.give_page_back();
                    Ok(())
                }
                Step::GivingBack => {
                    self.pages.pop_first();
                    self.forget_next()
                }
                Step::Writing => {
                    self.serve();
                    Ok(())
                }
            }
        });
        self.or_fail(done);
    }

    fn opening_at(&mut self, step: Step) {
        if let Some(opening) = &mut self.opening {
            opening.step = step;
        }
    }

    fn header_read(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        let header = Header::decode(bytes)?;
        let refuse = |why: String| Err(IoError::new(ashlar_block::ErrorKind::InvalidRequest, why));
        let Some(Opening { wanted, .. }) = &self.opening else {
            return Ok(());
        };
        if let Wanted::Known(id, _) = wanted
            && header.cache != *id
        {
            return refuse(format!("the header is that of cache {}", header.cache));
        }
        if header.layout != self.layout {
            return refuse(format!(
                "the header is that of a backing device of {} bytes, not {}",
                header.layout.bytes(),
                self.layout.bytes()
            ));
        }
        if header.blocks != self.blocks {
            return refuse(format!(
                "the header says that hosts see blocks of {} bytes, not {}",
                header.blocks, self.blocks
            ));
        }
        if header.is_untold {
            self.around.may_have_lost();
        }
        self.header = Some(header);
        self.check_identity()?;
        self.opening_at(Step::Backing);
        self.read(Side::Backing, Owner::Open, 0, HEAD)
    }

    /// Whether the backing device is the one that the header knows.
    fn check_identity(&mut self) -> Result<(), IoError> {
        let (Some(opening), Some(header)) = (&mut self.opening, &mut self.header) else {
            return Ok(());
        };
        let (Some(found), Wanted::Known(_, name)) = (&opening.found, &opening.wanted) else {
            return Ok(());
        };
        let known = header.identity.as_ref();
        opening.same = match known.map(|known| known.is(found)) {
            Some(true)
                if found.is_of_paths() && known.is_some_and(|known| known.name.is_some()) =>
            {
                Same::Yes
            }
            Some(true) | None => Same::Perhaps,
            Some(false) => Same::No,
        };
        if known.is_some_and(|known| known.says(found)) {
            return Ok(());
        }
        if let Some(known) = known.filter(|known| !known.is(found)) {
            let is_marked = header.mark != Mark::Off;
            if opening.other == Other::Refused {
                let way = match is_marked {
                    true => {
                        ". If it is a whole copy of that, made since the cache was last in service, `volume reopen \
                         --other-device` takes it up in place of it"
                    }
                    false => IF_TAKEN_UP,
                };
                let why = format!(
                    "backing device {name} is another one: it is {found}, and what is cached is of {known}, {}{way}",
                    header.backing
                );
                return Err(IoError::new(ashlar_block::ErrorKind::InvalidRequest, why));
            }
            // A copy has what was cached, too; and what is newer than that is here alone.
            opening.forgets = !is_marked;
        }
        header.identity = Some(found.clone());
        opening.says_more = true;
        Ok(())
    }

    fn head_read(&mut self, head: &[u8]) -> Result<(), IoError> {
        let Some(opening) = &mut self.opening else {
            return Ok(());
        };
        opening.head = head.to_vec();
        let Some(header) = &mut self.header else {
            return Ok(());
        };
        match &opening.wanted {
            Wanted::New => {
                if let Some(other) = mark::whose(head) {
                    let why = format!(
                        "{} is the backing device of cache {other}: flush and delete that, or give it up",
                        header.backing
                    );
                    return Err(IoError::new(ashlar_block::ErrorKind::InvalidRequest, why));
                }
                let known = header.mode == Mode::WriteBack;
                header.head_crc = known.then(|| crc32c::crc32c(head));
                let bytes = header.encode();
                self.write_header(&bytes)
            }
            Wanted::Known(_, name) => {
                check_no_other(header, head)?;
                let checked = check_head(header, name, head);
                match checked {
                    Err(_)
                        if opening.forgets
                            || opening.other != Other::Refused && header.mark == Mark::Off =>
                    {
                        opening.forgets = true;
                    }
                    checked => checked?,
                }
                opening.says_more |= header.backing != *name;
                header.backing.clone_from(name);
                self.read_pages(0)
            }
        }
    }

    fn write_header(&mut self, bytes: &[u8]) -> Result<(), IoError> {
        self.opening_at(Step::Writing);
        let at = self.layout.header_at();
        self.write(Target::FAST, Owner::Open, at, bytes)
    }

    fn read_pages(&mut self, first: u64) -> Result<(), IoError> {
        let left = self.layout.pages().saturating_sub(first).min(PAGES);
        if left > 0 {
            self.opening_at(Step::Pages(first));
            let at = self.layout.page_at(first);
            return self.read(Side::Fast, Owner::Open, at, left);
        }
        if self.opening.as_ref().is_some_and(|opening| opening.forgets) {
            return self.disown();
        }
        self.opening_at(Step::Comparing);
        self.begin_comparing()
    }

    /// What was compared of the device is what is cached; or it differs here.
    pub(super) fn was_compared(&mut self, differs_at: Option<u64>) -> Result<(), IoError> {
        let (Some(opening), Some(header)) = (&mut self.opening, &self.header) else {
            return Ok(());
        };
        if let Some(granule) = differs_at {
            let is_marked = header.mark != Mark::Off;
            if opening.other != Other::Refused && !is_marked {
                opening.forgets = true;
                return self.disown();
            }
            let is_believed = match opening.same {
                Same::Yes => opening.other != Other::Refused,
                Same::Perhaps => opening.other == Other::Believed,
                Same::No => false,
            };
            if is_believed {
                return self.believe_next(0);
            }
            let what = format!(
                "{CHANGED}: at byte {} it has other data than what is cached of it",
                granule * GRANULE as u64
            );
            let error = not_as_left(header, &header.backing, &what);
            let way = match (is_marked, opening.same) {
                (false, _) => IF_TAKEN_UP,
                (true, Same::Yes) => IF_HARMED,
                (true, Same::Perhaps) => IF_NOT_NAMED,
                (true, Same::No) => IF_NOT_WHOLE,
            };
            let why = format!("{}{way}", error.context());
            return Err(IoError::new(error.kind(), why));
        }
        self.read_kept_or_take_up()
    }

    fn read_kept_or_take_up(&mut self) -> Result<(), IoError> {
        let marking = self.header.as_ref().map(|header| header.mark);
        if matches!(marking, Some(Mark::Arming | Mark::Restoring)) {
            self.opening_at(Step::Kept);
            return self.read(Side::Fast, Owner::Open, 0, HEAD);
        }
        self.take_up(Vec::new())
    }

    /// A mark keeps others from the same device: what is cached is right, and the device was harmed. What differs is not
    /// all known, so all that is cached is newer, and goes there.
    fn believe_next(&mut self, from: u64) -> Result<(), IoError> {
        let mut pages = self.pages.range_mut(from..);
        let Some((&number, page)) = pages.next() else {
            return self.read_kept_or_take_up();
        };
        // What belongs to the head goes back with the mark.
        self.dirty += page.believe(if number == 0 { HEAD as usize } else { 0 });
        let bytes = page.encode(number);
        self.opening_at(Step::Believing(number));
        self.write(
            Target::FAST,
            Owner::Open,
            self.layout.page_at(number),
            &bytes,
        )
    }

    /// What is cached is of another content than the device's. The header says so, by a checksum that the device does not
    /// have, until all is forgotten: after a crash what is left may be too little to be found to differ.
    fn disown(&mut self) -> Result<(), IoError> {
        let (Some(opening), Some(header)) = (&self.opening, &mut self.header) else {
            return Ok(());
        };
        header.head_crc = Some(!crc32c::crc32c(&opening.head));
        let bytes = header.encode();
        self.opening_at(Step::Disowning);
        self.write(Target::FAST, Owner::Open, self.layout.header_at(), &bytes)
    }

    fn forget_next(&mut self) -> Result<(), IoError> {
        let Some((&page, _)) = self.pages.first_key_value() else {
            // Of a head that was to be kept for a mark, too, which the other device has no part in.
            (self.cached, self.dirty) = (0, 0);
            self.know_head();
            return self.take_up(Vec::new());
        };
        self.opening_at(Step::Forgetting);
        let at = self.layout.page_at(page);
        self.write(Target::FAST, Owner::Open, at, &[0; GRANULE])
    }

    /// What begins the device now is what belongs there.
    fn know_head(&mut self) {
        if let (Some(opening), Some(header)) = (&mut self.opening, &mut self.header) {
            let known = header.mode == Mode::WriteBack;
            header.head_crc = known.then(|| crc32c::crc32c(&opening.head));
            opening.says_more = true;
        }
    }

    fn give_page_back(&mut self) {
        let Some((&page, _)) = self.pages.first_key_value() else {
            return;
        };
        self.opening_at(Step::GivingBack);
        let first = page * PAGE;
        let granules = PAGE.min(self.layout.granules.saturating_sub(first));
        self.give_back(Owner::Open, first, granules);
    }

    fn pages_read(&mut self, first: u64, bytes: &[u8]) -> Result<(), IoError> {
        for (page, bytes) in (first..).zip(bytes.chunks_exact(GRANULE)) {
            if let Some(said) = decode_page(page, bytes)? {
                self.cached += said.cached.count();
                self.dirty += said.newer.count();
                self.flushes_were(said.lately.turn());
                self.pages.insert(page, super::Page::found(said));
            }
        }
        self.read_pages(first + (bytes.len() / GRANULE) as u64)
    }

    /// The mark was being put, or taken away: the backing device has what belongs there, or the mark, sector by sector.
    /// Another device would be written over.
    fn kept_read(&mut self, kept: Vec<u8>) -> Result<(), IoError> {
        let (Some(opening), Some(header)) = (&self.opening, &self.header) else {
            return Ok(());
        };
        // Programs before have left none. Hosts may have written what belongs there since the mark was put, so it cannot
        // be made from that when it is taken away.
        let made = || MarkSums::of(&mark::put(&kept, header.cache));
        let sums = match (&header.marked, header.mark) {
            (Some(sums), _) => Some(sums.clone()),
            (None, Mark::Arming) => Some(made()),
            (None, _) => None,
        };
        if !sums.is_none_or(|sums| sums.fits(&opening.head, &kept)) {
            return Err(not_as_left(header, &header.backing, CHANGED));
        }
        self.take_up(kept)
    }

    fn take_up(&mut self, head: Vec<u8>) -> Result<(), IoError> {
        let Some(opening) = &mut self.opening else {
            return Ok(());
        };
        opening.head = head;
        if let (true, Some(header)) = (opening.says_more, &self.header) {
            let bytes = header.encode();
            return self.write_header(&bytes);
        }
        self.serve();
        Ok(())
    }

    fn serve(&mut self) {
        let opening = self.opening.take();
        let is_known = |opening: &Opening| matches!(opening.wanted, Wanted::Known(..));
        if opening.as_ref().is_some_and(is_known) {
            self.begin_sweeping();
        }
        let head = opening.map(|opening| opening.head);
        let mark = self.header.as_ref().map_or(Mark::Off, |header| header.mark);
        self.begin_service();
        self.take_up_mark(mark, head.unwrap_or_default());
    }

    /// All is known: what is cached is as warm as it was.
    fn begin_service(&mut self) {
        if self.sings(Defect::ColdAfterCrash) {
            self.cached = self.dirty;
            for page in self.pages.values_mut() {
                page.present = page.dirty.clone();
            }
        }
        if self.sings(Defect::KilledLifeWasFlushed) {
            self.around = Default::default();
            self.cleaning.unflushed = false;
        }
        self.forget_unmarked();
        let bytes = self.header.as_ref().map_or(0, |header| header.cache_bytes);
        let blocks = bytes / (BLOCK * GRANULE as u64);
        self.policy = S3Fifo::new(blocks.clamp(64, u64::from(u32::MAX)) as usize);
        let head = self.head();
        let present: Vec<u64> = self
            .pages
            .iter()
            .flat_map(|(page, bits)| bits.present.iter().map(move |at| page * PAGE + at as u64))
            .filter(|&granule| granule >= head)
            .collect();
        for granule in present {
            for block in Self::blocks(granule, granule + 1) {
                self.policy.restore(block);
            }
        }
    }
}

/// Whether the backing device begins as it was left.
fn check_head(header: &Header, name: &str, head: &[u8]) -> Result<(), IoError> {
    let Some(crc) = header.head_crc else {
        return Ok(());
    };
    let is_plain = crc32c::crc32c(head) == crc;
    let is_marked = crc32c::crc32c(&mark::take_away(head)) == crc;
    let fits = match header.mark {
        Mark::Off => is_plain,
        Mark::On => is_marked,
        // A crash may have left some of each.
        Mark::Arming | Mark::Restoring => true,
    };
    if fits {
        return Ok(());
    }
    let what = match header.mark {
        Mark::On => "does not have the mark that was put on it",
        _ => CHANGED,
    };
    Err(not_as_left(header, name, what))
}

const CHANGED: &str = "has changed since it was left";
const IF_HARMED: &str = ". If that is no older image of it but was harmed there, `volume reopen --other-device` takes it up with what is cached";
const IF_NOT_NAMED: &str = ". Nothing that names it tells it from an older image, which must not be taken up. If it is the device \
                            itself, `volume reopen --other-device --accept-data-loss` takes it up with what is cached, \
                            and what it has lost besides is lost";
const IF_NOT_WHOLE: &str = ". It is no whole copy: only the device itself can be taken up";
const IF_TAKEN_UP: &str = ". If it is to be cached as it is now, `volume reopen --other-device` takes it up with nothing cached";

/// Whether the backing device of a cache without a mark begins as it did when that was taken away, or the cache was made.
pub(super) fn check_unmarked(header: &Header, head: &[u8]) -> Result<(), IoError> {
    check_no_other(header, head)?;
    check_head(header, &header.backing, head)
}

/// Where there is to be no mark, there is none of another cache.
fn check_no_other(header: &Header, head: &[u8]) -> Result<(), IoError> {
    match mark::whose(head).filter(|_| header.mark == Mark::Off) {
        Some(other) => {
            let what = format!("has the mark of cache {other}");
            Err(not_as_left(header, &header.backing, &what))
        }
        None => Ok(()),
    }
}

/// Whether it has the mark that was put there, or some of it; of a mark that a program before has put, as far as that is
/// known.
pub(super) fn check_marked(header: &Header, head: &[u8], kept: &[u8]) -> Result<(), IoError> {
    let fits = match &header.marked {
        Some(sums) => sums.fits(head, kept),
        None => true,
    };
    match fits {
        true => Ok(()),
        false => Err(not_as_left(header, &header.backing, CHANGED)),
    }
}

fn not_as_left(header: &Header, name: &str, what: &str) -> IoError {
    IoError::new(
        ashlar_block::ErrorKind::InvalidRequest,
        format!(
            "backing device {name} {what}: it is not {}, or something wrote to it without the cache, of which \
             what is cached knows nothing",
            header.backing
        ),
    )
}

//! The world: a pool, its users, what befalls it, and time.

mod imports;

use std::rc::Rc;
use std::time::Duration;

use super::cached::Caches;
use super::drive::{Drive, Handle, Hang, Lies, Shared};
use super::layouts::Facts;
use super::load::{Asked, Load};
use super::members::Members;
use super::memory::Memory;
use super::model::Model;
use super::node::{News, Node};
use super::plan::{Fate, Plan, Step, Wish};
use super::report::Summary;
use super::rig::{Cut, Rig};
use super::seam::{DRIVE_REPLY_TIMEOUT, Devices, Manage, Subject, Wait};
use super::volumes::{Order, Volumes};
use crate::chance::Chance;
use crate::report::Listener;
use ashlar_block::{Moment, Request};
use imports::Swap;

/// Turns after which a world is stuck in a circle.
const MOST_TURNS: u64 = 3_000_000;
/// Simulated time in which everything that was asked must have been answered.
const LIMIT: Duration = Duration::from_secs(300);
/// Simulated time in which drives that are to leave must have left.
pub(crate) const LEAVE_TIMEOUT: Duration = Duration::from_secs(30);
/// Waits of an import after which it hangs.
const MOST_WAITS: u64 = 2_000_000;

pub(crate) struct World<'a, S> {
    pub(crate) rig: Rc<Rig>,
    pub(crate) chance: Chance,
    pub(crate) plan: Plan,
    pub(crate) drives: Vec<Shared>,
    pub(crate) members: Members,
    pub(crate) node: Option<Node<S>>,
    pub(crate) model: Model,
    pub(crate) load: Load,
    pub(crate) volumes: Volumes,
    pub(crate) caches: Caches,
    next_fate: usize,
    /// Whether the next crash takes the power too.
    power: bool,
    /// After the next crash the first of these drives is back, and the other is not, at first.
    swap: Option<Swap>,
    memory: Rc<Memory>,
    /// The node's power fails at these times; before the second, drives stand still.
    doom: Vec<Doom>,
    since: Moment,
    /// Why a pool of which nothing has a second copy has stopped; then it is looked at once more.
    over: Option<String>,
    pub(crate) summary: Summary,
    listener: Option<Listener<'a>>,
}

/// What a hung drive's time brings when it is over.
#[derive(Clone, Copy)]
struct Doom {
    at: Moment,
    /// The drive that hangs, and the one that is absent after the crash.
    swap: Swap,
    is_end: bool,
}

impl<'a, S: Subject> World<'a, S> {
    pub(crate) fn new(plan: Plan, mut chance: Chance, listener: Option<Listener<'a>>) -> Self {
        let rig = Rig::new(listener.is_some());
        let drives = plan.drives.iter().enumerate();
        let drives = drives
            .map(|(index, &size)| Drive::new(&rig, index, size, plan.pace, chance.fork()))
            .collect();
        let shapes = plan.wishes.iter();
        // What goes past a cache is passed through.
        let is_raw = |wish: &Wish| Facts::of(wish.layout).raw || wish.cache.is_some();
        let shapes = shapes.map(|wish| (wish.granules, is_raw(wish)));
        let model = Model::new(&shapes.collect::<Vec<_>>());
        let mut load = Load::new(plan.habits.clone(), chance.fork(), &model, &plan.wishes);
        // Space that drives are taken out of, or that is kept, volumes do without.
        load.excuses.full = plan.overcommitted || plan.has_orders();
        load.excuses.lost = plan.liar.is_some();
        load.excuses.frail = plan.frail().into_iter().collect();
        load.excuses.rotten = plan.is_rotten();
        let caches = Caches::new(&plan, &rig, &mut chance);
        Self {
            memory: Rc::new(Memory::new(&rig)),
            rig,
            drives,
            members: Members::new(&plan),
            node: None,
            model,
            load,
            volumes: Volumes::new(&plan.wishes, plan.initial),
            caches,
            next_fate: 0,
            power: false,
            swap: None,
            doom: Vec::new(),
            since: Moment::ORIGIN,
            over: None,
            summary: Summary::default(),
            chance,
            plan,
            listener,
        }
    }

    /// The time in microseconds.
    pub(crate) fn micros(&self) -> u64 {
        self.rig.now().as_nanos() / 1000
    }

    /// Tells something.
    pub(crate) fn say(&mut self, what: impl FnOnce() -> String) {
        self.rig.note(what);
        self.tell();
    }

    fn tell(&mut self) {
        if let Some(listener) = &mut self.listener {
            self.rig.take_notes().iter().for_each(|line| listener(line));
        }
    }

    /// Tells what the world is made of.
    pub(crate) fn say_plan(&mut self) {
        let plan = self.plan.clone();
        self.say(|| format!("{plan:?}"));
    }

    /// The whole life of a world.
    pub(crate) fn live(&mut self) -> Result<(), String> {
        let lived = self.live_through();
        match self.over.clone() {
            Some(why) => self.look_back(&why),
            None => lived,
        }
    }

    /// A pool that has stopped, or that cannot be imported any more, takes no writes. What it still
    /// returns is right.
    fn look_back(&mut self, why: &str) -> Result<(), String> {
        self.say(|| format!("the pool has stopped: {why}"));
        self.peace();
        self.load.stop();
        if self.node.is_none() {
            return Ok(());
        }
        self.until("everything is answered", |w| w.load.is_idle())?;
        self.check_all("everything is read that can be")
    }

    fn live_through(&mut self) -> Result<(), String> {
        self.fill_devices();
        self.format()?;
        self.restart()?;
        if let Some((liar, per_mille)) = self.plan.liar {
            self.drives[liar].borrow_mut().lies = Lies {
                misdirected: per_mille,
                phantom: per_mille,
            };
        }
        self.until("all commands are answered", |w| w.load.is_done())?;
        self.peace();
        self.mend_devices()?;
        self.end()
    }

    /// Faults stop.
    fn peace(&mut self) {
        self.say(|| "faults stop".into());
        self.next_fate = self.plan.fates.len();
        self.plan.import_cuts = 0;
        if !self.rig.is_off() {
            self.rig.restore();
        }
        for drive in &self.drives {
            drive.borrow_mut().lies = Lies::default();
        }
    }

    /// What must be so when the faults have stopped, and the users too.
    pub(crate) fn end(&mut self) -> Result<(), String> {
        self.check_all("everything is read")?;
        self.settle_at_last()?;
        self.check_left()?;
        self.lose_another()?;
        self.check_all("everything is read after it has settled")?;
        // Slots that only a lost leaf has named stay taken.
        if self.plan.overcommitted && !self.load.excuses.rotten {
            self.relieve()?;
        }
        self.rest_caches()?;
        let power = self.chance.happens(500);
        self.crash(power)?;
        self.check_all("everything is read after a clean import")?;
        self.await_caches()?;
        self.leave_all()?;
        self.fail_power();
        let bytes = self.load.outstanding_bytes();
        if bytes > 0 {
            return Err(format!("{bytes} bytes of memory have not come back"));
        }
        Ok(())
    }

    /// Reads everything and compares.
    pub(crate) fn check_all(&mut self, what: &str) -> Result<(), String> {
        self.load.check_all(&self.model);
        self.until(what, |w| w.load.is_idle())
    }

    /// Empties the logs, whatever crashes meanwhile.
    pub(crate) fn settle_at_last(&mut self) -> Result<(), String> {
        loop {
            let crashes = self.summary.crashes;
            self.await_caches()?;
            self.settle()?;
            // Slots with tiers go on moving until nothing is too hot or too cold where it is.
            self.until("slots have moved", |w| {
                let engine = w.node.as_ref().map(|node| node.engine());
                engine.is_none_or(|engine| !engine.is_moving())
            })?;
            if self.summary.crashes == crashes {
                return self.check_accounts();
            }
        }
    }

    /// Empties the logs, unless a crash comes between.
    pub(crate) fn settle(&mut self) -> Result<(), String> {
        self.order(Order::Settle, Manage::Drain);
        self.until("the logs are empty", |w| w.volumes.is_idle())
    }

    /// Makes the pool.
    pub(crate) fn format(&mut self) -> Result<(), String> {
        let (devices, wait) = (self.devices(), self.wait());
        S::format(devices, wait, &self.plan.shape)
            .map_err(|why| format!("format failed: {why}"))?;
        self.tell();
        for drive in &self.drives {
            let power = self.chance.happens(500);
            drive.borrow_mut().crash(power);
        }
        Ok(())
    }

    fn devices(&self) -> Devices {
        self.drives.iter().map(Handle::open).collect()
    }

    fn wait(&self) -> Wait {
        self.wait_for_all(self.drives.clone())
    }

    /// Waits for one drive while the others are not looked at.
    pub(crate) fn wait_for(&self, drive: &Shared) -> Wait {
        self.wait_for_all(vec![drive.clone()])
    }

    fn wait_for_all(&self, drives: Vec<Shared>) -> Wait {
        let rig = self.rig.clone();
        let mut waits = 0;
        Box::new(move || {
            let next = drives.iter().filter_map(|drive| drive.borrow().next());
            let soon = rig.now() + Duration::from_nanos(100);
            let later = rig.now() + Duration::from_millis(1);
            rig.advance(next.min().unwrap_or(later).max(soon));
            waits += 1;
            assert!(waits < MOST_WAITS, "an import or format never ends");
            rig.now()
        })
    }

    /// The drives of a node that has failed.
    pub(crate) fn fail_power(&mut self) {
        if let Some(node) = self.node.take() {
            self.summary.lost = self.summary.lost.max(node.engine().lost());
            let (to, from) = node.engine().moved();
            self.summary.promoted += to;
            self.summary.demoted += from;
        }
        let power = self.power;
        self.say(|| format!("the node is gone, power lost: {power}"));
        for drive in &self.drives {
            drive.borrow_mut().crash(power);
        }
        if power {
            self.model.lose_caches();
        }
        for volume in self.caches.may_forget() {
            self.model.forgive(volume);
        }
        for volume in self.caches.fail_power(power) {
            self.model.lose_cache_of(volume);
        }
        self.rig.restore();
        // Without all its drives a volume that is not there yet cannot be made.
        if self.volumes.are_made()
            && self.chance.happens(self.plan.casualty_per_mille)
            && let Some(drive) = self.plan.casualties.pop()
        {
            self.say(|| format!("drive {drive} does not come back"));
            self.lose_drive(drive);
        }
        let pause = self.chance.time(Duration::from_secs(1));
        self.rig.pass(pause);
    }

    /// The node fails, perhaps with its power, and comes back.
    pub(crate) fn crash(&mut self, power: bool) -> Result<(), String> {
        self.power = power;
        self.fall();
        self.caches.check_devices(&mut self.model)?;
        self.restart()
    }

    /// The node fails.
    pub(crate) fn fall(&mut self) {
        self.summary.crashes += 1;
        self.doom.clear();
        self.fail_power();
        self.model.crash();
        self.load.crash();
        self.volumes.crash();
        if let Some(missing) = self.plan.missing {
            self.lose_drive(missing);
        }
    }

    /// Lets time go on until `done`.
    pub(crate) fn until(&mut self, what: &str, done: impl Fn(&Self) -> bool) -> Result<(), String> {
        self.since = self.rig.now();
        let mut busy = true;
        while !(self.is_ready() && done(self)) {
            let now = self.rig.now();
            let turns = self.summary.turns;
            if now.since(self.since) > LIMIT || turns > MOST_TURNS {
                let waiting = self.load.waiting(now).join(", ");
                return Err(format!("never: {what}; turn {turns}; waiting: [{waiting}]"));
            }
            self.step(busy);
            busy = self.turn()?;
            self.tell();
        }
        Ok(())
    }

    /// Whether nothing is waited for.
    fn is_idle(&self) -> bool {
        self.load.is_idle() && self.volumes.is_idle()
    }

    /// Whether the first volumes are there.
    fn is_ready(&self) -> bool {
        self.node.is_some() && self.volumes.are_made() && self.caches.are_finished()
    }

    /// Whether users ask for something; while their only volume is being exchanged they wait.
    fn may_ask(&self) -> bool {
        self.is_ready() && (self.caches.is_idle() || self.load.has_open())
    }

    /// Time goes on to the next event.
    fn step(&mut self, busy: bool) {
        self.summary.turns += 1;
        let now = self.rig.now();
        let soon = now + Duration::from_nanos(200);
        if busy {
            self.rig.advance(soon);
            return;
        }
        let drives = self.drives.iter().filter_map(|d| d.borrow().next()).min();
        let engine = self.node.as_ref().and_then(Node::next);
        let load = self.load.next().filter(|_| self.may_ask());
        let doom = self.doom.first().map(|doom| doom.at);
        let caches = self.caches.next();
        let next = [drives, engine, load, doom, caches]
            .into_iter()
            .flatten()
            .min();
        let later = now + Duration::from_millis(100);
        self.rig.advance(next.unwrap_or(later).max(soon));
    }

    /// All parts do what there is to do. True if anything was done.
    fn turn(&mut self) -> Result<bool, String> {
        self.befall()?;
        if self.rig.is_off() {
            self.crash(self.power)?;
        }
        let now = self.rig.now();
        for drive in &self.drives {
            drive.borrow_mut().serve_the_gone();
        }
        if self.may_ask() {
            self.ask(now);
        }
        let Some(node) = &mut self.node else {
            return Ok(false);
        };
        node.poll(now);
        if self.rig.is_off() {
            return Ok(true);
        }
        let mut news = Vec::new();
        let mut busy = node.turn(now, &mut self.chance, &mut news)?;
        for one in news {
            self.hear(one)?;
        }
        busy |= self.turn_caches(now)?;
        if let Some(violation) = self.rig.violation() {
            return Err(violation);
        }
        if self.load.excuses.rotten && self.over.is_none() {
            let engine = self.node.as_ref().map(|node| node.engine());
            self.over = engine.and_then(Subject::stopped);
            self.over.clone().map_or(Ok(()), Err)?;
        }
        Ok(busy)
    }

    fn ask(&mut self, now: Moment) {
        while let Some(asked) = self.load.ask(now, &mut self.model) {
            self.pass_on(asked);
        }
    }

    pub(crate) fn pass_on(&mut self, asked: Asked) {
        let Asked { volume, request } = asked;
        self.rig.note(|| {
            let (tag, op, range) = (request.tag, request.op, request.range);
            format!("command {tag}: {op:?} of volume {volume} {range}")
        });
        if self.caches.has(volume) {
            return self.caches.submit(volume, request);
        }
        let spread = self.volumes.wish(volume).spread;
        if let (Some(node), Some(number)) = (&mut self.node, self.volumes.number(volume)) {
            let range = spread.range(request.range);
            node.command(number, Request { range, ..request });
        }
    }

    pub(crate) fn hear(&mut self, news: News) -> Result<(), String> {
        match news {
            News::Answered(completion) if Caches::asked(completion.tag) => {
                self.cache_is_answered(completion)
            }
            News::Answered(completion) => {
                let tag = completion.tag;
                self.summary.commands += 1;
                let answer = self.load.done(completion, &mut self.model)?;
                let named = &answer.named;
                self.rig.note(|| format!("command {tag} answered: {named}"));
                match answer.refused {
                    Some((volume, slots)) => self.check_full(volume, slots, named),
                    None => Ok(()),
                }
            }
            News::Managed(id, result) => self.managed(id, result),
            News::Stored(membership) => {
                self.memory.keep(membership);
                Ok(())
            }
        }
    }

    /// Lets happen what is due to happen.
    fn befall(&mut self) -> Result<(), String> {
        self.meet_doom()?;
        while let Some(&(at, fate)) = self.plan.fates.get(self.next_fate) {
            if self.load.answered < at && !self.load.is_done() {
                break;
            }
            self.next_fate += 1;
            self.say(|| format!("{fate:?}"));
            self.strike(fate)?;
        }
        Ok(())
    }

    pub(crate) fn strike(&mut self, fate: Fate) -> Result<(), String> {
        let now = self.rig.now();
        match fate {
            Fate::Crash { power } => return self.crash(power),
            Fate::Fuse { after, cut, power } => {
                self.power = power;
                self.rig.set_fuse(after, cut);
            }
            Fate::Settle if !self.is_settling() => {
                self.order(Order::Settle, Manage::Drain);
            }
            Fate::Settle => {}
            Fate::Create => self.create_next(),
            Fate::Delete { pick } => {
                // The first one stays: users want something to do.
                if let Some(volume) = chosen(&self.volumes.made(), pick).filter(|&v| v > 0) {
                    self.give_up(volume);
                }
            }
            Fate::Resize { pick, to } => {
                if let Some(volume) = chosen(&self.volumes.made(), pick) {
                    let most = self.volumes.wish(volume).most;
                    self.resize(volume, to % most + 1);
                }
            }
            Fate::Rest(time) => self.load.rest(now + time),
            Fate::Short { drive, time } => self.drives[drive].borrow_mut().run_short(now + time),
            Fate::Stall { drive, time } => self.drives[drive].borrow_mut().stall(now + time),
            Fate::Die { drive } if drive < self.drives.len() => self.lose_drive(drive),
            Fate::Die { .. } => {}
            Fate::Swap {
                dies,
                absent,
                after: Some(after),
            } => {
                self.lose_drive(dies);
                // Whatever is acknowledged now, the one that will be absent alone has it.
                for (index, drive) in self.drives.iter().enumerate() {
                    if index != absent {
                        drive.borrow_mut().stall(now + Duration::from_millis(20));
                    }
                }
                self.swap = Some(Swap::of(dies, absent));
                self.power = false;
                self.rig.set_fuse(after, Cut::Before);
            }
            Fate::Swap {
                dies,
                absent,
                after: None,
            } => self.hang_and_swap(dies, absent),
            // Without both drives a volume that is not there yet cannot be made.
            Fate::Half { .. } if !self.volumes.are_made() => {}
            Fate::Half { back, absent } => {
                self.swap = Some(Swap {
                    back,
                    absent,
                    must_serve: self.have_all(),
                });
                return self.crash(true);
            }
            Fate::Hang { drive, time } if drive < self.drives.len() => {
                self.hang_drive(
                    drive,
                    time.map_or(Hang::Forever, |time| Hang::Until(now + time)),
                );
            }
            Fate::Hang { .. } => {}
            Fate::Return { drive } if drive >= self.drives.len() => {}
            Fate::Return { drive } if self.members.is_pulled(drive) => {}
            Fate::Return { drive } => self.revive(drive),
            Fate::Add { size } => return self.add_drive(size),
            Fate::Remove { pick } => self.remove_drive(pick),
            Fate::Reserve(reserve) => self.keep(reserve),
            Fate::Stops { pick, stops } => {
                if let Some(volume) = chosen(&self.volumes.made(), pick) {
                    self.set_stops(volume, stops);
                }
            }
            Fate::Cache { volume, what } => self.befall_cache(volume, what),
            Fate::Readmit => self.readmit_drive(),
            Fate::Repair => self.order(Order::Repair, Manage::Repair),
            Fate::Scrub => self.order(Order::Scrub, Manage::Scrub),
            Fate::Flip { drive } | Fate::Spoil { drive } => self.damage(drive, fate),
        }
        Ok(())
    }

    /// Whether the node has stored that each of its drives has everything.
    fn have_all(&self) -> bool {
        let knows = self.memory.knows(self.drives.len(), self.members.term);
        let alive = !self.drives.iter().any(|drive| drive.borrow().is_dead());
        let is_whole = |node: &Node<S>| !node.is_storing() && node.engine().is_whole();
        knows && alive && self.node.as_ref().is_some_and(is_whole)
    }

    pub(crate) fn lose_drive(&mut self, drive: usize) {
        self.drives[drive].borrow_mut().die();
        self.load.excuses.lost = true;
    }

    /// A drive answers nothing any more, or not for long.
    fn hang_drive(&mut self, drive: usize, how: Hang) {
        self.drives[drive].borrow_mut().hang(how);
        self.load.excuses.lost = true;
    }

    /// A drive hangs, and as its time is over the node's power fails: what is acknowledged by then may be on
    /// the one alone that is absent afterwards.
    fn hang_and_swap(&mut self, hangs: usize, absent: usize) {
        self.hang_drive(hangs, Hang::Forever);
        let over = self.rig.now() + DRIVE_REPLY_TIMEOUT;
        let later = self.chance.time(Duration::from_millis(12));
        let stall = Doom {
            at: over,
            swap: Swap::of(hangs, absent),
            is_end: false,
        };
        let end = Doom {
            at: over + later,
            is_end: true,
            ..stall
        };
        self.doom = vec![stall, end];
    }

    fn meet_doom(&mut self) -> Result<(), String> {
        let now = self.rig.now();
        while self.doom.first().is_some_and(|doom| doom.at <= now) {
            let Doom { swap, is_end, .. } = self.doom.remove(0);
            let (hangs, absent) = (swap.back, swap.absent);
            if is_end {
                self.swap = Some(swap);
                self.crash(false)?;
                continue;
            }
            for (index, drive) in self.drives.iter().enumerate() {
                if index != absent && Some(index) != hangs {
                    let (at, time) = (now, Duration::from_millis(10));
                    drive.borrow_mut().stall(at + time);
                }
            }
        }
        Ok(())
    }

    /// A drive comes back, perhaps without what was in its cache.
    fn revive(&mut self, drive: usize) {
        if self.drives[drive].borrow_mut().revive() {
            self.model.lose_caches();
            self.members.doubt(drive);
        }
    }

    fn damage(&mut self, drive: usize, fate: Fate) {
        let page = self.drives[drive]
            .borrow()
            .pages
            .used_page(&mut self.chance);
        let Some(page) = page else { return };
        if self.load.excuses.rotten && self.is_spared(drive, page) {
            return;
        }
        let mut drive = self.drives[drive].borrow_mut();
        let at = page + self.chance.below(super::pages::PAGE as u64);
        match fate {
            Fate::Flip { .. } => drive.pages.flip(at, self.chance.below(8) as u32),
            _ => drive.pages.spoil(at),
        }
    }

    /// Counts what has happened.
    pub(crate) fn count(&self) -> Summary {
        let caches = self.caches.tally;
        Summary {
            hits: caches.hits,
            written_back: caches.written_back,
            left: caches.left,
            changes: self.rig.changes(),
            micros: self.micros(),
            ..self.summary
        }
    }

    /// The power fails at the `after`th write or flush from now on.
    pub(crate) fn set_fuse(&mut self, after: u64, cut: Cut, power: bool) {
        self.power = power;
        self.rig.set_fuse(after, cut);
    }

    /// Follows a script until its end or the first crash.
    pub(crate) fn follow(&mut self, script: &[Step]) -> Result<(), String> {
        for step in script {
            let crashes = self.summary.crashes;
            self.until("the script goes on", |w| match step {
                Step::Wait | Step::Settle => w.is_idle(),
                Step::Ask(..) | Step::Do(_) => true,
            })?;
            if self.summary.crashes > crashes {
                return Ok(());
            }
            match *step {
                Step::Wait => {}
                Step::Settle => self.settle()?,
                Step::Ask(volume, op, range) => self.ask_for(volume, op, range)?,
                Step::Do(fate) => self.strike(fate)?,
            }
            if self.summary.crashes > crashes {
                return Ok(());
            }
        }
        self.until("the script ends", Self::is_idle)
    }
}

/// One of those that there are.
fn chosen(among: &[usize], pick: u64) -> Option<usize> {
    let count = among.len() as u64;
    among.get(pick.checked_rem(count)? as usize).copied()
}

//! Worlds of two drives that lose one together with the power.

use ashlar_store::Layout;

use super::layouts::Facts;
use super::plan::{Fate, Plan};
use crate::chance::Chance;

impl Plan {
    /// One of two drives dies, perhaps, and then now the one and now the other is all that is left.
    pub(crate) fn draw_halves(&mut self, chance: &mut Chance) {
        self.hold_on_both();
        let commands = self.habits.commands;
        let mut at = chance.below(commands / 2 + 1);
        let mut back = None;
        // It dies alone: the other goes on for as long as the node lives.
        if chance.happens(500) {
            let drive = chance.below(2) as usize;
            self.fates.push((at, Fate::Die { drive }));
            back = Some(drive);
            at += chance.pick(&[0, 0, 1, 3, 20, 100]);
        }
        for _ in 0..chance.between(1, 3) {
            // Mostly they change places.
            let absent = match back.filter(|_| chance.happens(700)) {
                Some(back) => 1 - back,
                None => chance.below(2) as usize,
            };
            self.fates.push((at, Fate::Half { back, absent }));
            at += chance.pick(&[0, 1, 3, 20, 100]);
            back = Some(absent);
        }
        self.fates.sort_by_key(|(at, _)| *at);
    }

    /// Each of two drives has a copy of everything.
    pub(crate) fn hold_on_both(&mut self) {
        self.shape.log_copies = 2;
        for wish in &mut self.wishes {
            if Facts::of(wish.layout).losses > 1 {
                wish.layout = Layout::Mirror { copies: 2 };
            }
        }
    }
}

//! Worlds of two drives that lose one together with the power.

use ashlar_store::Layout;

use super::layouts::Facts;
use super::plan::{Fate, Plan};
use crate::chance::Chance;

impl Plan {
    /// One of two drives is all that is left, and later the other, or the other way round.
    pub(crate) fn draw_halves(&mut self, chance: &mut Chance) {
        self.hold_on_both();
        let commands = self.habits.commands;
        let first = chance.below(2) as usize;
        let other = 1 - first;
        let mut at = chance.below(commands / 2 + 1);
        let begins = match chance.happens(500) {
            true => Fate::Half {
                back: None,
                absent: first,
            },
            // It dies alone: the other goes on for as long as the node lives.
            false => Fate::Die { drive: first },
        };
        self.fates.push((at, begins));
        if chance.happens(700) {
            at += chance.pick(&[0, 1, 3, 20, 100]);
            let back = Some(first);
            self.fates.push((
                at,
                Fate::Half {
                    back,
                    absent: other,
                },
            ));
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

//! A copy that lacks what it has acknowledged. The quorum remembers that, and has to forget it as soon as it is over: the
//! next process goes by it.

use super::{News, Replicated};

impl Replicated {
    /// Whether it lacks something, and was not made equal yet.
    pub(super) const fn lacks(&self) -> bool {
        self.replica.is_old_image() || self.replica.lags()
    }

    /// Says so when that has changed.
    pub(super) fn tell_what_lacks(&mut self) {
        let lacks = self.lacks();
        if std::mem::replace(&mut self.plan.is_old_image, lacks) != lacks {
            self.outside.tell(News::Lacks(lacks));
        }
    }
}

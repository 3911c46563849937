//! What a pool is: its label and sizes. And what is to be wrong with it, in builds with canaries and in tests.

use crate::format::{Features, Label, Salt};
use crate::{Cage, Canary, Sizes};

pub(super) struct Identity {
    label: Label,
    cage: Cage,
}

impl Identity {
    pub(super) fn new(label: Label, cage: Cage) -> Self {
        Self { label, cage }
    }

    pub(super) fn label(&self) -> &Label {
        &self.label
    }

    /// The pool uses these features now.
    pub(super) fn set_features(&mut self, features: Features) {
        self.label.features = features;
    }

    pub(super) fn salt(&self) -> Salt {
        self.label.salt
    }

    pub(super) fn sizes(&self) -> &Sizes {
        &self.label.sizes
    }

    /// Whether this defect is wanted.
    pub(super) fn sings(&self, canary: Canary) -> bool {
        self.cage.sings(canary)
    }

    pub(super) fn cage(&self) -> Cage {
        self.cage
    }
}

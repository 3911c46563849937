//! Which node and place each database of a fleet is on.

use ashlar_lab::LabError;

/// Places dealt out to nodes, databases to nodes and then to the places of theirs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Nodes {
    /// Indices of each node's places.
    places: Vec<Vec<usize>>,
}

/// Where a database is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Home {
    pub(crate) node: usize,
    pub(crate) place: usize,
}

impl Nodes {
    /// `wanted` nodes, or one for each place.
    pub(crate) fn of(wanted: Option<usize>, places: usize) -> Result<Self, LabError> {
        let count = wanted.unwrap_or(places);
        if count == 0 || !places.is_multiple_of(count) {
            return Err(LabError::usage(format!(
                "nodes = {count}: each has a place of its own or several; given: {places} (--place NAME=DIR)"
            )));
        }
        let of_node = |node| (0..places).filter(|place| place % count == node).collect();
        Ok(Self {
            places: (0..count).map(of_node).collect(),
        })
    }

    /// How many there are.
    pub(crate) fn count(&self) -> usize {
        self.places.len()
    }

    /// Where a database goes, by its number from 0.
    pub(crate) fn home(&self, database: usize) -> Home {
        let node = database % self.count();
        let places = &self.places[node];
        Home {
            node,
            place: places[(database / self.count()) % places.len()],
        }
    }

    /// The node that a place is on.
    pub(crate) fn of_place(&self, place: usize) -> usize {
        place % self.count()
    }

    /// A node by its number from 0, as people read it.
    pub(crate) fn name(node: usize) -> String {
        format!("node-{}", node + 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn databases_are_spread_over_nodes_and_their_places() {
        let nodes = Nodes::of(Some(2), 4).expect("two each");
        let homes: Vec<_> = (0..5).map(|n| nodes.home(n)).collect();
        let home = |node, place| Home { node, place };
        assert_eq!(
            homes,
            [home(0, 0), home(1, 1), home(0, 2), home(1, 3), home(0, 0)]
        );
        assert_eq!(Nodes::of(None, 3).expect("one each").count(), 3);
        for (wanted, places) in [(0, 1), (4, 1), (2, 3)] {
            let error = Nodes::of(Some(wanted), places).expect_err("cannot be");
            assert!(error.to_string().contains(&format!("nodes = {wanted}")));
        }
    }
}

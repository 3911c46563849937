//! What a database holds: tables, their sizes, and the marker that says that all of it is there.

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use crate::random::Constants;

/// Districts of a warehouse.
pub const DISTRICTS: i32 = 10;
/// Most warehouses that a database may have: numbers stay well inside 32 bits.
pub const MOST_WAREHOUSES: i32 = 100_000;

/// The nine tables of TPC-C, and the one that is scanned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Table {
    Item,
    Warehouse,
    District,
    Customer,
    History,
    Stock,
    Orders,
    NewOrder,
    OrderLine,
    /// Not of TPC-C: what `lab scan` reads.
    Scan,
}

impl Table {
    /// Those of TPC-C; the ones that take longest to load come first.
    pub const ALL: [Self; 9] = [
        Self::OrderLine,
        Self::Stock,
        Self::Customer,
        Self::Item,
        Self::Orders,
        Self::History,
        Self::NewOrder,
        Self::District,
        Self::Warehouse,
    ];

    /// The table's name in every database.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Item => "item",
            Self::Warehouse => "warehouse",
            Self::District => "district",
            Self::Customer => "customer",
            Self::History => "history",
            Self::Stock => "stock",
            Self::Orders => "orders",
            Self::NewOrder => "new_order",
            Self::OrderLine => "order_line",
            Self::Scan => SCAN_TABLE,
        }
    }

    /// Number of its columns.
    pub const fn columns(self) -> usize {
        match self {
            Self::Item => 5,
            Self::Warehouse => 9,
            Self::District => 11,
            Self::Customer => 21,
            Self::History | Self::Orders => 8,
            Self::Stock => 17,
            Self::NewOrder => 3,
            Self::OrderLine => 10,
            Self::Scan => 2,
        }
    }
}

/// Name of the table that holds the marker.
pub const MARKER_TABLE: &str = "ashlar_oltp";

/// The table that `lab scan` reads, and the beginning of the names that belong to it.
pub const SCAN_TABLE: &str = "ashlar_scan";

/// What is told of databases that are not of TPC-C's cardinalities.
pub(crate) const SMALL: &str = "small = true: a hundredth of TPC-C's items and a thirtieth of its customers: this says \
                                nothing of a database of its size";

/// Cardinalities. Anything but [`Shape::tpcc`] is for tests, and is no TPC-C.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Shape {
    pub warehouses: i32,
    /// Items, and stock rows a warehouse.
    pub items: i32,
    /// Customers of a district, which is also its orders at first.
    pub customers: i32,
}

impl Shape {
    /// The cardinalities of clause 1.2.1.
    pub const fn tpcc(warehouses: i32) -> Self {
        Self {
            warehouses,
            items: 100_000,
            customers: 3000,
        }
    }

    /// A hundredth of the items and a thirtieth of the customers: built in a moment, and no TPC-C.
    pub const fn small(warehouses: i32) -> Self {
        Self {
            warehouses,
            items: 1000,
            customers: 100,
        }
    }

    /// Whether these are the cardinalities of TPC-C.
    pub const fn is_tpcc(&self) -> bool {
        let whole = Self::tpcc(self.warehouses);
        self.items == whole.items && self.customers == whole.customers
    }

    /// A district's orders that are delivered at first: 2,100 of 3,000.
    pub const fn delivered(&self) -> i32 {
        self.customers / 10 * 7
    }

    /// # Errors
    /// A usage error for a number of warehouses that cannot be.
    pub fn check(&self) -> Result<(), LabError> {
        if (1..=MOST_WAREHOUSES).contains(&self.warehouses) {
            return Ok(());
        }
        Err(LabError::usage(format!(
            "--warehouses {}: must be 1 to {MOST_WAREHOUSES}",
            self.warehouses
        )))
    }
}

/// What is written last, when everything else is there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marker {
    /// Version of the schema; [`Marker::VERSION`].
    pub version: u32,
    pub shape: Shape,
    /// Seed of the data.
    pub seed: u64,
    /// NURand's constants of the load; a run's follow from them.
    pub constants: Constants,
    /// Rows that were loaded.
    pub rows: u64,
}

impl Marker {
    /// The version of the schema that this code writes and reads.
    pub const VERSION: u32 = 1;

    /// The text that is stored.
    pub fn to_text(&self) -> Result<String, LabError> {
        serde_json::to_string(self).map_err(|error| LabError::caused("build marker", error))
    }

    /// From the stored text.
    ///
    /// # Errors
    /// An environment error for what this version did not write.
    pub fn from_text(text: &str) -> Result<Self, LabError> {
        let marker: Self = serde_json::from_str(text)
            .map_err(|error| LabError::caused(format!("build marker {text:?}"), error))?;
        if marker.version == Self::VERSION {
            return marker.sound();
        }
        Err(LabError::environment(format!(
            "the schema has version {}, this program knows {}",
            marker.version,
            Self::VERSION
        )))
    }
}

impl Marker {
    /// A marker is data from outside: what follows from it must not overflow.
    fn sound(self) -> Result<Self, LabError> {
        let Shape {
            items, customers, ..
        } = self.shape;
        let sizes = (1..=100_000_000).contains(&items) && (1..=1_000_000).contains(&customers);
        if sizes && self.shape.check().is_ok() && self.constants.are_sound() {
            return Ok(self);
        }
        Err(LabError::environment(format!(
            "build marker {self:?}: figures that cannot be"
        )))
    }
}

/// What a database was found to hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum State {
    /// No tables.
    Empty,
    /// Tables, none of which is ours.
    Foreign(Vec<String>),
    /// A build of ours that did not end.
    HalfBuilt,
    /// A build of ours, whose marker this program cannot read: why not.
    Unreadable(String),
    /// Everything is there.
    Built(Marker),
}

impl State {
    /// The state of a database with these tables and, if the marker's table is there and has a row,
    /// that row.
    pub fn of(mut tables: Vec<String>, marker: Option<String>) -> Self {
        tables.retain(|name| !name.starts_with(SCAN_TABLE));
        if tables.is_empty() {
            return Self::Empty;
        }
        if !tables.iter().any(|name| name == MARKER_TABLE) {
            return Self::Foreign(tables);
        }
        match marker.map(|text| Marker::from_text(&text)) {
            None => Self::HalfBuilt,
            Some(Ok(marker)) => Self::Built(marker),
            Some(Err(error)) => Self::Unreadable(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_is_what_the_marker_says() {
        let marker = Marker {
            version: Marker::VERSION,
            shape: Shape::tpcc(2),
            seed: 1,
            constants: Constants {
                last: 1,
                customer: 2,
                item: 3,
            },
            rows: 9,
        };
        let text = marker.to_text().expect("text");
        let ours = || vec!["item".to_owned(), MARKER_TABLE.to_owned()];
        assert_eq!(State::of(Vec::new(), None), State::Empty);
        assert_eq!(State::of(vec![SCAN_TABLE.into()], None), State::Empty);
        assert_eq!(State::of(ours(), None), State::HalfBuilt);
        assert_eq!(State::of(ours(), Some(text)), State::Built(marker.clone()));
        assert!(matches!(
            State::of(vec!["x".into()], None),
            State::Foreign(_)
        ));
        assert!(matches!(
            State::of(ours(), Some("x".into())),
            State::Unreadable(_)
        ));
        let newer = Marker {
            version: 99,
            ..marker.clone()
        }
        .to_text()
        .expect("text");
        assert_eq!(Marker::from_text(&newer).map_err(|e| e.exit_code()), Err(3));
        let mut none = Marker {
            version: Marker::VERSION,
            ..marker.clone()
        };
        none.shape.warehouses = 0;
        let none = none.to_text().expect("text");
        assert_eq!(Marker::from_text(&none).map_err(|e| e.exit_code()), Err(3));
        assert_eq!(Marker::from_text("x").map_err(|e| e.exit_code()), Err(3));
        assert!(Shape::tpcc(0).check().is_err() && Shape::tpcc(4).check().is_ok());
        assert_eq!(Shape::tpcc(4).delivered(), 2100);
    }
}

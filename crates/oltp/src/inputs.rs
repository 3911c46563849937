//! What a terminal asks for: the inputs of TPC-C clauses 2.4.1, 2.5.1, 2.6.1, 2.7.1 and 2.8.1, and
//! the mix.

use ashlar_lab::LabError;
use serde::{Deserialize, Serialize};

use crate::random::Rng;

/// The five transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    NewOrder,
    Payment,
    OrderStatus,
    Delivery,
    StockLevel,
}

impl Kind {
    /// All of them, in the order of the specification.
    pub const ALL: [Self; 5] = [
        Self::NewOrder,
        Self::Payment,
        Self::OrderStatus,
        Self::Delivery,
        Self::StockLevel,
    ];

    /// Its key in results.
    pub const fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
        }
    }

    /// Seconds to key it in (clause 5.2.5.2) and mean seconds to think about it (5.2.5.4).
    pub const fn terminal_seconds(self) -> (f64, f64) {
        match self {
            Self::NewOrder => (18.0, 12.0),
            Self::Payment => (3.0, 12.0),
            Self::OrderStatus => (2.0, 10.0),
            Self::Delivery | Self::StockLevel => (2.0, 5.0),
        }
    }
}

/// What a terminal waits for by itself, by the kind of its transaction.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pauses {
    /// Seconds to key it in, and mean seconds to think about it, in the order of [`Kind::ALL`].
    each: [Pause; 5],
}

/// What a terminal waits before a transaction, and after it.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pause {
    /// Seconds to key it in.
    pub keying_s: f64,
    /// Mean seconds to think about what came of it.
    pub thinking_s: f64,
}

/// The word for the pauses of TPC-C's terminals.
const AS_TPC_C: &str = "tpc-c";
/// Longer ones are a mistake.
const LONGEST_S: f64 = 3600.0;

impl Pauses {
    /// Those of TPC-C's terminals.
    pub fn of_tpc_c() -> Self {
        let each = Kind::ALL.map(|kind| {
            let (keying_s, thinking_s) = kind.terminal_seconds();
            Pause {
                keying_s,
                thinking_s,
            }
        });
        Self { each }
    }

    /// That of one kind.
    pub fn of(&self, kind: Kind) -> Pause {
        let at = Kind::ALL.into_iter().position(|one| one == kind);
        at.map_or_else(Pause::default, |at| self.each[at])
    }

    /// Mean seconds to think, by kind, if they are not TPC-C's.
    pub fn own(&self) -> std::collections::BTreeMap<String, f64> {
        if *self == Self::of_tpc_c() {
            return std::collections::BTreeMap::new();
        }
        let think = |kind: Kind| (kind.name().to_owned(), self.of(kind).thinking_s);
        Kind::ALL.into_iter().map(think).collect()
    }
}

impl std::str::FromStr for Pauses {
    type Err = LabError;

    /// `tpc-c`, or mean seconds to think by kind: `new-order=0.5,payment=1`. A kind that is not named has none.
    fn from_str(text: &str) -> Result<Self, LabError> {
        if text == AS_TPC_C {
            return Ok(Self::of_tpc_c());
        }
        let mut each = [Pause::default(); 5];
        for part in text.split(',') {
            let wrong = |what: &str| LabError::usage(format!("--think {part}: {what}"));
            let (name, seconds) = part
                .split_once('=')
                .ok_or_else(|| wrong("must be KIND=SECONDS, or tpc-c alone"))?;
            let name = name.replace('-', "_");
            let at = Kind::ALL.into_iter().position(|kind| kind.name() == name);
            let at = at.ok_or_else(|| {
                wrong("kinds are new-order, payment, order-status, delivery, stock-level")
            })?;
            let seconds = seconds.parse::<f64>().ok();
            let seconds = seconds.filter(|seconds| (0.0..=LONGEST_S).contains(seconds));
            each[at].thinking_s = seconds.ok_or_else(|| wrong("seconds must be 0 to 3600"))?;
        }
        Ok(Self { each })
    }
}

/// Which transaction comes how often.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Mix {
    /// HammerDB's TPROC-C: 10, 10, 1, 1, 1 of 23.
    #[serde(rename = "tproc-c")]
    TprocC,
    /// 45, 43, 4, 4, 4 of 100, as go-tpc and BenchBase have it.
    #[serde(rename = "tpc-c")]
    TpcC,
}

impl Mix {
    /// Shares, in the order of [`Kind::ALL`].
    pub const fn shares(self) -> [i32; 5] {
        match self {
            Self::TprocC => [10, 10, 1, 1, 1],
            Self::TpcC => [45, 43, 4, 4, 4],
        }
    }

    /// A kind, by its share.
    pub fn draw(self, rng: &mut Rng) -> Kind {
        let shares = self.shares();
        let mut at = rng.within(0, shares.iter().sum::<i32>() - 1);
        for (kind, share) in Kind::ALL.into_iter().zip(shares) {
            if at < share {
                return kind;
            }
            at -= share;
        }
        Kind::StockLevel
    }
}

impl std::str::FromStr for Mix {
    type Err = LabError;

    fn from_str(text: &str) -> Result<Self, LabError> {
        match text {
            "tproc-c" => Ok(Self::TprocC),
            "tpc-c" => Ok(Self::TpcC),
            _ => Err(LabError::usage(format!(
                "--mix {text}: must be tproc-c or tpc-c"
            ))),
        }
    }
}

/// A district of a warehouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    pub warehouse: i32,
    /// District, 1..=10.
    pub district: i32,
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "warehouse {}, district {}",
            self.warehouse, self.district
        )
    }
}

/// A customer, as the terminal names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// By number.
    Number(i32),
    /// By last name: of those who have it, ordered by first name, the middle one (rounded up).
    Last(String),
}

impl Who {
    /// As number or as name.
    pub(crate) fn number_or_name(&self) -> (Option<i32>, Option<&str>) {
        match self {
            Self::Number(number) => (Some(*number), None),
            Self::Last(name) => (None, Some(name)),
        }
    }
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line {
    /// Item; one more than there are if the order is to be rolled back.
    pub item: i32,
    /// Warehouse that supplies it.
    pub supply: i32,
    /// 1..=10.
    pub quantity: i32,
}

/// New-Order's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewOrder {
    pub place: Place,
    /// Customer's number.
    pub customer: i32,
    /// 5 to 15 lines, ordered by warehouse and item so that orders lock in one order.
    pub lines: Vec<Line>,
    /// The last line's item does not exist: the order must be rolled back.
    pub rolls_back: bool,
}

impl NewOrder {
    /// Every line is supplied by the order's own warehouse.
    pub fn all_local(&self) -> bool {
        self.lines
            .iter()
            .all(|line| line.supply == self.place.warehouse)
    }

    /// For each line, how many lines before it name the same stock.
    pub fn repeats(&self) -> Vec<i32> {
        let same = |a: &Line, b: &Line| a.item == b.item && a.supply == b.supply;
        let before = |at: usize| &self.lines[..at];
        (0..self.lines.len())
            .map(|at| {
                before(at)
                    .iter()
                    .filter(|l| same(l, &self.lines[at]))
                    .count() as i32
            })
            .collect()
    }
}

/// Payment's input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Payment {
    /// Where it is paid.
    pub place: Place,
    /// The customer's own district.
    pub home: Place,
    pub who: Who,
    /// 1.00 to 5,000.00, in cents.
    pub cents: i64,
}

impl Payment {
    /// What is put before the data of a customer with bad credit (clause 2.5.2.2).
    pub fn note(&self, customer: i32) -> String {
        let Self {
            place, home, cents, ..
        } = self;
        format!(
            "{customer} {} {} {} {} {}.{:02}|",
            home.district,
            home.warehouse,
            place.district,
            place.warehouse,
            cents / 100,
            cents % 100
        )
    }
}

/// A transaction with its input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    NewOrder(NewOrder),
    Payment(Payment),
    OrderStatus { place: Place, who: Who },
    Delivery { warehouse: i32, carrier: i32 },
    StockLevel { place: Place, threshold: i32 },
}

impl Transaction {
    /// Which of the five.
    pub const fn kind(&self) -> Kind {
        match self {
            Self::NewOrder(_) => Kind::NewOrder,
            Self::Payment(_) => Kind::Payment,
            Self::OrderStatus { .. } => Kind::OrderStatus,
            Self::Delivery { .. } => Kind::Delivery,
            Self::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

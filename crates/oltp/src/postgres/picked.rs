//! What the client works out between the two round trips of a new order.

use tokio_postgres::{Error, Row};

use super::decimal::Cents;
use crate::inputs::Line;

/// The rows that a new order writes, column by column.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Picked {
    /// Of each line: item, supplying warehouse, quantity, amount, the district's information.
    pub(super) item: Vec<i32>,
    pub(super) supply: Vec<i32>,
    pub(super) quantity: Vec<i32>,
    pub(super) amount: Vec<Cents>,
    pub(super) info: Vec<String>,
    /// Of each stock: warehouse, item, what is left, what is taken, orders, remote orders.
    pub(super) stock_supply: Vec<i32>,
    pub(super) stock_item: Vec<i32>,
    pub(super) left: Vec<i32>,
    pub(super) taken: Vec<i32>,
    pub(super) orders: Vec<i32>,
    pub(super) remote: Vec<i32>,
}

/// A stock as it was found.
struct Stock {
    supply: i32,
    item: i32,
    quantity: i32,
    info: String,
}

/// Takes the lines of an order of `warehouse` from the stock; `None` if there is no such item.
pub(super) fn pick(
    lines: &[Line],
    warehouse: i32,
    items: &[Row],
    stock: &[Row],
) -> Result<Option<Picked>, Error> {
    let prices = items
        .iter()
        .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
        .collect::<Result<Vec<(i32, Cents)>, Error>>()?;
    let stock = stock
        .iter()
        .map(|row| {
            Ok(Stock {
                supply: row.try_get(0)?,
                item: row.try_get(1)?,
                quantity: row.try_get(2)?,
                info: row.try_get(3)?,
            })
        })
        .collect::<Result<Vec<Stock>, Error>>()?;
    Ok(take(lines, warehouse, &prices, &stock))
}

fn take(
    lines: &[Line],
    warehouse: i32,
    prices: &[(i32, Cents)],
    stock: &[Stock],
) -> Option<Picked> {
    let mut picked = Picked::default();
    for line in lines {
        let (_, price) = prices.iter().find(|(item, _)| *item == line.item)?;
        let same = |stock: &&Stock| stock.item == line.item && stock.supply == line.supply;
        let found = stock.iter().find(same)?;
        picked.item.push(line.item);
        picked.supply.push(line.supply);
        picked.quantity.push(line.quantity);
        picked
            .amount
            .push(Cents(price.0 * i64::from(line.quantity)));
        picked.info.push(found.info.clone());
        picked.take(line, found.quantity, warehouse);
    }
    Some(picked)
}

impl Picked {
    /// A second line of the same stock goes on where the first one left it.
    fn take(&mut self, line: &Line, quantity: i32, warehouse: i32) {
        let mut known = self.stock_item.iter().zip(&self.stock_supply);
        let at = known.position(|(&item, &supply)| item == line.item && supply == line.supply);
        let at = at.unwrap_or_else(|| {
            self.stock_supply.push(line.supply);
            self.stock_item.push(line.item);
            self.left.push(quantity);
            self.taken.push(0);
            self.orders.push(0);
            self.remote.push(0);
            self.left.len() - 1
        });
        let left = self.left[at] - line.quantity;
        self.left[at] = if left >= 10 { left } else { left + 91 };
        self.taken[at] += line.quantity;
        self.orders[at] += 1;
        self.remote[at] += i32::from(line.supply != warehouse);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_named_twice_is_taken_from_twice() {
        let line = |item, supply, quantity| Line {
            item,
            supply,
            quantity,
        };
        let stock = |item, supply, quantity| Stock {
            supply,
            item,
            quantity,
            info: "i".into(),
        };
        let prices = [(1, Cents(150)), (2, Cents(100))];
        let stocks = [stock(1, 1, 20), stock(2, 1, 15), stock(2, 2, 50)];
        let lines = [line(1, 1, 10), line(2, 1, 4), line(2, 1, 4), line(2, 2, 1)];
        let picked = take(&lines, 1, &prices, &stocks).expect("all there");
        assert_eq!(
            picked.amount,
            [Cents(1500), Cents(400), Cents(400), Cents(100)]
        );
        assert_eq!(picked.stock_item, [1, 2, 2]);
        // 20 - 10 stays, 15 - 4 - 4 would be 7 and is filled up, 50 - 1 stays.
        assert_eq!(picked.left, [10, 98, 49]);
        assert_eq!(picked.taken, [10, 8, 1]);
        assert_eq!(picked.orders, [1, 2, 1]);
        assert_eq!(picked.remote, [0, 0, 1]);
        assert_eq!(take(&[line(9, 1, 1)], 1, &prices, &stocks), None);
    }
}

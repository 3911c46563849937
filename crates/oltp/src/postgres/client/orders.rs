//! New-Order and Delivery as statements of this client.

use tokio::join;
use tokio_postgres::Error;

use super::super::decimal::Cents;
use super::super::picked::{Picked, pick};
use super::{Done, Sql, first_error};
use crate::database::{Delivered, Outcome};
use crate::inputs::{NewOrder, Place};
use crate::schema::DISTRICTS;

/// The oldest new order of each of these districts, in their order.
struct Oldest {
    districts: Vec<i32>,
    numbers: Vec<i32>,
}

impl Sql<'_> {
    /// Clause 2.4.2.
    pub(super) async fn new_order(&self, order: &NewOrder) -> Done {
        let Place {
            warehouse,
            district,
        } = order.place;
        let items: Vec<i32> = order.lines.iter().map(|line| line.item).collect();
        let supplies: Vec<i32> = order.lines.iter().map(|line| line.supply).collect();
        let (begun, customer, number, items, stock) = join!(
            biased;
            self.begin(),
            async {
                let values = [&warehouse as _, &district as _, &order.customer as _];
                self.client.query_one(&self.st.order_customer, &values).await
            },
            async {
                let values = [&warehouse as _, &district as _];
                self.client.query_one(&self.st.order_district, &values).await
            },
            async { self.client.query(&self.st.order_items, &[&items as _]).await },
            async {
                let values = [&supplies as _, &items as _, &district as _];
                self.client.query(&self.st.order_stock, &values).await
            },
        );
        begun?;
        customer?;
        let number: i32 = number?.try_get(0)?;
        match pick(&order.lines, warehouse, &items?, &stock?)? {
            Some(picked) => self.place_order(order, number, &picked).await,
            None => {
                self.rollback().await?;
                Ok(Outcome::RolledBack)
            }
        }
    }

    /// The second round trip of a new order.
    async fn place_order(&self, order: &NewOrder, number: i32, picked: &Picked) -> Done {
        let Place {
            warehouse,
            district,
        } = order.place;
        let lines = order.lines.len() as i32;
        let local = i32::from(order.all_local());
        let (ordered, new, took, lined, committed) = join!(
            biased;
            async {
                let values = [
                    &number as _, &district as _, &warehouse as _, &order.customer as _,
                    &lines as _, &local as _,
                ];
                self.client.execute(&self.st.order_order, &values).await
            },
            async {
                let values = [&number as _, &district as _, &warehouse as _];
                self.client.execute(&self.st.order_new, &values).await
            },
            async {
                let values = [
                    &picked.stock_supply as _, &picked.stock_item as _, &picked.left as _,
                    &picked.taken as _, &picked.orders as _, &picked.remote as _,
                ];
                self.client.execute(&self.st.order_take, &values).await
            },
            async {
                let values = [
                    &number as _, &district as _, &warehouse as _, &picked.item as _,
                    &picked.supply as _, &picked.quantity as _, &picked.amount as _,
                    &picked.info as _,
                ];
                self.client.execute(&self.st.order_lines, &values).await
            },
            self.commit(),
        );
        first_error([ordered, new, took, lined, committed])?;
        Ok(Outcome::Ordered(number))
    }

    /// Clause 2.7.4, all ten districts in one transaction.
    pub(super) async fn delivery(&self, warehouse: i32, carrier: i32) -> Done {
        let mut due = Vec::new();
        let mut districts: Vec<i32> = (1..=DISTRICTS).collect();
        let (begun, found) = join!(biased; self.begin(), self.oldest(warehouse, &districts));
        begun?;
        let mut found = found?;
        while !found.is_empty() {
            districts.retain(|district| !found.iter().any(|(of, _)| of == district));
            due.append(&mut found);
            if districts.is_empty() {
                break;
            }
            // Another delivery may have been quicker there: look for the next.
            found = self.oldest(warehouse, &districts).await?;
        }
        due.sort_unstable();
        let mut orders = Delivered::default();
        for (order, district) in orders.iter_mut().zip(1..) {
            let of = due.iter().find(|(of, _)| *of == district);
            *order = of.map(|&(_, number)| number);
        }
        let (districts, numbers) = due.into_iter().unzip();
        self.deliver(warehouse, carrier, Oldest { districts, numbers })
            .await?;
        Ok(Outcome::Delivered(orders))
    }

    /// Takes the oldest new order of each district.
    async fn oldest(&self, warehouse: i32, districts: &Vec<i32>) -> Result<Vec<(i32, i32)>, Error> {
        let rows = self
            .client
            .query(&self.st.deliver_oldest, &[&warehouse, districts])
            .await?;
        rows.iter()
            .map(|row| Ok((row.try_get(0)?, row.try_get(1)?)))
            .collect()
    }

    async fn deliver(&self, warehouse: i32, carrier: i32, oldest: Oldest) -> Done {
        let Oldest { districts, numbers } = oldest;
        let (customers, amounts) = join!(
            biased;
            async {
                let values = [&warehouse as _, &carrier as _, &districts as _, &numbers as _];
                self.client.query(&self.st.deliver_orders, &values).await
            },
            async {
                let values = [&warehouse as _, &districts as _, &numbers as _];
                self.client.query(&self.st.deliver_lines, &values).await
            },
        );
        let mut of = [(0i32, Cents(0)); DISTRICTS as usize + 1];
        for row in customers? {
            of[row.try_get::<_, i32>(0)? as usize].0 = row.try_get(1)?;
        }
        for row in amounts? {
            of[row.try_get::<_, i32>(0)? as usize].1 = row.try_get(1)?;
        }
        let (customers, amounts): (Vec<i32>, Vec<Cents>) = districts
            .iter()
            .map(|&district| of[district as usize])
            .unzip();
        let (paid, committed) = join!(
            biased;
            async {
                let values = [&warehouse as _, &districts as _, &customers as _, &amounts as _];
                self.client.execute(&self.st.deliver_customers, &values).await
            },
            self.commit(),
        );
        first_error([paid, committed])
    }
}

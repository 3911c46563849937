use super::*;

/// Rows as text, with values in the order in which they came.
#[derive(Default)]
struct Lines {
    row: Vec<String>,
    rows: Vec<Vec<String>>,
}

impl RowSink for Lines {
    fn int(&mut self, value: i32) {
        self.row.push(value.to_string());
    }
    fn decimal(&mut self, units: i64, scale: u8) {
        self.row.push(format!("{units}e-{scale}"));
    }
    fn text(&mut self, value: &[u8]) {
        self.row
            .push(String::from_utf8(value.to_vec()).expect("ASCII"));
    }
    fn time(&mut self, unix_us: i64) {
        self.row.push(format!("@{unix_us}"));
    }
    fn null(&mut self) {
        self.row.push("-".into());
    }
    fn end_row(&mut self) -> Result<(), LabError> {
        self.rows.push(std::mem::take(&mut self.row));
        Ok(())
    }
}

fn recipe(customers: i32) -> Recipe {
    Recipe {
        shape: Shape {
            warehouses: 1,
            items: 1000,
            customers,
        },
        seed: 42,
        constants: Constants::for_load(&mut Rng::new(42)),
        now_us: 5,
    }
}

fn rows(recipe: &Recipe, table: Table) -> Vec<Vec<String>> {
    let warehouse = i32::from(table != Table::Item);
    let mut lines = Lines::default();
    let count = recipe
        .fill(Part { table, warehouse }, &mut lines)
        .expect("filled");
    assert_eq!(count as usize, lines.rows.len());
    assert!(
        lines.rows.iter().all(|row| row.len() == table.columns()),
        "{table:?}"
    );
    lines.rows
}

#[test]
fn cardinalities_are_those_of_the_specification() {
    let recipe = recipe(3000);
    for (table, count) in [
        (Table::Item, 1000),
        (Table::Warehouse, 1),
        (Table::District, 10),
        (Table::Customer, 30_000),
        (Table::History, 30_000),
        (Table::Stock, 1000),
        (Table::Orders, 30_000),
        (Table::NewOrder, 9000),
    ] {
        assert_eq!(rows(&recipe, table).len(), count, "{table:?}");
    }
    let lines = rows(&recipe, Table::OrderLine);
    let orders = rows(&recipe, Table::Orders);
    let promised: usize = orders
        .iter()
        .map(|o| o[6].parse::<usize>().expect("count"))
        .sum();
    assert_eq!(lines.len(), promised);
    assert!((290_000..310_000).contains(&lines.len()));
}

#[test]
fn every_customer_has_one_order_and_900_orders_are_new() {
    let recipe = recipe(3000);
    let orders = rows(&recipe, Table::Orders);
    let mut customers: Vec<i32> = orders[..3000]
        .iter()
        .map(|order| order[3].parse().expect("number"))
        .collect();
    assert_ne!(customers, (1..=3000).collect::<Vec<i32>>(), "a permutation");
    customers.sort_unstable();
    assert_eq!(customers, (1..=3000).collect::<Vec<i32>>());
    let new = orders[..3000]
        .iter()
        .filter(|order| order[5] == "-")
        .count();
    assert_eq!(new, 900);
    let line = &rows(&recipe, Table::OrderLine)[0];
    assert_eq!((line[6].as_str(), line[8].as_str()), ("@5", "0e-2"));
}

#[test]
fn a_tenth_of_the_customers_has_bad_credit_and_names_repeat() {
    let customers = rows(&recipe(3000), Table::Customer);
    let bad = customers.iter().filter(|c| c[13] == "BC").count();
    assert!((2700..3300).contains(&bad), "{bad}");
    assert_eq!(customers[371][5], "PRICALLYOUGHT");
    assert!(customers.iter().all(|c| (300..=500).contains(&c[20].len())));
    assert_eq!(rows(&recipe(3000), Table::Customer), customers, "seeded");
}

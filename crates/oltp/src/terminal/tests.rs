use std::collections::HashMap;

use super::*;
use crate::inputs::Pauses;

const DRAWS: usize = 100_000;

fn setting(mix: Mix) -> TerminalSetting {
    TerminalSetting {
        shape: Shape::tpcc(4),
        constants: Constants {
            last: 10,
            customer: 20,
            item: 30,
        },
        seed: 1,
        mix,
        all_warehouses: false,
        users: 4,
    }
}

fn draws(mix: Mix) -> Vec<Transaction> {
    let mut terminal = Terminal::new(&setting(mix), 1);
    (0..DRAWS).map(|_| terminal.next_transaction()).collect()
}

/// Whether `part` of `of` is `percent`, within four standard deviations.
fn assert_share(part: usize, of: usize, percent: f64, what: &str) {
    let (share, n) = (percent / 100.0, of as f64);
    let tolerance = 4.0 * (share * (1.0 - share) / n).sqrt();
    let found = part as f64 / n;
    assert!(
        (found - share).abs() <= tolerance,
        "{what}: {found} of {of}, not {share}"
    );
}

#[test]
fn the_mix_is_as_named() {
    for (mix, shares) in [
        (Mix::TprocC, [43.478, 43.478, 4.348, 4.348, 4.348]),
        (Mix::TpcC, [45.0, 43.0, 4.0, 4.0, 4.0]),
    ] {
        let mut counts = HashMap::new();
        for transaction in draws(mix) {
            *counts.entry(transaction.kind()).or_insert(0) += 1;
        }
        for (kind, share) in Kind::ALL.into_iter().zip(shares) {
            assert_share(counts[&kind], DRAWS, share, kind.name());
        }
    }
    assert!("tpc-c".parse::<Mix>().is_ok() && "x".parse::<Mix>().is_err());
}

#[test]
fn orders_roll_back_and_reach_other_warehouses_as_often_as_they_should() {
    let orders: Vec<NewOrder> = draws(Mix::TprocC)
        .into_iter()
        .filter_map(|t| match t {
            Transaction::NewOrder(order) => Some(order),
            _ => None,
        })
        .collect();
    let back = orders.iter().filter(|order| order.rolls_back).count();
    assert_share(back, orders.len(), 1.0, "rolled back");
    let lines: Vec<&Line> = orders.iter().flat_map(|order| &order.lines).collect();
    let remote = lines.iter().filter(|line| line.supply != 2).count();
    assert_share(remote, lines.len(), 1.0, "remote lines");
    assert_share(
        lines.len(),
        orders.len() * 100,
        10.0,
        "ten lines on average",
    );
    for order in &orders {
        assert!((5..=15).contains(&order.lines.len()));
        let wrong = order
            .lines
            .iter()
            .filter(|line| line.item > 100_000)
            .count();
        assert_eq!(wrong, usize::from(order.rolls_back));
        assert!(order.rolls_back || order.lines.is_sorted_by_key(|l| (l.supply, l.item)));
    }
}

#[test]
fn payments_are_remote_and_by_name_as_often_as_they_should() {
    let payments: Vec<Payment> = draws(Mix::TpcC)
        .into_iter()
        .filter_map(|t| match t {
            Transaction::Payment(payment) => Some(payment),
            _ => None,
        })
        .collect();
    let remote = payments
        .iter()
        .filter(|p| p.home.warehouse != p.place.warehouse)
        .count();
    assert_share(remote, payments.len(), 15.0, "remote payments");
    let named = payments
        .iter()
        .filter(|p| matches!(p.who, Who::Last(_)))
        .count();
    assert_share(named, payments.len(), 60.0, "by last name");
    let local = payments
        .iter()
        .filter(|p| p.home.warehouse == p.place.warehouse);
    assert!(local.into_iter().all(|p| p.home == p.place));
    assert!(payments.iter().all(|p| (100..=500_000).contains(&p.cents)));
}

#[test]
fn warehouses_are_shared_out() {
    let home = setting(Mix::TpcC);
    let at = |setting: &TerminalSetting, user| Terminal::new(setting, user).warehouses().to_vec();
    assert_eq!(
        (at(&home, 0), at(&home, 3), at(&home, 5)),
        (vec![1], vec![4], vec![2])
    );
    let all = TerminalSetting {
        all_warehouses: true,
        users: 3,
        ..home
    };
    assert_eq!(
        (at(&all, 0), at(&all, 1), at(&all, 2)),
        (vec![1, 4], vec![2], vec![3])
    );
    let many = TerminalSetting { users: 6, ..all };
    assert_eq!((at(&many, 4), at(&many, 5)), (vec![1], vec![2]));
}

#[test]
fn a_stock_named_twice_is_told() {
    let line = |item| Line {
        item,
        supply: 1,
        quantity: 1,
    };
    let order = NewOrder {
        place: Place {
            warehouse: 1,
            district: 1,
        },
        customer: 1,
        lines: vec![line(5), line(7), line(7), line(7)],
        rolls_back: false,
    };
    assert_eq!(order.repeats(), [0, 0, 1, 2]);
}

#[test]
fn thinking_times_have_their_mean() {
    let mut terminal = Terminal::new(&setting(Mix::TpcC), 0);
    let sum: f64 = (0..DRAWS)
        .map(|_| terminal.think_seconds(Pauses::of_tpc_c().of(Kind::NewOrder).thinking_s))
        .sum();
    let mean = sum / DRAWS as f64;
    assert!((11.8..12.2).contains(&mean), "{mean}");
}

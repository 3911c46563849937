//! Arguments and results of stored procedures, where they are text.

use crate::database::Delivered;
use crate::inputs::NewOrder;

/// An order's lines: `[[item, supplying warehouse, quantity], …]`
pub(crate) fn order_lines(order: &NewOrder) -> String {
    let each = order.lines.iter();
    let each = each.map(|line| format!("[{},{},{}]", line.item, line.supply, line.quantity));
    format!("[{}]", each.collect::<Vec<_>>().join(","))
}

/// `1 2101 2 2101 `: districts, each with its order.
pub(crate) fn delivered(text: &str) -> Delivered {
    let mut orders = Delivered::default();
    let numbers: Vec<i32> = text.split_whitespace().flat_map(str::parse).collect();
    for pair in numbers.chunks_exact(2) {
        let at = usize::try_from(pair[0] - 1).unwrap_or(usize::MAX);
        if let Some(order) = orders.get_mut(at) {
            *order = Some(pair[1]);
        }
    }
    orders
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_delivered_is_told_by_district() {
        let orders = delivered("1 2101 10 7 ");
        assert_eq!(
            (orders[0], orders[1], orders[9]),
            (Some(2101), None, Some(7))
        );
        assert_eq!(delivered(""), Delivered::default());
        assert_eq!(delivered("0 1 11 2 x 3"), Delivered::default());
    }
}

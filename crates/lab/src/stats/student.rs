//! Student's t distribution of whole degrees of freedom, in closed form (Abramowitz and Stegun 26.7.3, 26.7.4).

use std::f64::consts::{FRAC_2_PI, FRAC_PI_2};

/// A probability below this is told as this: the closed form is a difference of numbers near 1.
const LEAST: f64 = 1e-15;

/// How likely a t is at least as far from 0 as this one, on either side.
pub(super) fn chance(t: f64, freedom: u32) -> f64 {
    let angle = if t.is_finite() {
        (t.abs() / f64::from(freedom).sqrt()).atan()
    } else {
        FRAC_PI_2
    };
    let (sin, cos) = angle.sin_cos();
    // 1 + 1/2 c^2 + (1 3)/(2 4) c^4 ... of even degrees, c + 2/3 c^3 + (2 4)/(3 5) c^5 ... of odd ones.
    let is_odd = freedom % 2 == 1;
    let (mut term, mut sum) = (if is_odd { cos } else { 1.0 }, 0.0);
    let mut at = if is_odd { 1 } else { 0 };
    while at + 2 <= freedom {
        sum += term;
        let (over, under) = (f64::from(at + 1), f64::from(at + 2));
        term *= cos * cos * over / under;
        at += 2;
    }
    let within = if is_odd {
        FRAC_2_PI * (angle + sin * sum)
    } else {
        sin * sum
    };
    (1.0 - within).clamp(LEAST, 1.0)
}

/// The t that is exceeded, on either side, with this probability.
pub(super) fn quantile(wanted: f64, freedom: u32) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    while chance(high, freedom) > wanted && high < 1e12 {
        high *= 2.0;
    }
    for _ in 0..100 {
        let middle = f64::midpoint(low, high);
        if chance(middle, freedom) > wanted {
            low = middle;
        } else {
            high = middle;
        }
    }
    f64::midpoint(low, high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_those_of_the_tables() {
        for (t, freedom, p) in [
            (12.706, 1, 0.05),
            (4.303, 2, 0.05),
            (9.925, 2, 0.01),
            (3.182, 3, 0.05),
            (2.571, 5, 0.05),
            (3.499, 7, 0.01),
            (2.228, 10, 0.05),
            (1.960, 100_000, 0.05),
        ] {
            assert!((chance(t, freedom) / p - 1.0).abs() < 0.005, "{freedom}");
            assert!((quantile(p, freedom) / t - 1.0).abs() < 0.005, "{freedom}");
        }
        assert_eq!(chance(0.0, 3), 1.0);
        assert_eq!(chance(f64::INFINITY, 4), LEAST);
    }
}

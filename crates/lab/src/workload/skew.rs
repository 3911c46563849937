//! Addresses that are not all alike: Zipf's law, and a hot part.

/// Numbers 1 to n, k with a weight of 1/k^theta: rejection-inversion after Hörmann and Derflinger (1996), which needs no
/// table, so that a device may have any number of blocks.
#[derive(Clone, Debug)]
pub(crate) struct Zipf {
    theta: f64,
    n: f64,
    first: f64,
    last: f64,
    certain: f64,
    /// Places of neighbouring ranks are far apart: rank times this, modulo n, meets every place once.
    stride: u64,
}

impl Zipf {
    pub(crate) fn new(n: u64, theta: f64) -> Self {
        let last = integral(n as f64 + 0.5, theta);
        Self {
            theta,
            n: n as f64,
            first: integral(1.5, theta) - 1.0,
            last,
            certain: 2.0 - inverse(integral(2.5, theta) - 2f64.powf(-theta), theta),
            stride: stride(n),
        }
    }

    /// A place, from 0.
    pub(crate) fn place(&self, rng: &mut fastrand::Rng) -> u64 {
        let rank = self.rank(rng) - 1;
        (u128::from(rank) * u128::from(self.stride) % (self.n as u128)) as u64
    }

    /// A rank, from 1, the most popular.
    fn rank(&self, rng: &mut fastrand::Rng) -> u64 {
        loop {
            let u = self.last + rng.f64() * (self.first - self.last);
            let x = inverse(u, self.theta);
            let k = (x + 0.5).floor().clamp(1.0, self.n);
            if k - x <= self.certain || u >= integral(k + 0.5, self.theta) - k.powf(-self.theta) {
                return k as u64;
            }
        }
    }
}

/// Integral of 1/x^theta, up to a constant.
fn integral(x: f64, theta: f64) -> f64 {
    let log = x.ln();
    grown((1.0 - theta) * log) * log
}

fn inverse(u: f64, theta: f64) -> f64 {
    let t = (u * (1.0 - theta)).max(-1.0);
    (shrunk(t) * u).exp()
}

/// (e^x - 1) / x
fn grown(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.exp_m1() / x
    } else {
        1.0 + x / 2.0
    }
}

/// ln(1 + x) / x
fn shrunk(x: f64) -> f64 {
    if x.abs() > 1e-8 {
        x.ln_1p() / x
    } else {
        1.0 - x / 2.0
    }
}

/// A number near the golden section of n that has no divisor in common with it.
fn stride(n: u64) -> u64 {
    let golden = (n as f64 * 0.618_033_988_749_894_8) as u64;
    let fits = |of: &u64| divisor(*of, n) == 1;
    (golden.max(1)..=n.max(1)).find(fits).unwrap_or(1)
}

fn divisor(a: u64, b: u64) -> u64 {
    if b == 0 { a } else { divisor(b, a % b) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_follow_the_law() {
        for theta in [0.5, 1.0, 1.2] {
            let zipf = Zipf::new(1000, theta);
            let mut rng = fastrand::Rng::with_seed(3);
            let draws = 200_000;
            let mut counts = vec![0u32; 1001];
            for _ in 0..draws {
                counts[zipf.rank(&mut rng) as usize] += 1;
            }
            let weight: f64 = (1..=1000).map(|k| f64::from(k).powf(-theta)).sum();
            for k in [1usize, 2, 3, 10] {
                let expected = f64::from(draws) * (k as f64).powf(-theta) / weight;
                let found = f64::from(counts[k]);
                // Five standard deviations.
                assert!(
                    (found - expected).abs() < 5.0 * expected.sqrt(),
                    "{theta} {k}: {found} of {expected}"
                );
            }
        }
    }

    #[test]
    fn every_place_has_one_rank() {
        for n in [1u64, 2, 3, 10, 1000, 65536, 99_991] {
            let stride = stride(n);
            let places: std::collections::HashSet<u64> =
                (0..n).map(|rank| rank * stride % n).collect();
            assert_eq!(places.len() as u64, n);
            let mut rng = fastrand::Rng::with_seed(1);
            let zipf = Zipf::new(n, 0.99);
            assert!((0..1000).all(|_| zipf.place(&mut rng) < n));
        }
    }
}

//! The code of parity columns, byte by byte: P is the sum of the data columns, Q the sum of the data
//! columns each times a power of 2, in GF(256) with the polynomial 0x11D (what RAID-6 has always
//! used: H. P. Anvin, "The mathematics of RAID-6"). Any `parity` columns can be missing.

/// Low byte of the field's polynomial.
const POLYNOMIAL: u8 = 0x1D;
/// Order of the field's multiplicative group.
const ORDER: usize = 255;

const POWERS: [u8; 2 * ORDER] = powers();
const LOGARITHMS: [u8; 256] = logarithms();

const fn double(x: u8) -> u8 {
    let carry = if x & 0x80 == 0 { 0 } else { POLYNOMIAL };
    (x << 1) ^ carry
}

const fn powers() -> [u8; 2 * ORDER] {
    let mut table = [1; 2 * ORDER];
    let mut i = 1;
    while i < table.len() {
        table[i] = double(table[i - 1]);
        i += 1;
    }
    table
}

const fn logarithms() -> [u8; 256] {
    let mut table = [0; 256];
    let mut i = 0;
    while i < ORDER {
        table[POWERS[i] as usize] = i as u8;
        i += 1;
    }
    table
}

const fn times(a: u8, b: u8) -> u8 {
    if a == 0 || b == 0 {
        return 0;
    }
    POWERS[LOGARITHMS[a as usize] as usize + LOGARITHMS[b as usize] as usize]
}

const fn inverse(a: u8) -> u8 {
    POWERS[(ORDER - LOGARITHMS[a as usize] as usize) % ORDER]
}

fn add(to: &mut [u8], what: &[u8]) {
    for (to, what) in to.iter_mut().zip(what) {
        *to ^= what;
    }
}

/// Doubles every byte, eight at a time.
fn double_all(bytes: &mut [u8]) {
    const HIGH: u64 = 0x8080_8080_8080_8080;
    let (words, _) = bytes.as_chunks_mut::<8>();
    for word in words {
        let value = u64::from_le_bytes(*word);
        let carries = (value & HIGH) >> 7;
        let doubled = ((value & !HIGH) << 1) ^ (carries * u64::from(POLYNOMIAL));
        *word = doubled.to_le_bytes();
    }
}

fn scale(bytes: &mut [u8], by: u8) {
    let mut table = [0; 256];
    for (value, product) in table.iter_mut().enumerate() {
        *product = times(value as u8, by);
    }
    for byte in bytes {
        *byte = table[usize::from(*byte)];
    }
}

/// Parity column `which` (0: P, 1: Q) of these data columns, all of one length, a multiple of 8.
pub(super) fn encode(data: &[&[u8]], which: usize) -> Vec<u8> {
    let mut sum = data.last().map(|last| last.to_vec()).unwrap_or_default();
    // Horner: the last column has the highest power.
    for column in data.iter().rev().skip(1) {
        if which == 1 {
            double_all(&mut sum);
        }
        add(&mut sum, column);
    }
    sum
}

/// Fills in missing columns: `columns` are the data's and then the parity's, all of one length, a
/// multiple of 8. False, and nothing is filled in, when more are missing than there is parity for.
pub(super) fn solve(columns: &mut [Option<Vec<u8>>], parity: usize) -> bool {
    let data = columns.len() - parity;
    let missing: Vec<usize> = (0..data).filter(|&i| columns[i].is_none()).collect();
    let known: Vec<usize> = (0..parity)
        .filter(|&p| columns[data + p].is_some())
        .collect();
    if missing.len() > known.len() {
        return false;
    }
    match (&missing[..], &known[..]) {
        ([], _) => {}
        (&[lost], &[which, ..]) => {
            let found = solve_one(columns, data, lost, which);
            columns[lost] = Some(found);
        }
        (&[first, second], _) => {
            let (one, other) = solve_two(columns, data, first, second);
            columns[first] = Some(one);
            columns[second] = Some(other);
        }
        _ => return false,
    }
    for which in 0..parity {
        if columns[data + which].is_none() {
            let filled: Vec<&[u8]> = columns[..data].iter().flatten().map(|c| &c[..]).collect();
            columns[data + which] = Some(encode(&filled, which));
        }
    }
    true
}

/// A parity column less what the known data columns have put into it.
fn remainder(columns: &[Option<Vec<u8>>], data: usize, which: usize) -> Vec<u8> {
    let mut rest = columns[data + which].clone().unwrap_or_default();
    let zero = vec![0; rest.len()];
    let known: Vec<&[u8]> = columns[..data]
        .iter()
        .map(|column| column.as_deref().unwrap_or(&zero))
        .collect();
    add(&mut rest, &encode(&known, which));
    rest
}

fn solve_one(columns: &[Option<Vec<u8>>], data: usize, lost: usize, which: usize) -> Vec<u8> {
    let mut found = remainder(columns, data, which);
    if which == 1 {
        scale(&mut found, inverse(POWERS[lost]));
    }
    found
}

/// Both of x and y from x + y and 2^a x + 2^b y.
fn solve_two(columns: &[Option<Vec<u8>>], data: usize, a: usize, b: usize) -> (Vec<u8>, Vec<u8>) {
    let sum = remainder(columns, data, 0);
    let mut second = remainder(columns, data, 1);
    let mut scaled = sum.clone();
    scale(&mut scaled, POWERS[a]);
    add(&mut second, &scaled);
    scale(&mut second, inverse(POWERS[a] ^ POWERS[b]));
    let mut first = sum;
    add(&mut first, &second);
    (first, second)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(data: usize, parity: usize) -> Vec<Option<Vec<u8>>> {
        let byte = |column: usize, i: usize| (column * 89 + i * i * 31 + 7) as u8;
        let column = |c| (0..64).map(|i| byte(c, i)).collect::<Vec<u8>>();
        let mut all: Vec<Option<Vec<u8>>> = (0..data).map(|c| Some(column(c))).collect();
        all.resize(data + parity, None);
        assert!(solve(&mut all, parity));
        all
    }

    #[test]
    fn whatever_is_missing_comes_back() {
        for parity in 1..=2 {
            for data in 1..=8 - parity {
                let all = columns(data, parity);
                for first in 0..all.len() {
                    for second in 0..all.len() {
                        if parity == 1 && first != second {
                            continue;
                        }
                        let mut some = all.clone();
                        (some[first], some[second]) = (None, None);
                        assert!(solve(&mut some, parity));
                        assert_eq!(some, all, "{data}+{parity} without {first}, {second}");
                    }
                }
            }
        }
    }

    #[test]
    fn too_much_missing_is_no_guess() {
        let mut some = columns(3, 1);
        (some[0], some[2]) = (None, None);
        assert!(!solve(&mut some, 1) && some[0].is_none());
        let mut some = columns(3, 2);
        (some[0], some[1], some[4]) = (None, None, None);
        assert!(!solve(&mut some, 2) && some[0].is_none());
    }

    #[test]
    fn the_code_is_that_of_raid_6() {
        let data: [&[u8]; 3] = [&[1; 8], &[0x80; 8], &[0xFF; 8]];
        assert_eq!(encode(&data, 0), [1 ^ 0x80 ^ 0xFF; 8]);
        // 1 + 2·0x80 + 4·0xFF = 1 + 0x1D + 0xDB.
        assert_eq!(encode(&data, 1), [1 ^ 0x1D ^ 0xDB; 8]);
    }
}

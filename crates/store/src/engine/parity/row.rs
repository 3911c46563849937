//! One row of a slot: a granule of each column. What carries a checksum is known to be good or bad;
//! a granule that was never written, or whose blocks were deallocated, and parity itself carry
//! none, and are doubted only when what they yield is wrong.

use super::code;
use crate::format::{LOST_CRC, Salt};
use crate::sizes::GRANULE;

/// What a row should hold.
pub(super) struct Wanted<'a> {
    /// Which row of the slot.
    pub(super) number: usize,
    /// Of each data column: the checksum of its granule, if it has one.
    pub(super) crcs: &'a [Option<u32>],
    /// Of each data column: whether it has a granule at all in this row. Padding is zeroes.
    pub(super) padding: &'a [bool],
    /// Columns of parity.
    pub(super) parity: usize,
    pub(super) salt: Salt,
}

/// A row put together.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) number: usize,
    /// What each column holds or should hold, as far as that is known.
    pub(crate) columns: Vec<Option<Vec<u8>>>,
    /// Columns that were read and hold something else, or could not be read.
    pub(crate) bad: Vec<usize>,
    /// Data columns whose granule is lost.
    pub(crate) lost: Vec<usize>,
    /// Of these columns the map says so. What stands there is what parity was made of.
    pub(crate) said_lost: Vec<usize>,
}

impl Row {
    /// A column's bytes; also those of parity that the row has no column for yet. Zeroes stand for
    /// what is lost: no checksum of a granule will take them for it.
    pub(super) fn column(&self, which: usize, data: usize) -> Vec<u8> {
        let known = self.columns.get(which).cloned().flatten();
        known.unwrap_or_else(|| {
            let columns: Option<Vec<&[u8]>> =
                self.columns[..data].iter().map(Option::as_deref).collect();
            match columns {
                Some(columns) if which >= data => code::encode(&columns, which - data),
                _ => vec![0; GRANULE],
            }
        })
    }
}

impl Wanted<'_> {
    /// Puts a row together from what each column was found to hold; `asked` says of each column
    /// whether it was read at all. Blocks that the map says are lost have no checksum to agree with, and are taken as
    /// they stand: parity is made of that, and what it yields has checksums of its own.
    pub(super) fn solve(&self, found: &[Option<&[u8]>], asked: &[bool]) -> Row {
        let row = self.solve_with_checksums(found, asked);
        let is_said = |column: &usize| self.crcs[*column] == Some(LOST_CRC);
        let said_lost: Vec<usize> = row.lost.iter().copied().filter(is_said).collect();
        if said_lost.is_empty() {
            return row;
        }
        let mut crcs = self.crcs.to_vec();
        said_lost.iter().for_each(|&column| crcs[column] = None);
        let as_it_stands = Wanted {
            crcs: &crcs,
            ..*self
        };
        Row {
            said_lost,
            ..as_it_stands.solve_with_checksums(found, asked)
        }
    }

    fn solve_with_checksums(&self, found: &[Option<&[u8]>], asked: &[bool]) -> Row {
        let good: Vec<Option<Vec<u8>>> = (0..found.len()).map(|c| self.good(c, found[c])).collect();
        let doubtful: Vec<usize> = (0..found.len())
            .filter(|&column| good[column].is_some() && !self.is_certain(column))
            .collect();
        let missing = good.iter().filter(|column| column.is_none()).count();
        let spare = self.parity.saturating_sub(missing);
        let whole = self
            .attempt(&good, &[])
            .or_else(|| self.doubt(&good, &doubtful, spare));
        match whole {
            Some(columns) => {
                let differs =
                    |&column: &usize| asked[column] && found[column] != columns[column].as_deref();
                Row {
                    number: self.number,
                    bad: (0..columns.len()).filter(differs).collect(),
                    columns,
                    lost: Vec::new(),
                    said_lost: Vec::new(),
                }
            }
            None => self.lost(good),
        }
    }

    /// The same where what one column holds may be old: of the others, as long as these are enough. It is bad if it
    /// holds anything else.
    pub(super) fn solve_beside(&self, found: &[Option<&[u8]>], asked: &[bool], old: usize) -> Row {
        let (mut others, mut asked_of) = (found.to_vec(), asked.to_vec());
        (others[old], asked_of[old]) = (None, false);
        let mut row = self.solve(&others, &asked_of);
        if !row.lost.is_empty() {
            return self.solve(found, asked);
        }
        if found[old] != row.columns[old].as_deref() {
            row.bad.push(old);
        }
        row
    }

    /// What a column holds, unless that is known to be bad.
    fn good(&self, column: usize, found: Option<&[u8]>) -> Option<Vec<u8>> {
        if self.padding.get(column).copied().unwrap_or(false) {
            return Some(vec![0; GRANULE]);
        }
        let found = found?;
        let crc = self.crcs.get(column).copied().flatten();
        let is_good = crc.is_none_or(|crc| self.salt.crc(found) == crc);
        is_good.then(|| found.to_vec())
    }

    fn is_certain(&self, column: usize) -> bool {
        let is_checked = self.crcs.get(column).is_some_and(Option::is_some);
        is_checked || self.padding.get(column).copied().unwrap_or(false)
    }

    /// Solves without one or two of the columns that nothing vouches for.
    fn doubt(
        &self,
        good: &[Option<Vec<u8>>],
        doubtful: &[usize],
        spare: usize,
    ) -> Option<Vec<Option<Vec<u8>>>> {
        let one = doubtful.iter().map(|&column| vec![column]);
        let two = doubtful
            .iter()
            .flat_map(|&a| doubtful.iter().map(move |&b| vec![a, b]))
            .filter(|pair| pair[0] < pair[1]);
        one.chain(two)
            .filter(|without| without.len() <= spare)
            .find_map(|without| self.attempt(good, &without))
    }

    /// The whole row, if it can be solved and every checksum agrees.
    fn attempt(&self, good: &[Option<Vec<u8>>], without: &[usize]) -> Option<Vec<Option<Vec<u8>>>> {
        let mut columns = good.to_vec();
        for &column in without {
            columns[column] = None;
        }
        if !code::solve(&mut columns, self.parity) {
            return None;
        }
        let (data, codes) = columns.split_at_mut(self.crcs.len());
        let data: Vec<&[u8]> = data.iter().flatten().map(|column| &column[..]).collect();
        let agrees = |(bytes, crc): (&&[u8], &Option<u32>)| {
            crc.is_none_or(|crc| self.salt.crc(bytes) == crc)
        };
        if !data.iter().zip(self.crcs).all(agrees) {
            return None;
        }
        // Parity was not asked when nothing was missing: what was found may not fit.
        for (which, code) in codes.iter_mut().enumerate() {
            *code = Some(code::encode(&data, which));
        }
        Some(columns)
    }

    fn lost(&self, good: Vec<Option<Vec<u8>>>) -> Row {
        let is_lost = |&column: &usize| self.crcs[column].is_some() && good[column].is_none();
        Row {
            number: self.number,
            bad: Vec::new(),
            lost: (0..self.crcs.len()).filter(is_lost).collect(),
            said_lost: Vec::new(),
            columns: good,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = Salt(3);

    fn columns(parity: usize) -> Vec<Vec<u8>> {
        let data: Vec<Vec<u8>> = (1..=3).map(|i| vec![i * 17; GRANULE]).collect();
        let refs: Vec<&[u8]> = data.iter().map(|column| &column[..]).collect();
        let codes: Vec<Vec<u8>> = (0..parity)
            .map(|which| code::encode(&refs, which))
            .collect();
        data.into_iter().chain(codes).collect()
    }

    fn solve(columns: &[Option<Vec<u8>>], crcs: &[Option<u32>], parity: usize) -> Row {
        let wanted = Wanted {
            number: 0,
            crcs,
            padding: &[false; 3],
            parity,
            salt: SALT,
        };
        let found: Vec<Option<&[u8]>> = columns.iter().map(Option::as_deref).collect();
        wanted.solve(&found, &vec![true; found.len()])
    }

    fn known(columns: Vec<Option<Vec<u8>>>) -> Vec<Vec<u8>> {
        columns.into_iter().flatten().collect()
    }

    fn crcs(columns: &[Vec<u8>]) -> Vec<Option<u32>> {
        let data = columns[..3].iter();
        data.map(|column| Some(SALT.crc(column))).collect()
    }

    #[test]
    fn what_is_bad_or_missing_is_solved_and_named() {
        let all = columns(1);
        let mut found: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        assert!(solve(&found, &crcs(&all), 1).bad.is_empty());
        found[1] = Some(vec![9; GRANULE]);
        let row = solve(&found, &crcs(&all), 1);
        assert_eq!((known(row.columns), row.bad), (all.clone(), vec![1]));
        found[2] = None;
        let row = solve(&found, &crcs(&all), 1);
        assert_eq!(row.lost, [1, 2]);
        // What is good by itself is not lost with them.
        assert_eq!(row.columns[0].as_ref(), Some(&all[0]));
    }

    #[test]
    fn a_rotten_granule_without_a_checksum_is_doubted() {
        let all = columns(2);
        let mut checked = crcs(&all);
        checked[0] = None;
        let mut found: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        found[0] = Some(vec![0xEE; GRANULE]);
        found[1] = None;
        let row = solve(&found, &checked, 2);
        assert_eq!((known(row.columns), row.bad), (all.clone(), vec![0, 1]));
        // With one column of parity the missing one takes it all: an error, not a guess.
        let one = columns(1);
        let found = vec![
            Some(vec![0xEE; GRANULE]),
            None,
            found[2].clone(),
            Some(one[3].clone()),
        ];
        assert_eq!(solve(&found, &checked, 1).lost, [1]);
    }

    #[test]
    fn a_block_that_is_said_to_be_lost_is_taken_as_it_stands() {
        let all = columns(1);
        let mut checked = crcs(&all);
        checked[0] = Some(LOST_CRC);
        let mut found: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        let row = solve(&found, &checked, 1);
        assert_eq!(
            (row.lost.len(), row.said_lost, row.bad.len()),
            (0, vec![0], 0)
        );
        found[1] = None;
        let row = solve(&found, &checked, 1);
        assert_eq!((known(row.columns), row.bad), (all.clone(), vec![1]));
        assert_eq!((row.lost.len(), row.said_lost), (0, vec![0]));
        // What is made of the wrong bytes does not verify.
        found[0] = Some(vec![0xEE; GRANULE]);
        let row = solve(&found, &checked, 1);
        assert_eq!((row.lost, row.said_lost), (vec![1], vec![0]));
    }

    #[test]
    fn parity_that_does_not_fit_is_bad() {
        let all = columns(1);
        let mut found: Vec<Option<Vec<u8>>> = all.iter().cloned().map(Some).collect();
        found[3] = Some(vec![1; GRANULE]);
        let row = solve(&found, &crcs(&all), 1);
        assert_eq!((known(row.columns), row.bad), (all, vec![3]));
    }
}

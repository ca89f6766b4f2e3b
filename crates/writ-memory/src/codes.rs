//! The quantised index: one bit for each dimension of a vector, held in memory and scanned whole.
//!
//! A search has three passes. The first compares the signs of the query with those of every memory (one XOR and one
//! count of bits for 64 dimensions) and leaves [`FIRST_PASS`] rows; the second adds up the query's numbers with the signs of
//! those and orders them; the third, over the whole vectors of the best [`SECOND_PASS`], is exact. Signs alone order
//! vectors of some hundred dimensions well (Charikar, 2002: equal signs estimate the angle).

use std::sync::{PoisonError, RwLock, RwLockReadGuard};

use crate::embedder::Embedding;

/// The rows that the first pass leaves. `docs/memory.md` has the share of the true neighbours that it holds.
pub const FIRST_PASS: usize = 4_096;

/// The rows that are compared exactly, of those that the second pass has ordered and the caller may read: their vectors come
/// from the disk.
pub const SECOND_PASS: usize = 640;

/// The most rows of an index: with 384 dimensions 240 MB.
pub const MAX_ROWS: usize = 4_000_000;

/// Bits of one word of a code.
const WORD_BITS: usize = 64;

/// Returns the signs of a vector: bit `n` of the code is set where number `n` is not negative.
pub fn code_of(embedding: &Embedding) -> Vec<u8> {
    embedding.numbers().chunks(8).map(byte_of_signs).collect()
}

fn byte_of_signs(numbers: &[f32]) -> u8 {
    let bits = numbers.iter().enumerate().filter(|(_, number)| **number >= 0.0);
    bits.fold(0, |byte, (bit, _)| byte | 1 << bit)
}

/// The codes of the memories of one model, by the number of their row.
#[derive(Clone, Debug, Default)]
pub struct CodeIndex {
    dimension: usize,
    /// Words of each code.
    stride: usize,
    /// Numbers of rows, ascending.
    rows: Vec<i64>,
    words: Vec<u64>,
}

impl CodeIndex {
    /// Returns an empty index for vectors of a dimension.
    pub fn new(dimension: usize) -> Self {
        Self { dimension, stride: dimension.div_ceil(WORD_BITS), rows: Vec::new(), words: Vec::new() }
    }

    /// Returns the dimension of its vectors.
    pub const fn dimension(&self) -> usize {
        self.dimension
    }

    /// Returns the number of memories.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Returns true if there is no memory.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Adds or replaces the code of a row. Codes of another dimension, and rows beyond [`MAX_ROWS`], are left out.
    pub fn put(&mut self, row: i64, code: &[u8]) {
        // A row of another length would shift all that follow.
        if code.len() != self.dimension.div_ceil(8) {
            return;
        }
        let words = code.chunks(8).map(|bytes| {
            bytes.iter().enumerate().fold(0_u64, |word, (n, byte)| word | u64::from(*byte) << (8 * n))
        });
        // Mostly rows come in order, and are appended.
        match self.rows.binary_search(&row) {
            Ok(at) => {
                let start = at * self.stride;
                for (place, word) in self.words[start..start + self.stride].iter_mut().zip(words) {
                    *place = word;
                }
            }
            Err(_) if self.rows.len() >= MAX_ROWS => {}
            Err(at) => {
                self.rows.insert(at, row);
                let start = at * self.stride;
                self.words.splice(start..start, words);
            }
        }
    }

    /// Removes the codes of rows, which are ascending.
    pub fn remove(&mut self, rows: &[i64]) {
        let places: Vec<usize> = rows.iter().filter_map(|row| self.rows.binary_search(row).ok()).collect();
        let (Some(first), stride) = (places.first().copied(), self.stride) else { return };
        // One pass closes all gaps: to remove row by row would move a long index once for each.
        let (mut gaps, mut to) = (places.iter().peekable(), first);
        for from in first..self.rows.len() {
            if gaps.next_if_eq(&&from).is_some() {
                continue;
            }
            self.rows[to] = self.rows[from];
            self.words.copy_within(from * stride..(from + 1) * stride, to * stride);
            to += 1;
        }
        self.rows.truncate(to);
        self.words.truncate(to * stride);
    }

    /// Returns the rows that are nearest to a query by the first two passes, nearest first, at most about [`FIRST_PASS`]; of
    /// `among` alone, which is ascending, if it is given.
    pub fn scan(&self, query: &Embedding, among: Option<&[i64]>) -> Vec<i64> {
        // Vectors of another model's dimension cannot be compared.
        if query.dimension() != self.dimension || self.is_empty() {
            return Vec::new();
        }
        let places: Option<Vec<usize>> =
            among.map(|rows| rows.iter().filter_map(|row| self.rows.binary_search(row).ok()).collect());
        let best = match places {
            // A given set is small enough to skip the coarse pass.
            Some(places) => self.second_pass(query, places),
            None => self.second_pass(query, self.first_pass(query)),
        };
        best.into_iter().map(|(_, place)| self.rows[place]).collect()
    }

    /// Returns the places with the fewest different signs, at most [`FIRST_PASS`] and those that share the last place.
    fn first_pass(&self, query: &Embedding) -> Vec<usize> {
        let code = words_of(&code_of(query));
        let distances: Vec<u16> = match self.stride {
            // Of constant length the inner loop is unrolled: these are the usual dimensions.
            4 => self.count_all::<4>(&code),
            6 => self.count_all::<6>(&code),
            12 => self.count_all::<12>(&code),
            16 => self.count_all::<16>(&code),
            _ => self.words.chunks_exact(self.stride).map(|words| count_differing(words, &code)).collect(),
        };
        // Counting how often each distance occurs finds the last one to take without sorting millions of rows.
        let mut counts = vec![0_usize; self.dimension + WORD_BITS + 1];
        for distance in &distances {
            counts[usize::from(*distance)] += 1;
        }
        let mut sum = 0;
        let enough = counts.iter().position(|count| {
            sum += count;
            sum >= FIRST_PASS
        });
        let most = enough.and_then(|most| u16::try_from(most).ok()).unwrap_or(u16::MAX);
        let near = distances.iter().enumerate().filter(|(_, distance)| **distance <= most);
        near.map(|(place, _)| place).collect()
    }

    fn count_all<const STRIDE: usize>(&self, code: &[u64]) -> Vec<u16> {
        let Some(code) = code.first_chunk::<STRIDE>() else { return Vec::new() };
        self.words.as_chunks::<STRIDE>().0.iter().map(|words| count_differing(words, code)).collect()
    }

    /// Orders places by the sum of the query's numbers, each with the sign of the memory's.
    fn second_pass(&self, query: &Embedding, places: Vec<usize>) -> Vec<(f32, usize)> {
        // A table of the sums of all 256 signs for each eight numbers makes one addition of eight.
        let tables: Vec<[f32; 256]> = query.numbers().chunks(8).map(sums_of_signs).collect();
        let score = |place: usize| {
            let words = &self.words[place * self.stride..(place + 1) * self.stride];
            let bytes = words.iter().flat_map(|word| word.to_le_bytes());
            bytes.zip(&tables).map(|(byte, table)| table[usize::from(byte)]).sum::<f32>()
        };
        let mut scored: Vec<(f32, usize)> = places.into_iter().map(|place| (score(place), place)).collect();
        scored.sort_unstable_by(|left, right| right.0.total_cmp(&left.0).then(left.1.cmp(&right.1)));
        scored
    }
}

/// An index that is searched while it grows.
#[derive(Debug)]
pub struct SharedIndex {
    space: i64,
    codes: RwLock<CodeIndex>,
}

impl SharedIndex {
    /// Shares the index of a space.
    pub fn new(space: i64, codes: CodeIndex) -> Self {
        Self { space, codes: RwLock::new(codes) }
    }

    /// Returns the space that its codes are of.
    pub const fn space(&self) -> i64 {
        self.space
    }

    /// Reads the index. A panic elsewhere leaves each code as it was or as it will be, so poison is ignored.
    pub fn read(&self) -> RwLockReadGuard<'_, CodeIndex> {
        self.codes.read().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds or replaces codes.
    pub fn put_all<'a>(&self, codes: impl IntoIterator<Item = (i64, &'a [u8])>) {
        let mut index = self.codes.write().unwrap_or_else(PoisonError::into_inner);
        for (row, code) in codes {
            index.put(row, code);
        }
    }

    /// Removes codes, such as those of memories that are forgotten or put aside.
    pub fn remove_all(&self, rows: impl IntoIterator<Item = i64>) {
        let mut rows: Vec<i64> = rows.into_iter().collect();
        rows.sort_unstable();
        rows.dedup();
        if !rows.is_empty() {
            self.codes.write().unwrap_or_else(PoisonError::into_inner).remove(&rows);
        }
    }
}

fn words_of(code: &[u8]) -> Vec<u64> {
    code.chunks(8)
        .map(|bytes| bytes.iter().enumerate().fold(0, |word, (n, byte)| word | u64::from(*byte) << (8 * n)))
        .collect()
}

/// Counts the bits that differ; at most the dimension, which fits.
fn count_differing(left: &[u64], right: &[u64]) -> u16 {
    let differing = left.iter().zip(right).map(|(left, right)| (left ^ right).count_ones()).sum::<u32>();
    u16::try_from(differing).unwrap_or(u16::MAX)
}

fn sums_of_signs(numbers: &[f32]) -> [f32; 256] {
    let mut sums = [0.0; 256];
    for (byte, sum) in sums.iter_mut().enumerate() {
        let signed = |(bit, number): (usize, &f32)| if byte >> bit & 1 == 1 { *number } else { -*number };
        *sum = numbers.iter().enumerate().map(signed).sum();
    }
    sums
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// A small generator, so that the figures are the same everywhere (Steele and others, SplitMix64, 2014).
    fn next(state: &mut u64) -> u64 {
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = *state;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    fn number(state: &mut u64) -> f32 {
        // The sum of some even numbers is nearly normal.
        (0..6).map(|_| (next(state) >> 40) as f32 / (1 << 24) as f32).sum::<f32>() - 3.0
    }

    fn vector(state: &mut u64, dimension: usize, around: Option<&Embedding>, spread: f32) -> Embedding {
        let mut numbers: Vec<f32> = (0..dimension).map(|_| number(state)).collect();
        if let Some(centre) = around {
            let scale = (dimension as f32).sqrt();
            for (number, centre) in numbers.iter_mut().zip(centre.numbers()) {
                *number = centre * scale + spread * *number;
            }
        }
        Embedding::from_numbers(numbers).expect("a vector")
    }

    /// Texts of one subject lie close together, as those of people do; the queries are as far from them as paraphrases.
    #[test]
    fn the_quantised_passes_hold_nearly_all_true_neighbours() {
        let (mut state, dimension) = (7, 384);
        let centres: Vec<Embedding> = (0..200).map(|_| vector(&mut state, dimension, None, 1.0)).collect();
        let vectors: Vec<Embedding> =
            (0..20_000).map(|n| vector(&mut state, dimension, Some(&centres[n % 200]), 0.9)).collect();
        let mut index = CodeIndex::new(dimension);
        for (row, vector) in vectors.iter().enumerate() {
            index.put(row as i64, &code_of(vector));
        }
        let (mut found, mut wanted) = (0, 0);
        for n in 0..50 {
            let query = vector(&mut state, dimension, Some(&centres[n * 3]), 0.9);
            let mut exact: Vec<(f32, i64)> =
                vectors.iter().enumerate().map(|(row, v)| (query.cosine(v.numbers()), row as i64)).collect();
            exact.sort_unstable_by(|left, right| right.0.total_cmp(&left.0));
            let near: BTreeSet<i64> = index.scan(&query, None).into_iter().take(SECOND_PASS).collect();
            wanted += 10;
            found += exact[..10].iter().filter(|(_, row)| near.contains(row)).count();
        }
        assert!(found * 100 >= wanted * 98, "{found} of {wanted}");
    }

    #[test]
    fn rows_are_put_in_any_order_replaced_and_bounded_by_a_set() {
        let mut index = CodeIndex::new(8);
        let at = |n: usize| {
            let mut numbers = vec![-0.1_f32; 8];
            numbers[n] = 1.0;
            Embedding::from_numbers(numbers).expect("a vector")
        };
        for row in [5, 1, 3] {
            index.put(row, &code_of(&at(usize::try_from(row).expect("small"))));
        }
        index.put(9, &[0, 0]);
        assert_eq!(index.len(), 3, "a code of another dimension is left out");
        assert_eq!(index.scan(&at(3), None)[0], 3);
        assert_eq!(index.scan(&at(3), Some(&[1, 5, 7])), [1, 5]);
        index.put(1, &code_of(&at(3)));
        assert_eq!(index.scan(&at(3), None), [1, 3, 5]);
        index.remove(&[2, 3, 9]);
        assert_eq!((index.len(), index.scan(&at(3), None)), (2, vec![1, 5]));
        index.put(3, &code_of(&at(3)));
        assert_eq!(index.scan(&at(5), None), [5, 1, 3], "codes stay with their rows");
        let other = Embedding::from_numbers(vec![1.0; 16]).expect("a vector");
        assert_eq!(index.scan(&other, None), Vec::<i64>::new());
    }
}

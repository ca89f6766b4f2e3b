//! The port to what turns texts into vectors.

use std::fmt;
use std::sync::Arc;

use futures::future::BoxFuture;
use writ_types::taint::Clearance;

/// The most texts of one request to an embedder.
pub const MAX_BATCH: usize = 64;

/// The longest text that is embedded, in bytes; models read a few hundred words, and the rest adds nothing.
pub const MAX_TEXT_BYTES: usize = 8 * 1024;

/// The beginning of a text that is embedded where all of it is not accepted, in bytes: many models read 512 tokens, and a token
/// of any script has two bytes or more.
pub const SHORT_TEXT_BYTES: usize = 1024;

/// The largest dimension of a vector: the largest models in use have 4,096.
pub const MAX_DIMENSION: usize = 8_192;

/// The smallest dimension of a vector.
pub const MIN_DIMENSION: usize = 8;

/// The length below which a vector has no direction.
const MIN_NORM: f32 = 1e-6;

/// Turns texts into vectors.
pub trait Embedder: Send + Sync + fmt::Debug {
    /// Returns the name of the model, which names its vectors too: `ollama/nomic-embed-text`, `local/all-MiniLM-L6-v2`.
    fn model(&self) -> String;

    /// Returns the most sensitive content that it may be sent.
    fn clearance(&self) -> Clearance;

    /// Returns a vector for each text, in their order, checked with [`check_answer`] by the caller.
    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>>;
}

/// An embedder that may be shared.
pub type SharedEmbedder = Arc<dyn Embedder>;

/// The reason why there are no vectors.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EmbedError {
    /// The embedder cannot be reached, or answers no request; the text says why.
    #[error("the embedder did not answer: {0}")]
    Away(String),
    /// This request is not answered: its text is not accepted, or may not be sent. Others may be.
    #[error("the text was not embedded: {0}")]
    Refused(String),
    /// The answer has another number of vectors than there were texts.
    #[error("the embedder sent {found} vectors for {sent} texts")]
    Count {
        /// The number of texts.
        sent: usize,
        /// The number of vectors.
        found: usize,
    },
    /// Vectors of one answer have different dimensions, or one out of bounds.
    #[error("the embedder sent a vector of {0} numbers")]
    Dimension(usize),
    /// A vector holds what is no number, or has no direction.
    #[error("the embedder sent a vector that is not finite, or zero")]
    NotFinite,
}

/// A vector of length one.
#[derive(Clone, Debug, PartialEq)]
pub struct Embedding(Vec<f32>);

impl Embedding {
    /// Checks numbers of an embedder and brings them to length one.
    ///
    /// # Errors
    ///
    /// If the dimension is out of bounds, a number is not finite, or all are zero.
    pub fn from_numbers(mut numbers: Vec<f32>) -> Result<Self, EmbedError> {
        if !(MIN_DIMENSION..=MAX_DIMENSION).contains(&numbers.len()) {
            return Err(EmbedError::Dimension(numbers.len()));
        }
        let norm = numbers.iter().map(|number| number * number).sum::<f32>().sqrt();
        // A sum over numbers that are too large is infinite, and one with NaN is NaN: both are refused here.
        if !norm.is_finite() || norm < MIN_NORM {
            return Err(EmbedError::NotFinite);
        }
        for number in &mut numbers {
            *number /= norm;
        }
        Ok(Self(numbers))
    }

    /// Returns the numbers.
    pub fn numbers(&self) -> &[f32] {
        &self.0
    }

    /// Returns the number of dimensions.
    pub fn dimension(&self) -> usize {
        self.0.len()
    }

    /// Returns the cosine of the angle to another vector of length one; zero where the dimensions differ.
    pub fn cosine(&self, other: &[f32]) -> f32 {
        if self.0.len() != other.len() {
            return 0.0;
        }
        dot(&self.0, other)
    }
}

/// Returns the scalar product of two vectors of the same dimension.
pub(crate) fn dot(left: &[f32], right: &[f32]) -> f32 {
    // Eight sums side by side, which the compiler makes vector instructions of; one sum alone has a fixed order.
    const LANES: usize = 8;
    let mut sums = [0.0_f32; LANES];
    let (left_chunks, right_chunks) = (left.chunks_exact(LANES), right.chunks_exact(LANES));
    let rest: f32 =
        left_chunks.remainder().iter().zip(right_chunks.remainder()).map(|(left, right)| left * right).sum();
    for (left, right) in left_chunks.zip(right_chunks) {
        for ((sum, left), right) in sums.iter_mut().zip(left).zip(right) {
            *sum += left * right;
        }
    }
    sums.iter().sum::<f32>() + rest
}

/// Checks the vectors of one answer: their number, one dimension for all, finite numbers.
///
/// # Errors
///
/// If one of these does not hold; nothing of the answer is used then.
pub fn check_answer(sent: usize, vectors: Vec<Vec<f32>>) -> Result<Vec<Embedding>, EmbedError> {
    if vectors.len() != sent {
        return Err(EmbedError::Count { sent, found: vectors.len() });
    }
    // Vectors of one answer are compared with each other later, so all have the dimension of the first.
    let dimension = vectors.first().map_or(0, Vec::len);
    let check = |numbers: Vec<f32>| {
        if numbers.len() == dimension {
            Embedding::from_numbers(numbers)
        } else {
            Err(EmbedError::Dimension(numbers.len()))
        }
    };
    vectors.into_iter().map(check).collect()
}

/// Returns the part of a text that is embedded.
pub fn bounded_text(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rows: WIN-206 (in part: vectors of another number or dimension are an error)
    #[test]
    fn answers_that_are_no_vectors_are_refused_whole() {
        let good = vec![3.0; 8];
        let found = check_answer(1, vec![good.clone()]).expect("stands");
        assert!((found[0].cosine(found[0].numbers()) - 1.0).abs() < 1e-6);
        assert_eq!(check_answer(2, vec![good.clone()]), Err(EmbedError::Count { sent: 2, found: 1 }));
        assert_eq!(check_answer(2, vec![good.clone(), vec![1.0; 9]]), Err(EmbedError::Dimension(9)));
        assert_eq!(check_answer(1, vec![vec![]]), Err(EmbedError::Dimension(0)));
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY, f32::MAX] {
            let mut numbers = good.clone();
            numbers[3] = bad;
            assert_eq!(check_answer(1, vec![numbers]), Err(EmbedError::NotFinite), "{bad}");
        }
        assert_eq!(check_answer(1, vec![vec![0.0; 8]]), Err(EmbedError::NotFinite));
    }

    #[test]
    fn the_product_is_that_of_one_sum() {
        let left: Vec<f32> = (0..37).map(|n| n as f32 / 10.0).collect();
        let right: Vec<f32> = (0..37).map(|n| 1.0 - n as f32 / 20.0).collect();
        let plain: f32 = left.iter().zip(&right).map(|(left, right)| left * right).sum();
        assert!((dot(&left, &right) - plain).abs() < 1e-3);
    }
}

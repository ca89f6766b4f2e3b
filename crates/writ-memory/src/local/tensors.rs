//! Files of tensors.

use std::fs::File;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::io::Read as _;
use std::path::Path;

use ndarray::{Array1, Array2};
use safetensors::tensor::{Dtype, SafeTensors};

use super::LocalModelError;

/// A table of numbers.
pub(crate) type Matrix = Array2<f32>;

/// The largest file of tensors, in bytes: a small model has a tenth of it.
const MAX_TENSOR_BYTES: u64 = 1024 * 1024 * 1024;

/// The tensors of one file.
pub(crate) struct Tensors {
    bytes: Vec<u8>,
}

impl Tensors {
    pub(crate) fn open(file: &Path) -> Result<Self, LocalModelError> {
        let bytes = read_bounded(file, MAX_TENSOR_BYTES)?;
        // The header is checked now; a tensor is looked up only when the model asks for it.
        SafeTensors::deserialize(&bytes)
            .map_err(|error| LocalModelError::Damaged(format!("{}: {error}", file.display())))?;
        Ok(Self { bytes })
    }

    /// Returns a short text that differs between models, not between copies of one.
    pub(crate) fn take_fingerprint(&self) -> String {
        const SAMPLES: usize = 4_096;
        let step = (self.bytes.len() / SAMPLES).max(1);
        // `DefaultHasher::new` has fixed keys; should the algorithm change, memories are embedded anew, once.
        let mut hasher = DefaultHasher::new();
        self.bytes.len().hash(&mut hasher);
        for at in (0..self.bytes.len()).step_by(step) {
            hasher.write_u8(self.bytes[at]);
        }
        format!("{:08x}", hasher.finish() & 0xffff_ffff)
    }

    /// Returns a table by its name.
    pub(crate) fn read_matrix(&self, name: &str) -> Result<Matrix, LocalModelError> {
        let (shape, numbers) = self.read_numbers(name)?;
        let [rows, columns] = shape[..] else { return Err(damaged_tensor(name, "is no table")) };
        Array2::from_shape_vec((rows, columns), numbers).map_err(|_| damaged_tensor(name, "has another size"))
    }

    /// Returns the first of several tables that is there.
    pub(crate) fn read_any_matrix(&self, names: &[&str]) -> Result<Matrix, LocalModelError> {
        let found = names.iter().find_map(|name| self.read_matrix(name).ok());
        found.ok_or_else(|| LocalModelError::Damaged(format!("there is no tensor {}", names.join(" or "))))
    }

    /// Returns a row of numbers by its name.
    pub(crate) fn read_row(&self, name: &str, size: usize) -> Result<Array1<f32>, LocalModelError> {
        let (_, numbers) = self.read_numbers(name)?;
        if numbers.len() == size {
            Ok(Array1::from_vec(numbers))
        } else {
            Err(damaged_tensor(name, "has another size"))
        }
    }

    fn read_numbers(&self, name: &str) -> Result<(Vec<usize>, Vec<f32>), LocalModelError> {
        let tensors = SafeTensors::deserialize(&self.bytes)
            .map_err(|error| LocalModelError::Damaged(error.to_string()))?;
        // Some models are saved with the name of the whole before each part.
        let tensor = tensors
            .tensor(name)
            .or_else(|_| tensors.tensor(&format!("bert.{name}")))
            .map_err(|_| damaged_tensor(name, "is missing"))?;
        let data = tensor.data();
        // An else-branch, since the enum of the library has forms that were added later.
        let numbers: Vec<f32> = if tensor.dtype() == Dtype::F32 {
            data.chunks_exact(4)
                .map(|bytes| f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
                .collect()
        } else if tensor.dtype() == Dtype::F16 {
            data.chunks_exact(2).map(|bytes| half_number(u16::from_le_bytes([bytes[0], bytes[1]]))).collect()
        } else if tensor.dtype() == Dtype::BF16 {
            data.chunks_exact(2)
                // BF16 is the upper half of an f32.
                .map(|bytes| f32::from_bits(u32::from(u16::from_le_bytes([bytes[0], bytes[1]])) << 16))
                .collect()
        } else {
            return Err(damaged_tensor(name, "is in a form of numbers that is not read"));
        };
        // One such number would make every vector of the model useless.
        if numbers.iter().any(|number| !number.is_finite()) {
            return Err(damaged_tensor(name, "holds what is no number"));
        }
        Ok((tensor.shape().to_vec(), numbers))
    }
}

/// Returns the number that 16 bits of IEEE 754 stand for.
fn half_number(bits: u16) -> f32 {
    let sign = if bits & 0x8000 == 0 { 1.0 } else { -1.0 };
    let (exponent, fraction) = (i32::from((bits >> 10) & 0x1f), f32::from(bits & 0x3ff));
    match exponent {
        0 => sign * fraction * 2.0_f32.powi(-24),
        0x1f if fraction == 0.0 => sign * f32::INFINITY,
        0x1f => f32::NAN,
        exponent => sign * (1.0 + fraction / 1024.0) * 2.0_f32.powi(exponent - 15),
    }
}

fn damaged_tensor(name: &str, why: &str) -> LocalModelError {
    LocalModelError::Damaged(format!("the tensor {name} {why}"))
}

/// Reads a file of at most `limit` bytes.
pub(super) fn read_bounded(file: &Path, limit: u64) -> Result<Vec<u8>, LocalModelError> {
    let unreadable =
        |error: std::io::Error| LocalModelError::Unreadable { file: file.to_owned(), why: error.to_string() };
    let mut bytes = Vec::new();
    let opened = File::open(file).map_err(unreadable)?;
    // One byte more than allowed shows that a file is too large; its size alone could change while it is read.
    let read = opened.take(limit.saturating_add(1)).read_to_end(&mut bytes).map_err(unreadable)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > limit {
        return Err(LocalModelError::TooLarge { file: file.to_owned(), limit });
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halves_are_the_numbers_that_they_stand_for() {
        for (bits, number) in [
            (0x3c00, 1.0),
            (0xc000, -2.0),
            (0x3555, 0.333_251_95),
            (0x0001, 5.960_464_5e-8),
            (0x7bff, 65_504.0),
        ] {
            assert!((half_number(bits) - number).abs() < 1e-9, "{bits:x}");
        }
        assert!(half_number(0x7c00).is_infinite() && half_number(0x7e00).is_nan());
    }
}

//! The encoder of BERT: Devlin and others, 2018; the layers as published, without dropout.

use ndarray::{Array1, Array2, Axis, Zip, s};

use super::tensors::{Matrix, Tensors};
use super::{LocalModelError, ModelSettings};

/// The most layers of a model that is read.
const MAX_LAYERS: usize = 48;

/// An encoder with its weights.
pub(crate) struct Encoder {
    words: Matrix,
    /// The vectors of places, with that of the first segment added.
    places: Matrix,
    norm: Norm,
    layers: Vec<BertLayer>,
    heads: usize,
    /// True if the first token stands for the text, instead of the mean of all.
    takes_first: bool,
}

struct BertLayer {
    query: Linear,
    key: Linear,
    value: Linear,
    attended: Linear,
    attended_norm: Norm,
    widened: Linear,
    narrowed: Linear,
    norm: Norm,
}

/// A product with a table, and a sum.
struct Linear {
    /// Transposed, so that rows of the input are multiplied from the left.
    weight: Matrix,
    bias: Array1<f32>,
}

struct Norm {
    weight: Array1<f32>,
    bias: Array1<f32>,
    epsilon: f32,
}

impl Encoder {
    pub(crate) fn from_tensors(
        tensors: &Tensors,
        settings: &ModelSettings,
        takes_first: bool,
    ) -> Result<Self, LocalModelError> {
        let words = tensors.read_matrix("embeddings.word_embeddings.weight")?;
        let width = words.ncols();
        let heads = settings.num_attention_heads;
        // The heads share the numbers of a vector evenly.
        if heads == 0 || width == 0 || !width.is_multiple_of(heads) {
            return Err(LocalModelError::Damaged(format!("{heads} heads for vectors of {width} numbers")));
        }
        if settings.hidden_act.as_deref().is_some_and(|name| name != "gelu") {
            return Err(LocalModelError::Kind("bert with another activation than gelu".to_owned()));
        }
        if settings.num_hidden_layers == 0 || settings.num_hidden_layers > MAX_LAYERS {
            return Err(LocalModelError::Damaged(format!("{} layers", settings.num_hidden_layers)));
        }
        let segment = tensors.read_matrix("embeddings.token_type_embeddings.weight")?;
        let mut places = tensors.read_matrix("embeddings.position_embeddings.weight")?;
        let fits = segment.nrows() > 0 && segment.ncols() == width && places.ncols() == width;
        if !fits || places.nrows() < settings.max_position_embeddings {
            return Err(LocalModelError::Damaged("the tables of places and segments do not fit".to_owned()));
        }
        // A text alone is the first segment: its vector is added to each place once, not to each token of each text.
        places += &segment.row(0);
        // Zero would divide by zero where all numbers of a row are equal.
        let epsilon = settings.layer_norm_eps.max(f32::MIN_POSITIVE);
        let norm = Norm::from_tensors(tensors, "embeddings.LayerNorm", width, epsilon)?;
        let layers =
            (0..settings.num_hidden_layers).map(|n| BertLayer::from_tensors(tensors, n, width, epsilon));
        Ok(Self { words, places, norm, layers: layers.collect::<Result<_, _>>()?, heads, takes_first })
    }

    /// Returns the number of tokens that the model knows.
    pub(crate) fn count_tokens(&self) -> usize {
        self.words.nrows()
    }

    /// Returns the vector of a text's tokens: the mean of theirs, or that of the first.
    pub(crate) fn embed_tokens(&self, tokens: &[usize]) -> Vec<f32> {
        let mut state = Array2::zeros((tokens.len(), self.words.ncols()));
        for (place, (mut row, token)) in state.rows_mut().into_iter().zip(tokens).enumerate() {
            row.assign(&self.words.row(*token));
            row += &self.places.row(place);
        }
        self.norm.normalise_rows(&mut state);
        for layer in &self.layers {
            state = layer.apply_layer(state, self.heads);
        }
        let pooled = if self.takes_first { None } else { state.mean_axis(Axis(0)) };
        pooled.map_or_else(|| state.row(0).to_vec(), |mean| mean.to_vec())
    }
}

impl BertLayer {
    fn from_tensors(
        tensors: &Tensors,
        n: usize,
        width: usize,
        epsilon: f32,
    ) -> Result<Self, LocalModelError> {
        let square = |part: &str| {
            Linear::from_tensors(tensors, &format!("encoder.layer.{n}.{part}"), Some((width, width)))
        };
        let widened = Linear::from_tensors(tensors, &format!("encoder.layer.{n}.intermediate.dense"), None)?;
        let (from, wide) = widened.weight.dim();
        if from != width {
            return Err(LocalModelError::Damaged(format!("layer {n} has another width")));
        }
        let norm =
            |part: &str| Norm::from_tensors(tensors, &format!("encoder.layer.{n}.{part}"), width, epsilon);
        Ok(Self {
            query: square("attention.self.query")?,
            key: square("attention.self.key")?,
            value: square("attention.self.value")?,
            attended: square("attention.output.dense")?,
            attended_norm: norm("attention.output.LayerNorm")?,
            widened,
            narrowed: Linear::from_tensors(
                tensors,
                &format!("encoder.layer.{n}.output.dense"),
                Some((wide, width)),
            )?,
            norm: norm("output.LayerNorm")?,
        })
    }

    fn apply_layer(&self, state: Matrix, heads: usize) -> Matrix {
        let (query, key, value) = (
            self.query.multiply_rows(&state),
            self.key.multiply_rows(&state),
            self.value.multiply_rows(&state),
        );
        let head_width = state.ncols() / heads;
        // As a number of at most some thousands it is exact.
        let scale = (head_width as f32).sqrt().recip();
        let mut joined = Array2::zeros(state.dim());
        for head in 0..heads {
            let part = s![.., head * head_width..(head + 1) * head_width];
            let mut weights = query.slice(part).dot(&key.slice(part).t());
            weights *= scale;
            softmax_rows(&mut weights);
            joined.slice_mut(part).assign(&weights.dot(&value.slice(part)));
        }
        // Each half of the layer adds its result to what went in.
        let mut attended = self.attended.multiply_rows(&joined);
        attended += &state;
        self.attended_norm.normalise_rows(&mut attended);
        let mut wide = self.widened.multiply_rows(&attended);
        wide.mapv_inplace(activate_gelu);
        let mut result = self.narrowed.multiply_rows(&wide);
        result += &attended;
        self.norm.normalise_rows(&mut result);
        result
    }
}

impl Linear {
    /// Reads a layer; `shape` is the number of inputs and of outputs, where it is known.
    fn from_tensors(
        tensors: &Tensors,
        name: &str,
        shape: Option<(usize, usize)>,
    ) -> Result<Self, LocalModelError> {
        let weight = tensors.read_matrix(&format!("{name}.weight"))?.reversed_axes();
        if shape.is_some_and(|shape| shape != weight.dim()) {
            return Err(LocalModelError::Damaged(format!("the tensor {name}.weight has another size")));
        }
        let bias = tensors.read_row(&format!("{name}.bias"), weight.ncols())?;
        Ok(Self { weight, bias })
    }

    fn multiply_rows(&self, input: &Matrix) -> Matrix {
        let mut output = input.dot(&self.weight);
        output += &self.bias;
        output
    }
}

impl Norm {
    fn from_tensors(
        tensors: &Tensors,
        name: &str,
        width: usize,
        epsilon: f32,
    ) -> Result<Self, LocalModelError> {
        let weight = tensors.read_row(&format!("{name}.weight"), width)?;
        Ok(Self { weight, bias: tensors.read_row(&format!("{name}.bias"), width)?, epsilon })
    }

    fn normalise_rows(&self, state: &mut Matrix) {
        for mut row in state.rows_mut() {
            let count = row.len().max(1) as f32;
            let mean = row.sum() / count;
            row -= mean;
            let variance = row.iter().map(|number| number * number).sum::<f32>() / count;
            let scale = (variance + self.epsilon).sqrt().recip();
            Zip::from(&mut row).and(&self.weight).and(&self.bias).for_each(|number, weight, bias| {
                *number = *number * scale * weight + bias;
            });
        }
    }
}

fn softmax_rows(weights: &mut Matrix) {
    for mut row in weights.rows_mut() {
        // The largest becomes one: no exponent is too large then.
        let largest = row.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        row.mapv_inplace(|number| (number - largest).exp());
        let sum = row.sum();
        row /= sum;
    }
}

/// The activation of BERT, x Φ(x), with the error function of Abramowitz and Stegun 7.1.26 (error below 1.5e-7).
fn activate_gelu(number: f32) -> f32 {
    let scaled = number * std::f32::consts::FRAC_1_SQRT_2;
    let size = scaled.abs();
    let t = (1.0 + 0.327_591_1 * size).recip();
    let series =
        t * (0.254_829_6 + t * (-0.284_496_72 + t * (1.421_413_8 + t * (-1.453_152 + t * 1.061_405_4))));
    let erf = (1.0 - series * (-size * size).exp()).copysign(scaled);
    0.5 * number * (1.0 + erf)
}

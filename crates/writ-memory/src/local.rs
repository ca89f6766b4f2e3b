//! Models that are read from a folder of this machine and run on its processor.
//!
//! Two forms are read: BERT encoders as Sentence Transformers save them (`all-MiniLM-L6-v2`, `bge-small-en`), and
//! tables of token vectors (Model2Vec, `StaticEmbedding`). Both need a vocabulary of WordPiece. Nothing is
//! downloaded. A folder is bounded and may hold anything: what does not fit is an error that names it.

mod bert;

mod tensors;

mod wordpiece;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use futures::FutureExt as _;
use futures::future::BoxFuture;
use serde::Deserialize;
use writ_types::error::{Exit, Report, ToReport};
use writ_types::taint::Clearance;

use crate::embedder::{EmbedError, Embedder, bounded_text};
use bert::Encoder;
use tensors::{Tensors, read_bounded};
use wordpiece::Tokenizer;

/// The largest file of settings, in bytes.
const MAX_CONFIG_BYTES: u64 = 1024 * 1024;

/// The most tokens of a text that are read, where the model names no fewer.
const MAX_TOKENS: usize = 512;

/// The reason why a folder holds no usable model.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LocalModelError {
    /// A file cannot be read.
    #[error("{file} cannot be read: {why}")]
    Unreadable {
        /// The file.
        file: PathBuf,
        /// The reason.
        why: String,
    },
    /// A file is larger than any model that is supported.
    #[error("{file} is larger than {limit} bytes")]
    TooLarge {
        /// The file.
        file: PathBuf,
        /// The bound.
        limit: u64,
    },
    /// The folder holds another kind of model.
    #[error("the model is of the kind '{0}', and only BERT encoders and tables of token vectors are read")]
    Kind(String),
    /// The parts of the model do not fit together.
    #[error("the model is damaged: {0}")]
    Damaged(String),
}

impl ToReport for LocalModelError {
    fn report(&self) -> Report {
        Report::new(Exit::Config, "memory.local_model", self.to_string()).with_hint(
            "'memory.folder' must hold config.json, model.safetensors and tokenizer.json (or vocab.txt) of such a model, \
             as Sentence Transformers or Model2Vec save it",
        )
    }
}

/// A model of a folder.
pub struct LocalModel {
    name: String,
    parts: Arc<ModelParts>,
}

struct ModelParts {
    tokenizer: Tokenizer,
    network: Network,
    max_tokens: usize,
}

enum Network {
    Encoder(Box<Encoder>),
    Table(tensors::Matrix),
}

impl fmt::Debug for LocalModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalModel").field("name", &self.name).finish_non_exhaustive()
    }
}

/// The fields of `config.json` that are read.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ModelSettings {
    model_type: String,
    hidden_act: Option<String>,
    num_attention_heads: usize,
    num_hidden_layers: usize,
    max_position_embeddings: usize,
    layer_norm_eps: f32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct SentenceSettings {
    max_seq_length: Option<usize>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct PoolingSettings {
    pooling_mode_cls_token: bool,
}

impl LocalModel {
    /// Reads the model of a folder. Takes as long as reading its files.
    ///
    /// # Errors
    ///
    /// If a file cannot be read, is too large, or the parts do not fit together.
    pub fn open(folder: &Path) -> Result<Self, LocalModelError> {
        let settings: ModelSettings = read_settings(&folder.join("config.json"))?.unwrap_or_default();
        let sentence: SentenceSettings =
            read_settings(&folder.join("sentence_bert_config.json"))?.unwrap_or_default();
        let tokenizer = Tokenizer::open(folder)?;
        let mut max_tokens = sentence.max_seq_length.unwrap_or(MAX_TOKENS).clamp(8, MAX_TOKENS);
        // Sentence Transformers put the weights of a table into a folder of its module, Model2Vec beside the settings.
        let nested = folder.join("0_StaticEmbedding");
        let base = if nested.is_dir() { nested.as_path() } else { folder };
        let tensors = Tensors::open(&base.join("model.safetensors"))?;
        let network = match settings.model_type.as_str() {
            "bert" => {
                // A token beyond the last place would have no vector of its place.
                max_tokens = max_tokens.min(settings.max_position_embeddings);
                let pooling: PoolingSettings =
                    read_settings(&folder.join("1_Pooling").join("config.json"))?.unwrap_or_default();
                Network::Encoder(Box::new(Encoder::from_tensors(
                    &tensors,
                    &settings,
                    pooling.pooling_mode_cls_token,
                )?))
            }
            // Tables of Sentence Transformers have no such file, and so no kind.
            "model2vec" | "" => Network::Table(tensors.read_any_matrix(&["embeddings", "embedding.weight"])?),
            other => return Err(LocalModelError::Kind(other.chars().take(64).collect())),
        };
        let rows = match &network {
            Network::Encoder(encoder) => encoder.count_tokens(),
            Network::Table(table) => table.nrows(),
        };
        // Checked once here, so that each later look-up of a token has its row.
        if tokenizer.count_tokens() > rows {
            let why = format!("{} tokens for a table of {rows} rows", tokenizer.count_tokens());
            return Err(LocalModelError::Damaged(why));
        }
        let name = folder.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        // A replaced model in the same folder is another model.
        let name = format!("local/{name}@{}", tensors.take_fingerprint());
        Ok(Self { name, parts: Arc::new(ModelParts { tokenizer, network, max_tokens }) })
    }

    /// Returns the vector of a text. Takes some milliseconds for each ten words with an encoder.
    pub fn embed_text(&self, text: &str) -> Vec<f32> {
        self.parts.embed_text(text)
    }
}

impl ModelParts {
    fn embed_text(&self, text: &str) -> Vec<f32> {
        let text = bounded_text(text);
        match &self.network {
            Network::Encoder(encoder) => {
                let tokens = self.tokenizer.encode_framed(text, self.max_tokens);
                encoder.embed_tokens(&tokens)
            }
            Network::Table(table) => {
                let tokens = self.tokenizer.encode_known(text, self.max_tokens);
                // The sum has the direction of the mean, and only the direction counts.
                let mut sum = vec![0.0_f32; table.ncols()];
                for token in &tokens {
                    for (sum, number) in sum.iter_mut().zip(table.row(*token)) {
                        *sum += number;
                    }
                }
                sum
            }
        }
    }
}

impl Embedder for LocalModel {
    fn model(&self) -> String {
        self.name.clone()
    }

    fn clearance(&self) -> Clearance {
        // Nothing leaves this process.
        Clearance::Secret
    }

    fn embed(&self, texts: Vec<String>) -> BoxFuture<'_, Result<Vec<Vec<f32>>, EmbedError>> {
        let parts = Arc::clone(&self.parts);
        async move {
            // Computing must not hold up what else its thread would do.
            let work = move || texts.iter().map(|text| parts.embed_text(text)).collect();
            tokio::task::spawn_blocking(work).await.map_err(|_| EmbedError::Away("it has failed".to_owned()))
        }
        .boxed()
    }
}

fn read_settings<T: for<'de> Deserialize<'de>>(file: &Path) -> Result<Option<T>, LocalModelError> {
    if !file.exists() {
        return Ok(None);
    }
    let bytes = read_bounded(file, MAX_CONFIG_BYTES)?;
    let read = serde_json::from_slice(&bytes);
    read.map(Some).map_err(|error| LocalModelError::Damaged(format!("{}: {error}", file.display())))
}

#[cfg(test)]
mod tests;

//! Models of folders, good and damaged.

use std::collections::BTreeMap;
use std::path::Path;

use safetensors::tensor::{Dtype, TensorView, serialize};

use super::*;
use crate::embedder::Embedding;

const WIDTH: usize = 8;
const WIDE: usize = 16;
const TOKENS: [&str; 8] = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "tea", "coffee", "rain", "##s"];

/// Numbers that differ from tensor to tensor and from place to place.
fn numbers(seed: usize, count: usize) -> Vec<u8> {
    // The last step of SplitMix64: numbers that grow evenly would let places cancel one another.
    let mixed = |n: usize| {
        let begun = (n as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
            ^ (seed as u64 + 1).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let half = (begun ^ (begun >> 30)).wrapping_mul(0x94d0_49bb_1331_11eb);
        half ^ (half >> 31)
    };
    let number = |n: usize| ((mixed(n) % 1_000) as f32 / 1_000.0 - 0.5) * 0.8;
    (0..count).flat_map(|n| number(n).to_le_bytes()).collect()
}

fn save(folder: &Path, tensors: &[(&str, Vec<usize>)]) {
    let data: Vec<(String, Vec<usize>, Vec<u8>)> = tensors
        .iter()
        .enumerate()
        .map(|(seed, (name, shape))| {
            ((*name).to_owned(), shape.clone(), numbers(seed, shape.iter().product()))
        })
        .collect();
    let views: BTreeMap<String, TensorView<'_>> = data
        .iter()
        .map(|(name, shape, bytes)| {
            (name.clone(), TensorView::new(Dtype::F32, shape.clone(), bytes).expect("a tensor"))
        })
        .collect();
    let bytes = serialize(&views, None).expect("serialises");
    std::fs::write(folder.join("model.safetensors"), bytes).expect("writes");
    std::fs::write(folder.join("vocab.txt"), TOKENS.join("\n")).expect("writes");
}

fn encoder_tensors() -> Vec<(&'static str, Vec<usize>)> {
    vec![
        ("embeddings.word_embeddings.weight", vec![TOKENS.len(), WIDTH]),
        ("embeddings.position_embeddings.weight", vec![32, WIDTH]),
        ("embeddings.token_type_embeddings.weight", vec![2, WIDTH]),
        ("embeddings.LayerNorm.weight", vec![WIDTH]),
        ("embeddings.LayerNorm.bias", vec![WIDTH]),
        ("encoder.layer.0.attention.self.query.weight", vec![WIDTH, WIDTH]),
        ("encoder.layer.0.attention.self.query.bias", vec![WIDTH]),
        ("encoder.layer.0.attention.self.key.weight", vec![WIDTH, WIDTH]),
        ("encoder.layer.0.attention.self.key.bias", vec![WIDTH]),
        ("encoder.layer.0.attention.self.value.weight", vec![WIDTH, WIDTH]),
        ("encoder.layer.0.attention.self.value.bias", vec![WIDTH]),
        ("encoder.layer.0.attention.output.dense.weight", vec![WIDTH, WIDTH]),
        ("encoder.layer.0.attention.output.dense.bias", vec![WIDTH]),
        ("encoder.layer.0.attention.output.LayerNorm.weight", vec![WIDTH]),
        ("encoder.layer.0.attention.output.LayerNorm.bias", vec![WIDTH]),
        ("encoder.layer.0.intermediate.dense.weight", vec![WIDE, WIDTH]),
        ("encoder.layer.0.intermediate.dense.bias", vec![WIDE]),
        ("encoder.layer.0.output.dense.weight", vec![WIDTH, WIDE]),
        ("encoder.layer.0.output.dense.bias", vec![WIDTH]),
        ("encoder.layer.0.output.LayerNorm.weight", vec![WIDTH]),
        ("encoder.layer.0.output.LayerNorm.bias", vec![WIDTH]),
    ]
}

fn configure(folder: &Path, heads: usize) {
    let config = serde_json::json!({
        "model_type": "bert", "hidden_act": "gelu", "num_attention_heads": heads, "num_hidden_layers": 1,
        "max_position_embeddings": 32, "layer_norm_eps": 1e-12,
    });
    std::fs::write(folder.join("config.json"), config.to_string()).expect("writes");
}

#[test]
fn an_encoder_reads_a_text_in_its_order() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), &encoder_tensors());
    configure(folder.path(), 2);
    let model = LocalModel::open(folder.path()).expect("opens");
    let vector = |text: &str| Embedding::from_numbers(model.embed_text(text)).expect("a vector");
    let (there, back) = (vector("tea coffee rain"), vector("rain coffee tea"));
    assert_eq!(there.dimension(), WIDTH);
    let differs = |(left, right): (&f32, &f32)| (left - right).abs() > 1e-5;
    assert!(there.numbers().iter().zip(back.numbers()).any(differs), "places count");
    assert_eq!(there, vector("Tea COFFEE  rain"));
    assert!(vector(&"tea ".repeat(10_000)).numbers().iter().all(|number| number.is_finite()));
    assert!(vector("").numbers().iter().all(|number| number.is_finite()));
}

#[test]
fn a_table_of_token_vectors_gives_their_direction() {
    let folder = tempfile::tempdir().expect("a folder");
    save(folder.path(), &[("embeddings", vec![TOKENS.len(), WIDTH])]);
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "model2vec"}"#).expect("writes");
    let model = LocalModel::open(folder.path()).expect("opens");
    let tea: Vec<f32> = model.embed_text("tea unknownword");
    assert_eq!(tea, model.embed_text("tea"), "what is unknown adds nothing");
    assert_eq!(
        Embedding::from_numbers(model.embed_text("zebra")),
        Err(crate::embedder::EmbedError::NotFinite),
        "a text without a known word has no direction"
    );
}

#[test]
fn damaged_folders_are_errors_that_name_what_is_wrong() {
    let folder = tempfile::tempdir().expect("a folder");
    let wrong = |part: &str| {
        let error = LocalModel::open(folder.path()).expect_err("it is refused").to_string();
        assert!(error.contains(part), "{error}");
    };
    wrong("vocab.txt");
    save(folder.path(), &encoder_tensors());
    configure(folder.path(), 3);
    wrong("3 heads");
    std::fs::write(folder.path().join("config.json"), r#"{"model_type": "llama"}"#).expect("writes");
    wrong("llama");
    std::fs::write(folder.path().join("config.json"), "{").expect("writes");
    wrong("config.json");
    configure(folder.path(), 2);
    let short: Vec<_> =
        encoder_tensors().into_iter().filter(|(name, _)| !name.contains("value.bias")).collect();
    save(folder.path(), &short);
    wrong("value.bias is missing");
    let narrow: Vec<_> = encoder_tensors()
        .into_iter()
        .map(|(name, shape)| (name, if name.contains("query.weight") { vec![4, WIDTH] } else { shape }))
        .collect();
    save(folder.path(), &narrow);
    wrong("query.weight");
    let few: Vec<_> = encoder_tensors()
        .into_iter()
        .map(|(name, shape)| (name, if name.contains("word_emb") { vec![4, WIDTH] } else { shape }))
        .collect();
    save(folder.path(), &few);
    wrong("8 tokens for a table of 4 rows");
    std::fs::write(folder.path().join("tokenizer.json"), r#"{"model": {"type": "BPE", "vocab": {}}}"#)
        .expect("writes");
    wrong("BPE");
    std::fs::remove_file(folder.path().join("tokenizer.json")).expect("removes");
    std::fs::write(folder.path().join("model.safetensors"), b"nonsense").expect("writes");
    wrong("model.safetensors");
}

//! What an inode number stands for.

use crate::hf;
use crate::quant::Target;
use crate::view::Repr;
use std::num::NonZeroU64;

/// An inode number: stable for the same model and options across mounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ino(pub NonZeroU64);

impl Ino {
    /// The root directory.
    pub const ROOT: Ino = Ino(NonZeroU64::MIN);

    fn new(class: u8, index: u32) -> Ino {
        Ino(NonZeroU64::MIN.saturating_add(u64::from(class) << 40 | u64::from(index)))
    }
}

/// A directory of the mount.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Dir {
    Root,
    Metadata,
    Tensors(Repr),
    Source,
    SourceNames,
    Live,
    /// `hf/`.
    Hf,
    /// `hf/additional_chat_templates/`.
    HfTemplates,
}

/// A document about the whole model.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Doc {
    Model,
    Metadata,
    Sha256Sums,
    Sfv,
    Provenance,
}

/// A document that tells how things stand now.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Live {
    Status,
    Metrics,
}

/// A file that shows one tensor.
#[allow(missing_docs)]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum View {
    Bin,
    Json,
    Npy,
}

impl View {
    pub(super) const ALL: [View; 3] = [View::Bin, View::Json, View::Npy];

    pub(super) const fn suffix(self) -> &'static str {
        match self {
            View::Bin => ".bin",
            View::Json => ".json",
            View::Npy => ".npy",
        }
    }
}

/// What an inode stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A directory.
    Dir(Dir),
    /// A document about the model.
    Doc(Doc),
    /// A live document.
    Live(Live),
    /// The value of the n-th metadata key.
    Meta(u32),
    /// The n-th source file.
    Source(u32),
    /// The symlink from the n-th stored tensor's name.
    SourceName(u32),
    /// A file of the n-th mounted tensor.
    Tensor(u32, Repr, View),
    /// The whole model as one safetensors file.
    Whole(Repr),
    /// The whole model as one GGUF file.
    Gguf,
    /// A file of `hf/`, beside the weights.
    Hf(hf::File),
    /// The weights in `hf/`.
    HfWeights,
}

/// In the order of their inode numbers: new ones go to the end.
const DIRS: [Dir; 11] = [
    Dir::Root,
    Dir::Metadata,
    Dir::Tensors(Repr::Stored),
    Dir::Source,
    Dir::SourceNames,
    Dir::Live,
    Dir::Tensors(Repr::Float(Target::F32)),
    Dir::Tensors(Repr::Float(Target::F16)),
    Dir::Tensors(Repr::Float(Target::BF16)),
    Dir::Hf,
    Dir::HfTemplates,
];
const HF_FILES: [hf::File; 6] = [
    hf::File::Config,
    hf::File::GenerationConfig,
    hf::File::Tokenizer,
    hf::File::TokenizerConfig,
    hf::File::SpecialTokensMap,
    hf::File::ChatTemplate,
];
const DOCS: [Doc; 5] = [Doc::Model, Doc::Metadata, Doc::Sha256Sums, Doc::Sfv, Doc::Provenance];
pub(super) const LIVES: [Live; 2] = [Live::Status, Live::Metrics];

/// Classes of inode numbers. They are part of what stays the same across versions:
/// new kinds of file get new numbers.
mod class {
    pub(super) const DIR: u8 = 0;
    pub(super) const DOC: u8 = 1;
    pub(super) const LIVE: u8 = 2;
    pub(super) const META: u8 = 3;
    pub(super) const SOURCE: u8 = 4;
    pub(super) const SOURCE_NAME: u8 = 5;
    pub(super) const WHOLE: u8 = 6;
    pub(super) const GGUF: u8 = 7;
    pub(super) const HF: u8 = 8;
    pub(super) const HF_TEMPLATE: u8 = 9;
    pub(super) const HF_WEIGHTS: u8 = 10;
    /// The first of one class per representation and view.
    pub(super) const TENSOR: u8 = 16;
}

fn position<T: PartialEq>(all: &[T], one: &T) -> u32 {
    all.iter().position(|x| x == one).map_or(0, |i| i as u32)
}

impl Node {
    /// The inode number.
    pub fn ino(self) -> Ino {
        match self {
            Node::Dir(dir) => Ino::new(class::DIR, position(&DIRS, &dir)),
            Node::Doc(doc) => Ino::new(class::DOC, position(&DOCS, &doc)),
            Node::Live(live) => Ino::new(class::LIVE, position(&LIVES, &live)),
            Node::Meta(i) => Ino::new(class::META, i),
            Node::Source(i) => Ino::new(class::SOURCE, i),
            Node::SourceName(i) => Ino::new(class::SOURCE_NAME, i),
            Node::Whole(repr) => Ino::new(class::WHOLE, position(&Repr::ALL, &repr)),
            Node::Gguf => Ino::new(class::GGUF, 0),
            Node::Hf(hf::File::NamedTemplate(i)) => Ino::new(class::HF_TEMPLATE, i),
            Node::Hf(file) => Ino::new(class::HF, position(&HF_FILES, &file)),
            Node::HfWeights => Ino::new(class::HF_WEIGHTS, 0),
            Node::Tensor(i, repr, view) => {
                let views = View::ALL.len() as u32;
                let at = position(&Repr::ALL, &repr) * views + position(&View::ALL, &view);
                Ino::new(class::TENSOR + at as u8, i)
            }
        }
    }

    pub(super) fn from_ino(ino: Ino) -> Option<Node> {
        let number = ino.0.get() - 1;
        let class = u8::try_from(number >> 40).ok()?;
        let index = u32::try_from(number & 0xff_ffff_ffff).ok()?;
        let at = index as usize;
        Some(match class {
            class::DIR => Node::Dir(*DIRS.get(at)?),
            class::DOC => Node::Doc(*DOCS.get(at)?),
            class::LIVE => Node::Live(*LIVES.get(at)?),
            class::META => Node::Meta(index),
            class::SOURCE => Node::Source(index),
            class::SOURCE_NAME => Node::SourceName(index),
            class::WHOLE => Node::Whole(*Repr::ALL.get(at)?),
            class::GGUF if index == 0 => Node::Gguf,
            class::HF => Node::Hf(*HF_FILES.get(at)?),
            class::HF_TEMPLATE => Node::Hf(hf::File::NamedTemplate(index)),
            class::HF_WEIGHTS if index == 0 => Node::HfWeights,
            _ => {
                let at = usize::from(class.checked_sub(class::TENSOR)?);
                let repr = *Repr::ALL.get(at / View::ALL.len())?;
                Node::Tensor(index, repr, View::ALL[at % View::ALL.len()])
            }
        })
    }
}

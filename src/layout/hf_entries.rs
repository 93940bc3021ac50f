//! The entries of `hf/` and of its directory of chat templates.

use super::{Dir, Node, WHOLE};
use crate::hf::{self, File};
use crate::model::Model;
use crate::naming::file_name;

/// The directory of named chat templates.
const TEMPLATES: &str = "additional_chat_templates";
/// What follows a template's name.
const TEMPLATE_SUFFIX: &str = ".jinja";

/// A file name and what it leads to.
type Entry = (Box<[u8]>, Node);

/// The entries, in listing order.
#[derive(Debug, Default)]
pub(super) struct HfEntries {
    files: Vec<Entry>,
    templates: Vec<Entry>,
}

impl HfEntries {
    /// The entries for `files`, and the weights if there can be such a file.
    pub(super) fn new(model: &Model, files: &[File], weights: bool) -> HfEntries {
        let mut entries = HfEntries::default();
        for &file in files {
            let node = Node::Hf(file);
            match file {
                File::NamedTemplate(i) => {
                    let name = hf::template_name(model, i);
                    let name = file_name(name, TEMPLATE_SUFFIX, TEMPLATE_SUFFIX.len());
                    entries.templates.push((name.into(), node));
                }
                file => entries.files.push((name(file).as_bytes().into(), node)),
            }
        }
        if !entries.templates.is_empty() {
            entries.files.push((TEMPLATES.as_bytes().into(), Node::Dir(Dir::HfTemplates)));
        }
        if weights {
            entries.files.push((WHOLE.as_bytes().into(), Node::HfWeights));
        }
        entries
    }

    /// The entries of one of the two directories.
    pub(super) fn of(&self, dir: Dir) -> &[Entry] {
        if dir == Dir::HfTemplates { &self.templates } else { &self.files }
    }

    pub(super) fn lookup(&self, dir: Dir, name: &[u8]) -> Option<Node> {
        self.of(dir).iter().find(|(n, _)| **n == *name).map(|&(_, node)| node)
    }

    pub(super) fn has(&self, node: Node) -> bool {
        self.files.iter().chain(&self.templates).any(|&(_, n)| n == node)
    }
}

/// The name of a file of `hf/`.
const fn name(file: File) -> &'static str {
    match file {
        File::Config => "config.json",
        File::GenerationConfig => "generation_config.json",
        File::Tokenizer => "tokenizer.json",
        File::TokenizerConfig => "tokenizer_config.json",
        File::SpecialTokensMap => "special_tokens_map.json",
        File::ChatTemplate | File::NamedTemplate(_) => "chat_template.jinja",
    }
}

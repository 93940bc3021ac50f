//! Why a weight is not decoded.

use crate::model::Model;

/// Why a weight is not decoded. Numbers are indices of stored tensors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// No tensor with a name that means a scale.
    NoScale,
    /// The shape of this scale does not fit.
    Shape(u32),
    /// No scale has this type.
    Type(u32),
    /// Either of two could be the scale.
    Several(u32, u32),
    /// A tensor that changes the values in a way not known here.
    Beside(u32),
    /// The configuration says something else.
    Told,
    /// Only a configuration could tell the sizes.
    NotTold,
    /// A convention that is known by name only.
    Named(&'static str),
    /// The name it would have is that of another tensor.
    Collides,
    /// The tensor that tells the shape could not be read, or tells another.
    Tells(u32),
}

impl Reason {
    /// What it has in common with others: its sort, and the name of a convention.
    pub(super) fn kind(self) -> (&'static str, &'static str) {
        match self {
            Reason::NoScale => ("none", ""),
            Reason::Shape(_) => ("shape", ""),
            Reason::Type(_) => ("type", ""),
            Reason::Several(..) => ("several", ""),
            Reason::Beside(_) => ("beside", ""),
            Reason::Told => ("told", ""),
            Reason::NotTold => ("not told", ""),
            Reason::Named(name) => ("named", name),
            Reason::Collides => ("collides", ""),
            Reason::Tells(_) => ("tells", ""),
        }
    }

    /// In words, for the weight `source`. `told` is what the configuration says.
    pub(super) fn text(self, model: &Model, source: u32, told: Option<&str>) -> String {
        let tensor = |i: u32| &model.tensors[i as usize];
        let name = |i: u32| String::from_utf8_lossy(&tensor(i).name).into_owned();
        match self {
            Reason::NoScale => "no scale tensor found".into(),
            Reason::Shape(i) => format!(
                "scale {} has shape {:?}, weight {:?}",
                name(i),
                tensor(i).shape,
                tensor(source).shape
            ),
            Reason::Type(i) => format!(
                "scale {} of type {} is no known scale of {}",
                name(i),
                tensor(i).dtype,
                tensor(source).dtype
            ),
            Reason::Several(a, b) => format!("both {} and {} could be the scale", name(a), name(b)),
            Reason::Beside(i) => {
                format!("{} changes the values in a way that is not supported", name(i))
            }
            Reason::Told => format!(
                "the configuration ({}) contradicts types and shapes",
                told.unwrap_or("quantization_config")
            ),
            Reason::NotTold => {
                "no configuration beside the model tells its group size and bits".into()
            }
            Reason::Named(name) => format!("packed as {name}, which is not supported"),
            Reason::Collides => "the name of the decoded weight is that of another tensor".into(),
            Reason::Tells(i) => format!("{} does not tell a shape that fits the codes", name(i)),
        }
    }
}

//! The parts of requests that not every model takes.

/// A part of requests that not every model takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Feature {
    /// The form of an answer.
    Form,
    /// The effort of reasoning.
    Effort,
    /// Tools.
    Tools,
    /// Images.
    Images,
    /// PDF files.
    Files,
}

impl Feature {
    /// Returns true if a request means the same without it, so that it may be left out: an answer is checked anyway.
    pub const fn may_be_left_out(self) -> bool {
        match self {
            Self::Form | Self::Effort => true,
            Self::Tools | Self::Images | Self::Files => false,
        }
    }
}

impl std::fmt::Display for Feature {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Form => "a form of its answer",
            Self::Effort => "an effort of its reasoning",
            Self::Tools => "tools",
            Self::Images => "images",
            Self::Files => "PDF files",
        })
    }
}

/// Returns a way on where a model does not take a part of requests.
pub(super) const fn hint_for(feature: Feature) -> &'static str {
    match feature {
        Feature::Images => "Name a model that sees images, in models.default or models.fallback.",
        Feature::Files => "Name a model that reads PDF files, or send the text of the file.",
        Feature::Tools => "Choose a model that can call tools.",
        Feature::Form | Feature::Effort => "The next request goes without it.",
    }
}

//! Texts with claims in them: `{{claims.groups}}`, `team-{{claims.department}}`.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::OidcError;
use crate::path::{Found, Path};
use crate::text::written_as_text;

/// Most texts that one template becomes.
pub const MAX_TEXTS: usize = 2_000;

/// Most claims in one template. Each may have several values, and they are all combined.
const MAX_CLAIMS: usize = 3;

/// Longest template, and longest text that one becomes, in bytes.
const MAX_BYTES: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
enum Part {
    Text(String),
    Claim(Path),
}

/// A text in which claims stand for their values. One with a claim of several values becomes several texts, and one with a claim
/// that is not there becomes none.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

/// What a template became.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Rendered {
    pub(crate) texts: Vec<String>,
    /// The first claim that was not there, and what was there instead.
    pub(crate) missing: Option<(Path, Option<&'static str>)>,
    /// Whether there were too many texts, or too long ones.
    pub(crate) cut: bool,
}

impl Template {
    /// Reads a template.
    ///
    /// # Errors
    /// [`OidcError::BadTemplate`] with what is wrong.
    pub fn parse(text: &str) -> Result<Self, OidcError> {
        let bad = |reason| OidcError::BadTemplate { text: text.chars().take(128).collect(), reason };
        if text.is_empty() || text.len() > MAX_BYTES {
            return Err(bad("it is empty or longer than 1024 bytes"));
        }
        let mut parts = Vec::new();
        let mut rest = text;
        while let Some((ahead, after)) = rest.split_once("{{") {
            let (expression, after) = after.split_once("}}").ok_or(bad("{{ is not closed by }}"))?;
            let expression = expression.trim();
            // A name in brackets follows without a dot.
            let path = expression
                .strip_prefix("claims")
                .and_then(|path| path.strip_prefix('.').or_else(|| path.starts_with('[').then_some(path)))
                .ok_or(bad("between {{ and }} has to stand claims. and a claim"))?;
            if !ahead.is_empty() {
                parts.push(Part::Text(ahead.to_owned()));
            }
            parts.push(Part::Claim(Path::parse(path)?));
            rest = after;
        }
        if rest.contains("}}")
            || parts.iter().any(|part| matches!(part, Part::Text(text) if text.contains("}}")))
        {
            return Err(bad("}} closes nothing"));
        }
        if !rest.is_empty() {
            parts.push(Part::Text(rest.to_owned()));
        }
        if parts.iter().filter(|part| matches!(part, Part::Claim(_))).count() > MAX_CLAIMS {
            return Err(bad("it has more than 3 claims"));
        }
        Ok(Self { text: text.to_owned(), parts })
    }

    /// The claims in it.
    pub fn claims(&self) -> impl Iterator<Item = &str> {
        self.parts.iter().filter_map(|part| match part {
            Part::Claim(path) => Some(path.claim()),
            Part::Text(_) => None,
        })
    }

    /// The one text that it becomes; none where a claim is not there, or there are several texts.
    #[must_use]
    pub fn single(&self, claims: &Map<String, Value>) -> Option<String> {
        let mut rendered = self.render(claims);
        let text = rendered.texts.pop()?;
        (rendered.texts.is_empty() && !rendered.cut).then_some(text)
    }

    /// The text where there is no claim in it.
    #[must_use]
    pub fn constant(&self) -> Option<&str> {
        self.claims().next().is_none().then_some(self.text.as_str())
    }

    /// Whether it begins with a claim, so that what it becomes is as the provider says from the first character on.
    #[must_use]
    pub fn begins_with_claim(&self) -> bool {
        matches!(self.parts.first(), Some(Part::Claim(_)))
    }

    /// The texts that it becomes.
    pub(crate) fn render(&self, claims: &Map<String, Value>) -> Rendered {
        let mut rendered = Rendered { texts: vec![String::new()], missing: None, cut: false };
        for part in &self.parts {
            let values = match part {
                Part::Text(text) => vec![text.clone()],
                Part::Claim(path) => {
                    let (found, cut) = path.find_bounded(claims);
                    rendered.cut |= cut;
                    match found {
                        Found::Values(values) => values,
                        Found::Nothing => return Rendered::missing(path, None),
                        Found::Other(other) => return Rendered::missing(path, Some(other)),
                    }
                }
            };
            let mut texts = Vec::new();
            for ahead in &rendered.texts {
                for value in &values {
                    let text = format!("{ahead}{value}");
                    if texts.len() >= MAX_TEXTS || text.len() > MAX_BYTES {
                        rendered.cut = true;
                    } else {
                        texts.push(text);
                    }
                }
            }
            rendered.texts = texts;
        }
        rendered
    }
}

impl Rendered {
    fn missing(path: &Path, other: Option<&'static str>) -> Self {
        Self { texts: Vec::new(), missing: Some((path.clone(), other)), cut: false }
    }
}

written_as_text!(Template);

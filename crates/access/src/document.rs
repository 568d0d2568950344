//! How resource documents are read, and what every one has on top: its kind, its version and its metadata.

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::Labels;
use crate::labels::check_set;
use crate::yaml::{self, Errors, Problems, Section};

const METADATA: &[&str] = &["name", "description", "expires", "revision", "labels"];

/// Reads a document from `text`: `read` takes what it says from its top, which has these keys and no others.
///
/// # Errors
/// Everything that is wrong with it, each with line, column and what to write instead.
pub fn read_document<T>(
    file: &str,
    text: &str,
    known: &[&str],
    read: impl FnOnce(&Section<'_>, &mut Problems) -> Option<T>,
) -> Result<T, Errors> {
    let parsed = yaml::parse(file, text)?;
    let mut problems = Problems::new();
    let found = Section::read(&parsed, "", known, &mut problems).and_then(|top| read(&top, &mut problems));
    problems.finish(file)?;
    found.ok_or_else(|| Errors { file: file.to_owned(), problems: Vec::new() })
}

/// The name and expiry of a resource document, of which the rest is read by its kind.
pub(crate) struct Metadata {
    pub(crate) name: Option<String>,
    pub(crate) description: String,
    pub(crate) expires: Option<OffsetDateTime>,
    pub(crate) place: serde_saphyr::Location,
}

/// Reads what every resource document has on top.
pub(crate) fn metadata(top: &Section<'_>, kind: &str, problems: &mut Problems) -> Metadata {
    match top.text("kind", problems).as_deref() {
        Some(found) if found == kind => {}
        Some(found) => {
            problems.push(
                top.place("kind"),
                "kind",
                format!("{found:?} is not {kind:?}"),
                format!("write kind: {kind}"),
            );
        }
        None => problems.push(top.at(), "kind", "is missing", format!("write kind: {kind}")),
    }
    match top.text("version", problems).as_deref() {
        Some("v1") => {}
        Some(_) => {
            problems.push(top.place("version"), "version", "this release only knows v1", "write version: v1")
        }
        None => problems.push(top.at(), "version", "is missing", "write version: v1"),
    }
    let Some(section) = top.section("metadata", METADATA, problems) else {
        problems.push(top.at(), "metadata", "is missing", "write metadata: with a name below it");
        return Metadata { name: None, description: String::new(), expires: None, place: top.at() };
    };
    let name = section.text("name", problems);
    if name.is_none() && section.present("name").is_none() {
        problems.push(
            section.at(),
            "metadata.name",
            "is missing",
            "write name: and the name of the resource",
        );
    }
    let expires = section.parsed("expires", "write a time such as 2030-01-31T12:00:00Z", problems, |text| {
        OffsetDateTime::parse(text, &Rfc3339).map_err(|_| "is not a time")
    });
    let description =
        section.parsed("description", "write text", problems, |text| Ok::<_, &str>(text.to_owned()));
    Metadata { name, description: description.unwrap_or_default(), expires, place: section.place("name") }
}

/// Reads the labels of a resource document.
pub(crate) fn metadata_labels(top: &Section<'_>, problems: &mut Problems) -> Labels {
    // What is wrong with the section itself was told when its name was read.
    let section = top.section("metadata", METADATA, &mut Problems::new());
    section.map(|section| read_labels(&section, problems)).unwrap_or_default()
}

/// Reads the key `labels` of a section.
pub fn read_labels(section: &Section<'_>, problems: &mut Problems) -> Labels {
    let pairs = section.pairs("labels", problems);
    for (key, value) in &pairs {
        if let Err(error) = check_set(key, value) {
            let key = section.name(&format!("labels.{key}"));
            problems.push(section.place("labels"), &key, error.to_string(), "choose another label");
        }
    }
    pairs.into_iter().collect()
}

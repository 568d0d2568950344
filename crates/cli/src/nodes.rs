//! Nodes as people name and select them.

use std::collections::BTreeMap;

use crate::error::{CliError, CliResult, Exit};

/// Parses `env=prod,team=db` (commas or spaces between pairs).
pub(crate) fn parse_labels(texts: &[String]) -> CliResult<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for pair in texts.iter().flat_map(|text| text.split([',', ' '])).filter(|pair| !pair.is_empty()) {
        match pair.split_once('=') {
            Some((key, value)) if !key.is_empty() => {
                labels.insert(key.to_owned(), value.to_owned());
            }
            _ => {
                return Err(
                    CliError::new(format!("{pair:?} is not a label; expected key=value")).exit(Exit::Usage)
                );
            }
        }
    }
    Ok(labels)
}

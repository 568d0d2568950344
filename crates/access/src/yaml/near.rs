//! The word that was meant.

/// The known word that a typing slip most likely meant.
#[must_use]
pub fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let bound = (word.chars().count() / 3).max(2);
    known
        .iter()
        .map(|candidate| (distance(word, candidate), *candidate))
        .filter(|(distance, _)| *distance <= bound)
        .min()
        .map(|(_, candidate)| candidate)
}

/// Insertions, deletions and replacements between two words (Levenshtein).
pub(super) fn distance(left: &str, right: &str) -> usize {
    let right: Vec<char> = right.chars().collect();
    let mut row: Vec<usize> = (0..=right.len()).collect();
    for (line, l) in left.chars().enumerate() {
        let mut next = Vec::with_capacity(row.len());
        next.push(line + 1);
        for (r, (above, diagonal)) in right.iter().zip(row.iter().skip(1).zip(&row)) {
            let before = next.last().copied().unwrap_or(usize::MAX - 1);
            let replace = diagonal + usize::from(l != *r);
            next.push(replace.min(above + 1).min(before + 1));
        }
        row = next;
    }
    row.last().copied().unwrap_or(0)
}

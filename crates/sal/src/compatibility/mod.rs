//! What the software of others can do: as it said itself, and as is known of it.
//!
//! * An [`Offer`] is what a client said on a real connection: its name and the algorithms that it offered.
//! * [`FACTS`] is built-in knowledge, a row for each thing that a product can do from a version on, with its source.
//!   `docs/compatibility.md` prints it, and a test compares the two.
//! * [`judge`] puts both together: whether a client can follow a cluster from one [`crate::Suite`] to another.
//!
//! An offer weighs more than knowledge: people configure their clients, and distributions patch them.

mod facts;
mod judge;
mod notes;
mod offer;
mod software;

pub use facts::{Ability, FACTS, Fact, Has, LIFETIMES, Lifetime, Reading, Source};
pub use judge::{Effect, Finding, Verdict, judge, known_hybrid_ssh};
pub use notes::notes;
pub use offer::{Kind, Offer, group_name, is_grease, scheme_name, version_name};
pub use software::{Product, Software, Version};

/// What is known of a product's version: its last fact at or before that version, or that it has none yet.
#[must_use]
pub fn known(software: &Software, ability: Ability) -> Option<(Has, &'static Fact)> {
    let facts = FACTS.iter().filter(|fact| fact.product == software.product && fact.ability == ability);
    match software.version {
        Some(version) => {
            let so_far = facts.clone().filter(|fact| fact.from <= version).max_by_key(|fact| fact.from);
            // A first version that has it says that those before have not.
            so_far
                .map(|fact| (fact.has, fact))
                .or_else(|| facts.min_by_key(|fact| fact.from).map(|first| (Has::No, first)))
        }
        // Without a version only what holds for all of them is known.
        None => {
            let mut facts = facts;
            match (facts.next(), facts.next()) {
                (Some(only), None) if only.from == Version::FIRST => Some((only.has, only)),
                _ => None,
            }
        }
    }
}

#[cfg(test)]
mod tests;

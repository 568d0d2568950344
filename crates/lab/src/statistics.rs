//! What is said about many samples: the middle, the slow end, how far they lie apart; and the ratio of two that took
//! turns.

/// Samples of one thing, in the order in which they were taken.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Samples(Vec<f64>);

impl Samples {
    /// Adds one.
    pub fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// One after the other.
    pub fn iter(&self) -> impl Iterator<Item = f64> + '_ {
        self.0.iter().copied()
    }

    /// How many there are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The middle one; zero when there is none.
    #[must_use]
    pub fn median(&self) -> f64 {
        self.quantile(0.5)
    }

    /// The one below which this share of the samples lies (0 to 1).
    #[must_use]
    pub fn quantile(&self, share: f64) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index within the samples"
        )]
        let at = (sorted.len().saturating_sub(1) as f64 * share).round() as usize;
        sorted.get(at).copied().unwrap_or_default()
    }

    /// Half the distance between the quartiles, as a share of the median.
    #[must_use]
    pub fn spread(&self) -> f64 {
        let median = self.median();
        if median > 0.0 { (self.quantile(0.75) - self.quantile(0.25)) / 2.0 / median } else { 0.0 }
    }

    /// The median of the ratios to what was measured next to it, round by round. A disturbance that lasts longer than a
    /// round changes both, and leaves the ratio.
    #[must_use]
    pub fn ratio_to(&self, base: &Self) -> Option<f64> {
        let mut ratios = Self::default();
        for (mine, theirs) in self.0.iter().zip(&base.0) {
            if *theirs > 0.0 {
                ratios.push(mine / theirs);
            }
        }
        (!ratios.is_empty()).then(|| ratios.median())
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(values: I) -> Self {
        Self(values.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::float_cmp)]
    use super::*;

    #[test]
    fn the_middle_and_the_ends_are_samples_themselves() {
        let samples: Samples = (1..=101).rev().map(f64::from).collect();
        assert_eq!((samples.median(), samples.quantile(0.95), samples.quantile(1.0)), (51.0, 96.0, 101.0));
        assert_eq!(Samples::default().median(), 0.0);
        assert!((samples.spread() - 25.0 / 51.0).abs() < 1e-9);
    }

    #[test]
    fn a_ratio_is_taken_round_by_round() {
        // The machine was ten times slower in the last two rounds, for both.
        let ours: Samples = [2.0, 2.0, 2.0, 20.0, 20.0].into_iter().collect();
        let theirs: Samples = [1.0, 1.0, 1.0, 10.0, 10.0].into_iter().collect();
        assert_eq!(ours.ratio_to(&theirs), Some(2.0));
        assert_eq!(ours.ratio_to(&Samples::default()), None);
    }
}

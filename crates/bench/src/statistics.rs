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

    /// The middle one, or between the two in the middle; zero when there is none.
    #[must_use]
    pub fn median(&self) -> f64 {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let middle = sorted.len() / 2;
        match (sorted.get(middle), middle.checked_sub(1).and_then(|before| sorted.get(before))) {
            (Some(upper), Some(lower)) if sorted.len().is_multiple_of(2) => f64::midpoint(*lower, *upper),
            (upper, _) => upper.copied().unwrap_or_default(),
        }
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

    /// Where the median of everything that could have been sampled lies, with a confidence of 95 %: between two samples
    /// that are told by their ranks, whatever the distribution (the binomial one of how many samples lie below the median).
    /// With fewer than six samples no two of them are that far apart: it is the whole range then, with a confidence of
    /// 1 - 2^(1-n). None for fewer than two.
    #[must_use]
    pub fn interval(&self) -> Option<(f64, f64)> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = outer_rank(sorted.len());
        let low = sorted.get(rank).copied()?;
        let high = sorted.get(sorted.len().checked_sub(rank + 1)?).copied()?;
        (sorted.len() > 1).then_some((low, high))
    }

    /// The least; zero when there is none. What work takes when nothing disturbs it.
    #[must_use]
    pub fn least(&self) -> f64 {
        self.quantile(0.0)
    }

    /// The median of the ratios to what was measured next to it, round by round. A disturbance that lasts longer than a
    /// round changes both, and leaves the ratio.
    #[must_use]
    pub fn ratio_to(&self, base: &Self) -> Option<f64> {
        let ratios = self.ratios_to(base);
        (!ratios.is_empty()).then(|| ratios.median())
    }

    /// All of these ratios.
    #[must_use]
    pub fn ratios_to(&self, base: &Self) -> Self {
        let rounds = self.0.iter().zip(&base.0).filter(|(_, theirs)| **theirs > 0.0);
        rounds.map(|(mine, theirs)| mine / theirs).collect()
    }
}

/// How many of so many sorted samples may be left out at each end, so that the others hold the median with 95 %.
#[allow(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "numbers of samples"
)]
fn outer_rank(samples: usize) -> usize {
    /// Past so many the normal distribution is as good, and powers of two run out.
    const EXACT: usize = 500;
    /// The 2.5 % point of the normal distribution.
    const NORMAL: f64 = 1.96;
    if samples > EXACT {
        let n = samples as f64;
        return ((n - NORMAL * n.sqrt()) / 2.0).floor() as usize;
    }
    // P(fewer than `rank` lie below the median) must stay under 2.5 %.
    let mut probability = 0.5_f64.powf(samples as f64);
    let mut sum = 0.0;
    for rank in 0..samples {
        sum += probability;
        if sum > 0.025 {
            return rank.saturating_sub(1).min(samples / 2);
        }
        probability *= (samples - rank) as f64 / (rank + 1) as f64;
    }
    0
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
        assert_eq!([4.0, 1.0, 2.0, 3.0].into_iter().collect::<Samples>().median(), 2.5);
        assert!((samples.spread() - 25.0 / 51.0).abs() < 1e-9);
    }

    #[test]
    fn the_interval_of_a_median_has_the_ranks_of_the_tables() {
        // Ranks, from one, in tables of the sign test: 2 of 10 (97.9 %), 6 of 20 (95.9 %), 40 of 100 (96.5 %).
        for (samples, low, high) in [(6, 1, 6), (10, 2, 9), (20, 6, 15), (100, 40, 61), (1000, 470, 531)] {
            let all: Samples = (1..=samples).map(f64::from).collect();
            assert_eq!(all.interval(), Some((f64::from(low), f64::from(high))), "{samples}");
        }
        let few: Samples = [3.0, 1.0, 2.0].into_iter().collect();
        assert_eq!(few.interval(), Some((1.0, 3.0)));
        assert_eq!((few.least(), Samples::default().interval()), (1.0, None));
        assert_eq!([1.0].into_iter().collect::<Samples>().interval(), None);
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

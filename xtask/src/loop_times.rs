//! What a developer waits for, beside what it took when it was recorded (`xtask/loop.txt`). A step that takes longer is said
//! so and fails nothing: machines differ, and so does what else they do.

use std::collections::BTreeMap;
use std::fs;

const FILE: &str = "xtask/loop.txt";

/// How much longer than recorded a step may take, in percent, before it is said.
const MOST_OVER_PERCENT: u64 = 5;

/// Shorter differences, in seconds, say nothing of a step.
const LEAST_OVER_SECONDS: u64 = 2;

/// A run's way to the recorded times.
#[derive(Debug)]
pub(crate) struct LoopTimes {
    text: String,
    record: bool,
}

impl LoopTimes {
    /// Reads the recorded times. With `record` each time that is said becomes the recorded one.
    pub(crate) fn load(record: bool) -> Result<Self, String> {
        let text = fs::read_to_string(FILE).map_err(|error| format!("{FILE}: {error}"))?;
        recorded(&text)?;
        Ok(Self { text, record })
    }

    /// The time that a step took, beside the recorded one.
    pub(crate) fn said(&mut self, step: &str, seconds: u64) -> Result<String, String> {
        let before = recorded(&self.text)?.get(step).copied();
        if self.record {
            self.text = with(&self.text, step, seconds);
            fs::write(FILE, &self.text).map_err(|error| format!("{FILE}: {error}"))?;
        }
        Ok(beside(step, seconds, before))
    }
}

/// `cargo xtask took STEP SECONDS [--record]`: what `.ci/run` says after each of its steps.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let usage = || "say it as: cargo xtask took STEP SECONDS [--record]".to_owned();
    let (step, seconds, rest) = match arguments {
        [step, seconds, rest @ ..] => (step, seconds.parse().map_err(|_| usage())?, rest),
        _ => return Err(usage()),
    };
    let record = match rest {
        [] => false,
        [word] if word == "--record" => true,
        _ => return Err(usage()),
    };
    println!("== {}", LoopTimes::load(record)?.said(step, seconds)?);
    Ok(())
}

/// Lines `SECONDS STEP`, and comments.
fn recorded(text: &str) -> Result<BTreeMap<&str, u64>, String> {
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let read = |line: &'_ str| -> Option<u64> { line.split_once(' ')?.0.parse().ok() };
    lines
        .map(|line| {
            let seconds = read(line).ok_or_else(|| format!("{FILE}: `{line}` is not `SECONDS STEP`"))?;
            Ok((line.split_once(' ').map_or("", |(_, step)| step), seconds))
        })
        .collect()
}

/// The file with this time for a step, in its place or at the end.
fn with(text: &str, step: &str, seconds: u64) -> String {
    let is_it =
        |line: &str| !line.starts_with('#') && line.split_once(' ').is_some_and(|(_, name)| name == step);
    let new = format!("{seconds} {step}");
    let mut lines: Vec<&str> =
        text.lines().map(|line| if is_it(line) { new.as_str() } else { line }).collect();
    if !lines.contains(&new.as_str()) {
        lines.push(&new);
    }
    lines.join("\n") + "\n"
}

fn beside(step: &str, seconds: u64, recorded: Option<u64>) -> String {
    let Some(recorded) = recorded else { return format!("{step}: {seconds} s (nothing recorded)") };
    let over = seconds.saturating_sub(recorded);
    if over >= LEAST_OVER_SECONDS && over * 100 > recorded * MOST_OVER_PERCENT {
        let percent = over * 100 / recorded.max(1);
        return format!("{step}: {seconds} s, {percent} % OVER the recorded {recorded} s");
    }
    format!("{step}: {seconds} s (recorded: {recorded})")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_step_that_takes_longer_than_recorded_is_said() {
        assert_eq!(beside("a", 105, Some(100)), "a: 105 s (recorded: 100)");
        assert_eq!(beside("a", 106, Some(100)), "a: 106 s, 6 % OVER the recorded 100 s");
        // A second more is no change, however short the step is.
        assert_eq!(beside("a", 2, Some(1)), "a: 2 s (recorded: 1)");
        assert_eq!(beside("a", 9, Some(0)), "a: 9 s, 900 % OVER the recorded 0 s");
        assert_eq!(beside("a", 7, None), "a: 7 s (nothing recorded)");
    }

    #[test]
    fn a_time_is_recorded_in_its_place() {
        let text = "# why\n3 ci a\n4 ci b c\n";
        assert_eq!(recorded(text).unwrap(), BTreeMap::from([("ci a", 3), ("ci b c", 4)]));
        assert_eq!(with(text, "ci b c", 5), "# why\n3 ci a\n5 ci b c\n");
        assert_eq!(with(text, "new", 5), "# why\n3 ci a\n4 ci b c\n5 new\n");
        assert!(recorded("soon ci a").unwrap_err().contains("soon ci a"));
    }

    #[test]
    fn each_step_of_ci_has_a_recorded_time() {
        let text = include_str!("../loop.txt");
        let recorded = recorded(text).unwrap();
        let lines = include_str!("../../.ci/run").lines().map(str::trim);
        let steps: Vec<&str> = lines
            .filter_map(|line| line.strip_prefix("step \"")?.split_once('"'))
            .map(|(name, _)| name)
            .collect();
        assert!(steps.len() > 5);
        // What is run where it is installed only has none.
        for step in steps.iter().filter(|step| **step != "cargo deny") {
            assert!(recorded.contains_key(format!("ci {step}").as_str()), "{step}");
        }
    }
}

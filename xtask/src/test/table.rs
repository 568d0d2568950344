//! What is known of certain tests beforehand: which tier they belong to, whether they need the machine for themselves,
//! and how long they may take. It stands in `xtask/tests.txt`.

use std::time::Duration;

use super::executables::Test;

/// The rules, a line each: the beginning of a test's id, then words.
const TABLE: &str = include_str!("../../tests.txt");

/// How long a test may take that has no rule.
const LIMIT: Duration = Duration::from_secs(300);

/// When a test is run.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tier {
    /// By `cargo xtask test`.
    #[default]
    Behaviour,
    /// By `cargo xtask test --measure`.
    Measure,
    /// When a person asks for it by name: it takes too long for either.
    ByHand,
}

/// What holds for one test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Rule {
    pub(crate) tier: Tier,
    /// Nothing else runs beside it.
    pub(crate) alone: bool,
    /// Shares a process with all that the same line of the table names: they share what one of them has made.
    pub(crate) together: Option<&'static str>,
    pub(crate) limit: Duration,
}

impl Default for Rule {
    fn default() -> Self {
        Self { tier: Tier::default(), alone: false, together: None, limit: LIMIT }
    }
}

impl Rule {
    /// What a list of tests says of it, if it is anything out of the ordinary.
    pub(crate) fn remark(&self) -> &'static str {
        match (self.tier, self.alone) {
            (Tier::Behaviour, false) => "",
            (Tier::Behaviour, true) => "  (alone)",
            (Tier::Measure, _) => "  (--measure)",
            (Tier::ByHand, _) => "  (by hand)",
        }
    }
}

/// The whole table.
#[derive(Debug)]
pub(crate) struct Rules(Vec<Line>);

#[derive(Debug)]
struct Line {
    prefix: &'static str,
    tier: Option<Tier>,
    alone: bool,
    together: bool,
    limit: Option<Duration>,
}

impl Rules {
    pub(crate) fn read() -> Result<Self, String> {
        read(TABLE)
    }

    /// What holds for this test: all lines that match it, later ones over earlier ones.
    pub(crate) fn of(&self, test: &Test) -> Rule {
        self.for_id(&test.id(), test.ignored)
    }

    fn for_id(&self, id: &str, ignored: bool) -> Rule {
        let mut rule = Rule::default();
        if ignored {
            rule.tier = Tier::Measure;
        }
        for line in self.0.iter().filter(|line| id.starts_with(line.prefix)) {
            rule.tier = line.tier.unwrap_or(rule.tier);
            rule.limit = line.limit.unwrap_or(rule.limit);
            rule.alone |= line.alone;
            if line.together {
                rule.together = Some(line.prefix);
            }
        }
        rule.alone |= rule.tier != Tier::Behaviour;
        rule
    }

    /// A line that matches no test is an error: the test has another name now.
    pub(crate) fn all_match(&self, tests: &[Test]) -> Result<(), String> {
        let ids: Vec<String> = tests.iter().map(Test::id).collect();
        match self.0.iter().find(|line| !ids.iter().any(|id| id.starts_with(line.prefix))) {
            Some(line) => Err(format!("xtask/tests.txt: no test begins with {}", line.prefix)),
            None => Ok(()),
        }
    }
}

fn read(table: &'static str) -> Result<Rules, String> {
    let lines = table.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.map(line).collect::<Result<_, _>>().map(Rules)
}

fn line(text: &'static str) -> Result<Line, String> {
    let mut words = text.split_whitespace();
    let prefix = words.next().unwrap_or_default();
    let mut line = Line { prefix, tier: None, alone: false, together: false, limit: None };
    for word in words {
        match word.split_once('=').unwrap_or((word, "")) {
            ("measure", "") => line.tier = Some(Tier::Measure),
            ("by-hand", "") => line.tier = Some(Tier::ByHand),
            ("alone", "") => line.alone = true,
            ("together", "") => line.together = true,
            ("limit", seconds) => {
                let seconds =
                    seconds.parse().map_err(|_| format!("xtask/tests.txt: {text}: no number of seconds"))?;
                line.limit = Some(Duration::from_secs(seconds));
            }
            _ => return Err(format!("xtask/tests.txt: {text}: {word} is no word of it")),
        }
    }
    Ok(line)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_lines_go_over_earlier_ones() {
        let rules =
            read("# why\ncli::interop::wan:: alone limit=60\ncli::interop::wan::table measure\n").unwrap();
        let wan = rules.for_id("cli::interop::wan::ping", false);
        assert_eq!(wan, Rule { alone: true, limit: Duration::from_secs(60), ..Rule::default() });
        assert_eq!(rules.for_id("cli::interop::wan::table_of_all", false).tier, Tier::Measure);
        assert_eq!(rules.for_id("ssh::lib::a", false), Rule::default());
        assert_eq!(rules.for_id("ssh::lib::a", true).tier, Tier::Measure);
        assert!(read("a::b quick").is_err() && read("a::b limit=x").is_err());
    }

    #[test]
    fn the_table_of_this_project_is_read() {
        Rules::read().unwrap();
    }
}

//! Which commands copy files: what a role may refuse, and what is observed as SFTP.
//!
//! A command is read as a shell reads it, as far as its words go: quotes and backslashes, assignments, programs that run others.
//! Variables, substitutions, scripts and other programs that can move bytes are not looked into. That keeps honest tools from copying,
//! and is no wall against a person with a shell.

use crate::session::Kind;

/// How deep commands in commands are looked into: `sh -c "sh -c ..."`.
const DEEPEST: usize = 4;
/// The file server of OpenSSH, wherever it is.
const FILE_SERVER: &str = "sftp-server";
/// Programs that run the command behind them, with the options of theirs that take a value.
const RUNNERS: &[(&str, &[&str])] = &[
    ("builtin", &[]),
    ("busybox", &[]),
    ("command", &[]),
    ("doas", &["-u", "-C"]),
    ("env", &["-u", "-C", "--unset", "--chdir"]),
    ("exec", &["-a"]),
    ("ionice", &["-c", "-n"]),
    ("nice", &["-n", "--adjustment"]),
    ("nohup", &[]),
    ("setsid", &[]),
    ("stdbuf", &["-i", "-o", "-e"]),
    ("sudo", &["-u", "-g", "-h", "-p", "-C", "-D", "-R", "-T"]),
    ("time", &["-f", "-o"]),
    ("timeout", &["-k", "-s", "--kill-after", "--signal"]),
];
/// Of those, the ones with a word of their own before the command.
const WITH_A_WORD: &[&str] = &["timeout"];
const SHELLS: &[&str] = &["ash", "bash", "dash", "ksh", "mksh", "sh", "zsh"];

/// The file copy that a session is, if it is one: SFTP, or a command that the known tools send.
pub(super) fn copies_files(kind: &Kind) -> Option<&'static str> {
    match kind {
        Kind::Sftp => Some("sftp"),
        Kind::Shell => None,
        Kind::Exec(line) => within(&String::from_utf8_lossy(line), 0),
    }
}

/// Whether a command is a file server and nothing else: what `sftp -s PATH` asks for in place of the subsystem.
pub(super) fn is_file_server(kind: &Kind) -> bool {
    let Kind::Exec(line) = kind else { return false };
    let commands = commands(&String::from_utf8_lossy(line));
    let [command] = commands.as_slice() else { return false };
    // Its options can mean another directory or a server that only reads: then it is itself what is asked for.
    matches!(inner(command), [program] if base(program) == FILE_SERVER)
}

fn within(line: &str, depth: usize) -> Option<&'static str> {
    if depth == DEEPEST {
        return None;
    }
    commands(line).iter().find_map(|command| copy(inner(command), depth))
}

/// The copy that one command is.
fn copy(words: &[String], depth: usize) -> Option<&'static str> {
    let (program, arguments) = words.split_first()?;
    let short = |letters: &[char]| {
        let options = arguments.iter().filter_map(|word| word.strip_prefix('-'));
        options.filter(|word| !word.starts_with('-')).any(|word| word.contains(letters))
    };
    match base(program) {
        FILE_SERVER => Some("sftp"),
        "scp" if short(&['t', 'f']) => Some("scp"),
        "rsync" if arguments.iter().any(|word| word == "--server") => Some("rsync"),
        shell if SHELLS.contains(&shell) && short(&['c']) => {
            // The command is a word that is no option, and may stand behind values of options.
            let mut lines = arguments.iter().filter(|word| !word.starts_with(['-', '+']));
            lines.find_map(|line| within(line, depth + 1))
        }
        "eval" => within(&arguments.join(" "), depth + 1),
        _ => None,
    }
}

/// The command behind assignments and behind programs that run it.
fn inner(mut words: &[String]) -> &[String] {
    loop {
        while let [first, rest @ ..] = words
            && is_assignment(first)
        {
            words = rest;
        }
        let [program, rest @ ..] = words else { return words };
        let name = base(program);
        let Some((_, valued)) = RUNNERS.iter().find(|(runner, _)| *runner == name) else { return words };
        words = rest;
        while let [option, rest @ ..] = words
            && option.starts_with('-')
        {
            words = match rest {
                [_, rest @ ..] if valued.contains(&option.as_str()) => rest,
                rest => rest,
            };
            if option == "--" {
                break;
            }
        }
        if WITH_A_WORD.contains(&name) {
            words = words.get(1..).unwrap_or_default();
        }
    }
}

fn base(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// `NAME=VALUE`.
fn is_assignment(word: &str) -> bool {
    let Some((name, _)) = word.split_once('=') else { return false };
    let name = name.strip_suffix('+').unwrap_or(name);
    let letter = |char: char| char == '_' || char.is_ascii_alphabetic();
    name.starts_with(letter) && name.chars().all(|char| letter(char) || char.is_ascii_digit())
}

/// The simple commands of a line, each as its words without quotes and backslashes (POSIX.1-2024, Shell Command Language 2.2).
fn commands(line: &str) -> Vec<Vec<String>> {
    let mut commands = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut chars = line.chars();
    while let Some(char) = chars.next() {
        match char {
            '\'' => word.get_or_insert_default().extend(chars.by_ref().take_while(|char| *char != '\'')),
            '"' => {
                let word = word.get_or_insert_default();
                while let Some(char) = chars.next() {
                    match char {
                        '"' => break,
                        '\\' => match chars.next() {
                            Some('\n') | None => {}
                            Some(char @ ('$' | '`' | '"' | '\\')) => word.push(char),
                            Some(char) => word.extend(['\\', char]),
                        },
                        char => word.push(char),
                    }
                }
            }
            '\\' => match chars.next() {
                Some('\n') | None => {}
                Some(char) => word.get_or_insert_default().push(char),
            },
            ' ' | '\t' => finish(&mut commands, &mut word),
            // Between commands; what stands in parentheses, braces and backquotes is one, too.
            '\n' | '\r' | ';' | '&' | '|' | '(' | ')' | '`' => {
                finish(&mut commands, &mut word);
                commands.push(Vec::new());
            }
            char => word.get_or_insert_default().push(char),
        }
    }
    finish(&mut commands, &mut word);
    commands.retain(|command| !command.is_empty());
    commands
}

fn finish(commands: &mut [Vec<String>], word: &mut Option<String>) {
    // Words of the shell's own stand before a command, not in it.
    const RESERVED: [&str; 8] = ["{", "!", "if", "then", "else", "while", "until", "do"];
    if let (Some(word), Some(command)) = (word.take(), commands.last_mut())
        && !(command.is_empty() && RESERVED.contains(&word.as_str()))
    {
        command.push(word);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exec(line: &str) -> Option<&'static str> {
        copies_files(&Kind::Exec(line.into()))
    }

    #[test]
    fn the_tools_that_copy_files_are_known() {
        for (line, copy) in [
            ("scp -t /tmp", "scp"),
            ("scp -r -p -f -- file", "scp"),
            ("/usr/bin/scp -vt dir", "scp"),
            ("rsync --server -vlogDtpre.iLsfxCIvu . /tmp", "rsync"),
            ("/usr/lib/openssh/sftp-server", "sftp"),
        ] {
            assert_eq!(exec(line), Some(copy), "{line}");
        }
        assert_eq!(copies_files(&Kind::Sftp), Some("sftp"));
        let others = [
            "scp a b:",
            "rsync -a here there",
            "echo scp -t",
            "echo 'x; scp -t /tmp'",
            "echo \"; scp -t /tmp\"",
            "echo \\; scp -t",
            "env",
            "exec",
            "sudo -u",
            "bash -c",
            "A=scp",
            "ls /usr/lib/openssh/sftp-server",
            "'scp -t' /tmp",
            "",
        ];
        for line in others {
            assert_eq!(exec(line), None, "{line}");
        }
        assert_eq!(copies_files(&Kind::Shell), None);
    }

    #[test]
    fn what_stands_before_a_command_and_within_does_not_hide_it() {
        for line in [
            "exec scp -t /tmp",
            "exec -a name scp -t /tmp",
            "env scp -t /tmp",
            "env -i -u HOME A=b C= scp -t /tmp",
            "/usr/bin/env -- scp -t /tmp",
            "command scp -t /tmp",
            "command -p scp -t /tmp",
            "LANG=C scp -t /tmp",
            "A=1 B='2 3' exec env scp -t /tmp",
            "nice -n 5 nohup scp -t /tmp",
            "timeout -k 5 60 scp -t /tmp",
            "sudo -n -u root scp -t /tmp",
            "\\scp -t /tmp",
            "s\\cp -t /tmp",
            "'scp' \"-t\" /tmp",
            "sc'p' -t /tmp",
            "sc\"p\" '-'t /tmp",
            "sc\\\np -t /tmp",
            "true; scp -t /tmp",
            "true && scp -t /tmp",
            "cd /tmp&&scp -t .",
            "false||scp -t /tmp",
            "cat x | scp -t /tmp",
            "true\nscp -t /tmp",
            "(scp -t /tmp)",
            "{ scp -t /tmp; }",
            "if true; then scp -t /tmp; fi",
            "! scp -t /tmp",
            "sh -c 'scp -t /tmp'",
            "bash -lc \"exec scp -t /tmp\"",
            "bash -o pipefail -c 'scp -t /tmp'",
            "bash -l -c 'sh -c \"scp -t /tmp\"'",
            "eval scp -t /tmp",
            "echo $(scp -f /tmp/x)",
            "echo `scp -f /tmp/x`",
        ] {
            assert_eq!(exec(line), Some("scp"), "{line}");
        }
        assert_eq!(exec("exec /usr/lib/openssh/sftp-server -e -l INFO"), Some("sftp"));
        assert_eq!(exec(&"sh -c ".repeat(100_000)), None, "it ends");
        assert_eq!(exec(&"'\"\\(".repeat(100_000)), None, "it ends");
    }

    #[test]
    fn a_file_server_alone_is_sftp() {
        let is = |line: &str| is_file_server(&Kind::Exec(line.into()));
        for line in [
            "/usr/lib/openssh/sftp-server",
            "exec /usr/libexec/sftp-server",
            "env LANG=C '/usr/lib/openssh/sftp-server'",
            "sftp-server\n",
        ] {
            assert!(is(line), "{line}");
        }
        for line in [
            "/usr/lib/openssh/sftp-server -R",
            "sftp-server -d /srv",
            "sftp-server; id",
            "id | sftp-server",
            "echo sftp-server",
            "sh -c sftp-server",
            "",
        ] {
            assert!(!is(line), "{line}");
        }
        assert!(!is_file_server(&Kind::Sftp) && !is_file_server(&Kind::Shell));
    }
}

//! Stacks that were sampled, folded: how often each was seen.

use std::collections::BTreeMap;

/// What stands for the frames below a stack of which only a part was kept.
pub const CUT: &str = "[cut]";
/// Behind the name of a frame of the kernel.
const KERNEL: &str = "_[k]";
/// Addresses from here up are the kernel's, on the machines that this runs on.
const KERNEL_FROM: u64 = 0xffff_8000_0000_0000;
/// What unwinding gives where it knows no further.
const NOWHERE: u64 = u64::MAX;

/// Stacks, the outermost frame first, and in how many samples each was seen.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Stacks {
    counts: BTreeMap<Vec<String>, u64>,
}

/// How much of the samples something has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Share {
    /// Samples in which it was running itself.
    pub itself: u64,
    /// Samples in which it was on the stack.
    pub with_callees: u64,
}

impl Stacks {
    /// Reads what `perf script -F comm,ip,sym` writes: for each sample a line with the thread's name, its frames from the
    /// innermost outwards, indented, and an empty line. What is not understood is no frame.
    #[must_use]
    pub fn read(script: &str) -> Self {
        let mut stacks = Self::default();
        let mut thread: Option<&str> = None;
        let mut frames: Vec<String> = Vec::new();
        for line in script.lines().chain([""]) {
            let words = line.trim();
            match (words.is_empty(), thread) {
                (true, Some(name)) => {
                    frames.push(clean(name));
                    frames.reverse();
                    stacks.add(std::mem::take(&mut frames), 1);
                    thread = None;
                }
                (true, None) => {}
                (false, None) => thread = Some(words),
                (false, Some(_)) => {
                    let (address, name) = words.split_once(' ').unwrap_or((words, "[unknown]"));
                    let Ok(address) = u64::from_str_radix(address, 16) else { continue };
                    frames.push(match address {
                        NOWHERE => CUT.to_owned(),
                        KERNEL_FROM.. => clean(name) + KERNEL,
                        _ => clean(name),
                    });
                }
            }
        }
        stacks
    }

    /// Adds a stack, the outermost frame first.
    pub fn add(&mut self, stack: Vec<String>, samples: u64) {
        if samples > 0 && !stack.is_empty() {
            *self.counts.entry(stack).or_default() += samples;
        }
    }

    /// Each stack, and in how many samples it was seen.
    pub fn iter(&self) -> impl Iterator<Item = (&[String], u64)> {
        self.counts.iter().map(|(stack, samples)| (stack.as_slice(), *samples))
    }

    /// All samples.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// One line for each stack, as other programs that draw flame graphs take them: `outer;inner;innermost 12`.
    #[must_use]
    pub fn folded(&self) -> String {
        self.iter().map(|(stack, samples)| format!("{} {samples}\n", stack.join(";"))).collect()
    }

    /// The shares of what `name` makes of frames, but for the outermost, which is the name of a thread; what it makes nothing
    /// of is in no share. Sorted by the samples in which it was running itself, the most first.
    #[must_use]
    pub fn shares<'s>(&'s self, name: impl Fn(&'s str) -> Option<&'s str>) -> Vec<(&'s str, Share)> {
        let mut shares: BTreeMap<&str, Share> = BTreeMap::new();
        for (stack, samples) in self.iter() {
            let frames = stack.get(1..).filter(|frames| !frames.is_empty()).unwrap_or(stack);
            let mut named: Vec<&str> = frames.iter().filter_map(|frame| name(frame)).collect();
            if let Some(innermost) = frames.last().and_then(|frame| name(frame)) {
                shares.entry(innermost).or_default().itself += samples;
            }
            // Once for each sample, however deep a function calls itself.
            named.sort_unstable();
            named.dedup();
            for one in named {
                shares.entry(one).or_default().with_callees += samples;
            }
        }
        let mut shares: Vec<_> = shares.into_iter().collect();
        shares.sort_by_key(|(_, share)| std::cmp::Reverse((share.itself, share.with_callees)));
        shares
    }
}

/// A name without what the compiler puts behind it, and without what separates names in folded stacks.
fn clean(name: &str) -> String {
    let name = name.split(".llvm.").next().unwrap_or(name).trim();
    let name = match name.rsplit_once("::h") {
        Some((front, hash)) if hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()) => front,
        _ => name,
    };
    name.replace(';', ":").replace(['\n', '\r'], " ")
}

/// Whose code a frame is: a crate, `kernel`, or a library in C.
#[must_use]
pub fn owner(frame: &str) -> &str {
    if frame.ends_with(KERNEL) {
        return "kernel";
    }
    let named = frame.trim_start_matches(|sign: char| "<&*([".contains(sign));
    let named = ["mut ", "dyn ", "const "].iter().fold(named, |named, word| named.trim_start_matches(word));
    let end = named.find(|sign: char| !sign.is_ascii_alphanumeric() && sign != '_').unwrap_or(named.len());
    let (first, rest) = named.split_at_checked(end).unwrap_or((named, ""));
    let library = [
        ("aws_lc_", "aws-lc"),
        ("ring_core_", "ring"),
        ("sqlite3", "sqlite"),
        ("ZSTD_", "zstd"),
        ("HUF_", "zstd"),
        ("FSE_", "zstd"),
    ];
    match library.iter().find(|(prefix, _)| first.starts_with(prefix)) {
        Some((_, library)) => library,
        None if rest.starts_with("::") && !first.is_empty() => match first {
            "core" | "alloc" | "std" | "hashbrown" => "std",
            "aws_lc_rs" | "aws_lc_sys" => "aws-lc",
            named => named,
        },
        None if frame.starts_with('[') => "unknown",
        None if frame.starts_with('<') => "std",
        None => "C library",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SCRIPT: &str = "\
tokio-rt-worker 
\t          95081 malloc
\t         1098e0 sallyport_wire::tunnel::frame::Frame::encode::h0123456789abcdef
\t          1098eb clone3

tokio-rt-worker 
\tffffffff81e65632 netdev_core_pick_tx
\t           fde9d __GI___writev
\tffffffffffffffff [unknown]

short 
\t          95081 malloc
\t         1098e0 sallyport_wire::tunnel::frame::Frame::encode
\t          1098eb clone3
";

    #[test]
    fn samples_of_perf_are_folded() {
        let stacks = Stacks::read(SCRIPT);
        assert_eq!(
            stacks.folded(),
            "short;clone3;sallyport_wire::tunnel::frame::Frame::encode;malloc 1\n\
             tokio-rt-worker;[cut];__GI___writev;netdev_core_pick_tx_[k] 1\n\
             tokio-rt-worker;clone3;sallyport_wire::tunnel::frame::Frame::encode;malloc 1\n"
        );
        assert_eq!(Stacks::read(&format!("\n\n{SCRIPT}\n\n")), stacks);
        assert_eq!(Stacks::read(""), Stacks::default());
        let shares = stacks.shares(|frame| Some(owner(frame)));
        let of = |name| shares.iter().find(|(found, _)| *found == name).map(|(_, share)| *share);
        assert_eq!(of("kernel"), Some(Share { itself: 1, with_callees: 1 }));
        assert_eq!(of("sallyport_wire"), Some(Share { itself: 0, with_callees: 2 }));
        assert_eq!(of("C library"), Some(Share { itself: 2, with_callees: 3 }), "clone3 and writev");
    }

    #[test]
    fn frames_belong_to_crates() {
        for (frame, expected) in [
            ("<hyper::proto::h2::PipeToSendStream<S> as core::future::future::Future>::poll", "hyper"),
            ("<&mio::net::tcp::stream::TcpStream as std::io::Write>::write_vectored", "mio"),
            ("<&mut h2::codec::Codec<T,B> as futures_core::stream::Stream>::poll_next", "h2"),
            ("core::ptr::drop_in_place<sallyport_wire::tunnel::Stream>", "std"),
            ("aws_lc_0_41_0_aesni_gcm_encrypt", "aws-lc"),
            ("sqlite3VdbeExec", "sqlite"),
            ("sallyport_server::listener::first::classify::{{closure}}", "sallyport_server"),
            ("__GI___writev", "C library"),
            ("[unknown]", "unknown"),
            (CUT, "unknown"),
            ("do_syscall_64_[k]", "kernel"),
            ("", "C library"),
        ] {
            assert_eq!(owner(frame), expected, "{frame}");
        }
    }

    proptest! {
        #[test]
        fn every_sample_is_in_one_share_and_any_text_is_read(text in "(.{0,12}|[ \\t\\na-f0-9;]{0,40}){0,20}") {
            let stacks = Stacks::read(&text);
            let shares = stacks.shares(|frame| Some(owner(frame)));
            prop_assert_eq!(shares.iter().map(|(_, share)| share.itself).sum::<u64>(), stacks.samples());
            prop_assert!(shares.iter().all(|(_, share)| share.itself <= share.with_callees));
            prop_assert_eq!(stacks.folded().lines().count(), stacks.iter().count());
        }
    }
}

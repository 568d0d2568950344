//! How fast a token signs.

use super::*;

/// Signatures a second, by the token and from memory; written to the file that `SALLYPORT_FIGURES` names.
#[test]
#[ignore = "a measurement, run by hand: SALLYPORT_FIGURES=/tmp/figures cargo test --release -p sallyport-sal --test it -- token::speed --ignored"]
fn speed() {
    alone("token::speed::speed", "", |hsm| {
        let custody = hsm.custody();
        let mut figures = String::new();
        for algorithm in [KeyAlgorithm::EcdsaP256, KeyAlgorithm::Ed25519] {
            let token = custody.load(&custody.generate("a key", algorithm).unwrap()).unwrap();
            let memory = MemoryKey::generate(algorithm).unwrap();
            for threads in [1, 4] {
                // Interleaved, and the best of each: what else runs on the machine hits both.
                let (mut by_token, mut by_memory) = (Speed::default(), Speed::default());
                for _ in 0..8 {
                    by_token.keep_best(&speed_of(&*token, threads));
                    by_memory.keep_best(&speed_of(&memory, threads));
                }
                figures.push_str(&format!(
                    "{algorithm}, {threads} threads: token {by_token}; memory {by_memory}\n"
                ));
            }
        }
        if let Some(file) = std::env::var_os("SALLYPORT_FIGURES") {
            fs::write(file, figures).unwrap();
        }
    });
}

#[derive(Default)]
pub(super) struct Speed {
    per_second: f64,
    /// CPU of the whole process for one signature; SoftHSM works inside of it.
    cpu_microseconds: f64,
}

impl Speed {
    fn keep_best(&mut self, other: &Self) {
        self.per_second = self.per_second.max(other.per_second);
        if self.cpu_microseconds == 0.0 || other.cpu_microseconds < self.cpu_microseconds {
            self.cpu_microseconds = other.cpu_microseconds;
        }
    }
}

impl std::fmt::Display for Speed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.0}/s, {:.0} us of CPU each", self.per_second, self.cpu_microseconds)
    }
}

/// One run of half a second.
#[allow(clippy::cast_precision_loss)]
pub(super) fn speed_of(signer: &dyn Signer, threads: usize) -> Speed {
    // The first random number of a thread is slow.
    let ready = Barrier::new(threads + 1);
    let made = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    signer.sign(b"warm up").unwrap();
                    ready.wait();
                    let began = Instant::now();
                    while began.elapsed() < Duration::from_millis(500) {
                        signer.sign(b"a certificate").unwrap();
                        made.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        ready.wait();
        let (began, cpu) = (Instant::now(), cpu_seconds());
        for worker in workers {
            worker.join().unwrap();
        }
        let made = made.load(Ordering::Relaxed) as f64;
        Speed {
            per_second: made / began.elapsed().as_secs_f64(),
            cpu_microseconds: (cpu_seconds() - cpu) * 1e6 / made,
        }
    })
}

/// CPU time of this process. The kernel counts it in hundredths of a second here.
pub(super) fn cpu_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit(')').next().unwrap();
    let ticks: f64 =
        after_name.split_whitespace().skip(11).take(2).map(|ticks| ticks.parse::<f64>().unwrap()).sum();
    ticks / 100.0
}

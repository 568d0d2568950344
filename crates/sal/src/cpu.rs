//! What the CPU has.

use std::fmt;

/// A feature of the CPU that decides whether a provider works, or how fast.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the names are those of the instruction sets")]
pub enum CpuFeature {
    Aes,
    Pclmulqdq,
    Ssse3,
    Avx,
    Avx2,
    Bmi1,
    Bmi2,
    Adx,
    Sha,
    Avx512f,
    Avx512ifma,
    Vaes,
    Vpclmulqdq,
    Neon,
    ArmAes,
    ArmPmull,
    ArmSha2,
    ArmSha3,
}

impl CpuFeature {
    /// Every feature that is looked for.
    pub const ALL: &[Self] = &[
        Self::Aes,
        Self::Pclmulqdq,
        Self::Ssse3,
        Self::Avx,
        Self::Avx2,
        Self::Bmi1,
        Self::Bmi2,
        Self::Adx,
        Self::Sha,
        Self::Avx512f,
        Self::Avx512ifma,
        Self::Vaes,
        Self::Vpclmulqdq,
        Self::Neon,
        Self::ArmAes,
        Self::ArmPmull,
        Self::ArmSha2,
        Self::ArmSha3,
    ];

    /// The name that the kernel and the makers use.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes | Self::ArmAes => "aes",
            Self::Pclmulqdq => "pclmulqdq",
            Self::Ssse3 => "ssse3",
            Self::Avx => "avx",
            Self::Avx2 => "avx2",
            Self::Bmi1 => "bmi1",
            Self::Bmi2 => "bmi2",
            Self::Adx => "adx",
            Self::Sha => "sha_ni",
            Self::Avx512f => "avx512f",
            Self::Avx512ifma => "avx512ifma",
            Self::Vaes => "vaes",
            Self::Vpclmulqdq => "vpclmulqdq",
            Self::Neon => "neon",
            Self::ArmPmull => "pmull",
            Self::ArmSha2 => "sha2",
            Self::ArmSha3 => "sha3",
        }
    }

    /// Whether this machine's CPU has it, and the system lets it be used.
    #[must_use]
    pub fn is_present(self) -> bool {
        #[cfg(target_arch = "x86_64")]
        {
            use std::arch::is_x86_feature_detected as has;
            match self {
                Self::Aes => has!("aes"),
                Self::Pclmulqdq => has!("pclmulqdq"),
                Self::Ssse3 => has!("ssse3"),
                Self::Avx => has!("avx"),
                Self::Avx2 => has!("avx2"),
                Self::Bmi1 => has!("bmi1"),
                Self::Bmi2 => has!("bmi2"),
                Self::Adx => has!("adx"),
                Self::Sha => has!("sha"),
                Self::Avx512f => has!("avx512f"),
                Self::Avx512ifma => has!("avx512ifma"),
                Self::Vaes => has!("vaes"),
                Self::Vpclmulqdq => has!("vpclmulqdq"),
                _ => false,
            }
        }
        #[cfg(target_arch = "aarch64")]
        {
            use std::arch::is_aarch64_feature_detected as has;
            match self {
                Self::Neon => has!("neon"),
                Self::ArmAes => has!("aes"),
                Self::ArmPmull => has!("pmull"),
                Self::ArmSha2 => has!("sha2"),
                Self::ArmSha3 => has!("sha3"),
                _ => false,
            }
        }
        #[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
        {
            false
        }
    }
}

impl fmt::Display for CpuFeature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// The CPU of this machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cpu {
    /// The maker's name for the model, as the kernel tells it; empty where it does not.
    pub model: String,
    /// The features that it has, of those that sources ask for.
    pub features: Vec<CpuFeature>,
}

impl Cpu {
    /// Looks at this machine.
    #[must_use]
    pub fn detect() -> Self {
        let model = std::fs::read_to_string("/proc/cpuinfo")
            .ok()
            .and_then(|text| {
                text.lines()
                    .find(|line| line.starts_with("model name") || line.starts_with("CPU part"))
                    .and_then(|line| line.split_once(':'))
                    .map(|(_, value)| value.trim().to_owned())
            })
            .unwrap_or_default();
        Self { model, features: CpuFeature::ALL.iter().copied().filter(|one| one.is_present()).collect() }
    }

    /// Whether it has a feature.
    #[must_use]
    pub fn has(&self, feature: CpuFeature) -> bool {
        self.features.contains(&feature)
    }

    /// Architecture, model and features in one line: two machines with the same one measure alike.
    #[must_use]
    pub fn fingerprint(&self) -> String {
        let features: Vec<_> = self.features.iter().map(|one| one.name()).collect();
        format!("{} | {} | {}", std::env::consts::ARCH, self.model, features.join(" "))
    }
}

//! Keys of a job: one secret, and the keys derived from it for each rank and node.

use std::fmt;

use sha2::{Digest, Sha256};

use crate::base::{Epoch, JobId, NodeRank, Rank};
use crate::secure::error::HandshakeError;
use crate::secure::peer_key::PeerKey;

/// Smallest size of a key file, in bytes.
pub const KEY_FILE_BYTES_MIN: usize = 16;
/// Largest size of a key file, in bytes.
pub const KEY_FILE_BYTES_MAX: usize = 64 << 10;

/// Secret key of a job. Workers never receive it, no log shows it, and its memory is zeroed when it
/// is dropped.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct JobKey([u8; 32]);

impl Drop for JobKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // Without it the compiler could omit the fill, because nothing reads the memory afterwards.
        std::hint::black_box(&self.0);
    }
}

/// Secret key of one rank in one epoch; it authenticates that rank to the store and nothing else.
#[derive(Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct RankKey([u8; 32]);

/// Why the content of a key file is not a key.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// The key is so short that it could be guessed.
    #[error("the key has {0} bytes, at least {KEY_FILE_BYTES_MIN} are needed")]
    TooShort(usize),
    /// The file is too long to be a key file.
    #[error("the key has {0} bytes, at most {KEY_FILE_BYTES_MAX} are read")]
    TooLong(usize),
}

impl JobKey {
    /// A key of 32 random bytes.
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Generates a random key; fails only when the system has no randomness.
    pub fn generate() -> Result<Self, HandshakeError> {
        // The private half of a new key pair is the source of randomness, without another crate.
        Ok(Self(hmac(b"remuda job key 1", &[PeerKey::generate()?.secret()])))
    }

    /// Derives a key from any text of 16 bytes or more, such as the content of a key file.
    pub fn from_text(text: &[u8]) -> Result<Self, KeyError> {
        match text.len() {
            ..KEY_FILE_BYTES_MIN => Err(KeyError::TooShort(text.len())),
            KEY_FILE_BYTES_MIN..=KEY_FILE_BYTES_MAX => Ok(Self(hmac(b"remuda job key 1", &[text]))),
            _ => Err(KeyError::TooLong(text.len())),
        }
    }

    /// A key that is no secret: every process that knows the name can derive it.
    pub fn of_public_name(name: &str) -> Self {
        Self(hmac(b"remuda public name 1", &[name.as_bytes()]))
    }

    /// A short mark by which people compare keys. It tells nothing else about the key.
    pub fn fingerprint(&self) -> String {
        let mark = hmac(self.bytes(), &[b"remuda key fingerprint 1"]);
        let first = mark.first_chunk().expect("a digest has 32 bytes");
        format!("{:08x}", u32::from_be_bytes(*first))
    }

    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl RankKey {
    pub(super) fn bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

/// Prints no key, so that no log contains one.
impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(…)")
    }
}

impl fmt::Debug for RankKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RankKey(…)")
    }
}

/// Derives the key with which a rank authenticates itself to the store in one epoch.
pub fn derive_rank_key(job: &JobKey, epoch: Epoch, rank: Rank) -> RankKey {
    let (epoch, rank) = (epoch.0.to_le_bytes(), rank.0.to_le_bytes());
    RankKey(hmac(job.bytes(), &[b"remuda rank 1", &epoch, &rank]))
}

/// Derives the key with which the agent of a node authenticates itself to node 0. It is valid in
/// every epoch, because links outlive restarts.
pub fn derive_agent_key(job: &JobKey, node: NodeRank) -> RankKey {
    RankKey(hmac(job.bytes(), &[b"remuda agent 1", &node.0.to_le_bytes()]))
}

/// Derives the key with which the agent of a node without a number authenticates itself to node 0.
pub fn derive_newcomer_key(job: &JobKey) -> RankKey {
    RankKey(hmac(job.bytes(), &[b"remuda newcomer 1"]))
}

/// Derives the name of a job that the user has not named from its key and its port, so that all
/// pods derive the same one and jobs that share a key and a machine have different ones. The name
/// does not reveal the key.
pub fn derive_job_id(job: &JobKey, port: u16) -> JobId {
    let bytes = hmac(job.bytes(), &[b"remuda job id 1", &port.to_le_bytes()]);
    JobId::from_bytes(*bytes.first_chunk().expect("a digest has 32 bytes"))
}

const HMAC_BLOCK: usize = 64;

/// HMAC-SHA-256 as in RFC 2104, for keys of at most one block.
fn hmac(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    assert!(key.len() <= HMAC_BLOCK, "longer keys would have to be hashed first");
    let pad = |byte: u8| {
        let mut block = [byte; HMAC_BLOCK];
        block.iter_mut().zip(key).for_each(|(pad, key)| *pad ^= key);
        block
    };
    let mut inner = Sha256::new_with_prefix(pad(0x36));
    for part in parts {
        inner.update(part);
    }
    let outer = Sha256::new_with_prefix(pad(0x5c));
    outer.chain_update(inner.finalize()).finalize().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(hex: &str) -> Vec<u8> {
        let digits = (0..hex.len()).step_by(2);
        digits.map(|at| u8::from_str_radix(&hex[at..at + 2], 16).unwrap()).collect()
    }

    #[test]
    fn key_fingerprint_differs_between_keys() {
        let fingerprint = |text: &[u8]| JobKey::from_text(text).unwrap().fingerprint();
        let (one, other) = (fingerprint(b"sixteen letters."), fingerprint(b"sixteen letters!"));
        assert_eq!(one.len(), 8);
        assert_ne!(one, other);
        assert_eq!(one, fingerprint(b"sixteen letters."));
    }

    #[test]
    fn hmac_matches_rfc_4231() {
        let found = hmac(&[0x0b; 20], &[b"Hi ", b"There"]);
        let expect = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(found.to_vec(), bytes(expect));
        let found = hmac(b"Jefe", &[b"what do ya want for nothing?"]);
        let expect = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(found.to_vec(), bytes(expect));
    }

    #[test]
    fn rank_key_differs_by_rank_and_epoch() {
        let job = JobKey::from_random([7; 32]);
        let key = |epoch, rank| derive_rank_key(&job, Epoch(epoch), Rank(rank));
        assert_eq!(key(0, 1), key(0, 1));
        assert_ne!(key(0, 1), key(1, 0));
        assert_ne!(key(0, 1), key(0, 2));
        assert_ne!(key(0, 1), derive_agent_key(&job, NodeRank(1)));
        assert_ne!(JobKey::generate(), JobKey::generate());
        assert_eq!(derive_job_id(&job, 1), derive_job_id(&job.clone(), 1));
        assert_ne!(derive_job_id(&job, 1), derive_job_id(&job, 2));
        assert_ne!(derive_job_id(&job, 1), derive_job_id(&JobKey::from_random([8; 32]), 1));
        assert_eq!(format!("{job:?} {:?}", key(0, 0)), "JobKey(…) RankKey(…)");
    }

    #[test]
    fn job_key_rejects_short_and_long_files() {
        assert_eq!(JobKey::from_text(b"short"), Err(KeyError::TooShort(5)));
        assert!(JobKey::from_text(&[b'x'; 16]).is_ok());
        assert_ne!(JobKey::from_text(&[0; 16]), JobKey::from_text(&[0; 17]));
        assert_eq!(JobKey::from_text(&vec![0; 70_000]), Err(KeyError::TooLong(70_000)));
    }
}

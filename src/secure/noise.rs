//! Noise: the patterns of the handshakes, and their messages.

use snow::{Builder, HandshakeState};

use crate::secure::error::HandshakeError;

pub(crate) const NN_PSK: &str = "Noise_NNpsk0_25519_ChaChaPoly_BLAKE2s";

pub(crate) const KK: &str = "Noise_KK_25519_ChaChaPoly_BLAKE2s";

pub(crate) const MESSAGE_BYTES_MAX: usize = 256;

pub(crate) fn builder<'a>(
    pattern: &str,
    prologue: &'a [u8],
) -> Result<Builder<'a>, HandshakeError> {
    let params = pattern.parse().expect("the pattern is a constant that snow knows");
    Ok(Builder::new(params).prologue(prologue)?)
}

pub(crate) fn write(noise: &mut HandshakeState, payload: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut message = vec![0; MESSAGE_BYTES_MAX];
    let bytes = noise.write_message(payload, &mut message)?;
    message.truncate(bytes);
    Ok(message)
}

pub(crate) fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, HandshakeError> {
    let mut payload = vec![0; MESSAGE_BYTES_MAX];
    let bytes = noise.read_message(message, &mut payload)?;
    payload.truncate(bytes);
    Ok(payload)
}

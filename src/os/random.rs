//! Random numbers of the kernel.

use std::io;

use rustix::rand::GetRandomFlags;

/// Returns random bytes, at most 256.
pub fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let get = || rustix::rand::getrandom(&mut bytes, GetRandomFlags::empty());
    match rustix::io::retry_on_intr(get)? {
        count if count == N => Ok(bytes),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// Returns 64 random hexadecimal digits.
pub fn random_digits() -> io::Result<String> {
    let [low, high]: [u128; 2] = bytemuck::cast(random_bytes::<32>()?);
    Ok(format!("{low:032x}{high:032x}"))
}

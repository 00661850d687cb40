//! Cache of the last few images, so that viewing one twice decodes it once.

use std::collections::VecDeque;

use sha2::{Digest, Sha256};

use super::{Detail, ImageView};

const ENTRIES: usize = 32;
const BYTES: usize = 64 << 20;

/// Hash of a file's content, and the resolution.
pub(super) type Key = ([u8; 32], Detail);

pub(super) fn key(bytes: &[u8], detail: Detail) -> Key {
    (Sha256::digest(bytes).into(), detail)
}

/// Images by their key, the most recently used last.
#[derive(Debug, Default)]
pub(super) struct Cache {
    images: VecDeque<(Key, ImageView)>,
    bytes: usize,
}

impl Cache {
    pub(super) fn get(&mut self, key: &Key) -> Option<ImageView> {
        let at = self.images.iter().position(|(known, _)| known == key)?;
        let entry = self.images.remove(at)?;
        let image = entry.1.clone();
        self.images.push_back(entry);
        Some(image)
    }

    pub(super) fn put(&mut self, key: Key, image: ImageView) {
        if image.bytes.len() > BYTES || self.get(&key).is_some() {
            return;
        }
        self.bytes += image.bytes.len();
        self.images.push_back((key, image));
        while self.images.len() > ENTRIES || self.bytes > BYTES {
            let Some((_, oldest)) = self.images.pop_front() else { return };
            self.bytes -= oldest.bytes.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;
    use crate::image::ImageFormat;

    fn image(size: usize) -> ImageView {
        ImageView { format: ImageFormat::Png, bytes: Bytes::from(vec![0; size]), width: 1, height: 1 }
    }

    #[test]
    fn the_least_recently_used_image_is_evicted_first() {
        let mut cache = Cache::default();
        let key = |name: usize| key(&name.to_be_bytes(), Detail::High);
        for name in 0..ENTRIES {
            cache.put(key(name), image(1));
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(key(ENTRIES), image(1));
        assert!(cache.get(&key(0)).is_some() && cache.get(&key(1)).is_none());
        assert!(cache.get(&(key(0).0, Detail::Original)).is_none());
        for name in 100..110 {
            cache.put(key(name), image(BYTES / 4));
            assert!(cache.bytes <= BYTES);
            assert_eq!(cache.bytes, cache.images.iter().map(|(_, image)| image.bytes.len()).sum::<usize>());
        }
        assert_eq!(cache.images.len(), 4);
        cache.put(key(200), image(BYTES + 1));
        assert!(cache.get(&key(200)).is_none());
    }
}

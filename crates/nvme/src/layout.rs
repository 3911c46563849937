//! Compile-time checks that a structure lies on the wire as the specification draws it.

/// Asserts a wire structure's size and the offsets of its fields when the crate is compiled.
macro_rules! layout {
    ($type:ty, $size:expr $(, $field:ident @ $offset:expr)* $(,)?) => {
        const _: () = {
            assert!(size_of::<$type>() == $size);
            assert!(align_of::<$type>() == 1);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)*
        };
    };
}

/// Gives a wire structure its all-zero value and its view over received bytes.
macro_rules! wire {
    ($type:ty) => {
        impl Default for $type {
            /// All bytes zero: "not reported" for most fields.
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        impl $type {
            /// Bytes on the wire.
            pub const BYTES: usize = size_of::<Self>();

            /// A view over the first [`Self::BYTES`] bytes; `None` if there are fewer.
            pub fn parse(bytes: &[u8]) -> Option<&Self> {
                zerocopy::FromBytes::ref_from_prefix(bytes)
                    .ok()
                    .map(|(view, _)| view)
            }

            /// The structure as it goes on the wire.
            pub fn as_wire(&self) -> &[u8] {
                zerocopy::IntoBytes::as_bytes(self)
            }
        }
    };
}

pub(crate) use {layout, wire};

//! `wire!`: defines a struct or an enum together with its encoding.

/// Defines a type of the protocol. Fields are encoded in the order in which they are written.
///
/// - The variants of an enum have a number (`= 3`), and the fields of a variant have names, which only document them.
///   `unknown` is the error for any other number. An enum that borrows bulk bytes names the lifetime `'a`.
/// - `check` is called with every decoded value, and returns an error for a value that is out of bounds.
macro_rules! wire {
    (
        $(#[$meta:meta])*
        pub struct $name:ident { $($(#[$about:meta])* pub $field:ident: $type:ty,)+ }
        $(check $check:path;)?
    ) => {
        $(#[$meta])*
        pub struct $name { $($(#[$about])* pub $field: $type,)+ }

        impl<'a> $crate::protocol::wire::Wire<'a> for $name {
            fn write(&self, to: &mut Vec<u8>) {
                $(self.$field.write(to);)+
            }

            fn read(from: &mut &'a [u8]) -> Result<Self, $crate::protocol::WireError> {
                let value = Self { $($field: <$type>::read(from)?,)+ };
                $($check(&value)?;)?
                Ok(value)
            }
        }
    };
    (
        $(#[$meta:meta])*
        pub enum $name:ident $(<$life:lifetime>)? {
            $($(#[$about:meta])* $variant:ident $(($($field:ident: $type:ty),+))? = $tag:tt,)+
        }
        unknown $unknown:literal;
    ) => {
        $(#[$meta])*
        pub enum $name $(<$life>)? { $($(#[$about])* $variant $(($($type),+))?,)+ }

        #[allow(unused_variables, reason = "the variants may have no fields")]
        impl<'a> $crate::protocol::wire::Tagged<'a> for $name $(<$life>)? {
            fn tag(&self) -> u8 {
                match self { $(Self::$variant { .. } => $tag,)+ }
            }

            fn write_fields(&self, to: &mut Vec<u8>) {
                match self { $(Self::$variant $(($($field),+))? => { $($($field.write(to);)+)? })+ }
            }

            fn read_fields(tag: u8, from: &mut &'a [u8]) -> Result<Self, $crate::protocol::WireError> {
                Ok(match tag {
                    $($tag => Self::$variant $(($(<$type>::read(from)?),+))?,)+
                    _ => return Err($crate::protocol::WireError($unknown)),
                })
            }
        }
    };
}

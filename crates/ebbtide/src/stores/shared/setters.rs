//! Setters of the request types.

/// Writes a consuming setter for each optional member of a request.
macro_rules! setters {
    ($($name:ident: $type:ty),+ $(,)?) => {
        $(
            #[doc = concat!("Sets [`", stringify!($name), "`](Self#structfield.", stringify!($name), ").")]
            pub fn $name(mut self, $name: impl Into<$type>) -> Self {
                self.$name = Some($name.into());
                self
            }
        )+
    };
}

pub(crate) use setters;

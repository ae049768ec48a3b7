//! Forwarding of backend methods, written once.

/// Implements methods of [`Backend`](crate::Backend) or [`Admin`](crate::Admin) inside an `impl` block by passing each
/// call on to another backend.
///
/// ```text
/// delegate!(self => self.inner; get scan info);                   // the call itself
/// delegate!(self => self.inner, through self.measure; list);      // self.measure("list", the call)
/// ```
///
/// The traits have no default bodies: a method that is neither named here nor written out does not compile.
#[macro_export]
macro_rules! delegate {
    ($self:ident => $inner:expr; $($method:ident)+) => {
        $($crate::__backend_method!($method, $self, [call] $inner);)+
    };
    ($self:ident => $inner:expr, through $this:ident.$around:ident; $($method:ident)+) => {
        $($crate::__backend_method!($method, $self, [around $this $around] $inner);)+
    };
}

/// Implements methods of [`Backend`](crate::Backend) or [`Admin`](crate::Admin) inside an `impl` block by the bodies
/// of [`backend::defaults`](crate::backend::defaults) and [`admin::defaults`](crate::admin::defaults).
#[macro_export]
macro_rules! provide {
    ($($method:ident)+) => {
        $($crate::__backend_method!($method, self, [provide] self);)+
    };
}

/// Emits one method, in the form that `async_trait` gives it, so that forwarding boxes nothing a second time.
#[doc(hidden)]
#[macro_export]
macro_rules! __backend_method {
    (info, $self:ident, [call] $inner:expr) => {
        fn info(&$self) -> $crate::backend::Info {
            $inner.info()
        }
    };
    (get, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend get ('l1) (key: &'l1 $crate::Key, now: $crate::Timestamp)
            (Option<$crate::Record>) $($rest)+);
    };
    (get_many, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend get_many ('l1) (keys: &'l1 [$crate::Key], now: $crate::Timestamp)
            (Vec<Option<$crate::Record>>) $($rest)+);
    };
    (take, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend take ('l1) (key: &'l1 $crate::Key, now: $crate::Timestamp)
            (Option<$crate::Record>) $($rest)+);
    };
    (commit, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend commit () (batch: $crate::Batch, now: $crate::Timestamp)
            ($crate::Commit) $($rest)+);
    };
    (commit_each, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend commit_each () (batches: Vec<$crate::Batch>, now: $crate::Timestamp)
            (Vec<$crate::Commit>) $($rest)+);
    };
    (alter, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend alter ('l1 'l2) (key: &'l1 $crate::Key,
            alteration: &'l2 $crate::Alteration, now: $crate::Timestamp) ($crate::Altered) $($rest)+);
    };
    (scan, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend scan ('l1 'l2) (prefix: &'l1 $crate::Prefix,
            after: Option<&'l2 $crate::Cursor>, limit: usize, now: $crate::Timestamp) ($crate::Page) $($rest)+);
    };
    (sweep, $($rest:tt)+) => {
        $crate::__backend_method!(@emit backend sweep ('l1) (until: $crate::Timestamp, budget: &'l1 $crate::Budget)
            ($crate::Swept) $($rest)+);
    };
    (stats, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin stats () (now: $crate::Timestamp) ($crate::Stats) $($rest)+);
    };
    (stats_at_hand, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin stats_at_hand () (now: $crate::Timestamp)
            (Option<$crate::Stats>) $($rest)+);
    };
    (list, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin list ('l1 'l2) (prefixes: &'l1 [$crate::Prefix],
            after: Option<&'l2 $crate::Cursor>, limit: usize, now: $crate::Timestamp) ($crate::Page) $($rest)+);
    };
    (count, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin count ('l1 'l2) (prefixes: &'l1 [$crate::Prefix],
            after: Option<&'l2 $crate::Cursor>, now: $crate::Timestamp) ($crate::Counted) $($rest)+);
    };
    (clear, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin clear ('l1 'l2) (prefixes: &'l1 [$crate::Prefix],
            after: Option<&'l2 $crate::Cursor>, now: $crate::Timestamp) ($crate::Cleared) $($rest)+);
    };
    (erase, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin erase ('l1) (prefix: &'l1 $crate::Prefix, now: $crate::Timestamp)
            ($crate::Erased) $($rest)+);
    };
    (clock_mark, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin clock_mark () () (Option<$crate::Timestamp>) $($rest)+);
    };
    (set_clock_mark, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin set_clock_mark () (mark: $crate::Timestamp) (()) $($rest)+);
    };
    (engine_clock, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin engine_clock () () (Option<$crate::Timestamp>) $($rest)+);
    };
    (warnings, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin warnings () () (Vec<String>) $($rest)+);
    };
    (backup, $($rest:tt)+) => {
        $crate::__backend_method!(@emit admin backup ('l1) (dir: &'l1 ::std::path::Path) (()) $($rest)+);
    };

    (@emit $module:ident $method:ident ($($life:lifetime)*) ($($name:ident: $type:ty),*) ($answer:ty)
        $self:ident, [$($how:tt)+] $inner:expr) => {
        fn $method<'l0, $($life,)* 'async_trait>(
            &'l0 $self, $($name: $type),*
        ) -> ::std::pin::Pin<Box<dyn Future<Output = $crate::Result<$answer>> + Send + 'async_trait>>
        where
            'l0: 'async_trait,
            $($life: 'async_trait,)*
            Self: 'async_trait,
        {
            $crate::__backend_method!(@body [$($how)+] $module $method $self ($inner) ($($name),*))
        }
    };

    (@body [call] $module:ident $method:ident $self:ident ($inner:expr) ($($name:ident),*)) => {
        $inner.$method($($name),*)
    };
    (@body [around $this:ident $around:ident] $module:ident $method:ident $self:ident ($inner:expr)
        ($($name:ident),*)) => {
        Box::pin($this.$around(stringify!($method), $inner.$method($($name),*)))
    };
    (@body [provide] $module:ident $method:ident $self:ident ($inner:expr) ($($name:ident),*)) => {
        Box::pin($crate::$module::defaults::$method($self $(, $name)*))
    };
}

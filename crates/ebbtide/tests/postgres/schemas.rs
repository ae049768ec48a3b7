pub(crate) const CASES: &[crate::service::Case] = &[];

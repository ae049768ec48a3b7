pub(crate) const CASES: &[crate::service::Case] = &[];
pub(crate) struct Race;
impl Race {
    pub(crate) fn from_environment() -> Option<Self> {
        None
    }
    pub(crate) fn run(self) -> std::process::ExitCode {
        todo!()
    }
}

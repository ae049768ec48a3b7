//! Who gives way: sweeps, backups and what the engine does for itself, to those who wait for an answer.

/// How nice they are. A thread that is ten steps nicer than another gets a tenth of a processor that both want, and all of
/// one that nobody else does.
#[cfg(target_os = "linux")]
const NICENESS: i32 = 10;

/// Lets this thread give way until it ends, and those that it starts. It is never made less nice than it is; where the
/// system refuses, the work is done as before.
pub(in crate::engines) fn lower_priority() {
    #[cfg(target_os = "linux")]
    if rustix::process::getpriority_process(None).is_ok_and(|niceness| niceness < NICENESS) {
        let _ = rustix::process::setpriority_process(None, NICENESS);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::thread::spawn;

    use rustix::process::getpriority_process;

    use super::*;

    #[test]
    fn a_thread_gives_way_with_those_that_it_starts_and_the_others_do_not() {
        let niceness = || getpriority_process(None).unwrap();
        let before = niceness();
        let nicer = spawn(move || {
            lower_priority();
            [niceness(), spawn(niceness).join().unwrap()]
        });
        assert_eq!(nicer.join().unwrap(), [NICENESS.max(before); 2]);
        assert_eq!(niceness(), before);
    }
}

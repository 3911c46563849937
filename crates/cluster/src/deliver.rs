use std::panic::{AssertUnwindSafe, catch_unwind};

type Receiver<T> = Box<dyn FnOnce(T) + Send>;

/// Calls back exactly once, whatever becomes of who should: dropped, it says `otherwise`.
pub(crate) struct Deliver<T> {
    rest: Option<(Receiver<T>, T)>,
}

impl<T> Deliver<T> {
    pub(crate) fn new(to: impl FnOnce(T) + Send + 'static, otherwise: T) -> Self {
        Self {
            rest: Some((Box::new(to), otherwise)),
        }
    }

    pub(crate) fn with(mut self, value: T) {
        if let Some((to, _)) = self.rest.take() {
            call(to, value);
        }
    }
}

impl<T> Drop for Deliver<T> {
    fn drop(&mut self) {
        if let Some((to, otherwise)) = self.rest.take() {
            call(to, otherwise);
        }
    }
}

/// What is called may panic: the cluster's thread goes on.
fn call<T>(to: Receiver<T>, value: T) {
    if catch_unwind(AssertUnwindSafe(|| to(value))).is_err() {
        tracing::error!("what waited for an answer of the cluster has panicked");
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn it_is_called_once_also_if_dropped() {
        let (send, heard) = channel();
        let deliver = |value| Deliver::new(value, "lost");
        let to = send.clone();
        deliver(Box::new(move |said| to.send(said).expect("heard")) as Receiver<&str>).with("said");
        drop(deliver(Box::new(move |said| {
            send.send(said).expect("heard")
        })));
        assert_eq!(heard.iter().collect::<Vec<_>>(), ["said", "lost"]);
    }

    #[test]
    fn a_panic_there_is_none_here() {
        Deliver::new(|_| panic!("on purpose"), 0).with(1);
    }
}

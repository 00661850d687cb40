//! The DNS resolver of a client, which refuses forbidden addresses.

use std::{
    collections::HashMap,
    fmt,
    net::{IpAddr, SocketAddr},
    sync::Arc,
};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};

/// Whether a client may connect to an address.
pub type Check = fn(IpAddr) -> bool;

/// A resolver with fixed entries that refuses a name if one of its addresses is forbidden. The checked addresses are
/// the ones that are connected to, so a name that changes its address between check and connect gains nothing.
#[derive(Clone)]
pub(crate) struct Names {
    pub(crate) known: HashMap<String, IpAddr>,
    pub(crate) check: Option<Check>,
    /// The resolver of names without a fixed entry.
    others: Arc<dyn Resolve>,
}

impl Default for Names {
    fn default() -> Self {
        Self { known: HashMap::new(), check: None, others: Arc::new(ThisHost) }
    }
}

impl Names {
    pub(crate) fn allows(&self, ip: IpAddr) -> bool {
        self.check.is_none_or(|check| check(ip.to_canonical()))
    }
}

impl Resolve for Names {
    fn resolve(&self, name: Name) -> Resolving {
        let (names, known) = (self.clone(), self.known.get(name.as_str()).copied());
        Box::pin(async move {
            let found: Vec<SocketAddr> = match known {
                Some(ip) => vec![SocketAddr::new(ip, 0)],
                None => names.others.resolve(name).await?.collect(),
            };
            if !found.iter().all(|server| names.allows(server.ip())) {
                return Err(MustNotBeAsked.into());
            }
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

struct ThisHost;

impl Resolve for ThisHost {
    fn resolve(&self, name: Name) -> Resolving {
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

/// The error of a name with a forbidden address.
#[derive(Debug)]
pub(crate) struct MustNotBeAsked;

impl fmt::Display for MustNotBeAsked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the address is not allowed")
    }
}

impl std::error::Error for MustNotBeAsked {}

#[cfg(test)]
mod tests {
    use super::*;

    struct Fixed(Vec<SocketAddr>);

    impl Resolve for Fixed {
        fn resolve(&self, _name: Name) -> Resolving {
            let found = self.0.clone();
            Box::pin(async move { Ok(Box::new(found.into_iter()) as Addrs) })
        }
    }

    #[tokio::test]
    async fn a_name_is_refused_if_any_of_its_addresses_is_forbidden() {
        for (addresses, fine) in [
            (vec!["1.1.1.1:0"], true),
            (vec!["127.0.0.1:0"], false),
            (vec!["1.1.1.1:0", "127.0.0.1:0"], false),
            (vec!["1.1.1.1:0", "[::1]:0"], false),
            (vec!["[::ffff:127.0.0.1]:0"], false),
        ] {
            let found: Vec<SocketAddr> = addresses.iter().map(|address| address.parse().expect("one")).collect();
            let names = Names {
                known: HashMap::from([("known.example".to_owned(), found[0].ip())]),
                check: Some(|ip| !ip.is_loopback()),
                others: Arc::new(Fixed(found.clone())),
            };
            let first = names.resolve("known.example".parse().expect("a name")).await;
            assert_eq!(first.is_ok(), names.allows(found[0].ip()));
            let resolved = names.resolve("rebound.example".parse().expect("a name")).await;
            assert_eq!(resolved.is_ok(), fine, "{addresses:?}");
            if let Ok(resolved) = resolved {
                assert_eq!(resolved.collect::<Vec<_>>(), found);
            }
        }
    }
}

//! Budget of a run in tokens, dollars and time, and prices of models.

use std::{collections::BTreeMap, time::Duration};

use serde::{Deserialize, Serialize};

use super::Run;
use crate::{RequestUsage, Usage};

/// What a run may spend. It is checked before each model call, includes nested runs, and continues to count when a saved run
/// is resumed.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Budget {
    /// Input and output tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<u64>,
    /// US dollars, by `prices`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dollars: Option<f64>,
    /// Time, not counting the time in which a run is saved.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Duration>,
    /// Prices of models.
    pub prices: Prices,
}

impl Budget {
    /// No limit.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// At most this many tokens.
    #[must_use]
    pub fn tokens(mut self, most: u64) -> Self {
        self.tokens = Some(most);
        self
    }

    /// At most this many dollars.
    #[must_use]
    pub fn dollars(mut self, most: f64) -> Self {
        self.dollars = most.is_finite().then_some(most);
        self
    }

    /// At most this much time.
    #[must_use]
    pub fn time(mut self, most: Duration) -> Self {
        self.time = Some(most);
        self
    }

    /// Replaces the prices.
    #[must_use]
    pub fn prices(mut self, prices: Prices) -> Self {
        self.prices = prices;
        self
    }

    /// The rest of the budget after this usage and time.
    pub(crate) fn rest(&self, usage: &Usage, elapsed: Duration) -> Self {
        Self {
            tokens: self.tokens.map(|most| most.saturating_sub(usage.total_tokens)),
            dollars: self.dollars.map(|most| (most - self.prices.cost(usage)).max(0.0)),
            time: self.time.map(|most| most.saturating_sub(elapsed)),
            prices: self.prices.clone(),
        }
    }

    /// Whether tokens or dollars are limited.
    pub(crate) fn limits_models(&self) -> bool {
        self.tokens.is_some() || self.dollars.is_some()
    }

    /// The smaller limit of two budgets, for each part.
    pub(crate) fn and(self, other: &Self) -> Self {
        fn smaller<T: PartialOrd + Copy>(one: Option<T>, other: Option<T>) -> Option<T> {
            match (one, other) {
                (Some(one), Some(other)) => Some(if other < one { other } else { one }),
                (one, other) => one.or(other),
            }
        }
        Self {
            tokens: smaller(self.tokens, other.tokens),
            dollars: smaller(self.dollars, other.dollars),
            time: smaller(self.time, other.time),
            prices: if self.dollars.is_none() { other.prices.clone() } else { self.prices },
        }
    }

    /// This budget plus what a run has spent already.
    pub(crate) fn beyond(self, run: &Run) -> Self {
        let (usage, elapsed) = (run.usage(), run.elapsed());
        Self {
            tokens: self.tokens.map(|most| most.saturating_add(usage.total_tokens)),
            dollars: self.dollars.map(|most| most + self.prices.cost(usage)),
            time: self.time.map(|most| most.saturating_add(elapsed)),
            prices: self.prices,
        }
    }
}

/// Which part of a budget is spent.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Spent {
    /// Tokens.
    Tokens {
        /// Tokens spent.
        spent: u64,
        /// Limit.
        of: u64,
    },
    /// Dollars.
    Dollars {
        /// Dollars spent.
        spent: f64,
        /// Limit.
        of: f64,
    },
    /// Time.
    Time {
        /// Time spent.
        spent: Duration,
        /// Limit.
        of: Duration,
    },
}

/// Price of a model in dollars per million tokens.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Price {
    /// Input tokens.
    pub input: f64,
    /// Input tokens from a cache.
    pub cached: f64,
    /// Output tokens.
    pub output: f64,
}

/// Prices by the beginning of a model's name; the longest match counts. Prices change: set your own where they matter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Prices(BTreeMap<String, Price>);

impl Default for Prices {
    fn default() -> Self {
        let known = [
            ("gpt-5", 1.25, 0.125, 10.0),
            ("gpt-5-mini", 0.25, 0.025, 2.0),
            ("gpt-5-nano", 0.05, 0.005, 0.4),
            ("gpt-4.1", 2.0, 0.5, 8.0),
            ("gpt-4.1-mini", 0.4, 0.1, 1.6),
            ("gpt-4o", 2.5, 1.25, 10.0),
            ("gpt-4o-mini", 0.15, 0.075, 0.6),
            ("o3", 2.0, 0.5, 8.0),
            ("o4-mini", 1.1, 0.275, 4.4),
        ];
        Self(known.map(|(name, input, cached, output)| (name.to_owned(), Price { input, cached, output })).into())
    }
}

impl Prices {
    /// Sets the price of all models whose name begins with this text.
    #[must_use]
    pub fn with(mut self, model: impl Into<String>, price: Price) -> Self {
        let finite = |dollars: f64| if dollars.is_finite() { dollars.max(0.0) } else { f64::MAX };
        let Price { input, cached, output } = price;
        let price = Price { input: finite(input), cached: finite(cached), output: finite(output) };
        self.0.insert(model.into(), price);
        self
    }

    /// The price of a model, if it is known.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<Price> {
        let name = model.rsplit('/').next().unwrap_or(model);
        let known =
            self.0.iter().filter(|(start, _)| name.starts_with(start.as_str()) || model.starts_with(start.as_str()));
        known.max_by_key(|(start, _)| start.len()).map(|(_, price)| *price)
    }

    /// Cost of this usage in dollars. Models without a price cost nothing.
    #[must_use]
    pub fn cost(&self, usage: &Usage) -> f64 {
        // The sum of an empty iterator is -0.0.
        usage.entries.iter().map(|request| self.cost_of(request)).sum::<f64>() + 0.0
    }

    #[expect(clippy::cast_precision_loss, reason = "no request has 2^52 tokens")]
    fn cost_of(&self, request: &RequestUsage) -> f64 {
        let Some(price) = self.of(&request.model) else { return 0.0 };
        let fresh = request.input_tokens.saturating_sub(request.cached_tokens);
        let parts =
            [(fresh, price.input), (request.cached_tokens, price.cached), (request.output_tokens, price.output)];
        parts.iter().map(|(tokens, dollars)| *tokens as f64 * dollars / 1e6).sum()
    }
}

impl Run {
    /// The part of the budget that is spent, if any.
    pub(crate) fn overspent(&self) -> Option<Spent> {
        let Budget { tokens, dollars, time, prices } = &self.budget;
        if let Some(of) = *tokens
            && self.usage.total_tokens >= of
        {
            return Some(Spent::Tokens { spent: self.usage.total_tokens, of });
        }
        if let Some(of) = *dollars {
            let spent = prices.cost(&self.usage);
            if spent >= of {
                return Some(Spent::Dollars { spent, of });
            }
        }
        let of = (*time)?;
        (self.elapsed >= of).then_some(Spent::Time { spent: self.elapsed, of })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_known_name_gives_the_price() {
        let prices = Prices::default();
        assert_eq!(prices.of("openai/gpt-5-mini-2026").map(|price| price.input), Some(0.25));
        assert_eq!(prices.of("gpt-5.5").map(|price| price.input), Some(1.25));
        assert_eq!(prices.of("llama3"), None);
        let own = prices.with("llama", Price { input: 1.0, cached: 0.0, output: 0.0 });
        assert_eq!(own.of("ollama/llama3").map(|price| price.input), Some(1.0));
    }

    #[test]
    fn cached_tokens_cost_less() {
        let mut usage = Usage::default();
        let used =
            Usage { input_tokens: 1_000_000, cached_tokens: 400_000, output_tokens: 100_000, ..Usage::default() };
        usage.add_request("gpt-5", &used);
        let cost = Prices::default().cost(&usage);
        assert!((cost - (0.6 * 1.25 + 0.4 * 0.125 + 0.1 * 10.0)).abs() < 1e-9, "{cost}");
    }
}

// The statistics of one threshold, as dpaudit.lower_bounds computes them: Clopper-Pearson upper
// bounds on both error rates, mu of Gaussian DP, and epsilon at delta. Tests compare them.
const numbers = (() => {
  "use strict";

  // Stirling's series after shifting the argument up, where it is exact to the last digits.
  function logGamma(x) {
    let shift = 0;
    while (x < 15) { shift += Math.log(x); x += 1; }
    const y = 1 / (x * x);
    const series = (1 / 12 - y * (1 / 360 - y * (1 / 1260 - y * (1 / 1680 - y / 1188)))) / x;
    return (x - 0.5) * Math.log(x) - x + 0.5 * Math.log(2 * Math.PI) + series - shift;
  }

  // Lentz's evaluation of the continued fraction of the incomplete beta function.
  function betaFraction(a, b, x) {
    const tiny = 1e-300;
    let c = 1, d = 1 - ((a + b) * x) / (a + 1);
    d = 1 / (Math.abs(d) < tiny ? tiny : d);
    let h = d;
    for (let m = 1; m < 10000; m += 1) {
      for (const term of [
        (m * (b - m) * x) / ((a + 2 * m - 1) * (a + 2 * m)),
        (-(a + m) * (a + b + m) * x) / ((a + 2 * m) * (a + 2 * m + 1)),
      ]) {
        d = 1 + term * d;
        d = 1 / (Math.abs(d) < tiny ? tiny : d);
        c = 1 + term / c;
        if (Math.abs(c) < tiny) c = tiny;
        h *= d * c;
      }
      if (Math.abs(d * c - 1) < 1e-15) break;
    }
    return h;
  }

  // P(Beta(a, b) > x), from whichever side needs no subtraction.
  function betaAbove(a, b, x) {
    if (x <= 0) return 1;
    if (x >= 1) return 0;
    const front = Math.exp(
      logGamma(a + b) - logGamma(a) - logGamma(b) + a * Math.log(x) + b * Math.log1p(-x));
    return x < (a + 1) / (a + b + 2)
      ? 1 - (front * betaFraction(a, b, x)) / a
      : (front * betaFraction(b, a, 1 - x)) / b;
  }

  // Clopper and Pearson's upper bound on an error rate, wrong with probability at most tail.
  function upperRate(errors, trials, tail) {
    if (errors >= trials) return 1;
    let low = errors / trials, high = 1;
    for (let k = 0; k < 200; k += 1) {
      const middle = (low + high) / 2;
      if (middle === low || middle === high) break;
      if (betaAbove(errors + 1, trials - errors, middle) > tail) low = middle;
      else high = middle;
    }
    return high;
  }

  // erfc(x) exp(x^2) for x >= 0: a series near 0, a continued fraction beyond.
  function scaledErfc(x) {
    if (x < 2.5) {
      let term = x, sum = x;
      for (let n = 1; n < 200; n += 1) {
        term *= (2 * x * x) / (2 * n + 1);
        sum += term;
        if (term < 1e-17 * sum) break;
      }
      return Math.exp(x * x) - (2 / Math.sqrt(Math.PI)) * sum;
    }
    let fraction = 0;
    for (let n = 120; n > 0; n -= 1) fraction = n / 2 / (x + fraction);
    return 1 / Math.sqrt(Math.PI) / (x + fraction);
  }

  // log of the normal distribution function: far out the function itself underflows.
  function logNormal(x) {
    if (x > 0) return Math.log1p(-Math.exp(logNormal(-x)));
    const z = -x / Math.SQRT2;
    return Math.log(scaledErfc(z) / 2) - z * z;
  }

  // Quantile of the normal distribution, by Newton's steps on the logarithm in the lower half.
  function normalQuantile(p) {
    if (p <= 0) return -Infinity;
    if (p >= 1) return Infinity;
    if (p > 0.5) return -lowerQuantile(1 - p);
    return lowerQuantile(p);
  }

  function lowerQuantile(p) {
    const goal = Math.log(p);
    let x = p > 0.02 ? (p - 0.5) * 2.6 : -Math.sqrt(-2 * goal - Math.log(-4 * Math.PI * goal));
    for (let k = 0; k < 60; k += 1) {
      const here = logNormal(x);
      const slope = Math.exp(-0.5 * x * x - 0.5 * Math.log(2 * Math.PI) - here);
      const step = (here - goal) / slope;
      x -= step;
      if (Math.abs(step) < 1e-15 * Math.max(1, Math.abs(x))) break;
    }
    return x;
  }

  function gaussianDelta(epsilon, mu) {
    const plus = logNormal(-epsilon / mu + mu / 2);
    const minus = epsilon + logNormal(-epsilon / mu - mu / 2);
    return -Math.exp(plus) * Math.expm1(Math.min(minus - plus, 0));
  }

  function gaussianEpsilon(delta, mu) {
    if (!(mu > 0) || gaussianDelta(0, mu) <= delta) return 0;
    if (delta === 0 || mu === Infinity) return Infinity;
    let low = 0, high = (mu * mu) / 2 + mu;
    while (gaussianDelta(high, mu) > delta) { low = high; high *= 2; }
    for (let k = 0; k < 200; k += 1) {
      const middle = (low + high) / 2;
      if (middle === low || middle === high) break;
      if (gaussianDelta(middle, mu) > delta) low = middle; else high = middle;
    }
    return high;
  }

  // (epsilon, delta)-DP allows no smaller epsilon with both error rates, in both directions.
  function epsilonOfErrors(alpha, beta, delta) {
    const forth = Math.log(Math.max(1 - delta - beta, 0)) - Math.log(alpha);
    const back = Math.log(Math.max(1 - delta - alpha, 0)) - Math.log(beta);
    return Math.max(Number.isNaN(forth) ? 0 : forth, Number.isNaN(back) ? 0 : back, 0);
  }

  function read(falsePositives, negatives, falseNegatives, positives, delta, confidence) {
    const tail = (1 - confidence) / 2;
    const alpha = upperRate(falsePositives, negatives, tail);
    const beta = upperRate(falseNegatives, positives, tail);
    const mu = Math.max(0, -normalQuantile(alpha) - normalQuantile(beta));
    return {
      falsePositiveUpper: alpha,
      falseNegativeUpper: beta,
      mu,
      gaussianEpsilon: gaussianEpsilon(delta, mu),
      epsilon: epsilonOfErrors(alpha, beta, delta),
    };
  }

  return { upperRate, normalQuantile, logNormal, gaussianDelta, gaussianEpsilon, read };
})();

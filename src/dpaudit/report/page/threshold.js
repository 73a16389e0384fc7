// The draggable threshold. Counts come from the library; dragging only looks them up.
const thresholds = (() => {
  "use strict";

  function unpack(text) {
    const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
    return new Float64Array(bytes.buffer);
  }

  function short(value) {
    if (!Number.isFinite(value)) return "∞";
    const digits = Math.abs(value) < 1e-3 && value !== 0 ? value.toExponential(2) : value.toPrecision(4);
    return digits.replace("-", "−");
  }

  function percent(value) {
    return `${Number((100 * value).toPrecision(3))} %`;
  }

  // The place in an ascending array whose number is nearest to the value.
  function nearest(values, value) {
    let low = 0, high = values.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (values[middle] < value) low = middle + 1; else high = middle;
    }
    return low > 0 && value - values[low - 1] < values[low] - value ? low - 1 : low;
  }

  function set(article, name, value, text) {
    for (const element of article.querySelectorAll(`[data-live="${name}"]`)) {
      element.textContent = text;
      element.dataset.value = String(value);
    }
  }

  function begin(article) {
    const source = article.querySelector("script.live");
    if (source === null) return;
    const data = JSON.parse(source.textContent);
    const columns = Object.fromEntries(
      Object.entries(data.columns).map(([name, text]) => [name, unpack(text)]));
    const values = columns.threshold;
    const plot = article.querySelector(".threshold-plot");
    const handle = article.querySelector(".handle");
    const dot = article.querySelector(".here");
    const reset = article.querySelector("button.reset");
    const span = data.high - data.low;
    let place = data.start;

    function percentAcross(value) {
      return Math.min(100, Math.max(0, (100 * (value - data.low)) / span));
    }

    function show(next) {
      place = Math.min(values.length - 1, Math.max(0, next));
      const found = Object.fromEntries(
        Object.entries(columns).map(([name, column]) => [name, column[place]]));
      const fp = found.false_positives, fn = found.false_negatives;
      const alpha = fp / data.negatives, beta = fn / data.positives;
      const across = percentAcross(values[place]);
      handle.style.left = `${across}%`;
      for (const clip of article.querySelectorAll(".clip-right rect")) {
        clip.setAttribute("x", across);
        clip.setAttribute("width", 100 - across);
      }
      for (const clip of article.querySelectorAll(".clip-left rect")) clip.setAttribute("width", across);
      set(article, "threshold", values[place], short(values[place]));
      set(article, "false-positives", fp, fp.toLocaleString("en"));
      set(article, "false-negatives", fn, fn.toLocaleString("en"));
      set(article, "false-positive-rate", alpha, percent(alpha));
      set(article, "false-negative-rate", beta, percent(beta));
      set(article, "false-positive-upper", found.false_positive_upper, percent(found.false_positive_upper));
      set(article, "false-negative-upper", found.false_negative_upper, percent(found.false_negative_upper));
      set(article, "mu", found.mu, found.mu.toFixed(3));
      set(article, "gaussian-epsilon", found.gaussian_epsilon,
        Number.isFinite(found.gaussian_epsilon) ? found.gaussian_epsilon.toFixed(2) : "∞");
      set(article, "epsilon", found.epsilon, found.epsilon.toFixed(2));
      handle.setAttribute("aria-valuenow", String(place));
      handle.setAttribute("aria-valuetext", `threshold ${short(values[place])}: ` +
        `${percent(alpha)} false positives, ${percent(beta)} false negatives, ` +
        `epsilon at least ${found.epsilon.toFixed(2)}`);
      if (dot !== null) {
        dot.style.left = `${found.across}%`;
        dot.style.bottom = `${found.up}%`;
      }
      if (reset !== null) reset.disabled = place === data.start;
    }

    function follow(event) {
      const box = plot.getBoundingClientRect();
      const share = (event.clientX - box.left) / box.width;
      show(nearest(values, data.low + share * span));
    }

    plot.addEventListener("pointerdown", (event) => {
      if (event.button > 0) return;
      plot.setPointerCapture(event.pointerId);
      plot.classList.add("dragging");
      handle.focus({ preventScroll: true });
      follow(event);
      event.preventDefault();
    });
    plot.addEventListener("pointermove", (event) => {
      if (plot.hasPointerCapture(event.pointerId)) follow(event);
    });
    for (const name of ["pointerup", "pointercancel"]) {
      plot.addEventListener(name, () => plot.classList.remove("dragging"));
    }

    handle.setAttribute("aria-valuemin", "0");
    handle.setAttribute("aria-valuemax", String(values.length - 1));
    handle.addEventListener("keydown", (event) => {
      const page = Math.max(1, Math.round(values.length / 20));
      const step = event.shiftKey ? 10 : 1;
      const moves = {
        ArrowLeft: place - step, ArrowDown: place - step, ArrowRight: place + step,
        ArrowUp: place + step, PageDown: place - page, PageUp: place + page,
        Home: 0, End: values.length - 1,
      };
      if (!(event.key in moves)) return;
      show(moves[event.key]);
      event.preventDefault();
    });
    if (reset !== null) reset.addEventListener("click", () => show(data.start));
    show(place);
  }

  return { begin };
})();

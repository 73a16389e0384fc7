// Light or dark, copying, and opening what a link or a printer asks for.
(() => {
  "use strict";
  const root = document.documentElement;

  function remembered() {
    try { return localStorage.getItem("dpaudit-theme"); } catch { return null; }
  }

  function remember(theme) {
    try { localStorage.setItem("dpaudit-theme", theme); } catch { /* a file may not store */ }
  }

  function dark() {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  }

  const toggle = document.querySelector("button.theme");
  function name() { toggle.textContent = dark() ? "Light" : "Dark"; }
  if (["light", "dark"].includes(remembered())) root.dataset.theme = remembered();
  toggle.hidden = false;
  toggle.addEventListener("click", () => {
    root.dataset.theme = dark() ? "light" : "dark";
    remember(root.dataset.theme);
    name();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", name);
  name();

  for (const button of document.querySelectorAll("button.copy")) {
    button.hidden = !navigator.clipboard;
    button.addEventListener("click", async () => {
      await navigator.clipboard.writeText(button.parentElement.querySelector("pre").textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    });
  }

  function openTarget() {
    const target = location.hash && document.getElementById(location.hash.slice(1));
    const around = target && target.closest("details");
    if (around) { around.open = true; target.scrollIntoView(); }
  }
  addEventListener("hashchange", openTarget);
  addEventListener("beforeprint", () => {
    for (const details of document.querySelectorAll("details")) details.open = true;
  });

  for (const article of document.querySelectorAll("article.audit")) thresholds.begin(article);
  openTarget();
})();

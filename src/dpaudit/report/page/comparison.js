// The comparison of several audits: sorting, filtering, and the overlaid trade-off functions.
(() => {
  "use strict";
  const section = document.querySelector(".comparison");
  if (!section) return;
  const body = section.querySelector("tbody");
  const rows = [...body.rows];
  const heads = [...section.querySelectorAll("thead th")];

  function value(row, column) {
    const cell = row.cells[column];
    const text = cell.dataset.value ?? cell.textContent.trim();
    const number = text === "∞" ? Infinity : Number(text.replaceAll(",", ""));
    return text !== "" && !Number.isNaN(number) ? number : text;
  }

  function compare(a, b) {
    if (a === "" || b === "") return (a === "") - (b === ""); // empty cells last
    if (typeof a === "number" && typeof b === "number") return a - b;
    return String(a).localeCompare(String(b));
  }

  function sort(column, descending) {
    const keyed = rows.map((row) => [value(row, column), row]);
    keyed.sort(([a], [b]) => {
      const order = compare(a, b);
      return descending && a !== "" && b !== "" ? -order : order;
    });
    body.append(...keyed.map(([, row]) => row));
    for (const head of heads) head.removeAttribute("aria-sort");
    heads[column].setAttribute("aria-sort", descending ? "descending" : "ascending");
  }

  const select = section.querySelector(".sorting");
  heads.forEach((head, column) => {
    if (head.classList.contains("pick") || "fixed" in head.dataset) return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      sort(column, head.getAttribute("aria-sort") === "ascending");
    });
    select.append(new Option(button.textContent, String(column)));
  });
  select.addEventListener("change", () => sort(Number(select.value), false));

  const status = section.querySelector("[role=status]");
  section.querySelector(".filter").addEventListener("input", (event) => {
    const words = event.target.value.toLowerCase().split(/\s+/);
    let shown = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every((word) => text.includes(word));
      shown += !row.hidden;
    }
    status.textContent = shown < rows.length ? `${shown} of ${rows.length} audits` : "";
  });

  // One colour for each drawn audit; a colour is free again when its audit is no longer chosen.
  const overlay = document.querySelector(".overlay");
  if (!overlay) return;
  const { paths, audits, colours, adversaries } = JSON.parse(overlay.querySelector(".curves").textContent);
  const svg = overlay.querySelector("svg");
  const legend = overlay.querySelector(".legend");
  const boxes = [...body.querySelectorAll(".pick input")];
  const colourOf = new Map([...legend.children].map((entry, place) => [entry.dataset.audit, place]));

  // If adversaries differ, each has its own colour, the same as in all figures.
  function paint(element, key) {
    if (adversaries[key]) element.style.setProperty("--curve", adversaries[key]);
  }

  function draw(key, name) {
    const taken = new Set(colourOf.values());
    const colour = [...Array(colours).keys()].find((each) => !taken.has(each));
    colourOf.set(key, colour);
    audits[key].forEach((place, kind) => {
      if (place === null) return;
      const path = document.createElementNS(svg.namespaceURI, "path");
      path.setAttribute("class", `line c${colour}${kind ? " dashed" : ""}`);
      path.setAttribute("d", paths[place]);
      path.dataset.audit = key;
      paint(path, key);
      svg.append(path);
    });
    const entry = document.createElement("span");
    entry.className = "entry";
    entry.dataset.audit = key;
    const stroke = document.createElement("span");
    stroke.className = `key stroke c${colour}`;
    paint(stroke, key);
    const identity = name.querySelector("code");
    entry.append(stroke, ` ${name.querySelector("a").textContent} `, identity ? identity.cloneNode(true) : "");
    legend.append(entry, " ");
  }

  function update() {
    const full = colourOf.size >= colours;
    for (const box of boxes) box.disabled = full && !box.checked;
  }

  body.addEventListener("change", ({ target }) => {
    const row = target.closest("tr");
    const key = row.dataset.audit;
    if (target.checked) {
      draw(key, row.querySelector("th"));
    } else {
      colourOf.delete(key);
      for (const drawn of overlay.querySelectorAll(`[data-audit="${key}"]`)) drawn.remove();
    }
    update();
  });
  body.addEventListener("pointerover", ({ target }) => {
    const key = target.closest("tr")?.dataset.audit;
    for (const path of svg.querySelectorAll("path")) {
      path.classList.toggle("strong", path.dataset.audit === key);
    }
  });
  // A browser keeps checked boxes when a page is loaded again.
  for (const box of boxes) box.checked = colourOf.has(box.closest("tr").dataset.audit);
  update();
})();

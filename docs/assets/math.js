// Render the formulas of a page with the copy of KaTeX beside this file: no network is needed.
document$.subscribe(() => {
  for (const formula of document.querySelectorAll(".arithmatex")) {
    const text = formula.textContent.trim();
    const displayMode = text.startsWith("\\[");
    katex.render(text.slice(2, -2), formula, { displayMode, throwOnError: false });
  }
  // Notebooks keep their dollar signs.
  for (const cell of document.querySelectorAll(".jp-RenderedMarkdown")) {
    renderMathInElement(cell, { delimiters: [{ left: "$", right: "$", display: false }] });
  }
});

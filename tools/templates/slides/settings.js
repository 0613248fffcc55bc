// Formulas are set once, before reveal.js hides the other slides.
window.MathJax = {
  tex: { inlineMath: [["$", "$"], ["\\(", "\\)"]], processEscapes: true },
  svg: { fontCache: "local" },
  options: { enableMenu: false, ignoreHtmlClass: "code|page" }
};
